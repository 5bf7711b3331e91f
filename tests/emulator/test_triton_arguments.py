"""Arguments of Triton's launches as parameters, Triton installed or not."""

import struct
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.emulator.triton_arguments import packed, parameters, tensors
from mla_var3.emulator.units.tensormap import TensorMap
from mla_var3.errors import EmulatorError

BASE = SimpleNamespace(data_ptr=lambda: 4096, untyped_storage=None)
GIVEN = SimpleNamespace(base=BASE, shape=[120, 64], strides=[64, 1], padding="zero")
TOLD = {"swizzle": 2, "elem_size": 2, "elem_type": 6, "block_size": [64, 32], "fp4_padded": False}


@given(st.integers(-(2**31), 2**31 - 1), st.floats(width=32, allow_nan=False))
def test_scalars_are_passed_by_their_type(number: int, real: float) -> None:
    assert struct.unpack("<i", packed("i32", number)) == (number,)
    assert struct.unpack("<q", packed("i64", number)) == (number,)
    assert struct.unpack("<f", packed("fp32", real)) == (real,)


def test_a_pointer_is_the_tensors_address_or_null() -> None:
    assert packed("*fp16", BASE) == struct.pack("<Q", 4096)
    assert packed("*fp16", None) == bytes(8)


def test_a_type_that_is_not_known_ends_in_a_sentence() -> None:
    with pytest.raises(EmulatorError, match="type matrix is not emulated"):
        packed("matrix", None)


def test_constants_are_no_parameters_and_tuples_are_several() -> None:
    kinds = ["*fp32", "constexpr", ("i32", ("fp32", "constexpr"), "i64"), "i1"]
    values = [BASE, 128, (3, (0.5, None), 4), True]
    told = list(parameters(kinds, values))
    assert told == [("*fp32", BASE), ("i32", 3), ("fp32", 0.5), ("i64", 4), ("i1", True)]


def test_a_descriptor_without_a_map_says_where_it_lies() -> None:
    told = list(parameters(["tensordesc<fp16[64, 32]>"], [GIVEN]))
    place = [("*fp16", BASE), *(("i64", n) for n in (120, 64, 64, 1)), ("i1", False)]
    assert told == [*place, ("i32", 120), ("i32", 64), ("i64", 64), ("i64", 1)]


@pytest.mark.parametrize(("code", "driver"), [(6, 6), (7, 7), (10, 10)])
@pytest.mark.parametrize("padding", ["zero", "nan"])
def test_a_descriptor_becomes_a_map(code: int, driver: int, padding: str) -> None:
    one = SimpleNamespace(**{**vars(GIVEN), "padding": padding})
    size = 4 if code == 7 else 2
    facts = {**TOLD, "elem_type": code, "elem_size": size}
    (kind, raw), *rest = parameters(["tensordesc<fp16[64, 32]>"], [one], [facts])
    assert kind == "nvTmaDesc"
    assert packed(kind, raw) == raw
    made = TensorMap.decode(raw)
    assert (made.base, made.dims, made.box, made.swizzle) == (4096, (64, 120), (32, 64), 2)
    assert made.strides == (size, 64 * size)
    assert (made.kind, made.nan_fill) == (driver, padding == "nan")
    assert rest == [("i32", 120), ("i32", 64), ("i64", 64), ("i64", 1)]


def test_tensors_are_found_in_tuples_and_descriptors() -> None:
    assert list(tensors([BASE, 3, (4, [BASE]), GIVEN, None])) == [BASE, BASE, BASE]


@pytest.mark.parametrize("padded", [False, True])
def test_a_map_of_padded_4_bit_elements_has_twice_the_columns(padded: bool) -> None:
    (_, raw), *rest = parameters(
        ["tensordesc<u8[64, 32]>"], [GIVEN], [{**TOLD, "fp4_padded": padded}]
    )
    columns = 128 if padded else 64
    assert TensorMap.decode(raw).dims == (columns, 120)
    assert rest == [("i32", 120), ("i32", columns), ("i64", 64), ("i64", 1)]
    assert GIVEN.shape == [120, 64]
