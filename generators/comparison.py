"""Designs side by side: what each computes, what the cost model prefers, what was measured."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from generators import problems
from generators.source import repo_name
from generators.text import cell
from mla_var3 import devices, mla
from mla_var3.knowledge import regimes
from mla_var3.knowledge.evidence import Link
from mla_var3.registry import Version

if TYPE_CHECKING:
    from generators.site import Run, Site

#: Context length at which designs are compared.
CONTEXT = 4096
#: Kernel of the cost analysis that stands for all designs of a problem.
_ANALYSED: Mapping[type, regimes.Kernel] = {
    mla.LatentPlan: "flash_mla",
    mla.MixedPlan: "mla_var6_plus",
    mla.DecompressedPlan: "flash_attention",
}
#: What a run of each problem covers; ``tests/generators/test_comparison.py`` holds it to the plans.
_COVERS: Mapping[regimes.Kernel, str] = {
    "flash_mla": "attention up to the latent output, which the caller still multiplies with Wv",
    "mla_var6_plus": "the product with Wv as well, given the newest keys and values decompressed",
    "flash_attention": "attention over keys and values that were all decompressed beforehand",
}


def analysed(versions: list[Version]) -> regimes.Kernel | None:
    """Kernel of the cost analysis with the problem of a design's base version."""
    plan = versions[0].plan_class()
    return next((name for kind, name in _ANALYSED.items() if issubclass(plan, kind)), None)


def design_link(site: Site, design: str, link: Link) -> str:
    """A design, linked to its page."""
    folder = repo_name(site.designs()[design][0].path.parents[1])
    return f"[{cell(design)}]({link(folder)})"


def what_times_cover(site: Site, link: Link) -> str:
    """One sentence for wherever times of several designs stand side by side."""
    designs: dict[regimes.Kernel | None, list[str]] = {}
    for design, versions in site.designs().items():
        designs.setdefault(analysed(versions), []).append(design_link(site, design, link))
    parts = [
        f"{covered} ({', '.join(designs[kernel])})"
        for kernel, covered in _COVERS.items()
        if kernel in designs
    ]
    return f"Times of designs cover different work: {'; '.join(parts)}."


@dataclass(frozen=True)
class Estimate:
    """What a kernel of the analysis takes at one query count.

    Attributes:
        us: Microseconds: measured, or the floor times how far above its floors it was measured at
            the nearest query counts.
        near: Its fastest runs at those counts; where it was measured, that run alone.
        measured: Whether it was measured at this query count.
    """

    us: float
    near: tuple[Run, ...]
    measured: bool

    @property
    def run(self) -> Run:
        """A run of the version to use: the nearest."""
        return self.near[0]


@dataclass(frozen=True)
class Choice:
    """One query count.

    Attributes:
        model: What the cost model says.
        runs: What was timed there, fastest first.
        around: Where nothing was: the fastest at the nearest query counts that were timed, below
            and above.
        estimates: Time of each kernel of the analysis that was timed at any query count.
    """

    model: regimes.Cell
    runs: tuple[Run, ...]
    around: tuple[Run, ...]
    estimates: Mapping[regimes.Kernel, Estimate]

    @property
    def s(self) -> int:
        """Query tokens."""
        return self.model.s

    @property
    def advised(self) -> regimes.Kernel:
        """The kernel to use: the least estimate; the model's where that was timed nowhere."""
        if self.model.winner not in self.estimates:
            return self.model.winner
        return min(self.estimates, key=lambda kernel: self.estimates[kernel].us)

    @property
    def untimed(self) -> list[regimes.Kernel]:
        """Kernels that were not measured although others were."""
        found = self.estimates
        missing = (k for k in regimes.KERNELS if k not in found or not found[k].measured)
        return list(missing) if self.runs else []


@dataclass(frozen=True)
class Comparison:
    """Designs on one device at one context length, over the query tokens.

    Attributes:
        device: The device.
        shape: Sizes; the batch is that of the records where there are any.
        choices: By query tokens.
    """

    device: devices.Device
    shape: regimes.Shape
    choices: tuple[Choice, ...]

    @property
    def measured(self) -> list[Choice]:
        """The query counts at which anything was timed."""
        return [choice for choice in self.choices if choice.runs]

    def preferred_at(self, kernel: regimes.Kernel | None) -> list[int]:
        """Query counts at which the model prefers a kernel of the analysis."""
        return [choice.s for choice in self.choices if choice.model.winner == kernel]

    def fastest_at(self, design: str) -> list[int]:
        """Query counts at which a version of a design was measured fastest of all."""
        return [c.s for c in self.measured if c.runs[0].record.kernel.design == design]

    def best_versions(self, design: str) -> dict[str, list[int]]:
        """Fastest version of a design at each query count at which it was timed, by version."""
        found: dict[str, list[int]] = {}
        for choice in self.measured:
            for run in [run for run in choice.runs if run.record.kernel.design == design][:1]:
                found.setdefault(run.record.kernel.version, []).append(choice.s)
        return found


def compare(site: Site, device: devices.Device) -> Comparison:
    """Cost model and records of a device side by side, at ``CONTEXT`` keys and unmasked.

    The batch is the one that was timed at most query counts, of equals the largest; without
    records that of the analysis.
    """
    kernels = {
        design: kernel
        for design, versions in site.designs().items()
        if (kernel := analysed(versions)) is not None
    }
    timed = [run for run in site.runs if run.record.target == device.key and _comparable(run)]
    timed = [run for run in timed if run.record.kernel.design in kernels]
    batch = _batch(timed)
    shape = regimes.Shape() if batch is None else regimes.Shape(b=batch)
    runs: dict[int, list[Run]] = {}
    for run in problems.fastest(run for run in timed if _size(run, "b") == batch):
        runs.setdefault(queries(run), []).append(run)
    ceilings = device.ceilings(regimes.DTYPE)
    counts = sorted({*regimes.S_VALUES, *runs})
    cells = {s: regimes.cell(shape, s, CONTEXT, ceilings) for s in counts}
    by_kernel = {
        kernel: {s: mine[0] for s, found in runs.items() if (mine := _of(found, kernel, kernels))}
        for kernel in regimes.KERNELS
    }
    choices = (
        Choice(
            cells[s],
            tuple(runs.get(s, ())),
            () if s in runs else _around(s, {x: found[0] for x, found in runs.items()}),
            {k: _estimate(k, s, cells, best) for k, best in by_kernel.items() if best},
        )
        for s in counts
    )
    return Comparison(device, shape, tuple(choices))


def _of(
    runs: list[Run], kernel: regimes.Kernel, kernels: Mapping[str, regimes.Kernel]
) -> list[Run]:
    return [run for run in runs if kernels[run.record.kernel.design] == kernel]


def _around(s: int, best: Mapping[int, Run]) -> tuple[Run, ...]:
    """The runs at the nearest query counts below and above."""
    below, above = [x for x in best if x < s], [x for x in best if x > s]
    return tuple(best[x] for x in [*sorted(below)[-1:], *sorted(above)[:1]])


def _estimate(
    kernel: regimes.Kernel, s: int, cells: Mapping[int, regimes.Cell], best: Mapping[int, Run]
) -> Estimate:
    if s in best:
        return Estimate(_us(best[s]), (best[s],), True)
    near = sorted(_around(s, best), key=lambda run: _distance(run, s))
    # The logarithm of time over floor, linear in the logarithm of s.
    over = [math.log(_us(run) / cells[queries(run)].time_us[kernel]) for run in near]
    weights = [_distance(run, s) for run in reversed(near)] if len(near) > 1 else [1.0]
    mean = sum(map(operator.mul, weights, over)) / sum(weights)
    return Estimate(cells[s].time_us[kernel] * math.exp(mean), tuple(near), False)


def _distance(run: Run, s: int) -> float:
    return abs(math.log(queries(run) / s))


def _us(run: Run) -> float:
    assert run.outcome is not None
    assert run.outcome.total is not None
    return run.outcome.total.median_us


def queries(run: Run) -> int:
    """Query tokens of a run."""
    return _size(run, "s")


def _size(run: Run, name: str) -> int:
    return int(run.record.problem.get(name) or 0)


def _comparable(run: Run) -> bool:
    """Whether a run was timed at the sizes of the analysis, whatever its batch and queries."""
    problem, sizes = run.record.problem, regimes.Shape()
    wanted = {"t": CONTEXT, "h": sizes.h, "dtype": regimes.DTYPE}
    own = {name: getattr(sizes, name) for name in ("d", "k", "p")}
    return (
        run.is_timed
        and not problem.get("causal")
        and all(problem.get(name) == value for name, value in wanted.items())
        and all(problem.get(name, value) in (None, value) for name, value in own.items())
        and _size(run, "b") > 0
        and _size(run, "s") > 0
    )


def _batch(timed: Iterable[Run]) -> int | None:
    counts: dict[int, set[int]] = {}
    for run in timed:
        counts.setdefault(_size(run, "b"), set()).add(queries(run))
    return max(counts, key=lambda b: (len(counts[b]), b), default=None)
