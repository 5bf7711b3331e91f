"""The page of derived wrong kernels is that of today's sources and findings."""

from __future__ import annotations

from collections import Counter

import pytest

from generators.committed import mutants
from mla_var3.errors import KnowledgeError
from mla_var3.runtime import registry
from tests.generators.checking import ROOT

GEMM = registry.find("hopper_gemm", "v4")
MARKS = f"Head.\n{mutants.BEGIN}\nOLD\n{mutants.END}\nTail.\n"


@pytest.mark.slow
def test_the_committed_page_is_current():
    old = (ROOT / mutants.PAGE).read_text(encoding="utf-8")
    found = list(mutants.every(registry.versions()))
    assert old == mutants.page(old, found), "write it: python -m generators.committed.mutants"


def test_what_is_open_is_listed_and_what_is_not_is_counted():
    open_ = Counter({"shown": 5, "same code": 1, "argued": 2, "open": 4})
    page = mutants.page(MARKS, [(GEMM, open_)])
    assert "8 of 12 are judged: a problem shows 5, 1 compile" in page
    assert "| `hopper_gemm v4` | 12 | 5 | 1 | 2 | 4 |" in page
    assert page.startswith("Head.")
    assert page.endswith("Tail.\n")
    assert "OLD" not in page
    done = mutants.page(MARKS, [(GEMM, Counter(open_ - Counter({"open": 4})))])
    assert "8 of 8 are judged" in done
    assert "hopper_gemm" not in done


def test_a_page_without_a_place_is_one_sentence():
    with pytest.raises(KnowledgeError, match="between which a table stands"):
        mutants.page("Head.\n", [(GEMM, Counter({"open": 1}))])
