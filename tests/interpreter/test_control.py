"""Loops, branches and prints: which way a launch went, what ends a loop, how much is printed."""

from __future__ import annotations

import itertools

import cuda.tile as ct
import pytest
import torch

from mla_var3.errors import InterpreterError
from mla_var3.interpreter import LaunchReport
from mla_var3.interpreter.options import Options
from mla_var3.interpreter.show import WINDOW

from .helpers import line_of, refusal, run, run_clean

Int = ct.Constant[int]


def ways(report: LaunchReport, kind: str) -> list[set[str]]:
    return [went for (what, _), went in report.facts.items() if what == kind]


# --------------------------------------------------------------------------------- which way


@ct.kernel
def bounds(x, low, high, step, WHICH: Int):
    total = 0
    if WHICH == 0:
        for i in range(1, 6, 2):
            total += i
    elif WHICH == 1:
        for i in range(low, 6, 2):
            total += i
    elif WHICH == 2:
        for i in range(1, high, 2):
            total += i
    else:
        for i in range(1, 6, step):
            total += i
    ct.store(x, (0,), total)


@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize(
    ("low", "high", "step"), [(1, 6, 2), (6, 6, 2), (5, 2, 1), (9, 1, 9), (-3, 8, 3)]
)
def test_a_loop_is_fixed_where_all_three_bounds_are(
    which: int, low: int, high: int, step: int
) -> None:
    x = torch.zeros(1, dtype=torch.int32)
    report = run(bounds, x, low, high, step, which)
    given = [(1, 6, 2), (low, 6, 2), (1, high, 2), (1, 6, step)][which]
    turns = range(*given)
    assert x.tolist() == [sum(turns)]
    went = {"none" if not turns else "one" if len(turns) == 1 else "many"}
    found = (ways(report, "fixed loop"), ways(report, "loop"))
    assert found == (([went], []) if which == 0 else ([], [went]))


@ct.kernel
def turned(x, y, limit):
    i = ct.bid(0)
    taken = 0
    if i < limit:
        taken = 1
    ct.store(y, (i,), taken)


@pytest.mark.parametrize(
    ("limit", "went"), [(0, {"passed"}), (2, {"passed", "taken"}), (4, {"taken"})]
)
def test_a_branch_is_taken_passed_or_both(limit: int, went: set[str]) -> None:
    y = torch.zeros(4, dtype=torch.int32)
    report = run(turned, torch.zeros(4), y, limit, grid=(4,))
    assert ways(report, "branch") == [went]
    assert y.tolist() == [int(i < limit) for i in range(4)]


# -------------------------------------------------------------------------------- loops' ends


@ct.kernel
def nested_ends(y, stop, skip, n, m):
    """Sums i * 100 + j, but for what is skipped, until a product is reached."""
    total = 0
    rounds = 0
    for i in range(n):
        if i == skip:
            continue
        for j in range(m):
            if i * j >= stop:
                break
            total += i * 100 + j
        rounds += 1
    while True:
        if rounds <= 0:
            break
        rounds -= 2
        total += 10000
    ct.store(y, (0,), total)
    ct.store(y, (1,), rounds)


@pytest.mark.parametrize("stop", [0, 1, 3, 99])
@pytest.mark.parametrize("skip", [-1, 0, 2])
@pytest.mark.parametrize("size", [(0, 3), (1, 0), (4, 3)])
def test_loops_end_as_in_python(stop: int, skip: int, size: tuple[int, int]) -> None:
    y = torch.zeros(2, dtype=torch.int32)
    run_clean(nested_ends, y, stop, skip, *size)
    wanted = torch.zeros(2, dtype=torch.int32)
    total = rounds = 0
    for i in range(size[0]):
        if i == skip:
            continue
        for j in range(size[1]):
            if i * j >= stop:
                break
            total += i * 100 + j
        rounds += 1
    while rounds > 0:
        rounds, total = rounds - 2, total + 10000
    wanted[0], wanted[1] = total, rounds
    assert y.tolist() == wanted.tolist()


@ct.kernel
def spins(flag, y, ROUNDS: Int):
    """Each block but the first looks at the word of the one before, so many times at most."""
    i = ct.bid(0)
    heard = 1
    if i > 0:
        heard = 0
        for _ in range(ROUNDS):
            heard = (
                heard | ct.atomic_add(flag, (i - 1,), 0, memory_order=ct.MemoryOrder.ACQUIRE).item()
            )
    ct.store(y, (i,), heard)
    ct.atomic_add(flag, (i,), 1, memory_order=ct.MemoryOrder.RELEASE)


@pytest.mark.parametrize(("order", "rounds"), [("forward", 1), ("reverse", 65), ("reverse", 130)])
def test_a_counted_loop_that_waits_lets_others_run(order: str, rounds: int) -> None:
    """A block that looks at a word for long enough is not the only one that runs."""
    y, flag = (torch.zeros(3, dtype=torch.int32) for _ in range(2))
    run_clean(spins, flag, y, rounds, grid=(3,), order=order)
    assert (y.tolist(), flag.tolist()) == ([1] * 3, [1] * 3)


@ct.kernel
def idles(y, value):
    n = value
    while n == value:
        n = n * 1
    ct.store(y, (0,), n)


@ct.kernel
def waits_for_ever(x, y):
    while ct.atomic_add(x, (0,), 0.0).item() == 0.0:  # wait
        pass
    ct.store(y, (0,), 1.0)


def test_a_loop_in_which_nothing_changes_is_named() -> None:
    error = refusal(idles, torch.zeros(1, dtype=torch.int32), 3)
    assert "this loop never ends: an iteration of block (0, 0, 0) changed nothing" in str(error)
    run_clean(waits_for_ever, torch.ones(1), torch.zeros(1))
    assert f":{line_of(waits_for_ever, 'wait')}: " in str(
        refusal(waits_for_ever, torch.zeros(1), torch.zeros(1))
    )


# ------------------------------------------------------------------------------------- prints


@ct.kernel
def prints_tile(x, ROWS: Int, COLUMNS: Int):
    ct.printf("%.1f\n", ct.load(x, (0, 0), (ROWS, COLUMNS)))


@pytest.mark.parametrize("shape", [(1, 1), (2, 8), (8, 2), (8, 8)])
@pytest.mark.parametrize("limit", [1, 15, 16, 17, 63, 64])
def test_a_tile_is_printed_whole_up_to_the_limit(
    shape: tuple[int, int], limit: int, capsys: pytest.CaptureFixture[str]
) -> None:
    x = torch.arange(64.0)[: shape[0] * shape[1]].reshape(shape)
    run(prints_tile, x, *shape, print_limit=limit)
    out = capsys.readouterr().out
    part = x if x.numel() <= limit else x[:WINDOW, :WINDOW]
    rows = ", ".join("[" + ", ".join(f"{v:.1f}" for v in row) + "]" for row in part.tolist())
    assert f"[{rows}]" in out
    assert ("first:" in out) == (x.numel() > limit)


@ct.kernel
def prints_block(x):
    ct.printf("%d %d\n", ct.bid(0), ct.bid(1))


@pytest.mark.parametrize(
    "blocks", [None, frozenset({(1, 0, 0)}), frozenset({(0, 1, 0), (2, 2, 0)})]
)
def test_blocks_that_are_asked_for_print(
    blocks: frozenset[tuple[int, int, int]] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    run(prints_block, torch.zeros(1), grid=(2, 2), print_blocks=blocks)
    every = set(itertools.product(range(2), range(2), range(1)))
    wanted = every if blocks is None else every & blocks
    assert sorted(capsys.readouterr().out.split("\n")[:-1]) == sorted(
        f"{i} {j}" for i, j, _ in wanted
    )


@ct.kernel
def decided(x, y, n):
    tile = ct.load(x, (0,), (4,), padding_mode=ct.PaddingMode.UNDETERMINED)
    last = ct.max(ct.astype(tile, ct.int32))
    for _ in range(last.item()):  # loop
        ct.store(y, (0,), 1.0)


def test_undetermined_bounds_are_reported_at_the_loop() -> None:
    run_clean(decided, torch.ones(4), torch.zeros(1), 1)
    report = run(decided, torch.ones(3), torch.zeros(1), 1, poison=2.0)
    [found] = [d for d in report.diagnostics if d.kind == "undetermined-padding"]
    assert f":{line_of(decided, 'loop')}" in found.message
    assert "the bounds of a loop" in found.message


def test_a_launch_has_so_many_steps() -> None:
    """The budget is that of a launch: what takes as many as there are still ends."""
    x = torch.zeros(1, dtype=torch.int32)
    steps = run(bounds, x, 1, 6, 2, 0).steps
    assert Options().max_steps > steps
    run(bounds, x, 1, 6, 2, 0, max_steps=steps)
    with pytest.raises(InterpreterError):
        run(bounds, x, 1, 400, 2, 2, max_steps=steps)
