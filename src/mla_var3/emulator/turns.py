"""Runs clusters that may wait for each other by turns, as many at a time as a GPU would hold."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable

import numpy as np

from mla_var3.emulator import stuck
from mla_var3.emulator.machine import Dim3, Machine
from mla_var3.emulator.options import Options
from mla_var3.emulator.program import Program
from mla_var3.emulator.windows import SHARED_START

#: Segments that a cluster runs before another one has its turn, where they wait for each other.
QUANTUM = 20_000
#: Turns of all clusters in which nobody does more than to ask others: nobody ever will.
IDLE_TURNS = 50
#: Multiprocessors of the largest GPU of an architecture, threads and CTAs of one of them, and its
#: bytes of shared memory (CUDA C++ Programming Guide, technical specifications; data sheets).
GPUS = {
    80: (108, 2048, 32, 164 << 10),
    86: (84, 1536, 16, 100 << 10),
    89: (142, 1536, 24, 100 << 10),
    90: (132, 2048, 32, 228 << 10),
    100: (148, 2048, 32, 228 << 10),
    103: (160, 2048, 32, 228 << 10),
    120: (188, 1536, 24, 100 << 10),
}
#: Bytes of shared memory of each CTA that are the system's.
SYSTEM = 1024


def resident(program: Program, block: Dim3, ctas: int, shared: int, options: Options) -> int:
    """Clusters of a launch that a GPU holds at the same time, as far as PTX tells; at least one.

    Registers are not known here, so that it may hold fewer.

    Args:
        program: The kernel.
        block: Threads per axis.
        ctas: CTAs of a cluster.
        shared: Bytes of dynamic shared memory.
        options: How it is run.
    """
    found = re.search(r"\d+", program.target)
    gpu = GPUS.get(int(found[0]) if found else 90, GPUS[90])
    multiprocessors, threads, most, memory = gpu
    static = program.static_shared - SHARED_START
    warps = -(-int(np.prod(block)) // 32)
    each = min(threads // (32 * warps), most, memory // (static + shared + SYSTEM))
    return max(1, each * (options.resident or multiprocessors) // ctas)


def in_turns(
    make: Callable[[], Machine], first: Machine, todo: list[Dim3], printed: list[str], most: int
) -> None:
    """Clusters that may wait for each other, a quantum each; no more of them than a GPU holds."""
    waiting = first.memory_map.waiting  # From which a running one may claim another.
    waiting.extend(enumerate(todo))
    live: list[Machine] = []
    spare = [first]
    idle = 0
    while waiting or live:
        # As many again as run: a barrier of the grid is reached by all after a few turns.
        for _ in range(min(max(1, len(live)), most - len(live), len(waiting))):
            number, index = waiting.popleft()
            machine = spare.pop() if spare else make()
            machine.start(index, number)
            live.append(machine)
        before = _state(live, waiting)
        for machine in list(live):
            if machine.run(QUANTUM):
                live.remove(machine)
                spare.append(machine)
                printed += machine.printed
        idle = idle + 1 if _state(live, waiting) == before and _all_ask(live) else 0
        if idle > IDLE_TURNS:
            _stuck(live, len(todo), most, bool(waiting))
            return


def _state(live: list[Machine], waiting: deque[tuple[int, Dim3]]) -> tuple[int, ...]:
    """What changes where anything goes on."""
    changes = live[0].memory_map.changes if live else 0
    return (len(waiting), len(live), changes)


def _all_ask(live: list[Machine]) -> bool:
    """Whether every cluster ended its turn by asking others."""
    return all(m.turn < QUANTUM // 2 for m in live)


def _stuck(live: list[Machine], clusters: int, most: int, waiting: bool) -> None:
    """Report clusters that wait for each other for ever."""
    why = (
        f"a GPU holds {most} of the {clusters} clusters of this grid at the same time, and the "
        "others begin when these end"
        if waiting
        else "every other cluster has ended, or waits too"
    )
    for machine in live:
        machine.reporter.cta = machine.index
        stuck.waits_for_words(machine.scheduler, why)
