"""Runs a compiled CuTe host function and returns its launches, without running the kernels.

Fingerprints compare these: grid, block, cluster, shared memory and parameter bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mla_var3.emulator import host_engines
from mla_var3.emulator.emulation import Call, Emulation, emulating
from mla_var3.emulator.machine import Dim3
from mla_var3.errors import EmulatorError
from mla_var3.gpuless.ptx import parameters


@dataclass(frozen=True)
class Dispatch:
    """One launch that a host function asks for.

    Attributes:
        kernel: Name of the device kernel, as in the PTX.
        grid: Blocks per axis.
        block: Threads per axis.
        cluster: Blocks of a cluster per axis.
        shared_bytes: Dynamic shared memory per block.
        parameters: The kernel's parameters as bytes, addresses and tensor maps included.
    """

    kernel: str
    grid: Dim3
    block: Dim3
    cluster: Dim3
    shared_bytes: int
    parameters: tuple[bytes, ...]


class _Noted(Emulation):
    """An emulation that keeps what it is asked to launch, and touches no memory."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.dispatches: list[Dispatch] = []

    def launch(self, text: str, call: Call) -> None:
        sizes = [parameter.size for parameter in parameters(text)[call.kernel]]
        values = tuple(call.argument(i, size) for i, size in enumerate(sizes))
        self.dispatches.append(
            Dispatch(call.kernel, call.grid, call.block, call.cluster, call.shared, values)
        )


def dispatches(module: str, text: str, arguments: Sequence[Any]) -> list[Dispatch]:
    """The launches of a host function, in order.

    Args:
        module: The host code, in MLIR's LLVM dialect.
        text: The PTX of its kernels.
        arguments: C values of its arguments, without the stream; addresses need not be real.

    Raises:
        EmulatorError: The module has no host function, or the function fails.
    """
    with emulating(kind=_Noted) as noted:
        assert isinstance(noted, _Noted)
        host_engines.call(noted, module, text, arguments)
    if not noted.dispatches:
        raise EmulatorError("the host function launches nothing")
    return noted.dispatches
