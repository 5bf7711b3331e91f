"""The CUDA runtime of compiled host functions: ten symbols, as callbacks into the emulation."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

from mla_var3.emulator.emulation import active
from mla_var3.emulator.units.tensormap import encoded
from mla_var3.errors import EmulatorError
from mla_var3.gpuless.device import Device

POINTER, INT, UINT = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint
#: Runtime symbols of the DSL's host objects, and their argument types.
SYMBOLS: dict[str, tuple[Any, ...]] = {
    "_cudaLibraryLoadData": (POINTER, POINTER, POINTER, POINTER, UINT, POINTER, POINTER, UINT),
    "_cudaLibraryGetKernel": (POINTER, POINTER, ctypes.c_char_p),
    "_cudaGetDevice": (POINTER,),
    "_cudaDeviceGetAttribute": (POINTER, INT, INT),
    "_cuKernelGetAttribute": (POINTER, INT, POINTER, INT),
    "_cudaFuncSetAttribute": (POINTER, INT, INT),
    "_cudaKernelSetAttributeForDevice": (POINTER, INT, INT, INT),
    "_cudaLaunchKernelEx": (POINTER, POINTER, POINTER),
    "_cuTensorMapEncodeTiled": (POINTER, UINT, UINT, *(POINTER,) * 5, INT, INT, INT, INT),
    "cuda_dialect_assert_success": (INT,),
}
#: cudaLaunchConfig_t: grid, block, shared bytes, stream, attributes, their number.
CONFIG = struct.Struct("<6IQQQI4x")
ATTRIBUTE_BYTES, COOPERATIVE, CLUSTER_DIMENSION, STREAM_SERIALIZATION = 72, 2, 4, 6
FAILED = 999


class _Call:
    """The arguments of one ``cudaLaunchKernelEx``."""

    compiled = False

    def __init__(self, config: int, kernel: str, arguments: int) -> None:
        gx, gy, gz, bx, by, bz, self.shared, _, attributes, n = CONFIG.unpack(
            ctypes.string_at(config, CONFIG.size)
        )
        self.kernel, self.grid, self.block = kernel, (gx, gy, gz), (bx, by, bz)
        self.arguments = ctypes.cast(arguments, ctypes.POINTER(POINTER))
        self.cluster, self.overlaps, self.cooperative = (1, 1, 1), False, False
        for i in range(n if attributes else 0):
            raw = ctypes.string_at(attributes + ATTRIBUTE_BYTES * i, ATTRIBUTE_BYTES)
            kind, *size = struct.unpack_from("<I4x3I", raw)
            if kind == CLUSTER_DIMENSION:
                self.cluster = (size[0], size[1], size[2])
            elif kind == STREAM_SERIALIZATION:
                self.overlaps = bool(size[0])
            elif kind == COOPERATIVE:
                self.cooperative = bool(size[0])

    def argument(self, i: int, size: int) -> bytes:
        """Bytes of the ``i``-th kernel parameter."""
        address = self.arguments[i]
        if address is None:
            raise EmulatorError(f"the launch of {self.kernel} passes no argument {i}")
        return ctypes.string_at(address, size)


class Runtime:
    """The runtime symbols of one JIT engine, bound to the PTX that was compiled with it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.kernels: dict[int, str] = {}
        self.callbacks = {
            name: ctypes.CFUNCTYPE(INT, *types)(self._guard(getattr(self, name.lstrip("_"))))
            for name, types in SYMBOLS.items()
        }

    @staticmethod
    def _guard(function: Callable[..., None]) -> Callable[..., int]:
        """No exception may pass through compiled code: it is kept and raised afterwards."""

        def call(*args: Any) -> int:
            try:
                function(*args)
            except BaseException as error:  # noqa: BLE001
                emulation = active()
                if emulation is not None and emulation.failure is None:
                    emulation.failure = error
                    if emulation.children:
                        emulation.children.tell_refusal(error)
                return FAILED
            return 0

        return call

    def cudaLibraryLoadData(self, library: int, *_: Any) -> None:
        ctypes.cast(library, ctypes.POINTER(POINTER))[0] = id(self)

    def cudaLibraryGetKernel(self, out: int, _: int, name: bytes) -> None:
        handle = 0x500000 + 16 * len(self.kernels)
        self.kernels[handle] = name.decode()
        ctypes.cast(out, ctypes.POINTER(POINTER))[0] = handle

    def cudaGetDevice(self, out: int) -> None:
        ctypes.cast(out, ctypes.POINTER(INT))[0] = 0

    def cudaDeviceGetAttribute(self, out: int, attribute: int, _: int) -> None:
        emulation = active()
        device = emulation.device if emulation else Device((9, 0))
        ctypes.cast(out, ctypes.POINTER(INT))[0] = device.attribute(attribute)

    def cuKernelGetAttribute(self, out: int, *_: Any) -> None:
        ctypes.cast(out, ctypes.POINTER(INT))[0] = 0

    def cudaFuncSetAttribute(self, *_: Any) -> None:
        """Attributes change nothing here."""

    def cudaKernelSetAttributeForDevice(self, *_: Any) -> None:
        """Attributes change nothing here."""

    def cudaLaunchKernelEx(self, config: int, function: int, arguments: int) -> None:
        emulation = active()
        if emulation is None:
            raise EmulatorError("a kernel is launched outside of emulate()")
        emulation.launch(self.text, _Call(config, self.kernels[function], arguments))

    def cuTensorMapEncodeTiled(self, out: int, kind: int, rank: int, *rest: int) -> None:
        base, dims, strides, box, steps, interleave, swizzle, _, fill = rest
        raw = encoded(
            kind,
            base,
            _numbers(dims, "Q", rank),
            _numbers(strides, "Q", rank - 1),
            _numbers(box, "I", rank),
            _numbers(steps, "I", rank),
            (interleave, swizzle, fill),
        )
        ctypes.memmove(out, raw, len(raw))

    def cuda_dialect_assert_success(self, status: int) -> None:
        """What failed is known already, and raised after the host function."""


def _numbers(address: int, code: str, count: int) -> tuple[int, ...]:
    form = struct.Struct(f"<{count}{code}")
    return form.unpack(ctypes.string_at(address, form.size))
