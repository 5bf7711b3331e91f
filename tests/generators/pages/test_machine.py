"""What programs read: skills whose commands work, a catalogue and copies that agree with pages."""

from __future__ import annotations

import io
import json
import re
import zipfile

import frontmatter
import pytest

from generators import families as engine
from generators.model import leading
from generators.pages import catalogue, machine
from generators.pages.machine import copy_path, heading, plain, skill, skill_names
from generators.write.page import Page
from mla_var3 import evidence
from mla_var3.errors import HyperMlaError, UnknownNameError
from mla_var3.knowledge.evidence import repo_path
from tests.generators.checking import ROOT, dead_links
from tests.generators.commands import checkout_files, commands_of, understand

NAMES = (
    "cute-dsl-ref",
    "cutile-dsl-ref",
    "design-cute-dsl-kernel",
    "design-cutile-dsl-kernel",
    "design-kernel",
    "kernel-baseline",
    "kernel-bottleneck-analysis",
    "kernel-optimizer",
    "kernel-partial-restart",
    "kernel-profile-optimizer",
    "learn-cute-dsl",
    "mla-analysis",
    "optimization-catalog",
    "optimize-cute-dsl-kernel",
    "optimize-cutile-dsl-kernel",
    "profile-kernel",
)


@pytest.fixture(scope="module")
def found(site):
    return {page.path: page for page in machine.pages(site)}


@pytest.fixture(scope="module")
def data(found):
    return json.loads(found[machine.CATALOGUE].content)


def test_there_are_the_skills_that_are_asked_for():
    assert tuple(skill_names()) == NAMES


def test_the_index_says_with_which_skill_to_begin_and_names_each_once(found):
    index = found[machine.INDEX].content
    rows = [line for line in index.splitlines() if line.startswith("| ") and "](" in line]
    named = [re.findall(r"\[([a-z-]+)\]\(\1\.md\)", row) for row in rows]
    assert sorted(name for row in named for name in row) == sorted(NAMES)
    assert named[0][0] == "kernel-optimizer"


@pytest.mark.parametrize("name", NAMES)
def test_a_skill_says_what_it_is(site, name):
    text = skill(site, name, repo_path)
    meta = frontmatter.loads(text).metadata
    assert meta["name"] == name
    assert 60 < len(meta["description"]) < 1024
    assert "Use " in meta["description"]
    assert set(meta) == {"name", "description"}


@pytest.mark.parametrize("name", NAMES)
def test_every_command_of_a_skill_is_understood(site, name):
    new: set[str] = set()
    found = list(commands_of(skill(site, name, repo_path)))
    assert found
    for command in found:
        understand(command, new)


@pytest.mark.parametrize(
    "command",
    [
        "nox -s profil -- mla_var6_plus v4",
        "nox -s profile -- mla_var6_plus v99",
        "nox -s profile -- mla_var6_plus v4 --no_such_flag=1",
        "nox -s compare -- mla_var6_plus v3",
        "nox -s clone -- mla_var6_plus v3 v4",
        "nox -s knowledge -- match results/none.json",
        "nox -s devices -- show nvidia-h300",
        'python -c "from mla_var3.knowledge import nothing"',
        "python examples/none.py",
        "pip install x",
    ],
)
def test_wrong_commands_are_not_understood(command):
    with pytest.raises((AssertionError, SystemExit, HyperMlaError, ImportError, ValueError)):
        understand(command, set())


@pytest.mark.parametrize("name", NAMES)
def test_ids_and_files_of_a_skill_exist(site, name):
    text = skill(site, name, repo_path)
    ids = set(re.findall(r"\b(?:[oa]\d+|cutile|cute)-[a-z0-9-]+\b(?=\.md)", text))
    assert ids <= set(site.catalogue.by_id)
    for file in checkout_files(text):
        name = file.relative_to(ROOT).as_posix()
        assert file.exists() or name in site.catalogue.records, file


def test_the_catalogue_skill_has_every_pattern(site):
    text = skill(site, "optimization-catalog", repo_path)
    for document in site.catalogue.patterns:
        assert f"]({document.name})" in text
        for trigger in document.pattern.triggers:
            assert f"`{trigger}`" in text


def test_a_template_that_names_an_unknown_pattern_fails(site, tmp_path, monkeypatch):
    (tmp_path / "x.md").write_text("{{ pattern('o99-none') }}")
    monkeypatch.setattr(machine, "TEMPLATES", tmp_path)
    machine._environment.cache_clear()
    try:
        with pytest.raises(UnknownNameError, match="o99-none"):
            skill(site, "x", repo_path)
    finally:
        machine._environment.cache_clear()


def test_skills_follow_the_knowledge(site):
    document = site.catalogue.page("o2-head-grouping")
    old = document.meta
    try:
        document.meta = old.model_copy(update={"title": "Another <b>title</b>"})
        for name in ("optimization-catalog", "design-kernel"):
            assert "Another &lt;b&gt;title" in skill(site, name, repo_path)
    finally:
        document.meta = old


def test_what_a_skill_starts_from_won_by_the_records(site):
    for name, language in (
        ("optimize-cute-dsl-kernel", "cute-dsl"),
        ("optimize-cutile-dsl-kernel", "cutile-dsl"),
    ):
        text = skill(site, name, repo_path)
        best = leading.leader(site, language)
        assert f"$ nox -s profile -- {best.key} --prof_type=static" in text
        for one in leading.leaders(site, language):
            row = f"[`{one.version.key}`]({one.run.name}) | {one.won} of {one.problems} |"
            assert row in text


def test_the_archive_holds_the_skills_with_links_into_the_checkout(site, found):
    content = found[machine.ARCHIVE].content
    assert content == machine.archive(site)
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        assert file.namelist() == [f"{name}/SKILL.md" for name in NAMES]
        text = file.read("design-kernel/SKILL.md").decode()
    assert text == machine.committed_skill(site, "design-kernel")
    assert text == (ROOT / "skills" / "design-kernel" / "SKILL.md").read_text()


def test_links_resolve(found, pages):
    made = [page for page in found.values() if page.path.endswith(".md")]
    assert len(made) == len(NAMES) + 1
    assert list(dead_links(made, pages)) == []


# -- catalogue.json --------------------------------------------------------------------------------


def test_everything_is_in_the_catalogue(site, data):
    assert [p["id"] for p in data["patterns"]] == [d.pattern.id for d in site.catalogue.patterns]
    assert [v["key"] for v in data["versions"]] == [v.key for v in site.versions]
    assert [r["path"] for r in data["records"]] == [run.name for run in site.runs]
    assert [d["key"] for d in data["devices"]] == [d.key for d in site.devices]


def test_addresses_of_the_catalogue_are_pages(data, pages):
    known = {page.path for page in pages}
    for kind in ("patterns", "versions", "devices"):
        assert {entry["page"] for entry in data[kind]} <= known
    assert {entry["address"] for entry in data["records"]} <= known
    assert all((ROOT / entry["source"]).is_file() for entry in data["patterns"])


def test_uses_run_both_ways(site, data):
    by_key = {entry["key"]: entry for entry in data["versions"]}
    for document in site.catalogue.patterns:
        meta = document.pattern
        for key in meta.used_by:
            assert meta.id in by_key[key]["uses"]
        for key in meta.violated_by:
            assert meta.id in by_key[key]["violates"]


def test_records_state_their_outcome(site, data):
    for run, entry in zip(site.runs, data["records"], strict=True):
        assert entry["status"] == run.record.outcome.status
        assert entry["stale"] == run.stale
        timed = run.outcome is not None and run.outcome.total is not None
        assert ("total_us" in entry) == timed
        if timed:
            assert entry["total_us"] == run.outcome.total.median_us


# -- plain copies ----------------------------------------------------------------------------------


def test_every_page_of_text_has_a_copy_that_is_listed(pages):
    known = {page.path: page for page in pages}
    listing, full = known["llms.txt"].content, known["llms-full.txt"].content
    for path in known:
        if path.endswith(".md") and not path.startswith(machine.NOT_COPIED):
            assert copy_path(path) in known
            assert f"({copy_path(path)})" in listing
            assert known[copy_path(path)].content.strip() in full


@pytest.mark.exhaustive
def test_copies_lead_to_copies(pages):
    known = {page.path: page for page in pages}
    copies = [known[copy_path(path)] for path in known if copy_path(path) in known
              and path.endswith(".md")]  # fmt: skip
    faults = [fault for fault in dead_links(copies, pages) if "no such anchor" not in fault]
    assert faults == []


def test_copies_hold_no_drawings(pages):
    for page in pages:
        if page.path.endswith(".txt") and isinstance(page.content, str):
            assert "<svg" not in page.content
            assert "<form" not in page.content


def test_the_listing_has_titles(pages):
    listing = next(page.content for page in pages if page.path == "llms.txt")
    assert listing.startswith("# HyperMLA\n\n> ")
    assert re.search(r"^- \[O2 head grouping\]\(\S+\.txt\): Group heads", listing, re.M)
    assert "## Catalogue" in listing


TEXT = """---
title: x
---

# A &#42;title&#42; `here`

<div markdown="1">

| a | b |
| --- | --- |
| x<br>y | p &#124; q |

</div>

<figure class="roofline">
<svg><text>no</text></svg>
</figure>

[two](../two.md#part) [gone](gone.md) [out](https://example.org/x.md) [`code`](two.txt)

```html
<div>&#42;</div> # not a heading
```
"""


def test_plain_text():
    found = plain(Page("a/one.md", TEXT), {"two.md"})
    assert heading(found) == "A *title* here"
    assert "| x; y | p &#124; q |" in found
    assert "[two](../two.txt#part) gone [out](https://example.org/x.md)" in found
    assert "<figure" not in found
    assert "title: x" not in found
    assert "# not a heading" in found


@pytest.mark.exhaustive
def test_a_changed_record_changes_every_form(site, pages):
    """One record's registers and time move; pages, copies and JSON follow, nothing else stays."""
    name, stage = _cited(site)
    old = site.catalogue.record(name)
    data = old.model_dump(mode="json")
    for entry in data["outcome"]["stages"]:
        if entry["name"] == stage:
            entry["static"]["registers"] = 213
    site.catalogue._records[name] = evidence.Record.model_validate(data)
    runs = tuple(
        run if run.name != name else engine.Run(name, site.catalogue.record(name), run.stale)
        for run in site.runs
    )
    tampered = engine.replace(site, runs=runs)
    try:
        after = {page.path: page.content for page in engine.all_pages(tampered)}
    finally:
        site.catalogue._records[name] = old
    before = {page.path: page.content for page in pages}
    assert before.keys() == after.keys()
    assert not any("213 registers" in str(text) for text in before.values())
    moved = {path for path, text in after.items() if "213 registers" in str(text)}
    citing = {
        catalogue.pattern_path(document.pattern)
        for document in site.catalogue.patterns
        if name in document.text and "registers" in str(document.pattern.evidence)
    }
    shown = {path for path in citing if "registers" in str(before[path])}
    assert shown
    assert shown <= moved
    assert {copy_path(path) for path in shown} <= moved
    kernel = old.kernel
    version = f"kernels/{kernel.layer}/{kernel.language}/{kernel.design}/{kernel.version}.md"
    assert before[version] != after[version]


def _cited(site):
    """A record, and a stage of it, whose registers a pattern's evidence shows."""
    for document in site.catalogue.patterns:
        for item in document.pattern.evidence:
            name = getattr(item, "after", getattr(item, "record", None))
            if name and "registers" in item.metric:
                record = site.catalogue.record(name)
                return name, item.stage or record.outcome.stages[0].name
    raise AssertionError("no pattern cites the registers of a record")
