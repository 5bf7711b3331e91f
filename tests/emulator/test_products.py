"""Sums of tcgen05 products with what their accumulators held, exactly."""

from __future__ import annotations

import numpy as np
import pytest

from mla_var3.emulator.machine import Machine
from mla_var3.emulator.units.tcgen05.descriptors import Kind, Product
from mla_var3.emulator.units.tcgen05.products import _lanes_off, _sum, at_thread
from mla_var3.emulator.units.wgmma import multiplied
from tests.emulator.machines import machine
from tests.emulator.tcgen05 import instruction


def product(d: str) -> Product:
    kind, operand = ("i8", "s8") if d == "s32" else ("f16", "f16")
    return Product.of(instruction(128, 8, operand, operand, d), Kind(kind, False))


OUT = np.array([[3.0, -2.0, 0.5], [1.0, 4.0, -8.0]], np.float32)
OLD = np.array([[8.0, 4.0, -16.0], [-64.0, 0.0, 2.0]], np.float32)


@pytest.mark.parametrize("shift", [0, 1, 3, 15])
@pytest.mark.parametrize("keep", [False, True])
def test_accumulators_of_floats_are_scaled_first(keep: bool, shift: int) -> None:
    """``scale-input-d``: D = A * B + D * 2**-shift."""
    want = OUT + OLD / 2**shift if keep else OUT
    single = _sum(OUT, OLD.view(np.uint32), product("f32"), keep, shift)
    assert single.dtype == np.uint32
    assert single.view(np.float32).tolist() == want.tolist()
    # Halves lie in the low 16 bits of their words; what is above is not looked at.
    old = OLD.astype(np.float16).view(np.uint16).astype(np.uint32) | np.uint32(0xABCD0000)
    half = _sum(OUT, old, product("f16"), keep, shift)
    assert half.tolist() == want.astype(np.float16).view(np.uint16).astype(np.uint32).tolist()


def test_accumulators_of_integers_wrap() -> None:
    old = np.array([5, -7, 2**31 - 1], np.int32)
    out = np.array([-9.0, 3.0, 2.0])
    kept = _sum(out, old.view(np.uint32), product("s32"), True, 0)
    assert kept.view(np.int32).tolist() == [-4, -4, -(2**31) + 1]
    assert _sum(out, old.view(np.uint32), product("s32"), False, 0).view(np.int32).tolist() == [
        -9,
        3,
        2,
    ]


def test_lanes_of_a_mask_of_four_words() -> None:
    words = (1, 0x80000000, 0, 0x00010002)
    off = _lanes_off(words)
    assert off.tolist() == [bool(words[i // 32] >> i % 32 & 1) for i in range(128)]
    assert np.flatnonzero(off).tolist() == [0, 63, 97, 112]


def test_a_value_of_a_thread_or_of_all() -> None:
    assert [at_thread(np.array([4, 9]), i) for i in (0, 1)] == [4, 9]
    assert [at_thread(np.uint32(7), i) for i in (0, 5)] == [7, 7]


@pytest.mark.parametrize("k", [1, 7, 8, 9, 24, 65])
def test_a_product_in_steps_has_every_term_once(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mla_var3.emulator.units.wgmma.BLAS_ALONE", 1)
    x = np.arange(1, 3 * k + 1, dtype=np.float64).reshape(3, k)
    y = np.arange(1, 2 * k + 1, dtype=np.float64).reshape(k, 2)
    assert multiplied(x, y).tolist() == [
        [sum(x[i, j] * y[j, c] for j in range(k)) for c in range(2)] for i in range(3)
    ]


@pytest.mark.parametrize(
    ("ctas", "cta", "pair"), [(4, 0, [0, 1]), (4, 1, [0, 1]), (4, 2, [2, 3]), (4, 3, [2, 3])]
)
def test_who_works_on_what_a_thread_issues(ctas: int, cta: int, pair: list[int]) -> None:
    made: Machine = machine((32, 1, 1), (ctas, 1, 1))
    unit = made.units["tcgen05"]
    assert unit.ctas(False, cta, 0) == [cta]
    assert unit.ctas(True, cta, 0) == pair
