"""Pages of findings in others' kernels: a report each, marked as not seen on hardware."""

from __future__ import annotations

from generators.pages import findings
from mla_var3.emulator.findings import LISTED, TABLE, Shown, Table
from tests.generators.planted import small_site

TEXT = """
[KEY]
title = "a <race>"
script = "x/kernel.py"
arguments = "--m 1"
arch = "sm_100a"
source = "SOURCE"
kind = "race"
at = ["store("]
happens = ["It loads.", "It stores."]
follows = "Wrong values."
smallest = "One tile."
remedy = "A barrier."
[[KEY.edits]]
find = "store(x)"
put = "sync(); store(x)"
"""
SHOWN = Shown(finding="one", report="race: x\n  at y", lines=(7, 7, 3), mended=0, passes=True)


def planted(tree, *shown: Shown) -> None:
    """Put two findings into a checkout, and what was shown of them."""
    listed = TEXT.replace("KEY", "one").replace("SOURCE", "x/kernel.py")
    listed += TEXT.replace("KEY", "two").replace("SOURCE", "module:a.b")
    for path, text in ((LISTED, listed), (TABLE, Table(findings=shown).model_dump_json())):
        (tree.root / path).parent.mkdir(parents=True, exist_ok=True)
        (tree.root / path).write_text(text, encoding="utf-8")


def test_a_page_has_kernel_line_events_input_and_remedy(tree):
    planted(tree, SHOWN, SHOWN.model_copy(update={"finding": "two", "passes": False}))
    index, one, two = findings.pages(small_site(tree))
    assert "[a &lt;race&gt;](one.md)" in index.content
    assert "**None of it was seen on hardware.**" in index.content
    assert "**Not seen on hardware.**" in one.content
    assert "/examples/python/CuTeDSL/x/kernel.py#L7)" in one.content
    assert "| Lines | 7, 3 |" in one.content
    assert "1. It loads.\n2. It stores." in one.content
    assert "--arch=sm_100a --schedules 1 third_party/cutlass/" in one.content
    assert "kernel.py --m 1\n" in one.content
    assert "race: x\n  at y" in one.content
    assert "- store(x)\n+ sync(); store(x)" in one.content
    assert "own check passes" in one.content
    assert "`a.b` of the installed package" in two.content
    assert "own check fails" in two.content


def test_only_what_was_run_has_a_page(tree):
    planted(tree, SHOWN)
    assert [page.path for page in findings.pages(small_site(tree))] == [
        "results/findings/index.md",
        "results/findings/one.md",
    ]
    assert findings.places(small_site(tree)) == {TABLE.as_posix(): findings.PATH}


def test_a_checkout_without_findings_has_no_page(tree):
    assert findings.pages(small_site(tree)) == []
    assert findings.places(small_site(tree)) == {}
