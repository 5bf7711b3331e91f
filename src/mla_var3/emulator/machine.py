"""Emulated machine: holds threads, registers, memory and units, and runs one cluster of CTAs."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator import formats
from mla_var3.emulator import functions as fn
from mla_var3.emulator.access import Memory
from mla_var3.emulator.clocks import GENERIC, PC_MASK, Clocks
from mla_var3.emulator.count import Counts
from mla_var3.emulator.diagnostics import Reporter
from mla_var3.emulator.formats import F16, F32, F64, U16, U32, U64
from mla_var3.emulator.local import Parameters
from mla_var3.emulator.lower import forms
from mla_var3.emulator.meetings import Meetings
from mla_var3.emulator.options import Options
from mla_var3.emulator.program import Program
from mla_var3.emulator.regions import GlobalMemory
from mla_var3.emulator.residency import Residency
from mla_var3.emulator.sched import Scheduler
from mla_var3.emulator.shared import Shadow, SharedMemory
from mla_var3.emulator.sync import Sync
from mla_var3.emulator.timeline import Timeline
from mla_var3.emulator.trace import Trace
from mla_var3.emulator.units.base import Unit
from mla_var3.emulator.units.pending import PendingRegisters
from mla_var3.emulator.units.registry import UNITS
from mla_var3.emulator.within import meet
from mla_var3.emulator.words import Words
from mla_var3.errors import EmulatorError

Dim3 = tuple[int, int, int]
#: Registers hold this at the start: a NaN as float32.
POISON = 0x7FBADBAD
AXES = "xyz"
#: Special registers that are 0, or are set where each cluster begins.
ZERO = (
    "smid", "gridid", "clock", "clock64", "globaltimer", "globaltimer_lo", "clock_hi",
    *(f"{name}_{axis}" for name in ("ctaid", "clusterid") for axis in AXES),
)  # fmt: skip


class Machine:
    """One cluster at a time; ``start`` makes it ready for the next."""

    def __init__(
        self,
        program: Program,
        grid: Dim3,
        block: Dim3,
        cluster: Dim3,
        dynamic_shared: int,
        parameters: bytes,
        memory_map: GlobalMemory,
        reporter: Reporter,
        options: Options,
        counts: Counts,
    ) -> None:
        self.program, self.grid, self.block, self.cluster = program, grid, block, cluster
        self.options, self.model, self.checks = options, options.model, options.checks
        self.reporter, self.memory_map, self.counts = reporter, memory_map, counts
        self.lock: Any = contextlib.nullcontext()
        self.ctas = int(np.prod(cluster))
        self.per_cta = int(np.prod(block))
        self.warps_per_cta = -(-self.per_cta // 32)
        self.threads = self.per_cta * self.ctas
        self._threads()
        self.clocks = Clocks(self.warps_per_cta * self.ctas, self.warps_per_cta, program.chains)
        end = program.static_shared + dynamic_shared
        self.shared = SharedMemory(self.ctas, end, program.narrowest, self.clocks, options.fill)
        self.shared.named = program.pairs
        self.cta_offset = self.cta * self.shared.size
        self.residency = Residency(self.clocks, self.ctas, reporter, self.model)
        self.shadow = Shadow(self.shared, self.clocks, reporter, self.model, self.residency)
        self.parameters = Parameters(parameters)
        self.progress = self.steps = self.asked = self.ticks = 0
        self.words = Words(self.clocks, memory_map.board, self.warps_of, self.warps_per_cta)
        self.memory, self.sync, self.meetings = Memory(self), Sync(self), Meetings(self)
        self._registers()
        self.pending = PendingRegisters(self)
        self.units: dict[str, Unit] = {unit.name: unit(self) for unit in UNITS}
        self.timeline = Timeline() if options.timeline else None
        #: Steps of the warps of all clusters, where a launch keeps them.
        self.trace: Trace | None = None
        self.scheduler = Scheduler(self)
        self._names()

    def _threads(self) -> None:
        self.ids = np.arange(self.threads)
        self.cta = self.ids // self.per_cta
        self.own = self.ids % self.per_cta
        self.lane = self.own % 32
        self.warp = self.cta * self.warps_per_cta + self.own // 32
        #: Warpgroups, of which the last of a CTA may lack warps: what a schedule puts in order.
        self.place = self.cta * -(-self.warps_per_cta // 4) + self.own // 128
        self.alive = np.ones(self.threads, bool)
        self.live: list[int] = []

    def _registers(self) -> None:
        counts, n = self.program.counts, self.threads
        self.r = np.zeros((counts["r"], n), U32)
        self.q = np.zeros((counts["q"], n), U64)
        self.h = np.zeros((counts["h"], n), U16)
        self.p = np.zeros((counts["p"], n), bool)
        self.rs, self.rf = self.r.view(np.int32), self.r.view(F32)
        self.qs, self.qf = self.q.view(np.int64), self.q.view(F64)
        self.carry = np.zeros(n, bool)

    def _names(self) -> None:
        """The globals of lowered code: rows, constants, special registers, units."""
        g: dict[str, Any] = dict(self.program.constants)
        for name, rows in (
            ("r", self.r),
            ("rs", self.rs),
            ("rf", self.rf),
            ("q", self.q),
            ("qs", self.qs),
            ("qf", self.qf),
            ("h", self.h),
            ("hs", self.h.view(np.int16)),
            ("hf", self.h.view(F16)),
            ("p", self.p),
        ):
            g[f"bank_{name}"] = rows
            g.update(zip(self.program.row_names(name, len(rows)), rows, strict=True))
        g.update(
            np=np, fn=fn, formats=formats, F16=F16, F32=F32, F64=F64, U16=U16, U32=U32, U64=U64
        )
        g.update(I64=np.int64, machine=self, memory=self.memory, sync=self.sync)
        g.update(self.units, parameters=self.parameters, words=self.words)
        self.special = self._special()
        g.update((f"sp_{k}", v) for k, v in self.special.items())
        self.names = g
        self.functions: dict[tuple[int, bool], Any] = {}

    def _special(self) -> dict[str, NDArray[np.uint32]]:
        n = self.threads

        def row(x: Any) -> NDArray[np.uint32]:
            return np.broadcast_to(np.asarray(x).astype(U32), n).copy()

        bx, by, _ = self.block
        out = {
            "tid_x": row(self.own % bx),
            "tid_y": row(self.own // bx % by),
            "tid_z": row(self.own // (bx * by)),
            "laneid": row(self.lane),
            "warpid": row(self.own // 32),
            "nwarpid": row(self.warps_per_cta),
            "nsmid": row(self.options.multiprocessors),
            "dynamic_smem_size": row(self.shared.end - self.program.static_shared),
            "total_smem_size": row(self.shared.end),
            "cluster_ctarank": row(self.cta),
            "shared_window": row(self.cta << 24),
            "cluster_nctarank": row(self.ctas),
            "is_explicit_cluster": row(self.ctas > 1),
            "envreg0": row(self.options.environment),
        }
        out |= {name: row(0) for name in ZERO}
        for i, mask in enumerate(("eq", "le", "lt", "ge", "gt")):
            lanes = np.arange(32)
            other = lanes[None, :]
            test = [
                lanes[:, None] == other,
                other <= lanes[:, None],
                other < lanes[:, None],
                other >= lanes[:, None],
                other > lanes[:, None],
            ][i]
            out[f"lanemask_{mask}"] = row(
                (test * (U64(1) << np.arange(32, dtype=U64))).sum(1)[self.lane]
            )
        cx, cy, _ = self.cluster
        self.rank = (self.cta % cx, self.cta // cx % cy, self.cta // (cx * cy))
        for i, axis in enumerate(AXES):
            out |= {
                f"ntid_{axis}": row(self.block[i]),
                f"nctaid_{axis}": row(self.grid[i]),
                f"nclusterid_{axis}": row(self.grid[i] // self.cluster[i]),
                f"cluster_nctaid_{axis}": row(self.cluster[i]),
                f"cluster_ctaid_{axis}": row(self.rank[i]),
            }
        return out

    # A cluster --------------------------------------------------------------------------------
    def start(self, cluster: Dim3, number: int) -> None:
        """Make ready for the cluster at this index of the grid, the ``number``-th of the launch."""
        for i, axis in enumerate(AXES):
            self.special[f"ctaid_{axis}"][:] = cluster[i] * self.cluster[i] + self.rank[i]
            self.special[f"clusterid_{axis}"][:] = cluster[i]
        self.index = (
            cluster[0] * self.cluster[0],
            cluster[1] * self.cluster[1],
            cluster[2] * self.cluster[2],
        )
        self.number = number
        # CTAs side by side are on multiprocessors of their own, as kernels that keep a place for
        # each rely on.
        self.special["smid"][:] = (number * self.ctas + self.cta) % self.options.multiprocessors
        self.r[:] = POISON
        self.q[:] = POISON << 32 | POISON
        self.h[:] = POISON & 0xFFFF
        self.p[:] = False
        self.alive[:] = True
        self.live = np.bincount(self.warp).tolist()
        self.progress = self.steps = self.asked = self.ticks = 0
        self.printed: list[str] = []
        self.clocks.start()
        self.words.start(number + 1)
        for part in (self.shared, self.memory, self.sync, self.pending, self.residency):
            part.start()
        self.meetings.start()
        for unit in self.units.values():
            unit.start()
        self.scheduler.start(self._seed())

    def _seed(self) -> int | None:
        seed = self.options.seed
        return None if seed is None else seed * 1_000_003 + self.number

    def run(self, quantum: int | None = None) -> bool:
        """Run the cluster, or at most ``quantum`` segments of it; whether it has ended."""
        self.reporter.cta = self.index
        before = self.steps
        with np.errstate(all="ignore"):
            ended = self.scheduler.run(quantum)
        #: Segments of the last turn.
        self.turn = self.steps - before
        if ended:
            self._at_exit()
        return ended

    def _at_exit(self) -> None:
        self.program.chains = max(self.program.chains, len(self.clocks.units))
        last = len(self.program.kernel.instructions) - 1
        for at, barrier in self.sync.mbarriers.items():
            if barrier.tx and not self.scheduler.stuck:
                self.reporter.add(
                    "barrier-bytes",
                    barrier.pc,
                    f"the mbarrier at shared {at % self.shared.size:#x} is left with "
                    f"{barrier.tx} bytes expected that "
                    "nothing brings"
                    if barrier.tx > 0
                    else (
                        f"the mbarrier at shared {at % self.shared.size:#x} got {-barrier.tx} "
                        "bytes more than expected"
                    ),
                    last,
                    missing="expect_tx with the bytes of the copies",
                )
        if not self.scheduler.stuck:
            for unit in self.units.values():
                unit.finish()

    def close(self) -> None:
        """Let go of all parts: they name each other, and would take memory until a collection."""
        self.clocks.keepers.clear()
        vars(self).clear()

    # For lowered code -------------------------------------------------------------------------
    def select(self, guard: NDArray[np.bool_], s: Any, negated: bool, pc: int) -> tuple[Any, ...]:
        """The threads of ``s`` that a guard lets through, none or one group of them."""
        test = guard[s]
        count = int(np.count_nonzero(test))
        n = len(test)
        if negated:
            count = n - count
        if count == n:
            return (s,)
        self.counts.masked(pc, n - count)
        if count == 0:
            return ()
        return (self.ids[s][~test if negated else test],)

    def groups(self, mask: NDArray[np.uint32], s: Any) -> tuple[Any, ...]:
        """The threads of ``s`` by the mask of lanes that each names, one in most warps."""
        named, warp = mask[s], self.warp[s]
        if ((named[1:] == named[:-1]) | (warp[1:] != warp[:-1])).all():
            return (s,)
        return tuple(self.ids[s][named == one] for one in np.unique(named))

    def unsupported(self, pc: int) -> NoReturn:
        """End the launch at an instruction that is not emulated."""
        instructions = self.program.kernel.instructions
        op = instructions[pc].op
        lacking = Counter(i.op for i in instructions if not forms.runs(i.op) and i.op != op)
        told = ", ".join(f"{name:.60} ({n})" for name, n in lacking.most_common())
        others = f"; neither are these of the kernel: {told}" if told else ""
        raise EmulatorError(
            f"the instruction {op:.60} is not emulated at {self.reporter.site(pc)}: "
            f"{forms.why(op)}{others}"
        )

    def met(self, s: Any) -> None:
        """Lanes of ``s`` run an instruction that none runs before the others of its warp come."""
        clocks = self.clocks
        if self.model.collectives_order and clocks.lanes.open | clocks.lagging.warps:
            meet(self, s)

    def rank_of(self, address: Any, s: Any) -> Any:
        """``getctarank``."""
        low = np.broadcast_to(np.asarray(address).astype(np.int64) & 0xFFFFFFFF, self.ids[s].shape)
        if self.program.pairs:
            return (low >> 24).astype(U32)
        return np.where(low >> 24 == 0, self.cta[s], (low >> 24) - 1).astype(U32)

    def shadow_atomic(self, granules: NDArray[np.int64], s: Any, pc: int) -> None:
        """An atomic on shared memory: ordered with other atomics, checked against the rest."""
        own = self.shared.last.each(granules)
        of_atomics = np.isin(own.written[granules] & PC_MASK, self.scheduler.atomics)
        of_atomics &= own.known[granules]
        plain = ~np.asarray(of_atomics.all(1))
        self.shadow.thread_atomic(granules, self.warp[s], self.lane[s], pc, plain)

    def warps_of(self, s: Any) -> list[int]:
        """Warps that have a thread in ``s``."""
        if isinstance(s, slice):
            return list(range(int(self.warp[s.start]), int(self.warp[s.stop - 1]) + 1))
        return sorted(set(self.warp[s].tolist()))

    def whole(self, s: Any) -> bool:
        """Whether ``s`` is made of whole warps, each in order."""
        if isinstance(s, slice):
            return self.per_cta % 32 == 0
        ids = self.ids[s]
        return bool((ids[31::32] - ids[::32] == 31).all())

    # Words ------------------------------------------------------------------------------------
    def thread(self, s: Any, i: int) -> str:
        """The ``i``-th thread of ``s``."""
        t = int(self.ids[s][i])
        return self.clocks.thread(int(self.warp[t]), int(self.lane[t]))

    def warp_name(self, warp: int) -> str:
        """A warp in words."""
        return self.clocks.name(GENERIC, warp)

    def who(self, s: Any) -> str:
        """The warps of ``s`` in words."""
        warps = self.warps_of(s)
        return self.warp_name(warps[0]) + (f" and {len(warps) - 1} more" if len(warps) > 1 else "")

    def note(self, what: str, s: Any, pc: int) -> None:
        """Something for the timeline."""
        if self.timeline is not None:
            self.timeline.event(what, self.warps_of(s), self.ticks, pc)
