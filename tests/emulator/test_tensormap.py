"""Tensor maps: the 128 bytes, boxes at every edge, single fields replaced."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.emulator.units import tensormap
from mla_var3.emulator.units.layouts import Descriptor, pieces
from mla_var3.emulator.units.tensormap import (
    CODES,
    ELEMENT,
    TensorMap,
    encoded,
    replaced,
    tile_chunks,
    tiled,
)
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
    with pytest.raises(EmulatorError, match="swizzle_atomicity by 1 is not emulated"):
        replaced(example(2).encode(), "swizzle_atomicity", 0, 1)
    with pytest.raises(EmulatorError, match="elemtype by 11 is not emulated"):
        replaced(example(2).encode(), "elemtype", 0, 11)


def test_what_says_how_elements_are_read_is_replaced_too() -> None:
    raw = example(2).encode()
    assert TensorMap.decode(replaced(raw, "elemtype", 0, 7)).kind == 7
    assert TensorMap.decode(replaced(raw, "interleave_layout", 0, 1)).interleave == 1
    assert TensorMap.decode(replaced(raw, "fill_mode", 0, 1)).nan_fill
    for field in ("elemtype", "interleave_layout", "fill_mode"):
        kept = TensorMap.decode(replaced(raw, field, 0, 6 if field == "elemtype" else 0))
        assert (kept.dims, kept.box, kept.strides[1:]) == (
            example(2).dims,
            example(2).box,
            example(2).strides[1:],
        )


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
    [({"kind": 14}, "data type 14"), ({"base": 8}, "refuses base 0x8"), ({"box": (257, 1)}, "257"),
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


@st.composite
def maps(draw: st.DrawFn) -> TensorMap:
    """Any map that the 128 bytes can hold."""
    rank, halves = draw(st.integers(1, 5)), draw(st.booleans())

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    kind = CODES["u8"] if halves else draw(st.sampled_from(sorted(ELEMENT)))
    dims, box = each(1, 1 << 32), each(1, 256)
    if halves:
        dims, box = (1 + dims[0] // 2 % (1 << 31), *dims[1:]), (1 + box[0] // 2 % 128, *box[1:])
    strides = (ELEMENT[kind], *(16 * s for s in each(1, (1 << 36) - 1)[1:]))
    modes = draw(st.integers(0, 3)), draw(st.integers(0, 3)), draw(st.booleans())
    base, steps = draw(st.integers(0, (1 << 64) - 1)), each(1, 8)
    return TensorMap(base, kind, dims, strides, box, steps, *modes, halves)


@given(maps())
def test_all_bits_there_and_back(t: TensorMap) -> None:
    assert TensorMap.decode(t.encode()) == t
    assert t.encode()[64:] == bytes(64), "no field lies there"


@given(st.data())
def test_a_window_has_the_elements_inside(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 3))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(data.draw(st.integers(low, high)) for _ in range(rank))

    dims, box, steps, at = each(1, 9), each(1, 6), each(1, 3), each(-4, 11)
    strides = (4, 64, 1024)[:rank]
    t = replace(tiled(1 << 20, dims, strides, box, "f32"), steps=steps)
    clip = t.clipped(at)
    wanted = set()
    for i in np.ndindex(*(-(-b // s) for b, s in zip(box, steps, strict=True))):
        place = [c + k * s for c, k, s in zip(at, i, steps, strict=True)]
        if all(0 <= x < d for x, d in zip(place, dims, strict=True)):
            wanted.add((1 << 20) + sum(x * s for x, s in zip(place, strides, strict=True)))
    if wanted:
        start, span, shape, apart = t.window(at, clip)
        got = {start + int(np.dot(i, apart)) for i in np.ndindex(*shape)}
        assert got == wanted
        assert (start, start + span) == (min(wanted), max(wanted) + 4)
    else:
        assert any(first == last for first, last in clip)


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("swizzle", range(4))
@pytest.mark.parametrize("transposed", [False, True])
def test_pieces_of_an_operand_lie_as_the_canonical_layouts_say(
    size: int, swizzle: int, transposed: bool
) -> None:
    """PTX ISA, "canonical layouts": units of 8 rows by 16 bytes, or by the swizzle."""
    leading, stride, wide = 4096, 1 << 14, 16 << swizzle
    rows, depth = (64, 32 // size) if not transposed else (128, 16)
    found = pieces(leading, stride, swizzle, rows, depth, size, transposed)
    if not transposed:
        assert found.shape == (rows, 2)
        for i, piece in np.ndindex(found.shape):
            along = piece * 16 if swizzle else piece * leading
            assert found[i, piece] == i // 8 * stride + i % 8 * wide + along
        return
    each = 16 // size
    assert found.shape == (depth, rows // each)
    for k, piece in np.ndindex(found.shape):
        if swizzle:
            unit, inner = divmod(piece * 16, wide)
            assert found[k, piece] == unit * leading + inner + k % 8 * wide + k // 8 * stride
        else:
            assert found[k, piece] == piece * stride + k % 8 * 16 + k // 8 * leading


def test_the_driver_packs_elements_of_four_bits():
    raw = encoded(13, 4096, (64, 8), (32,), (64, 4), (1, 1), (0, 2, 0))
    found = TensorMap.decode(raw)
    assert (found.dims, found.box, found.strides) == ((32, 8), (32, 4), (1, 32))
    assert found.halves
    assert found.counted((32, 2)) == (16, 2)


def test_types_of_the_driver_are_those_of_the_hardware() -> None:
    from mla_var3.emulator.units.tensormap import DRIVER_CODES, NAMES

    # CUtensorMapDataType in the order of the driver's header.
    order = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32")
    assert [NAMES[DRIVER_CODES[code]] for code in range(11)] == list(order)
    assert len(set(DRIVER_CODES.values())) == 11


def test_elements_are_as_long_as_their_types_say() -> None:
    for code, name in tensormap.NAMES.items():
        bits = int(name.strip("bsuf"))
        assert 8 * replace(example(2), kind=code).element == bits, name
        assert str(replace(example(2), kind=code)).startswith(f"{name} tensor map")
        made = tiled(1 << 40, (64, 64), (bits // 8, 1024), (8, 8), name)
        assert made.kind in (code, 7), name  # Two codes are of float32.
        assert 8 * TensorMap.decode(made.encode()).strides[0] == bits
    assert set(tensormap.ELEMENT) == set(tensormap.NAMES)


#: Every field that can be replaced, where it has several also those beyond the map's rank.
FIELDS = [
    ("global_address", 0, 64), *(("global_dim", i, 32) for i in range(5)),
    *(("box_dim", i, 8) for i in range(5)), *(("element_stride", i, 3) for i in range(5)),
    *(("global_stride", i, 40) for i in range(4)), ("swizzle_mode", 0, 2), ("rank", 0, 3),
    ("elemtype", 0, 4), ("interleave_layout", 0, 2), ("fill_mode", 0, 1),
]  # fmt: skip


def _changed(a: bytes, b: bytes) -> int:
    return int.from_bytes(a, "little") ^ int.from_bytes(b, "little")


def _values(field: str, width: int) -> list[int]:
    if field == "elemtype":
        return sorted(ELEMENT)
    off = 0 if field in ("global_address", "global_stride") or width < 4 else 1
    every = [(1 << i) + off for i in range(4 if field == "global_stride" else 0, width)]
    return [off, *every] if field != "element_stride" else list(range(1, 9))


def test_each_field_has_bits_of_its_own() -> None:
    """Whatever else the map holds, no other bit changes, and every value is another one."""
    bits = {}
    for field, i, width in FIELDS:
        values = _values(field, width)
        zeros = [replaced(bytes(128), field, i, v) for v in values]
        assert len(set(zeros)) == len(values), field
        own = 0
        for one in zeros:
            own |= _changed(one, zeros[0])
        for raw in (b"\xff" * 128, bytes(range(128))):
            for value in values:
                assert not _changed(replaced(raw, field, i, value), raw) & ~own, (field, i, value)
        bits[field, i] = own
    every = 0
    for own in bits.values():
        assert not own & every
        every |= own


@pytest.mark.parametrize("rank", [1, 3, 5])
@pytest.mark.parametrize("extent", [1, 1 << 20, (1 << 30) - 1, 1 << 30, 1 << 31])
def test_an_extent_that_no_tensor_has_is_none(rank: int, extent: int) -> None:
    for axis in range(rank):
        dims = [64] * rank
        dims[axis] = extent
        assert replace(example(rank), dims=tuple(dims)).is_ragged is (extent >= 1 << 30)
