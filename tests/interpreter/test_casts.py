"""Every conversion between two dtypes, and copies that must keep every bit."""

from __future__ import annotations

import itertools
import math

import cuda.tile as ct
import numpy as np
import pytest
import torch

from tests.interpreter.helpers import INTEGERS, limits, round_to, run_clean, wrap

Int = ct.Constant[int]

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
TILE = 16


@ct.kernel
def convert(x, y, TILE: Int):
    ct.store(y, (0,), ct.load(x, (0,), (TILE,)).astype(y.dtype))


@ct.kernel
def convert_scalar(x, y):
    for i in range(x.shape[0]):
        value = ct.load(x, (i,), (1,)).item()
        ct.store(y, (i,), ct.full((1,), value, y.dtype))


@ct.kernel
def compute_after(x, y, TILE: Int):
    """The held value must be right, not its stored bits alone."""
    tile = ct.load(x, (0,), (TILE,)).astype(y.dtype)
    ct.store(y, (0,), ct.where(tile < 10, tile, tile // 3))


def edges(dtype: torch.dtype) -> list[int]:
    low, high = limits(dtype)
    inner = [0, 1, 2, 9, 10, 100, 127, 128, 200, 255, 256, 32768, 65535, 65536, 2**31, 2**32 - 1]
    values = [low, low + 1, *(v for v in inner if v <= high), high - 1, high]
    values += [-1] if low else [high // 2]
    return (values * TILE)[:TILE] if len(values) < TILE else values[:8] + values[-8:]


def tensor_of(values: list[int], dtype: torch.dtype) -> torch.Tensor:
    name = str(dtype).removeprefix("torch.")
    return torch.from_numpy(np.array(values, dtype=name))


def read(tensor: torch.Tensor) -> list[int]:
    return [int(v) for v in tensor.numpy()]


PAIRS = list(itertools.product(INTEGERS, INTEGERS))


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_every_pair_of_integers(source: torch.dtype, target: torch.dtype) -> None:
    values = edges(source)
    x, y = tensor_of(values, source), tensor_of([0] * TILE, target)
    run_clean(convert, x, y, TILE)
    wanted = [wrap(v, target) for v in values]
    assert read(y) == wanted
    run_clean(compute_after, x, y, TILE)
    assert read(y) == [v if v < 10 else v // 3 for v in wanted]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_every_pair_of_integers_as_scalars(source: torch.dtype, target: torch.dtype) -> None:
    values = edges(source)
    y = tensor_of([0] * TILE, target)
    run_clean(convert_scalar, tensor_of(values, source), y)
    assert read(y) == [wrap(v, target) for v in values]


@pytest.mark.parametrize(("source", "target"), list(itertools.product(INTEGERS, FLOATS)))
def test_every_integer_to_every_float(source: torch.dtype, target: torch.dtype) -> None:
    values = edges(source)
    y = torch.zeros(TILE, dtype=target)
    run_clean(convert, tensor_of(values, source), y, TILE)
    if target is torch.float64:
        assert y.tolist() == [float(v) for v in values]
    else:
        assert y.double().tolist() == round_to(values, target)


@pytest.mark.parametrize(("source", "target"), list(itertools.product(FLOATS, INTEGERS)))
def test_every_float_to_every_integer(source: torch.dtype, target: torch.dtype) -> None:
    """Truncated, saturated, NaN to 0: PTX cvt.rzi, which the documentation refers to."""
    low, high = limits(target)
    values = [0.0, 0.5, -0.5, 1.5, -1.5, 3.0, 200.0, -200.0, 65280.0, 60000.0, -60000.0]
    values += [math.inf, -math.inf, math.nan, 2.0**15, -(2.0**15)]
    x, y = torch.tensor(values, dtype=source), tensor_of([0] * TILE, target)
    run_clean(convert, x, y, TILE)
    held = x.double().tolist()
    clipped = [0 if math.isnan(v) else min(max(v, low), high) for v in held]
    assert read(y) == [int(v) for v in clipped]


@pytest.mark.parametrize(("source", "target"), list(itertools.product(FLOATS, FLOATS)))
def test_every_pair_of_floats(source: torch.dtype, target: torch.dtype) -> None:
    values = [0.0, -0.0, 1 / 3, -2 / 3, 1.00048828125, 2049.0, 65504.0, 65520.0]
    values += [1e30, 1e-8, 6e-8, -1e-40, math.inf, -math.inf, 3.0e38, 1e300]
    x, y = torch.tensor(values, dtype=source), torch.zeros(TILE, dtype=target)
    run_clean(convert, x, y, TILE)
    exact = x.double().tolist()
    wanted = exact if target is torch.float64 else round_to(exact, target)
    got = y.double().tolist()
    assert [(v, math.copysign(1, v)) for v in got] == [(v, math.copysign(1, v)) for v in wanted]


EIGHT_BITS = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu)


@ct.kernel
def copy(x, y, TILE: Int):
    ct.store(y, (0,), ct.load(x, (0,), (TILE,)))


@ct.kernel
def shuffle(x, y, TILE: Int):
    at = ct.arange(TILE, dtype=ct.int32)
    tile = ct.gather(x, TILE - 1 - at).reshape((2, TILE // 2))
    ct.scatter(y, TILE - 1 - at, ct.where(at < TILE, tile.reshape((TILE,)), tile.reshape((TILE,))))


@pytest.mark.parametrize("dtype", EIGHT_BITS)
@pytest.mark.parametrize("kernel", [copy, shuffle])
def test_a_copy_keeps_every_code(kernel: ct.kernel, dtype: torch.dtype) -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    y = torch.zeros_like(codes)
    run_clean(kernel, codes.view(dtype), y.view(dtype), 256)
    assert y.tolist() == codes.tolist()


def test_conversion_to_eight_bits_saturates() -> None:
    x = torch.tensor([math.inf, -math.inf, 1e9, -1e9, math.nan, 1.0, 448.0, 57344.0])
    for dtype, top in ((torch.float8_e4m3fn, 448.0), (torch.float8_e5m2, 57344.0)):
        y = torch.zeros(8, dtype=dtype)
        run_clean(convert, x, y, 8)
        got = y.float().tolist()
        assert got[:4] == [top, -top, top, -top]
        assert math.isnan(got[4])
        assert got[5:] == [1.0, 448.0, min(57344.0, top)]
