"""Groups records by problem (sizes and dtype), and writes problems as readable text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from generators.model.run import Run
from mla_var3.evidence import Record, Scalar
from mla_var3.workloads import workloads


@dataclass(frozen=True)
class Problem:
    """What designs of one workload are compared at.

    Attributes:
        layer: Key of the workload.
        axes: The axes that must be equal, in the workload's order.
    """

    layer: str
    axes: tuple[tuple[str, Scalar], ...]

    def __str__(self) -> str:
        return shown(dict(self.axes))

    @property
    def regime(self) -> str:
        """The regime of the workload; empty where it has none."""
        workload = workloads().get(self.layer)
        return (workload.regime(dict(self.axes)) if workload else None) or ""

    @property
    def dtype(self) -> str:
        """Element type."""
        return str(dict(self.axes).get("dtype", "bf16"))

    @property
    def order(self) -> tuple[Any, ...]:
        """Sort key: by workload, then by axis."""
        return self.layer, tuple((v is not None, str(type(v)), v) for _, v in self.axes)


def compared(layer: str, problem: Mapping[str, Scalar]) -> tuple[str, ...]:
    """The axes in which designs of a workload must agree; all where the workload is not known."""
    workload = workloads().get(layer)
    return workload.compared if workload else tuple(problem)


def problem_of(record: Record) -> Problem:
    """The problem of a record, without what only one design has."""
    names = compared(record.kernel.layer, record.problem)
    return Problem(record.kernel.layer, tuple((name, record.problem.get(name)) for name in names))


def by_problem(runs: Iterable[Run]) -> dict[Problem, list[Run]]:
    """Runs of each problem, problems in order."""
    grouped: dict[Problem, list[Run]] = {}
    for run in runs:
        grouped.setdefault(problem_of(run.record), []).append(run)
    return dict(sorted(grouped.items(), key=lambda item: item[0].order))


def by_layer(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Runs of each workload, by its key: two workloads never share a table of times."""
    grouped: dict[str, list[Run]] = {}
    for run in runs:
        grouped.setdefault(run.record.kernel.layer, []).append(run)
    return dict(sorted(grouped.items()))


def together(run: Run) -> tuple[object, ...]:
    """What two runs must share for their times to compare."""
    record = run.record
    return record.run, record.target, record.mode, problem_of(record)


def shown(axes: Mapping[str, Scalar]) -> str:
    """Axes as people read them: ``b=32 t=4096 bf16 causal``; what is off or open is left out."""
    numbers = [f"{name}={value:g}" for name, value in axes.items() if _is_number(value)]
    words = [value for value in axes.values() if isinstance(value, str)]
    flags = [name for name, value in axes.items() if value is True]
    return " ".join([*numbers, *words, *flags])


def _is_number(value: Scalar) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def sizes(record: Record, names: Iterable[str]) -> str:
    """The named axes of a record's problem."""
    wanted = set(names)
    return shown({name: v for name, v in record.problem.items() if name in wanted})


def varying(made: Iterable[Record]) -> list[str]:
    """Axes in which the problems of records differ."""
    made = list(made)
    names = dict.fromkeys(name for record in made for name in record.problem)
    return [name for name in names if len({record.problem.get(name) for record in made}) > 1]


def varying_shared(made: Sequence[Record]) -> list[str]:
    """The axes, of those that designs of a workload share, in which problems differ."""
    shared = compared(made[0].kernel.layer, made[0].problem) if made else ()
    return [name for name in varying(made) if name in shared]


def constant(made: Sequence[Record]) -> list[str]:
    """Axes in which the problems of records agree."""
    differing = varying(made)
    return [name for name in made[0].problem if name not in differing] if made else []


def open_axes(runs: Iterable[Run]) -> dict[tuple[str, str], list[str]]:
    """Axes that a design sets for itself, by workload and design: those that vary, uncompared."""
    designs: dict[tuple[str, str], list[Record]] = {}
    for run in runs:
        kernel = run.record.kernel
        designs.setdefault((kernel.layer, kernel.design), []).append(run.record)
    return {
        key: [name for name in varying(made) if name not in compared(key[0], made[0].problem)]
        for key, made in designs.items()
    }


def own_sizes(run: Run, axes: Mapping[tuple[str, str], list[str]]) -> str:
    """What the design of a run set for itself, ``axes`` being those of ``open_axes``."""
    kernel = run.record.kernel
    return sizes(run.record, axes.get((kernel.layer, kernel.design), ()))


def problem_text(record: Record) -> str:
    """The whole problem of a record, the axes that designs share first."""
    names = compared(record.kernel.layer, record.problem)
    rest = {name: v for name, v in record.problem.items() if name not in names}
    return f"{problem_of(record)} {shown(rest)}".strip()
