"""Selects the device and sweep of problems at which a design's versions are compared.

A sweep varies one axis, say the context length; the one with most timed runs is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from generators.model import problems, targets
from generators.model.problems import Problem
from generators.model.run import Run
from mla_var3.evidence import Scalar
from mla_var3.workloads import workloads

#: Columns of times in a ladder.
NAMED = 3


@dataclass(frozen=True)
class Setting:
    """Where the versions of a ladder are compared.

    Attributes:
        target: Device.
        axis: Name of the sweep; several that move together are joined by `` = ``.
        problems: Problem at each value of the sweep, in order.
        fresh: How many runs at each value are of today's sources.
    """

    target: str
    axis: str
    problems: dict[float, Problem]
    fresh: dict[float, int]

    @property
    def layer(self) -> str:
        """The workload."""
        return next(iter(self.problems.values())).layer

    @property
    def meaning(self) -> str:
        """What the sweep is, in words."""
        return workloads()[self.layer].axes.get(self.axis, "sizes that vary together")

    @property
    def conditions(self) -> str:
        """Device and the sizes that do not vary."""
        varying = self.axis.split(" = ")
        fixed = {k: v for k, v in next(iter(self.problems.values())).axes if k not in varying}
        return f"{targets.target_name(self.target)}, {problems.shown(fixed)}"

    def named(self) -> list[float]:
        """The values that stand as columns: one of each regime, or evenly spread."""
        regimes: dict[str, list[float]] = {}
        for value, problem in self.problems.items():
            regimes.setdefault(problem.regime, []).append(value)
        if len(regimes) > 1:
            return [self._told(values) for values in regimes.values()][:NAMED]
        values = list(self.problems)
        return values if len(values) <= NAMED else [values[0], values[len(values) // 2], values[-1]]

    def _told(self, values: list[float]) -> float:
        """Of some values the one with most fresh runs, of equals the middle one."""
        most = max(self.fresh[value] for value in values)
        best = [value for value in values if self.fresh[value] == most]
        return best[len(best) // 2]


def setting(layer: str, runs: Iterable[Run]) -> Setting | None:
    """The setting with the most timed runs; None where nothing was timed by events."""
    workload = workloads().get(layer)
    timed = [run for run in runs if run.is_timed and run.record.mode == "event"]
    if workload is None or not timed:
        return None
    alone = _largest(timed, workload.sweep, lambda name, value, x: name == workload.sweep)
    if len(alone.problems) > 1:
        return alone
    return _largest(timed, workload.sweep, lambda name, value, x: value == x)


def _largest(timed: list[Run], sweep: str, moves: Callable[[str, Scalar, Scalar], bool]) -> Setting:
    """The largest group of runs that differ in the sweep and in the axes that move with it."""
    groups: dict[tuple[str, tuple[tuple[str, Scalar], ...]], list[Run]] = {}
    for run in timed:
        axes = dict(problems.problem_of(run.record).axes)
        fixed = tuple((k, v) for k, v in axes.items() if not moves(k, v, axes[sweep]))
        groups.setdefault((run.record.target, fixed), []).append(run)
    (target, fixed), group = max(groups.items(), key=lambda item: len(item[1]))
    at: dict[float, Problem] = {}
    fresh: Counter[float] = Counter()
    for run in group:
        problem = problems.problem_of(run.record)
        value = float(dict(problem.axes)[sweep] or 0)
        at[value] = problem
        fresh[value] += not run.stale
    kept = {name for name, _ in fixed}
    names = [name for name, _ in problem.axes if name not in kept]
    return Setting(target, " = ".join(names), dict(sorted(at.items())), fresh)
