"""Figures of problems that the facts of a kernel are held against: scores, and tiles."""

import pytest

from mla_var3.workloads import workloads


@pytest.mark.parametrize(
    ("layer", "problem", "scores"),
    [
        ("attention", {"b": 2, "h": 3, "s": 4, "t": 8}, 2 * 3 * 4 * 8),
        ("attention", {"b": 1, "h": 1, "s": 4, "t": 4, "causal": True}, 10),
        ("mla", {"b": 2, "h": 16, "s": 1, "t": 64, "k": 512, "p": 64}, 2 * 16 * 64),
        ("mla", {"b": 2, "h": 16, "s": 1, "t": 64, "k": 512, "p": 64, "n": 32}, None),
        ("gemm", {"m": 8, "n": 8, "k": 8}, None),
    ],
)
def test_scores(layer, problem, scores):
    assert workloads()[layer].scores(problem) == scores


def test_tiles_of_a_product_count_those_at_its_edges():
    assert workloads()["gemm"].tiles({"m": 130, "n": 256, "k": 64}, 128, 128) == 2 * 2
    assert workloads()["mla"].tiles({"b": 1}, 128, 128) is None
