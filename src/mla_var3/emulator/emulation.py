"""An emulation: what launches inside one context gave, whichever runtime asks for them.

``emulating`` opens it; ``active`` is the one that is open.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from mla_var3.emulator.children import Children, Told
from mla_var3.emulator.clusters import Launch
from mla_var3.emulator.count import Counts
from mla_var3.emulator.diagnostics import Diagnostic
from mla_var3.emulator.machine import Dim3
from mla_var3.emulator.options import Options
from mla_var3.emulator.program import Program
from mla_var3.emulator.regions import Region
from mla_var3.emulator.turns import resident
from mla_var3.emulator.ways import Asked, Repeats
from mla_var3.errors import EmulatorError
from mla_var3.gpuless import streams
from mla_var3.gpuless.device import Device, capability
from mla_var3.gpuless.ptx import parse
from mla_var3.gpuless.scripts import Ended

#: Kernels that are kept lowered, for emulations that launch them again.
PROGRAMS = 64


class Call(Protocol):
    """A launch that a runtime asks for: its shape, and its arguments as bytes."""

    @property
    def kernel(self) -> str: ...
    @property
    def grid(self) -> Dim3: ...
    @property
    def block(self) -> Dim3: ...
    @property
    def cluster(self) -> Dim3: ...
    @property
    def shared(self) -> int: ...
    @property
    def overlaps(self) -> bool: ...
    @property
    def cooperative(self) -> bool: ...
    @property
    def compiled(self) -> bool: ...
    def argument(self, i: int, size: int, /) -> bytes: ...


class Emulation:
    """What the launches inside an ``emulate`` block gave.

    Attributes:
        options: How kernels are run; may be changed between launches.
        others: Further ways in which each launch is run first, on memory that is put back.
        where_quick: Ways for launches that synchronize and are soon done.
        launches: One entry per launch and way, in order; that of ``options`` is the last.
        before: The launch before the first one, which that may overlap.
        children: What was launched by processes that the program started.
        device: The GPU that host functions see.
        ended: How a script ended which ran in it.
    """

    def __init__(self, options: Options, others: Sequence[Options] = ()) -> None:
        self.options, self.others = options, tuple(others)
        self.where_quick: tuple[Options, ...] = ()
        self.launches: list[Launch] = []
        self.before: Launch | None = None
        self.children: Children | None = None
        self.launching = False
        self.repeats = Repeats()
        self.device = self.device_of("sm_90a")
        #: Whether the host asked how many multiprocessors there are: then a grid may be as large
        #: as those of the emulated device hold.
        self.counted = False
        self.failure: BaseException | None = None
        self.ended = Ended()
        self.programs: dict[tuple[str, str], Program] = {}
        #: Bytes of shared memory that the launches of a program ask for.
        self.asked: dict[tuple[str, str], int] = {}
        self.memory: dict[int, tuple[int, str, Any, bool]] = {}
        #: Applied to a PTX text before it is run; for experiments.
        self.patch: Callable[[str], str] | None = None

    def device_of(self, arch: str) -> Device:
        """The GPU that programs see."""
        count = self.options.multiprocessors
        return Device(capability(arch), count, counted=self.count_asked)

    def count_asked(self) -> int:
        """How many multiprocessors the emulated device says it has, to a host that asks."""
        self.counted = True
        return self.options.multiprocessors

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """Findings of all launches, those of the program's other processes among them."""
        here = [d for launch in self.launches for d in launch.diagnostics]
        return here + [d for told in self.elsewhere for d in told.diagnostics]

    @property
    def elsewhere(self) -> list[Told]:
        """What launches of the program's other processes came to."""
        return self.children.heard() if self.children else []

    def refusal(self) -> BaseException | None:
        """Why a launch was not run, here or in another process; told once."""
        failure, self.failure = self.failure, None
        if failure is None and self.children and not self.children.reported:
            said = self.children.refusal()
            failure, self.children.reported = EmulatorError(said) if said else None, bool(said)
        return failure

    @property
    def counts(self) -> list[Counts]:
        """Counters of each launch."""
        return [launch.counts for launch in self.launches]

    @property
    def flops(self) -> int:
        """Floating point operations of all launches."""
        return sum(c.total_flops for c in self.counts)

    def bytes(self, space: str) -> int:
        """Bytes that all launches moved in a space, such as ``global read``."""
        return sum(c.total_bytes(space) for c in self.counts)

    def own(self, tensor: Any, unwritten: bool = False) -> None:
        """Let kernels touch a tensor's memory; ``unwritten`` marks an output that holds nothing."""
        storage = tensor.untyped_storage()
        label = f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
        if storage.nbytes():
            old = self.memory.get(storage.data_ptr())
            fresh = unwritten or (old is not None and old[3])
            self.memory[storage.data_ptr()] = (storage.nbytes(), label, storage, fresh)

    def launch(self, text: str, call: Call) -> None:
        """Run a launch that a host function, or another runtime, asks for."""
        if self.patch is not None:
            text = self.patch(text)
        key = (text, call.kernel)
        if key not in self.programs:
            self.programs[key] = _program(*key)
        program = self.programs[key]
        self.asked[key] = call.shared
        if call.cooperative:
            self._require_room(program, call)
        block = bytearray(program.kernel.parameter_bytes)
        for i, p in enumerate(program.kernel.parameters):
            block[p.offset : p.offset + p.size] = call.argument(i, p.size)
        shape = (call.grid, call.block, call.cluster, call.shared)
        how = call.overlaps, call.compiled
        streams.submit(functools.partial(self._run, program, block, shape, *how))

    def _require_room(self, program: Program, call: Call) -> None:
        """Raise where a GPU cannot hold all blocks of a cooperative launch at once."""
        each = math.prod(call.cluster)
        asked = math.prod(call.grid) // each
        room = resident(program, call.block, each, call.shared, self.options)
        if asked > room:
            unit = "blocks" if each == 1 else f"clusters of {each} blocks"
            raise EmulatorError(
                f"{call.kernel} is launched cooperatively with {asked} {unit}, and the GPU holds "
                f"{room} at the same time"
            )

    def _run(
        self,
        program: Program,
        block: bytearray,
        shape: tuple[Dim3, Dim3, Dim3, int],
        overlaps: bool,
        compiled: bool,
    ) -> None:
        """Run a launch in all ways that are asked."""
        last = self.launches[-1] if self.launches else self.before
        after = last if overlaps else None
        regions = [
            Region(base, n, label, fresh) for base, (n, label, _, fresh) in self.memory.items()
        ]
        asked = Asked(program, bytes(block), shape, after, self.counted)
        first, others, more = (
            [dataclasses.replace(o, compiled=compiled) for o in ways]
            for ways in ((self.options,), self.others, self.where_quick)
        )
        self.launching = True
        try:
            new = self.repeats.run(asked, regions, first[0], others, more)
        finally:
            self.launching = False
        self.launches += new
        if self.children:
            self.children.tell(new)
        if last is not None:
            last.grid_before = None  # The next one comes after this, and it takes memory.
        done = self.launches[-1]
        for line in done.printed:
            print(line, end="")
        # What one launch wrote, the next may read.
        for region in regions:
            if region.known is not None and region.known.any():
                n, label, keep, _ = self.memory[region.base]
                self.memory[region.base] = (n, label, keep, False)


def _program(text: str, kernel: str) -> Program:
    """A kernel lowered, as for emulations before this one unless it holds memory of theirs."""
    known = _lowered(text, kernel)
    return Program(parse(text), kernel) if known.storage else known


@functools.lru_cache(maxsize=PROGRAMS)
def _lowered(text: str, kernel: str) -> Program:
    return Program(parse(text), kernel)


_active: Emulation | None = None


def active() -> Emulation | None:
    """The emulation that is open, if one is."""
    return _active


@contextlib.contextmanager
def emulating(
    options: Options | None = None,
    others: Sequence[Options] = (),
    kind: type[Emulation] = Emulation,
) -> Iterator[Emulation]:
    """Launches inside this block come here; for host code that is compiled already.

    Args:
        options: How to run.
        others: Further ways in which each launch is run first.
        kind: What becomes of a launch: it is run, unless a subclass says otherwise.

    Yields:
        The findings, counts and texts of every launch; ``host_engines.call`` runs host code.

    Raises:
        EmulatorError: A launch is not possible, or a kernel meets what is not emulated.
    """
    global _active
    if _active is not None:
        raise EmulatorError("emulate() is active already")
    _active = emulation = kind(options or Options(), others)
    try:
        yield emulation
    except Exception as error:
        if emulation.failure is not None:
            raise emulation.failure from error
        raise
    finally:
        _active = None
    if (refused := emulation.refusal()) is not None:
        raise refused
