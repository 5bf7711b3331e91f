"""Finds hot spots of a launch: sums warp-stall samples by SASS instruction and source line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mla_var3.profiling.ncu_rep import EXECUTED, Instruction, Profiled

SAMPLES = "smsp__pcsamp_sample_count"
STALL = "smsp__pcsamp_warps_issue_stalled_"
#: SASS instructions that a hot line is shown with.
SHOWN = 3


@dataclass(frozen=True)
class Line:
    """A line of the source, and the instructions that stem from it.

    Attributes:
        file: Its file.
        number: Its number, from 1; 0 for instructions that no line is known of.
        instructions: In order of their addresses.
    """

    file: str
    number: int
    instructions: tuple[Instruction, ...]

    @property
    def samples(self) -> float:
        """Times that a warp was found at one of the instructions."""
        return total(self.instructions, SAMPLES)

    @property
    def executed(self) -> float:
        """Warp instructions."""
        return total(self.instructions, EXECUTED)

    @property
    def stall(self) -> str:
        """What its warps waited for most; empty where none was sampled."""
        return next(iter(stalls(self.instructions)), "")

    def hottest(self) -> list[Instruction]:
        """Its few instructions with most samples, the hottest first; none that has no sample."""
        sampled = [x for x in self.instructions if x.values.get(SAMPLES)]
        return sorted(sampled, key=lambda x: -x.values[SAMPLES])[:SHOWN]


def total(instructions: Iterable[Instruction], metric: str) -> float:
    """Sum of a counter."""
    return sum(x.values.get(metric, 0.0) for x in instructions)


def stalls(instructions: Sequence[Instruction]) -> dict[str, float]:
    """Samples by what the warp waited for, most first; ``selected`` is a warp that issued."""
    names = {name for x in instructions for name in x.values if name.startswith(STALL)}
    summed = {
        name.removeprefix(STALL): total(instructions, name)
        for name in names
        if not name.endswith("_not_issued")
    }
    return dict(sorted(((k, v) for k, v in summed.items() if v), key=lambda x: (-x[1], x[0])))


def lines(launch: Profiled) -> list[Line]:
    """The lines that a launch's instructions stem from, the hottest first.

    By samples, and by warp instructions where nothing was sampled.
    """
    found: dict[tuple[str, int], list[Instruction]] = defaultdict(list)
    for instruction in launch.instructions:
        found[instruction.file, instruction.line].append(instruction)
    made = [Line(file, number, tuple(own)) for (file, number), own in found.items()]
    return sorted(made, key=lambda line: (-line.samples, -line.executed, line.file, line.number))


def annotated(file: str, text: str, found: Iterable[Line], samples: float) -> str:
    """The text of a source file with what each line cost beside it.

    Below a line with samples stand its hottest SASS instructions.

    Args:
        file: Its name.
        text: Its text; lines beyond it are left out.
        found: Lines of the launch.
        samples: Samples of the whole launch, which shares are of.
    """
    own = {line.number: line for line in found if line.file == file}
    head = f"{'samples':>8} {'share':>6} {'warp inst':>10}  {'waiting for':<20}{'line':>5}"
    shown = [f"{file}: {sum(x.samples for x in own.values()):,.0f} of {samples:,.0f} samples", head]
    for number, source in enumerate(text.splitlines(), 1):
        line = own.get(number)
        shown.append(f"{_cost(line, samples):<48}{number:>5}  {source}".rstrip())
        shown += [
            f"{x.values[SAMPLES]:>8,.0f}{'':<45}      {x.offset:#06x} {x.sass}"
            for x in (line.hottest() if line else ())
        ]
    return "\n".join(shown) + "\n"


def _cost(line: Line | None, samples: float) -> str:
    if line is None:
        return ""
    share = f"{line.samples / samples:6.1%}" if samples else f"{'':6}"
    return f"{line.samples:>8,.0f} {share} {line.executed:>10,.0f}  {line.stall}"
