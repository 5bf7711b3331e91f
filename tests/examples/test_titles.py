"""An example that nobody has named yet gets a title like those of the others."""

from __future__ import annotations

import pytest

from mla_var3.examples.index import title_of
from mla_var3.examples.learning import load
from mla_var3.paths import repo_root

FOLDER = "examples/python/CuTeDSL/cute"


@pytest.mark.parametrize(
    ("path", "category", "title"),
    [
        ("a/fmha_bwd.py", "blackwell/attention/fmha", "fmha_bwd (Blackwell attention)"),
        ("a/sgemm.py", "ampere/dense_gemm", "sgemm (Ampere dense gemm)"),
        ("a/tma_load.py", "experimental/primitives/tma", "tma_load (Primitives)"),
        ("a/02_copy.py", "experimental/primitives/tutorial", "02_copy (Primitives)"),
        ("a/alone.py", "", "alone"),
        ("hello.py", "dsl_tutorials", "hello"),
    ],
)
def test_a_title_is_the_file_and_what_it_is_about(path, category, title):
    assert title_of(path, category) == title


def test_most_titles_that_nobody_wrote_are_made_so():
    found = load(repo_root()).examples.values()
    given = [one for one in found if one.title.endswith(")") and ":" not in one.title]
    alike = [one for one in given if one.title == title_of(one.path, one.category or "")]
    assert len(given) > 100
    assert len(alike) >= 0.8 * len(given)
