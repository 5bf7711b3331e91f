"""What a launch does once, what each block does, and which arguments a kernel may write."""

from __future__ import annotations

import linecache
from typing import Any

import cuda.tile as ct
import pytest
import torch

from mla_var3.interpreter import frontend, kernel_signature
from mla_var3.interpreter.program import Code, Program

from .helpers import run

X, Y = torch.arange(8, dtype=torch.float32), torch.zeros(8)


def lowered(kernel: Any, *args: Any) -> Program:
    return frontend.program(kernel, kernel_signature(kernel, args))


def names(code: Code) -> set[str]:
    return {op for segment in code.segments for op, _ in segment.names}


@ct.kernel
def constants(x, y):
    total = ct.sum(ct.full((8,), 3, ct.float32))
    ct.store(y, (0,), ct.load(x, (0,), (8,)) * total)


@ct.kernel
def captured(x, y):
    two = ct.full((8,), 2.0, ct.float32)
    total = ct.sum(two * 3.0) + ct.max(two)
    ct.store(y, (0,), ct.load(x, (0,), (8,)) * total)


@ct.kernel
def own(x, y):
    total = ct.sum(ct.full((8,), 1.0, ct.float32) * ct.bid(0))
    ct.store(y, (0,), ct.load(x, (0,), (8,)) * total)


@ct.kernel
def returns_first(x, y):
    if ct.bid(0) > 0:
        return
    total = ct.sum(ct.full((8,), 3, ct.float32))
    ct.store(y, (0,), ct.load(x, (0,), (8,)) * total)


@pytest.mark.parametrize(
    ("kernel", "once"), [(constants, True), (captured, True), (own, False), (returns_first, False)]
)
def test_a_reduction_of_what_no_block_changes_is_done_once(kernel: Any, once: bool) -> None:
    """Where a block may have returned before, it is not done for that one."""
    program = lowered(kernel, X, Y)
    assert ("tile_reduce" in names(program.prologue)) is once
    assert ("tile_reduce" in names(program.body)) is not once


@pytest.mark.parametrize("kernel", [constants, own, returns_first])
def test_loads_and_stores_are_of_each_block(kernel: Any) -> None:
    program = lowered(kernel, X, Y)
    assert not names(program.prologue) & {"tile_load", "tile_store", "tile_num_blocks"}
    assert {"tile_load", "tile_store"} <= every_name(program)


def every_name(program: Program) -> set[str]:
    return {op for segment in program.segments for op, _ in segment.names}


def test_what_is_done_once_counts_for_each_block() -> None:
    for kernel in (constants, own):
        x, y = X.clone(), Y.clone()
        one = run(kernel, x, y, grid=(1,)).flops
        four = run(kernel, x, torch.zeros(8), grid=(4,)).flops
        assert {kind: 4 * n for kind, n in one.items()} == four
        assert one["add"] > 0


@ct.kernel
def by_tile(a, b, c):
    ct.store(b, (0,), ct.load(a, (0,), (4,)) + ct.load(c, (0,), (4,)))


@ct.kernel
def by_scatter(a, b, c):
    at = ct.arange(4, dtype=ct.int32)
    ct.scatter(c, at, ct.gather(a, at) + ct.gather(b, at))


@ct.kernel
def by_atomic(a, b, c):
    at = ct.arange(4, dtype=ct.int32)
    ct.atomic_add(a, at, ct.gather(b, at) + ct.gather(c, at))


@ct.kernel
def by_swap(a, b, c):
    at = ct.arange(4, dtype=ct.int32)
    ct.atomic_cas(b, at, ct.gather(a, at), ct.gather(c, at))


@ct.kernel
def by_two(a, b, c):
    ct.store(c, (0,), ct.load(a, (0,), (4,)))
    ct.store(a, (0,), ct.load(b, (0,), (4,)))
    ct.store(c, (0,), ct.load(b, (0,), (4,)))


@ct.kernel
def by_none(a, b, c):
    ct.load(a, (0,), (4,))


STORES: list[tuple[Any, set[str]]] = [
    (by_tile, {"b"}), (by_scatter, {"c"}), (by_atomic, {"a"}), (by_swap, {"b"}),
    (by_two, {"a", "c"}), (by_none, set()),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "written"), STORES)
def test_stores_are_followed_to_the_arguments_that_they_write(
    kernel: Any, written: set[str]
) -> None:
    arrays = [torch.zeros(8, dtype=torch.int32) for _ in range(3)]
    program = lowered(kernel, *arrays)
    assert program.stored is not None
    # Each array is a pointer, an extent and a stride among the parameters.
    assert {"abc"[i // 3] for i in program.stored} == written
    assert all(i % 3 == 0 for i in program.stored)
    assert {file for file, _ in program.stored.values()} <= {__file__}
    lines = [line for _, line in program.stored.values()]
    assert all(" ct." in linecache.getline(__file__, line) for line in lines)
