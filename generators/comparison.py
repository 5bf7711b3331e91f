"""Designs side by side: what each computes, what the cost model prefers, what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from generators import problems
from generators.source import repo_name
from generators.text import cell
from mla_var3 import devices
from mla_var3.knowledge.evidence import Link
from mla_var3.roofline.prediction import predict
from mla_var3.runtime.registry import Version
from mla_var3.workloads import mla
from mla_var3.workloads.mla import regimes

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
class Best:
    """What to use of several runs.

    Attributes:
        run: The fastest; of versions of its design within noise of it the newest.
        rival: A run within noise that is faster, or of another design.
    """

    run: Run
    rival: Run | None

    @property
    def us(self) -> float:
        """Microseconds of the run."""
        return self.run.total.median_us


def best(runs: Sequence[Run]) -> Best:
    """What to use of timed runs, fastest first and at least one."""
    near = [run for run in runs if run.stale == runs[0].stale and _alike(run, runs[0])]
    own = [run for run in near if _kernel(run)[0] == _kernel(runs[0])[0]]
    chosen = max(own, key=lambda run: _kernel(run)[1])
    faster = near[: near.index(chosen)]
    others = (run for run in near if run in faster or _kernel(run)[0] != _kernel(chosen)[0])
    return Best(chosen, next(others, None))


def _kernel(run: Run) -> tuple[str, int]:
    """Design and number of the version."""
    kernel = run.record.kernel
    return kernel.design, int(kernel.version.removeprefix("v"))


def _alike(one: Run, other: Run) -> bool:
    """Whether the median of each lies in the range of the other's samples."""
    first, second = one.total, other.total
    return (
        first.min_us <= second.median_us <= first.max_us
        and second.min_us <= first.median_us <= second.max_us
    )


@dataclass(frozen=True)
class Choice:
    """One query count.

    Attributes:
        model: What the cost model says.
        bounds: Ceiling that binds each kernel of the analysis.
        runs: What was timed there, fastest first.
        best: What to use, by how much of the cache is decompressed beforehand: nothing
            (``flash_mla``), the newest tokens (``mla_var6_plus``) or all (``flash_attention``).
    """

    model: regimes.Cell
    bounds: Mapping[regimes.Kernel, Bound]
    runs: tuple[Run, ...]
    best: Mapping[regimes.Kernel, Best]

    @property
    def s(self) -> int:
        """Query tokens."""
        return self.model.s

    @property
    def fastest(self) -> regimes.Kernel | None:
        """The kernel of the analysis that was measured fastest; None where none was."""
        return min(self.best, key=lambda kernel: self.best[kernel].us, default=None)


@dataclass(frozen=True)
class Comparison:
    """Designs on one device at one context length, over the query tokens.

    Attributes:
        device: The device.
        shape: Sizes; the batch is that of the records where there are any.
        choices: By query tokens.
        decompressing_us: Least microseconds of decompressing all keys and values.
    """

    device: devices.Device
    shape: regimes.Shape
    choices: tuple[Choice, ...]
    decompressing_us: float

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
        """Version of a design to use at each query count at which it was timed, by version."""
        found: dict[str, list[int]] = {}
        for choice in self.measured:
            if own := [run for run in choice.runs if run.record.kernel.design == design]:
                found.setdefault(best(own).run.record.kernel.version, []).append(choice.s)
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

    def choice(s: int) -> Choice:
        floors = {k: regimes.prediction(k, shape, s, CONTEXT, ceilings) for k in regimes.KERNELS}
        mine = runs.get(s, [])
        groups = {k: [run for run in mine if _held(run, kernels) == k] for k in floors}
        return Choice(
            regimes.cell(shape, s, CONTEXT, ceilings),
            {kernel: floor.bound for kernel, floor in floors.items()},
            tuple(mine),
            {kernel: best(group) for kernel, group in groups.items() if group},
        )

    attention = regimes.cost("flash_attention", shape, 1, CONTEXT).flops
    decompressing = regimes.decompressing_flops(shape, 1, CONTEXT) - attention
    return Comparison(
        device,
        shape,
        tuple(map(choice, sorted({*regimes.S_VALUES, *runs}))),
        predict(decompressing, 0, ceilings).time_us,
    )


def _held(run: Run, kernels: Mapping[str, regimes.Kernel]) -> regimes.Kernel:
    """The kernel of the analysis whose cache a run had: the mixed design has any of the three."""
    kernel, n = kernels[run.record.kernel.design], run.record.problem.get("n")
    if kernel != "mla_var6_plus" or n is None:
        return kernel
    ends: Mapping[object, regimes.Kernel] = {0: "flash_mla", CONTEXT: "flash_attention"}
    return ends.get(n, kernel)


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
