"""Results, devices and home: figures from records and device files, each where it belongs."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace

import pytest

from generators import families as engine
from generators.mla import peers
from generators.model import compare
from generators.model.run import Run
from generators.model.site import Site
from generators.pages import devices, home, kernels, results, version_pages
from generators.pages import records as record_pages
from generators.write import figures
from mla_var3 import devices as device_files
from mla_var3 import evidence
from mla_var3.devices.model import UNKNOWN
from mla_var3.evidence import Failed, Skipped
from mla_var3.knowledge.symptoms import SYMPTOMS
from mla_var3.runtime import registry
from mla_var3.workloads import workloads
from tests.factories import costs_as, passed, stage, static_facts
from tests.generators.checking import dead_links, see
from tests.generators.runs import GPU, SIZES, at, on, rows, timed
from tests.site import site_records, site_tree


@pytest.fixture(autouse=True)
def cost(monkeypatch):
    """A cost model that is easily followed."""
    costs_as(monkeypatch)


def page(site: Site, path: str):
    return next(page for page in results.pages(site) if page.path == path)


# -- leaderboards ----------------------------------------------------------------------------------


def test_a_leaderboard_ranks_by_time_and_fresh_before_stale(site):
    site = on(site, timed("v0", 30.0), timed("v1", 10.0), timed("v2", 5.0, stale=True))
    text = page(site, f"results/{GPU}.md").content
    found = rows(text, "### b=8 h=128 s=4 t=4096 bf16")
    assert [re.findall(r"v\d", row[0])[0] for row in found] == ["v1", "v0", "v2"]
    assert "(stale)" in found[2][-1]


def test_ratios_are_formed_within_one_run_only(site):
    site = on(site, timed("v1", 10.0), timed("v0", 30.0), timed("v2", 20.0, run="bbbb"))
    found = rows(page(site, f"results/{GPU}.md").content, "### b=8")
    assert [row[2] for row in found] == ["fastest", "", "3x slower"]


def test_a_timeline_compares_within_one_run_only(site):
    def gains(*runs: Run) -> str:
        made = on(site, *runs)
        return str(kernels._design(made, made.designs()["flash_mla"]).content)

    assert "[3x faster](" in gains(timed("v0", 30.0), timed("v1", 10.0))
    assert "[3x faster](" not in gains(timed("v0", 30.0), timed("v1", 10.0, run="bbbb"))


def figure(text: str) -> str:
    return text[text.index('<figure class="chart"') : text.index("</figure>")]


def test_a_roofline_has_every_problem_of_every_design(site):
    runs = [
        timed("v1", 10.0 * s, design=design, slug=f"{design}{s}", problem={**SIZES, "s": s})
        for design in ("flash_mla", "flash_attention")
        for s in (1, 4, 16)
    ]
    shown = figure(page(on(site, *runs), f"results/{GPU}.md").content)
    wide = shown[: shown.index('<div class="chart__narrow">')]
    assert wide.count('<g class="mark"><title>') == 6
    assert "flash_mla v1 at b=8 h=128 s=16 t=4096 bf16: 6.25 TFLOP/s" in wide
    assert "Bound: 989.5 TFLOP/s" in wide


def test_nothing_that_was_only_compiled_stands_under_a_roof(site):
    made = timed("v1", 1.0, target="static/sm_120", mode="static", outcome=passed())
    assert "<svg" not in page(on(site, made), "results/sm_120.md").content


def test_a_ladder_draws_every_version_and_follows_its_record(site):
    def drawn(slowest: float) -> str:
        runs = [timed(v, us * s, slug=f"{v}{s}", problem={**SIZES, "s": s})
                for s in (1, 4, 16) for v, us in (("v0", slowest), ("v1", 10.0))]  # fmt: skip
        made = on(site, *runs)
        return kernels._design(made, made.designs()["flash_mla"]).content

    before, after = drawn(30.0), drawn(40.0)
    assert "At s=1 v1 is the fastest with 10 us, v0 the slowest with 30 us" in before
    assert "v0, s=16: 480 us" in figure(before)
    assert "v0, s=16: 640 us" in figure(after)
    assert figure(before).count("<svg") == 2
    steps = rows(before, "## The ladder")
    assert [row[1] for row in steps[:3]] == ["30 us", "10 us", "not measured"]
    assert steps[-1][0] == "The bound"
    assert "3x faster" in steps[1][-1]


def test_a_column_and_a_chart_of_a_ladder_are_one_run_and_others_stand_apart(site):
    def at(version: str, s: int, us: float, run: str, **changes):
        fields = {"problem": {**SIZES, "s": s}, "slug": f"{version}{s}{run}", "run": run, **changes}
        return timed(version, us, **fields)

    peer = {"design": "deepseek_flash_mla"}
    made = on(
        site,
        *(at(v, s, us * s, "aaaa") for s in (1, 4, 16) for v, us in (("v0", 30.0), ("v1", 20.0))),
        *(at("v0", s, 11.0 * s, "aaaa", **peer) for s in (1, 4, 16)),
        at("v2", 1, 5.0, "bbbb"),
    )
    text = kernels._design(made, made.designs()["flash_mla"]).content
    v0, v1, v2, _, flash, bound = rows(text, "## The ladder")  # v3 was never timed here.
    assert [row[1] for row in (v0, v1, v2, flash)] == ["30 us", "20 us", "", "11 us"]
    assert "s=1: [5 us]" in v2[3]
    assert not v1[3]
    assert "55%" in v1[4]  # FlashMLA's 11 us over 20 us, of one run.
    assert not v2[4]
    assert "[FlashMLA]" in flash[0]
    assert bound[0] == "The bound"
    assert "FlashMLA, s=16: 176 us" in figure(text)
    assert "v2" not in figure(text)
    assert "other runs timed them: v2" in text


def test_no_two_pages_share_a_title(pages):
    titles = Counter(
        found[1] for p in pages if p.path.endswith(".md")
        if (found := re.search(r"^# (.+)$", str(p.content), re.MULTILINE))
    )  # fmt: skip
    assert [title for title, count in titles.items() if count > 1] == []


def test_bounds_and_reference_times_are_never_called_one_another(site):
    made = timed("v1", 1000.0)
    row = rows(page(on(site, made), f"results/{GPU}.md").content, "### b=8")[0]
    bound = max(1e9 / 989.5e6, 1e6 / 4.8e6)
    assert row[5] == f"{bound / 1000.0:.0%}"
    for found in results.pages(on(site, made)):
        assert "floor" not in str(found.content)


def test_no_table_calls_bytes_of_the_model_traffic(site):
    made = on(site, timed("v1", 10.0))
    for found in [*results.pages(made), *kernels.pages(made)]:
        if found.path in (f"results/{GPU}.md", "kernels/mla/cutile-dsl/flash_mla/v1.md"):
            assert f" {figures.LEAST_BYTES} |" in found.content
            assert figures.RATES in found.content
            assert "| DRAM traffic" not in found.content


def test_figures_of_others_are_cited_not_typed(site, pages):
    text = next(p.content for p in pages if p.path == peers.PATH)
    assert "# Against FlashMLA and other libraries" in text
    assert f"({peers.PATH})" in home.pages(site)[0].content
    assert f"(../{peers.PATH})" in page(site, "results/index.md").content


def test_every_common_run_with_a_library_is_compared_lost_ones_too(site):
    made = on(
        site,
        at("flash_mla@cute-dsl", "v5", 1, 70.0),
        at("deepseek_flash_mla", "v0", 1, 77.0),
        at("flash_mla@cute-dsl", "v5", 4, 300.0),
        at("deepseek_flash_mla", "v0", 4, 100.0, stale=True),
        at("flash_mla@cute-dsl", "v5", 16, 800.0),
        at("deepseek_flash_mla", "v0", 16, 810.0),
    )
    content = peers.page(made, "knowledge/workloads/mla.md").content
    found = rows(content, "## FlashMLA")
    times = [[re.sub(r"\[(.*)\]\(.*?\)", r"\1", cell) for cell in row[3:]] for row in found]
    assert [row[1] for row in found] == ["1.1x faster", "3x slower", "as fast"]
    assert times == [["70 us", "77 us"], ["300 us", "100 us (stale)"], ["800 us", "810 us"]]
    said = peers.verdict(made)
    assert "faster at 1, as fast at 1, slower at 1.** The median over all is as fast, " in said
    assert "the worst 3x slower (" in said
    assert "the best 1.1x faster (" in said
    assert "In these runs FlashMLA reads its cache by pages" in said
    paged = {"page": 64, "lengths": "ragged"}
    pages = [at(design, version, 2, us, **paged)
             for design, version, us in (("flash_mla@cute-dsl", "v13", 90.0),
                                         ("deepseek_flash_mla", "v0", 80.0))]  # fmt: skip
    said = peers.verdict(both := on(made, *made.runs, *pages))
    content = peers.page(both, "knowledge/workloads/mla.md").content
    assert [row[1] for row in rows(content, "## FlashMLA")] == ["1.1x slower"]
    apart = rows(content, "## FlashMLA, ours over")
    assert [row[-1] for row in apart] == ["use FlashMLA, none of ours was timed"] * 3
    assert "At 3 of these 3 problems no kernel of ours was timed with pages" in content
    assert "At 1 of the problems both read the same pages, 1 of them with lengths that d" in said
    assert "At the others FlashMLA reads its cache by pages" in said
    more = [at("flash_mla@cute-dsl", "v5", 8, 100.0), at("deepseek_flash_mla", "v0", 8, 150.0)]
    assert "over all is 1.06x faster, the worst 3x slower (" in peers.verdict(
        on(made, *made.runs, *more)
    )


def test_of_several_runs_the_newest_that_does_as_well_as_any_speaks(site):
    ours, theirs = ("flash_mla@cute-dsl", "v5", 1), ("deepseek_flash_mla", "v0", 1)
    # The second ran slower as a whole, which says nothing of either.
    runs = {"first": (70.0, 77.0), "second": (73.0, 79.0), "third": (90.0, 75.0)}
    made = [
        of_run(at(*kernel, us), name, day)
        for day, (name, times) in enumerate(runs.items(), 1)
        for kernel, us in zip((ours, theirs), times, strict=True)
    ]
    # Only the newest record of an address is listed; what it followed is compared all the same.
    site = replace(on(site, *made), runs=tuple(made[-2:]), earlier=tuple(made[:-2]))
    assert "faster at 1, as fast at 0, slower at 0" in peers.verdict(site)
    content = peers.page(site, "knowledge/workloads/mla.md").content
    assert [row[1] for row in rows(content, "## FlashMLA")] == ["1.08x faster"]


def of_run(run: Run, name: str, day: int) -> Run:
    """The same of another run, on another day."""
    time = run.record.time.replace(day=day)
    return replace(run, record=run.record.model_copy(update={"run": name, "time": time}))


def test_results_lead_to_the_advisor(site, pages):
    found = {page.path: str(page.content) for page in pages if page.path.startswith("results/")}
    for path in ("results/index.md", "results/nvidia-h200-sxm.md"):
        assert "[the MLA advisor](../mla/index.md)" in found[path]


def test_very_many_problems_stand_behind_a_line_per_regime(site):
    def drawn(many: int) -> str:
        runs = [at("flash_mla@cute-dsl", "v5", s, 10.0, t=64 * t)
                for s in (1, 2) for t in range(1, many + 1)]  # fmt: skip
        return page(on(site, *runs), f"results/{GPU}.md").content

    few, many = drawn(10), drawn(results.LISTED)
    assert few.count("<details") == 20
    assert many.count("<details") == 2 * results.LISTED + 2
    assert f"<strong>Decode</strong> <span>{results.LISTED} problems</span>" in many
    outer = many.index("<strong>Speculative</strong>")
    one, two = (many.index(f"<strong>b=32 h=128 s={s} ") for s in (1, 2))
    assert one < outer < two


def test_a_target_that_is_no_device_has_no_figure(site):
    site = on(site, timed("v1", 10.0, target="some-gpu"))
    text = page(site, "results/some-gpu.md").content
    assert "no roofline can be drawn" in text
    assert "<svg" not in text
    assert rows(text, "### b=8")


def test_failures_and_checks_are_listed(site):
    failed = timed("v0", 1.0, outcome=Failed(error="no <b>memory</b>"), slug="f")
    checked = timed("v1", 1.0, outcome=passed(), mode="disabled", slug="c")
    text = page(on(site, failed, checked), f"results/{GPU}.md").content
    assert rows(text, "### Runs that did not pass")[0][4] == "no &lt;b&gt;memory&lt;/b&gt;"
    # A failed run checked nothing.
    assert [tuple(row[1:3]) for row in rows(text, "### Checked only")] == [("passed", "1")]


def test_a_run_on_the_cpu_and_one_that_was_skipped(site):
    cpu = timed("v1", 1.0, outcome=passed(), mode="disabled", target="cpu", slug="c")
    skipped = timed("v1", 1.0, outcome=Skipped(reason="needs sm_90"), slug="s")
    made = on(site, cpu, skipped)
    text = page(made, "results/cpu.md").content
    assert text.startswith('---\ntitle: "Results on CPU"')
    assert rows(text, "### Checked only")[0][1] == "passed"
    text = page(made, f"results/{GPU}.md").content
    assert rows(text, "### Runs that did not pass")[0][3:5] == ["skipped", "needs sm&#95;90"]
    assert rows(page(made, "results/index.md").content, "# Results")[0][4] == "0"


def test_two_workloads_never_share_a_table_of_times(site):
    gemm = timed("v1", 7.0, design="gemm", problem={"m": 8, "n": 8, "k": 8, "dtype": "bf16"})
    made = on(site, timed("v1", 10.0), gemm)
    for path in ("results/index.md", f"results/{GPU}.md", results.EXPLORER):
        for table in re.findall(r"(?:^\|.*\n?)+", str(page(made, path).content), re.MULTILINE):
            assert not ("gemm v1" in table and "flash&#95;mla v1" in table), path
        assert "gemm v1" in str(page(made, path).content)


def test_the_explorer_has_every_record(site):
    runs = [timed("v1", 12345.678), timed("v0", 5.0, stale=True, slug="s")]
    found = rows(page(on(site, *runs), results.EXPLORER).content, "## MLA")
    # The median stands where the narrowest window shows it.
    assert [row[2] for row in found] == ["12350", "5"]
    assert [row[12] for row in found] == ["fresh", "stale"]


def test_without_records_the_pages_say_so(site):
    empty = on(site)
    assert "No record is committed yet." in page(empty, "results/index.md").content
    assert "No record is committed yet." in page(empty, results.EXPLORER).content
    assert see(home.pages(empty)[0]).links


def test_links_of_results_resolve_and_nothing_runs(site, pages):
    found = results.pages(site)
    assert list(dead_links(found, pages)) == []
    assert [script for page in found for script in see(page).scripts] == []


# -- a record changes, and the site with it --------------------------------------------------------


@pytest.mark.exhaustive
def test_every_place_follows_a_changed_record(tmp_path):
    site_tree.copy(tmp_path)
    made = site_records.timed("flash_mla", "v1", 1, 81.25)
    path, _ = evidence.write(made, tmp_path / "results")

    def texts() -> dict[str, str]:
        site = engine.load(tmp_path)
        families = (home, kernels, devices, results, record_pages)
        made = [page for family in families for page in family.pages(site)]
        version = registry.find("flash_mla", "v1")
        return {p.path: str(p.content)
                for p in (*made, version_pages._version(site, version, None, None))}  # fmt: skip

    wanted = {
        "kernels/mla/cutile-dsl/flash_mla/v1.md",
        f"results/{GPU}.md",
        results.EXPLORER,
        f"records/{GPU}/cutile/mla/flash_mla/v1.md",
    }
    before = texts()
    said = {name: len(re.findall(r"81\.25?\b", before[name])) for name in wanted}
    assert all(said.values())
    changed = json.loads(path.read_text())
    outcomes = [entry["outcome"] for entry in changed["entries"]]
    durations = [outcome["total"] for outcome in outcomes]
    durations += [s["duration"] for o in outcomes for s in o["stages"] if s.get("duration")]
    for found in durations:
        found |= {name: found[name] * 93.75 / 81.25 for name in ("median_us", "min_us", "max_us")}
    path.write_text(json.dumps(changed))
    after = texts()
    for name in wanted:
        assert re.search(r"93\.(?:8|75)\b", after[name])
        assert len(re.findall(r"81\.25?\b", after[name])) < said[name]


# -- devices ---------------------------------------------------------------------------------------


def test_every_figure_and_source_of_every_device_is_shown(site, pages):
    found = {page.path: page for page in devices.pages(site)}
    assert list(dead_links(found.values(), pages)) == []
    for device in site.devices:
        seen = see(found[f"devices/{device.key}.md"])
        assert seen.scripts == []
        table = found[f"devices/{device.key}.md"].content.split("Every figure as stated")[1]
        stated = table.split("</details>")[0]
        assert stated.count("\n| `") == len(device.figures)
        assert stated.count("| unknown |") == sum(f.value == UNKNOWN for f in device.figures)
        for figure in device.figures:
            words = " ".join(figure.source.split())
            assert words in " ".join(seen.text.split())


@pytest.mark.slow
def test_the_figure_in_use_is_marked_and_conflicts_have_their_reason(site):
    for device in site.devices:
        page = next(p for p in devices.pages(site) if p.path == f"devices/{device.key}.md")
        for used in device.used:
            if used.metric in device.conflicts:
                assert "(used)" in page.content
                assert devices.cell(used.reason) in page.content
    h200 = device_files.load(GPU)
    text = next(p.content for p in devices.pages(site) if p.path == f"devices/{GPU}.md")
    marked = re.findall(r"^\| `(\w+)` \| ([^|]*) \| used \|", text, re.MULTILINE)
    assert ("measured_tensor_bf16_fp32acc", "694 TFLOPS") in marked
    assert len(marked) == len({metric for metric, _ in marked})
    assert dict(marked).keys() <= {figure.metric for figure in h200.figures}


def test_an_unknown_ceiling_is_said(site):
    poor = device_files.Device(
        key="x", name="X", vendor="NVIDIA", arch="Y", sm="sm_90",
        figures=(device_files.Figure(metric="tensor_bf16_fp32acc", value=UNKNOWN),),
    )  # fmt: skip
    page = devices._device(replace(site, devices=(poor,), runs=()), poor)
    assert "| bfloat16 | reference | unknown |" in page.content
    assert "no source was found" in page.content


# -- home ------------------------------------------------------------------------------------------


def test_home_leads_to_all_that_it_promises(site, pages):
    page = home.pages(site)[0]
    assert list(dead_links([page], pages)) == []
    seen = see(page)
    for symptom in SYMPTOMS:
        assert f"diagnosis/{symptom.key}.md" in seen.links


def test_the_bound_of_a_ladder_is_that_of_the_whole_work():
    lighter = workloads()["mla"].lighter
    assert lighter({**SIZES, "shared": 3072})
    assert not lighter({**SIZES, "shared": 0})
    assert not lighter(SIZES)


def test_what_all_versions_share_is_said_once_and_each_reason_too(site):
    facts = [static_facts("sm_120", registers=n, mma_path="HMMA") for n in (255, 90)]
    compiled = [
        timed(v, 1.0, target="static/sm_120", mode="static",
              outcome=passed(stages=[stage("flash_mla", static=made)]))
        for v, made in zip(("v0", "v1"), facts, strict=True)
    ]  # fmt: skip
    refused = [
        timed(v, 2.0, target="static/sm_120", mode="static", outcome=Skipped(reason="needs sm_90"),
              slug=f"s{v}")
        for v in ("v0", "v1")
    ]  # fmt: skip
    text = page(on(site, *compiled, *refused), "results/sm_120.md").content
    assert "In every version:" in text
    assert text.count("HMMA") == 1
    assert [row[1] for row in rows(text, "In every version:")] == ["90 registers", "255 registers"]
    assert text.count("skipped: needs sm&#95;90") == 1


def test_what_is_spared_work_is_no_champion_of_those_that_are_not():
    whole = at("flash_mla", "v1", 4, 200.0)
    spared = at("mla_shared_prefix", "v0", 4, 140.0, shared=3072)
    assert compare.with_all_work([spared, whole]) == [whole]
    assert compare.with_all_work([spared]) == [spared]
