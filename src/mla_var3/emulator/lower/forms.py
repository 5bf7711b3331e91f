"""Reads ``forms.txt``, the table of PTX instruction forms that are run, refused, or still to do.

Lowering refuses an instruction unless a form that is run lists each of its modifiers, so that no
modifier is ignored silently.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, cast

Status = Literal["run", "todo", "refused"]
TABLE = Path(__file__).with_name("forms.txt")


@dataclass(frozen=True)
class Group:
    """Modifiers of which an opcode has one, or may have one."""

    names: tuple[str, ...]
    optional: bool


@dataclass(frozen=True)
class Form:
    """Opcodes that are treated alike.

    Attributes:
        status: How.
        since: The version of the PTX ISA that brought them.
        name: The first part of the opcode.
        groups: The parts behind it, in order.
        open: Whether any other parts may follow.
    """

    status: Status
    since: str
    name: str
    groups: tuple[Group, ...]
    open: bool = False

    def takes(self, parts: Sequence[str]) -> bool:
        """Whether it takes every modifier of an opcode.

        The order of different modifiers is free, as it is for ptxas in places; types are told
        apart by their order.
        """
        left = list(parts)
        for group in self.groups:
            found = next((part for part in left if part in group.names), None)
            if found is not None:
                left.remove(found)
            elif not group.optional:
                return False
        return self.open or not left

    def opcodes(self) -> Iterator[str]:
        """Every opcode of the form."""
        choices = [(*g.names, *([""] if g.optional else [])) for g in self.groups]
        for chosen in itertools.product(*choices):
            yield ".".join([self.name, *filter(None, chosen)])


@cache
def table() -> dict[str, tuple[Form, ...]]:
    """The forms by the first part of their opcodes."""
    sets: dict[str, tuple[str, ...]] = {}
    found: dict[str, list[Form]] = defaultdict(list)
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        words = line.partition("#")[0].split()
        if not words:
            continue
        if words[0] == "set":
            sets[words[1]] = tuple(words[2].split("|"))
            continue
        status, since, name, *rest = words
        groups = tuple(_group(word, sets) for word in rest if word != "...")
        found[name].append(Form(cast("Status", status), since, name, groups, "..." in rest))
    return {name: tuple(forms) for name, forms in found.items()}


def _group(word: str, sets: dict[str, tuple[str, ...]]) -> Group:
    names: list[str] = []
    for name in word.strip("[]").split("|"):
        stem, _, tail = name.partition("+")
        names += [n + tail for n in sets[stem[1:]]] if stem.startswith("$") else [name]
    return Group(tuple(names), word.startswith("["))


@cache
def form(op: str) -> Form | None:
    """The form of an opcode; None for what the table does not know.

    A form that is run comes first, whatever the order in the table.
    """
    name, *parts = op.split(".")
    found = [f for f in table().get(name, ()) if f.takes(parts)]
    return min(found, key=lambda f: f.status != "run", default=None)


def runs(op: str) -> bool:
    """Whether an opcode is run."""
    found = form(op)
    return found is not None and found.status == "run"


def why(op: str) -> str:
    """Why an opcode is not run."""
    found = form(op)
    if found is None:
        return "no form of the PTX ISA has these modifiers"
    if found.status == "refused":
        return "it needs what no CPU has, or is gone from the architectures that are emulated"
    if found.status == "todo":
        return f"it is not written yet (PTX ISA {found.since})"
    return "it does not take these operands here"
