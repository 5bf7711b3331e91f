"""Replays the trace of an emulated launch on a clock: computes when each warp's steps run.

``durations`` says how long an instruction takes, ``trace`` what waits for what. Warps go on by
themselves. They share, per CTA, the tensor cores, the way in from the L2, the way out, and the path
of loads and stores; they wait for barriers, copies and products as the trace has it. Schedulers are
not shared: a warp issues as if it were alone on its own. Loads to registers are in flight together
until their warp next meets another one.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from mla_var3.emulator.durations import Durations
from mla_var3.emulator.timeline import Span as Drawn
from mla_var3.emulator.timeline import Timeline
from mla_var3.emulator.trace import Step, Trace, Who
from mla_var3.errors import EmulatorError
from mla_var3.gpuless.ptx import Instruction

#: Instructions whose copies come from another CTA of the cluster.
_FROM_PEER = ("st.async", "red.async", "cp.async.bulk.shared::cluster.shared::cta")


@dataclass(frozen=True)
class Span:
    """Something took from one cycle to another.

    Attributes:
        what: ``run``, ``wait``, ``product``, ``load`` or ``store``.
        cta: Number of the CTA in the launch.
        warp: Number of the warp in it; of a product the first of its warpgroup.
        start: Cycle at which it begins.
        end: Cycle at which it is over.
        pc: The instruction; of a run the first.
        last: Of a run the instruction behind its last one.
    """

    what: str
    cta: int
    warp: int
    start: float
    end: float
    pc: int
    last: int = 0


@dataclass
class _Warp:
    """Where a warp stands."""

    who: Who
    steps: list[Step]
    at: int = 0
    time: float = 0.0
    loaded: float = 0.0
    started: list[Hashable] = field(default_factory=list)
    groups: deque[list[Hashable]] = field(default_factory=deque)
    stored: float = 0.0
    stores: deque[float] = field(default_factory=deque)
    tensor: float = 0.0


class Replay:
    """A trace on a clock; ``spans`` says what took from when to when."""

    def __init__(
        self, trace: Trace, instructions: Sequence[Instruction], durations: Durations | None = None
    ) -> None:
        self.trace, self.instructions = trace, instructions
        self.durations = durations or Durations.of(instructions)
        self.table = self.durations.table(instructions)
        self.spans: list[Span] = []
        last = max((warp for _, warp in trace.steps), default=0)
        self._per_cluster = 1 + last // trace.warps_per_cta
        self.missing = self._told()
        self.done: dict[Hashable, float] = defaultdict(float)
        self.waiting: dict[Hashable, list[_Warp]] = defaultdict(list)
        #: When a resource of a CTA is free.
        self.free: dict[tuple[str, int], float] = defaultdict(float)
        self.order = itertools.count()
        self.heap: list[tuple[float, int, _Warp]] = []
        self._play()

    def _told(self) -> Counter[Hashable]:
        """How often each thing is told: it is over when all have."""
        return Counter(
            step.key
            for steps in self.trace.steps.values()
            for step in steps
            if step.kind in ("arrive", "copy", "product", "told")
        )

    @property
    def end(self) -> float:
        """The last cycle."""
        return max((span.end for span in self.spans), default=0.0)

    def timeline(self) -> Timeline:
        """The first cluster's spans, as a timeline draws them: a step is a cycle."""
        called = {"product": "wgmma", "load": "TMA load", "store": "TMA store"}
        return Timeline(
            [
                Drawn(
                    called.get(s.what, s.what),
                    s.cta * self.trace.warps_per_cta + s.warp,
                    round(s.start),
                    round(s.end),
                    s.pc,
                )
                for s in self.spans
                if s.cta < self._per_cluster
            ]
        )

    def _play(self) -> None:
        warps = [_Warp(who, steps) for who, steps in sorted(self.trace.steps.items())]
        for warp in warps:
            self._push(warp)
        while self.heap:
            _, _, warp = heapq.heappop(self.heap)
            if warp.at < len(warp.steps) and self._step(warp, warp.steps[warp.at]):
                warp.at += 1
                self._push(warp)
        stuck = [warp for warp in warps if warp.at < len(warp.steps)]
        if stuck:
            where = stuck[0].steps[stuck[0].at]
            raise EmulatorError(
                f"the trace cannot be put on a clock: {len(stuck)} warps wait for what it does not "
                f"hold, the first at instruction {where.pc}"
            )

    def _push(self, warp: _Warp) -> None:
        heapq.heappush(self.heap, (warp.time, next(self.order), warp))

    def _cta(self, who: Who) -> int:
        """Number in the launch of a warp's CTA."""
        return who[0] * self._per_cluster + who[1] // self.trace.warps_per_cta

    def _span(
        self, warp: _Warp, what: str, start: float, end: float, pc: int, last: int = 0
    ) -> None:
        own = warp.who[1] % self.trace.warps_per_cta
        self.spans.append(Span(what, self._cta(warp.who), own, start, end, pc, last))

    # Steps ------------------------------------------------------------------------------------
    def _step(self, warp: _Warp, step: Step) -> bool:
        """Do a step; False where the warp has to wait, and is told when it is over."""
        kind = step.kind
        if kind == "run":
            self._run(warp, step)
            return True
        self._await_loads(warp, step.pc)
        if kind == "product":
            self._product(warp, step)
        elif kind == "arrive":
            late = self.durations.word_latency if _is_word(step.key) else 0.0
            self._tell(step.key, warp.time + late)
        elif kind == "tensor":
            self._tensor(warp, step)
        elif kind == "told":
            self._tell(step.key, max(warp.time, warp.tensor))
        elif kind == "copy":
            self._copy(warp, step)
        elif kind == "wait":
            return self._wait(warp, [step.key], step.pc)
        elif kind == "commit":
            warp.groups.append(warp.started)
            warp.started = []
        elif kind == "settle":
            return self._settle(warp, step)
        else:
            self._store(warp, step)
        return True

    def _run(self, warp: _Warp, step: Step) -> None:
        """Issue instructions one after the other; loads and stores share a path."""
        part = self.table[step.pc : step.amount]
        issue, memory = sum(i for i, _, _ in part), sum(m for _, m, _ in part)
        start, end = warp.time, warp.time + issue
        if memory:
            path = "path", self._cta(warp.who)
            begun = max(start, self.free[path])
            self.free[path] = begun + memory
            end = max(end, begun + memory)
        late = max((late for _, _, late in part), default=0.0)
        warp.loaded = max(warp.loaded, end + late if late else 0.0)
        if end > start:
            self._span(warp, "run", start, end, step.pc, step.amount)
        warp.time = end

    def _await_loads(self, warp: _Warp, pc: int) -> None:
        """Loads to registers are in flight together until their warp next meets another one."""
        if warp.loaded > warp.time:
            self._span(warp, "wait", warp.time, warp.loaded, pc)
            warp.time = warp.loaded

    def _product(self, warp: _Warp, step: Step) -> None:
        """The last of four warps starts it; the tensor cores do one after the other."""
        warp.started.append(step.key)
        self.done[step.key] = max(self.done[step.key], warp.time)
        self.missing[step.key] -= 1
        if self.missing[step.key]:
            return
        cores = "cores", self._cta(warp.who)
        start = max(self.done[step.key], self.free[cores])
        end = start + self.durations.product(step.amount)
        self.free[cores] = self.done[step.key] = end
        own = warp.who[1] % self.trace.warps_per_cta
        self.spans.append(
            Span("product", self._cta(warp.who), own - own % 4, start, end, step.pc, step.amount)
        )
        self._wake(step.key)

    def _tensor(self, warp: _Warp, step: Step) -> None:
        """A product of one thread, on the tensor cores of one CTA or of both of a pair."""
        assert isinstance(step.key, tuple)
        cores = [("cores", warp.who[0] * self._per_cluster + cta) for cta in step.key]
        start = max(warp.time, *(self.free[each] for each in cores))
        warp.tensor = start + self.durations.product(step.amount)
        self.free.update(dict.fromkeys(cores, warp.tensor))
        self._span(warp, "product", start, warp.tensor, step.pc, step.amount)

    def _settle(self, warp: _Warp, step: Step) -> bool:
        """Wait until so many groups of products are left."""
        keys = [k for group in list(warp.groups)[: len(warp.groups) - step.amount] for k in group]
        if len(warp.groups) > step.amount and not self._wait(warp, keys, step.pc):
            return False
        while len(warp.groups) > step.amount:
            warp.groups.popleft()
        return True

    def _copy(self, warp: _Warp, step: Step) -> None:
        """A copy takes the way into the CTA that it goes to."""
        d, peer = self.durations, self.instructions[step.pc].op.startswith(_FROM_PEER)
        to = warp.who[0] * self._per_cluster + step.cta
        way = ("peer" if peer else "in"), to
        rate, late = (d.peer, d.peer_latency) if peer else (d.load, d.global_latency)
        start = max(warp.time, self.free[way])
        self.free[way] = start + step.amount / rate
        end = self.free[way] + late
        self._span(warp, "load", warp.time, end, step.pc, step.cta)
        self._tell(step.key, end)

    def _store(self, warp: _Warp, step: Step) -> None:
        """Bulk stores to global memory, their groups, and waiting for these."""
        if step.kind == "store":
            way = "out", self._cta(warp.who)
            start = max(warp.time, self.free[way])
            self.free[way] = warp.stored = start + step.amount / self.durations.load
            self._span(warp, "store", start, warp.stored, step.pc)
        elif step.kind == "store commit":
            warp.stores.append(warp.stored)
        else:
            while len(warp.stores) > step.amount:
                end = warp.stores.popleft()
                if end > warp.time:
                    self._span(warp, "wait", warp.time, end, step.pc)
                    warp.time = end

    # Waiting ----------------------------------------------------------------------------------
    def _wait(self, warp: _Warp, keys: Sequence[Hashable], pc: int) -> bool:
        """Wait for things; False while one is not known to be over."""
        for key in keys:
            if self.missing[key]:
                self.waiting[key].append(warp)
                return False
        end = max((self.done[key] for key in keys), default=0.0)
        if end > warp.time:
            self._span(warp, "wait", warp.time, end, pc)
            warp.time = end
        return True

    def _tell(self, key: Hashable, time: float) -> None:
        self.done[key] = max(self.done[key], time)
        self.missing[key] -= 1
        if not self.missing[key]:
            self._wake(key)

    def _wake(self, key: Hashable) -> None:
        for warp in self.waiting.pop(key, ()):
            self._push(warp)


def _is_word(key: Hashable) -> bool:
    return isinstance(key, tuple) and key[0] == "word"
