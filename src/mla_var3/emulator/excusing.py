"""Takes back findings of reads whose bytes nothing uses.

A launch runs again with other bytes there; what it leaves behind must be the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator.clusters import Launch
from mla_var3.emulator.diagnostics import Diagnostic
from mla_var3.emulator.options import Options
from mla_var3.emulator.regions import Region
from mla_var3.emulator.unused import RacingReads
from mla_var3.errors import EmulatorError

#: Bytes of memory above which a launch is not run again to learn what a read does to it.
MOST_KEPT = 1 << 28
#: Other bytes that may have been read: in floats a large number, and NaN.
FILLS = (0x7B, 0xFF)
RACE = "global-race"
Contents = list[tuple[bytes, NDArray[np.bool_] | None]]
#: Runs a launch once; given racing reads, with the bytes that they bring.
Once = Callable[[Options, RacingReads | None], Launch]


def excused(once: Once, regions: Mapping[int, Region], options: Options) -> Launch:
    """The launch, without findings of reads that change nothing.

    Args:
        once: Runs it.
        regions: The memory that it may touch, by address.
        options: How to run it.
    """
    looks = options.checks and options.model.unused_reads and options.stop is None
    before = _contents(regions) if looks else None
    done = once(options, None)
    reads, done.reads = done.reads, None  # They take memory.
    if before is None or any(d.kind == "deadlock" for d in done.diagnostics):
        return done  # What it never came to leave behind says nothing of what was read.
    if any(map(_is_unwritten_read, done.diagnostics)):
        fills = [(replace(options, fill=fill), None) for fill in FILLS]
        if _the_same(once, fills, regions, before, done) is not None:
            done.diagnostics = [d for d in done.diagnostics if not _is_unwritten_read(d)]
    if reads is not None and reads.excusable:
        others = [(options, replace(reads, fill=fill)) for fill in FILLS]
        again = _the_same(once, others, regions, before, done)
        if again is not None:  # Races are left that are not of such reads.
            rest = [d for d in done.diagnostics if d.kind != RACE]
            done.diagnostics = rest + [d for d in again.diagnostics if d.kind == RACE]
    return done


def _contents(regions: Mapping[int, Region]) -> Contents | None:
    """What memory holds, and what of it is known; None where that is too much to keep."""
    if sum(r.size for r in regions.values()) > MOST_KEPT:
        return None
    return [
        (r.data.tobytes(), None if r.known is None else r.known.copy()) for r in regions.values()
    ]


def _put_back(regions: Mapping[int, Region], contents: Contents) -> None:
    for region, (data, known) in zip(regions.values(), contents, strict=True):
        region.data[:] = np.frombuffer(data, np.uint8)
        region.known = known


def _is_unwritten_read(d: Diagnostic) -> bool:
    return d.kind == "uninitialized-read" and d.message.startswith("shared ")


def _the_same(
    once: Once,
    ways: Sequence[tuple[Options, RacingReads | None]],
    regions: Mapping[int, Region],
    before: Contents,
    done: Launch,
) -> Launch | None:
    """The launch with other bytes where it reads; None where it leaves something else behind."""
    after = _contents(regions)
    assert after is not None
    left, again = [data for data, _ in after], None
    try:
        for options, reads in ways:
            _put_back(regions, before)
            again = once(replace(options, counting="off", timeline=False), reads)
            now = [r.data.tobytes() for r in regions.values()]
            if (now, again.printed) != (left, done.printed):
                return None
    except EmulatorError:
        return None
    finally:
        _put_back(regions, after)
    return again
