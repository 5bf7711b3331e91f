"""What mutants of the interpreter showed to be untested: each test ends one that survived."""

from __future__ import annotations

import cuda.tile as ct
import pytest
import torch
from cuda.tile import _datatype as dt

from mla_var3.errors import InterpreterError
from mla_var3.interpreter import LaunchReport
from mla_var3.interpreter.launch_report import DiagnosticLog
from mla_var3.interpreter.launcher import _grid
from mla_var3.interpreter.memory import ArrayArg, Memory, Pointer, View
from mla_var3.interpreter.values import round_float

from .helpers import only, run, run_clean

Int = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


def array(x: torch.Tensor) -> ArrayArg:
    return Memory(DiagnosticLog(), True).add_arrays([("x", x)])[0]


def kinds(report: LaunchReport) -> list[str]:
    return [d.kind for d in report.diagnostics]


# ------------------------------------------------------------------------------------- values


def test_tf32_keeps_what_is_no_number() -> None:
    bits = [0x7FFFFFFF, 0x7F800001, -1, 0x7F800000, -0x800000]
    x = torch.tensor(bits, dtype=torch.int32).view(torch.float32)
    made = round_float(x, dt.tfloat32, None)
    assert made.isnan().tolist() == [True, True, True, False, False]
    assert made[3:].tolist() == [float("inf"), -float("inf")]


@ct.kernel
def to_uint64(x, y, TILE: Int):
    ct.store(y, (0,), ct.load(x, (0,), (TILE,)).astype(ct.uint64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_floats_past_uint64_saturate(dtype: torch.dtype) -> None:
    x = torch.tensor([2.0**64, 2.0**65, 2.0**63, 2.0**64 - 2.0**40], dtype=dtype)
    y = torch.zeros(4, dtype=torch.uint64)
    run(to_uint64, x, y, 4)
    assert y.tolist() == [2**64 - 1, 2**64 - 1, 2**63, 2**64 - 2**40]


@ct.kernel
def sums(x, y, FLUSH: ct.Constant[bool], UP: ct.Constant[bool]):
    tile = ct.load(x, (0,), (2,))
    if UP:
        total = ct.sum(tile, axis=0, keepdims=True, rounding_mode=ct.RoundingMode.RP)
    else:
        total = ct.sum(tile, axis=0, keepdims=True, flush_to_zero=FLUSH)
    ct.store(y, (0,), total)


def test_sums_flush_where_they_are_asked_to() -> None:
    x, y = torch.full((2,), 2.0**-140), torch.empty(1)
    run_clean(sums, x, y, False, False)
    assert y.item() == 2.0**-139
    run_clean(sums, x, y, True, False)
    assert y.item() == 0.0


def test_sums_round_as_they_are_asked_to() -> None:
    x, y = torch.tensor([1.0, 2.0**-24]), torch.empty(1)
    run_clean(sums, x, y, False, False)
    assert y.item() == 1.0
    run_clean(sums, x, y, False, True)
    assert y.item() == 1.0 + 2.0**-23


# ------------------------------------------------------------------------------ undetermined


@ct.kernel
def product(a, b, c, y):
    acc = ct.load(c, (0, 0), (16, 16))
    acc = ct.mma(ct.load(a, (0, 0), (16, 16)), ct.load(b, (0, 0), (16, 16)), acc)
    ct.store(y, (0, 0), acc)


def test_an_accumulator_that_nothing_wrote_makes_the_product_undetermined() -> None:
    a, b = torch.ones(16, 16).half(), torch.ones(16, 16).half()
    c, y = torch.zeros(16, 16), torch.empty(16, 16)
    assert kinds(run(product, a, b, c, y)) == []
    assert "uninitialised-read" in kinds(run(product, a, b, c, y, uninitialised=[c]))


@ct.kernel
def either(a, b, y):
    one = (ct.load(a, (0,), (4,)) > 0) | (ct.load(b, (0,), (4,)) > 0)
    ct.store(y, (0,), one.astype(ct.int32))


def test_neither_of_two_undetermined_operands_determines_the_other() -> None:
    a, b, y = (torch.zeros(4, dtype=torch.int32) for _ in range(3))
    both = run(either, a, b, y, uninitialised=[a, b], int_poison=1)
    assert "uninitialised-read" in kinds(both)
    ones = torch.ones(4, dtype=torch.int32)
    assert kinds(run(either, a, ones, y, uninitialised=[a], int_poison=1)) == []


# ---------------------------------------------------------------------------------- memory


@ct.kernel
def tile_at(x, y, AT: Int):
    ct.store(y, (0,), ct.load(x, (AT,), (4,), padding_mode=ZERO))


def test_only_the_first_tile_of_an_empty_axis_is_a_part_of_it() -> None:
    x, y = torch.empty(0), torch.empty(4)
    run_clean(tile_at, x, y, 0)
    assert only(run(tile_at, x, y, 1), "tile-outside").severity == "error"


@pytest.mark.parametrize(
    ("offset", "shape", "strides", "inside"),
    [
        (0, (4, 4), (8, 1), True),
        (1, (4, 3), (8, 1), True),
        (8, (3, 4), (8, 1), True),
        (0, (4, 5), (8, 1), False),
        (1, (4, 4), (8, 1), False),
        (8, (4, 4), (8, 1), False),
        (5, (1, 1), (8, 1), False),
        (0, (4, 4), (4, 1), False),
    ],
)
def test_a_view_of_an_array_with_gaps_stays_between_them(
    offset: int, shape: tuple[int, int], strides: tuple[int, int], inside: bool
) -> None:
    x = array(torch.zeros(4, 8)[:, :4])
    assert x.gappy
    view = View(Pointer(x, x.start + offset, 4), shape, strides, torch.float32)
    assert view.inside is inside


@pytest.mark.parametrize(
    ("shape", "strides", "overlaps"),
    [((3, 2), (1, 2), True), ((3, 2), (1, 3), False), ((2, 2), (1, 1), True), ((2, 3), (3, 1), 0)],
)
def test_strides_as_long_as_the_reach_before_them_overlap(
    shape: tuple[int, int], strides: tuple[int, int], overlaps: bool
) -> None:
    assert array(torch.zeros(16).as_strided(shape, strides)).overlaps is bool(overlaps)


@pytest.mark.parametrize("grid", [(1, 65536), (1, 1, 65536), (2**31,), (0,), (1, 1, 1, 1)])
def test_grids_past_the_limits_are_refused(grid: tuple[int, ...]) -> None:
    with pytest.raises(InterpreterError, match="grid"):
        _grid(grid)


def test_grids_at_the_limits_are_not() -> None:
    assert _grid((2**31 - 1, 65535, 65535)) == (2**31 - 1, 65535, 65535)


@ct.kernel
def counted(c, y):
    if ct.bid(0) == 0:
        ct.atomic_add(c, 0, 1)
    else:
        ct.store(y, (0,), ct.load(c, (0,), (1,)))


def test_a_plain_read_races_with_an_atomic_of_another_block() -> None:
    c, y = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    assert "read-write-hazard" in kinds(run(counted, c, y, grid=(2,)))
    assert "read-write-hazard" in kinds(run(counted, c, y, grid=(2,), order="reverse"))
