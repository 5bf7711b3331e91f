"""The diff of a version page: its lines, the devlog's remarks, and what compilers made of it."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest

from generators.model.run import Run
from generators.model.site import Site
from generators.write import devlogs, diff, effects, remarks
from generators.write.devlogs import Story
from mla_var3 import evidence
from mla_var3.errors import KnowledgeError
from mla_var3.evidence import LineFacts
from mla_var3.knowledge.changes import compare
from mla_var3.runtime import registry
from tests.factories import passed, record, stage, static_facts
from tests.generators.checking import html_of
from tests.generators.runs import on

BEFORE, AFTER = registry.find("flash_mla", "v0"), registry.find("flash_mla", "v1")
FOLDER = "kernels/cutile/mla/flash_mla"
#: Lines that differ: the base's grid function, v1's bounds.
GRID, BOUNDS = 43, 92


def link(name: str) -> str:
    return f"L:{name}"


def changes():
    return compare(AFTER.path.parents[1], "v0", "v1")


def compiled(version: str, line: int, stale: bool = False, tools: str = "1", **facts) -> Run:
    """A compile whose instructions all come from one line."""
    name = registry.find("flash_mla", version).name
    file = f"{FOLDER}/{name}/{name}.py"
    at = LineFacts(file=file, line=line, instructions=facts.get("instructions", 10), mma=2)
    made = static_facts("sm_90", kernel=name, lines=[at], **facts)
    outcome = passed(stages=[stage(name, static=made)])
    fields = {"version": version, "outcome": outcome, "target": "static/sm_90"}
    done = record(**fields, toolchain={"tool": tools})
    return Run(evidence.address(done), done, stale)


def section(site: Site, *runs: Run, story: Story | None = None) -> str:
    return diff.section(on(site, *runs), BEFORE, AFTER, story, link)


# -- lines -----------------------------------------------------------------------------------------


def test_every_line_of_a_diff_stands_in_its_file(site):
    text = section(site).partition("</table>")[0]
    cells = re.findall(r"<td>(\d*)</td><td[^>]*>(.*?)</td>", text)
    assert len(cells) > 40
    lines = [version.path.read_text().splitlines() for version in (BEFORE, AFTER)]
    for index, (number, shown) in enumerate(cells):
        if number and "<code>" in shown:
            plain = html.unescape(re.sub(r"<span.*?</span> |</?code>", "", shown))
            assert plain.replace("\xa0", " ") == lines[index % 2][int(number) - 1]


def test_moved_code_is_one_row_and_files_of_one_version_are_named(site):
    before, after = registry.find("mla_var6_plus", "v3"), registry.find("mla_var6_plus", "v4")
    text = diff.section(on(site), before, after, None, link)
    assert "New: `decompressed.py`, `latent.py`." in text
    assert re.search(r"7 lines moved to latent\.py, line \d+", text)


def test_changes_are_numbered_over_all_files(site):
    text = section(site)
    numbers = re.findall(r'<tbody id="change-(\d+)">', text)
    assert numbers == [str(i) for i in range(1, len(changes().hunks) + 1)]
    assert text.count("</tbody>") == len(numbers)


def test_the_same_version_differs_in_nothing(site):
    assert diff.section(on(site), AFTER, AFTER, None, link).startswith("The sources are the same.")


# -- remarks ---------------------------------------------------------------------------------------


def story(text: str) -> Story:
    return Story("Better.", {"Why": remarks.anchored(text)})


def test_a_sentence_stands_before_the_line_that_it_names(site):
    said = "Other words. A tile that [crosses](code:crosses) heads <b> has `all` bounds. More."
    text = section(site, story=story(said))
    (row,) = re.findall(r'<tr class="diff__remark" id="code-crosses">.*?</tr>', text)
    words = html.unescape(re.sub(r"<[^>]*>", "", row))
    assert words == "Devlog, Why: A tile that crosses heads <b> has all bounds."
    below = text[text.index(row) + len(row) :]
    assert "crosses&nbsp;=" in below.replace(" ", "&nbsp;")[:600]


def test_a_name_that_two_sentences_explain_has_one_anchor(site):
    said = "It [crosses](code:crosses). Then it [crosses](code:crosses) again."
    text = section(site, story=story(said))
    assert text.count('id="code-crosses"') == 1
    assert text.count("diff__remark") == 2


def test_a_remark_on_what_did_not_change_is_an_error(site):
    with pytest.raises(KnowledgeError, match="no line changed in v1 holds 'absent'"):
        section(site, story=story("It is [gone](code:absent)."))


def test_links_of_the_story_lead_to_their_lines(site):
    devlog = site.catalogue.devlogs["flash_mla"]
    told = devlogs.entry(devlog, "v1", site.catalogue, site.link("kernels/x.md"))
    assert told is not None
    text = diff.section(site, BEFORE, AFTER, told, link)
    names = re.findall(r"\(#(code-[\w.]+)\)", "".join(told.parts.values()))
    assert len(names) >= 4
    assert all(f'id="{name}"' in text for name in names)


@pytest.mark.parametrize(
    "text", ["One. Two [x](a.b). `c` three. 4 is no start.\n\n- Four\n- Five."]
)
def test_sentences_end_at_full_stops_before_capitals_and_at_bullets(text):
    assert remarks.sentences(text) == ["One.", "Two [x](a.b).", "`c` three. 4 is no start.", "Four",
                                       "Five."]  # fmt: skip


# -- what compilers made of it ---------------------------------------------------------------------


def hunk_of(side: str, number: int) -> int:
    for index, hunk in enumerate(changes().hunks):
        if any((line.side, line.number) == (side, number) for line in hunk.lines("changed")):
            return index
    raise AssertionError((side, number))


def test_instructions_of_changed_lines_stand_at_their_hunk(site):
    text = section(site, compiled("v0", GRID, instructions=30), compiled("v1", BOUNDS))
    bodies = re.findall(r"<tbody.*?</tbody>", text)
    assert "sm_90: SASS 30 → <strong>0</strong>" in bodies[hunk_of("v0", GRID)]
    assert (
        "sm_90: SASS 0 → <strong>10</strong>, tensor-core 0 → <strong>2</strong>"
        in (bodies[hunk_of("v1", BOUNDS)])
    )
    assert sum("Compiled from" in body for body in bodies) == 2


def test_figures_of_a_kernel_name_the_changes_in_its_functions(site):
    text = section(site, compiled("v0", 70, registers=255, spill_loads=3), compiled("v1", BOUNDS))
    assert "255 → **168**" in text
    shown = html_of(text.partition("<div")[0])
    assert "together" in shown
    assert f'href="#change-{hunk_of("v1", BOUNDS) + 1}"' in shown


def test_a_kernel_that_one_change_touches_alone_says_so(site):
    found = changes()
    (index,) = [i for i, hunk in enumerate(found.hunks) if hunk_of("v0", GRID) == i]
    text = section(site, compiled("v0", GRID, registers=90), compiled("v1", 49, registers=80))
    assert f"[{index + 1}](#change-{index + 1}) alone" in text


def test_a_kernel_that_no_change_touches_is_ascribed_to_none(site):
    text = section(
        site,
        compiled("v0", 1000, registers=255),
        compiled("v1", 1000, registers=168),
    )
    assert "- Changes in its functions: none" in text or "| none |" in text
    assert "Compiled from" not in text


@pytest.mark.parametrize(
    "runs",
    [
        [compiled("v0", GRID, stale=True), compiled("v1", BOUNDS)],
        [compiled("v0", GRID, tools="2"), compiled("v1", BOUNDS)],
        [compiled("v1", BOUNDS)],
    ],
    ids=["stale", "other tools", "one version"],
)
def test_where_records_do_not_compare_nothing_is_said(site, runs):
    text = section(site, *runs)
    assert "Compiled" not in text
    assert "Registers" not in text


def test_records_at_other_sizes_do_not_compare(site):
    runs = compiled("v0", GRID), compiled("v1", BOUNDS)
    made = [run.record.model_copy(update={"problem": {"s": s}}) for s, run in enumerate(runs)]
    one, other = (replace(run, record=record) for run, record in zip(runs, made, strict=True))
    assert effects.built(on(site, one, other), BEFORE, AFTER) == []


def test_the_diff_follows_a_tampered_record(site):
    def tampered(run: Run) -> Run:
        if run.record.kernel.version != "v1" or not run.outcome:
            return run
        stages = [
            made.model_copy(update={"static": made.static.model_copy(update={"registers": 77})})
            for made in run.outcome.stages if made.static
        ]  # fmt: skip
        outcome = run.outcome.model_copy(update={"stages": stages})
        return replace(run, record=run.record.model_copy(update={"outcome": outcome}))

    own = [run for version in (BEFORE, AFTER) for run in site.runs_of(version)]
    text = section(site, *own)
    changed = section(site, *map(tampered, own))
    assert "**77**" in changed
    assert "**77**" not in text
