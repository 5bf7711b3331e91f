"""Which way whole numbers went: on both sides of each edge, and at it."""

from __future__ import annotations

import cuda.tile as ct
import pytest
import torch

from .helpers import run


@ct.kernel
def numbers(y, a, b):
    ct.store(y, (0,), a % b)  # remainder
    ct.store(y, (1,), a // b)  # quotient
    ct.store(y, (2,), ct.cdiv(a, b))  # ceiling
    ct.store(y, (3,), ct.minimum(a, b))  # minimum
    ct.store(y, (4,), ct.maximum(a, b))  # maximum


@pytest.mark.parametrize("a", [0, 1, 3, 4, 5, 9])
def test_ways_of_numbers_at_every_edge(a: int) -> None:
    b = 4
    y = torch.zeros(5, dtype=torch.int32)
    facts = run(numbers, y, a, b).facts
    assert y.tolist() == [a % b, a // b, -(-a // b), min(a, b), max(a, b)]
    found = {
        (kind, place.rpartition("# ")[2]): ways
        for (kind, place), ways in facts.items()
        if "# " in place
    }
    assert found["remainder", "remainder"] == ({"beyond"} if a >= b else set())
    assert found["quotient", "quotient"] == ({"later"} if a >= b else set())
    assert found["quotient", "ceiling"] == ({"later"} if a > b else set())
    way = {"first"} if a < b else {"second"} if a > b else set()
    assert found["minimum", "minimum"] == way
    assert found["maximum", "maximum"] == ({"first"} if a > b else {"second"} if a < b else set())


@ct.kernel
def small(x, y):
    i = ct.bid(0)
    ct.store(y, (i,), ct.load(x, (i,), (1,)) + 1)


def test_blocks_count_against_the_limit_together() -> None:
    """A kernel without a loop, of so many blocks that all of them are too much."""
    from mla_var3.errors import InterpreterError

    x, y = torch.zeros(64), torch.zeros(64)
    steps = run(small, x, y, grid=(64,)).steps
    run(small, x, y, grid=(64,), max_steps=steps)
    with pytest.raises(InterpreterError, match="passed the limit of"):
        run(small, x, y, grid=(64,), max_steps=64)
