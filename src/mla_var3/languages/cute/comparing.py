"""Lowers ``selp`` so that a run notes of which edits the two values differ.

Apart from ``choices``, which each run of a kernel imports: this one loads the emulator.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from mla_var3.emulator.lower import moves
from mla_var3.emulator.lower.base import FAMILIES, Op
from mla_var3.emulator.program import Program
from mla_var3.gpuless.ptx import bits
from mla_var3.languages.cute import choices, selections


def begin() -> None:
    """Have all that is lowered from now on note it."""
    FAMILIES["selp"] = selp


def selp(op: Op) -> list[str]:
    """Lower ``selp``; by the predicate of an edit it notes whether there are two values."""
    number = _selectors(op.writer.program).get(op.args[3])
    if number is None:
        return moves.selp(op)
    kind = f"u{bits(op.kind)}"
    note = op.constant(functools.partial(_compare, number))
    return [f"{note}({op.get(1, kind)}, {op.get(2, kind)})", *moves.selp(op)]


@functools.lru_cache(maxsize=1)  # Each selection of a kernel asks while it is lowered.
def _selectors(program: Program) -> Mapping[str, int]:
    return selections.find(program.kernel).by


def _compare(number: int, one: Any, other: Any) -> None:
    if choices.is_open(number) and (one != other).any():
        choices.differs(number)
