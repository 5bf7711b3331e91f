"""Descriptors of tcgen05 and wgmma, bit by bit, against the tables of the PTX ISA."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.emulator.units.layouts import Descriptor
from mla_var3.emulator.units.tcgen05.descriptors import (
    Kind,
    Matrix,
    NotEmulated,
    Product,
    lanes_of,
)

#: Operand formats by kind and code ("tcgen05-instruction-descriptor"), and elements along k.
FORMATS = {
    "f16": ({0: "f16", 1: "bf16"}, 16),
    "tf32": ({2: "tf32"}, 8),
    "i8": ({0: "u8", 1: "s8"}, 32),
    "f8f6f4": ({0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}, 32),
    "mxf8f6f4": ({0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}, 32),
    "mxf4": ({1: "e2m1"}, 64),
    "mxf4nvf4": ({1: "e2m1"}, 64),
}
ROWS = {False: (64, 128), True: (128, 256)}


@given(st.data())
def test_each_field_of_an_instruction_descriptor(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(FORMATS)))
    formats, depth = FORMATS[name]
    pair, bit = data.draw(st.booleans()), st.integers(0, 1)
    kind = Kind(name, pair, 32 if name.startswith("mx") else 0)
    a, b = (data.draw(st.sampled_from(sorted(formats))) for _ in range(2))
    m, n = data.draw(st.sampled_from(ROWS[pair])), 8 * data.draw(st.integers(1, 32))
    sums, high = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))
    saturates, minus_a, minus_b, a_major, b_major, scale = (data.draw(bit) for _ in range(6))
    word = saturates << 3 | sums << 4 | a << 7 | b << 10 | minus_a << 13 | minus_b << 14
    word |= a_major << 15 | b_major << 16 | n // 8 << 17 | scale << 23 | m // 16 << 24 | high << 29
    read = Product.of(word, kind)
    assert (read.m, read.n, read.k, read.packed) == (m, n, depth, depth == 64)
    assert (read.a, read.b) == (formats[a], formats[b])
    accumulators = {0: "f16", 1: "f32", 2: "s32", 3: "f32"}
    assert read.d == ("f32" if kind.block else accumulators[sums])
    assert (read.a_transposed, read.b_transposed) == (bool(a_major), bool(b_major))
    assert read.negative is (minus_a != minus_b)
    assert read.saturates is (name == "i8" and bool(saturates))
    assert read.scale == ("ue8m0" if scale else "ue4m3")
    assert (read.a_scale, read.b_scale) == (high, sums)


@pytest.mark.parametrize("pair", [False, True])
def test_sizes_that_there_are(pair: bool) -> None:
    for m, n in itertools.product(range(0, 512, 16), (0, 8, 16, 248, 256, 264, 504)):
        word, kind = m // 16 << 24 | n // 8 << 17, Kind("f16", pair)
        if m in ROWS[pair] and 8 <= n <= 256:
            assert (Product.of(word, kind).m, Product.of(word, kind).n) == (m, n)
        else:
            with pytest.raises(NotEmulated, match=f"mma of {m} x {n} by {1 + pair} CTAs"):
                Product.of(word, kind)


@pytest.mark.parametrize("name", FORMATS)
def test_formats_that_there_are(name: str) -> None:
    formats, _ = FORMATS[name]
    for code in range(8):
        for at in (7, 10):
            others = min(formats) << 17 - at
            word = 8 << 24 | 1 << 17 | code << at | others
            if code in formats:
                read = Product.of(word, Kind(name, False))
                assert (read.a if at == 7 else read.b) == formats[code]
                assert (read.b if at == 7 else read.a) == formats[min(formats)]
            else:
                with pytest.raises(NotEmulated, match=f"kind::{name} has no operand format {code}"):
                    Product.of(word, Kind(name, False))
    with pytest.raises(NotEmulated, match="sparse"):
        Product.of(8 << 24 | 1 << 17 | min(formats) * 0x480 | 4, Kind(name, False))


FIELD = st.integers(0, 0x3FFF)


@given(FIELD, FIELD, FIELD, st.sampled_from([(0, 0), (2, 3), (4, 2), (6, 1)]), st.integers(0, 7))
def test_each_field_of_a_matrix_descriptor(
    start: int, leading: int, stride: int, layout: tuple[int, int], base: int
) -> None:
    code, swizzle = layout
    # Bits 46 to 48 hold a constant, 49 to 51 the base offset.
    word = start | leading << 16 | stride << 32 | 1 << 46 | base << 49 | code << 61
    assert Matrix.of(word) == Matrix(16 * start, 16 * leading, 16 * stride, swizzle)


@pytest.mark.parametrize("code", range(8))
def test_layouts_that_there_are(code: int) -> None:
    for absolute in (0, 1):
        word = code << 61 | absolute << 52 | 1 << 46
        if code % 2 or absolute:
            with pytest.raises(NotEmulated, match=f"{word:#x} of layout {code}"):
                Matrix.of(word)
        else:
            assert Matrix.of(word | 1 << 53).start == 0


@pytest.mark.parametrize("swizzle", range(4))
def test_a_tile_begins_where_its_pattern_does_or_a_step_along_k_further(swizzle: int) -> None:
    period, row = {0: (16, 16), 1: (256, 32), 2: (512, 64), 3: (1024, 128)}[swizzle]
    for start in range(0x400, 0x400 + 3072, 16):
        inside = start % period < row
        assert Matrix(start, 16, 16, swizzle).is_aligned() is inside


@pytest.mark.parametrize(
    ("rows", "pair", "base"),
    list(itertools.product((32, 64, 128), (False, True), (0, 8, 16, 32, 64))),
)
def test_lanes_that_hold_the_rows_of_a_matrix(rows: int, pair: bool, base: int) -> None:
    lanes = list(range(128))
    whole = base == 0 and (rows == 128 or (rows == 64 and pair))
    if whole:
        at, blocks = lanes_of(rows, pair, base)
        assert (lanes[at], blocks) == (lanes[:rows], slice(0, 8))
    elif rows == 64 and not pair and base in (0, 16):
        at, blocks = lanes_of(rows, pair, base)
        assert at.tolist() == [32 * (r // 16) + r % 16 + base for r in range(64)]
        # Each quarter's half, in blocks of 16 lanes.
        assert list(range(8))[blocks] == sorted({lane // 16 for lane in at.tolist()})
    else:
        with pytest.raises(
            NotEmulated, match=f"{rows} rows in tensor memory cannot begin at lane {base}"
        ):
            lanes_of(rows, pair, base)


@given(FIELD, FIELD, FIELD, st.integers(0, 7), st.sampled_from([(0, 0), (1, 3), (2, 2), (3, 1)]))
def test_each_field_of_a_descriptor_of_wgmma(
    start: int, leading: int, stride: int, offset: int, layout: tuple[int, int]
) -> None:
    code, swizzle = layout
    word = start | leading << 16 | stride << 32 | offset << 49 | code << 62
    read = Descriptor.of(word)
    assert read == Descriptor(16 * start, 16 * leading, 16 * stride, offset, swizzle)
    assert read.word() == word
    # What lies between the fields is not looked at.
    assert Descriptor.of(word | 3 << 14 | 3 << 30 | 7 << 46 | 1 << 52) == read


@pytest.mark.parametrize("swizzle", range(4))
def test_both_descriptors_name_the_same_pieces(swizzle: int) -> None:
    for transposed, size in itertools.product((False, True), (1, 2)):
        shape = (64, 32 // size, size, transposed)
        one = Descriptor(0x800, 1 << 14, 1024, 0, swizzle).chunks(*shape)
        other = Matrix(0x800, 1 << 14, 1024, swizzle).chunks(*shape)
        assert np.array_equal(one, other)
        assert len(np.unique(one)) == one.size
