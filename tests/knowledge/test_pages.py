from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.errors import KnowledgeError, RecordError, UnknownNameError
from mla_var3.knowledge import pages
from mla_var3.knowledge.pages import load, load_all, natural, role_of
from mla_var3.runtime import registry

from .trees import BEFORE, DEVLOG, DEVLOG_TEXT, PAGE, TEXT, make_record


@pytest.mark.parametrize(
    ("name", "role"),
    [
        (PAGE, "pattern"),
        ("knowledge/languages/cute-dsl/anti-patterns/cute-x.md", "pattern"),
        (TEXT, "text"),
        (DEVLOG, "devlog"),
        ("knowledge/languages/x.md", "misplaced"),
        ("knowledge/optimizations/deep/x.md", "misplaced"),
    ],
)
def test_role(name, role):
    assert role_of(name) == role


def test_a_page_is_read_with_its_lines(tree):
    page = load(tree.root / PAGE, tree.root)
    assert page.faults == []
    assert page.pattern.id == "o1-group"
    assert page.line_of("impact") == tree.line(PAGE, "impact:")
    assert page.line_of("evidence", 0, "after") == tree.line(PAGE, "    after:")
    assert page.line_of("triggers", 1, "with", 0, "value") == tree.line(PAGE, "      - {metric")
    assert page.line_of("evidence", 99) == page.line_of("evidence")
    assert page.line_of("nothing") == page.line_of()
    headings = [(s.title, s.line) for s in page.sections]
    assert ("Pitfalls", tree.line(PAGE, "## Pitfalls")) in headings
    assert page.section("Pitfalls").strip() == "None known."
    assert page.section("Nothing") == ""
    assert page.first_line == tree.line(PAGE, "## When to apply")


def test_line_ends_of_other_systems_are_read_alike(tree):
    unix = load(tree.root / PAGE, tree.root)
    tree.write(PAGE, tree.read(PAGE).replace("\n", "\r\n"))
    other = load(tree.root / PAGE, tree.root)
    assert other.body == unix.body
    assert other.meta == unix.meta


def test_the_front_matter_of_an_unreadable_page_is_an_error(tree):
    tree.replace(PAGE, "impact: high", "impact: huge")
    with pytest.raises(KnowledgeError, match="run knowledge lint"):
        _ = load(tree.root / PAGE, tree.root).pattern


def test_devlog_entries(tree):
    devlog = tree.catalogue().devlogs["flash_mla"]
    first, second = devlog.entries
    assert (first.version, first.verdict, first.negative) == ("v0", "a baseline", False)
    assert (second.version, second.verdict, second.negative) == ("v1", "nothing gained", True)
    assert first.sections[0].title == "What changed"
    assert first.section("Why") == "Text."
    assert first.section("No such") == ""
    assert first.line == tree.line(DEVLOG, "### v0")


def test_an_entry_ends_at_the_next_heading_of_its_level():
    document = pages.Document(pages.Path("x"), "x", "devlog", DEVLOG_TEXT, DEVLOG_TEXT)
    assert len(document.entries[0].sections) == 7


def test_the_catalogue(tree):
    tree.write("knowledge/optimizations/o10-x.md", tree.read(PAGE).replace("o1-group", "o10-x"))
    tree.write("knowledge/optimizations/o2-y.md", tree.read(PAGE).replace("o1-group", "o2-y"))
    catalogue = tree.catalogue()
    assert [p.pattern.id for p in catalogue.patterns] == ["a1-spill", "o1-group", "o2-y", "o10-x"]
    assert catalogue.page("o2-y").name.endswith("o2-y.md")
    assert [t.name for t in catalogue.texts] == [TEXT]
    with pytest.raises(UnknownNameError, match="o2-y"):
        catalogue.page("o2-z")


def test_records_of_the_catalogue(tree):
    catalogue = tree.catalogue()
    record = catalogue.record(BEFORE)
    assert catalogue.record(BEFORE) is record
    assert not catalogue.is_stale(record)
    assert catalogue.is_stale(make_record("v0", sources={"x": "b" * 40}))
    assert len(catalogue.record_files()) == 2
    with pytest.raises(RecordError):
        catalogue.record("results/none.json")
    for outside in ("../x.json", "results/../../x.json", "/etc/passwd", "knowledge/x.json"):
        with pytest.raises(RecordError, match="does not exist"):
            catalogue.record(outside)


def test_no_knowledge_folder_is_an_error(tmp_path):
    with pytest.raises(KnowledgeError, match="no folder knowledge"):
        load_all(tmp_path)


def test_designs_of_the_registry():
    designs = pages.registered_designs()
    assert set(designs) == set(registry.designs())
    flash_mla = designs["flash_mla"]
    assert flash_mla.versions[0] == "v0"
    assert flash_mla.devlog == "kernels/cutile/mla/flash_mla/devlog.md"


def test_versions_are_named_with_or_without_their_language(tree):
    catalogue = tree.catalogue()
    design = catalogue.designs["flash_mla"]
    assert catalogue.version("flash_mla v1") == (design, "v1")
    assert catalogue.version("flash_mla@cutile-dsl v1") == (design, "v1")
    for wrong in ("flash_mla@library v1", "flash_mla v7", "other v1", "flash_mla"):
        assert catalogue.version(wrong) is None
    kernel = make_record("v1").kernel
    assert catalogue.names(["flash_mla v0", "flash_mla v1"], kernel)
    assert not catalogue.names(["flash_mla v0", "nothing v1"], kernel)
    elsewhere = kernel.model_copy(update={"language": "library"})
    assert not catalogue.names(["flash_mla v1"], elsewhere)


@given(st.text(max_size=200))
def test_any_text_is_read_without_an_error(tmp_path_factory, text):
    root = tmp_path_factory.mktemp("any")
    (root / "knowledge").mkdir()
    (root / "knowledge" / "x.md").write_bytes(text.encode("utf-8", "surrogatepass"))
    document = load(root / "knowledge" / "x.md", root)
    assert document.meta is not None or document.faults


@given(st.text(alphabet="-ab: []{}&*!\n'\"|>#%@", max_size=80))
def test_any_front_matter_is_read_without_an_error(tmp_path_factory, text):
    root = tmp_path_factory.mktemp("any")
    (root / "knowledge").mkdir()
    (root / "knowledge" / "x.md").write_text(f"---\n{text}\n---\nbody\n")
    document = load(root / "knowledge" / "x.md", root)
    assert document.meta is not None or document.faults
    for fault in document.faults:
        assert fault.line >= 1
        assert fault.message


def test_natural_order():
    assert sorted(["o10-a", "o2-b", "a1-c"], key=natural) == ["a1-c", "o2-b", "o10-a"]
