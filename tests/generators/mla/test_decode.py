"""One kernel for decode, with every time behind it, and what is said of it elsewhere."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from generators.mla import cards, covered, decode, gain, heads, memory, models
from generators.mla.regimes import map_page
from generators.mla.same_work import PAGE
from generators.model import stories
from generators.model.choice import kernel_of
from generators.write.text import cell
from mla_var3.devices import load
from mla_var3.evidence.compare import said
from tests.generators.checking import see


@pytest.fixture(scope="module")
def known(site):
    return decode.best_known(site)


def test_the_kernel_is_the_one_that_the_calls_launch_or_the_best_timed_at_many_problems(
    site, known, monkeypatch
):
    called, shown = decode.served.kernel(site), kernel_of(known[1][0][0])
    assert shown[:2] == called[:2]
    timed = [of[-1] for of in decode.by_version(site) if of[:2] == called[:2]]
    assert shown[-1] in timed
    if shown != called:  # It is timed at too few problems, or at none.
        assert len(known[1]) > len(decode.by_version(site).get(called, ()))
    monkeypatch.setattr(decode.served, "kernel", lambda site: None)
    known = decode._best_known(site)
    version, pairs = known
    others = {kernel: decode._newest(of.values())
              for kernel, of in decode._known(site, range(1, 2)).items()}  # fmt: skip
    many = max(map(len, others.values())) / 2
    assert len(pairs) >= many
    assert decode._share(pairs) == min(
        decode._share(found) for found in others.values() if len(found) >= many
    )
    assert version.layer == "mla"
    problems = [str(sorted(mine.record.problem.items(), key=str)) for mine, _ in pairs]
    assert len(problems) == len(set(problems)) >= 40
    for mine, theirs in pairs:
        assert site.version_of(mine) == version
        assert mine.record.run == theirs.record.run  # Times of one run alone compare.
        assert (mine.record.problem["s"], mine.record.problem["page"]) == (1, PAGE)


def test_the_page_says_every_time_and_the_worst(site, known):
    page, (version, pairs) = decode.page(site), known
    text = str(page.content)
    lead = text.partition("\n## ")[0]
    worst = max(pairs, key=lambda pair: pair[0].total.median_us / pair[1].total.median_us)
    assert f"**Take [{version.key.replace('_', '&#95;')}]" in lead
    assert said(worst[1].total.median_us, worst[0].total.median_us) in lead
    one, _, several = text.partition(f"{{ #{decode.SEVERAL} }}")
    rows = re.findall(r"^\| \d+ \|.*$", one, re.MULTILINE)
    assert len(rows) == len(pairs)
    more = re.findall(r"^\| \d+ \|.*$", several, re.MULTILINE)
    assert len(more) == len(decode.drafted(site, pairs[0][0])) >= 8
    assert all(row.count("](../records/") == 2 for row in rows)
    few = text.partition("## With up to 8 sequences")[2].partition("<details")[0]
    assert {int(row.split(" | ")[0].strip("| ")) for row in few.splitlines() if row[:3].strip("| ")
            .isdigit()} <= set(range(1, decode.FEW + 1))  # fmt: skip
    assert see(page).scripts == []


def test_few_heads_stand_before_the_table_with_rates_and_what_is_missing(site):
    text = str(decode.page(site).content)
    few = text.partition(f"{{ #{decode.HEADS} }}")[2].partition("\n## ")[0]
    assert text.index(f"#{decode.HEADS} }}") < text.index("\n## With up to")
    rows = re.findall(r"^\| (\d+) heads \|.*$", few, re.MULTILINE)
    assert len(rows) >= 6
    assert few.count(" GB/s |") == 2 * len(rows)
    assert re.search(r"\*\*Not measured:\*\* fewer than \d+ heads", few)
    assert "](../catalogue/when-to-leave-cutile.md)" in few


def test_home_and_the_worklog_name_the_version_that_the_calls_launch(site):
    (story,) = (told for told in stories.load_all(site.root) if told.peer)
    served = decode.served.version(site)
    before = f"v{int(served[1:]) - 1}"  # Where the newest is not timed at that problem yet.
    said = {
        served: "which the calls of a server launch",
        before: "one version before what the calls of a server launch",
    }
    (timed,) = {*re.findall(r"flash_mla/(v\d+)/b\d", story.same)} - {"v1"}  # FlashMLA's too.
    assert f"{timed}, {said[timed]}" in story.same


def test_a_page_with_times_of_another_version_than_the_served_one_says_so(site, monkeypatch):
    monkeypatch.setattr(decode.served, "version", lambda site: "v99")
    lead = str(decode.page(replace(site)).content).partition("\n## ")[0]
    assert re.search(r"These are records of v\d+; a server calls v99", lead)
    assert "v99 was timed at 0 such problems" in lead


def test_several_query_tokens_are_the_same_version_s_under_a_causal_mask(site, known):
    pairs = decode.drafted(site, known[1][0][0])
    for mine, theirs in pairs:
        assert site.version_of(mine) == known[0]
        assert mine.record.run == theirs.record.run
        assert mine.record.problem["causal"]
        assert 2 <= mine.record.problem["s"] <= decode.DRAFTED
    told = covered.drafted(site, site.link("glossary/speculative.md"))
    assert told.startswith("**Covered here, yes**")
    assert f"which-decode-kernel.md#{decode.SEVERAL})" in told


def test_few_heads_stand_with_a_time_each_and_what_they_save(site, known):
    text = heads.text(site, site.link("glossary/head-grouping.md"))
    counts = sorted({int(mine.record.problem["h"]) for mine, _ in known[1]}, reverse=True)
    rows = re.findall(r"^\| (\d+) \|.*$", text, re.MULTILINE)
    assert [int(row) for row in rows] == counts
    assert f"**{counts[-1]} heads in place of {counts[0]} are" in text
    assert f"Fewer than {counts[-1]} heads were not timed" in text
    problems = sum(int(found) for found in re.findall(r"at (\d+) problem", text))
    assert problems == len(known[1])
    bare = replace(site, runs=(), earlier=())
    assert heads.text(bare, lambda target: target).startswith("No number of heads was timed")


def test_without_times_beside_a_library_there_is_no_page(site):
    bare = replace(site, runs=(), earlier=())
    assert decode.page(bare) is None
    assert covered.decoding(bare, lambda target: target).startswith("No kernel was timed")
    assert covered.sample(bare, lambda target: target) == ""


def test_a_card_with_the_same_machine_code_leads_to_the_kernel(site, known):
    version, _ = known
    wanted = f"**To serve decode here, take [{version.key.replace('_', '&#95;')}]"
    assert wanted in str(map_page(site, "nvidia-h100-sxm").content)
    assert "To serve decode here" not in str(map_page(site, "nvidia-b200").content)


def test_a_sample_has_what_a_paper_asks_for(site):
    told = covered.sample(site, site.link("how-times-are-taken.md"))
    for word in ("driver", "commit", "run ", "untimed ones", "nvidia-cutlass-dsl", "FlashMLA"):
        assert word in told, word


def test_prefill_says_what_its_times_leave_out(site):
    told = covered.prefill(site, site.link("glossary/prefill.md"))
    assert told.startswith("**Covered here, yes**")
    assert "is not in the times" in told
    assert "](../records/" in told
    longest = max(run.record.problem["s"] for run in (*site.runs, *site.earlier)
                  if run.is_timed and run.record.kernel.layer == "mla")  # fmt: skip
    assert f"s = {longest:,}" in told


def test_cards_stand_at_published_rates(site):
    text = str(cards.page(site).content)
    old, new = load("nvidia-h200-sxm").bound("bfloat16"), load("nvidia-b200").bound("bfloat16")
    assert f"{new.gbps / old.gbps:.1f} times the memory bandwidth of an H200" in text
    assert f"{new.tflops / old.tflops:.1f} times its 16-bit arithmetic" in text
    row = next(line for line in text.splitlines() if line.startswith("| [NVIDIA B200"))
    assert "180 GB" in row
    assert row.endswith("| no |")
    assert "Nothing was timed on a B200 here" in text


def test_what_limits_decode_turns_with_the_heads(site):
    text = str(cards.page(site).content)
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ")[1:] for line in text.splitlines()
            if line.startswith(("| decode", "| prefill"))}  # fmt: skip
    few, many = rows["decode, 8 heads on the card"], rows["decode, 128 heads on the card"]
    assert few[1] == "bandwidth"
    assert many[1] == "arithmetic"
    assert rows["prefill of 4,096 tokens"][1] == "arithmetic"
    assert few[2].startswith("bandwidth; 1.6x")


def test_a_card_that_was_timed_is_not_called_untimed(site):
    run = next(run for run in site.runs if run.is_timed)
    b200 = replace(run, record=run.record.model_copy(update={"target": "nvidia-b200"}))
    known = {**site.addresses, "results/nvidia-b200": "results/nvidia-b200.md"}
    text = str(cards.page(replace(site, runs=(*site.runs, b200), addresses=known)).content)
    assert "Nothing was timed on a B200" not in text


def test_a_launch_s_energy_is_that_of_its_record_and_the_library_s_of_the_same_run(site):
    told = covered.energy(site, site.link("glossary/energy.md"))
    found = re.findall(r"\[(\d+\.\d) mJ at (\d+) W\]", told)
    assert len(found) == 2
    for joules, watts in found:  # A board of 700 W, a launch of some 70 microseconds.
        assert 1 < float(joules) < 200
        assert 100 < int(watts) < 800
    bare = replace(site, runs=(), earlier=())
    assert covered.energy(bare, lambda target: target).startswith("No energy was measured")


def test_memory_of_a_cache_is_bytes_times_layers_times_tokens(site):
    text = memory.cache(site, site.link("glossary/kv-cache.md"))
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    for _, token, layers, whole in rows[2:]:
        assert int(layers.replace(",", "")) == int(token.replace(",", "")) * memory.LAYERS
        size = float(whole.removesuffix(" GB").replace(",", ""))
        assert size == pytest.approx(int(layers.replace(",", "")) * memory.LONG / 1e9, abs=0.06)
    assert rows[2][1] == "1,152"
    assert rows[3][1] == "656"
    assert "million tokens" in text


def test_the_other_card_takes_longer_by_its_published_rates(site):
    said = cards.slower(site, site.link("how-times-are-taken.md"))
    few, many = (float(found) for found in re.findall(r"(\d\.\d+)x", said))
    assert few > many > 1


def test_heads_of_models_stand_at_one_and_the_same_problem(site, known):
    text = models.text(site, site.link("your-model.md"))
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert [int(row[0]) for row in rows[2:]] == list(models.HEADS)
    times = [float(row[5].removesuffix(" us")) for row in rows[2:]]
    assert times == sorted(times, reverse=True)
    assert rows[2][3:5] == ["memory", "arithmetic"]  # 128 heads: an H100, an H200.
    assert rows[3][3:5] == ["memory", "memory"]
    measured = {int(row[0]) for row in rows[2:] if "FlashMLA" in row[6]}
    assert 128 in measured
    timed = {decode.sizes(pair)["h"] for pairs in decode.by_version(site).values()
             for pair in pairs}  # fmt: skip
    assert measured == timed & set(models.HEADS)
    assert {row[6] for row in rows[2:] if int(row[0]) not in measured} <= {"not timed"}
    assert f"[{cell(known[0].key)}]" in text.rpartition("The kernel to take")[2]


def test_a_faster_kernel_brings_a_step_less_than_itself(site):
    assert gain.more(0.3, 0.8) == pytest.approx(1 / 0.94 - 1)
    assert gain.more(1.0, 0.5) == pytest.approx(1.0)
    text = gain.text(site, site.link("own-kernel-or-library.md"))
    assert "| 20 % less time | 1.0% | 2.0% | 4.2% | 6.4% | 11.1% |" in text
    assert "| twice as fast | 2.6% | 5.3%" in text
    (own, beside) = map(float, re.findall(r"\[(\d+\.\d) us\]", text))
    assert f"{own * 61 / 1e3:.1f} and {beside * 61 / 1e3:.1f} ms of a step" in text
    bare = replace(site, runs=(), earlier=())
    assert "From a record" not in gain.text(bare, lambda target: target)


def test_the_lines_that_a_reader_pastes_print_what_they_say(site, capsys):
    page = (site.root / "docs/own-kernel-or-library.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(lines, {})
    assert capsys.readouterr().out.split()[0] == lines.rpartition("#")[2].strip() == "6.4%"
