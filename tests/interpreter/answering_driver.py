"""Asks cuTile for the signatures of many arguments, with a driver that answers without a device.

``python answering_driver.py SEED COUNT`` prints each kernel and argument of which cuTile's own
``KernelSignature.from_kernel_args`` finds other parameters than ``kernel_signature``, and last how
many it compared. It is a process of its own, since cuTile keeps the driver that it first finds.
"""

from __future__ import annotations

import ctypes
import random
import sys
import types
from ctypes import POINTER, c_char_p, c_int, c_ulonglong, c_void_p
from typing import Annotated, Any

_INT = POINTER(c_int)
_POINTER = POINTER(c_void_p)


@ctypes.CFUNCTYPE(c_int)
def _done() -> int:
    return 0


@ctypes.CFUNCTYPE(c_int, _INT)
def _version(out: Any) -> int:
    out[0] = 13010
    return 0


@ctypes.CFUNCTYPE(c_int, _POINTER)
def _context(out: Any) -> int:
    out[0] = 0x1000
    return 0


@ctypes.CFUNCTYPE(c_int, _POINTER, c_int, c_ulonglong)
def _attribute_of_pointer(out: Any, attribute: int, pointer: int) -> int:
    out[0] = 0x1000
    return 0


_ANSWERS = {
    b"cuDriverGetVersion": _version,
    b"cuCtxGetCurrent": _context,
    b"cuPointerGetAttribute": _attribute_of_pointer,
}


@ctypes.CFUNCTYPE(c_int, c_char_p, _POINTER, c_int, c_ulonglong, _INT)
def _find(name: bytes, out: Any, version: int, flags: int, status: Any) -> int:
    out[0] = ctypes.cast(_ANSWERS.get(name, _done), c_void_p).value
    if status:
        status[0] = 0
    return 0


_ENTRY = c_void_p(ctypes.cast(_find, c_void_p).value)
_driver: Any = types.ModuleType("cuda.tile._load_libcuda")
_driver.cuGetProcAddress_v2_ptrptr = ctypes.addressof(_ENTRY)
sys.modules["cuda.tile._load_libcuda"] = _driver

import cuda.tile as ct  # noqa: E402 - the driver comes first
import torch  # noqa: E402
from cuda.tile._cext import CallingConvention  # noqa: E402
from cuda.tile.compilation import KernelSignature  # noqa: E402

from mla_var3.interpreter import kernel_signature  # noqa: E402

_TYPES = {torch.float16: "<f2", torch.float32: "<f4", torch.int8: "|i1", torch.float64: "<f8"}


class OnDevice:
    """A tensor as an array of the device at an address."""

    def __init__(self, tensor: torch.Tensor, address: int) -> None:
        width = tensor.element_size()
        self.__cuda_array_interface__ = {
            "shape": tuple(tensor.shape),
            "typestr": _TYPES[tensor.dtype],
            "data": (address, False),
            "strides": tuple(step * width for step in tensor.stride()),
            "version": 3,
        }


@ct.kernel
def plain(x):
    pass


@ct.kernel
def static_shape(x: Annotated[ct.Array, ct.ArrayAnnotation(static_shape_dims=(0,))]):
    pass


@ct.kernel
def static_stride(x: Annotated[ct.Array, ct.ArrayAnnotation(static_stride_dims=(0,))]):
    pass


def tensor(draw: random.Random, ndim: int, dtype: torch.dtype) -> torch.Tensor:
    """A tensor without memory: contiguous, or of any strides."""
    shape = [draw.choice((0, 1, 1, 2, 3, 8, 16, 17, 48)) for _ in range(ndim)]
    steps = [draw.choice((0, 1, 2, 3, 4, 8, 15, 16, 64, 128)) for _ in range(ndim)]
    if draw.random() < 0.3:
        return torch.empty(shape, device="meta", dtype=dtype)
    return torch.empty_strided(shape, steps, device="meta", dtype=dtype)


def on_device(value: Any) -> Any:
    """An argument with its tensors at addresses that 16 divides, as meta tensors count."""
    if isinstance(value, torch.Tensor):
        return OnDevice(value, 1 << 12)
    if isinstance(value, list):
        return [OnDevice(item, (i + 1) << 20) for i, item in enumerate(value)]
    return tuple(on_device(item) for item in value) if isinstance(value, tuple) else value


def argument(draw: random.Random, *, nested: bool) -> Any:
    """A tensor, or a list or tuple of tensors of one rank and dtype."""
    ndim, dtype = draw.randint(1, 4), draw.choice(list(_TYPES))
    if not nested or draw.random() < 0.6:
        return tensor(draw, ndim, dtype)
    several = [tensor(draw, ndim, dtype) for _ in range(draw.randint(1, 3))]
    return several if draw.random() < 0.5 else (*several, 3, 2.0)


def main(seed: int, count: int) -> None:
    draw = random.Random(seed)
    for _ in range(count):
        kernel = draw.choice((plain, static_shape, static_stride))
        given = argument(draw, nested=kernel is plain)
        theirs = KernelSignature.from_kernel_args(
            kernel, (on_device(given),), CallingConvention.cutile_python_v2()
        )
        ours = kernel_signature(kernel, (given,))
        if ours.parameters != theirs.parameters:
            print(kernel._annotated_function.pyfunc.__name__, given, theirs.symbol, ours.symbol)
    print(count)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
