"""Kernel pages: sources, facts and devlogs as they are, and nothing that runs."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from generators import families as engine
from generators.draw import schedule
from generators.model import compare, problems, targets
from generators.model.columns import language_title
from generators.model.run import Run
from generators.pages import kernels, ladder, namesakes, version_pages
from generators.write import devlogs, figures, source, verdicts
from generators.write.static_facts import facts_tables as tables_of
from mla_var3 import evidence
from mla_var3.evidence import CheckedCase
from mla_var3.knowledge.pages import load
from mla_var3.runtime import registry
from tests.factories import correctness, duration, passed, record, stage, static_facts
from tests.generators.checking import dead_links, html_of, see
from tests.generators.runs import SIZES, on, rows, timed

FILE = "kernels/cutile/mla/flash_mla/flash_mla_v1/flash_mla_v1.py"


#: Designs whose pages are made here; those of all take 20 s. `nox -s docs` makes them too.
FEW = ("flash_mla@cutile-dsl", "mla_var6_plus@cutile-dsl", "thin_mla@cute-dsl")


def made_of(site):
    made = (*kernels.pages(site), *version_pages.pages(site))
    return {page.path: page for page in made}


@pytest.fixture(scope="module")
def found(site):
    few = tuple(version for version in site.versions if version.qualified in FEW)
    return made_of(replace(site, versions=few))


@pytest.fixture(scope="module")
def every(site):
    return made_of(site)


#: The pages of few designs, and of all.
WIDTHS = pytest.mark.parametrize(
    "which", ["found", pytest.param("every", marks=pytest.mark.exhaustive)]
)


def run(made, stale: bool = False) -> Run:
    return Run(evidence.address(made), made, stale)


def version_page(site, version: str) -> str:
    return str(
        version_pages._version(site, registry.find("flash_mla", version), None, None).content
    )


def compile_run(version: str = "v1", arch: str = "sm_90", stale: bool = False, **facts) -> Run:
    name = registry.find("flash_mla", version).name
    made = passed(stages=[stage(name, static=static_facts(arch, kernel=name, **facts))])
    return run(record(version=version, outcome=made, target=f"static/{arch}"), stale)


def remark(line: int, message: str, kind: str = "missed", file: str = FILE, count: int = 1):
    return {
        "file": file, "line": line, "kind": kind, "category": "memory", "message": message,
        "count": count,
    }  # fmt: skip


@WIDTHS
def test_every_design_and_version_has_a_page(site, which, request):
    found = request.getfixturevalue(which)
    for versions in registry.designs().values():
        first = versions[0]
        if which == "found" and first.qualified not in FEW:
            continue
        folder = f"kernels/{first.layer}/{first.language}/{first.design}"
        assert f"{folder}/index.md" in found
        assert f"kernels/{first.layer}/index.md" in found
        for version in versions:
            page = found[f"{folder}/{version.version}.md"]
            names = (language_title(first.language), first.design, version.version)
            assert page.nav == ("Kernels", figures.layer_title(first.layer), *names)
            assert page.source is not None
            assert (site.root / page.source).is_file()


@pytest.mark.exhaustive
def test_links_resolve(every, pages):
    assert list(dead_links(every.values(), pages)) == []


@pytest.mark.exhaustive
def test_nothing_of_a_kernel_page_runs(every):
    for page in every.values():
        assert see(page).scripts == []


def test_the_whole_source_stands_on_the_page(found):
    version = registry.find("flash_mla", "v1")
    text = see(found["kernels/mla/cutile-dsl/flash_mla/v1.md"]).text
    for line in version.path.read_text().splitlines():
        assert line.strip() in text


def test_a_composed_version_stands_on_the_site_as_one_file(found):
    folder = "kernels/mla/cute-dsl/thin_mla"
    whole = found[f"{folder}/v2/thin_mla_v2.py"].data.decode()
    compile(whole, "thin_mla_v2.py", "exec")
    assert "class Plan" in whole
    assert "cute_python.kit" not in whole
    assert "[one file](v2/thin_mla_v2.py)" in found[f"{folder}/v2.md"].content
    assert "one file" not in found["kernels/mla/cutile-dsl/flash_mla/v1.md"].content


@WIDTHS
def test_patterns_that_name_a_version_are_listed(site, which, request):
    found = request.getfixturevalue(which)
    listed = 0
    for pattern in site.catalogue.patterns:
        for key in pattern.pattern.used_by + pattern.pattern.violated_by:
            path = kernels.version_page(registry.find(*key.split()))
            if which == "every" or path in found:
                assert site.link(path)(pattern.name) in str(found[path].content)
                listed += 1
    assert listed >= len(FEW)


# -- annotations -----------------------------------------------------------------------------------


def test_remarks_of_all_archs_stand_at_their_line():
    runs = [
        compile_run(arch="sm_90", remarks=[remark(7, "no TMA"), remark(3, "TMA", "passed")]),
        compile_run(arch="sm_100", remarks=[remark(7, "no TMA")]),
        compile_run(arch="sm_120", remarks=[remark(7, "pipe | <b>", count=2)],
                    lines=({"file": FILE, "line": 9, "instructions": 5, "spill_loads": 2},)),
    ]  # fmt: skip
    assert source.remarks_by_line(runs, FILE) == {
        3: ["sm_90: *passed* TMA"],
        7: ["sm_90, sm_100: *missed* no TMA", "sm_120: *missed* pipe &#124; &lt;b&gt; (2 times)"],
        9: ["sm_120: 2 spill loads instructions"],
    }


def test_stale_records_and_other_files_annotate_nothing():
    other = [remark(1, "x", file="kernels/cutile/mla/flash_mla/common.py")]
    assert source.remarks_by_line([compile_run(remarks=[remark(1, "x")], stale=True)], FILE) == {}
    assert source.remarks_by_line([compile_run(remarks=other)], FILE) == {}


def test_annotations_are_numbered_where_the_lines_are(tmp_path):
    file = tmp_path / "x.py"
    file.write_text("a = 1\nb = 2\n")
    runs = [compile_run(remarks=[remark(2, "second"), remark(99, "beyond the file")])]
    text = source.annotated(file, FILE, runs)
    assert "a = 1\nb = 2  # (1)!\n" in text
    assert "beyond" not in text
    assert html_of(text).count("<li>") == 1


def test_files_are_tabs_when_there_are_several():
    assert source.tabs({"a.py": "text"}) == "text"
    shown = html_of(source.tabs({"a.py": "```python\nx = 1\n```", "b.py": "b"}))
    assert shown.count('type="radio"') == 2
    assert "x" in shown


# -- static facts ----------------------------------------------------------------------------------


def facts_tables(runs, earlier=()):
    version, before = registry.find("flash_mla", "v1"), registry.find("flash_mla", "v0")
    return tables_of(runs, version, list(earlier), before, lambda name: f"L:{name}")


def test_facts_stand_beside_those_of_the_version_before():
    (text,) = facts_tables(
        [compile_run(registers=168, spill_loads=0)],
        [compile_run("v0", registers=255, spill_loads=3, spill_stores=2, stack_bytes=2720)],
    ).values()
    assert "255 → **168**" in text
    assert "3 / 2 (2,720) → **none**" in text


def test_equal_facts_of_several_problems_share_a_row():
    one = compile_run()
    made = one.record.model_copy(update={"problem": {**one.record.problem, "s": 16}, "slug": "s16"})
    (text,) = facts_tables([one, run(made, stale=True)]).values()
    # One row: its figures are a list, which no screen clips.
    assert "\n- Registers: 168" in f"\n{text}"
    assert text[text.index("|") :].count("\n") == 2
    assert "(stale)" in text
    assert "s=16" in text


def test_what_all_stages_share_is_said_once():
    facts = [static_facts(registers=n, mma_path="HGMMA") for n in (168, 90)]
    made = passed(stages=[stage(name, static=f) for name, f in zip("ab", facts, strict=True)])
    (text,) = facts_tables([run(record(version="v1", outcome=made))]).values()
    assert text.startswith("In every stage and problem:")
    assert text.count("HGMMA") == 1
    assert "| Stage | Registers |" in text


def test_each_arch_has_its_table():
    runs = [compile_run(arch=arch) for arch in ("sm_100", "sm_90")]
    assert list(facts_tables(runs)) == ["sm_90", "sm_100"]


def test_a_compile_that_failed_says_so():
    made = passed(stages=[stage("flash_mla_v1", static=static_facts(error="too <big>"))])
    (text,) = facts_tables([run(record(version="v1", outcome=made))]).values()
    assert "failed: too &lt;big&gt;" in text


# -- results and verdicts --------------------------------------------------------------------------


def test_rows_of_several_modes_say_which(site):
    runs = [
        timed("v1", 10.0, mode=mode, outcome=passed(
            total=duration(10.0), stages=[stage("flash_mla_v1", duration=duration(9.0))]))
        for mode in ("event", "ncu")
    ]  # fmt: skip
    text = version_page(on(site, *runs), "v1")
    for heading in ("<strong>Times</strong>", "**Stages**"):
        shown = rows(text, heading)
        assert [row[2] for row in shown] == ["event", "ncu"]


def test_ratios_name_the_sizes_that_differ_and_the_others_once(site):
    def pair(median: float, **sizes):
        problem = {**SIZES, **sizes}
        return [timed(v, m, problem=problem, slug=f"{v}-{median}-{len(sizes)}")
                for v, m in (("v0", 2 * median), ("v1", median))]  # fmt: skip

    made = on(site, *pair(10.0), *pair(20.0, s=16, causal=True))
    text = kernels._design(made, made.designs()["flash_mla"]).content
    gained = [
        [re.sub(r"\(.*?\)", "", text) for text in row]
        for row in rows(text, "What each step gained")
    ]
    assert gained == [["s=4", "[2x faster]"], ["s=16 causal", "[2x faster]"]]
    assert "All on NVIDIA H200 SXM at b=8 h=128 t=4096 bf16." in text


def test_an_error_that_is_not_finite_is_said(site):
    case = CheckedCase(problem={"b": 1}, max_relative_error=None)
    wrong = timed("v1", 1.0, outcome=passed(
        correctness=correctness("failed", cases=[case, case], message="NaN")))  # fmt: skip
    row = rows(version_page(on(site, wrong), "v1"), "<strong>Correctness")[0]
    assert row[2:5] == ["0 of 1 passed", "2", "not finite"]


def test_a_negative_verdict_has_no_markup_inside_its_own(found):
    shown = html_of(found["kernels/mla/cutile-dsl/mla_var6_plus/index.md"].content)
    said = re.findall(r"<strong>(.*?)</strong>", shown)
    assert [text for text in said if text.startswith("negative: ")]
    assert "**" not in "".join(re.findall(r"<td>(.*?)</td>", shown))


def steps_of(site, *medians: tuple[float, float], run_after: str = "aaaa"):
    runs = []
    for s, (before, after) in zip((1, 4, 16), medians, strict=False):
        at = {"problem": {**SIZES, "s": s}}
        runs += [timed("v1", before, slug=f"{s}-1", **at),
                 timed("v2", after, run=run_after, slug=f"{s}-2", **at)]  # fmt: skip
    old, new = registry.find("flash_mla", "v1"), registry.find("flash_mla", "v2")
    return compare.of(on(site, *runs), new, old)


def test_a_verdict_reads_as_people_say_it(site):
    faster = steps_of(site, (10.0, 5.0), (10.0, 9.9))
    assert (faster.word, verdicts.headline(faster)) == ("faster", "Up to 2x faster than v1 at s=1")
    assert [step.word for step in faster.steps] == ["faster", "as fast"]
    mixed = steps_of(site, (10.0, 5.0), (10.0, 20.0))
    assert mixed.word == "mixed"
    assert verdicts.headline(mixed) == "Up to 2x faster than v1 at s=1, up to 2x slower at s=4"
    slower = steps_of(site, (10.0, 21.0), (10.0, 10.1))
    assert (slower.word, verdicts.headline(slower)) == (
        "slower",
        "Up to 2.1x slower than v1 at s=1",
    )
    assert "badge--slower" in verdicts.badge(slower)
    assert (verdicts.span(faster), verdicts.span(mixed), verdicts.span(slower)) == (
        "up to 2x faster than v1 at 1 of 2 problems", "2x slower to 2x faster than v1, 2 problems",
        "up to 2.1x slower than v1 at 1 of 2 problems",
    )  # fmt: skip
    assert (
        verdicts.span(steps_of(site, (10.0, 5.0), (12.0, 4.0)))
        == "2x to 3x faster than v1, 2 problems"
    )
    assert verdicts.span(steps_of(site, (10.0, 5.0))) == "2x faster than v1"
    level = steps_of(site, (10.0, 10.2))
    assert (level.word, verdicts.headline(level)[:14]) == ("as fast", "As fast as v1,")
    assert "as fast as v1" in verdicts.badge(level)


def test_what_rests_on_a_stale_record_says_so(site):
    at = {"problem": {**SIZES, "s": 4}}
    runs = [timed("v1", 20.0, slug="1", stale=True, **at), timed("v2", 10.0, slug="2", **at)]
    versions = registry.find("flash_mla", "v2"), registry.find("flash_mla", "v1")
    found = compare.of(on(site, *runs), *versions)
    assert verdicts.headline(found).endswith("(stale)")
    assert "2x faster than v1 (stale)" in verdicts.badge(found)
    assert "</strong> (stale)</li>" in verdicts.chips(found.steps)
    fresh = steps_of(site, (20.0, 10.0))
    assert "stale" not in verdicts.headline(found).removesuffix("(stale)")
    assert "stale" not in verdicts.headline(fresh) + verdicts.badge(fresh) + verdicts.chips(
        fresh.steps
    )


def test_a_verdict_compares_within_one_run_only(site):
    assert steps_of(site, (10.0, 5.0), run_after="bbbb").word == "not measured"


def test_a_version_without_a_common_run_is_compared_with_the_nearest_that_has_one(site):
    runs = [timed("v0", 20.0), timed("v2", 10.0), timed("v1", 11.0, run="bbbb")]
    made = on(site, *runs)
    found = compare.nearest(made, registry.find("flash_mla", "v2"))
    assert found.before.version == "v0"
    page = version_page(made, "v2")
    assert "2x faster than v0" in page
    assert "No run timed it beside v1." in page
    alone = compare.nearest(made, registry.find("flash_mla", "v1"))
    assert "not timed beside v0" in verdicts.badge(alone)
    nothing = compare.nearest(on(site), registry.find("flash_mla", "v1"))
    assert "no record of a time" in verdicts.badge(nothing)


def test_a_verdict_tells_its_error_its_record_and_the_library_s_time(site):
    case = correctness().cases[0].model_copy(update={"max_relative_error": 3e-3})
    checked = passed(total=duration(10.0), correctness=correctness(cases=[case]))
    peer = timed("v1", 12.0, design="deepseek_flash_mla", slug="peer")
    made = on(site, timed("v0", 20.0), timed("v1", 10.0, outcome=checked), peer)
    card = version_page(made, "v1").partition("## The story")[0]
    assert re.search(r"Yes: largest relative error \[3.0e-03\]\(\S+\) of \S+ allowed", card)
    assert re.search(r"timed: \[10 us\]\(\S+records/\S+\); FlashMLA in that run \[12 us\]", card)
    wrong = on(site, timed("v0", 20.0, outcome=passed(correctness=correctness("failed"))))
    assert "Wrong in 1 of 1 records" in version_page(wrong, "v0")


def test_a_picture_of_one_full_wave_is_left_out(site):
    full = schedule.Lane("all", 132, 1, 9.0, 0, 132, 0.0)
    told = {"run": None, "sms": 132, "overlap": None, "from_plan": False}
    assert not schedule.Schedule(lanes=(full,), **told).tells
    assert schedule.Schedule(lanes=(replace(full, blocks=100),), **told).tells
    assert schedule.Schedule(lanes=(replace(full, blocks=200),), **told).tells
    assert schedule.Schedule(lanes=(full, replace(full, start=9.0)), **told).tells


def test_a_verdict_compares_each_version_at_its_best(site):
    runs = [
        timed(version, median, slug=f"{version}-{parts}", problem={**SIZES, "parts": parts})
        for version, medians in (("v1", (20.0, 10.0)), ("v2", (8.0, 16.0)))
        for parts, median in enumerate(medians, 1)
    ]
    new, old = registry.find("flash_mla", "v2"), registry.find("flash_mla", "v1")
    steps = compare.of(on(site, *runs), new, old).steps
    assert [step.gain for step in steps] == [1.25]


def test_a_version_page_leads_with_its_verdict(found):
    text = found["kernels/mla/cutile-dsl/mla_var6_plus/v4.md"].content
    marks = ["badge--negative", "**Changed**", "**Measured**", "## The story", "## What changed in",
             "## Facts", "## Source {"]  # fmt: skip
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)
    assert "<summary><strong>Static facts</strong>" in text


# -- devlogs ---------------------------------------------------------------------------------------


@pytest.fixture
def devlog(tmp_path, site):
    folder = tmp_path / "kernels/cutile/mla/flash_mla"
    folder.mkdir(parents=True)
    (folder / "devlog.md").write_text(
        "---\ntitle: flash_mla\nevidence:\n"
        "  - {key: a, observed: machine a, quoted: it took 5 us}\n"
        "  - {key: b, observed: machine b, quoted: it took 7 us}\n---\n"
        "Intro [5 us](source:a).\n\n{{ evidence }}\n\n"
        "### v0: first <script>alert(1)</script>\n\n#### What changed\n\nAll.\n\n"
        "```python\n#### no heading\n```\n\n#### Measured\n\n{{ measured }}\n\n"
        "### v1: negative: second\n\n#### What changed\n\nSee [7 us](source:b).\n"
    )
    return load(folder / "devlog.md", tmp_path)


def test_the_introduction_cites_its_own_sources(devlog, site):
    text = devlogs.introduction(devlog, site.catalogue, lambda target: target)
    assert "machine a" in text
    assert "machine b" not in text
    assert "v0" not in text
    assert "](#sources " in text


def test_an_entry_has_its_sections_one_level_up(devlog, site):
    story = devlogs.entry(devlog, "v0", site.catalogue, lambda target: target)
    assert list(story.parts) == ["What changed"]
    assert story.lead("What changed") == "All."
    assert "```python\n#### no heading\n```" in story.parts["What changed"]
    assert "<script>" not in html_of(story.verdict)


def test_an_entry_cites_its_own_sources(devlog, site):
    story = devlogs.entry(devlog, "v1", site.catalogue, lambda target: target)
    assert story.verdict == "Second."
    assert "machine b" in story.parts["Sources"]
    assert "machine a" not in "".join(story.parts.values())
    # A link of the card has no title, which may hold a sentence's end.
    assert story.lead("What changed") == "See [7 us](#sources) (unrecorded)."


def test_a_version_without_entry_is_empty(devlog, site):
    assert devlogs.entry(devlog, "v7", site.catalogue, lambda target: target) is None


# -- problems --------------------------------------------------------------------------------------


def test_problems_are_those_that_designs_share():
    one = record(
        problem={"b": 2, "h": 16, "s": 1, "t": 64, "n": 8, "dtype": "bf16", "causal": True}
    )
    two = record(problem={"b": 2, "h": 16, "s": 1, "t": 64, "dtype": "bf16", "causal": True})
    assert problems.problem_of(one) == problems.problem_of(two)
    assert str(problems.problem_of(one)) == "b=2 h=16 s=1 t=64 bf16 causal"
    assert problems.problem_text(one) == "b=2 h=16 s=1 t=64 bf16 causal n=8"
    assert problems.varying([one, two]) == ["n"]


def test_what_a_design_sets_for_itself_is_told_apart_from_its_problem():
    runs = [run(record(problem={**SIZES, "d": 128, "n": n}, slug=f"n{n}")) for n in (8, 16)]
    axes = problems.open_axes(runs)
    assert axes == {("mla", "flash_mla"): ["n"]}
    assert [problems.own_sizes(made, axes) for made in runs] == ["n=8", "n=16"]


def test_problems_of_two_workloads_are_never_equal():
    problem = {"m": 8, "n": 8, "k": 8, "dtype": "bf16"}
    one = record("gemm", problem=problem)
    other = one.model_copy(update={"kernel": one.kernel.model_copy(update={"layer": "other"})})
    assert problems.problem_of(one) != problems.problem_of(other)
    assert str(problems.problem_of(one)) == "m=8 n=8 k=8 bf16"
    assert problems.problem_of(one).regime == "thin"
    assert problems.problem_of(other).regime == ""
    assert list(problems.by_layer([run(one), run(other)])) == ["gemm", "other"]


def test_fresh_runs_come_before_faster_stale_ones(site):
    timed = [found for found in site.runs if found.is_timed]
    if not timed:
        pytest.skip("no timed record is committed")
    ranked = compare.fastest(timed)
    assert [found.stale for found in ranked] == sorted(found.stale for found in ranked)


def test_targets_without_a_device_file_keep_their_name():
    assert targets.target_name("static/sm_90") == "sm_90"
    assert targets.target_name("some-gpu") == "some-gpu"
    assert (
        targets.target_name("nvidia-h200-sxm") == engine.device_files.load("nvidia-h200-sxm").name
    )


# -- ideas -----------------------------------------------------------------------------------------


def test_an_idea_keeps_its_code_and_tells_ours_from_the_library_s(site):
    designs = site.designs()
    ours, theirs, driven = (
        ladder.idea(designs[name][0])
        for name in ("flash_mla@cute-dsl", "deepseek_flash_mla", "cutlass_mla_decode")
    )
    assert ours.startswith("Our FlashMLA")
    assert theirs.startswith("FlashMLA")
    assert "`mla_decode_fp16`, run" in driven


def test_the_workload_with_most_designs_stands_first(site):
    counts = [len(designs) for designs in site.layers().values()]
    assert counts == sorted(counts, reverse=True)


def test_a_ladder_says_that_no_record_has_the_library_all_compare_with(site):
    def said(design: str) -> str:
        versions = site.designs()[design]
        link = site.link(kernels.design_page(versions[0]))
        return ladder.section(site, [versions], link, title="", every=True)

    # The bars say the times of many steps: their table waits to be opened.
    assert "The ladder as a table" in said("flash_mla@cute-dsl")
    assert "The ladder as a table" not in said("sparse_mla")
    assert "FlashMLA has no row" in said("sparse_mla")
    assert "FlashMLA has no row" not in said("flash_mla@cute-dsl")


def test_a_ladder_names_both_bounds_where_the_library_does_more_work(site):
    def bounds(design: str) -> list[list[str]]:
        versions = site.designs()[design]
        link = site.link(kernels.design_page(versions[0]))
        text = ladder.section(site, [versions], link, title="", every=True)
        return [row for row in rows(text, "| Version") if row[0].startswith("The bound")]

    spared, whole = bounds("mla_shared_prefix@cute-dsl")
    assert (spared[0], whole[0]) == (
        "The bound, spared the shared work",
        "The bound of all the work",
    )
    assert [row[0] for row in bounds("flash_mla@cute-dsl")] == ["The bound"]
    assert float(spared[2].split()[0]) < 0.6 * float(whole[2].split()[0])  # At s=16.


@pytest.mark.parametrize(("design", "other"), [("flash_mla", "flash_mla@cute-dsl"),
                                                ("flash_mla@cute-dsl", "flash_mla")])  # fmt: skip
def test_a_design_whose_name_another_has_says_which_it_is(site, design: str, other: str) -> None:
    first = registry.find(design, "v0")
    text = namesakes.which(site, [first], site.link(kernels.design_page(first)))
    said, _, rest = text.partition(". ")
    assert said.startswith("**Which one this is:** ")
    assert design in said.replace("&#95;", "_")
    assert rest.replace("&#95;", "_").startswith(f"[{other}](")
    assert "beside FlashMLA](" in rest
    alone = registry.find("thin_mla", "v0")
    assert namesakes.which(site, [alone], site.link(kernels.design_page(alone))) == ""
