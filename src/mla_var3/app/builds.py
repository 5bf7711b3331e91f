"""What a problem of ``check`` compiles to, and what it shows that another may not.

Problems are compared by it: which switches and flags they have, how large their numbers are, and
how many blocks their launches start.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mla_var3 import languages
from mla_var3.app import plan_values
from mla_var3.errors import HyperMlaError
from mla_var3.runtime.cases import Case
from mla_var3.runtime.kernel import RuntimeObject

#: How many steps of tiles it takes to start a block.
STEPS_OF_A_BLOCK = 3
#: Blocks along an axis that are many, also where clusters take several.
MANY_BLOCKS = 5
#: Multiprocessors that are few.
FEW_SMS = 8

Feature = tuple[str, str, str]
#: Begins the key of a feature that says that a kernel has a switch at all.
HAS = "has "


@dataclass(frozen=True)
class Built:
    """A case, with what the compiler sees of it as constants."""

    case: Case
    switches: frozenset[Feature]
    builds: frozenset[str]
    steps: int
    outputs: int
    tilings: Mapping[str, Any]
    grids: frozenset[tuple[str, int]]
    blocks: int
    twice: bool = False

    @property
    def few(self) -> bool:
        """Whether multiprocessors are so few that blocks which stay take several rounds."""
        return self.case.plan.target.sm_count <= FEW_SMS


def built(case: Case) -> Built | None:
    """What a case compiles to; None where its version refuses it, or nobody would run it so."""
    try:
        if not plan_values.is_usual(case.plan):
            return None
        obj = case.plan.plan(*case.plan.prepare_inputs("meta"))
        stages = obj.stages()
        found = {languages.find(k.language).build(k) for _, k in stages}
    except HyperMlaError:
        return None
    grids = {name: languages.find(kernel.language).grid(kernel) for name, kernel in stages}
    steps = case.plan.steps() + _steps_of_blocks([*grids.values()])
    tilings = {kernel.name: kernel.tiling for _, kernel in stages}
    outputs = sum(tensor.numel() for tensor in stages[-1][1].output_tensors.values())
    return Built(
        case, frozenset(_switches(obj)), frozenset(found), steps, outputs, tilings,
        frozenset(_more_blocks(grids)), math.prod(next(iter(grids.values()), (0,))),
    )  # fmt: skip


def _more_blocks(grids: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, int]]:
    """Of each axis of each launch that it has a second block, a third, and so on up to many."""
    for name, grid in grids.items():
        for axis, blocks in enumerate(grid):
            yield from ((f"{name} {axis}", n) for n in range(2, min(blocks, MANY_BLOCKS) + 1))


def _steps_of_blocks(grids: Sequence[Sequence[int]]) -> int:
    """Of the first launch in full; blocks of the others mostly merge, or end at once."""
    blocks = [math.prod(grid) for grid in grids]
    return STEPS_OF_A_BLOCK * blocks[0] + sum(blocks[1:])


def _switches(obj: RuntimeObject) -> Iterator[Feature]:
    for name, kernel in obj.stages():
        yield name, "", ""  # that it is there
        for key, value in languages.find(kernel.language).switches(kernel).items():
            yield name, key, repr(value)
            yield name, HAS + key, ""  # which a kernel of another class may lack


def flags_of(one: Built) -> set[tuple[str, Any]]:
    """Its stages, and what the problem says in a word or with yes or no, such as its mask."""
    said = {(n, v) for n, v in one.case.plan.problem().items() if isinstance(v, bool | str)}
    return said | {("stage", name) for name, key, _ in one.switches if not key}


def turns_of(one: Built) -> set[tuple[str, int]]:
    """How large each number of the problem is, which powers of two it exceeds, and its blocks."""
    numbers = [(n, v - 1) for n, v in one.case.plan.problem().items() if type(v) is int]
    sizes = {(name, -less.bit_length()) for name, less in numbers}
    beyond = {(name, n + 1) for name, less in numbers for n in range(less.bit_length())}
    return sizes | beyond | one.grids
