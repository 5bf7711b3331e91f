"""What a launch report counts: bytes of each access, operations, and which ways the kernel went."""

from __future__ import annotations

import math

import cuda.tile as ct
import pytest
import torch

from mla_var3.interpreter import LaunchReport
from mla_var3.interpreter.launch_report import LineTraffic
from mla_var3.interpreter.ways import turn

from .helpers import line_of, run, run_clean

Int = ct.Constant[int]


@ct.kernel
def accesses(x, index, counts, y, TILE: Int):
    i = ct.bid(0)
    tile = ct.load(x, (i,), (TILE,), padding_mode=ct.PaddingMode.ZERO)  # tile
    at = ct.load(index, (0,), (TILE,))  # index
    part = ct.gather(x, at, padding_value=0.0)  # gather
    ct.store(y, (i,), tile + part)  # store
    ct.scatter(y, at, part)  # scatter
    ct.atomic_add(counts, at, 1)  # add
    ct.atomic_cas(counts, at, 5, 6)  # cas


def test_bytes_of_every_kind_of_access() -> None:
    """Two blocks of a ragged array; four of the eight indices lie inside."""
    x, y = torch.arange(12.0), torch.zeros(12)
    index = torch.tensor([0, 3, 99, 5, 7, 98, 97, 96], dtype=torch.int32)
    counts = torch.zeros(8, dtype=torch.int64)
    report = run(accesses, x, index, counts, y, 8, grid=(2,), track=False)
    lines = {n: traffic for (_, n), traffic in report.bytes_by_line.items()}
    wanted = {
        "tile": LineTraffic(12 * 4, 0, 2, 0),
        "index": LineTraffic(2 * 8 * 4, 0, 2, 0),
        "gather": LineTraffic(2 * 4 * 4, 0, 2, 0),
        "store": LineTraffic(0, 12 * 4, 0, 2),
        "scatter": LineTraffic(0, 2 * 4 * 4, 0, 2),
        "add": LineTraffic(2 * 4 * 8, 2 * 4 * 8, 2, 2),
        "cas": LineTraffic(2 * 4 * 8, 2 * 4 * 8, 2, 2),
    }
    assert {mark: lines[line_of(accesses, mark)] for mark in wanted} == wanted
    assert counts.tolist() == [2, 0, 0, 2, 0, 2, 0, 2]


@ct.kernel
def looped(x, n: int, TILE: Int):
    i = ct.bid(0)
    for j in range(n):
        tile = ct.load(x, (i, j), (1, TILE))
        ct.store(x, (i, j), ct.exp2(tile) * 2.0 + tile)


def test_operations_are_those_of_all_blocks_and_rounds() -> None:
    def report(blocks: int, rounds: int) -> LaunchReport:
        return run(looped, torch.zeros(4, 32), rounds, 8, grid=(blocks,))

    one, more = report(1, 1), report(1, 3)
    a_round = (more.steps - one.steps) // 2
    assert a_round > 0
    assert one.steps > a_round
    for blocks in (1, 2, 4):
        for rounds in (0, 1, 3, 4):
            found = report(blocks, rounds)
            assert found.steps == blocks * (one.steps + (rounds - 1) * a_round)
            assert found.flops == (
                {"exp2": 8 * rounds * blocks, "fma": 16 * rounds * blocks} if rounds else {}
            )


def ways(report: LaunchReport, kind: str) -> dict[str, set[str]]:
    return {place: ways for (what, place), ways in report.facts.items() if what == kind}


def test_a_turn_is_the_first_the_next_or_a_later_one() -> None:
    assert [turn(i) for i in (-3, 0, 1, 2, 9)] == ["first", "first", "next", "later", "later"]


@ct.kernel
def walks(x, y, TILE: Int):
    i = ct.bid(0)
    tile = ct.load(x, (i, 0), (1, TILE), padding_mode=ct.PaddingMode.ZERO)  # load
    ct.store(y, (0, i), ct.reshape(tile, (TILE, 1)))  # store


@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("length", [6, 8])
def test_only_an_index_that_moves_is_noted(blocks: int, length: int) -> None:
    x, y = torch.ones(3, length), torch.zeros(length, 3)
    report = run(walks, x, y, 8, grid=(blocks,))
    went = [{"first"}, {"first", "next"}, {"first", "next", "later"}][blocks - 1]
    tiles = ways(report, "tile")
    assert list(tiles.values()) == [went, went]
    assert [place.partition(" in ")[0] for place in tiles] == ["axis 0 of x", "axis 1 of y"]
    assert ways(report, "edge") == {}  # Both move along axes of single elements.


@ct.kernel
def wide(x, y, TILE: Int):
    i = ct.bid(0)
    ct.store(y, (i,), ct.load(x, (i,), (TILE,)))


@pytest.mark.parametrize(
    ("blocks", "length", "edges"),
    [(1, 8, {"whole"}), (2, 12, {"whole", "ragged"}), (1, 3, {"ragged"})],
)
def test_whether_a_tile_met_the_edge(blocks: int, length: int, edges: set[str]) -> None:
    report = run(wide, torch.ones(length), torch.zeros(length), 8, grid=(blocks,))
    assert list(ways(report, "edge").values()) == [edges, edges]


@ct.kernel
def adds(x, y, OP: Int):
    a = ct.load(x, (0,), (4,))
    if OP == 0:
        a = a + a
    elif OP == 1:
        a = a - 7
    else:
        a = a * 3
    ct.store(y, (0,), ct.gather(y, a & 3))


@pytest.mark.parametrize("op", range(3))
@pytest.mark.parametrize("dtype", [torch.int32, torch.uint32, torch.int64, torch.uint8])
def test_numbers_that_may_wrap_are_no_overflow(dtype: torch.dtype, op: int) -> None:
    """Only signed integers of fewer than 64 bits are looked at."""
    info = torch.iinfo(dtype)
    x = torch.tensor([info.min, 1, 2, info.max], dtype=dtype)
    y = torch.zeros(4, dtype=dtype)
    report = run(adds, x, y, op, numerics=True)
    kinds = [d.kind for d in report.diagnostics]
    assert kinds == (["index-overflow"] if dtype is torch.int32 else [])


@ct.kernel
def roots(x, y):
    ct.store(y, (0,), ct.sqrt(ct.load(x, (0,), (4,)).astype(ct.tfloat32)).astype(ct.float32))


def test_functions_of_tf32_round_to_it() -> None:
    x, y = torch.tensor([1.0, 2.0, 3.0, 6.25]), torch.zeros(4)
    run_clean(roots, x, y)
    assert [v * 2**10 % 1 for v in y.tolist()] == [0.0] * 4
    assert (y - x.sqrt()).abs().max() <= 2.0**-11


@ct.kernel
def hazard(x, words, y):
    i = ct.bid(0)
    if i == 0:
        ct.store(x, (1,), ct.full((2,), 1, ct.int16))
    else:
        ct.store(y, (0,), ct.load(words, (1,), (1,)))


def test_a_hazard_names_the_element_of_the_array_that_is_accessed() -> None:
    """Halves 2 and 3 are word 1."""
    base, y = torch.zeros(4, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    for order, name in (("forward", "words[1]"), ("reverse", "x[2]")):
        report = run(hazard, base.view(torch.int16), base, y, grid=(2,), order=order)
        [found] = [d for d in report.diagnostics if d.kind == "read-write-hazard"]
        assert f" {name}," in found.message, found


@ct.kernel
def own_phases(x, flag, MINE: Int):
    if ct.bid(0) == 0:
        ct.store(x, (0,), ct.full((1,), 1, ct.int32))
        ct.atomic_add(flag, 0, 1, memory_order=ct.MemoryOrder.RELEASE)
        ct.store(x, (2,), ct.full((1,), 2, ct.int32))
        ct.store(x, (3,), ct.load(x, (MINE,), (1,)))
    else:
        ct.store(x, (1,), ct.full((1,), 3, ct.int32))


@pytest.mark.parametrize("order", ["forward", "reverse"])
@pytest.mark.parametrize(("mine", "kinds"), [(0, []), (2, []), (1, ["read-write-hazard"])])
def test_a_block_knows_all_that_it_did_before_and_after_a_release(
    mine: int, kinds: list[str], order: str
) -> None:
    x, flag = torch.zeros(4, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    report = run(own_phases, x, flag, mine, grid=(2,), order=order)
    assert [d.kind for d in report.diagnostics] == kinds


@ct.kernel
def some_are_stored(x, at, y):
    ct.scatter(y, ct.load(at, (0,), (8,)), ct.load(x, (0,), (8,)))


def test_only_undetermined_elements_that_are_stored_count() -> None:
    x, y = torch.ones(5), torch.zeros(8)
    at = torch.tensor([0, 1, 2, 3, 4, 5, 99, 6], dtype=torch.int32)
    report = run(some_are_stored, x, at, y)
    [found] = [d for d in report.diagnostics if d.kind == "undetermined-padding"]
    assert "(2 elements)" in found.message
    at[5], at[7] = 98, 97
    kinds = {d.kind for d in run(some_are_stored, x, at, y).diagnostics}
    assert "undetermined-padding" not in kinds


@ct.kernel
def compares(x, y, limit: int):
    i = ct.bid(0)
    tile = ct.load(x, (i,), (1,))
    if i < limit:  # scalar
        tile = tile + 1
    tile = ct.where(tile > 2, tile, 0)  # tile
    ct.store(y, (i,), tile)


@pytest.mark.parametrize(
    ("limit", "scalar"), [(0, {"failed"}), (2, {"held", "failed"}), (4, {"held"})]
)
def test_whether_a_comparison_held_and_failed(limit: int, scalar: set[str]) -> None:
    x, y = torch.tensor([0, 1, 2, 3]), torch.zeros(4, dtype=torch.int64)
    report = run(compares, x, y, limit, grid=(4,))
    found = {int(place.split(":")[1]): ways for place, ways in ways(report, "comparison").items()}
    assert found == {
        line_of(compares, "scalar"): scalar,
        line_of(compares, "tile"): {"held", "failed"},
    }


@ct.kernel
def updates(words, halves):
    ct.atomic_add(words, 1, 1)
    ct.store(halves, (6,), ct.full((1,), 1, ct.int16))


def test_distinct_bytes_of_atomics_and_of_halves() -> None:
    base = torch.zeros(4, dtype=torch.int32)
    report = run(updates, base, base.view(torch.int16))
    assert report.arrays["words"].unique_bytes_loaded == 4
    assert report.arrays["words"].unique_bytes_stored == 6
    assert base.tolist() == [0, 1, 0, 1]


@ct.kernel
def carried(x, y, n: int):
    """Each round assigns what no round before it has: loops carry it nonetheless."""
    j = 0
    while j < n:
        if j == 1:
            k = j + 5
            big = k > 3
            tile = ct.load(x, (j,), (4,))
            if big:
                ct.store(y, (k - 6,), tile * 2)
        j += 1


@pytest.mark.parametrize("options", [{}, {"numerics": True}, {"track": False}])
def test_a_loop_carries_what_nothing_has_assigned(options: dict[str, bool]) -> None:
    x, y = torch.arange(16.0), torch.zeros(4)
    run_clean(carried, x, y, 3, **options)
    assert y.tolist() == [8, 10, 12, 14]
    run(carried, x, y, 1, **options)
    assert y.tolist() == [8, 10, 12, 14]


@ct.kernel
def doubles(x, y):
    ct.store(y, (0,), ct.load(x, (0,), (4,)) * 2.0)


def test_an_undetermined_number_is_no_first_nan() -> None:
    """Padding of no kind may hold NaN; a NaN that the program makes is told beside it."""
    x, y = torch.tensor([1.0, 2.0, 3.0]), torch.zeros(3)
    assert run(doubles, x, y, numerics=True, poison=math.nan).diagnostics == []
    assert run(doubles, x, y, numerics=True, poison=math.inf).diagnostics == []
    x[1] = 3e38
    [found] = run(doubles, x, y, numerics=True, poison=math.nan).diagnostics
    assert found.kind == "infinity"
    assert "at element (1,)" in found.message


@ct.kernel
def all_race(x, y):
    at = ct.arange(4, dtype=ct.int32)
    t = ct.gather(x, at)
    ct.scatter(x, at, t + 1.0)
    ct.store(y, (0,), ct.load(x, (0,), (4,)))
    ct.atomic_add(x, at, 1.0)


def test_hazards_and_distinct_bytes_are_kept_where_they_are_asked_for() -> None:
    x, y = torch.zeros(4), torch.zeros(4)
    report = run(all_race, x, y, grid=(2,), track=False)
    assert (report.diagnostics, report.arrays) == ([], {})
    assert x.tolist() == [4.0] * 4
    report = run(all_race, x, y, grid=(2,))
    assert {"write-conflict", "read-write-hazard"} == {d.kind for d in report.diagnostics}
    assert set(report.arrays) == {"x", "y"}


@ct.kernel
def made_of_constants(x, y, OP: Int):
    low = ct.full((4,), -math.inf, ct.float32)
    none = ct.full((4,), math.nan, ct.float32)
    kept = low
    a = ct.load(x, (0,), (4,))
    if OP == 0:
        b = ct.maximum(a, kept)
    elif OP == 1:
        b = ct.where(a > 100.0, none, a)
    elif OP == 2:
        b = a * math.inf
    else:
        b = ct.maximum(a - 3e38 - 3e38, a)  # made
    ct.store(y, (0,), b)


@pytest.mark.parametrize(("op", "found"), [(0, []), (1, []), (2, []), (3, ["infinity"])])
def test_constants_that_are_no_numbers_are_none_that_a_program_made(
    op: int, found: list[str]
) -> None:
    report = run(made_of_constants, torch.ones(4), torch.zeros(4), op, numerics=True)
    assert [d.kind for d in report.diagnostics] == found
    assert all(d.line == line_of(made_of_constants, "made") for d in report.diagnostics)
