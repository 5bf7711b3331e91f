"""Optimization of lowered PTX: merges independent instructions of one form into one numpy call.

Compilers unroll loops over fragments, so that a segment has the same few operations dozens of
times. Instructions that only compute, each thread for itself, are grouped by form and by dependence
level; each group becomes one line over the register rows of all.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mla_var3.emulator.lower.base import Writer

#: Fewer rows are not worth gathering.
FEWEST = 4
#: A product of a chain that is not its last.
QUEUE = "wgmma.queue("
_ROW = re.compile(r"\b(rs|rf|r|qs|qf|q|hs|hf|h|p)(\d+)\[s\]")
_CONSTANT = re.compile(r"\bk\d+\b")
_GATHERED = re.compile(r"\b(bank_\w+)\[(k\d+), s\]")
_NAME = re.compile(r"(?<![\w.])[A-Za-z_][\w.]*|\.[a-z]\w*")
#: What works on each element alone, whatever the shape.
ELEMENTWISE = {
    *("np.exp2", "np.log2", "np.sqrt", "np.abs", "np.isnan", "np.where", "np.multiply"),
    *("fn.flush", "fn.fma32", "fn.half", "fn.float_max", "fn.float_min"),
    *("formats.to_bf16", "formats.from_bf16", "rn", "rz"),
    *("np.minimum", "np.asarray", "np.uint16", "np.uint32", "np.uint64"),
    *("np.int16", "np.int32", "np.int64"),
    *("F32", "F64", "U16", "U32", "U64", "dtype", "True", "False", ".astype", "K", "R"),
}


@dataclass(frozen=True)
class Line:
    """A lowered instruction: its form without rows and numbers.

    Attributes:
        text: The Python line.
        form: What is the same in all that can be done together.
        rows: Its rows as (bank, number).
        constants: The constants that it names.
    """

    text: str
    form: tuple[str, ...]
    rows: tuple[tuple[str, int], ...]
    constants: tuple[Any, ...]


def batched(bodies: Sequence[list[str]], writer: Writer) -> list[str] | None:
    """Lines that do what the bodies of instructions do, for threads that are a slice.

    ``scattered`` makes them lines for any threads.

    Args:
        bodies: The lines of each instruction.
        writer: Where constants are and new ones go.

    Returns:
        The lines; None where nothing is gained.
    """
    out: list[str] = []
    stretch: list[Line] = []
    queued: list[str] = []
    for body in bodies:
        line = _line(body, writer)
        if line is not None:
            stretch.append(line)
        elif len(body) == 1 and body[0].startswith(QUEUE):
            queued += body  # Its chain's rows stay as they are until its last product.
        else:
            out += [*_stretch(stretch, writer), *queued, *body]
            stretch, queued = [], []
    out += [*_stretch(stretch, writer), *queued]
    return out if len(out) < sum(map(len, bodies)) else None


def _line(body: list[str], writer: Writer) -> Line | None:
    """An instruction that computes each thread's value alone; None for any other."""
    if len(body) == 2 and body[0].startswith("x = ") and body[1].endswith("] = x"):
        body = [f"{body[1].removesuffix('x')}{body[0].removeprefix('x = ')}"]
    if len(body) != 1 or not _ROW.match(body[0]) or "] = " not in body[0]:
        return None
    text = body[0]
    form = _CONSTANT.sub("K", _ROW.sub("R", text))
    if not ELEMENTWISE.issuperset(_NAME.findall(form)):
        return None
    values = [writer.program.constants[k] for k in _CONSTANT.findall(text)]
    banks = [bank for bank, _ in _ROW.findall(text)]
    rows = tuple((bank[0], int(number)) for bank, number in _ROW.findall(text))
    return Line(text, (form, *banks, *map(_told, values)), rows, tuple(values))


def _told(value: Any) -> str:
    """What must be alike in constants: the type of a number, else all of it to the bit."""
    if isinstance(value, np.generic):
        return value.dtype.str
    return f"{type(value).__name__} {np.asarray(value).tobytes().hex()}"


def _stretch(lines: list[Line], writer: Writer) -> list[str]:
    """Instructions that only compute, those of one form and level together."""
    groups: dict[tuple[int, tuple[str, ...]], list[Line]] = defaultdict(list)
    for line, level in zip(lines, _levels(lines), strict=True):
        groups[level, line.form].append(line)
    out = []
    for _, group in sorted(groups.items(), key=lambda item: item[0][0]):
        texts = [line.text for line in group]
        out += [_together(group, writer)] if len(group) >= FEWEST else texts
    return out


def _levels(lines: list[Line]) -> list[int]:
    """How many instructions each has to wait for, one after the other."""
    written: dict[tuple[str, int], int] = {}
    read: dict[tuple[str, int], int] = {}
    levels = []
    for line in lines:
        target, *sources = line.rows
        before = [written.get(row, 0) for row in line.rows]
        level = 1 + max(*before, read.get(target, 0), 0)
        for row in sources:
            read[row] = max(read.get(row, 0), level)
        written[target] = level
        levels.append(level)
    return levels


def _together(group: list[Line], writer: Writer) -> str:
    """One line for instructions of one form."""
    columns = iter(zip(*(line.rows for line in group), strict=True))

    def gathered(match: re.Match[str]) -> str:
        numbers = [number for _, number in next(columns)]
        if len(set(numbers)) == 1:
            return match[0]
        first, last = numbers[0], numbers[-1]
        if numbers == list(range(first, last + 1)):
            return f"bank_{match[1]}[{first}:{last + 1}, s]"
        return f"bank_{match[1]}[{writer.constant(np.array(numbers))}, s]"

    numbers = iter(zip(*(line.constants for line in group), strict=True))

    def stacked(match: re.Match[str]) -> str:
        values = next(numbers)
        if len({np.asarray(v).tobytes() for v in values}) == 1:
            return match[0]
        return writer.constant(np.array(values)[:, None])

    return _ROW.sub(gathered, _CONSTANT.sub(stacked, group[0].text))


def scattered(source: str) -> str:
    """The same lines for threads that are an index: rows and threads are paired all with all."""
    return _GATHERED.sub(r"\1[\2[:, None], s]", source)
