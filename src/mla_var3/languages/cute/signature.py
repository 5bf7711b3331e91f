"""Sorts launch arguments of a CuTe kernel into those fixed at compile time and those per launch.

Makes the stand-ins that the DSL compiles against and the values that a launch passes.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from mla_var3.errors import PlanError
from mla_var3.strides import strides_of

if TYPE_CHECKING:
    import torch

#: Bytes that the start of a tensor is promised to be a multiple of; torch's allocator gives 512,
#: and TMA and 128-bit accesses need 16.
ALIGNMENT = 16

#: Name of a torch dtype -> name of the DSL's type.
DTYPES = {
    "float64": "Float64", "float32": "Float32", "float16": "Float16", "bfloat16": "BFloat16",
    "float8_e4m3fn": "Float8E4M3FN", "float8_e5m2": "Float8E5M2",
    "int64": "Int64", "int32": "Int32", "int16": "Int16", "int8": "Int8",
    "uint8": "Uint8", "bool": "Boolean",
}  # fmt: skip


@dataclass(frozen=True)
class Dynamic:
    """A tensor whose extents along some axes are known at launch only.

    A plain tensor is compiled for its very shape. One compile then serves one problem, and the
    compiler knows every extent.

    Attributes:
        tensor: The tensor.
        axes: Axes whose extents may differ from launch to launch.
        multiple_of: What those extents are promised to be multiples of.
        any_strides: If not 0, all strides but those of 1 are known at launch only, too, and
            promised to be multiples of this.
    """

    tensor: torch.Tensor
    axes: tuple[int, ...]
    multiple_of: int = 1
    any_strides: int = 0


def by_rows(
    tensors: Mapping[str, torch.Tensor], apart: Collection[str] = ("key", "value")
) -> list[Dynamic]:
    """Tensors of any extents but the widths of their rows; LSEs, which are numbers, of any.

    Args:
        tensors: The tensors by name.
        apart: Those whose sequences may lie apart; latents ``z`` and their ``kpe`` always may.

    Raises:
        PlanError: Rows of one do not lie one after the other, as kernels take them to.
    """
    apart = ("z", "kpe") if "z" in tensors else apart
    for name, x in tensors.items():
        whole = x[0] if name in apart and x.ndim > 1 and len(x) else x
        if not whole.is_contiguous():
            raise PlanError(
                f"{name} has strides {x.stride()}, and the kernel takes its rows to lie one after "
                "the other: pass a contiguous tensor"
            )
    return [
        Dynamic(x, tuple(range(x.ndim if "lse" in name else x.ndim - 1)))
        for name, x in tensors.items()
    ]


@dataclass(frozen=True)
class TensorSpec:
    """A tensor argument without its memory.

    Attributes:
        name: Name of the host function's parameter.
        dtype: Of torch, such as ``bfloat16``.
        shape: Extents in elements; None where they are known at launch only.
        strides: In elements, likewise.
        multiple_of: What dynamic extents are multiples of.
        stride_multiples: What each stride is a multiple of, where it is known at launch only.
        alignment: Bytes that the first element's address is a multiple of.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]
    strides: tuple[int | None, ...]
    multiple_of: int = 1
    stride_multiples: tuple[int, ...] = ()
    alignment: int = ALIGNMENT
    kind: Literal["tensor"] = "tensor"


@dataclass(frozen=True)
class ScalarSpec:
    """A number that is given at each launch; ``dtype`` is the DSL's, such as ``Float32``."""

    name: str
    dtype: Literal["Int32", "Float32"]
    kind: Literal["scalar"] = "scalar"


@dataclass(frozen=True)
class ConstantSpec:
    """A value that is compiled in; ``text`` identifies it."""

    name: str
    text: str
    kind: Literal["constant"] = "constant"


Spec = TensorSpec | ScalarSpec | ConstantSpec


def parameter_names(host: Callable[..., Any]) -> tuple[str, ...]:
    """Names of a host function's parameters without ``self`` and the stream, which comes last.

    Raises:
        PlanError: The last parameter is not named ``stream``.
    """
    function = host if inspect.isroutine(host) else type(host).__call__
    names = list(_parameters(inspect.unwrap(function)))
    if names[:1] == ["self"]:
        names = names[1:]
    if names[-1:] != ["stream"]:
        raise PlanError(
            f"{_name_of(host)} must take the stream as its last parameter, named stream; it takes "
            f"{', '.join(names) or 'nothing'}"
        )
    return tuple(names[:-1])


@functools.cache  # Each problem that may be checked asks.
def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


def _name_of(host: Any) -> str:
    return str(getattr(host, "__qualname__", type(host).__qualname__))


def specs(host: Callable[..., Any], arguments: Sequence[Any]) -> tuple[Spec, ...]:
    """What the compiler is told about each argument.

    Args:
        host: A ``@cute.jit`` function, or an object whose ``__call__`` is one.
        arguments: torch tensors (any device, meta too), :class:`Dynamic` ones, numbers, and
            constants; without the stream.

    Raises:
        PlanError: Another number of arguments than the host takes, or one that does not fit.
    """
    names = parameter_names(host)
    if len(names) != len(arguments):
        raise PlanError(
            f"{_name_of(host)} takes {len(names)} arguments before the stream "
            f"({', '.join(names)}), and {len(arguments)} are given"
        )
    return tuple(_spec(name, value) for name, value in zip(names, arguments, strict=True))


def _spec(name: str, value: Any) -> Spec:
    import torch

    match value:
        case torch.Tensor():
            return _tensor(name, Dynamic(value, ()))
        case Dynamic():
            return _tensor(name, value)
        case bool():
            return ConstantSpec(name, repr(value))
        case int():
            return ScalarSpec(name, "Int32")
        case float():
            return ScalarSpec(name, "Float32")
    return ConstantSpec(name, f"{type(value).__qualname__} {value!r}")


def _tensor(name: str, value: Dynamic) -> TensorSpec:
    tensor, dtype = value.tensor, str(value.tensor.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise PlanError(
            f"{name} is {dtype}, which the CuTe DSL has no tensors of (it has {', '.join(DTYPES)})"
        )
    if tensor.ndim == 0:
        raise PlanError(f"{name} has no axis; pass a number, or a tensor of one element")
    axes = {axis % tensor.ndim for axis in value.axes}
    for axis in sorted(axes):
        if tensor.shape[axis] % value.multiple_of:
            raise PlanError(
                f"{name} has {tensor.shape[axis]} elements along axis {axis}, which is promised to "
                f"be a multiple of {value.multiple_of}"
            )
    return _of_extents(
        name, dtype, tuple(tensor.shape), strides_of(tensor), frozenset(axes), value.multiple_of,
        value.any_strides,
    )  # fmt: skip


@functools.lru_cache(maxsize=4096)  # Choosing problems asks for the same tensors again and again.
def _of_extents(
    name: str,
    dtype: str,
    extents: tuple[int, ...],
    steps: tuple[int, ...],
    axes: frozenset[int],
    multiple_of: int,
    any_strides: int,
) -> TensorSpec:
    shape = tuple(None if i in axes else int(n) for i, n in enumerate(extents))
    inside = [_inside(steps, i) for i in range(len(extents))]
    strides = tuple(
        None if axes & set(inner) else int(stride)
        for inner, stride in zip(inside, steps, strict=True)
    )
    multiples = tuple(
        math.prod(multiple_of if i in axes else int(extents[i]) for i in inner) for inner in inside
    )
    kept = zip(multiples, steps, strict=True)
    promised = tuple(n if n and stride % n == 0 else 1 for n, stride in kept)
    if any_strides:
        # By place, not by stride: an axis of one element may have any.
        last = len(extents) - 1
        strides = tuple(None if i < last else 1 for i in range(len(extents)))
        promised = tuple(any_strides if i < last else 1 for i in range(len(extents)))
    return TensorSpec(name, dtype, shape, strides, multiple_of, promised)


def _inside(strides: Sequence[int], axis: int) -> tuple[int, ...]:
    """Axes that lie inside ``axis`` in memory: of smaller stride, or of the same and later."""
    mine = (-strides[axis], axis)
    return tuple(i for i, stride in enumerate(strides) if (-stride, i) > mine)


def runtime_values(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments as a launch takes them: tensors unwrapped, constants left out."""
    import torch

    plain = (value.tensor if isinstance(value, Dynamic) else value for value in arguments)
    return tuple(
        value
        for value in plain
        if isinstance(value, torch.Tensor | int | float) and not isinstance(value, bool)
    )


def fake(spec: Spec, value: Any) -> Any:
    """The stand-in that the DSL compiles against; constants stand for themselves.

    Args:
        spec: As :func:`specs` gives it.
        value: The argument that it describes.
    """
    import cutlass
    from cutlass import cute
    from cutlass.cute.runtime import make_fake_tensor

    if isinstance(spec, ConstantSpec):
        return value
    if isinstance(spec, ScalarSpec):
        return getattr(cutlass, spec.dtype)(value)
    strides = zip(spec.strides, spec.stride_multiples, strict=True)
    return make_fake_tensor(
        getattr(cutlass, DTYPES[spec.dtype]),
        tuple(cute.sym_int(divisibility=spec.multiple_of) if n is None else n for n in spec.shape),
        tuple(cute.sym_int64(divisibility=unit) if n is None else n for n, unit in strides),
        assumed_align=spec.alignment,
    )


def described(items: Sequence[Spec]) -> list[dict[str, Any]]:
    """Specs as JSON-ready mappings."""
    return [dataclasses.asdict(item) for item in items]
