"""Thread scheduler of the emulator: picks which threads run next and reconverges diverged ones.

Without a seed the lowest program counter runs first, which brings diverged threads together again
in all code that compilers emit. With a seed the warpgroups are taken in an order drawn from it.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator import calls
from mla_var3.emulator.distinct import common, distinct
from mla_var3.emulator.lower.base import NotLowered
from mla_var3.emulator.lower.batches import scattered
from mla_var3.emulator.stops import describe, places
from mla_var3.emulator.units.base import WARPGROUP as GROUP
from mla_var3.errors import EmulatorError
from mla_var3.gpuless.ptx import FAULTS, Instruction

if TYPE_CHECKING:
    from mla_var3.emulator.machine import Machine

#: Segments after which a new order of the warpgroups is drawn.
REDRAW = 20
#: Segments that one fragment may run while others could: a spinning lane must not starve them.
PATIENCE = 4096
#: Segments of its cluster's turn that a look at a word which others write counts as: who asks again
#: and again has a short turn.
ASKING = 2000
#: Operand with the mask of the lanes that must take part.
MASK = {"shfl": 4, "vote": 2, "redux": 2, "match": 2, "elect": 1, "bar": 0}


#: Without a seed the fragment that is behind goes first, but those that ask others go last.
BEHIND = operator.attrgetter("asks", "pc")


#: The lanes of a warp, as a mask.
MASK_OF_ALL = (1 << 32) - 1


def _lanes(machine: Machine, chosen: NDArray[np.bool_], ids: Any = slice(None)) -> int:
    """Lanes of chosen threads, as a mask."""
    return int((1 << machine.lane[ids][chosen].astype(np.int64)).sum())


class Fragment:
    """Threads at one instruction; ``s`` is a slice where they are contiguous."""

    def __init__(self, machine: Machine, pc: int, ids: NDArray[np.int64]) -> None:
        self.pc, self.ids, self.n = pc, ids, len(ids)
        self.wait: str | None = None
        self.tried = False
        #: The mbarrier that it sleeps for, where it is one.
        self.at: int | None = None
        #: Whether it asks for a word again and again, and where it asked last.
        self.asks, self.asked = False, -1
        contiguous = int(ids[-1] - ids[0]) == self.n - 1
        self.s: Any = slice(int(ids[0]), int(ids[-1]) + 1) if contiguous else ids
        self.place = int(machine.place[ids[0]])
        self.warps = machine.warps_of(self.s)
        self.refresh(machine)

    def refresh(self, machine: Machine) -> None:
        """Whether these are all live lanes of their warps, and whole warpgroups."""
        self.full = self.n == sum(machine.live[w] for w in self.warps)
        self.group = False
        if self.n % GROUP == 0 and self.full:
            own = machine.own[self.ids[::GROUP]]
            last = self.ids[GROUP - 1 :: GROUP]
            self.group = bool(
                (own % GROUP == 0).all() and (last - self.ids[::GROUP] == GROUP - 1).all()
            )


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
        self.parts: dict[tuple[int, int, int, bytes], Fragment] = {}

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
                self._deadlock()
                return True
            self._merge(fragment)
            running = self.favored or fragment
            try:
                self._advance(running, until)
            except FAULTS as fault:  # Of text that no compiler made.
                said = f"{type(fault).__name__}: {' '.join(str(fault).split())[:100]}"
                raise m.reporter.stop(running.pc, f"what follows cannot be run ({said})") from fault
            if m.steps > m.options.max_steps:
                raise self._endless()
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
                self._exit(f)
                return
            if f.pc in self.stops:
                self._stop(f)
            if f.pc in program.blocking:
                m.steps += 1
                m.ticks += 1
                m.counts.segment(f.pc, f.pc + 1, len(f.warps), f.n)
                if not self._block(f, instructions[f.pc]) or f not in self.fragments:
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
            f.wait = "converge"
            return False
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
        i = self.program.kernel.instructions[f.pc]
        if self.program.lanes[f.pc] == GROUP:
            return f.full and f.group
        if f.full and not self.torn:
            return True
        at = MASK.get(i.parts[0])
        if at is None or at >= len(i.args):
            return f.full
        m = self.machine
        mask = np.broadcast_to(self.value(i.args[at], f), f.n).astype(np.int64)
        ended = []
        for w in f.warps:
            named = int(mask[m.warp[f.ids] == w][0])
            away = named & ~_lanes(m, m.warp[f.ids] == w, f.ids) & MASK_OF_ALL
            if away & _lanes(m, (m.warp == w) & m.alive):
                return False
            if away & _lanes(m, m.warp == w):
                ended.append(w)
        if ended and m.checks:
            m.reporter.add(
                "mask-mismatch",
                i.pc,
                f"the mask of warp {ended[0]} names lanes that have ended",
                who=m.who(f.s),
                missing="a mask of the lanes that execute it, or no lane that ends before",
            )
        return True

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

    # Instructions at which fragments stop -----------------------------------------------------
    def _block(self, f: Fragment, i: Instruction) -> bool:
        """Do one; whether the fragment can go on at once."""
        if i.guard is not None and not i.op.startswith("bra"):
            rest = self._guarded(f, i)
            if rest is None:
                return False
            if not rest:
                f.pc += 1
                return True
        unit = self.program.blockers.get(i.pc)
        if unit is not None:
            return self.machine.units[unit.name].block(f, i)
        name = i.parts[0]
        if name == "bra":
            return self._branch(f, i)
        if name == "brx":
            return self._table(f, i)
        if name in ("ret", "exit"):
            self._exit(f)
            return False
        if name == "mbarrier":
            return self._mbarrier(f, i)
        if name == "call":
            return self._call(f, i)
        if name == "trap":
            raise calls.trapped(self.machine, f, i)
        if i.op.startswith("barrier.cluster"):
            return self._cluster(f, i)
        return self._named(f, i)

    def _guarded(self, f: Fragment, i: Instruction) -> bool | None:
        """Whether a guard lets all through (True) or none (False); None: the fragment was split."""
        test = self.machine.p[self.program.writer.index(i.guard or "")][f.s]
        test = ~test if i.negated else test
        if test.all():
            return True
        if not test.any():
            return False
        self.split(f, [(f.ids[~test], f.pc + 1), (f.ids[test], f.pc)])
        return None

    def split(self, f: Fragment, parts: list[tuple[NDArray[np.int64], int]]) -> list[Fragment]:
        """Put fragments of its threads, each at an instruction, in the place of a fragment."""
        self.fragments.remove(f)
        new = [Fragment(self.machine, pc, ids) for ids, pc in parts]
        self.fragments += new
        return new

    def _branch(self, f: Fragment, i: Instruction) -> bool:
        target = self.program.kernel.labels[i.args[0]]
        if i.guard is None:
            f.pc = target
            return True
        test = self.machine.p[self.program.writer.index(i.guard)][f.s]
        count = int(np.count_nonzero(test))
        if i.negated:
            count = f.n - count
        self.machine.counts.jump(i.pc, count, f.n - count)
        if count in (0, f.n):
            f.pc = target if count else f.pc + 1
            return True
        test = ~test if i.negated else test
        if not self.stops and self.program.passes(i.pc, target):
            self._beside(f, ~test, target)
            return True
        self.split(f, [(f.ids[~test], f.pc + 1), (f.ids[test], target)])
        return False

    def _beside(self, f: Fragment, chosen: NDArray[np.bool_], target: int) -> None:
        """Run what a branch jumps over for those who do not jump, and go on with all."""
        m, key = self.machine, (f.pc, int(f.ids[0]), f.n, chosen.tobytes())
        part = self.parts.get(key)
        if part is None:
            part = self.parts[key] = Fragment(m, f.pc, f.ids[chosen])
        part.pc, part.asks, part.asked = f.pc + 1, f.asks, f.asked
        self.running = part
        while part.pc < target:
            self._segment(part)
        self.running = f
        f.asks, f.asked, f.pc = part.asks, part.asked, target

    def _table(self, f: Fragment, i: Instruction) -> bool:
        labels = self.program.kernel.tables[i.args[1]]
        index = np.broadcast_to(self.value(i.args[0], f), f.n)
        if int(index.max()) >= len(labels):
            raise self.machine.reporter.stop(
                i.pc, f"branch {int(index.max())} of {len(labels)} is taken"
            )
        parts = [
            (f.ids[index == k], self.program.kernel.labels[labels[int(k)]])
            for k in np.unique(index)
        ]
        self.split(f, parts)
        return False

    def _exit(self, f: Fragment) -> None:
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
        m.sync.threads_left()

    def _mbarrier(self, f: Fragment, i: Instruction) -> bool:
        m = self.machine
        parity = "parity" in i.parts
        wanted = common(np.atleast_1d(self.value(i.args[2], f)).astype(np.int64))
        address = self.address(i.args[1], f)
        done = m.sync.test(f, address, wanted, parity, i.pc, i.parts[1] == "try_wait")
        if done is None:
            f.wait = "mbarrier"
            m.counts.waits[i.pc] += len(f.warps)
            if m.timeline is not None:
                m.timeline.wait(f.warps, m.ticks, i.pc)
            return False
        if not done.all():
            m.counts.waits[i.pc] += len(f.warps)
        f.tried = False
        m.p[self.program.writer.index(i.args[0])][f.s] = done
        f.pc += 1
        return True

    def _named(self, f: Fragment, i: Instruction) -> bool:
        """``bar`` and ``barrier``: one barrier of each CTA of the fragment at a time."""
        m = self.machine
        if not f.full:
            f.wait = "converge"
            return False
        reduce = "red" in i.parts
        at = 1 if reduce else 0
        numbers = np.broadcast_to(self.value(i.args[at], f), f.n)
        keys = m.cta[f.ids] * 64 + numbers.astype(np.int64)
        if len(kinds := distinct(keys)) > 1:
            # At once, or the parts would merge again.
            for part in self.split(f, [(f.ids[keys == k], f.pc) for k in kinds]):
                self._named(part, i)
            return False
        most = 1 if not reduce else 2
        sized = len(i.args) > (at + most if reduce else at + 1)
        threads = int(np.ravel(self.value(i.args[at + 1], f))[0]) if sized else None
        if threads is not None and self._too_many(f, kinds[0], threads):
            return False
        if reduce:
            self._vote(f, i, kinds[0])
        wait = "arrive" not in i.parts
        f.wait = "named" if wait else None
        f.pc += 1
        if wait and m.timeline is not None:
            m.timeline.wait(f.warps, m.ticks, i.pc)
        m.sync.enter(f, int(numbers[0]), int(m.cta[f.ids[0]]), threads, wait, i.pc)
        return f.wait is None

    def _too_many(self, f: Fragment, key: int, threads: int) -> bool:
        """Split off the warps that a named barrier still takes, if these are more."""
        barrier = self.machine.sync.named.get(key)
        room = max(1, (threads - (barrier.arrived if barrier else 0)) // 32)
        if len(f.warps) <= room:
            return False
        first = np.isin(self.machine.warp[f.ids], f.warps[:room])
        part, _ = self.split(f, [(f.ids[first], f.pc), (f.ids[~first], f.pc)])
        # The two must not merge again before the first has arrived.
        self._named(part, self.program.kernel.instructions[f.pc])
        return True

    def _vote(self, f: Fragment, i: Instruction, key: int) -> None:
        """``bar.red``: the result is written once all have come; each arrival updates it."""
        m = self.machine
        text = i.args[-1]
        test = self.value(text.lstrip("!"), f)
        test = ~test if text.startswith("!") else test
        votes = m.sync.votes.setdefault(key, [])
        votes.append((f.ids, test))
        everyone = np.concatenate([ids for ids, _ in votes])
        tests = np.concatenate([np.broadcast_to(t, len(ids)) for ids, t in votes])
        results: dict[str, Any] = {"popc": tests.sum(), "and": tests.all(), "or": tests.any()}
        result = next(value for name, value in results.items() if name in i.parts)
        found = self.program.row(i.args[0])
        if found is None:
            raise NotLowered(i.args[0])
        rows = m.p if found[0] == "p" else m.r
        rows[found[1]][everyone] = result
        if len(everyone) >= int(m.alive[m.cta == key // 64].sum()):
            del m.sync.votes[key]

    def _cluster(self, f: Fragment, i: Instruction) -> bool:
        m = self.machine
        if not f.full:
            f.wait = "converge"
            return False
        if "arrive" in i.parts:
            m.sync.arrive_cluster(f, "relaxed" in i.parts)
        elif not m.sync.wait_cluster(f):
            f.wait = "cluster"
            return False
        f.pc += 1
        return True

    def _call(self, f: Fragment, i: Instruction) -> bool:
        calls.call(self.machine, f, i)
        f.pc += 1
        return True

    # When nothing goes on ---------------------------------------------------------------------
    def _endless(self) -> EmulatorError:
        m = self.machine
        pc = max(self.fragments, key=lambda f: f.n).pc if self.fragments else 0
        pc = min(pc, len(self.program.kernel.instructions) - 1)
        return m.reporter.stop(
            pc,
            f"CTA {m.index} has run {m.steps} segments without an end (a loop that nothing stops?)",
        )

    def waits_for_words(self, why: str) -> None:
        """Report that what this cluster asks for in global memory will never come."""
        m = self.machine
        self.stuck = True
        for f in self.fragments:
            if f.asked >= 0:
                m.reporter.add(
                    "deadlock",
                    f.asked,
                    f"{m.who(f.s)} ({f.n} threads) asks for a word of global memory that nobody "
                    f"changes any more: {why}",
                    who=m.who(f.s),
                    missing="a write to the word by a CTA that runs",
                )

    def _deadlock(self) -> None:
        m = self.machine
        self.stuck = True
        for f in self.fragments:
            pc = f.pc - 1 if f.wait == "named" else f.pc
            pc = min(pc, len(self.program.kernel.instructions) - 1)
            m.reporter.add(
                "deadlock",
                pc,
                f"{m.who(f.s)} ({f.n} threads) can never go on: {self._reason(f, pc)}",
                who=m.who(f.s),
                missing="an arrival, bytes or threads that the barrier still expects",
            )

    def _reason(self, f: Fragment, pc: int) -> str:
        m, i = self.machine, self.program.kernel.instructions[pc]
        if f.wait == "mbarrier":
            at = int(
                np.ravel(
                    m.shared.physical(
                        np.ravel(self.address(i.args[1], f))[:1], m.cta_offset[f.ids[:1]]
                    )
                )[0]
            )
            barrier = m.sync.mbarriers.get(at)
            wanted = int(np.ravel(self.value(i.args[2], f))[0])
            state = barrier.state() if barrier else "not initialized"
            if barrier and barrier.pending == 0 and barrier.tx:
                m.reporter.add(
                    "barrier-bytes",
                    pc,
                    f"the mbarrier at shared {at % m.shared.size:#x} expects {barrier.tx} "
                    "bytes that "
                    "nothing brings",
                    barrier.pc,
                    missing="expect_tx with the bytes of the copies",
                )
            return (
                f"mbarrier at shared {at % m.shared.size:#x}, parity {wanted & 1} wanted; {state}"
            )
        if f.wait == "named":
            for key, named in m.sync.named.items():
                if f in named.waiting:
                    return (
                        f"named barrier {key % 64}, {named.arrived} of "
                        f"{named.threads or 'all'} threads there"
                    )
        if f.wait in m.units:
            return m.units[f.wait].waits(f, pc)
        if f.wait == "cluster":
            return (
                f"the cluster barrier, {m.sync.cluster.arrived} of {int(m.alive.sum())} "
                "threads there"
            )
        return "the rest of its warp is elsewhere"
