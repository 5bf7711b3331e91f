"""Thread scheduler of the emulator: picks which threads run next and reconverges diverged ones.

Without a seed the lowest program counter runs first, which brings diverged threads together again
in all code that compilers emit. With a seed the warpgroups are taken in an order drawn from it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator import blocking, stuck
from mla_var3.emulator.distinct import common
from mla_var3.emulator.fragments import MASK_OF_ALL, Fragment, lanes
from mla_var3.emulator.lower.base import MASKS
from mla_var3.emulator.lower.batches import scattered
from mla_var3.emulator.stops import describe, places
from mla_var3.emulator.units.base import WARPGROUP as GROUP
from mla_var3.gpuless.ptx import FAULTS

if TYPE_CHECKING:
    from mla_var3.emulator.machine import Machine

#: Segments after which a new order of the warpgroups is drawn.
REDRAW = 20
#: Segments that one fragment may run while others could: a spinning lane must not starve them.
PATIENCE = 4096
#: Segments of its cluster's turn that a look at a word which others write counts as: who asks again
#: and again has a short turn.
ASKING = 2000
#: Operand with the mask of the lanes that must be here.
MASK = {**MASKS, "bar": 0}
#: Without a seed the fragment that is behind goes first, but those that ask others go last.
BEHIND = operator.attrgetter("asks", "pc")


class Scheduler:
    """Runs the fragments of one cluster."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.program = machine.program
        self.atomics = np.array(self.program.atomics, np.int64)
        self.fragments: list[Fragment] = []
        wanted = machine.options.stop
        self.stops = places(self.program.kernel, wanted) if wanted else set()
        self.program.cut(self.stops)

    def start(self, seed: int | None) -> None:
        """All threads stand at the first instruction."""
        m = self.machine
        self.stuck = False
        #: Whether a warp has lost some of its lanes and not all.
        self.torn = False
        self.stopped = 0
        self.random = np.random.default_rng(seed) if seed is not None else None
        self.order = [0] * (int(m.place[-1]) + 1)
        self.drawn = self.turns = self.idle = 0
        self.last_progress = -1
        self.favored: Fragment | None = None
        cuts: Any = [] if self.random is None else np.flatnonzero(np.diff(m.place)) + 1
        self.fragments = [Fragment(m, 0, ids) for ids in np.split(m.ids, cuts)]
        #: Where the first other thread that could run stands; None where that must be looked up.
        self.behind: int | None = None
        #: Threads that ran what a branch jumps over, by where and who.
        self.parts: dict[tuple[int, tuple[int, int] | bytes, bytes], Fragment] = {}

    def wake(self, reason: str, place: int | None = None) -> None:
        """Fragments that slept for a reason, or for one place of it, look again."""
        for f in self.fragments:
            if f.wait == reason and (place is None or f.at in (None, place)):
                self.free(f)

    def free(self, fragment: Fragment) -> None:
        """A fragment need not wait any longer."""
        fragment.wait, self.behind = None, None

    # The loop ---------------------------------------------------------------------------------
    def run(self, quantum: int | None) -> bool:
        """Run until the end, a deadlock, or for ``quantum`` segments; whether it is over."""
        m = self.machine
        until = None if quantum is None else m.steps + m.asked + quantum
        while self.fragments:
            fragment = self._next()
            if fragment is None:
                if self._try_again():
                    continue
                stuck.deadlock(self)
                return True
            self._merge(fragment)
            running = self.favored or fragment
            try:
                self._advance(running, until)
            except FAULTS as fault:  # Of text that no compiler made.
                said = f"{type(fault).__name__}: {' '.join(str(fault).split())[:100]}"
                raise m.reporter.stop(running.pc, f"what follows cannot be run ({said})") from fault
            if m.steps > m.options.max_steps:
                raise stuck.endless(self)
            if until is not None and m.steps + m.asked >= until:
                return not self.fragments
        return True

    def _next(self) -> Fragment | None:
        if self.random is not None and self.drawn % REDRAW == 0:
            self.order = self.random.permutation(len(self.order)).tolist()
        self.drawn += 1
        ready = [f for f in self.fragments if f.wait is None]
        if not ready:
            return None
        best = ready[0]
        if len(ready) > 1:
            best = min(ready, key=BEHIND if self.random is None else self._rank)
            self.turns = self.turns + 1 if best is self.idle_fragment() else 0
            self._last = best
            if self.turns > PATIENCE:
                self.turns = 0
                best = max(ready, key=self._rank)
        return best

    def idle_fragment(self) -> Fragment | None:
        """The fragment that ran last."""
        return getattr(self, "_last", None)

    def _rank(self, f: Fragment) -> tuple[bool, int, int]:
        return (f.asks, self.order[f.place], f.pc)

    def asks(self, pc: int) -> None:
        """The running fragment looks at a word that others write; twice at one place is a loop."""
        self.machine.asked += ASKING
        f = self.running
        f.asks, f.asked = f.asked == pc, pc

    def _merge(self, fragment: Fragment) -> None:
        """Join all fragments at the same instruction; the result is ``favored``."""
        self.favored = fragment
        if len(self.fragments) == 1:
            fragment.wait = None
            return
        same = [
            f
            for f in self.fragments
            if f.pc == fragment.pc
            and f is not fragment
            and f.wait in (None, "converge")
            and (self.random is None or f.place == fragment.place)
        ]
        if same:
            for f in [*same, fragment]:
                self.fragments.remove(f)
            ids = np.sort(np.concatenate([fragment.ids, *(f.ids for f in same)]))
            self.favored = Fragment(self.machine, fragment.pc, ids)
            self.fragments.append(self.favored)

    def _try_again(self) -> bool:
        """Nothing can run: try_waits time out, once for each progress made."""
        sleepers = [f for f in self.fragments if f.wait == "mbarrier"]
        if not sleepers or self.last_progress == self.machine.progress:
            return False
        self.last_progress = self.machine.progress
        for f in sleepers:
            f.wait, f.tried = None, True
        return True

    def _advance(self, f: Fragment, until: int | None) -> None:
        """Run a fragment until it stops, splits, or another may run."""
        m, program = self.machine, self.program
        self.running, self.behind = f, None
        instructions = program.kernel.instructions
        while True:
            if f.pc >= len(instructions):
                self.exit(f)
                return
            if f.pc in self.stops:
                self._stop(f)
            if f.pc in program.blocking:
                m.steps += 1
                m.ticks += 1
                m.counts.segment(f.pc, f.pc + 1, len(f.warps), f.n)
                if not blocking.run(self, f, instructions[f.pc]) or f not in self.fragments:
                    return
            elif not self._segment(f):
                return
            if m.steps > m.options.max_steps or (until and m.steps + m.asked >= until):
                return
            if len(self.fragments) > 1 and not self._leads(f):
                return

    def _leads(self, f: Fragment) -> bool:
        """Whether the next choice is this fragment again, alone: nobody is as far behind."""
        self.turns += 1
        if self.random is not None or f.asks or self.turns > PATIENCE:
            return False
        if self.behind is None:
            ready = (o.pc for o in self.fragments if o is not f and o.wait in (None, "converge"))
            self.behind = min(ready, default=1 + len(self.program.kernel.instructions))
        return f.pc < self.behind

    def _stop(self, f: Fragment) -> None:
        """Print what there is to see, as often as the stop asks for."""
        m, wanted = self.machine, self.machine.options.stop
        if wanted is None or self.stopped >= wanted.times or f.tried or f.wait:
            return
        self.stopped += 1
        m.printed.append(describe(m, wanted, f))

    def _segment(self, f: Fragment) -> bool:
        """Run one segment; False where the fragment must wait for the rest of its warps."""
        m, segment = self.machine, self.program.segments[f.pc]
        if segment.together and not self._together(f):
            if self.program.lanes[f.pc] == GROUP:
                f.wait = "converge"
                return False
            return self.apart(f, self._here(f), self._segment)
        if m.checks and (segment.writes or (m.pending.count and segment.reads)):
            m.pending.watch(f.warps, segment)
        m.steps += 1
        count = segment.end - segment.start
        if m.timeline is not None:
            m.timeline.run(f.warps, m.ticks, m.ticks + count, f.pc)
        if m.trace is not None:
            m.trace.run(m.number, f.warps, segment.start, segment.end)
        m.ticks += count
        m.counts.segment(segment.start, segment.end, len(f.warps), f.n)
        self._function(f.pc, isinstance(f.s, slice))(f.s)
        f.pc = segment.end
        return True

    def _function(self, pc: int, whole: bool) -> Any:
        """A segment for threads that are a slice, or any others."""
        found = self.machine.functions.get((pc, whole))
        if found is None:
            segment = self.program.segments[pc]
            if whole not in segment.code:
                source = segment.batched if whole else scattered(segment.batched)
                segment.code[whole] = compile(source, f"<ptx#{pc}>", "exec")
            space: dict[str, Any] = {}
            exec(segment.code[whole], self.machine.names, space)
            found = self.machine.functions[pc, whole] = space["f"]
        return found

    def _together(self, f: Fragment) -> bool:
        """Whether all lanes that an instruction needs are here."""
        if self.program.lanes[f.pc] == GROUP:
            return f.full and f.group
        if f.full and not self.torn:
            return True
        return bool(self._here(f).all())

    def _here(self, f: Fragment) -> NDArray[np.bool_]:
        """Which threads have all lanes here that an instruction needs with each."""
        m, i = self.machine, self.program.kernel.instructions[f.pc]
        at = MASK.get(i.parts[0])
        if at is None or at >= len(i.args):
            return self.whole(f)
        warp, here = m.warp[f.ids], np.ones(f.n, bool)
        mask = np.broadcast_to(self.value(i.args[at], f), f.n).astype(np.int64)
        ended = []
        for w, named in sorted(set(zip(warp.tolist(), mask.tolist(), strict=True))):
            group = (warp == w) & (mask == named)
            away = named & ~lanes(m, group, f.ids) & MASK_OF_ALL
            if away & lanes(m, (m.warp == w) & m.alive):
                here &= ~group
            elif away & lanes(m, m.warp == w):
                ended.append(w)
        if ended and m.checks:
            m.reporter.add(
                "mask-mismatch",
                i.pc,
                f"the mask of warp {ended[0]} names lanes that have ended",
                who=m.who(f.s),
                missing="a mask of the lanes that execute it, or no lane that ends before",
            )
        return here

    def whole(self, f: Fragment) -> NDArray[np.bool_]:
        """Which threads have all live lanes of their warp here."""
        warp = self.machine.warp[f.ids]
        return np.bincount(warp)[warp] == np.array(self.machine.live)[warp]

    def apart(self, f: Fragment, here: NDArray[np.bool_], go: Callable[[Fragment], object]) -> bool:
        """Let those wait for the rest of their warp who lack it, and only the others go on, if any.

        These go on at once, or they would join the rest again.

        Returns:
            False: the fragment cannot go on.
        """
        f.wait = "converge"
        if not here.all() and here.any():
            part, rest = self.split(f, [(f.ids[here], f.pc), (f.ids[~here], f.pc)])
            rest.wait = "converge"
            go(part)
        return False

    def value(self, text: str, f: Fragment) -> Any:
        """A 32 or 64-bit operand for the threads of a fragment."""
        found = self.program.row(text)
        if found is None:
            return self.program.writer.immediate(text, "u32" if not text.startswith("-") else "s32")
        banks: dict[str, Any] = {"r": self.machine.r, "q": self.machine.q, "p": self.machine.p}
        rows = banks[found[0]]
        return rows[found[1]][f.s]

    def address(self, text: str, f: Fragment) -> Any:
        """Shared addresses of ``[register+offset]``; one where all threads have the same."""
        inside = text.strip()[1:-1].replace(" ", "")
        base, _, offset = inside.partition("+")
        found = self.program.row(base)
        start: Any = common(self.value(base, f)) if found else self.program.writer.symbol(base)
        if found is None and self.program.pairs:
            start = common(self.machine.special["shared_window"][f.s].astype(np.int64) + start)
        return (start if isinstance(start, int) else start.astype(np.int64)) + int(offset or 0)

    def split(self, f: Fragment, parts: list[tuple[NDArray[np.int64], int]]) -> list[Fragment]:
        """Put fragments of its threads, each at an instruction, in the place of a fragment."""
        self.fragments.remove(f)
        new = [Fragment(self.machine, pc, ids) for ids, pc in parts]
        self.fragments += new
        return new

    def beside(self, f: Fragment, chosen: NDArray[np.bool_], target: int) -> None:
        """Run what a branch jumps over for those who do not jump, and go on with all."""
        m, key = self.machine, (f.pc, f.those, chosen.tobytes())
        part = self.parts.get(key)
        if part is None:
            part = self.parts[key] = Fragment(m, f.pc, f.ids[chosen])
        part.pc, part.asks, part.asked = f.pc + 1, f.asks, f.asked
        self.running = part
        while part.pc < target:
            self._segment(part)
        self.running = f
        f.asks, f.asked, f.pc = part.asks, part.asked, target

    def exit(self, f: Fragment) -> None:
        """Threads have ended."""
        m = self.machine
        m.alive[f.ids] = False
        for w, count in zip(*np.unique(m.warp[f.ids], return_counts=True), strict=True):
            m.live[w] -= int(count)
            self.torn = self.torn or m.live[w] > 0
        m.progress += 1
        if m.checks:
            for cta in {w // m.warps_per_cta for w in f.warps}:
                if not any(m.live[cta * m.warps_per_cta : (cta + 1) * m.warps_per_cta]):
                    m.residency.end(cta)
                    m.sync.ended(cta)
        self.fragments.remove(f)
        for other in self.fragments:
            other.refresh(m)
            if other.wait == "converge":
                other.wait = None
        m.meetings.threads_left()
