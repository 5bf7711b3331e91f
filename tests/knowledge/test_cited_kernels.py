"""Lists of compiles that pages cite: reading, what they say, and one that is compiled."""

from __future__ import annotations

import pytest

from mla_var3.errors import KnowledgeError, UnknownNameError
from mla_var3.evidence.facts import Remark
from mla_var3.knowledge import cited_kernels, pages, render_evidence
from mla_var3.knowledge.directives import render
from mla_var3.knowledge.linting import lint
from mla_var3.knowledge.schema import ObservationEvidence
from mla_var3.languages.cute.facts import CuteFacts, RegisterBudget
from mla_var3.languages.cutile.facts import CutileFacts
from mla_var3.paths import repo_root

from .trees import PAGE

LIST = """
title = "A tile"
kernel = "tile.py"
[cases.plain]
[cases.refused]
"""
PLAIN = CutileFacts(
    kernel="k",
    arch="sm_90",
    toolchain={"tileiras": "13.4"},
    registers=168,
    stack_bytes=8,
    instructions=40,
    instruction_mix={"HGMMA": 4, "FCHK": 3},
    mma_path="HGMMA",
    remarks=(
        Remark(file="k.py", line=1, kind="failed", category="memory", message="no TMA: stride"),
    ),
)
REFUSED = CutileFacts(kernel="k", arch="sm_90", error="no such instruction")


@pytest.fixture
def compiled(tree):
    """A tree whose first page cites a list of two compiles."""
    tree.write(f"{cited_kernels.LISTS}/tiles.toml", LIST)
    tree.write(f"{cited_kernels.LISTS}/tile.py", "")
    found = cited_kernels.Table(
        sources={f"{cited_kernels.LISTS}/tile.py": "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"},
        git=None,
        compiles=(
            cited_kernels.Seen(case="plain", facts=PLAIN),
            cited_kernels.Seen(case="refused", facts=REFUSED),
        ),
    )
    tree.write(f"{cited_kernels.TABLES}/tiles.json", found.model_dump_json())
    entry = "  - key: tiles\n    compiled: tiles\n    count: [FCHK]\n    refused: true\n"
    tree.replace(PAGE, "  - key: seen\n", f"{entry}  - key: seen\n")
    return tree


def test_the_table_of_a_page(compiled):
    catalogue = compiled.catalogue()
    text = render_evidence(catalogue.page("o1-group"), catalogue, lambda path: f"/site/{path}")
    assert (
        f"A tile, compiled by tileiras 13.4 ([cases](/site/{cited_kernels.LISTS}/tiles.toml)"
        in text
    )
    assert "| plain | sm&#95;90 | 168 | 8 B | 0 B | 40 | 4 HGMMA | 0 | 3 |" in text
    assert "no TMA: stride" in text
    assert "no such instruction" in text


def test_citations_are_held_by_the_compiles(compiled):
    words = "[168 registers](source:tiles), [3 FCHK](source:tiles)"
    compiled.replace(PAGE, "It gains", f"{words}. It gains")
    assert "citation-mismatch" not in {f.check for f in lint(compiled.catalogue())}
    compiled.replace(PAGE, "[168 registers](source:tiles)", "[169 registers](source:tiles)")
    assert "citation-mismatch" in {f.check for f in lint(compiled.catalogue())}
    catalogue = compiled.catalogue()
    text = render(catalogue.page("o1-group"), catalogue)
    assert '[3 FCHK](#performance-evidence "tiles: plain: 168 registers, 8 bytes of stack' in text


def test_a_changed_source_is_a_warning(compiled):
    assert "evidence-compiled-stale" not in {f.check for f in lint(compiled.catalogue())}
    compiled.write(f"{cited_kernels.LISTS}/tile.py", "x = 1\n")
    found = [f for f in lint(compiled.catalogue()) if f.check == "evidence-compiled-stale"]
    assert [f.severity for f in found] == ["warning"]
    assert "tile.py changed since tiles was compiled" in found[0].message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LIST.replace('kernel = "tile.py"', ""), "either a version or a kernel"),
        (LIST + 'version = "x v0"', "cases.refused.version"),
        ("title = ", "cannot be read"),
        ('title = "x"\nkernel = "../x.py"\n[cases.a]', "kernel"),
    ],
)
def test_a_list_that_is_not_sound(compiled, text, said):
    compiled.write(f"{cited_kernels.LISTS}/tiles.toml", text)
    with pytest.raises(KnowledgeError, match=said):
        cited_kernels.listed("tiles", compiled.root)


def test_names_that_are_not_there(compiled):
    with pytest.raises(UnknownNameError, match="list of compiles"):
        cited_kernels.listed("tile", compiled.root)
    with pytest.raises(KnowledgeError, match="no compile 'other'; there are plain, refused"):
        cited_kernels.table("tiles", compiled.root).facts("other")
    with pytest.raises(KnowledgeError, match=r"tile\.json"):
        cited_kernels.table("tile", compiled.root)


def test_barriers_in_words():
    budgets = (RegisterBudget(direction="dec", registers=40),) * 2
    facts = CuteFacts(kernel="k", arch="sm_90", mbarriers=4, register_budgets=budgets)
    assert cited_kernels.words(facts).endswith("4 mbarriers, setmaxnreg.dec 40")


def test_a_list_is_compiled_and_kept(monkeypatch, tmp_path):
    lists = tmp_path / cited_kernels.LISTS
    lists.mkdir(parents=True)
    source = (repo_root() / cited_kernels.LISTS / "elementwise.py").read_text(encoding="utf-8")
    (lists / "elementwise.py").write_text(source, encoding="utf-8")
    (lists / "one.toml").write_text(
        'title = "One"\nkernel = "elementwise.py"\nproblem = { rows = 2, columns = 16 }\n'
        '[cases.exp2]\nproblem = { operation = "exp2_flush" }\n',
        encoding="utf-8",
    )
    monkeypatch.setattr(cited_kernels, "repo_root", lambda: tmp_path)
    [path] = cited_kernels.compile_lists(["one"])
    found = cited_kernels.table("one")
    assert path == tmp_path / cited_kernels.TABLES / "one.json"
    assert found.facts("exp2").instruction_mix["MUFU"] > 0
    assert cited_kernels.changed(found) == []
    before = path.read_bytes()
    list(cited_kernels.compile_lists())
    assert path.read_bytes() == before


def test_each_list_was_compiled_whole():
    for name in cited_kernels.names():
        cases = list(cited_kernels.listed(name).cases)
        assert [seen.case for seen in cited_kernels.table(name).compiles] == cases


def test_few_claims_rest_on_a_bare_observation():
    catalogue = pages.load_all()
    documents = [*catalogue.patterns, *catalogue.texts]
    bare = [
        f"{document.name}: {item.key}"
        for document in documents
        for item in (document.meta.evidence if document.meta else ())
        if isinstance(item, ObservationEvidence)
    ]
    assert 0 < len(bare) <= 10
