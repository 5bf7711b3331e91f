"""Tensor maps: the 128 bytes, boxes at every edge, single fields replaced."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.emulator.units.layouts import Descriptor
from mla_var3.emulator.units.tensormap import TensorMap, replaced, tile_chunks, tiled
from mla_var3.errors import EmulatorError


def example(rank: int, swizzle: int = 0) -> TensorMap:
    dims = tuple(range(64, 64 + rank))
    strides = (2, *(256 * (i + 1) for i in range(rank - 1)))
    return tiled(1 << 40, dims, strides, (8,) * rank, "f16", swizzle)


@given(st.integers(1, 5), st.integers(0, 3))
def test_bytes_there_and_back(rank: int, swizzle: int) -> None:
    t = example(rank, swizzle)
    assert TensorMap.decode(t.encode()) == t


@given(st.integers(2, 5), st.integers(1, 1 << 20), st.data())
def test_one_field_replaced(rank: int, value: int, data: st.DataObject) -> None:
    t = example(rank)
    i = data.draw(st.integers(0, rank - 2))
    new = TensorMap.decode(replaced(t.encode(), "global_stride", i, 16 * value))
    assert new.strides == (*t.strides[: i + 1], 16 * value, *t.strides[i + 2 :])
    new = TensorMap.decode(replaced(t.encode(), "global_dim", i, value))
    assert new.dims == (*t.dims[:i], value, *t.dims[i + 1 :])
    assert (
        TensorMap.decode(replaced(t.encode(), "global_address", 0, 16 * value)).base == 16 * value
    )


def test_a_dimension_beyond_the_rank_is_not_looked_at() -> None:
    t = example(2)
    assert TensorMap.decode(replaced(t.encode(), "global_dim", 4, 7)) == t


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(EmulatorError, match="interleave_layout is not emulated"):
        replaced(example(2).encode(), "interleave_layout", 0, 1)


@given(st.integers(-12, 80), st.integers(-12, 80))
def test_boxes_are_cut_at_the_edges(x: int, y: int) -> None:
    t = example(2)
    inside = [
        (i, j)
        for i in range(8)
        for j in range(8)
        if 0 <= x + i < t.dims[0] and 0 <= y + j < t.dims[1]
    ]
    (a, b), (c, d) = t.clipped((x, y))
    assert [(i, j) for i in range(a, b) for j in range(c, d)] == inside


@pytest.mark.parametrize("swizzle", range(4))
def test_a_swizzle_only_moves_pieces(swizzle: int) -> None:
    chunks = tile_chunks(4096, 8192, swizzle)
    assert (np.sort(chunks) == np.arange(256, 256 + 512)).all()
    # Rows of 128 bytes: row r of the widest swizzle has its pieces flipped by r.
    if swizzle == 3:
        assert (chunks[8:16] == 256 + 8 + (np.arange(8) ^ 1)).all()


@given(st.integers(0, 0x3FFF), st.integers(0, 0x3FFF), st.integers(0, 0x3FFF), st.integers(0, 3))
def test_matrix_descriptors(start: int, leading: int, stride: int, swizzle: int) -> None:
    d = Descriptor(16 * start, 16 * leading, 16 * stride, 0, swizzle)
    assert Descriptor.of(d.word()) == d
