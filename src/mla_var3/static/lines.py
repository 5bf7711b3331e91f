"""Counts a cubin's SASS instructions per source line, by its line table."""

from __future__ import annotations

from collections.abc import Sequence

from mla_var3.evidence import LineFacts
from mla_var3.static import sass
from mla_var3.static.source import relative_source


def line_facts(instructions: Sequence[sass.Instruction]) -> list[LineFacts]:
    """SASS instructions by source line, in order of file and line.

    Args:
        instructions: As ``sass.parse_listing`` reads them; those without a line (or of line 0,
            which is a line table's word for none) count for no line.
    """
    by_line: dict[tuple[str, int], list[sass.Instruction]] = {}
    for instruction in instructions:
        if instruction.file is not None and instruction.line:
            place = (relative_source(instruction.file), instruction.line)
            by_line.setdefault(place, []).append(instruction)
    tma = {*sass.TMA_LOADS, *sass.TMA_STORES}
    return [
        LineFacts(
            file=file,
            line=line,
            instructions=len(group),
            mma=sum(sass.mma_family(i.opcode) is not None for i in group),
            spill_loads=sum(i.base == "LDL" for i in group),
            spill_stores=sum(i.base == "STL" for i in group),
            tma=sum(i.base in tma for i in group),
        )
        for (file, line), group in sorted(by_line.items())
    ]
