"""Builds the signature of a cuTile kernel from the arguments of one launch, without a driver.

cuTile specializes a kernel for what it knows of its arguments: dtypes, ranks, which sizes and
strides are 1, which sizes, strides and addresses are divisible by 16, and whether an array may
overlap itself. Its own ``KernelSignature.from_kernel_args`` asks the CUDA driver; this module
derives the same facts from torch tensors alone (CPU, CUDA or meta), so that it works on a machine
that has no GPU. A test holds the two equal, with a driver that answers without a device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from cuda.tile import int32
from cuda.tile._annotated_function import HeterogeneousTupleNode, HomogeneousTupleNode
from cuda.tile._cext import CallingConvention, classify_constant
from cuda.tile._datatype import bool_, float32
from cuda.tile._execution import kernel as CtKernelType
from cuda.tile._ir.typing_support import to_dtype
from cuda.tile.compilation import KernelSignature
from cuda.tile.compilation._signature import (
    ArrayConstraint,
    ConstantConstraint,
    ListConstraint,
    ParameterConstraint,
    ScalarConstraint,
    TupleConstraint,
)

from mla_var3.errors import InterpreterError

# Addresses and strides are specialized at this granularity (bytes), sizes at this one (elements).
ALIGNMENT_BYTES = 16
SHAPE_DIVISOR = 16

_INT32_MAX = 2**31 - 1
_INT32_MIN = -(2**31)
_INT64_MAX = 2**63 - 1
_INT64_MIN = -(2**63)


def kernel_signature(kernel: Any, args: Sequence[Any]) -> KernelSignature:
    """Derives the signature that cuTile would compile ``kernel`` for, given these arguments.

    Args:
        kernel: A function decorated with ``@ct.kernel``.
        args: The launch arguments: torch tensors (CPU, CUDA or meta), lists of tensors, Python
            ints, floats and bools, and tuples of those. A meta tensor counts as 16-byte aligned.

    Returns:
        The signature, with the calling convention that its parameters need (version 2 for tuples
        and static shapes, else version 1) and a mangled symbol.

    Raises:
        InterpreterError: If ``kernel`` is not a cuTile kernel, the number of arguments is wrong, or
            an argument cannot be passed to a kernel.
    """
    signature = launch_signature(kernel, args)
    name = annotated_function(kernel).pyfunc.__name__
    with _refusals(name):
        return signature.with_mangled_symbol(name)


def launch_signature(kernel: Any, args: Sequence[Any]) -> KernelSignature:
    """Derives ``kernel_signature`` without its symbol.

    Mangling parses each symbol again to verify it, which takes as long as a small launch.
    """
    annotated = annotated_function(kernel)
    names = list(annotated.pysig.parameters)
    if not isinstance(args, Sequence):
        raise InterpreterError(
            f"the arguments of kernel {annotated.pyfunc.__name__!r} must be a tuple, "
            f"got a {type(args).__name__}"
        )
    if len(names) != len(args):
        raise InterpreterError(
            f"kernel {annotated.pyfunc.__name__!r} takes {len(names)} arguments "
            f"({', '.join(names) or 'none'}), got {len(args)}"
        )
    parameters = [
        _constraint(arg, node, name)
        for arg, node, name in zip(args, annotated.parameter_annotations, names, strict=True)
    ]
    convention = (
        CallingConvention.cutile_python_v2()
        if any(_needs_v2(p) for p in parameters)
        else CallingConvention.cutile_python_v1()
    )
    with _refusals(annotated.pyfunc.__name__):
        return KernelSignature(parameters, convention)


@contextlib.contextmanager
def _refusals(name: str) -> Iterator[None]:
    """Makes cuTile's refusal of a signature one sentence."""
    try:
        yield
    except (TypeError, ValueError, NotImplementedError) as error:
        raise InterpreterError(
            f"kernel {name!r} has no signature for these arguments: {error}"
        ) from error


def annotated_function(kernel: Any) -> Any:
    """Returns cuTile's annotated function behind a kernel.

    Args:
        kernel: A function decorated with ``@ct.kernel``.

    Raises:
        InterpreterError: If ``kernel`` is anything else.
    """
    if not isinstance(kernel, CtKernelType):
        name = getattr(kernel, "__name__", repr(kernel))
        raise InterpreterError(
            f"{name} is a {type(kernel).__name__}, not a cuTile kernel: decorate it with @ct.kernel"
        )
    return kernel._annotated_function


def signature_key(signature: KernelSignature) -> tuple[Any, ...]:
    """Returns a hashable key: equal for two signatures exactly when cuTile compiles one IR.

    ``KernelSignature`` itself cannot be hashed, since constants 1, 1.0 and True must differ.
    Its calling convention and symbol follow from its parameters.
    """
    return tuple(_key(p) for p in signature.parameters)


def _key(constraint: ParameterConstraint) -> Any:
    if isinstance(constraint, ConstantConstraint):
        # repr tells -0.0 from 0.0 and makes NaN equal to itself.
        return ("const", type(constraint.value).__name__, repr(constraint.value))
    if isinstance(constraint, TupleConstraint):
        return ("tuple", tuple(_key(item) for item in constraint.items))
    return constraint


def _needs_v2(constraint: ParameterConstraint) -> bool:
    if isinstance(constraint, ArrayConstraint):
        return any(size is not None for size in constraint.shape_constant)
    if isinstance(constraint, ListConstraint):
        return _needs_v2(constraint.element)
    return isinstance(constraint, TupleConstraint)


def _constraint(arg: Any, node: Any, path: str) -> ParameterConstraint:
    if isinstance(arg, tuple):
        if type(arg) is not tuple:
            raise InterpreterError(
                f"argument {path!r} is a {type(arg).__name__}; a kernel takes plain tuples"
            )
        return TupleConstraint(
            [
                _constraint(item, item_node, f"{path}[{i}]")
                for i, (item, item_node) in enumerate(
                    zip(arg, tuple_nodes(arg, node, path), strict=True)
                )
            ]
        )
    if isinstance(node, HomogeneousTupleNode | HeterogeneousTupleNode):
        raise InterpreterError(
            f"argument {path!r} is annotated as a tuple, got a {type(arg).__name__}"
        )
    if node.constant:
        return _constant(arg, path)
    if isinstance(arg, torch.Tensor):
        return _array(arg, node.array, path)
    if isinstance(arg, list):
        return _list(arg, node, path)
    return _scalar(arg, node.scalar, path)


def tuple_nodes(arg: tuple[Any, ...], node: Any, path: str) -> Sequence[Any]:
    """Returns one annotation node for each item of a tuple argument.

    Raises:
        InterpreterError: If the annotation implies another length.
    """
    if isinstance(node, HomogeneousTupleNode):
        return [node.each] * len(arg)
    if isinstance(node, HeterogeneousTupleNode):
        if len(node.items) != len(arg):
            raise InterpreterError(
                f"argument {path!r} is a tuple of {len(arg)} items, its annotation names "
                f"{len(node.items)}"
            )
        return node.items
    return [node] * len(arg)


def _constant(arg: Any, path: str) -> ConstantConstraint:
    if classify_constant(arg, True) is None:
        raise InterpreterError(
            f"argument {path!r} is a compile-time constant and must be an int, float or bool, "
            f"got a {type(arg).__name__}"
        )
    return ConstantConstraint(arg)


def _scalar(arg: Any, annotation: Any, path: str) -> ScalarConstraint:
    if isinstance(arg, bool):
        return ScalarConstraint(bool_)
    if isinstance(arg, int):
        dtype = int32 if annotation is None else annotation.dtype
        low, high = (_INT32_MIN, _INT32_MAX) if dtype is int32 else (_INT64_MIN, _INT64_MAX)
        if not low <= arg <= high:
            advice = "; annotate it with ct.ScalarInt64" if dtype is int32 else ""
            raise InterpreterError(
                f"argument {path!r} is {arg}, which does not fit {dtype} [{low}, {high}]{advice}"
            )
        return ScalarConstraint(dtype)
    if isinstance(arg, float):
        return ScalarConstraint(float32)
    raise InterpreterError(
        f"argument {path!r} is a {type(arg).__name__}; a kernel takes torch tensors, lists of "
        "tensors, ints, floats, bools and tuples of those"
    )


def _array(tensor: torch.Tensor, annotation: Any, path: str) -> ArrayConstraint:
    if tensor.layout is not torch.strided:
        raise InterpreterError(
            f"argument {path!r} is a tensor of layout {tensor.layout}; kernels take strided ones"
        )
    try:
        dtype = to_dtype(tensor.dtype)
    except TypeError as error:
        raise InterpreterError(
            f"argument {path!r} is a tensor of {tensor.dtype}, which cuTile does not know"
        ) from error
    index_dtype = int32 if annotation is None else annotation.index_dtype
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    if index_dtype is int32 and any(v > _INT32_MAX for v in (*shape, *strides)):
        raise InterpreterError(
            f"argument {path!r} of shape {shape} and strides {strides} exceeds 32-bit indices; "
            "annotate it with ct.IndexedWithInt64"
        )
    static_shape = _static_axes(annotation, "static_shape_dims", tensor.ndim, path)
    static_strides = _static_axes(annotation, "static_stride_dims", tensor.ndim, path)
    if static_strides:
        # Naming any static stride turns the inference of unit strides off for the whole array.
        stride_constant = [s if i in static_strides else None for i, s in enumerate(strides)]
    else:
        stride_constant = [1 if s == 1 else None for s in strides]
    per_vector = max(1, ALIGNMENT_BYTES * 8 // dtype.bitwidth)
    if static_shape:  # Likewise of sizes.
        shape_constant = [n if i in static_shape else None for i, n in enumerate(shape)]
    else:
        shape_constant = [1 if n == 1 else None for n in shape]
    return ArrayConstraint(
        dtype,
        tensor.ndim,
        index_dtype=index_dtype,
        stride_lower_bound_incl=0,
        alias_groups=(),
        may_alias_internally=_may_overlap_itself(shape, strides),
        stride_constant=stride_constant,
        shape_constant=shape_constant,
        stride_divisible_by=[
            per_vector if s % per_vector == 0 and c is None else 1
            for s, c in zip(strides, stride_constant, strict=True)
        ],
        shape_divisible_by=[
            SHAPE_DIVISOR if n % SHAPE_DIVISOR == 0 and c is None else 1
            for n, c in zip(shape, shape_constant, strict=True)
        ],
        base_addr_divisible_by=_address_divisor(tensor),
    )


def _may_overlap_itself(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether cuTile allows for two elements at one address: an axis that ends within the next.

    Axes without a step and empty ones count as any other, as they do there.
    """
    end = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if stride < end:
            return True
        end = stride * size
    return False


def _address_divisor(tensor: torch.Tensor) -> int:
    if tensor.device.type == "meta":
        return ALIGNMENT_BYTES
    return ALIGNMENT_BYTES if tensor.data_ptr() % ALIGNMENT_BYTES == 0 else 1


def _static_axes(annotation: Any, field: str, ndim: int, path: str) -> set[int]:
    axes: Sequence[int] = () if annotation is None else getattr(annotation, field)
    if len({axis % ndim for axis in axes} if ndim else axes) != len(axes):
        raise InterpreterError(f"argument {path!r}: {field} has a duplicate axis in {tuple(axes)}")
    for axis in axes:
        if not -ndim <= axis < ndim:
            raise InterpreterError(
                f"argument {path!r} has {ndim} dimensions, {field} names axis {axis}"
            )
    return {axis % ndim for axis in axes}


def _list(arg: list[Any], node: Any, path: str) -> ListConstraint:
    if not arg or not all(isinstance(item, torch.Tensor) for item in arg):
        raise InterpreterError(f"argument {path!r} is a list; it must hold tensors, at least one")
    annotation = None if node.list is None else node.list.element
    items = [_array(tensor, annotation, f"{path}[{i}]") for i, tensor in enumerate(arg)]
    first = items[0]
    for i, item in enumerate(items[1:], start=1):
        if (item.dtype, item.ndim) != (first.dtype, first.ndim):
            raise InterpreterError(
                f"argument {path!r} mixes {first.dtype} of rank {first.ndim} with {item.dtype} of "
                f"rank {item.ndim} (item {i}); all arrays of a list need one dtype and rank"
            )
    # cuTile does not look whether they do.
    return ListConstraint(_common_constraint(items), alias_groups=(), elements_may_alias=True)


def _common_constraint(items: list[ArrayConstraint]) -> ArrayConstraint:
    """Keeps what holds for every array of a list."""

    def common(field: str, otherwise: Any) -> list[Any]:
        columns = zip(*(getattr(item, field) for item in items), strict=True)
        return [column[0] if len(set(column)) == 1 else otherwise for column in columns]

    first = items[0]
    addresses = {item.base_addr_divisible_by for item in items}
    return ArrayConstraint(
        first.dtype,
        first.ndim,
        index_dtype=first.index_dtype,
        stride_lower_bound_incl=0,
        alias_groups=(),
        may_alias_internally=any(item.may_alias_internally for item in items),
        stride_constant=common("stride_constant", None),
        shape_constant=common("shape_constant", None),
        stride_divisible_by=common("stride_divisible_by", 1),
        shape_divisible_by=common("shape_divisible_by", 1),
        base_addr_divisible_by=min(addresses),
    )


def span_bytes(tensor: torch.Tensor) -> int:
    """Returns the bytes from a tensor's first element to the end of its last one in memory."""
    if tensor.numel() == 0:
        return 0
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()
