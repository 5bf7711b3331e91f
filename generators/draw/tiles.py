"""Draws a version's accumulator tiles against registers and shared memory, as SVG, per arch.

Registers, stack, shared memory and opcodes are the compiler's, from the records of its compiles.
What the accumulators take of the registers is worked out from their extents in the source.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from generators.draw import shapes
from generators.draw.shapes import (
    BLUE,
    EDGE,
    INK,
    ORANGE,
    PURPLE,
    QUIET,
    SLOWER,
    SUNK,
    rect,
    squares,
    text,
)
from generators.model import plans, problems
from generators.model.run import Run
from generators.model.site import Site
from generators.write import figures
from generators.write.text import cell, sections
from mla_var3.devices.limits import SmLimits
from mla_var3.evidence import Stage, StaticFacts
from mla_var3.knowledge.evidence import Link
from mla_var3.languages import Tile, find
from mla_var3.runtime.registry import Version
from mla_var3.static.occupancy import TENSOR_MEMORY_COLUMNS, limits_of, of_facts

#: Width of a panel, columns and pitch of its squares, and the same of words on the stack.
WIDTH, COLUMNS, PITCH = 340, 16, 11
WORDS, WORD_PITCH, MOST_ROWS = 68, 5, 16
_WORD, _WARP = 4, 32


@dataclass(frozen=True)
class Compiled:
    """The stage of a version that does most of its work, as one record has it.

    Attributes:
        run: The record.
        stage: The stage.
        facts: What the compiler made of it.
        limits: What an SM of the arch's device can hold.
        tiles: Tiles that its source keeps in fp32.
    """

    run: Run
    stage: Stage
    facts: StaticFacts
    limits: SmLimits
    tiles: tuple[Tile, ...]

    @property
    def in_tensor_memory(self) -> bool:
        """Whether accumulators lie in tensor memory (PTX ISA, ``tcgen05.mma``: D is there)."""
        return self.facts.tensor_memory_columns > 0

    @property
    def workers(self) -> int | None:
        """Warps that hold the tiles; None where they were not asked for."""
        return find(self.run.record.kernel.language).worker_warps(self.stage.tiling)

    @property
    def threads(self) -> int:
        """Threads that can hold the tiles: those of the worker warps, where they were asked for."""
        return _WARP * self.workers if self.workers else self.facts.threads_per_block

    @property
    def is_lower_bound(self) -> bool:
        """Whether some of ``threads`` may hold nothing: warps that only copy are among them."""
        return self.workers is None and any(tile.threads is None for tile in self.tiles)

    def registers_of(self, tile: Tile) -> int:
        """Registers of a thread that a tile takes; 0 where it lies in tensor memory."""
        if tile.accumulates and self.in_tensor_memory:
            return 0
        return math.ceil(tile.rows * tile.columns / (tile.threads or self.threads))

    @property
    def stages(self) -> int | None:
        """Steps of its loop that shared memory holds, where its tiling says so."""
        stages = self.stage.tiling.get("stages")
        return stages if isinstance(stages, int) else None

    @property
    def words(self) -> int:
        """32-bit words of stack per thread, where registers spill to it."""
        return self.facts.stack_bytes // _WORD if self.facts.spills else 0

    @property
    def mma(self) -> tuple[str, tuple[int, int, int] | None]:
        """The widest opcode that multiplies, and its rows, columns and depth where it says them."""
        counts = self.facts.mma_instructions
        if not counts:
            return self.facts.mma_path, None
        opcode = max(counts, key=lambda name: (math.prod(_shape(name) or (0,)), counts[name]))
        return opcode.partition(".")[0], _shape(opcode)

    @property
    def message(self) -> str:
        """What the panel shows, as sentences."""
        return " ".join(
            filter(None, [self._registers(), self._spills(), self._memory(), self._core()])
        )

    def _registers(self) -> str:
        facts = self.facts
        least = "at least " if self.is_lower_bound else ""
        taken = [
            f"{t.name} ({t.rows} x {t.columns}) {least}{self.registers_of(t)}"
            for t in self.tiles
            if self.registers_of(t)
        ]
        of = f", of which {' and '.join(taken)}" if taken else ""
        most = self.limits.registers_per_thread
        more = facts.most_registers != facts.registers
        later = f", {facts.most_registers} where it computes (setmaxnreg)" if more else ""
        return (
            f"{facts.arch}: {facts.registers} of {most} registers per thread at launch{later}{of}."
        )

    def _spills(self) -> str:
        if not self.facts.spills:
            return "Nothing spills."
        return f"{self.facts.spill_instructions:,} spill instructions, {self.words} words of stack."

    def _memory(self) -> str:
        most = self.limits.shared_memory_per_block_max
        columns = self.facts.tensor_memory_columns
        tensor = (
            f", {columns} of {TENSOR_MEMORY_COLUMNS} columns of tensor memory" if columns else ""
        )
        ring = f", in which {self.stages} steps of the loop fit" if self.stages else ""
        return f"Shared memory {self.facts.shared_bytes:,} of {most:,} bytes{ring}{tensor}."

    def _core(self) -> str:
        opcode, shape = self.mma
        return f"{opcode} {_extents(shape)}." if shape else f"{opcode}."


def _shape(opcode: str) -> tuple[int, int, int] | None:
    """Rows, columns and depth in an opcode: ``HGMMA.64x256x16``, ``HMMA.16816``."""
    if found := re.search(r"\.(\d+)x(\d+)x(\d+)\b", opcode):
        rows, columns, depth = map(int, found.groups())
        return rows, columns, depth
    if found := re.search(r"\.16(8)(8|16|32)\b", opcode):
        return 16, int(found[1]), int(found[2])
    return None


def _extents(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


# -- from records ----------------------------------------------------------------------------------


def _flops(item: tuple[Run, Stage, StaticFacts]) -> int:
    work = item[0].work_of(item[1])
    return work.flops if work else 0


def compiled(site: Site, version: Version) -> list[Compiled]:
    """The stage that does most of the work, once per arch with a device, in the order of archs.

    Of the archs alone that the language compiles for by itself: a picture of every one is too long.
    """
    own = find(version.language).archs
    found = [
        (run, stage, stage.static)
        for run in site.runs_of(version)
        if run.record.is_static and run.outcome
        for stage in run.outcome.stages
        if stage.static is not None and stage.static.ok and stage.static.arch in own
    ]
    if not found:
        return []
    heaviest = max(found, key=_flops)[1].kernel
    chosen: dict[str, tuple[Run, Stage, StaticFacts]] = {}
    for item in sorted(found, key=lambda item: (item[0].stale, -_flops(item), item[0].name)):
        if item[1].kernel == heaviest:
            chosen.setdefault(item[2].arch, item)
    ordered = sorted(chosen.values(), key=lambda item: (len(item[2].arch), item[2].arch))
    return [
        Compiled(run, stage, facts, limits, _tiles(version, run, stage))
        for run, stage, facts in ordered
        if (limits := limits_of(facts.arch))
    ]


def _tiles(version: Version, run: Run, stage: Stage) -> tuple[Tile, ...]:
    given = {**run.record.problem, **stage.tiling}
    # A flag is an int too, and no size.
    sizes = {
        name: value
        for name, value in given.items()
        if isinstance(value, int) and not isinstance(value, bool)
    }
    kernel = plans.kernels(version, run).get(stage.name)
    if kernel is None:
        return ()
    language = find(version.language)
    own, shared = version.path.parent, version.path.parents[1]
    for file in (*sorted(own.glob("*.py")), *sorted(shared.glob("*.py"))):
        if found := language.tiles(kernel, file, sizes):
            return found
    return ()


# -- the drawing -----------------------------------------------------------------------------------


def section(site: Site, version: Version, link: Link) -> str:
    """The picture of a version, a panel per arch; empty where nothing was compiled."""
    panels = compiled(site, version)
    if not panels:
        return ""
    drawn = "".join(map(panel, panels))
    made = "; ".join(
        f"{cell(p.facts.arch)} at "
        + figures.record_link(p.run, link, cell(str(problems.problem_of(p.run.record))))
        for p in panels
    )
    return sections(
        shapes.figure(drawn, _caption(panels), kind="drawn panels"),
        f"Compiled for {made}.",
    )


def _caption(panels: list[Compiled]) -> str:
    spilling = ", ".join(f"{p.words} on {p.facts.arch}" for p in panels if p.facts.spills)
    red = f" Each red one is a word that spills to the stack: {spilling}." if spilling else ""
    lower = ""
    if any(p.is_lower_bound and p.tiles for p in panels):
        lower = " The compiler chose the warps; those that only copy hold no tile, so a tile takes "
        lower += "at least the registers shown."
    if any(p.facts.most_registers != p.facts.registers for p in panels):
        lower += " Warps that compute ask for more registers than at launch (setmaxnreg); theirs "
        lower += "are shown."
    return (
        f"Stage {panels[0].stage.name}. Each square is one of the registers that a thread can "
        f"name.{red or ' Nothing spills.'}{lower} Registers at launch, stack, shared "
        "memory and opcodes are the compiler's; a tile's share follows from its extents."
    )


def panel(shown: Compiled) -> str:
    """One arch: registers, spills, shared and tensor memory, and the accumulator in pieces."""
    parts = [text(0, 14, f"{shown.facts.arch}, {shown.facts.threads_per_block} threads", bold=True)]
    parts += _register_grid(shown, top=26)
    top: float = 26 + PITCH * COLUMNS + 22
    for draw in (_spilled, _bars, _pieces):
        more, top = draw(shown, top)
        parts += more
    return shapes.svg(WIDTH, top, parts, "Tiles against the machine", shown.message)


def _register_grid(shown: Compiled, top: float) -> Iterator[str]:
    start, most = 0, shown.limits.registers_per_thread
    for row, (count, color, words) in enumerate(_shares(shown)):
        until = min(start + count, most)
        yield squares(range(start, until), COLUMNS, PITCH, color, top=top)
        y = top + 12 + row * 34
        yield rect(196, y - 10, 10, 10, color)
        yield text(212, y, f"{count} of {most}" if count > most else str(count), bold=True)
        yield text(212, y + 15, words, fill=QUIET, size=12)
        start = until


def _shares(shown: Compiled) -> list[tuple[int, str, str]]:
    """What the registers of a thread hold: how many, colour and name; nothing of 0."""
    kept = [tile for tile in shown.tiles if shown.registers_of(tile)]
    found = [
        (shown.registers_of(tile), color, f"{tile.name}, {tile.rows} x {tile.columns} fp32")
        for tile, color in zip(kept, (BLUE, PURPLE, ORANGE), strict=False)
    ]
    used, most = shown.facts.most_registers, shown.limits.registers_per_thread
    other = max(0, used - sum(count for count, *_ in found))
    found += [(other, QUIET, "all else" if found else "used"), (most - used, EDGE, "free")]
    return [share for share in found if share[0] > 0]


def _spilled(shown: Compiled, top: float) -> tuple[list[str], float]:
    if not shown.facts.spills:
        return [text(0, top, "No spills", bold=True)], top + 22
    said = f"Spills: {shown.facts.spill_instructions:,} instructions, {shown.words} words"
    rows = min(math.ceil(shown.words / WORDS), MOST_ROWS)
    fitting = range(min(shown.words, rows * WORDS))
    drawn = squares(fitting, WORDS, WORD_PITCH, SLOWER, top=top + 8)
    return [text(0, top, said, fill=SLOWER, bold=True), drawn], top + 30 + rows * WORD_PITCH


def _bars(shown: Compiled, top: float) -> tuple[list[str], float]:
    most = shown.limits.shared_memory_per_block_max
    ring = f", {shown.stages} stages" if shown.stages else ""
    bars = [(f"Shared memory{ring}", shown.facts.shared_bytes, most, "B")]
    if columns := shown.facts.tensor_memory_columns:
        holds = "Tensor memory: " + ", ".join(t.name for t in shown.tiles if t.accumulates)
        bars.append((holds.removesuffix(": "), columns, TENSOR_MEMORY_COLUMNS, "columns"))
    parts: list[str] = []
    for name, used, most, unit in bars:
        parts += [
            text(0, top, name),
            text(WIDTH, top, f"{used:,} of {most:,} {unit}", anchor="end"),
            rect(0, top + 6, WIDTH, 9, SUNK),
            rect(0, top + 6, WIDTH * min(used / most, 1), 9, BLUE),
        ]  # fmt: skip
        top += 36
    if held := of_facts(shown.facts):
        blocks = "block" if held.blocks_per_sm == 1 else "blocks"
        words = f"{held.blocks_per_sm} {blocks} per SM, limited by {held.limiter}"
        parts.append(text(0, top, words))
        top += 22
    return parts, top


def _pieces(shown: Compiled, top: float) -> tuple[list[str], float]:
    """The largest accumulator, cut into the tiles of one tensor-core instruction."""
    opcode, shape = shown.mma
    said = f"{opcode}, {_extents(shape)}" if shape else f"{opcode}: its size is not in the opcode"
    parts = [text(0, top, said)]
    tile = next((t for t in shown.tiles if t.accumulates), None)
    if tile is None:
        return parts, top + 8
    rows, columns = tile.rows, tile.columns
    scale = min(WIDTH / columns, 64 / rows)
    parts.append(rect(0, top + 8, columns * scale, rows * scale, BLUE, opacity=0.35))
    if shape:
        cuts = _cuts(columns, shape[1], rows, shape[0], scale, top + 8)
        parts.append(f'<path d="{cuts}" fill="none" style="stroke:{INK}" stroke-width="0.7"/>')
    bottom = top + 8 + rows * scale
    many = _count(tile, shape)
    parts.append(
        text(0, bottom + 16, f"{tile.name}, {rows} x {columns}{many}", fill=QUIET, size=12)
    )
    return parts, bottom + 22


def _count(tile: Tile, shape: tuple[int, int, int] | None) -> str:
    if shape is None:
        return ""
    pieces = math.ceil(tile.rows / shape[0]) * math.ceil(tile.columns / shape[1])
    return f": {pieces} pieces of an instruction" if pieces > 1 else ": one instruction wide"


def _cuts(columns: int, across: int, rows: int, down: int, scale: float, top: float) -> str:
    """Lines between the instructions of a tile, its border among them."""
    xs = [*range(0, columns, across), columns]
    ys = [*range(0, rows, down), rows]
    upright = (f"M{x * scale:.1f} {top:g}v{rows * scale:.1f}" for x in xs)
    level = (f"M0 {top + y * scale:.1f}h{columns * scale:.1f}" for y in ys)
    return "".join((*upright, *level))
