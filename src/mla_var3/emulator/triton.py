"""Runs Triton kernels without a GPU: a fake driver lets Triton compile, the emulator runs the PTX.

Triton asks a driver for its compile target and for launches. This driver names an emulated device
and takes each launch where Triton would hand it to CUDA.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from mla_var3.emulator.triton_arguments import packed, parameters, tensors
from mla_var3.errors import EmulatorError
from mla_var3.gpuless.device import Device

if TYPE_CHECKING:
    from mla_var3.emulator.emulation import Emulation

#: What ``cuobjdump --dump-resource-usage`` states of a kernel.
USAGE = re.compile(r"REG:(\d+) STACK:(\d+)")


def installed() -> bool:
    """Whether Triton is here; the project does not need it."""
    found = importlib.util.find_spec("triton")
    return found is not None and found.origin is not None  # A folder of that name is none.


@dataclass(frozen=True)
class Call:
    """One launch of a Triton kernel, as ``Emulation.launch`` takes it."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared: int
    arguments: Sequence[bytes]
    overlaps: bool = False
    cooperative: bool = False
    compiled: bool = True

    def argument(self, i: int, size: int) -> bytes:
        """Bytes of the ``i``-th kernel parameter; null of a scratch pointer that is not used."""
        found = self.arguments[i] if i < len(self.arguments) else b""
        return found[:size].ljust(size, b"\0")


class Launcher:
    """What Triton calls with the arguments of a launch."""

    def __init__(self, emulation: Emulation, src: Any, metadata: Any) -> None:
        self.emulation, self.metadata = emulation, metadata
        self.kinds = list(src.signature.values())

    def __call__(
        self, x: int, y: int, z: int, _: Any, ptx: str, *rest: Any
    ) -> None:  # rest: packed metadata, launch metadata, two hooks, then the arguments
        m = self.metadata
        if m.profile_scratch_size:
            raise EmulatorError(f"{m.name} writes a profile, which is not emulated for Triton")
        values = rest[4:]
        scratch = self._scratch(x * y * z * m.num_ctas)
        for tensor in tensors([*values, *scratch]):
            self.emulation.own(tensor)
        given = parameters(self.kinds, values, getattr(m, "tensordesc_meta", None))
        arguments = [packed(kind, value) for kind, value in given]
        arguments += [packed("*i8", tensor) for tensor in scratch]
        block, cluster = (32 * m.num_warps, 1, 1), (m.num_ctas, 1, 1)
        overlaps = bool(getattr(m, "launch_pdl", False))
        grid = (x * m.num_ctas, y, z)
        together = bool(getattr(m, "launch_cooperative_grid", False))
        call = Call(m.name, grid, block, cluster, m.shared, arguments, overlaps, together)
        self.emulation.launch(ptx, call)

    def _scratch(self, ctas: int) -> list[Any]:
        """Memory that the kernel asks for, from the allocator that the program has set."""
        m = self.metadata
        if not m.global_scratch_size:
            return []
        from triton.runtime import _allocation

        allocator: Any = _allocation._allocator
        allocate = allocator.get() if hasattr(allocator, "get") else allocator
        return [allocate(ctas * m.global_scratch_size, m.global_scratch_align, 0)]


class Driver:
    """A driver for an emulated device, as Triton asks for one."""

    def __init__(self, emulation: Emulation, device: Device) -> None:
        from triton.backends.compiler import GPUTarget

        major, minor = device.capability
        self.target = GPUTarget("cuda", major * 10 + minor, 32)
        properties = {
            "max_shared_mem": device.shared_per_block,
            "max_num_regs": 65536,
            "multiprocessor_count": device.multiprocessors,
            "warpSize": 32,
            "mem_clock_rate": 1,
            "mem_bus_width": 1,
            "sm_clock_rate": 1,
        }
        self.utils = SimpleNamespace(
            get_device_properties=lambda _: properties, unload_module=lambda _: None
        )
        self.launcher_cls = lambda src, metadata: Launcher(emulation, src, metadata)

    def get_current_target(self) -> Any:
        """What is compiled for."""
        return self.target

    def get_active_torch_device(self) -> Any:
        """Where tensors are made."""
        import torch

        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        """The module with events and streams."""
        import torch

        return torch.cuda

    def get_current_device(self) -> int:
        """The only one."""
        return 0

    def set_current_device(self, _: int) -> None:
        """There is one."""

    def get_current_stream(self, _: int) -> int:
        """The default one."""
        return 0

    def get_device_capability(self, *_: Any) -> tuple[int, int]:
        """That of the target."""
        major, minor = divmod(self.target.arch, 10)
        return major, minor

    def get_benchmarker(self) -> Callable[..., Any]:
        """One run in place of a timing, so that a tuner takes its first configuration."""
        return _once

    def get_empty_cache_for_benchmark(self) -> None:
        """Nothing is timed."""

    def clear_cache(self, _: Any) -> None:
        """Nothing is timed."""


def _once(function: Callable[[], Any], *_: Any, quantiles: Any = None, **__: Any) -> Any:
    function()
    return [1.0] * len(quantiles) if quantiles else 1.0


def _not_timed(mark: Any, *_: Any, **__: Any) -> None:
    """In place of a benchmark: nothing is timed here."""
    many = isinstance(mark.benchmarks, (list, tuple))
    for benchmark in mark.benchmarks if many else [mark.benchmarks]:
        print(f"benchmark {benchmark.plot_name} is not run: the emulator times nothing")


def _handles(self: Any) -> None:
    """In place of loading the binary: what is launched is the PTX.

    Raises:
        OutOfResources: The device has less shared memory; a tuner passes over the configuration.
    """
    from triton.runtime import driver
    from triton.runtime.errors import OutOfResources

    if self.module is None:
        most = driver.active.utils.get_device_properties(0)["max_shared_mem"]
        if self.metadata.shared > most:
            raise OutOfResources(self.metadata.shared, most, "shared memory")
        self._run = driver.active.launcher_cls(self.src, self.metadata)
        self.n_regs, self.n_spills = _registers(self.asm["cubin"])
        self.n_max_threads = 1024
        self.module, self.function = self.name, self.asm["ptx"]


def _registers(cubin: bytes) -> tuple[int, int]:
    """Registers per thread of a compiled kernel, and 4-byte words of its stack.

    Raises:
        EmulatorError: Triton's cuobjdump states neither.
    """
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
    found = USAGE.search(told.stdout)
    if found is None:
        raise EmulatorError(f"Triton's cuobjdump states no registers: {told.stderr.strip()}")
    return int(found[1]), int(found[2]) // 4


@contextlib.contextmanager
def triton_on_cpu(emulation: Emulation, device: Device) -> Iterator[None]:
    """Triton's kernels inside this block compile for ``device`` and run in ``emulation``."""
    import triton.testing
    from triton.compiler import CompiledKernel
    from triton.runtime import driver

    with contextlib.ExitStack() as stack:
        ours = Driver(emulation, device)
        for owner, name, value in (
            (driver, "_active", ours),
            (driver, "_default", ours),
            (CompiledKernel, "_init_handles", _handles),
            (triton.testing, "do_bench", _once),
            (triton.testing.Mark, "run", _not_timed),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        yield
