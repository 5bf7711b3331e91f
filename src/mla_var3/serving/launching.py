"""Launches serving kernels: compiled ones on a GPU, emulated ones on CPU tensors."""

from __future__ import annotations

import functools
import importlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from mla_var3.errors import ToolchainError
from mla_var3.loader import Kernel, Library
from mla_var3.serving.kinds import Kind

#: Where a wheel that was built to serve has its kernels, a folder per arch.
SHIPPED = Path(__file__).parent / "compiled"
#: What compiles and emulates, where it is installed.
COMPILER = "mla_var3.kernel.cute_python.mla.flash_mla.served"
#: SMs that are emulated: blocks without work cost time.
EMULATED_SMS = 4
#: Bytes that tensors of compiled kernels begin at multiples of.
ALIGNMENT = 16
#: The one GPU that has these kernels.
ARCH = "sm_90"


def launch(kind: Kind, *values: torch.Tensor | float, written: Sequence[torch.Tensor]) -> None:
    """Run a kernel on the current stream, or emulated where its tensors are on a CPU."""
    first = values[0]
    assert isinstance(first, torch.Tensor)
    # Tests may run where tensors only say that they are on a GPU.
    with torch._C.DisableTorchFunction():
        if first.is_cuda:
            run(kernel_of(kind, first.device), values, written)
        else:
            _compiler(kind).emulate(kind, values, written)


def run(
    kernel: Callable[..., None],
    values: Sequence[torch.Tensor | float],
    written: Sequence[torch.Tensor],
) -> None:
    """Call a compiled kernel, which takes tensors that begin at multiples of 16 bytes.

    Lengths, tables and sums that begin elsewhere (a slice of a server's, the LSE of a second head
    of the cache) are copied on the current stream. Queries and caches are not: ``checks`` refuses
    those.
    """
    given = [_aligned(value) for value in values]
    kernel(*given)
    outputs = {x.data_ptr() for x in written}
    for value, copy in zip(values, given, strict=True):
        if isinstance(value, torch.Tensor) and copy is not value and value.data_ptr() in outputs:
            value.copy_(copy)


def _aligned(value: Any) -> Any:
    small = isinstance(value, torch.Tensor) and value.dtype in (torch.int32, torch.float32)
    if not small or value.data_ptr() % ALIGNMENT == 0:
        return value
    return value.clone(memory_format=torch.contiguous_format)


def sms_of(device: torch.device) -> int:
    """SMs of a GPU, or those that are emulated."""
    with torch._C.DisableTorchFunction():
        if device.type != "cuda":
            return EMULATED_SMS
        return int(torch.cuda.get_device_properties(device).multi_processor_count)


@functools.cache
def kernel_of(kind: Kind, device: torch.device) -> Kernel:
    """A kernel for a GPU: the one shipped, else one made by the compiler of this machine.

    Raises:
        ToolchainError: There is none for that GPU, or neither it nor a compiler is here.
    """
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability(device))
    if arch != ARCH:
        raise ToolchainError(
            f"{device} is {arch}, and serving kernels are built for {ARCH}a (H100, H200) alone; "
            "FlashMLA and FlashInfer have kernels for other GPUs"
        )
    shipped = SHIPPED / f"{ARCH}a" / kind.key
    if shipped.is_dir():
        return Library(shipped).kernels[0]
    with tempfile.TemporaryDirectory() as folder:
        _compiler(kind).compiled(kind, arch, Path(folder))
        return Library(Path(folder)).kernels[0]  # stays loaded when its file is gone


def _compiler(kind: Kind) -> Any:
    try:
        return importlib.import_module(COMPILER)
    except ImportError as error:
        raise ToolchainError(
            f"{kind.key} is not among the kernels shipped in {SHIPPED}, and the CuTe DSL, "
            f"which would make it, is not installed ({error})"
        ) from error
