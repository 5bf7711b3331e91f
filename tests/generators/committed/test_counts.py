"""The table of docs/emulator-trust.md is that of today's counts."""

from __future__ import annotations

import pytest

from generators.committed import counts
from mla_var3.app.counts import TARGET, Compared, Row, Table, read
from mla_var3.errors import KnowledgeError
from tests.generators.checking import ROOT


def one(*rows: tuple[str, int, int, str], kernel: str = "k v1", same: bool = True) -> Compared:
    made = [Row(quantity=q, counter="c", emulated=e, counted=c, why=w) for q, e, c, w in rows]
    return Compared(kernel=kernel, problem="p", same_ptx=same, rows=made)


def test_the_committed_page_is_current():
    committed = (ROOT / counts.PAGE).read_text(encoding="utf-8")
    found = read(ROOT / TARGET)
    assert committed == counts.page(committed, found), (
        "write it again: python -m generators.committed.counts"
    )
    assert len(found.kernels) >= 3


def test_equal_near_and_far():
    text = counts.text(Table(kernels=[one(("a", 5, 5, ""), ("b", 99, 100, ""), ("c", 1, 2, "no"))]))
    assert text.startswith("1 of 3 counts are equal")
    assert "1 more are within 2%" in text
    assert "| a | 5 |" in text
    assert "| b | 99 against 100 |" in text
    assert text.endswith("What differs, and why:\n\n- c: no.")


def test_a_kernel_that_lacks_a_count_has_an_empty_cell():
    text = counts.text(Table(kernels=[one(("a", 1, 1, "")), one(("b", 2, 2, ""), kernel="l v2")]))
    assert "| a | 1 |  |" in text
    assert "more are within" not in text
    assert "What differs" not in text


def test_other_ptx_is_said():
    assert "The PTX of k v1 was another" in counts.text(Table(kernels=[one(same=False)]))


def test_a_page_without_its_place():
    with pytest.raises(KnowledgeError, match="between which a table stands"):
        counts.page("# A page\n", Table())
