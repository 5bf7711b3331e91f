"""Which design where: the cost model and the records side by side."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from generators.mla import advisor, design_choice
from generators.mla.design_choice import comparison
from generators.model import compare
from generators.model.run import Run
from generators.pages import home, kernels
from generators.write.text import us
from mla_var3 import devices, evidence
from mla_var3.evidence.compare import NOISE
from mla_var3.roofline import predict
from mla_var3.workloads.mla import regimes
from tests.generators.checking import see
from tests.generators.commands import commands_of, understand
from tests.generators.runs import GPU, at, on, rows, timed

H200 = devices.load(GPU)
CEILINGS = regimes.ceilings_of(GPU)
SHAPE = regimes.Shape(b=32)
#: The split latent kernel leads where little is asked, the mixed one behind it.
RUNS = (
    at("flash_mla_split_kv", "v1", 1, 130.0),
    at("flash_mla", "v2", 1, 230.0),
    at("mla_var6_plus", "v4", 1, 165.0, n=0),
    at("flash_attention", "v2", 1, 1900.0),
    at("flash_mla_split_kv", "v1", 16, 1600.0),
    at("mla_var6_plus", "v3", 16, 1900.0, n=1216),
    at("mla_var6_plus", "v4", 16, 1850.0, n=1216),
    at("flash_attention", "v2", 16, 1950.0),
)


def choice(site, s: int, *runs):
    found = comparison(on(site, *runs), H200)
    return next(choice for choice in found.choices if choice.s == s)


def version(run) -> str:
    return f"{run.record.kernel.design} {run.record.kernel.version}"


# -- what designs compute --------------------------------------------------------------------------


def test_what_times_cover_is_what_the_plans_compute(site):
    designs = design_choice._designs(site)
    parts = kernels.what_times_cover(designs, lambda name: name).split("; ")
    for versions in designs:
        plan = versions[0].plan_class()().resolve(H200.machine()).shrunk()
        inputs = plan.prepare_inputs()
        width = plan.reference_fn(*inputs)["o"].shape[-1]
        (said,) = [part for part in parts if re.search(rf"/{versions[0].design}\)", part)]
        assert ("multiplies with Wv" in said) == (width == getattr(plan, "k", None))
        has_weights = any(x.shape == (plan.h, getattr(plan, "k", 0), plan.head_dim) for x in inputs)
        assert ("the product with Wv as well" in said) == has_weights
        assert ("all decompressed beforehand" in said) == (not hasattr(plan, "k"))


def test_what_times_cover_stands_wherever_times_do(pages):
    wanted = {"index.md", "kernels/mla/index.md", "results/index.md", f"results/{GPU}.md"}
    holders = {p.path for p in pages if "Times of designs cover" in str(p.content)}
    assert {path for path in holders if path.endswith(".md")} == wanted


# -- which records are compared --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batches", "wanted"),
    [
        ({4: (1, 16), 32: (1, 16)}, 32),
        ({4: (1, 2, 16), 32: (1, 16)}, 4),
        ({}, regimes.Shape().b),
    ],
)
def test_the_batch_is_the_one_with_most_query_counts(site, batches, wanted):
    runs = [at("flash_mla", "v1", s, 10.0, b=b) for b, counts in batches.items() for s in counts]
    assert comparison(on(site, *runs), H200).shape.b == wanted


@pytest.mark.parametrize("other", [
    {"causal": True}, {"dtype": "fp16"}, {"h": 16}, {"t": 8192}, {"k": 256}, {"p": 32},
    {"page": 64}, {"lengths": "ragged"},
])  # fmt: skip
def test_other_problems_are_left_out(site, other):
    runs = [at("flash_mla", "v1", 1, 10.0), at("flash_mla", "v2", 1, 5.0, **other)]
    assert [version(run) for run in choice(site, 1, *runs).runs] == ["flash_mla v1"]


def test_a_stale_record_comes_last(site):
    runs = [at("flash_mla", "v2", 1, 5.0, stale=True), at("flash_mla", "v1", 1, 10.0)]
    assert version(choice(site, 1, *runs).runs[0]) == "flash_mla v1"


def test_query_counts_that_only_records_have_are_rows(site):
    found = comparison(on(site, at("flash_mla", "v1", 6, 10.0)), H200)
    assert [c.s for c in found.choices] == sorted({6, *regimes.S_VALUES})


# -- which to use ----------------------------------------------------------------------------------


def ranged(name: str, median: float, low: float, high: float, **changes):
    design, version = name.split()
    made = at(design, version, 8, median, **changes)
    time = evidence.Duration(median_us=median, min_us=low, max_us=high, samples=50)
    outcome = made.outcome.model_copy(update={"total": time})
    return replace(made, record=made.record.model_copy(update={"outcome": outcome}))


def names(found) -> tuple[str, str | None]:
    return version(found.run), version(found.rival) if found.rival else None


def test_versions_are_compared_with_those_that_have_the_same_cache(site):
    runs = (
        at("flash_mla_split_kv", "v1", 16, 1600.0),
        at("mla_var6_plus", "v3", 16, 700.0, n=0),
        at("mla_var6_plus", "v2", 16, 900.0, n=1216),
        at("mla_var6_plus", "v1", 16, 500.0, n=4096),
        at("flash_attention", "v2", 16, 1950.0),
    )
    found = choice(site, 16, *runs)
    assert {kernel: version(b.run) for kernel, b in found.best.items()} == {
        "flash_mla": "mla_var6_plus v3",
        "mla_var6_plus": "mla_var6_plus v2",
        "flash_attention": "mla_var6_plus v1",
    }
    assert found.fastest == "flash_attention"
    assert choice(site, 8, *runs).best == {}
    assert choice(site, 8, *runs).fastest is None


def test_the_newest_of_versions_within_noise_is_to_be_used():
    runs = [ranged("flash_attention v1", 100, 90, 110), ranged("flash_attention v2", 102, 95, 120)]
    assert names(compare.best(runs)) == ("flash_attention v2", "flash_attention v1")
    newest_first = [
        ranged("flash_attention v2", 100, 90, 110),
        ranged("flash_attention v1", 102, 95, 120),
    ]
    assert names(compare.best(newest_first)) == ("flash_attention v2", None)
    apart = [ranged("flash_attention v1", 100, 90, 110), ranged("flash_attention v2", 105, 95, 120)]
    assert names(compare.best(apart)) == ("flash_attention v1", None)  # whatever the samples span


def test_the_newest_run_that_timed_several_decides_with_what_came_after():
    def of(name: str, median: float, run: str, minute: int) -> Run:
        return timed(name, median, run, time=datetime(2026, 11, 22, 10, minute, tzinfo=UTC))

    alone = of("v0", 80, "cold", 3)
    earlier = [of("v1", 90, "first", 1), of("v2", 100, "first", 2)]
    later = [of("v1", 110, "second", 5), of("v2", 100.5, "second", 6)]
    runs = compare.fastest([alone, *earlier, *later])
    assert compare.best(runs).run.total.median_us == 100.5
    assert compare.best(compare.fastest([alone, earlier[0]])).run is alone
    after = of("v2", 70, "last", 50)
    assert compare.best(compare.fastest([*runs, after])).run is after


def test_a_run_without_the_fastest_design_does_not_decide():
    def of(design: str, median: float, run: str, minute: int) -> Run:
        time = datetime(2026, 11, 22, 10, minute, tzinfo=UTC)
        return timed("v1", median, run, time=time, design=design)

    both = [of("flash_mla", 70, "both", 1), of("flash_mla_split_kv", 130, "both", 2)]
    slow = [of("flash_mla_split_kv", 104, "slow", 5), of("mla_var6_plus", 150, "slow", 6)]
    assert compare.best(compare.fastest([*both, *slow])).run is both[0]
    again = of("flash_mla", 72, "slow", 7)
    assert compare.best(compare.fastest([*both, *slow, again])).run is again


def test_versions_are_ordered_by_number():
    fastest = ranged("flash_attention v1", 100, 90, 110)
    runs = []
    for number in ("v9", "v10"):
        kernel = fastest.record.kernel.model_copy(update={"version": number})
        runs.append(replace(fastest, record=fastest.record.model_copy(update={"kernel": kernel})))
    assert version(compare.best(runs).run) == "flash_attention v10"


def test_another_design_within_noise_is_a_rival():
    runs = [
        ranged("flash_mla_split_kv v1", 133, 130, 136),
        ranged("mla_var6_plus v4", 135, 132, 137),
    ]
    assert names(compare.best(runs)) == ("flash_mla_split_kv v1", "mla_var6_plus v4")


@pytest.mark.parametrize("slower", [
    ranged("flash_attention v2", 112, 105, 120),
    ranged("flash_attention v2", 105, 101, 120),
    ranged("flash_attention v2", 105, 95, 120, stale=True),
])  # fmt: skip
def test_what_is_slower_beyond_noise_or_stale_is_not_preferred(slower):
    fastest = ranged("flash_attention v1", 100, 90, 110)
    assert names(compare.best([fastest, slower])) == ("flash_attention v1", None)


def test_the_time_of_decompressing_follows_the_batch(site):
    for batch in (4, 32):
        found = comparison(on(site, at("flash_mla", "v1", 1, 10.0, b=batch)), H200)
        flops = 4 * batch * 128 * design_choice.CONTEXT * 512 * 128
        assert found.decompressing_us >= flops / CEILINGS.tflops / 1e6
        per_flop = found.decompressing_us / flops
        assert per_flop == pytest.approx(1 / CEILINGS.tflops / 1e6, rel=0.05)


# -- the home page ---------------------------------------------------------------------------------


def table(text: str) -> dict[int, list[str]]:
    found = rows(text.replace("&#95;", "_"), "## Which MLA kernel to use")
    return {int(row[0]): row[1:] for row in found}


def said(site, *runs) -> str:
    return " ".join(see(home.pages(on(site, *runs))[0]).text.split())


def test_home_shows_the_model_at_the_batch_of_the_records(site):
    for batch, runs in ((32, RUNS), (regimes.Shape().b, ())):
        text = home.pages(on(site, *runs))[0].content
        assert f"for {batch} sequences" in text
        for s, row in table(text).items():
            cell = regimes.cell(regimes.Shape(b=batch), s, design_choice.CONTEXT, CEILINGS)
            assert cell.winner in row[-3]
            assert row[-1] == us(cell.time_us[cell.winner])
            least = float(row[-2].removesuffix(" us").replace(",", ""))
            assert least < cell.time_us[cell.winner]


def test_home_has_a_title_a_command_and_cards(site):
    text = home.pages(on(site, *RUNS))[0].content
    shown = "# See why", "{ #check }", 'class="grid cards"', "## Which", "## Add a version"
    places = [text.index(part) for part in shown]
    assert places == sorted(places)
    assert "](diagnosis/register-spills.md#sm_120)" in text[: text.index("## Which")]
    assert "[a drop-in](serving.md)" in text
    assert "of our designs at the s tried" in text
    assert "FlashMLA is DeepSeek's library" in html.unescape(text)


def test_home_advises_by_what_the_cache_holds(site):
    text = home.pages(on(site, *RUNS))[0].content
    latent, mixed, decompressed, *_ = table(text)[16]
    assert latent.startswith("**[flash_mla_split_kv v1](")
    assert "[1,600 us](records/" in latent
    assert re.match(r"\*\*\[mla_var6_plus v4\]\(\S+\)\*\*, n=1216: \[1,850 us\]", mixed)
    assert decompressed.startswith("**[flash_attention v2](")
    assert table(text)[32][:3] == ["not measured"] * 3
    assert table(text)[1][1] == "the best n is 0"


def test_home_says_what_is_within_noise_and_what_that_means(site):
    near = at("mla_var6_plus", "v4", 1, 131.0, n=0)
    text = home.pages(on(site, *RUNS, near))[0].content
    assert ", tied with [mla_var6_plus v4](" in table(text)[1][0]
    assert f"Tied are two whose medians differ by less than {NOISE:.1%}" in text
    assert "tied with" not in home.pages(on(site, *RUNS))[0].content


@pytest.mark.parametrize(
    ("other", "wanted"), [("aaaa", True), ("bbbb", False)], ids=["one run", "two"]
)
def test_home_says_that_a_row_is_of_one_run_only_where_it_is(site, other, wanted):
    made = at("flash_attention", "v2", 8, 50.0)
    made = replace(made, record=made.record.model_copy(update={"run": other}))
    told = said(site, at("flash_mla", "v1", 8, 60.0), made)
    assert ("The times of a row are of one run" in told) == wanted


def test_the_reasons_name_what_binds(site):
    told = said(site, *RUNS)
    for kernel, s, bound in (
        ("flash_mla", 32, "power"), ("flash_attention", 32, "memory"), ("flash_mla", 1, "power"),
        ("flash_attention", 128, "power"),
    ):  # fmt: skip
        assert regimes.prediction(kernel, SHAPE, s, design_choice.CONTEXT, CEILINGS).bound == bound
    latent, decompressed = "the board's power binds", "memory traffic binds"
    assert f"In a latent kernel {latent}, in a decompressed one {decompressed}" in told


def test_home_says_where_the_model_s_choice_is_behind(site):
    slow = [at("mla_var6_plus", "v4", 32, 2000.0, n=2496), at("flash_mla", "v2", 32, 1500.0)]
    assert "Measured, it is behind so far: why." in said(site, *RUNS, *slow)
    assert (
        "(kernels/mla/cutile-dsl/mla_var6_plus/v4.md#devlog)"
        in home.pages(on(site, *RUNS, *slow))[0].content
    )
    assert "behind" not in said(site, at("flash_mla", "v1", 1, 60.0))


def test_home_says_when_decompressing_first_can_pay(site):
    pair = [at("flash_mla", "v2", s, 9000.0) for s in (64, 128)]
    pair += [at("flash_attention", "v2", 64, 3000.0), at("flash_attention", "v2", 128, 2000.0)]
    assert "which can pay at s = 128 only" in said(site, *pair)
    assert "can pay" not in said(site, *RUNS)


def test_home_names_a_reference_time_after_what_attained_its_rates(site):
    told = said(site, *RUNS)
    assert "694 TFLOPS (8192 x 8192 x 8192 bf16 GEMM on random data)" in told
    assert "4.27 TB/s (device copy, bytes read + written), within 700 W at 306 W" in told
    assert "as fitted to records, which a better kernel can beat" in told
    assert "no kernel of theirs can beat it" in told


@pytest.mark.parametrize("s", [1, 4, 64])
def test_the_bound_on_home_is_the_least_of_all_designs(site, s):
    rates = H200.bound(regimes.DTYPE)
    shown = float(table(home.pages(on(site, *RUNS))[0].content)[s][-2].split()[0].replace(",", ""))
    works = [regimes.cost(kernel, SHAPE, s, 4096) for kernel in regimes.KERNELS]
    works += [regimes.cost("mla_var6_plus", SHAPE, s, 4096, n) for n in range(0, 4097, 64)]
    least = min(predict(work.flops, work.bytes, rates).time_us for work in works)
    assert shown == pytest.approx(least, rel=0.01)


def test_a_stale_record_that_was_faster_is_named(site):
    stale = at("mla_var6_plus", "v3", 16, 1000.0, n=1216, stale=True)
    fresh = [run for run in RUNS if run.record.kernel.version != "v3"]
    made = on(site, *fresh, stale)
    cell = table(home.pages(made)[0].content)[16][1]
    assert "; faster before its sources changed: [mla_var6_plus v3](" in cell
    assert "[1,000 us]" in cell
    assert cell.endswith("(stale)")
    found = rows(kernels._design(made, made.designs()["mla_var6_plus"]).content, "## Regime")
    assert found[0][-1] == "[v4](v4.md); v3 by stale records at s = 16"
    answers = {(a["s"], a["cache"]): a for a in advisor.answers(made)}
    assert answers[16, "mla_var6_plus"]["outdated"]["version"] == "mla_var6_plus v3"
    assert answers[16, "flash_attention"]["outdated"] is None


def test_a_stale_record_within_noise_is_not_named(site):
    near = at("mla_var6_plus", "v3", 16, 1840.0, n=1216, stale=True)
    assert "sources changed" not in home.pages(on(site, *RUNS, near))[0].content


def test_the_advisor_marks_ties_and_links_to_what_it_names(site):
    made = on(site, *RUNS, at("mla_var6_plus", "v4", 1, 131.0, n=0))
    known = advisor.measured(made)
    answer = next(a for a in known["answers"] if (a["s"], a["cache"]) == (1, "flash_mla"))
    assert [(f["version"], f["tied"]) for f in answer["found"]] == [
        ("flash_mla_split_kv v1", True), ("mla_var6_plus v4", True), ("flash_mla v2", False)
    ]  # fmt: skip
    links = advisor.pages(made, known, made.link("mla/index.md"))
    assert "[flash_mla v2](../kernels/mla/cutile-dsl/flash_mla/v2.md)" in links.replace(
        "&#95;", "_"
    )


@pytest.mark.parametrize("run", ["aaaa", "bbbb"])
def test_the_advisor_names_the_peer_of_its_run_before_that_of_another(site, run):
    peers = [
        timed("v0", us, run=name, design="deepseek_flash_mla", slug=name,
              problem={**RUNS[0].record.problem, "n": None})
        for name, us in (("aaaa", 340.0), ("bbbb", 320.0))
        if name in ("bbbb", run)
    ]  # fmt: skip
    (answer,) = [
        answer
        for answer in advisor.answers(on(site, *RUNS, *peers))
        if (answer["s"], answer["cache"]) == (1, "flash_mla")
    ]
    assert answer["found"][0]["run"] == "aaaa"
    assert (answer["peer"]["run"], answer["peer"]["name"]) == (run, "FlashMLA")


LATENT = {**RUNS[0].record.problem, "n": None}


def latent(name: str, median: float, run: str = "aaaa", **sizes) -> Run:
    """A run of a latent kernel at the sizes of the first of ``RUNS`` and others."""
    design, number = name.split()
    problem = {**LATENT, **sizes}
    slug = f"{run}-" + "-".join(f"{key}{value}" for key, value in problem.items())
    return timed(number, median, run=run, design=design, problem=problem, slug=slug)


def test_the_advisor_keeps_pages_lengths_and_masks_apart(site):
    paged, ragged = {"page": 64}, {"page": 64, "lengths": "ragged"}
    made = on(
        site,
        latent("thin_mla v3", 51.6, h=16),
        latent("deepseek_flash_mla v0", 55.0, h=16, **paged),
        latent("flash_mla v2", 71.5),
        latent("flash_mla v2", 73.2, **paged),
        latent("flash_mla v2", 85.1, **ragged),
        latent("flash_mla v2", 44.3, s=4, causal=True, **paged),
    )
    found = {
        (a["h"], a["s"], a["page"], a["lengths"], a["mask"]): a["found"][0]["us"]
        for a in advisor.answers(made)
    }
    assert found == {
        (16, 1, 0, "equal", "none"): 51.6,
        (16, 1, 64, "equal", "none"): 55.0,
        (128, 1, 0, "equal", "none"): 71.5,
        (128, 1, 64, "equal", "none"): 73.2,
        (128, 1, 64, "ragged", "none"): 85.1,
        (128, 4, 64, "equal", "causal"): 44.3,
    }


@pytest.mark.slow
def test_the_advisor_asks_for_all_that_records_differ_in(site):
    for answer in advisor.answers(site):
        assert str(answer["page"]) in advisor.PAGES
        assert answer["lengths"] in advisor.LENGTHS
        assert answer["mask"] in advisor.MASKS


def test_the_faster_of_a_tie_comes_first(site):
    made = on(site, latent("flash_mla v1", 72.2), latent("flash_mla v2", 73.2))
    (answer,) = advisor.answers(made)
    assert [found["us"] for found in answer["found"]] == [72.2, 73.2]
    assert all(found["tied"] for found in answer["found"])
    assert answer["newest"] == "flash_mla v2"


def test_what_was_timed_again_since_is_still_compared_in_its_run(site):
    ours = latent("flash_mla v1", 72.2), latent("flash_mla v2", 74.9)
    peers = latent("deepseek_flash_mla v0", 73.7), latent("deepseek_flash_mla v0", 75.0, run="b")
    made = replace(on(site, *ours, peers[1]), earlier=(peers[0],))
    (answer,) = advisor.answers(made)
    assert [found["us"] for found in answer["found"]] == [72.2, 73.7, 74.9]
    assert answer["peer"]["us"] == 73.7


def test_home_without_records_names_the_model_s_designs(site):
    text = home.pages(on(site))[0].content
    assert "nothing is measured yet" in text
    for s, row in table(text).items():
        cell = regimes.cell(regimes.Shape(), s, design_choice.CONTEXT, CEILINGS)
        assert len(row) == 3
        assert row[0].startswith(f"[{cell.winner}](")


def test_the_example_on_home_can_be_typed(site):
    new: set[str] = set()
    commands = list(commands_of(home.pages(site)[0].content))
    for command in commands:
        understand(command, new)
    versions = home.example(site)
    latest, new = versions[-1], kernels.next_version(versions)
    assert any(f"clone -- {latest.design_key} {latest.version} {new}" in c for c in commands)


# -- kernel pages ----------------------------------------------------------------------------------


def test_kernels_show_what_was_measured_beside_the_model(site):
    made = on(site, *RUNS)
    page = kernels._workload(made, "mla", made.layers()["mla"])
    row = next(r for r in rows(page.content, "## Which design to use") if "var6" in r[0])
    assert row[1:] == ["[v4](cutile-dsl/mla_var6_plus/v4.md)", "s = 32", "never fastest at h=128"]
    h200, b200, _ = rows(
        kernels._design(made, made.designs()["flash_mla_split_kv"]).content,
        "## Regime",
    )
    assert h200[1:] == ["32", "s = 1, 2, 4, 8, 16", "s = 1, 16", "[v1](v1.md)"]
    assert b200[1] == str(regimes.Shape().b)
    assert b200[3:] == ["not measured", "not measured"]


def test_the_regime_of_a_design_is_read_where_it_was_measured(site):
    few = [at("thin_mla", "v3", 1, 51.6, h=16), at("flash_mla", "v2", 1, 60.0, h=16)]
    made = on(site, *RUNS, *few)
    text = kernels._design(made, made.designs()["thin_mla"]).content
    row = rows(text, "## Regime")[0]
    assert "h=16" in text[text.index("## Regime") :].partition("|")[0]
    assert row[-2:] == ["s = 1", "[v3](v3.md)"]
    unmeasured = on(site, *RUNS)
    row = rows(kernels._design(unmeasured, made.designs()["thin_mla"]).content, "## Regime")[0]
    assert row[-2:] == ["not measured", "not measured"]


def test_versions_that_lead_at_different_queries_are_all_named(site):
    runs = [at("mla_var6_plus", "v4", 1, 9.0), at("mla_var6_plus", "v3", 16, 9.0)]
    made = on(site, *runs)
    row = rows(kernels._design(made, made.designs()["mla_var6_plus"]).content, "## Regime")[0]
    assert row[-1] == "[v3](v3.md) at s = 16; [v4](v4.md) at s = 1"


def test_a_design_in_another_language_is_another_design(site):
    made = on(site, at("flash_mla", "v2", 1, 230.0), at("flash_mla@cute-dsl", "v4", 1, 73.0))
    found = comparison(made, H200)
    ours, other = (made.designs()[key][0] for key in ("flash_mla", "flash_mla@cute-dsl"))
    assert (found.fastest_at(ours), found.fastest_at(other)) == ([], [1])
    assert found.best_versions(ours) == {"v2": [1]}
