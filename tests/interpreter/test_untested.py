"""What mutants of the interpreter showed to be untested: each test ends one that survived."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import cuda.tile as ct
import pytest
import torch
from cuda.tile import _datatype as dt

from mla_var3.errors import InterpreterError
from mla_var3.interpreter import LaunchReport
from mla_var3.interpreter.arrays import ArrayArg, Pointer, View
from mla_var3.interpreter.conversions import _float_to_int, _int_to_float, full, round_float
from mla_var3.interpreter.exact import fma
from mla_var3.interpreter.launch_report import DiagnosticLog
from mla_var3.interpreter.launcher import _grid
from mla_var3.interpreter.memory import Memory
from mla_var3.interpreter.ops.control import _same
from mla_var3.interpreter.ops.scalars import _ARITH
from mla_var3.interpreter.signature import ArrayConstraint, _common_constraint
from mla_var3.interpreter.values import to_scalar

from .helpers import assert_same, line_of, only, refusal, round_to, run, run_clean, wrap

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


# ------------------------------------------------------------------------------- exact values


@pytest.mark.parametrize("sign_a", [1, -1])
@pytest.mark.parametrize("sign_b", [1, -1])
def test_remainders_have_the_sign_of_the_dividend(sign_a: int, sign_b: int) -> None:
    for a, b in itertools.product(range(9), range(1, 5)):
        a, b = a * sign_a, b * sign_b
        assert _ARITH["c_mod"](a, b) == a - b * math.trunc(a / b)
        assert _ARITH["cdiv"](a, b) == math.ceil(a / b)


EDGES = [0, 1, 2, 3, 255, 2**24 + 1, 2**31 - 1, 2**31, 2**32 - 1, 2**52 + 1, 2**53 + 1, 2**54 + 3,
         2**62 + 2**38 + 1, 2**63 - 1]  # fmt: skip


@pytest.mark.parametrize("target", [dt.float16, dt.bfloat16, dt.float32, dt.float64])
@pytest.mark.parametrize("source", [dt.int8, dt.uint8, dt.int32, dt.uint32, dt.int64, dt.uint64])
def test_integers_become_floats_rounded_once(source: dt.DType, target: dt.DType) -> None:
    info = dt.IntegerInfo(source)
    numbers = [x for e in EDGES for x in (e, -e, 2 * e + 1) if info.min <= x <= info.max]
    codes = [x - 2**64 if x >= 2**63 else x for x in numbers]
    made = round_float(_int_to_float(torch.tensor(codes), source, target), target, None)
    torch_type = {dt.float16: torch.float16, dt.bfloat16: torch.bfloat16,
                  dt.float32: torch.float32}.get(target)  # fmt: skip
    wanted = [float(x) if torch_type is None else round_to([Fraction(x)], torch_type)[0]
              for x in numbers]  # fmt: skip
    assert made.double().tolist() == wanted


@pytest.mark.parametrize("target", [dt.int8, dt.uint8, dt.int16, dt.uint16, dt.int32, dt.uint32,
                                    dt.int64, dt.uint64])  # fmt: skip
def test_floats_become_integers_cut_off_and_clamped(target: dt.DType) -> None:
    info = dt.IntegerInfo(target)
    edges = [0.0, 0.5, 0.999, 1.0, 1.5, 2.5, 127.9, 128.0, 255.5, 2.0**31, 2.0**32, 2.0**62]
    edges += [2.0**63 - 1024, 2.0**63, 2.0**63 + 2048, 2.0**64 - 2048, 2.0**64, 1e30, math.inf]
    numbers = [*edges, *(-x for x in edges), math.nan]
    made = _float_to_int(torch.tensor(numbers, dtype=torch.float64), target).tolist()
    mask = (1 << target.bitwidth) - 1
    for x, got in zip(numbers, made, strict=True):
        cut = 0 if math.isnan(x) else max(info.min, min(info.max, _cut(x)))
        assert got & mask == cut & mask, x


def _cut(x: float) -> int:
    return (2**70 if x > 0 else -(2**70)) if math.isinf(x) else math.trunc(x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_products_and_sums_are_rounded_once(dtype: torch.dtype) -> None:
    made = torch.Generator().manual_seed(3)
    a, b = (torch.randn(400, generator=made).to(dtype) for _ in range(2))
    c = (-(a.double() * b.double()) * (1 + torch.randn(400, generator=made) / 500)).to(dtype)
    got = fma(a, b, c)
    assert got.dtype == dtype
    exact = [
        Fraction(x) * Fraction(y) + Fraction(z)
        for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    ]
    if dtype in (torch.float16, torch.bfloat16):
        assert_same(got, round_to(exact, dtype))
    else:
        near = torch.tensor([float(x) for x in exact], dtype=torch.float64)
        size = (a.double() * b.double()).abs() + c.double().abs()
        limit = size * torch.finfo(dtype).eps
        assert bool(((got.double() - near).abs() <= limit).all())


@ct.kernel
def two_lists(xs, y, TILE: Int):
    for i in range(len(xs)):
        ct.store(y, (i,), ct.load(xs[i], (0,), (TILE,)))


def test_a_list_holds_tensors_of_one_kind() -> None:
    y = torch.zeros(8)
    one = torch.arange(4.0)
    run_clean(two_lists, [one, one + 4], y, 4)
    assert y.tolist() == list(range(8))
    for wrong in ([], [one, 3], [one, one.half()], [one, one.view(2, 2)]):
        assert "'xs'" in str(refusal(two_lists, wrong, y, 4))


def test_what_holds_for_every_array_of_a_list_is_kept() -> None:
    def array(shape: int, stride: int, address: int) -> ArrayConstraint:
        return ArrayConstraint(
            dt.float32, 1, index_dtype=dt.int32, stride_lower_bound_incl=0, alias_groups=(),
            may_alias_internally=False, stride_constant=[None], shape_constant=[None],
            stride_divisible_by=[stride], shape_divisible_by=[shape],
            base_addr_divisible_by=address,
        )  # fmt: skip

    alike = _common_constraint([array(16, 4, 16), array(16, 4, 8)])
    assert list(alike.shape_divisible_by) == [16]
    assert list(alike.stride_divisible_by) == [4]
    assert list(alike.stride_constant) == [None]
    assert alike.base_addr_divisible_by == 8
    unlike = _common_constraint([array(16, 4, 16), array(8, 2, 16)])
    assert list(unlike.shape_divisible_by) == [1]
    assert list(unlike.stride_divisible_by) == [1]


# ------------------------------------------------------------------------------ undefined bytes


@ct.kernel
def words_of_halves(halves, words, out):
    ct.store(halves, (0,), ct.full((2,), 1, ct.int16))
    ct.store(halves, (2,), ct.full((1,), 1, ct.int16))
    ct.store(out, (0,), ct.load(words, (0,), (4,)))


@ct.kernel
def gathered_words_of_halves(halves, words, out):
    ct.store(halves, (0,), ct.full((2,), 1, ct.int16))
    ct.store(halves, (2,), ct.full((1,), 1, ct.int16))
    ct.store(out, (0,), ct.gather(words, (ct.arange(4, dtype=ct.int32),)))


@pytest.mark.parametrize("kernel", [words_of_halves, gathered_words_of_halves])
def test_a_word_is_undetermined_where_a_half_of_it_is(kernel: object) -> None:
    """The second word has one half, the others two and none."""
    base, out = torch.zeros(4, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    report = run(kernel, base.view(torch.int16), base, out, uninitialised=[base])
    [found] = [d for d in report.diagnostics if d.kind == "uninitialised-read"]
    assert "(3 elements)" in found.message
    assert out[0] == 1 + (1 << 16)


def test_names_of_elements_of_arrays_with_an_axis_of_one() -> None:
    x = array(torch.zeros(4, 1).T)
    assert [x.index_of(x.start + i) for i in range(4)] == [f"x[0, {i}]" for i in range(4)]
    y = array(torch.zeros(2, 1, 3))
    assert y.index_of(y.start + 5) == "x[1, 0, 2]"
    z = array(torch.zeros(3, 2))
    assert [z.index_of(z.start + i) for i in (0, 1, 5)] == ["x[0, 0]", "x[0, 1]", "x[2, 1]"]


@pytest.mark.parametrize(
    ("shape", "strides", "gappy"),
    [
        ((4, 8), (8, 1), False), ((8,), (1,), False), ((4, 4), (8, 1), True), ((4,), (2,), True),
        ((1,), (5,), False), ((2, 2), (1, 1), False), ((2, 2), (3, 3), True),
    ],
)  # fmt: skip
def test_gaps_are_places_between_elements(
    shape: tuple[int, ...], strides: tuple[int, ...], gappy: bool
) -> None:
    assert array(torch.zeros(64).as_strided(shape, strides)).gappy is gappy


# --------------------------------------------------------------------------------- made values


def test_constants_of_each_kind() -> None:
    assert full((2,), (True, 0), dt.bool_).tolist() == [True, False]
    assert full((2, 2), 300, dt.uint8).tolist() == [[44, 44], [44, 44]]
    assert full((2,), (2**64 - 1, 3), dt.uint64).tolist() == [-1, 3]
    assert full((1,), math.inf, dt.float8_e5m2).tolist() == [math.inf]
    assert to_scalar(5, dt.int32) == 5
    assert to_scalar(torch.tensor([True]), dt.bool_) is True
    assert to_scalar(torch.tensor([200]), dt.int8) == -56


@ct.kernel
def prods(x, y):
    ct.store(y, (0,), ct.prod(ct.load(x, (0, 0), (4, 2)), axis=0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.float16])
def test_products_of_an_axis(dtype: torch.dtype) -> None:
    x = torch.tensor([[1, 2], [3, -4], [5, 6], [2, 1]]).to(dtype)
    y = torch.zeros(2, dtype=dtype)
    run_clean(prods, x, y)
    assert y.tolist() == [30, -48]


@ct.kernel
def shifts(x, n, y, LEFT: ct.Constant[bool]):
    a, b = ct.load(x, (0,), (4,)), ct.load(n, (0,), (4,))
    ct.store(y, (0,), (a << b) if LEFT else (a >> b))


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int16, torch.uint8])
def test_shifts_within_the_width_are_defined_and_others_not(dtype: torch.dtype, left: bool) -> None:
    width = dtype.itemsize * 8
    x = torch.tensor([3, 1, 5, 100], dtype=dtype)
    counts = [0, 1, 2, width - 1]
    y = torch.zeros(4, dtype=dtype)
    run_clean(shifts, x, torch.tensor(counts, dtype=dtype), y, left)
    moved = [a << c if left else a >> c for a, c in zip(x.tolist(), counts, strict=True)]
    assert y.tolist() == [wrap(m, dtype) for m in moved]
    for wrong in (width, -1) if dtype.is_signed else (width,):
        n = torch.tensor([0, 1, wrong, 2], dtype=dtype)
        report = run(shifts, x, n, y, left)
        assert kinds(report) == ["shift-range"]
        assert y[:2].tolist() == [3, 2 if left else 0]


@ct.kernel
def early(x, y, n):
    if n > 0:
        ct.store(y, (0,), ct.load(x, (0,), (4,)) * 2.0)
        return
    ct.store(y, (0,), ct.load(x, (0,), (4,)) * 3.0)


@pytest.mark.parametrize(("n", "times"), [(1, 2), (0, 3)])
def test_a_block_that_returns_counts_what_it_did(n: int, times: int) -> None:
    x, y = torch.arange(4.0), torch.zeros(4)
    report = run(early, x, y, n)
    assert y.tolist() == [times * i for i in range(4)]
    assert sum(report.flops.values()) == 4


@ct.kernel
def asserts(x, KIND: Int):
    a = ct.load(x, (0,), (4,))
    if KIND == 0:
        ct.assert_(a > 1)  # noqa: PT009
    elif KIND == 1:
        ct.assert_((a > 1) & (a < 3))  # noqa: PT009
    elif KIND == 2:
        ct.assert_(~(a > 1), "told")  # noqa: PT009
    else:
        ct.assert_(a != 3, "told")  # noqa: PT009


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (0, "at element (0,), one of 2: 0 > 1 is false"), (1, "at element (0,), one of 3"),
        (2, "at element (2,), one of 2: told"),
        (3, "at element (3,), one of 1: 3 != 3 is false: told"),
    ],
)  # fmt: skip
def test_an_assertion_says_what_it_compares(kind: int, said: str) -> None:
    text = str(refusal(asserts, torch.arange(4, dtype=torch.int32), kind))
    assert text.endswith(said)
    assert "assertion failed in block (0, 0, 0)" in text


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values)


def floats(*values: float) -> torch.Tensor:
    return torch.tensor(values)


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        (1, 1, True), (1, 2, False), (True, True, True), ("a", "a", True),
        (ints(1, 2), ints(1, 2), True), (ints(1, 2), ints(1, 3), False),
        (floats(0.0), floats(-0.0), False), (floats(1.0), floats(2.0), False),
        (floats(1.0, math.nan), floats(1.0, math.nan), True),
        (floats(1.0, math.nan), floats(1.0, 2.0), False),
        (floats(1.0, 2.0), floats(1.0, math.nan), False),
        (floats(-1.0, math.nan), floats(-1.0, -math.nan), True),
        (torch.tensor(1), 1, False), (1, torch.tensor(1), False),
    ],
)  # fmt: skip
def test_what_a_turn_of_a_loop_leaves_as_it_was(old: object, new: object, same: bool) -> None:
    assert _same(old, new) is same


@ct.kernel
def scans(x, y, z):
    a = ct.load(x, (0, 0), (4, 4))
    ct.store(y, (0, 0), ct.cumsum(a, axis=0))
    ct.store(z, (0, 0), ct.cumprod(a, axis=1, reverse=True))


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.int32, torch.int8, torch.float16]
)
def test_scans_of_each_kind(dtype: torch.dtype) -> None:
    x = (torch.arange(16).view(4, 4) % 5 - 2).to(dtype)
    y, z = torch.zeros_like(x), torch.zeros_like(x)
    run_clean(scans, x, y, z)
    assert torch.equal(y, x.double().cumsum(0).to(dtype))
    assert torch.equal(z, x.double().flip(1).cumprod(1).flip(1).to(dtype))


@ct.kernel
def traffic(x, y, z):
    a = ct.load(x, (0,), (4,))  # load
    b = ct.gather(x, (ct.arange(4, dtype=ct.int32) * 2,))  # gather
    c = ct.load(x, (9,), (4,), padding_mode=ZERO)  # outside
    ct.store(y, (0,), a + b + c)  # store
    ct.scatter(z, (ct.arange(4, dtype=ct.int32) * 3,), a)  # scatter


def test_accesses_and_their_bytes_are_counted_at_their_lines() -> None:
    x, y, z = torch.arange(8.0), torch.zeros(4), torch.zeros(8)
    report = run(traffic, x, y, z, grid=(3,))
    found = {line: t for (_, line), t in report.bytes_by_line.items()}

    def told(mark: str) -> tuple[int, int, int, int]:
        t = found[line_of(traffic, mark)]
        return t.loads, t.bytes_loaded, t.stores, t.bytes_stored

    assert told("load") == told("gather") == (3, 48, 0, 0)
    assert told("outside")[:2] == (3, 0)
    assert told("store") == (0, 0, 3, 48)
    assert told("scatter") == (0, 0, 3, 36)  # One of four lies outside.


@ct.kernel
def extremes(x, low, high):
    tile = ct.load(x, (0, 0), (4, 2))
    ct.store(low, (0,), ct.min(tile, axis=0))
    ct.store(high, (0,), ct.max(tile, axis=0))


@pytest.mark.parametrize("dtype", [torch.uint64, torch.int64, torch.uint32, torch.uint8])
def test_the_least_and_the_greatest_of_an_axis(dtype: torch.dtype) -> None:
    top = torch.iinfo(dtype).max
    x = torch.tensor([[3, top], [top, 2], [top - 1, 1], [5, top - 2]], dtype=dtype)
    low, high = torch.zeros(2, dtype=dtype), torch.zeros(2, dtype=dtype)
    run_clean(extremes, x, low, high)
    assert (low.tolist(), high.tolist()) == ([3, 1], [top, top])


@ct.kernel
def beyond(x, y):
    at = ct.arange(8, dtype=ct.int32)
    ct.scatter(y, at, ct.gather(x, at, check_bounds=False))


@pytest.mark.parametrize("poison", [0x5DEECE66D5A5A5A5, -3, 0x0123456789ABCDEF, -(1 << 63)])
@pytest.mark.parametrize(
    "dtype",
    [
        torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32,
        torch.int64, torch.uint64,
    ],
)  # fmt: skip
def test_what_lies_outside_an_array_is_poison_as_wide_as_its_elements(
    dtype: torch.dtype, poison: int
) -> None:
    x, y = torch.arange(4).to(dtype), torch.zeros(8, dtype=dtype)
    assert "out-of-bounds" in kinds(run(beyond, x, y, int_poison=poison))
    wanted = poison % (1 << 8 * dtype.itemsize)
    if dtype.is_signed and wanted >> (8 * dtype.itemsize - 1):
        wanted -= 1 << 8 * dtype.itemsize
    assert y.tolist() == [0, 1, 2, 3, *[wanted] * 4]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.bool])
def test_what_lies_outside_an_array_of_no_integers_is_poison_too(dtype: torch.dtype) -> None:
    x, y = torch.zeros(4, dtype=dtype), torch.zeros(8, dtype=dtype)
    assert "out-of-bounds" in kinds(run(beyond, x, y, poison=7.0))
    assert y.tolist() == [0] * 4 + [1 if dtype is torch.bool else 7] * 4
