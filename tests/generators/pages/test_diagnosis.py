"""Diagnosis: from a symptom, by arch, to a command and to remedies with their code."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from generators.model.site import Site
from generators.pages import diagnosis
from generators.write.page import Page
from mla_var3.knowledge.symptoms import SYMPTOMS
from tests.generators.checking import dead_links, see


@pytest.fixture(scope="module")
def found(site: Site) -> dict[str, Page]:
    return {page.path: page for page in diagnosis.pages(site)}


def part(page: Page, arch: str) -> str:
    text = str(page.content)
    at = max(text.find(f"{{ #{arch} }}"), text.find(f'<span id="{arch}"></span>'))
    assert at >= 0
    return re.split(r"^## ", text[at:], flags=re.MULTILINE)[0]


def test_what_is_the_same_on_several_archs_is_said_once(found):
    text = str(found["diagnosis/no-tma.md"].content)
    assert text.count("## What to try on") == 1
    assert "## What to try on sm_90, sm_100 and sm_120 { #sm_90 }" in text
    assert {"sm_90", "sm_100", "sm_120"} <= see(found["diagnosis/no-tma.md"]).anchors
    for path, page in found.items():
        tables = re.findall(r"(?:^\|.*\n)+", str(page.content), re.MULTILINE)
        assert len(tables) == len(set(tables)), path


def test_where_archs_differ_the_page_says_how(found):
    shown = part(found["diagnosis/register-spills.md"], "sm_120")
    assert "Against sm_90: without *" in shown


def test_spills_on_sm_120_have_a_recipe(found):
    page = found["diagnosis/register-spills.md"]
    text = str(page.content)
    assert "$ nox -s profile -- DESIGN VERSION --prof_type=static --arch=" in text
    rows = [line for line in part(page, "sm_120").splitlines() if line.startswith("| 1 |")]
    first = re.findall(r"\]\(#([a-z0-9-]+)\)", rows[0])[0]
    assert first == "o17-rows-that-fit-registers"
    assert "0 instructions" in rows[0]
    remedy = text[text.index(f"{{ #{first} }}") :]
    assert "```" in remedy.split("\n### ")[0]
    assert "When it fails" in remedy.split("\n### ")[0]
    # The hint that mends it on sm_90 makes it worse here.
    assert "o12-worker-warps-by-spills" not in "".join(rows)
    assert "O12 worker warps by spills" in part(page, "sm_120")


def test_a_change_has_one_row_and_says_for_which_language(found):
    for path, page in found.items():
        if path == diagnosis.INDEX:
            continue
        for arch in ("sm_90", "sm_100", "sm_120"):
            lines = re.findall(r"^\| \d+ \|.*$", part(page, arch), re.MULTILINE)
            rows = [re.split(r"(?<!\\)\|", line)[2:5] for line in lines]
            brought = [row[2].strip() for row in rows if "not measured here" not in row[2]]
            assert len(brought) == len(set(brought)), (path, arch)
            assert all(re.search("any language|cuTile|CuTe DSL", row[1]) for row in rows), path


def test_an_error_that_its_check_allows_is_no_fault(found):
    text = str(found["diagnosis/wrong-result.md"].content)
    shown = text.partition("Our records that show the fault most")[2].split("\n## ")[0]
    assert all(float(value) > 4e-3 for value in re.findall(r"\[(0\.\d+)\]", shown))


def test_the_first_remedy_of_an_arch_stands_under_its_table(found):
    shown = part(found["diagnosis/register-spills.md"], "sm_120")
    table, recipe = shown.split("### ", 1)
    assert "| 1 |" in table
    assert "{ #o17-rows-that-fit-registers }" in recipe
    assert "rows_for(arch" in recipe
    assert "When it fails" in recipe


def test_every_remedy_of_every_arch_stands_in_full(found):
    for path, page in found.items():
        if path != diagnosis.INDEX:
            named = set(re.findall(r"\]\(#([a-z0-9-]+)\)", str(page.content)))
            assert named
            assert named <= see(page).anchors, path


def test_links_of_diagnosis_resolve_and_nothing_runs(found, pages):
    assert list(dead_links(found.values(), pages)) == []
    assert [script for page in found.values() for script in see(page).scripts] == []


def test_the_worst_record_is_that_of_today(site):
    def seen(of: Site) -> str:
        pages = {page.path: str(page.content) for page in diagnosis.pages(of)}
        text = pages["diagnosis/register-spills.md"]
        return text[text.index("Our records that show the fault most") :].split("\n## ")[0]

    assert "on sm&#95;120" in seen(site)
    without = [run for run in site.runs if run.record.target != "static/sm_120"]
    assert "on sm&#95;120" not in seen(replace(site, runs=tuple(without)))


def test_spills_on_an_arch_without_times_say_so_and_name_remedies_alone(site):
    page = next(p for p in diagnosis.pages(site) if p.path == "diagnosis/register-spills.md")
    text = part(page, "sm_120")
    assert "Nobody timed a kernel on sm_120" in text
    assert "fake tensors" not in text
    assert "Prune tilings" not in text
    own, other = text.index("16 rows by 64 keys, the same source"), text.index("decompressed form")
    assert own < other


def test_the_softmax_leads_to_one_list_of_tricks(found, pages):
    text = str(found["diagnosis/softmax-bound.md"].content)
    address, anchor = re.findall(r"\]\(\.\./([\w/.-]+)#(all-tricks[\w-]*)\)", text)[0]
    [listed] = [page for page in pages if page.path == address]
    assert anchor in see(listed).anchors
    table = str(listed.content).split("All tricks for the softmax between products")[1]
    gains = [line.split("|")[2:4] for line in table.splitlines() if line.startswith("| ")]
    assert len(gains) >= 6
    assert all(cell.strip() for gain in gains[1:] for cell in gain)


def test_a_reader_who_knows_the_case_is_led_to_its_remedy(found):
    page = found["diagnosis/empty-gpu.md"]
    lead = str(page.content).partition("## Confirm it")[0]
    cases = re.findall(r"^- (.+): \[.+\]\(#([a-z0-9-]+)\)\.$", lead, re.MULTILINE)
    symptom = next(symptom for symptom in SYMPTOMS if symptom.key == "empty-gpu")
    assert [name for _, name in cases] == [name for _, name in symptom.cases]
    assert {name for _, name in cases} <= see(page).anchors
    assert "Which case is yours?" not in str(found["diagnosis/no-tma.md"].content)


def test_what_a_remedy_brought_spans_its_steps_and_its_own_evidence(found):
    shown = part(found["diagnosis/empty-gpu.md"], "sm_90")
    row = next(line for line in shown.splitlines() if "(#o16-split-kv)" in line)
    assert row.startswith("| 1 |")  # It brings most: one long sequence.
    least, most, cases = re.findall(r"([\d.]+)x to ([\d.]+)x the speed in (\d+) cases timed", row)[
        0
    ]
    assert float(least) < 1.2
    assert float(most) >= 20
    assert int(cases) >= 4
