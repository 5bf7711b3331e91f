"""Instructions at which threads stop: branches, barriers, waits, calls, and the end.

All else is lowered to segments, which run to their end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from mla_var3.emulator import calls, tries
from mla_var3.emulator.distinct import common, distinct
from mla_var3.emulator.lower.base import NotLowered
from mla_var3.gpuless.ptx import Instruction

if TYPE_CHECKING:
    from mla_var3.emulator.fragments import Fragment
    from mla_var3.emulator.sched import Scheduler


def run(scheduler: Scheduler, f: Fragment, i: Instruction) -> bool:
    """Do one; whether the fragment can go on at once."""
    if i.guard is not None and not i.op.startswith("bra"):
        rest = _guarded(scheduler, f, i)
        if rest is None:
            return False
        if not rest:
            f.pc += 1
            return True
    unit = scheduler.program.blockers.get(i.pc)
    if unit is not None:
        return scheduler.machine.units[unit.name].block(f, i)
    kind = _KINDS.get(i.parts[0])
    if kind is None:
        kind = _cluster if i.op.startswith("barrier.cluster") else _named
    return kind(scheduler, f, i)


def _guarded(scheduler: Scheduler, f: Fragment, i: Instruction) -> bool | None:
    """Whether a guard lets all through (True) or none (False); None: the fragment was split."""
    test = scheduler.machine.p[scheduler.program.writer.index(i.guard or "")][f.s]
    test = ~test if i.negated else test
    if test.all():
        return True
    if not test.any():
        return False
    scheduler.split(f, [(f.ids[~test], f.pc + 1), (f.ids[test], f.pc)])
    return None


def _branch(scheduler: Scheduler, f: Fragment, i: Instruction) -> bool:
    target = scheduler.program.kernel.labels[i.args[0]]
    if i.guard is None:
        f.pc = target
        return True
    test = scheduler.machine.p[scheduler.program.writer.index(i.guard)][f.s]
    count = int(np.count_nonzero(test))
    if i.negated:
        count = f.n - count
    scheduler.machine.counts.jump(i.pc, count, f.n - count)
    if count in (0, f.n):
        f.pc = target if count else f.pc + 1
        return True
    test = ~test if i.negated else test
    if not scheduler.stops and scheduler.program.passes(i.pc, target):
        scheduler.beside(f, ~test, target)
        return True
    scheduler.split(f, [(f.ids[~test], f.pc + 1), (f.ids[test], target)])
    return False


def _table(scheduler: Scheduler, f: Fragment, i: Instruction) -> bool:
    labels = scheduler.program.kernel.tables[i.args[1]]
    index = np.broadcast_to(scheduler.value(i.args[0], f), f.n)
    if int(index.max()) >= len(labels):
        raise scheduler.machine.reporter.stop(
            i.pc, f"branch {int(index.max())} of {len(labels)} is taken"
        )
    parts = [
        (f.ids[index == k], scheduler.program.kernel.labels[labels[int(k)]])
        for k in np.unique(index)
    ]
    scheduler.split(f, parts)
    return False


def _mbarrier(scheduler: Scheduler, f: Fragment, i: Instruction) -> bool:
    m = scheduler.machine
    parity = "parity" in i.parts
    wanted = common(np.atleast_1d(scheduler.value(i.args[2], f)).astype(np.int64))
    address = scheduler.address(i.args[1], f)
    done = tries.answer(m.sync, f, address, wanted, parity, i.pc, i.parts[1] == "try_wait")
    if done is None:
        f.wait = "mbarrier"
        m.counts.waits[i.pc] += len(f.warps)
        if m.timeline is not None:
            m.timeline.wait(f.warps, m.ticks, i.pc)
        return False
    if not done.all():
        m.counts.waits[i.pc] += len(f.warps)
    f.tried = False
    m.p[scheduler.program.writer.index(i.args[0])][f.s] = done
    f.pc += 1
    return True


def _named(scheduler: Scheduler, f: Fragment, i: Instruction) -> bool:
    """``bar`` and ``barrier``: one barrier of each CTA of the fragment at a time."""
    m = scheduler.machine
    if not f.full:
        return scheduler.apart(f, scheduler.whole(f), lambda part: _named(scheduler, part, i))
    reduce = "red" in i.parts
    at = 1 if reduce else 0
    numbers = np.broadcast_to(scheduler.value(i.args[at], f), f.n)
    keys = m.cta[f.ids] * 64 + numbers.astype(np.int64)
    if len(kinds := distinct(keys)) > 1:
        # At once, or the parts would merge again.
        for part in scheduler.split(f, [(f.ids[keys == k], f.pc) for k in kinds]):
            _named(scheduler, part, i)
        return False
    most = 1 if not reduce else 2
    sized = len(i.args) > (at + most if reduce else at + 1)
    threads = int(np.ravel(scheduler.value(i.args[at + 1], f))[0]) if sized else None
    if threads is not None and _too_many(scheduler, f, kinds[0], threads):
        return False
    if reduce:
        _vote(scheduler, f, i, kinds[0])
    wait = "arrive" not in i.parts
    f.wait = "named" if wait else None
    f.pc += 1
    if wait and m.timeline is not None:
        m.timeline.wait(f.warps, m.ticks, i.pc)
    m.meetings.enter(f, int(numbers[0]), int(m.cta[f.ids[0]]), threads, wait, i.pc)
    return f.wait is None


def _too_many(scheduler: Scheduler, f: Fragment, key: int, threads: int) -> bool:
    """Split off the warps that a named barrier still takes, if these are more."""
    barrier = scheduler.machine.meetings.named.get(key)
    room = max(1, (threads - (barrier.arrived if barrier else 0)) // 32)
    if len(f.warps) <= room:
        return False
    first = np.isin(scheduler.machine.warp[f.ids], f.warps[:room])
    part, _ = scheduler.split(f, [(f.ids[first], f.pc), (f.ids[~first], f.pc)])
    # The two must not merge again before the first has arrived.
    _named(scheduler, part, scheduler.program.kernel.instructions[f.pc])
    return True


def _vote(scheduler: Scheduler, f: Fragment, i: Instruction, key: int) -> None:
    """``bar.red``: the result is written once all have come; each arrival updates it."""
    m = scheduler.machine
    text = i.args[-1]
    test = scheduler.value(text.lstrip("!"), f)
    test = ~test if text.startswith("!") else test
    votes = m.meetings.votes.setdefault(key, [])
    votes.append((f.ids, test))
    everyone = np.concatenate([ids for ids, _ in votes])
    tests = np.concatenate([np.broadcast_to(t, len(ids)) for ids, t in votes])
    results: dict[str, Any] = {"popc": tests.sum(), "and": tests.all(), "or": tests.any()}
    result = next(value for name, value in results.items() if name in i.parts)
    found = scheduler.program.row(i.args[0])
    if found is None:
        raise NotLowered(i.args[0])
    rows = m.p if found[0] == "p" else m.r
    rows[found[1]][everyone] = result
    if len(everyone) >= int(m.alive[m.cta == key // 64].sum()):
        del m.meetings.votes[key]


def _cluster(scheduler: Scheduler, f: Fragment, i: Instruction) -> bool:
    m = scheduler.machine
    if not f.full:
        return scheduler.apart(f, scheduler.whole(f), lambda part: _cluster(scheduler, part, i))
    if "arrive" in i.parts:
        m.meetings.arrive_cluster(f, "relaxed" in i.parts)
    elif not m.meetings.wait_cluster(f):
        f.wait = "cluster"
        return False
    f.pc += 1
    return True


def _call(scheduler: Scheduler, f: Fragment, i: Instruction) -> bool:
    calls.call(scheduler.machine, f, i)
    f.pc += 1
    return True


def _ended(scheduler: Scheduler, f: Fragment, _: Instruction) -> bool:
    scheduler.exit(f)
    return False


def _trap(scheduler: Scheduler, f: Fragment, i: Instruction) -> bool:
    raise calls.trapped(scheduler.machine, f, i)


#: What does an instruction, by its first name; all others are barriers.
_KINDS: dict[str, Callable[[Scheduler, Fragment, Instruction], bool]] = {
    "bra": _branch, "brx": _table, "ret": _ended, "exit": _ended, "mbarrier": _mbarrier,
    "call": _call, "trap": _trap,
}  # fmt: skip
