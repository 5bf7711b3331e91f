"""Blocks that wait for each other: barriers, hand-overs, look-back chains, in every order."""

from __future__ import annotations

from typing import Any

import cuda.tile as ct
import pytest
import torch

from mla_var3.interpreter import Options, launch, recording, using
from tests.interpreter.helpers import assert_points_at, line_of, only, refusal, run, run_clean

Int = ct.Constant[int]
ORDERS: list[Any] = ["forward", "reverse", "random", 3]
every_order = pytest.mark.parametrize("order", ORDERS)


@ct.kernel
def grid_barrier(x, partial, arrived, y, TILE: Int):
    """Each block sums a tile, waits for all, and divides its tile by the sum of sums."""
    i = ct.bid(0)
    tile = ct.load(x, (i,), (TILE,))
    ct.store(partial, (i,), ct.sum(tile, keepdims=True))
    ct.atomic_add(arrived, 0, 1)
    while ct.atomic_add(arrived, 0, 0) < ct.num_blocks(0):  # the barrier
        pass
    total = ct.zeros((1,), ct.float32)
    for j in range(ct.num_blocks(0)):
        total = total + ct.load(partial, (j,), (1,))
    ct.store(y, (i,), tile / total)


@every_order
def test_a_grid_barrier(order: Any) -> None:
    x, y = torch.arange(1.0, 33.0), torch.zeros(32)
    partial, arrived = torch.zeros(8), torch.zeros(1, dtype=torch.int32)
    run_clean(grid_barrier, x, partial, arrived, y, 4, grid=(8,), order=order)
    torch.testing.assert_close(y, x / x.sum())


@ct.kernel
def look_back(x, carry, state, y, TILE: Int):
    """A scan in one pass: each block takes the prefix of the block before it."""
    i = ct.bid(0)
    local = ct.cumsum(ct.load(x, (i,), (TILE,)), axis=0)
    prefix = ct.zeros((1,), ct.float32)
    if i > 0:
        while ct.atomic_add(state, i - 1, 0) == 0:  # looks back
            pass
        prefix = ct.load(carry, (i - 1,), (1,))
    ct.store(carry, (i,), prefix + ct.extract(local, (TILE - 1,), (1,)))
    ct.atomic_xchg(state, i, 1)
    ct.store(y, (i,), local + prefix)


@every_order
def test_a_look_back_chain(order: Any) -> None:
    x, y, carry = torch.arange(64.0), torch.zeros(64), torch.zeros(16)
    state = torch.zeros(16, dtype=torch.int32)
    run_clean(look_back, x, carry, state, y, 4, grid=(16,), order=order)
    assert torch.equal(y, x.cumsum(0))


@ct.kernel
def consumer_first(mail, flag, y):
    if ct.bid(0) == 0:
        while ct.atomic_cas(flag, 0, 1, 2) != 1:  # takes
            pass
        ct.store(y, (0,), ct.load(mail, (0,), (4,)))
    else:
        ct.store(mail, (0,), ct.full((4,), 7.0, ct.float32))
        ct.atomic_xchg(flag, 0, 1)


@every_order
def test_a_consumer_before_its_producer(order: Any) -> None:
    mail, flag, y = torch.zeros(4), torch.zeros(1, dtype=torch.int32), torch.zeros(4)
    run_clean(consumer_first, mail, flag, y, grid=(2,), order=order)
    assert y.tolist() == [7.0] * 4


@ct.kernel
def locked(lock, total):
    while ct.atomic_cas(lock, 0, 0, 1) != 0:  # takes the lock
        pass
    ct.store(total, (0,), ct.load(total, (0,), (1,)) + 1.0)
    ct.atomic_xchg(lock, 0, 0)


@every_order
def test_a_lock(order: Any) -> None:
    lock, total = torch.zeros(1, dtype=torch.int32), torch.zeros(1)
    run_clean(locked, lock, total, grid=(6,), order=order)
    assert total.item() == 6


@ct.kernel
def counts_its_waiting(flag, spun):
    if ct.bid(0) == 0:
        n = 0
        while ct.atomic_add(flag, 0, 0) == 0:
            n += 1
        ct.store(spun, (0,), ct.full((1,), n, ct.int32))
    else:
        ct.atomic_xchg(flag, 0, 1)


def test_a_wait_that_counts_lets_others_run() -> None:
    flag, spun = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    run_clean(counts_its_waiting, flag, spun, grid=(2,))
    assert spun.item() > 0


@ct.kernel
def gives_up(flag, seen):
    if ct.bid(0) == 0:
        for _ in range(1000):
            if ct.atomic_add(flag, 0, 0) != 0:
                ct.store(seen, (0,), ct.full((1,), 1, ct.int32))
                break
    else:
        ct.atomic_xchg(flag, 0, 1)


def test_a_bounded_wait_lets_others_run() -> None:
    flag, seen = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    run(gives_up, flag, seen, grid=(2,))
    assert seen.item() == 1


@ct.kernel
def each_waits_for_the_other(flags):
    if ct.bid(0) == 0:
        while ct.atomic_add(flags, 1, 0) == 0:  # first wait
            pass
        ct.atomic_xchg(flags, 0, 1)
    else:
        while ct.atomic_add(flags, 0, 0) == 0:  # second wait
            pass
        ct.atomic_xchg(flags, 1, 1)


@every_order
def test_a_deadlock_is_one_error_that_names_each_line(order: Any) -> None:
    flags = torch.zeros(2, dtype=torch.int32)
    error = str(refusal(each_waits_for_the_other, flags, grid=(3,), order=order))
    assert "deadlock" in error
    for mark in ("first wait", "second wait"):
        line = line_of(each_waits_for_the_other, mark)
        assert f"test_blocks_together.py:{line}" in error


@ct.kernel
def barrier_of_too_many(arrived):
    ct.atomic_add(arrived, 0, 1)
    while ct.atomic_add(arrived, 0, 0) <= ct.num_blocks(0):  # one too many
        pass


def test_a_barrier_that_nobody_reaches() -> None:
    error = str(refusal(barrier_of_too_many, torch.zeros(1, dtype=torch.int32), grid=(4,)))
    assert "block (0, 0, 0) and 3 others wait in this loop" in error
    assert str(line_of(barrier_of_too_many, "one too many")) in error


@ct.kernel
def reads_what_follows_the_barrier(data, arrived, y):
    i = ct.bid(0)
    ct.atomic_add(arrived, 0, 1)
    while ct.atomic_add(arrived, 0, 0) < 2:
        pass
    if i == 0:
        ct.store(data, (0,), ct.ones((1,), ct.float32))
    else:
        ct.store(y, (0,), ct.load(data, (0,), (1,)))  # unordered


def test_a_barrier_orders_what_came_before_it_alone() -> None:
    for order in ("forward", "reverse"):
        arrived = torch.zeros(1, dtype=torch.int32)
        report = run(
            reads_what_follows_the_barrier,
            torch.zeros(1),
            arrived,
            torch.zeros(1),
            grid=(2,),
            order=order,
        )
        assert only(report, "read-write-hazard").severity == "error"


@ct.kernel
def scoped_to_the_block(counter):
    ct.atomic_add(counter, 0, 1, memory_scope=ct.MemoryScope.BLOCK)  # too narrow


@ct.kernel
def flag_of_the_block(data, flag, y):
    if ct.bid(0) == 0:
        ct.store(data, (0,), ct.ones((1,), ct.float32))
        ct.atomic_xchg(flag, 0, 1, memory_scope=ct.MemoryScope.BLOCK)
    else:
        while ct.atomic_add(flag, 0, 0) == 0:
            pass
        ct.store(y, (0,), ct.load(data, (0,), (1,)))  # not ordered


def test_a_scope_of_one_block_orders_nothing_between_two() -> None:
    report = run(scoped_to_the_block, torch.zeros(1, dtype=torch.int32), grid=(2,))
    assert_points_at(only(report, "write-conflict"), scoped_to_the_block, "too narrow")
    run_clean(scoped_to_the_block, torch.zeros(1, dtype=torch.int32))
    args = torch.zeros(1), torch.zeros(1, dtype=torch.int32), torch.zeros(1)
    report = run(flag_of_the_block, *args, grid=(2,))
    lines = {d.line for d in report.errors if d.kind == "read-write-hazard"}
    assert line_of(flag_of_the_block, "not ordered") in lines


@ct.kernel
def last_wins(y):
    ct.scatter(y, ct.bid(0) * 0, ct.bid(0))


def test_options_of_every_launch_in_a_block() -> None:
    def winner() -> int:
        y = torch.zeros(1, dtype=torch.int32)
        launch((7,), last_wins, (y,))
        return int(y.item())

    assert winner() == 6
    with using(order="reverse"), recording() as reports:
        assert winner() == 0
        with using(order="random", seed=5, track=False):
            shuffled = winner()
            assert shuffled == winner()
        y = torch.zeros(1, dtype=torch.int32)
        launch((7,), last_wins, (y,), options=Options())
        assert y.item() == 6
    assert winner() == 6
    assert [bool(r.diagnostics) for r in reports] == [True, False, False, True]
    with using(order="random"):
        assert len({winner() for _ in range(2)}) == 1
