"""Reads what each step of a kernel's main loop executes, from its SASS."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from mla_var3.static.sass import mma_family

_INSTRUCTION = re.compile(
    r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(?P<opcode>[A-Z][A-Za-z0-9_.]*)(?P<operands>[^;]*)"
)
_LABEL = re.compile(r"^(\.L_x_\d{1,9}):")
_TARGET = re.compile(r"`\((\.L_x_\d{1,9})\)")
_LEFT_OPEN = re.compile(r"gsb0, 0x([0-9a-f]{1,2})")
#: Opcodes of which modifiers tell what matters: whether a warp waits, and how far a fence reaches.
_KEPT = {"BAR": 1, "MEMBAR": 2}
_WAIT, _POLL = "WARPGROUP.DEPBAR", "SYNCS.PHASECHK"
#: Most instructions of a loop that only polls a barrier.
_POLLS = 8


@dataclass(frozen=True)
class _Code:
    """Instructions by name, and branches from one to another."""

    names: list[str]
    back: list[tuple[int, int]]
    ahead: list[tuple[int, int]]


def step_mix(listing: str) -> dict[str, int]:
    """Instructions that every step of the loops that multiply executes.

    A loop is what lies between a label and a branch back to it. Of nested ones the innermost with
    a product counts, and what a branch within it may pass over does not. A block behind the loop
    that polls a barrier until it opens, and then goes back into the loop, makes none.

    Names are opcodes without modifiers, but for tensor-core instructions, ``BAR.SYNC``,
    ``MEMBAR.ALL.GPU`` and the like, and ``WARPGROUP.DEPBAR 1``, a wait that leaves one group of
    products under way.

    Args:
        listing: ``nvdisasm --print-code`` of one kernel.

    Returns:
        Count by name, most frequent first; empty where no loop multiplies.
    """
    code = _read(listing)
    products = [i for i, name in enumerate(code.names) if mma_family(name)]
    loops = [span for span in code.back if any(span[0] <= i <= span[1] for i in products)]
    found: Counter[str] = Counter()
    for start, end in loops:
        inner = (span for span in loops if span != (start, end))
        if not any(start <= a and b <= end for a, b in inner):
            step = list(_always(code, start, end))
            if any(map(mma_family, step)):
                found.update(step)
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _always(code: _Code, start: int, end: int) -> Iterator[str]:
    """Names between two places that no branch between them passes over."""
    passed = [(a, b) for a, b in code.ahead if start <= a and b <= end]
    for i in range(start, end + 1):
        if not any(a < i < b for a, b in passed):
            yield code.names[i]


def _read(listing: str) -> _Code:
    names: list[str] = []
    labels: dict[str, int] = {}
    branches: list[tuple[int, str]] = []
    retries: set[int] = set()
    polled = -_POLLS  # Where the last loop over a poll ended.
    for raw in listing.splitlines():
        if match := _LABEL.match(raw):
            labels[match[1]] = len(names)
        elif (match := _INSTRUCTION.match(raw)) and match["opcode"] != "NOP":
            opcode, here = match["opcode"], len(names)
            if opcode.startswith("BRA") and (target := _TARGET.search(match["operands"])):
                start = labels.get(target[1], here)
                if here == polled + 1:
                    retries.add(here)
                if here - start <= _POLLS and _POLL in names[start:]:
                    polled = here
                branches.append((here, target[1]))
            names.append(_named(opcode, match["operands"]))
    known = [(at, labels[name]) for at, name in branches if name in labels]
    ends: dict[int, int] = {}
    for at, to in known:
        if to <= at and at not in retries:
            ends[to] = max(at, ends.get(to, at))
    return _Code(names, list(ends.items()), [(at, to) for at, to in known if to > at])


def _named(opcode: str, operands: str) -> str:
    """The name by which ``step_mix`` counts an instruction."""
    if mma_family(opcode):
        return opcode
    if opcode.startswith(_POLL):
        return _POLL
    if opcode.startswith(_WAIT):
        left = _LEFT_OPEN.search(operands)
        return f"{_WAIT} {int(left[1], 16) if left else 0}"
    base, *more = opcode.split(".")
    return ".".join([base, *more[: _KEPT.get(base, 0)]])
