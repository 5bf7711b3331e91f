"""Signatures from torch tensors: what cuTile's own dispatcher finds with a driver."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import cuda.tile as ct
import pytest
import torch
from cuda.tile.compilation import KernelSignature
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.errors import InterpreterError
from mla_var3.interpreter import kernel_signature
from mla_var3.interpreter.signature import (
    _static_axes,
    annotated_function,
    signature_key,
    span_bytes,
)


@ct.kernel
def one(x):
    pass


@ct.kernel
def constant(x: ct.Constant):
    pass


@ct.kernel
def long_scalar(n: ct.ScalarInt64):
    pass


@ct.kernel
def long_index(x: ct.IndexedWithInt64[ct.Array]):
    pass


@ct.kernel
def static_shape(x: Annotated[ct.Array, ct.ArrayAnnotation(static_shape_dims=(0, -1))]):
    pass


@ct.kernel
def static_stride(x: Annotated[ct.Array, ct.ArrayAnnotation(static_stride_dims=(0,))]):
    pass


@ct.kernel
def bad_axis(x: Annotated[ct.Array, ct.ArrayAnnotation(static_shape_dims=(2,))]):
    pass


@ct.kernel
def pair(p: tuple[ct.Array, ct.Constant[int]]):
    pass


@ct.kernel
def any_tuple(p: tuple[ct.Array, ...]):
    pass


@ct.kernel
def listed(
    xs: Annotated[list, ct.ListAnnotation(element=ct.ArrayAnnotation(index_dtype=ct.int64))],
):
    pass


def parameter(kernel: Any, arg: Any) -> Any:
    [found] = kernel_signature(kernel, (arg,)).parameters
    return found


def test_a_contiguous_tensor() -> None:
    c = parameter(one, torch.zeros(4, 32, dtype=torch.bfloat16))
    assert (c.dtype, c.ndim, c.index_dtype) == (ct.bfloat16, 2, ct.int32)
    assert c.stride_constant == (None, 1)
    assert c.stride_lower_bound_incl == (0, None)
    assert c.stride_divisible_by == (8, 1)
    assert c.shape_divisible_by == (1, 16)
    assert c.shape_constant == (None, None)
    assert c.base_addr_divisible_by == 16
    assert c.alias_groups == ()
    assert not c.may_alias_internally


def test_an_extent_of_one_is_a_constant() -> None:
    """On an H200 cuda-tile 1.7.0 named such a launch ``attention_Kt2_A3bf16_1s1_3v8l0_...``."""
    signature = kernel_signature(one, (torch.zeros(1, 128, 512, dtype=torch.bfloat16),))
    assert signature.symbol == "one_Kt2_A3bf16_1s1_3v8l0_4t1_6i16_p16"


@pytest.mark.slow
def test_cutile_finds_the_same_with_a_driver() -> None:
    script = Path(__file__).with_name("answering_driver.py")
    done = subprocess.run(
        [sys.executable, script, "11", "3000"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "3000\n"), done.stdout[:2000] + done.stderr


@pytest.mark.parametrize(
    ("shape", "strides", "overlaps"),
    [
        ((4, 8), (8, 1), False),
        ((4, 8), (7, 1), True),
        ((1, 8), (2, 1), True),
        ((4, 8), (0, 1), True),
        ((1,), (0,), True),
        ((8, 1), (1, 1), False),
        ((2, 3, 4), (4, 8, 1), False),
    ],
    ids=str,
)
def test_an_axis_that_ends_within_the_next_may_overlap(
    shape: tuple[int, ...], strides: tuple[int, ...], overlaps: bool
) -> None:
    x = torch.empty_strided(shape, strides, device="meta")
    assert parameter(one, x).may_alias_internally is overlaps


def test_addresses_and_strides_lose_their_divisibility() -> None:
    x = torch.zeros(4, 33)
    c = parameter(one, x[:, 1:])
    assert c.base_addr_divisible_by == 1
    assert c.stride_divisible_by == (1, 1)
    assert c.shape_divisible_by == (1, 16)
    assert parameter(one, x.t()).stride_constant == (1, None)


def test_an_expanded_tensor_aliases_itself() -> None:
    assert parameter(one, torch.zeros(1, 32).expand(4, 32)).may_alias_internally
    assert not parameter(one, torch.zeros(1, 32)).may_alias_internally


@given(
    shape=st.lists(st.integers(0, 48), max_size=4),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.int8, torch.float64]),
)
def test_a_meta_tensor_has_the_signature_of_an_aligned_one(
    shape: list[int], dtype: torch.dtype
) -> None:
    real = torch.zeros(shape, dtype=dtype)
    assert kernel_signature(one, (real,)) == kernel_signature(
        one, (torch.empty(shape, dtype=dtype, device="meta"),)
    )


@pytest.mark.parametrize(
    ("value", "dtype"), [(3, ct.int32), (True, ct.bool_), (2.5, ct.float32)], ids=str
)
def test_scalars(value: Any, dtype: Any) -> None:
    assert parameter(one, value).dtype is dtype


def test_scalar_ranges() -> None:
    assert parameter(long_scalar, 2**40).dtype is ct.int64
    with pytest.raises(InterpreterError, match=r"'x' is 1099511627776.*ct\.ScalarInt64"):
        kernel_signature(one, (2**40,))
    with pytest.raises(InterpreterError, match="'n' is"):
        kernel_signature(long_scalar, (2**63,))


def test_constants_keep_their_kind() -> None:
    keys = {signature_key(kernel_signature(constant, (v,))) for v in (1, 1.0, True, -0.0, 0.0)}
    assert len(keys) == 5
    nan = float("nan")
    assert signature_key(kernel_signature(constant, (nan,))) == signature_key(
        kernel_signature(constant, (nan,))
    )
    with pytest.raises(InterpreterError, match="compile-time constant"):
        kernel_signature(constant, (torch.zeros(1),))


def test_index_width() -> None:
    assert parameter(long_index, torch.zeros(4)).index_dtype is ct.int64
    large = torch.empty(2**31, device="meta", dtype=torch.int8)
    assert parameter(long_index, large).ndim == 1
    with pytest.raises(InterpreterError, match=r"exceeds 32-bit.*ct\.IndexedWithInt64"):
        kernel_signature(one, (large,))


def test_static_axes() -> None:
    c = parameter(static_shape, torch.zeros(3, 5, 7))
    assert c.shape_constant == (3, None, 7)
    assert kernel_signature(static_shape, (torch.zeros(3, 5, 7),)).calling_convention.version == 2
    c = parameter(static_stride, torch.zeros(3, 5))
    assert c.stride_constant == (5, None)
    with pytest.raises(InterpreterError, match="static_shape_dims names axis 2"):
        kernel_signature(bad_axis, (torch.zeros(2, 2),))


def test_tuples() -> None:
    signature = kernel_signature(pair, ((torch.zeros(2), 3),))
    assert signature.calling_convention.version == 2
    assert [type(i).__name__ for i in signature.parameters[0].items] == [
        "ArrayConstraint",
        "ConstantConstraint",
    ]
    hash(signature_key(signature))
    assert len(parameter(any_tuple, (torch.zeros(2),) * 3).items) == 3
    assert len(parameter(one, (1, 2.0)).items) == 2
    with pytest.raises(InterpreterError, match="tuple of 3 items, its annotation names 2"):
        kernel_signature(pair, ((1, 2, 3),))
    with pytest.raises(InterpreterError, match="annotated as a tuple"):
        kernel_signature(pair, (torch.zeros(2),))


def test_lists_keep_what_all_arrays_share() -> None:
    x = torch.zeros(4, 32)
    c = parameter(one, [x, torch.zeros(8, 16)])
    assert c.element.stride_constant == (None, 1)
    assert c.element.shape_divisible_by == (1, 16)
    assert c.elements_may_alias
    mixed = parameter(one, [x, x[:, 1:]])
    assert mixed.element.base_addr_divisible_by == 1
    assert parameter(listed, [x]).element.index_dtype is ct.int64


@pytest.mark.parametrize(
    ("arg", "message"),
    [
        ([], "must hold tensors"),
        ([1], "must hold tensors"),
        ([torch.zeros(1), torch.zeros(1, 1)], "need one dtype and rank"),
        ([torch.zeros(1), torch.zeros(1, dtype=torch.int32)], "need one dtype and rank"),
        (None, "a NoneType; a kernel takes"),
        ("text", "a str; a kernel takes"),
        (torch.zeros(1, dtype=torch.complex64), "complex64, which cuTile does not know"),
    ],
    ids=str,
)
def test_arguments_that_no_kernel_takes(arg: Any, message: str) -> None:
    with pytest.raises(InterpreterError, match=message) as caught:
        kernel_signature(one, (arg,))
    assert "'x" in str(caught.value)


def test_what_is_no_kernel_or_call() -> None:
    with pytest.raises(InterpreterError, match=r"takes 1 arguments \(x\), got 2"):
        kernel_signature(one, (1, 2))
    with pytest.raises(InterpreterError, match=r"is a function, not a cuTile kernel"):
        annotated_function(parameter)


def test_a_signature_that_cutile_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Any, name: str) -> Any:
        raise NotImplementedError("no such thing")

    monkeypatch.setattr(KernelSignature, "with_mangled_symbol", refuse)
    with pytest.raises(InterpreterError, match="no signature for these arguments: no such thing"):
        kernel_signature(one, (1,))


def test_span() -> None:
    assert span_bytes(torch.zeros(0, 3)) == 0
    assert span_bytes(torch.zeros(4, 5)[:, :2]) == (3 * 5 + 2) * 4
    assert span_bytes(torch.zeros(())) == 4
    assert span_bytes(torch.zeros(3, 1, 2, dtype=torch.float16)) == 12
    assert span_bytes(torch.zeros(1, 4).expand(5, 4)) == 16


# Limits -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(("kernel", "bits"), [(one, 31), (long_scalar, 63)], ids=["int32", "int64"])
def test_integers_up_to_both_ends_of_their_range(kernel: Any, bits: int) -> None:
    low, high = -(2**bits), 2**bits - 1
    for value in (low, high, 0, -1):
        assert parameter(kernel, value).dtype is (ct.int32 if bits == 31 else ct.int64)
    for value in (low - 1, high + 1):
        with pytest.raises(InterpreterError) as caught:
            kernel_signature(kernel, (value,))
        assert f"is {value}, which does not fit int{bits + 1} [{low}, {high}]" in str(caught.value)
        assert ("annotate it with ct.ScalarInt64" in str(caught.value)) is (bits == 31)


@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("more", [0, 1])
def test_sizes_and_strides_up_to_the_largest_index(strided: bool, more: int) -> None:
    size = 2**31 - 1 + more
    shape, strides = ((2, 1), (size, 1)) if strided else ((size,), (1,))
    x = torch.empty_strided(shape, strides, device="meta", dtype=torch.int8)
    if not more:
        assert parameter(one, x).index_dtype is ct.int32
        return
    with pytest.raises(InterpreterError, match="exceeds 32-bit indices"):
        kernel_signature(one, (x,))
    assert parameter(long_index, x).index_dtype is ct.int64


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_axes_count_from_either_end(ndim: int) -> None:
    for count in range(ndim + 1):
        for axes in itertools.permutations(range(-ndim, ndim), count):
            annotation = SimpleNamespace(static_shape_dims=axes)
            wanted = {axis if axis >= 0 else axis + ndim for axis in axes}
            if len(wanted) == len(axes):
                assert _static_axes(annotation, "static_shape_dims", ndim, "x") == wanted
            else:
                with pytest.raises(InterpreterError, match="has a duplicate axis in"):
                    _static_axes(annotation, "static_shape_dims", ndim, "x")
    for axis in (-ndim - 1, ndim):
        annotation = SimpleNamespace(static_shape_dims=(axis,))
        with pytest.raises(
            InterpreterError, match=f"has {ndim} dimensions, static_shape_dims names axis {axis}"
        ):
            _static_axes(annotation, "static_shape_dims", ndim, "x")
    assert _static_axes(None, "static_shape_dims", ndim, "x") == set()


def test_a_tensor_without_axes_has_no_static_ones() -> None:
    assert _static_axes(SimpleNamespace(static_shape_dims=()), "static_shape_dims", 0, "x") == set()
    with pytest.raises(InterpreterError, match="has 0 dimensions, static_shape_dims names axis 0"):
        _static_axes(SimpleNamespace(static_shape_dims=(0,)), "static_shape_dims", 0, "x")


@pytest.mark.parametrize("dtype", [torch.int8, torch.float16, torch.float32, torch.float64])
def test_what_is_divisible(dtype: torch.dtype) -> None:
    """Strides by 16 bytes, sizes by 16 elements, addresses by 16 bytes."""
    each = 16 // dtype.itemsize
    for size, stride in itertools.product((0, 1, 15, 16, 17, 32), (2, 8, 15, 16, 17, 48)):
        x = torch.empty_strided((3, size), (stride, 1), device="meta", dtype=dtype)
        c = parameter(one, x)
        assert c.shape_divisible_by == (1, 16 if size % 16 == 0 else 1)
        assert c.stride_divisible_by == (each if stride % each == 0 else 1, 1)
    room = torch.zeros(64, dtype=dtype)
    first = -room.data_ptr() % 16 // dtype.itemsize
    for off in range(each + 1):
        c = parameter(one, room[first + off : first + off + 8])
        assert c.base_addr_divisible_by == (16 if off % each == 0 else 1)


def test_static_strides_are_constants_and_no_others() -> None:
    c = parameter(static_stride, torch.zeros(2, 32))
    assert (c.stride_constant, c.stride_divisible_by) == ((32, None), (1, 1))
    c = parameter(static_shape, torch.zeros(16, 32, 48))
    assert (c.shape_constant, c.shape_divisible_by) == ((16, None, 48), (1, 16, 1))


def test_of_a_list_what_holds_for_one_may_not_for_all() -> None:
    plain, twice = torch.zeros(4, 32), torch.zeros(1, 32).expand(4, 32)
    for items in ([plain, twice], [twice, plain]):
        c = parameter(one, items).element
        assert c.may_alias_internally
        assert c.stride_constant == (None, 1)
        assert c.stride_divisible_by == (4, 1)
    assert not parameter(one, [plain, plain.clone()]).element.may_alias_internally
    shapes = [torch.zeros(n, 16) for n in (16, 32, 5)]
    assert parameter(one, shapes[:2]).element.shape_divisible_by == (16, 16)
    assert parameter(one, shapes).element.shape_divisible_by == (1, 16)
    with pytest.raises(
        InterpreterError, match=r"mixes float32 of rank 2 with float32 of rank 1 \(item 2\)"
    ):
        kernel_signature(one, ([plain, plain, torch.zeros(3)],))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ((torch.zeros(1), "text"), r"argument 'x\[1\]' is a str"),
        (torch.Size([1]), "'x' is a Size; a kernel takes plain tuples"),
        (torch.zeros(2, 2).to_sparse(), r"layout torch\.sparse_coo; kernels take strided ones"),
        ([torch.zeros(1), 3], "'x' is a list; it must hold tensors, at least one"),
    ],
    ids=str,
)
def test_an_argument_is_named_with_its_place(value: Any, said: str) -> None:
    with pytest.raises(InterpreterError, match=said):
        kernel_signature(one, (value,))


def test_static_shapes_within_lists_and_tuples_need_the_second_convention() -> None:
    for kernel, value, version in (
        (one, torch.zeros(2), 1),
        (one, [torch.zeros(2)], 1),
        (one, (torch.zeros(2),), 2),
        (one, 3, 1),
        (static_stride, torch.zeros(2, 2), 1),
    ):
        assert kernel_signature(kernel, (value,)).calling_convention.version == version


@ct.kernel
def static_list(
    xs: Annotated[list, ct.ListAnnotation(element=ct.ArrayAnnotation(static_shape_dims=(0,)))],
):
    pass


def test_a_list_of_static_shapes_needs_the_second_convention_too() -> None:
    for kernel, version in ((static_list, 2), (one, 1)):
        found = kernel_signature(kernel, ([torch.zeros(3, 5), torch.zeros(3, 5)],))
        assert found.calling_convention.version == version
