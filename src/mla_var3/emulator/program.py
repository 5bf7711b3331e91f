"""Compiles a PTX kernel to a ``Program``: registers as array rows, segments as Python functions.

The machine runs it. Nothing in it depends on a launch, so that all launches share one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from types import CodeType
from typing import Any, TypeVar

import numpy as np

from mla_var3.emulator.lower import Writer, forms, lower
from mla_var3.emulator.lower.batches import batched
from mla_var3.emulator.units.base import Unit, UnitText
from mla_var3.emulator.units.registry import UNITS
from mla_var3.emulator.windows import SHARED_START
from mla_var3.gpuless.ptx import Instruction, Kernel, Module, bits, refused

#: Instructions that some threads may run while the others of their warps wait behind them.
SHORT = 64
#: Branches that may stand between a ``try_wait`` and its next try.
RETRY = 4
Text = TypeVar("Text", bound=UnitText)
#: Class of a register by its width in bits: the row arrays of the machine.
CLASSES = {1: "p", 8: "h", 16: "h", 32: "r", 64: "q"}
#: How a cluster asks for the work of another.
CLAIM = "clusterlaunchcontrol.try_cancel"
#: Instructions at which a fragment may stop; the scheduler runs them itself.
BLOCKING = (
    "bra",
    "brx",
    "ret",
    "exit",
    "bar.sync",
    "bar.arrive",
    "bar.red",
    "bar.cta",
    "barrier.sync",
    "barrier.red",
    "barrier.arrive",
    "barrier.cta",
    "barrier.cluster",
    "mbarrier.try_wait",
    "mbarrier.test_wait",
    "trap",
    "call",
)


@dataclass
class Segment:
    """Instructions from ``start`` up to ``end`` that run without a stop.

    ``batched`` is its source for threads that are a slice. ``reads`` and ``writes`` have the rows
    of asynchronous units that it touches, and where first.
    """

    start: int
    end: int
    together: bool
    source: str
    batched: str
    code: dict[bool, CodeType] = field(default_factory=dict)
    reads: dict[int, int] = field(default_factory=dict)
    writes: dict[int, int] = field(default_factory=dict)


class Program:
    """A kernel lowered; it does not depend on a launch and is used by all of them."""

    def __init__(self, module: Module, name: str | None = None) -> None:
        self.kernel: Kernel = module.kernel(name)
        with refused(f"kernel {self.kernel.name} cannot be lowered"):
            self._lower(module)

    def _lower(self, module: Module) -> None:
        self.target = module.target
        self.rows: dict[str, tuple[str, int]] = {}
        self.counts = {"p": 0, "h": 0, "r": 0, "q": 0}
        self.constants: dict[str, Any] = {}
        self.storage: dict[str, np.ndarray[Any, Any]] = {}
        self.placed, self.static_shared = _shared_layout(self.kernel)
        self.local, self.local_bytes = _local_layout(self.kernel)
        #: Where CTAs work in pairs, shared addresses name their CTA: a mask of bits finds a peer.
        self.pairs = any("cta_group::2" in i.parts for i in self.kernel.instructions)
        #: Clusters take the work of others that have not begun.
        self.waits_for_grid = any(i.op == "griddepcontrol.wait" for i in self.kernel.instructions)
        self.claims = any(i.op.startswith(CLAIM) for i in self.kernel.instructions)
        self.blocking = {i.pc for i in self.kernel.instructions if _branches(i)}
        #: Waits asked once, since their no only leads back to them, and the branch behind each.
        self.retries = {
            i.pc: i.pc + 1 for i in self.kernel.instructions if _only_tries_again(self.kernel, i)
        }
        self._units()
        self.atomics = [i.pc for i in self.kernel.instructions if i.parts[0] in ("atom", "red")]
        self.writer = Writer(self)
        self.segments = self._segments(set())
        #: Of branches that have run, whether they jump over a few instructions only.
        self.short: dict[int, bool] = {}
        #: The most chains of events that a cluster had so far: the next one has room for them.
        self.chains = 0
        self._rest()
        self.narrowest = _narrowest_shared(self.kernel)
        self.spins = any(_talks(i) for i in self.kernel.instructions)

    def row(self, name: str) -> tuple[str, int] | None:
        """Class and number of a register's row; None for what is not a register."""
        if (found := self.rows.get(name)) is not None:
            return found
        kind = self.kernel.register_type(name)
        if kind is None or bits(kind) not in CLASSES:
            return None
        group = CLASSES[bits(kind)]
        self.rows[name] = (group, self.counts[group])
        self.counts[group] += 1
        return self.rows[name]

    @cache  # noqa: B019  # A program lives as long as its names.
    def row_names(self, stem: str, count: int) -> list[str]:
        """What lowered code calls the rows of a bank."""
        return [f"{stem}{i}" for i in range(count)]

    def address_of(self, variable: str) -> int:
        """Where a variable of the module lies in this process; its memory is made on first use."""
        if variable not in self.storage:
            declared = self.kernel.variables[variable]
            block = np.zeros(declared.size + 16, np.uint8)
            block[: len(declared.init)] = np.frombuffer(declared.init, np.uint8)
            self.storage[variable] = block
        return int(self.storage[variable].ctypes.data)

    def _units(self) -> None:
        """What each unit takes from the text, and which unit blocks where."""
        instructions = self.kernel.instructions
        kinds = sorted({unit.text for unit in UNITS} - {UnitText}, key=lambda k: k.__name__)
        #: Threads that run an instruction as one, where these are more than one.
        self.lanes = {i.pc: n for i in instructions if (n := max(k.lanes(i) for k in kinds)) > 1}
        #: Units that run blocking instructions.
        self.blockers: dict[int, type[Unit]] = {
            i.pc: unit
            for unit in UNITS
            if unit.text.blocking
            for i in instructions
            if i.op.startswith(unit.text.blocking) and forms.runs(i.op)
        }
        self.blocking |= self.blockers.keys()
        stops = frozenset(self.blocking | self.lanes.keys())
        self.texts = [kind(self.kernel, stops) for kind in kinds]
        #: Rows that units use after the instruction that names them: only these are watched.
        self.watched = self._rows([x for text in self.texts for x in text.registers()])
        self.moved = self._rows([x for text in self.texts for x in text.moved()])

    def _rows(self, names: list[str]) -> frozenset[int]:
        return frozenset(found[1] for x in names if (found := self.row(x)) is not None)

    def text(self, kind: type[Text]) -> Text:
        """What a unit took from the text."""
        return next(text for text in self.texts if isinstance(text, kind))

    def _rest(self) -> None:
        """Rows for registers that only the scheduler reads or writes."""
        for i in self.kernel.instructions:
            for text in (*i.args, i.guard or ""):
                for name in re.findall(r"[%\w$@]+", text):
                    self.row(name)

    def passes(self, pc: int, target: int) -> bool:
        """Whether a branch at ``pc`` only jumps over a few instructions at which nobody waits."""
        found = self.short.get(pc)
        if found is None:
            between = range(pc + 1, min(target, pc + 1 + SHORT))
            parts = [self.segments[k] for k in between if k in self.segments]
            found = self.short[pc] = (
                0 < target - pc - 1 <= SHORT
                and self.blocking.isdisjoint(between)
                and not any(part.together or part.end > target for part in parts)
            )
        return found

    def cut(self, at: set[int]) -> None:
        """Let segments end before these instructions, so that a run can stop at them."""
        if any(pc not in self.segments and pc not in self.blocking for pc in at):
            self.segments = self._segments(at)
            self.short.clear()

    def _segments(self, cuts: set[int]) -> dict[int, Segment]:
        instructions = self.kernel.instructions
        leaders = {0} | set(self.kernel.labels.values()) | cuts
        for i in instructions:
            if i.pc in self.blocking:
                leaders |= {i.pc, i.pc + 1}
            elif any(text.opens(i) for text in self.texts):
                leaders.add(i.pc)
            if any(text.closes(i) for text in self.texts):
                leaders.add(i.pc + 1)
        starts = sorted(x for x in leaders if x < len(instructions))
        out = {}
        for a, b in zip(starts, [*starts[1:], len(instructions)], strict=True):
            if a not in self.blocking:
                out[a] = self._segment(a, b)
        return out

    def _segment(self, a: int, b: int) -> Segment:
        part = self.kernel.instructions[a:b]
        bodies = [lower(self.writer, instruction) for instruction in part]
        source = _function([line for body in bodies for line in body])
        lines = batched(bodies, self.writer)
        segment = Segment(a, b, a in self.lanes, source, _function(lines) if lines else source)
        for i in part:
            self._uses(i, segment)
        return segment

    def _uses(self, i: Instruction, segment: Segment) -> None:
        """Note which watched rows a segment reads or writes: those that must wait for a unit."""
        watched = self.moved if i.parts[0] == "mov" else self.watched
        if not watched or not all(text.touches(i) for text in self.texts):
            return
        names = re.findall(r"%[\w$@]+", " ".join(i.args))
        for k, name in enumerate(names):
            found = self.rows.get(name)
            if found and found[0] == "r" and found[1] in watched:
                target = k == 0 and not i.args[0].startswith("[")
                (segment.writes if target else segment.reads).setdefault(found[1], i.pc)


def _function(lines: list[str]) -> str:
    return "\n".join(["def f(s):", *("  " + line for line in lines), "  pass"])


def _branches(i: Instruction) -> bool:
    """Whether the scheduler itself runs an instruction: a fragment may stop or split at it."""
    waits = i.op.startswith(BLOCKING) and i.op != "bar.warp.sync"
    return waits and forms.runs(i.op)


def _only_tries_again(kernel: Kernel, i: Instruction) -> bool:
    """Whether a ``try_wait`` that is answered no leads back to itself past branches alone."""
    if not i.op.startswith("mbarrier.try_wait") or i.guard is not None:
        return False
    instructions, at = kernel.instructions, i.pc + 1
    for _ in range(RETRY):
        if at >= len(instructions) or instructions[at].parts[0] != "bra":
            return False
        jump = instructions[at]
        if jump.guard not in (None, i.args[0]):
            return False
        taken = jump.guard is None or jump.negated
        at = kernel.labels.get(jump.args[0], 0) if taken else at + 1
        if at == i.pc:
            return True
    return False


def _shared_layout(kernel: Kernel) -> tuple[dict[str, int], int]:
    """Address of each shared variable, and where dynamic shared memory begins."""
    shared = [v for v in kernel.variables.values() if v.space == "shared"]
    at, placed = SHARED_START, {}
    for v in sorted(shared, key=lambda v: v.size == 0):
        at = -(-at // v.align) * v.align
        placed[v.name] = at
        at += v.size
    return placed, at


def _local_layout(kernel: Kernel) -> tuple[dict[str, int], int]:
    """Offset of each local variable (and of the parameters of calls) in a thread's frame."""
    at, placed = 0, {}
    for v in kernel.variables.values():
        if v.space in ("local", "param"):
            at = -(-at // max(v.align, 8)) * max(v.align, 8)
            placed[v.name] = at
            at += v.size
    return placed, at


def _narrowest_shared(kernel: Kernel) -> int:
    """Bytes of the narrowest generic access to shared memory: what a race is looked for in."""
    narrow = 4
    for i in kernel.instructions:
        if i.parts[0] in ("ld", "st", "atom", "red") and not {"global", "param", "local"} & set(
            i.parts
        ):
            narrow = min(narrow, max(1, bits(i.parts[-1]) // 8))
    return narrow


def _talks(i: Instruction) -> bool:
    """Whether a kernel's CTAs may wait for each other through global memory."""
    remote = not any(p.startswith("shared") for p in i.parts)
    if i.parts[0] in ("atom", "red") and remote:
        return True
    return i.parts[0] == "ld" and remote and bool({"volatile", "acquire", "relaxed"} & set(i.parts))
