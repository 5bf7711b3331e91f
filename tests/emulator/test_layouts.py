"""Operands of matrix units: elements and their bytes, rows as slices, scales far from one."""

from __future__ import annotations

import numpy as np
import pytest

from mla_var3.emulator import formats
from mla_var3.emulator.units import layouts
from mla_var3.emulator.units.layouts import Descriptor, Wgmma


@pytest.mark.parametrize(
    ("kind", "size"), [("f16", 2), ("bf16", 2), ("tf32", 4), ("f64", 8), ("e4m3", 1), ("s8", 1)]
)
def test_bytes_of_an_element(kind: str, size: int) -> None:
    assert layouts.element_bytes(kind) == size


def test_codes_are_values_of_their_kind() -> None:
    half = np.array([0x3C00, 0xC100], np.uint16)
    assert layouts.values(half, "f16").tolist() == [1.0, -2.5]
    assert layouts.values(np.array([0x3F80, 0xC020], np.uint16), "bf16").tolist() == [1.0, -2.5]
    word = np.array([0x3F803FFF, 0xC0200000], np.uint32)
    assert layouts.values(word, "tf32").tolist() == [
        float(np.array(0x3F802000, np.uint32).view(np.float32)), -2.5,
    ]  # fmt: skip
    byte = np.array([0, 1, 127, 128, 255], np.uint8)
    assert layouts.values(byte, "u8").tolist() == [0, 1, 127, 128, 255]
    assert layouts.values(byte, "s8").tolist() == [0, 1, 127, -128, -1]
    for kind in ("e4m3", "e5m2", "e2m1"):
        got, want = layouts.values(byte, kind), formats.decode(byte, kind)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("factor", "wide"),
    [
        (1.0, False),
        (2.0**40, False),
        (2.0**-40, False),
        (2.0**41, True),
        (2.0**-41, True),
        (0.0, True),
    ],
)
def test_operands_times_far_factors_are_doubles(factor: float, wide: bool) -> None:
    x = np.array([1.5, -3.0], np.float32)
    for factors in (np.array([factor, 1.0]), np.array([1.0, factor])):
        got = layouts.scaled(x, factors.astype(np.float32))
        assert got.dtype == (np.float64 if wide else np.float32)
        assert got.tolist() == (x.astype(float) * factors).tolist()


def wgmma(rows: list[int], a_rows: list[int] | None = None) -> Wgmma:
    held = None if a_rows is None else np.array(a_rows)
    return Wgmma(8, 16, "f32", "f16", "f16", np.array(rows), held, False, False, False)


def test_rows_of_an_accumulator_are_a_slice_where_they_follow_each_other() -> None:
    assert wgmma([4, 5, 6, 7]).span == slice(4, 8)
    assert wgmma([4]).span == slice(4, 5)
    assert wgmma([4, 6, 8]).span.tolist() == [4, 6, 8]
    assert wgmma([5, 4]).span.tolist() == [5, 4]
    assert wgmma([4, 6]).outputs == {4, 6}
    assert wgmma([4]).inputs == frozenset()
    assert wgmma([4], [1, 3]).inputs == {1, 3}


def test_two_codes_are_a_word() -> None:
    codes = np.array([[[1, 2], [3, 0xFFFF]]])
    assert layouts.half_pairs(codes).tolist() == [[0x20001, 0xFFFF0003]]


@pytest.mark.parametrize("swizzle", range(4))
@pytest.mark.parametrize("size", [1, 2, 4])
def test_pieces_of_a_tile_lie_from_its_start_on_as_its_swizzle_flips_them(
    swizzle: int, size: int
) -> None:
    """The bits that are flipped are those of the address, not of the place in the tile."""
    for start in (1024, 1024 + 32, 2048 + 128):
        d = Descriptor(start, 4096, 1 << 13, 0, swizzle)
        found = d.chunks(16, 32 // size, size, False)
        assert found.shape == (16, 2)
        for row, piece in np.ndindex(found.shape):
            at = start + row // 8 * (1 << 13) + row % 8 * (16 << swizzle)
            at += piece * 16 if swizzle else piece * 4096
            for bit in range(swizzle):
                at ^= (at >> (7 + bit) & 1) << (4 + bit)
            assert found[row, piece] == at
