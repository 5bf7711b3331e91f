# ruff: noqa: E501  # A PTX statement stays on its line.
"""Packed conversions: every code of the small formats and of halves, each half by itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.emulator.snippets import evaluate

#: All halves in order, and in another one.
HALVES = np.arange(1 << 16, dtype=np.uint32)
OTHERS = np.random.default_rng(8).permutation(HALVES)
SMALL = {"e4m3": (torch.float8_e4m3fn, 448.0), "e5m2": (torch.float8_e5m2, 57344.0)}


def _each(body: str, given: np.ndarray, out: type) -> np.ndarray:
    """What a conversion gives, 1,024 threads at a time."""
    return np.concatenate([evaluate(body, [part], out) for part in given.reshape(-1, 1024)])


def _encoded(halves: np.ndarray, kind: str, relu: bool) -> np.ndarray:
    """Codes of the nearest numbers, as torch has them, after clamping; all NaN are one."""
    to, most = SMALL[kind]
    x = torch.from_numpy(halves.astype(np.uint16).view(np.float16).astype(np.float32))
    if relu:
        x = torch.where(x > 0, x, torch.where(x.isnan(), x, 0.0))
    codes = x.clamp(-most, most).to(to).view(torch.uint8).numpy()
    return np.where(np.isnan(x.numpy()), 0x7F, codes)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("kind", sorted(SMALL))
def test_every_pair_of_halves_becomes_a_pair_of_codes(kind: str, relu: bool) -> None:
    """The low half becomes the low byte, the high one the high byte."""
    op = f"cvt.rn.satfinite{'.relu' * relu}.{kind}x2.f16x2"
    both = _each(f"{op} %o, %i0;", HALVES | OTHERS << np.uint32(16), np.uint16)
    assert (both & 255 == _encoded(HALVES, kind, relu)).all()
    assert (both >> 8 == _encoded(OTHERS, kind, relu)).all()


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("kind", sorted(SMALL))
def test_every_pair_of_codes_becomes_a_pair_of_halves(kind: str, relu: bool) -> None:
    op = f"cvt.rn{'.relu' * relu}.f16x2.{kind}x2"
    both = _each(f"{op} %o, %i0;", HALVES.astype(np.uint16), np.uint32)
    for shift, codes in ((0, HALVES & 255), (16, HALVES >> 8)):
        got = (both >> np.uint32(shift)).astype(np.uint16).view(np.float16)
        raw = torch.from_numpy(codes.astype(np.uint8)).view(SMALL[kind][0])
        wanted = raw.to(torch.float16).numpy()
        if relu:
            wanted = np.where((wanted > 0) | np.isnan(wanted), wanted, np.float16(0))
        assert np.array_equal(got, wanted, equal_nan=True)
        numbers = ~np.isnan(wanted)
        assert (np.signbit(got) == np.signbit(wanted))[numbers].all()


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["s8", "u8"]),
    st.lists(st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(-300, 300), min_size=8, max_size=8),
)  # fmt: skip
def test_packed_integers_are_clamped_and_lie_side_by_side(kind: str, numbers: list[int]) -> None:
    low, high = (-128, 127) if kind == "s8" else (0, 255)
    a, b = (np.array(numbers[i:] + numbers[:i], np.int64).astype(np.uint32) for i in (0, 3))
    c = np.arange(8, dtype=np.uint32) * 0x01234567
    out = evaluate(f"cvt.pack.sat.{kind}.s32.b32 %o, %i0, %i1, %i2;", [a, b, c], np.uint32)
    first, second = (x.view(np.int32).astype(np.int64).clip(low, high) & 255 for x in (a, b))
    wanted = first << 8 | second | c.astype(np.int64) << 16
    assert (out == (wanted & 0xFFFFFFFF)).all()
