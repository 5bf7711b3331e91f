"""Draws a sweep's results: the best tiling of each version over two sizes of the problem."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from mla_var3 import devices
from mla_var3.campaign import cases
from mla_var3.campaign.cases import Outcome
from mla_var3.evidence import Passed, Scalar
from mla_var3.languages import ranking
from mla_var3.paths import write_atomic
from mla_var3.profiling.static import device_for
from mla_var3.runtime.tiling import tiling_text
from mla_var3.static.occupancy import of_facts

#: Axes that are drawn where they were swept, the more telling first.
AXES = ("s", "t", "b", "m", "n", "k")


@dataclass(frozen=True)
class Surface:
    """The best tiling of one version on one target over one or two sizes.

    Attributes:
        title: Version, target and what the other sizes are.
        across: Axis and its values.
        down: A second one; its name is empty where one alone was swept.
        best: By place: what was best; places of which nothing passed are left out.
    """

    title: str
    across: tuple[str, tuple[Scalar, ...]]
    down: tuple[str, tuple[Scalar, ...]]
    best: Mapping[tuple[Scalar, Scalar], Outcome]


def worth(outcome: Outcome) -> float | None:
    """What makes a case better than another, the larger the better; None of one that is no choice.

    Timed ones go by their time; compiled ones by the ranking of tilings, which passes over what
    spills or leaves the tensor core's fast path.
    """
    if outcome.status != "passed" or outcome.record is None:
        return None
    if outcome.median_us is not None:
        return -outcome.median_us
    return score(outcome)


def score(outcome: Outcome) -> float | None:
    """How the ranking of tilings sees a compiled case; None where it prunes it."""
    record, case = outcome.record, outcome.case
    assert record is not None
    assert isinstance(record.outcome, Passed)
    board = devices.find(case.device) if case.device else device_for(record.arch or "", None)
    plan = cases.plan_of(case)
    launched = dict(plan.plan(*plan.prepare_inputs("meta")).stages())
    found = 1.0
    for stage in record.outcome.stages:
        if stage.static is None:
            return None
        held = of_facts(stage.static, board) if board is not None else None
        if ranking.reason_to_prune(stage.static, held) is not None:
            return None
        launch = ranking.Launch.of(launched[stage.name])
        found *= ranking.fill(launch.blocks, board)
        found *= ranking.density(stage.static, held, launch, board)
    return found


def surfaces(found: Sequence[Outcome]) -> list[Surface]:
    """A surface per version, target and choice of the sizes that are not its axes."""
    swept = _swept(found)
    names = (*[axis for axis in AXES if axis in swept], *[a for a in swept if a not in AXES])[:2]
    if not names:
        return []
    across, down = names[0], names[1] if len(names) > 1 else ""
    groups: dict[tuple[str, ...], list[Outcome]] = {}
    for one in found:
        rest = {k: v for k, v in one.case.problem.items() if k not in names and k in swept}
        case = one.case
        words = [f"{case.design} {case.version} on {case.device or case.target}"]
        words += [f"{name}={value}" for name, value in rest.items()]
        groups.setdefault(tuple(words), []).append(one)
    return [
        Surface(
            ", ".join(words), (across, swept[across]), (down, swept.get(down, (None,))),
            _best(mine, across, down),
        )
        for words, mine in groups.items()
    ]  # fmt: skip


def _swept(found: Iterable[Outcome]) -> dict[str, tuple[Scalar, ...]]:
    """Sizes that have more than one value, with their values."""
    values: dict[str, dict[Scalar, None]] = {}
    for one in found:
        for name, value in one.case.problem.items():
            values.setdefault(name, {})[value] = None
    return {name: tuple(seen) for name, seen in values.items() if len(seen) > 1}


def _best(found: Sequence[Outcome], across: str, down: str) -> dict[tuple[Scalar, Scalar], Outcome]:
    best: dict[tuple[Scalar, Scalar], tuple[float, Outcome]] = {}
    for one in found:
        value = worth(one)
        place = one.case.problem.get(across), one.case.problem.get(down)
        if value is not None and (place not in best or value > best[place][0]):
            best[place] = value, one
    return {place: one for place, (_, one) in best.items()}


def label(outcome: Outcome) -> str:
    """The tilings of a case in words."""
    texts = [tiling_text(values) for values in outcome.case.tilings.values()]
    return "; ".join(filter(None, texts)) or "default"


def draw(surface: Surface, path: Path) -> Path:
    """Write a surface as SVG: a color per tiling, its time in each place."""
    labels = list(dict.fromkeys(label(one) for one in surface.best.values()))
    (across, xs), (down, ys) = surface.across, surface.down
    cells = [
        [labels.index(label(surface.best[x, y])) if (x, y) in surface.best else -1 for x in xs]
        for y in ys
    ]
    with matplotlib.rc_context({"svg.hashsalt": "sweep", "svg.fonttype": "none"}):
        figure = Figure(figsize=(2.4 + 1.0 * len(xs), 1.6 + 0.55 * len(ys) + 0.22 * len(labels)))
        axes: Any = figure.subplots()
        colors = matplotlib.colormaps["tab20"]
        rows = [[colors(c % 20) if c >= 0 else (1, 1, 1, 1) for c in row] for row in cells]
        axes.imshow(rows, aspect="auto")
        for (i, x), (j, y) in itertools.product(enumerate(xs), enumerate(ys)):
            axes.text(i, j, _time(surface.best.get((x, y))), ha="center", va="center", size=8)
        axes.set_xticks(range(len(xs)), [str(x) for x in xs])
        axes.set_yticks(range(len(ys)), [str(y) for y in ys] if down else [""])
        axes.set_xlabel(across)
        axes.set_ylabel(down)
        axes.set_title(surface.title, size=9)
        handles = [Patch(color=colors(i % 20), label=text) for i, text in enumerate(labels)]
        if handles:
            figure.legend(handles=handles, loc="outside lower center", fontsize=7, frameon=False)
        file = io.StringIO()
        figure.set_layout_engine("constrained")
        figure.savefig(file, format="svg", metadata={"Date": None})
    write_atomic(path, file.getvalue())
    return path


def _time(outcome: Outcome | None) -> str:
    if outcome is None:
        return "none"
    return "" if outcome.median_us is None else f"{outcome.median_us:,.1f} us"


def table(found: Sequence[Outcome]) -> str:
    """All cases as CSV."""
    sizes = list(dict.fromkeys(name for one in found for name in one.case.problem))
    file = io.StringIO()
    out = csv.writer(file, lineterminator="\n")
    out.writerow(["design", "version", "target", *sizes, "tilings", "status", "median_us", "run",
                  "score", "reason"])  # fmt: skip
    for one in found:
        record, median = one.record, one.median_us
        is_compiled = one.status == "passed" and record is not None and median is None
        value = score(one) if is_compiled else None
        out.writerow([
            one.case.design, one.case.version, one.case.device or one.case.target,
            *(one.case.problem.get(name, "") for name in sizes), label(one), one.status,
            "" if median is None else median, record.run if record else "",
            "" if value is None else round(value, 4), one.reason,
        ])  # fmt: skip
    return file.getvalue()
