"""Problems near those that are tried."""

from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.workloads.attention import AttentionProblem
from mla_var3.workloads.base import NEAR, NEAR_STEPS, Problem
from mla_var3.workloads.gemm import GemmProblem
from mla_var3.workloads.mla import (
    LatentProblem,
    MixedProblem,
    SharedPrefixProblem,
    SparseLatentProblem,
)

KINDS = (
    AttentionProblem(),
    GemmProblem(),
    LatentProblem(),
    MixedProblem(),
    SharedPrefixProblem(),
    SparseLatentProblem(),
)
#: Extents that others bound, and so move.
CUT = ("shared", "prefix", "n")


def bits(value: int) -> int:
    return max(value - 1, 0).bit_length()


def numbers(problem: Problem) -> dict[str, int]:
    return {n: v for n, v in problem.problem().items() if type(v) is int}


def sides(problem: Problem) -> dict[str, bool]:
    """Which of two extents of a problem are the same."""
    own = {f.name for f in dataclasses.fields(problem) if "near" in f.metadata} - {*CUT}
    own -= {"b"} if hasattr(problem, "groups") else set()  # whole groups
    known = {name: value for name, value in numbers(problem).items() if name in own}
    return {f"{a} {b}": known[a] == known[b] for a in known for b in known}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: type(kind).__name__)
@given(seed=st.integers(0, 9999), within=st.booleans())
def test_a_problem_near_another_is_as_large(kind: Problem, seed: int, within: bool) -> None:
    rng = random.Random(seed)
    plan = kind.varied(rng, kind.tries())
    assert plan is not None
    near = plan.near(rng, within=within)
    assert near.is_valid()
    assert near.steps() <= plan.steps() * (1 + 1 / NEAR_STEPS)
    assert {n: type(v) for n, v in near.problem().items()} == {
        n: type(v) for n, v in plan.problem().items()
    }
    own, moved = numbers(plan), numbers(near)
    for name, value in own.items():
        if name in ("d", "k", "p") and type(kind) is not GemmProblem:
            assert moved[name] == value
        elif name not in CUT and not (name == "b" and "groups" in own):
            assert abs(moved[name] - value) <= value / NEAR
            assert not within or bits(moved[name]) == bits(value)
    kept = sides(near)
    assert all(kept[pair] for pair, same in sides(plan).items() if same)


def test_what_is_all_of_the_keys_stays_all_of_them() -> None:
    for n in (0, 600):
        plan = MixedProblem(b=1, h=2, s=5, t=600, n=n)
        near = [plan.near(random.Random(seed)) for seed in range(20)]
        assert len({one.t for one in near}) > 5
        assert all(one.new_tokens in (0, one.t) and bool(one.n) is bool(n) for one in near)


def test_extents_that_nobody_listed_are_tried() -> None:
    kind, rng = LatentProblem(), random.Random(0)
    found = [kind.varied(rng, kind.tries()) for _ in range(200)]
    near = [one.near(rng) for one in found if one is not None]
    for name in ("b", "h", "s", "t"):
        tried = set(kind.tries()[name])
        assert len({getattr(one, name) for one in near} - tried) > 2, name
    assert len({one.s for one in near if 32 < one.s <= 64}) > 5
