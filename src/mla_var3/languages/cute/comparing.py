"""Lowers ``selp`` so that a run notes of which edits the two values differ.

Apart from ``choices``, which each run of a kernel imports: this one loads the emulator.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from mla_var3.emulator.lower import moves
from mla_var3.emulator.lower.base import FAMILIES, Op
from mla_var3.emulator.program import Program
from mla_var3.gpuless.ptx import bits
from mla_var3.languages.cute import selections

IsOpen = Callable[[int], bool]
Differs = Callable[[int], None]


def begin(is_open: IsOpen, differs: Differs) -> None:
    """Have all that is lowered from now on note it.

    Args:
        is_open: Says of an edit's number whether it is asked if its values differ.
        differs: Told of a number whose values do.
    """

    def selp(op: Op) -> list[str]:
        number = _selectors(op.writer.program).get(op.args[3])
        if number is None:
            return moves.selp(op)
        kind = f"u{bits(op.kind)}"
        note = op.constant(functools.partial(_compare, number, is_open, differs))
        return [f"{note}({op.get(1, kind)}, {op.get(2, kind)})", *moves.selp(op)]

    FAMILIES["selp"] = selp


@functools.lru_cache(maxsize=1)  # Each selection of a kernel asks while it is lowered.
def _selectors(program: Program) -> Mapping[str, int]:
    return selections.find(program.kernel).by


def _compare(number: int, is_open: IsOpen, differs: Differs, one: Any, other: Any) -> None:
    if is_open(number) and (one != other).any():
        differs(number)
