"""Runs one launch several times on equal memory: under other schedules or memory models."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mla_var3.emulator.clusters import Launch
from mla_var3.emulator.launcher import run
from mla_var3.emulator.machine import Dim3
from mla_var3.emulator.options import Options
from mla_var3.emulator.program import Program
from mla_var3.emulator.regions import Region
from mla_var3.emulator.touched import GridBefore

#: Seconds of a launch up to which it is soon done.
SOON = 1.0
#: Bytes of memory up to which a launch is remembered.
MOST_REMEMBERED = 1 << 26
#: First parts of opcodes by which threads wait for each other.
WAITS = {"mbarrier", "bar", "barrier", "atom", "red", "cp", "wgmma", "tcgen05"}


@dataclass(frozen=True)
class Asked:
    """A launch that a host function, or another runtime, asks for.

    Attributes:
        program: The kernel.
        parameters: Its parameters, packed.
        shape: Grid, block, cluster, and bytes of dynamic shared memory.
        after: The launch that it may overlap.
        counted: Whether the host asked how many multiprocessors there are, so that a grid may be
            as large as they hold and no larger.
    """

    program: Program
    parameters: bytes
    shape: tuple[Dim3, Dim3, Dim3, int]
    after: Launch | None = None
    counted: bool = False

    @property
    def synchronizes(self) -> bool:
        """Whether schedules may differ in what they show."""
        return any(i.parts[0] in WAITS for i in self.program.kernel.instructions)

    def once(self, regions: Sequence[Region], options: Options) -> Launch:
        """Run it in one way."""
        if self.counted and options.resident is None:
            options = replace(options, resident=options.multiprocessors)
        return run(self.program, self.parameters, *self.shape, regions, options, self.after)


class Repeats:
    """Launches that are asked for again and again, as by a program that takes times.

    The same launch on the same memory leaves the same behind: it is not run a third time.
    """

    def __init__(self) -> None:
        self.key: object = None
        self.before: list[bytes] = []
        self.after: list[bytes] = []
        self.launches: list[Launch] = []
        self.touched: GridBefore | None = None

    def run(
        self,
        asked: Asked,
        regions: Sequence[Region],
        options: Options,
        others: Sequence[Options],
        where_quick: Sequence[Options],
    ) -> list[Launch]:
        """As ``in_ways``, or what it gave before."""
        where = [(r.base, r.size) for r in regions]
        key = (asked.program, asked.parameters, asked.shape, options, *others, *where_quick, *where)
        small = sum(r.size for r in regions) <= MOST_REMEMBERED
        if key != self.key or asked.after is not None or not small:
            self.key, self.launches = (key if small else None), []
            return in_ways(asked, regions, options, others, where_quick)
        before = _contents(regions)
        if self.launches and before == self.before:
            _put(regions, self.after)
            *rest, last = [replace(launch, seconds=0.0) for launch in self.launches]
            last.grid_before = self.touched
            return [*rest, last]
        self.launches = in_ways(asked, regions, options, others, where_quick)
        self.touched = self.launches[-1].grid_before
        self.before, self.after = before, _contents(regions)
        return self.launches


def in_ways(
    asked: Asked,
    regions: Sequence[Region],
    options: Options,
    others: Sequence[Options],
    where_quick: Sequence[Options],
) -> list[Launch]:
    """Run a launch in all ways; what the memory holds then is of ``options``, which comes last.

    Args:
        asked: The launch.
        regions: Memory that it may touch.
        options: How it is run.
        others: Further ways.
        where_quick: Further ways, if it synchronizes and is soon done.
    """
    before = _contents(regions) if others or where_quick else []
    fresh = [r.known is not None for r in regions]
    done = asked.once(regions, options)
    quick = done.seconds < SOON and asked.synchronizes
    more = [*others, *(where_quick if quick else ())]
    if not more:
        return [done]
    after = _contents(regions)
    try:
        return [*_otherwise(asked, regions, more, before, fresh), done]
    finally:
        _put(regions, after)


def _otherwise(
    asked: Asked,
    regions: Sequence[Region],
    ways: Sequence[Options],
    before: Sequence[bytes],
    fresh: Sequence[bool],
) -> Iterator[Launch]:
    for options in ways:
        _put(regions, before)
        again = [
            Region(r.base, r.size, r.label, unwritten)
            for r, unwritten in zip(regions, fresh, strict=True)
        ]
        launch = asked.once(again, options)
        launch.grid_before = None  # It takes memory.
        yield launch


def _contents(regions: Sequence[Region]) -> list[bytes]:
    return [ctypes.string_at(r.base, r.size) for r in regions]


def _put(regions: Sequence[Region], contents: Sequence[bytes]) -> None:
    for region, old in zip(regions, contents, strict=True):
        ctypes.memmove(region.base, old, region.size)
