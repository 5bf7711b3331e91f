"""Loads exported CuTe kernels and runs them by ctypes and torch alone, without a compiler.

library = Library(Path("gemm/manifest.json"))
kernel = library.kernels[0]
kernel(a, b, c)          # on the current stream
run = kernel.bind(a, b, c)
run()                    # the same without checking the arguments again
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from mla_var3 import inputs
from mla_var3.archs import base_arch
from mla_var3.errors import InputError, ToolchainError
from mla_var3.strides import strides_of

#: Schema that this module reads; see ``languages.cute.manifest``.
SCHEMA_VERSION = 1

_SCALARS = {"Int32": (int, ctypes.c_int32), "Float32": (int | float, ctypes.c_float)}
_TENSOR = (
    "dtype", "shape", "strides", "multiple_of", "stride_multiples", "alignment", "shape_bits",
    "stride_bits",
)  # fmt: skip
_INTEGERS = {32: ctypes.c_int32, 64: ctypes.c_int64}


class Library:
    """An exported library.

    Args:
        manifest: Path of its manifest, or of the folder that holds it.

    Attributes:
        name: What it is of.
        target: What it was compiled for, such as ``sm_90a``.
        kernels: One per tiling, in the manifest's order.
        failures: (tiling, reason) of those that were not exported.

    Raises:
        ToolchainError: The manifest or the library is missing, damaged, or of another version.
    """

    def __init__(self, manifest: Path) -> None:
        path = manifest / "manifest.json" if manifest.is_dir() else manifest
        with _whole(path):
            self._fill(path, _read(path))

    def _fill(self, path: Path, content: Mapping[str, Any]) -> None:
        self.name, self.target = str(content["name"]), str(content["target"])
        self.failures = [(row["tiling"], row["reason"]) for row in content["failures"]]
        if content["library"] is None:
            why = self.failures[0][1] if self.failures else "nothing was exported"
            raise ToolchainError(f"{path}: no tiling of {self.name} was exported: {why}")
        library = _open(path.parent / content["library"], content["sha256"])
        self.kernels = [Kernel(self, library, row) for row in content["kernels"]]

    def require_device(self, device: torch.device) -> None:
        """Raise ToolchainError unless the device is of the arch that was compiled for."""
        major, minor = torch.cuda.get_device_capability(device)
        if f"sm_{major}{minor}" != base_arch(self.target):
            raise ToolchainError(
                f"{self.name} was compiled for {self.target}, and {device} is sm_{major}{minor}"
            )


@contextlib.contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Say in one sentence what a manifest lacks, or has of another kind than it should."""
    try:
        yield
    except InputError as error:
        raise ToolchainError(f"{path} cannot be read as a manifest: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        said = f"{type(error).__name__}: {error}"
        raise ToolchainError(f"{path} cannot be read as a manifest: {said:.200}") from error


def _read(path: Path) -> dict[str, Any]:
    content = inputs.read_json(path)
    if (version := content["schema_version"]) != SCHEMA_VERSION:
        raise ToolchainError(
            f"{path} has schema version {version!r:.40}, and this loader reads {SCHEMA_VERSION}"
        )
    return dict(content)


def _open(path: Path, sha256: str) -> ctypes.CDLL:
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ToolchainError(f"{path} cannot be read: {error.strerror}") from error
    if found != sha256:
        raise ToolchainError(f"{path} is not the library of its manifest (another sha256)")
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise ToolchainError(f"{path} cannot be loaded: {error}") from error


class Kernel:
    """One exported tiling; call it with its tensors and numbers in the order of the host function.

    Attributes:
        tiling: The tiling's fields.
        registers: Registers per thread of each device kernel.
        shared_bytes: Shared memory per block of each device kernel.
    """

    def __init__(self, library: Library, code: ctypes.CDLL, row: Mapping[str, Any]) -> None:
        self.library = library
        self.tiling: dict[str, Any] = dict(row["tiling"])
        self.registers, self.shared_bytes = tuple(row["registers"]), tuple(row["shared_bytes"])
        self.arguments: list[dict[str, Any]] = [_argument(about) for about in row["arguments"]]
        self._launch = getattr(code, row["symbol"])
        self._launch.restype = None
        self._init = getattr(code, f"_mlir_{row['prefix']}_cuda_init")
        self._load = getattr(code, f"_mlir_{row['prefix']}_cuda_load_to_device")
        self._module = ctypes.c_void_p(0)
        self._devices: set[int] = set()

    def __call__(self, *values: torch.Tensor | float) -> None:
        """Check the arguments and launch on the current stream."""
        self.bind(*values)()

    def bind(self, *values: torch.Tensor | float) -> Callable[[], None]:
        """Check the arguments once; the result launches with them on the then current stream.

        Raises:
            ToolchainError: An argument does not fit, or the library does not fit the device.
        """
        device = self._checked(values)
        self._prepare(device)
        packed = [pack(about, value) for about, value in zip(self.arguments, values, strict=True)]
        stream, status = ctypes.c_void_p(0), ctypes.c_int32(0)
        cells = [*packed, stream, status]
        pointers = (ctypes.c_void_p * len(cells))(*map(ctypes.addressof, cells))

        def run() -> None:
            stream.value = torch.cuda.current_stream(device).cuda_stream
            with torch.cuda.device(device):
                self._launch(pointers, ctypes.c_int32(len(cells)))
            _require(status.value, f"launching {self.library.name}")

        run.keeps = (cells, values)  # type: ignore[attr-defined]
        return run

    def _checked(self, values: Sequence[torch.Tensor | float]) -> torch.device:
        if len(values) != len(self.arguments):
            names = ", ".join(about["name"] for about in self.arguments)
            raise ToolchainError(
                f"{self.library.name} takes {len(self.arguments)} arguments ({names}), and "
                f"{len(values)} are given"
            )
        for about, value in zip(self.arguments, values, strict=True):
            if problem := misfit(about, value):
                raise ToolchainError(f"{self.library.name}: {about['name']} {problem}")
        devices = {value.device for value in values if isinstance(value, torch.Tensor)}
        if len(devices) != 1 or next(iter(devices)).type != "cuda":
            named = ", ".join(sorted(map(str, devices))) or "none"
            raise ToolchainError(
                f"{self.library.name} needs its tensors on one GPU, and they are on {named}"
            )
        return devices.pop()

    def _prepare(self, device: torch.device) -> None:
        """Load the device code, once per device."""
        index = torch.cuda.current_device() if device.index is None else device.index
        if index in self._devices:
            return
        self.library.require_device(device)
        self.load(index)
        self._devices.add(index)

    def load(self, device: int) -> None:
        """Hand the device code to the driver.

        Raises:
            ToolchainError: The driver refuses it, or there is none.
        """
        status, index = ctypes.c_int32(0), ctypes.c_int32(device)
        module = ctypes.pointer(self._module)
        cells: list[Any] = [module, status]
        if not self._devices:
            self._init((ctypes.c_void_p * 2)(*map(ctypes.addressof, cells)))
            _require(status.value, f"loading {self.library.name}")
        cells = [module, index, status]
        self._load((ctypes.c_void_p * 3)(*map(ctypes.addressof, cells)))
        _require(status.value, f"loading {self.library.name} on GPU {device}")


def _argument(about: Mapping[str, Any]) -> dict[str, Any]:
    """An argument of the manifest with all that a launch asks of it."""
    if about["kind"] == "scalar" and about["dtype"] not in _SCALARS:
        raise ValueError(f"no number is a {about['dtype']!r:.40}")
    wanted = {"scalar": ("dtype",), "tensor": _TENSOR}[about["kind"]]
    return {name: about[name] for name in ("kind", "name", *wanted)}


def _require(status: int, doing: str) -> None:
    if status:
        raise ToolchainError(f"{doing} ended with CUDA error {status}")


def misfit(about: Mapping[str, Any], value: object) -> str | None:
    """What is wrong with a value for an argument of the manifest; None when it fits."""
    if about["kind"] == "scalar":
        allowed, _ = _SCALARS[about["dtype"]]
        fits = isinstance(value, allowed) and not isinstance(value, bool)
        return None if fits else f"must be a number ({about['dtype']}), and is {value!r}"
    if not isinstance(value, torch.Tensor):
        return f"must be a tensor, and is {type(value).__name__}"
    if str(value.dtype) != f"torch.{about['dtype']}":
        return f"must be {about['dtype']}, and is {str(value.dtype).removeprefix('torch.')}"
    if value.ndim != len(about["shape"]):
        return f"must have {len(about['shape'])} axes, and has {value.ndim}"
    return _misfit_layout(about, value)


def _misfit_layout(about: Mapping[str, Any], value: torch.Tensor) -> str | None:
    for axis, (extent, wanted) in enumerate(zip(value.shape, about["shape"], strict=True)):
        if wanted is not None and extent != wanted:
            return f"must have {wanted} elements along axis {axis}, and has {extent}"
        if wanted is None and extent % about["multiple_of"]:
            return (
                f"must have a multiple of {about['multiple_of']} elements along axis {axis}, and "
                f"has {extent}"
            )
    rows = zip(strides_of(value), about["strides"], about["stride_multiples"], strict=True)
    for axis, (stride, wanted, unit) in enumerate(rows):
        if value.shape[axis] > 1 and wanted is not None and stride != wanted:
            return f"must have stride {wanted} along axis {axis}, and has {stride}"
        if wanted is None and stride % unit:
            return f"must have a multiple of {unit} as stride of axis {axis}, and has {stride}"
    if value.data_ptr() % about["alignment"]:
        return f"must start at a multiple of {about['alignment']} bytes"
    return None


def pack(about: Mapping[str, Any], value: Any) -> Any:
    """The C value of an argument: a number, or a struct of address, extents and strides."""
    if about["kind"] == "scalar":
        return _SCALARS[about["dtype"]][1](value)
    shape = _given(value.shape, about["shape"])
    strides = _given(strides_of(value), about["strides"])
    fields: list[tuple[str, Any]] = [("data", ctypes.c_void_p)]
    if shape:
        fields.append(("shape", _INTEGERS[about["shape_bits"]] * len(shape)))
    if strides:
        fields.append(("strides", _INTEGERS[about["stride_bits"]] * len(strides)))
    packed = type("Tensor", (ctypes.Structure,), {"_fields_": fields})()
    packed.data = value.data_ptr()
    for name, content in (("shape", shape), ("strides", strides)):
        if content:
            getattr(packed, name)[:] = content
    return packed


def _given(values: Sequence[int], fixed: Sequence[int | None]) -> list[int]:
    return [value for value, wanted in zip(values, fixed, strict=True) if wanted is None]
