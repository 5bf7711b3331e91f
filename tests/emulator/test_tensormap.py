"""Tensor maps: the 128 bytes, boxes at every edge, single fields replaced."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.emulator.units.layouts import Descriptor
from mla_var3.emulator.units.tensormap import TensorMap, encoded, replaced, tile_chunks, tiled
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


@given(
    st.integers(0, 0x3FFF),
    st.integers(0, 0x3FFF),
    st.integers(0, 0x3FFF),
    st.integers(0, 7),
    st.integers(0, 3),
)
def test_matrix_descriptors(
    start: int, leading: int, stride: int, offset: int, swizzle: int
) -> None:
    d = Descriptor(16 * start, 16 * leading, 16 * stride, offset, swizzle)
    assert Descriptor.of(d.word()) == d


@given(st.integers(1, 5), st.integers(0, 3), st.sampled_from([(0, 0), (6, 6), (7, 7), (9, 10)]))
def test_the_drivers_arguments_become_the_map(rank: int, swizzle: int, kinds) -> None:
    driver, code = kinds
    dims, steps = tuple(range(64, 64 + rank)), (1,) * rank
    strides = tuple(256 * (i + 1) for i in range(rank - 1))
    raw = encoded(driver, 1 << 40, dims, strides, (8,) * rank, steps, (0, swizzle, 1))
    t = TensorMap.decode(raw)
    assert (t.base, t.kind, t.dims, t.strides[1:]) == (1 << 40, code, dims, strides)
    assert (t.box, t.swizzle, t.interleave, t.nan_fill) == ((8,) * rank, swizzle, 0, True)


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"kind": 13}, "data type 13"), ({"base": 8}, "refuses base 0x8"), ({"box": (257, 1)}, "257"),
     ({"strides": (24,)}, "strides"), ({"modes": (1, 0, 0)}, "interleave 1")],
)  # fmt: skip
def test_arguments_that_the_driver_refuses(changed, said: str) -> None:
    right = {"kind": 6, "base": 0, "dims": (64, 64), "strides": (128,), "box": (64, 8),
             "steps": (1, 1), "modes": (0, 3, 0)}  # fmt: skip
    with pytest.raises(EmulatorError, match=said):
        encoded(**(right | changed))


def test_four_bit_elements_are_counted_in_bytes() -> None:
    raw = bytearray(example(2).encode())
    flags = int.from_bytes(raw[8:12], "little") & ~(15 << 7) | 11 << 7
    raw[8:12] = flags.to_bytes(4, "little")
    t = TensorMap.decode(bytes(raw))
    assert (t.element, t.dims, t.box) == (1, (32, 65), (4, 8))
    assert t.counted((6, 7)) == (3, 7)
    assert t.encode() == bytes(raw)


def test_boxes_of_four_bit_elements_are_counted_in_bytes() -> None:
    t = example(2)
    assert t.counted((6, 3)) == (6, 3)
    assert replace(t, halves=True).counted((6, 3)) == (3, 3)
    assert replace(t, halves=True).counted((-2, 5)) == (-1, 5)
