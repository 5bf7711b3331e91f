"""Breakpoints of the emulator: where a kernel reaches a Python line, describe threads and tiles.

The scheduler prints the text; a stop is given as ``ring.py:49``, tiles as ``0x480:f32:1x128``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator.units.layouts import swizzled, values
from mla_var3.errors import EmulatorError
from mla_var3.gpuless.ptx import Kernel

if TYPE_CHECKING:
    from mla_var3.emulator.fragments import Fragment
    from mla_var3.emulator.machine import Machine

#: Kinds of elements that can be shown, and the bytes of each.
SHOWN = {"f32": 4, "f16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1, "s32": 4, "u32": 4, "s8": 1, "u8": 1}
#: Swizzle of a layout to the mode of a tensor map.
SWIZZLES = {None: 0, "sw32": 1, "sw64": 2, "sw128": 3}
TILE = re.compile(r"(0x[0-9a-fA-F]+|\d+):(\w+):(\d+)x(\d+)(?::(sw\d+))?")
#: Elements of a tile that are printed whole; of a larger one a window.
WHOLE, EDGE = 256, 3


@dataclass(frozen=True)
class Tile:
    """A row-major tile in shared memory, such as ``0x400:f16:64x64:sw128``."""

    address: int
    kind: str
    rows: int
    columns: int
    swizzle: str | None = None

    def __str__(self) -> str:
        how = f", {self.swizzle}" if self.swizzle else ""
        return f"tile {self.address:#x} {self.kind} {self.rows}x{self.columns}{how}"


@dataclass(frozen=True)
class Stop:
    """Where to stop, how often, and what to print there.

    Attributes:
        file: Name of the Python file, or the end of its path.
        line: Its line.
        times: Stops per cluster; later passes go on in silence.
        tiles: Tiles of shared memory.
    """

    file: str
    line: int
    times: int = 4
    tiles: tuple[Tile, ...] = ()


def stop(where: str, tiles: tuple[str, ...] = ()) -> Stop:
    """A stop from text: ``ring.py:49``, and tiles such as ``0x480:f32:1x128``.

    Raises:
        EmulatorError: It is neither.
    """
    file, _, line = where.rpartition(":")
    if not file or not line.isdigit():
        raise EmulatorError(f"{where!r} is not a line such as kernel.py:49")
    return Stop(file, int(line), tiles=tuple(map(_tile, tiles)))


def _tile(text: str) -> Tile:
    match = TILE.fullmatch(text)
    if not match or match[2] not in SHOWN or match[5] not in SWIZZLES:
        raise EmulatorError(
            f"{text!r} is not a tile such as 0x400:f16:64x64:sw128 (kinds: {', '.join(SHOWN)}; "
            "swizzles: sw128, sw64, sw32)"
        )
    return Tile(int(match[1], 0), match[2], int(match[3]), int(match[4]), match[5])


def places(kernel: Kernel, wanted: Stop) -> set[int]:
    """Instructions at which the line begins.

    Raises:
        EmulatorError: The kernel has no instruction of that line.
    """
    at, before = set(), False
    lines = set()
    for i in kernel.instructions:
        file, line = kernel.files.get(i.line[0], "") if i.line else "", i.line[1] if i.line else 0
        ours = file.endswith(wanted.file)
        lines |= {line} if ours else set()
        here = ours and line == wanted.line
        if here and not before:
            at.add(i.pc)
        before = here
    if not at:
        known = ", ".join(map(str, sorted(lines))) or "none"
        raise EmulatorError(
            f"the kernel has no instruction of {wanted.file}:{wanted.line} (its lines: {known})"
        )
    return at


def describe(machine: Machine, wanted: Stop, here: Fragment) -> str:
    """What a stop prints."""
    lines = [f"stop at {_at(machine, here.pc)} by {machine.who(here.s)}, CTA {machine.index}"]
    for f in machine.scheduler.fragments:
        if f is not here:
            waits = f", waits ({f.wait})" if f.wait else ""
            lines.append(f"  {machine.who(f.s)} at {_at(machine, f.pc)}{waits}")
    for at, barrier in sorted(machine.sync.mbarriers.items()):
        place = f"{at % machine.shared.size:#x}{_of_cta(machine, at)}"
        lines.append(f"  mbarrier {place} of {_at(machine, barrier.pc)}: {barrier.state()}")
    for key, named in sorted(machine.meetings.named.items()):
        there = f"{named.arrived} of {named.threads or 'all'} threads there"
        lines.append(f"  named barrier {key % 64} of CTA {key // 64}: {there}")
    cta = int(machine.cta[here.ids[0]])
    lines += [_shown(machine, tile, cta) for tile in wanted.tiles]
    return "\n".join(lines) + "\n"


def _at(machine: Machine, pc: int) -> str:
    last = len(machine.program.kernel.instructions) - 1
    site = machine.reporter.site(min(pc, last))
    return f"{site.file}:{site.line}" if site.file else f"ptx#{site.pc}"


def _of_cta(machine: Machine, physical: int) -> str:
    cta = physical // machine.shared.size
    return f" of CTA {cta} of the cluster" if machine.ctas > 1 else ""


def _shown(machine: Machine, tile: Tile, cta: int) -> str:
    """A tile's values; elements that nothing has written are counted."""
    shared, size = machine.shared, SHOWN[tile.kind]
    count = tile.rows * tile.columns
    at = tile.address + size * np.arange(count)
    at = swizzled(at, SWIZZLES[tile.swizzle]) + cta * shared.size
    if tile.address % size or bool(shared.outside(at, size).any()):
        return f"  {tile}: not inside of shared memory (0x400 to {shared.end:#x})"
    numbers = _numbers(shared.views[size][at // size], tile)
    fresh = int((~shared.last.every().known[at // shared.granule]).sum())
    note = f"; {fresh} of {count} elements were never written" if fresh else ""
    with np.printoptions(precision=4, threshold=WHOLE, edgeitems=EDGE, linewidth=96):
        text = str(numbers.reshape(tile.rows, tile.columns))
    return f"  {tile}{note}\n    " + text.replace("\n", "\n    ")


def _numbers(codes: NDArray[Any], tile: Tile) -> NDArray[Any]:
    plain = {"f": "f4", "s": f"i{codes.itemsize}", "u": f"u{codes.itemsize}"}
    if tile.kind[0] in "su" or tile.kind == "f32":
        return codes.view(plain[tile.kind[0]])
    return values(codes, tile.kind)
