"""Results: rooflines and leaderboards a device, compile facts an arch, and a table of all."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from generators import comparison, problems
from generators.page import Page
from generators.problems import Problem
from generators.source import repo_name
from generators.text import cell, meta, sections, table
from mla_var3 import devices
from mla_var3.devices import Device
from mla_var3.errors import DeviceFigureError, UnknownNameError
from mla_var3.knowledge.evidence import Link
from mla_var3.knowledge.metrics import METRICS, readings_of
from mla_var3.records import Failed
from mla_var3.roofline.figures import Point, Roof, roofline_svg
from mla_var3.roofline.prediction import predict

if TYPE_CHECKING:
    from generators.site import Run, Site

EXPLORER = "results/explorer.md"
#: Figures of other libraries, each with its source.
OTHERS = "knowledge/regimes.md#what-other-libraries-take"
#: Points of one roofline figure: as many as there are markers that can be told apart.
MOST_POINTS = 6
#: So many figures pay for starting processes to draw them.
WORTH_PROCESSES = 8


@dataclass(frozen=True)
class Drawing:
    """Arguments of a roofline figure."""

    title: str
    roofs: tuple[Roof, ...]
    points: tuple[Point, ...]

    def svg(self) -> str:
        """The figure, drawn or from the cache."""
        return roofline_svg(self.title, self.roofs, self.points)


def target_page(target: str) -> str:
    """Path of the page of a record's target."""
    return f"results/{target.removeprefix('static/')}.md"


def _targets(site: Site) -> dict[str, list[Run]]:
    """Runs by target: GPUs and the interpreter first, then archs by number."""
    found: dict[str, list[Run]] = {}
    for run in site.runs:
        found.setdefault(run.record.target, []).append(run)

    def order(target: str) -> tuple[bool, int, str]:
        arch = target.partition("sm_")[2]
        return target.startswith("static/"), len(arch), target

    return {target: found[target] for target in sorted(found, key=order)}


def places(site: Site) -> Mapping[str, str]:
    """``results`` and, under it, each target that has records."""
    found = {f"results/{target}": target_page(target) for target in _targets(site)}
    return {"results": "results/index.md", "results/explorer": EXPLORER, **found}


def pages(site: Site) -> list[Page]:
    """Index, explorer, then a page a target."""
    targets = _targets(site)
    drawings = {
        (target, problem): drawing
        for target, runs in targets.items()
        for problem, group in problems.by_problem(runs).items()
        if (drawing := _drawing(target, problem, group)) is not None
    }
    figures = dict(zip(drawings, draw(list(drawings.values())), strict=True))
    return [
        _index(site, targets),
        _explorer(site),
        *(
            _target(site, target, runs, {p: svg for (t, p), svg in figures.items() if t == target})
            for target, runs in targets.items()
        ),
    ]


def draw(drawings: Sequence[Drawing]) -> list[str]:
    """The figures, several at a time when there are many."""
    if len(drawings) < WORTH_PROCESSES:
        return [drawing.svg() for drawing in drawings]
    # Forked, since a fresh process would first import the libraries for seconds.
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("fork")) as pool:
        return list(pool.map(Drawing.svg, drawings, chunksize=2))


def _device_of(target: str) -> Device | None:
    """The device whose roofline belongs to a target."""
    try:
        if target.startswith("static/"):
            return devices.default_for_arch(target.removeprefix("static/"))
        return devices.load(target)
    except UnknownNameError:
        return None


def _drawing(target: str, problem: Problem, runs: list[Run]) -> Drawing | None:
    device = _device_of(target)
    if device is None:
        return None
    try:
        best = device.ceilings(problem.dtype)
        published = device.ceilings(problem.dtype, published=True)
    except (DeviceFigureError, UnknownNameError):
        return None  # The page says so.
    roofs = [Roof(f"{best.source_kind} ceilings", best)]
    if (published.tflops, published.gbps) != (best.tflops, best.gbps):
        roofs.append(Roof("published ceilings", published))
    static = target.startswith("static/")
    points = _predicted(runs, best) if static else _measured(runs)
    if not points:
        return None
    title = f"Roofline of {device.name} at {problem}"
    return Drawing(title, tuple(roofs), tuple(points))


def _measured(runs: list[Run]) -> list[Point]:
    """The fastest run of each version; of those the fastest."""
    points = []
    for run in _best_of_each(runs, _version)[:MOST_POINTS]:
        assert run.outcome is not None
        work, time = run.outcome, run.total.median_us
        if work.flops and work.bytes:
            label = f"{_version(run)} (stale)" if run.stale else _version(run)
            reached = work.flops / time / 1e6
            points.append(Point(label, work.flops / work.bytes, reached, "measured"))
    return points


def _predicted(runs: list[Run], ceilings: devices.Ceilings) -> list[Point]:
    """What the ceilings allow each design, by the work of its latest version."""
    latest = {run.record.kernel.design: run for run in runs if run.outcome}
    return [
        Point.predicted(design, predict(run.outcome.flops, run.outcome.bytes, ceilings))
        for design, run in list(latest.items())[:MOST_POINTS]
        if run.outcome and run.outcome.flops and run.outcome.bytes
    ]


def _version(run: Run) -> str:
    return f"{run.record.kernel.design} {run.record.kernel.version}"


def _best_of_each(runs: Iterable[Run], key: Callable[[Run], str]) -> list[Run]:
    chosen: dict[str, Run] = {}
    for run in problems.fastest(runs):
        chosen.setdefault(key(run), run)
    return list(chosen.values())


def version_link(run: Run, site: Site, link: Link) -> str:
    """The version of a run, linked to its page where it still exists."""
    kernel = run.record.kernel
    for version in site.versions:
        if (version.design, version.version) == (kernel.design, kernel.version):
            return f"[{cell(version.key)}]({link(repo_name(version.path))})"
    return cell(_version(run))


def _index(site: Site, targets: Mapping[str, list[Run]]) -> Page:
    path = "results/index.md"
    link = site.link(path)
    rows = []
    for target, runs in targets.items():
        rows.append(
            [
                f"[{cell(problems.target_name(target))}]({link(f'results/{target}')})",
                ", ".join(sorted({run.record.mode for run in runs})),
                str(len(runs)),
                str(len({_version(run) for run in runs})),
                str(sum(run.outcome is None for run in runs)),
                str(sum(run.stale for run in runs)),
            ]
        )
    head = ["Where", "Modes", "Records", "Versions", "Failed", "Stale"]
    return Page(
        path,
        sections(
            meta(description="Rooflines, leaderboards and every record"),
            "# Results",
            "Every figure here is read from a record, one small JSON file a run, and leads to it. "
            "A record whose kernel sources have changed since is **stale** and marked so. Times "
            "of different runs stand side by side, since conditions are recorded with them; "
            "ratios are formed within one run only.",
            table(head, rows) or "No record is committed yet.",
            "All records in one table that sorts and filters: "
            f"[explorer]({link('results/explorer')}).",
            "## Fastest at each problem",
            _champions(site, targets, link),
        ),
        nav=("Results",),
    )


def _champions(site: Site, targets: Mapping[str, list[Run]], link: Link) -> str:
    chosen = [
        (problem, run)
        for runs in targets.values()
        for problem, group in problems.by_problem(runs).items()
        for run in problems.fastest(group)[:1]
    ]
    rows = []
    for problem, run in chosen:
        target = run.record.target
        rows.append(
            [
                f"[{cell(problems.target_name(target))}]({link(f'results/{target}')})",
                cell(str(problem)),
                problem.regime,
                version_link(run, site, link),
                problems.duration(run.total),
                problems.fraction(run),
                problems.record_link(run, link),
            ]
        )
    head = ["Device", "Problem", "Regime", "Version", "Median", "Of the roofline", "Record"]
    return sections(
        table(head, rows) or "No record with a time is committed yet.",
        _reading(site, [run for _, run in chosen], link),
    )


def _target(site: Site, target: str, runs: list[Run], figures: Mapping[Problem, str]) -> Page:
    path = target_page(target)
    link = site.link(path)
    name = problems.target_name(target)
    device = _device_of(target)
    parts, checked = [_about(target, device, link), _reading(site, runs, link)], []
    for problem, group in problems.by_problem(runs).items():
        boards = [_leaderboard(site, group, link), _compiled(site, group, link)]
        if not any(boards):
            checked += group
            continue
        parts.append(f"## {problem}")
        if problem in figures:
            parts.append(f'<figure class="roofline" tabindex="0">\n{figures[problem]}\n</figure>')
        parts += boards
    parts += [_failures(site, runs, link), _checked_only(checked)]
    title = name if device is None or target == device.key else f"{name} ({device.name})"
    return Page(
        path,
        sections(
            meta(title=title, description=f"Rooflines and leaderboards of {name}"),
            f"# {title}",
            *parts,
        ),
        nav=("Results", name),
    )


def _about(target: str, device: Device | None, link: Link) -> str:
    if device is None:
        return f"{cell(target)} has no file among the devices, so that no roofline can be drawn."
    page = f"[{cell(device.name)}]({link(f'knowledge/devices/{device.key}.toml')})"
    if target.startswith("static/"):
        return (
            f"What the compiler makes of each version for {target.removeprefix('static/')}, "
            f"without a GPU. Predictions are floors at the ceilings of {page}: hollow marks."
        )
    return f"Measured on {page}. Filled marks are the fastest record of a version. {problems.RATES}"


def _reading(site: Site, runs: list[Run], link: Link) -> str:
    """What to know before comparing times; empty where there are none."""
    timed = [run for run in runs if run.is_timed]
    if not timed:
        return ""
    return sections(
        comparison.what_times_cover(site, link),
        problems.above_ceiling(timed, link),
        f"For comparison: what [other libraries take]({link(OTHERS)}) at like problems, as cited.",
    )


def _leaderboard(site: Site, runs: list[Run], link: Link) -> str:
    ranked = problems.fastest(runs)
    rows = []
    for run in ranked:
        first = ranked[0]
        same = run.record.run is not None and run.record.run == first.record.run
        behind = run.total.median_us / first.total.median_us
        rows.append(
            [
                version_link(run, site, link),
                problems.duration(run.total),
                f"{behind:.2f}x" if same else "",
                problems.rate(run, "flops"),
                problems.rate(run, "bytes"),
                problems.fraction(run),
                cell(run.record.mode),
                f"n={run.record.problem['n']}" if run.record.problem.get("n") else "",
                _checked(run),
                problems.record_link(run, link),
            ]
        )
    head = [
        "Version", "Median", "Over the fastest, same run", "Arithmetic", problems.LEAST_BYTES,
        "Of the roofline", "Mode", "New tokens", "Checked", "Record",
    ]  # fmt: skip
    return table(head, rows)


def _checked(run: Run) -> str:
    found = run.record.outcome.correctness
    return found.status if found else "not in this run"


def _compiled(site: Site, runs: list[Run], link: Link) -> str:
    static = [run for run in runs if run.record.mode == "static"]
    rows = []
    for run in sorted(static, key=_compile_rank):
        if run.outcome is None:
            error = getattr(run.record.outcome, "error", "")
            failed = [version_link(run, site, link), cell(f"failed: {error}"), *[""] * 5]
            rows.append([*failed, problems.record_link(run, link)])
            continue
        own = _device_of(run.record.target)
        floor = next(
            (p for p in run.outcome.predictions if own is not None and p.device == own.key), None
        )
        rows.append(
            [
                version_link(run, site, link),
                *(_most(run, metric) for metric in ("spill_instructions", "registers")),
                _most(run, "shared_bytes"),
                ", ".join(_texts(run, "mma_path")),
                problems.amount("predicted_us", floor.time_us) if floor else "",
                cell(floor.bound) if floor else "",
                problems.record_link(run, link),
            ]
        )
    head = [
        "Version", "Spills", "Registers", "Shared memory", "MMA paths", "At least", "Bound",
        "Record",
    ]  # fmt: skip
    return table(head, rows)


def _compile_rank(run: Run) -> tuple[bool, float, float, str]:
    spills, registers = (problems.worst(run, m) for m in ("spill_instructions", "registers"))
    return run.outcome is None, spills or 0, registers or 0, run.name


def _most(run: Run, metric: str) -> str:
    value = problems.worst(run, metric)
    return "" if value is None else problems.amount(metric, value)


def _texts(run: Run, metric: str) -> list[str]:
    values = (str(reading.value) for reading in readings_of(run.record, METRICS[metric]))
    return [cell(value) for value in dict.fromkeys(values) if value != "none"]


def _failures(site: Site, runs: list[Run], link: Link) -> str:
    rows = [
        [
            version_link(run, site, link),
            cell(problems.problem_text(run.record)),
            cell(run.record.mode),
            cell(run.record.outcome.error),
            problems.record_link(run, link),
        ]
        for run in runs
        if isinstance(run.record.outcome, Failed) and run.record.mode != "static"
    ]
    shown = table(["Version", "Problem", "Mode", "Error", "Record"], rows)
    return f"## Runs that failed\n\n{shown}" if shown else ""


def _checked_only(runs: list[Run]) -> str:
    """Problems at which versions were checked and neither timed nor compiled."""
    rows = []
    for problem, group in problems.by_problem(runs).items():
        outcomes: dict[str, list[str]] = {}
        for run in group:
            outcomes.setdefault(_checked(run), []).append(_version(run))
        rows += [
            [cell(str(problem)), outcome, str(len(names)), cell(", ".join(names))]
            for outcome, names in outcomes.items()
        ]
    shown = table(["Problem", "Outcome", "Versions", "Which"], rows)
    return f"## Checked only\n\n{shown}" if shown else ""


def _explorer(site: Site) -> Page:
    link = site.link(EXPLORER)
    rows = [_explorer_row(site, run, link) for run in site.runs]
    head = [
        "Version", "Where", "Problem", "Regime", "Mode", "Outcome", "Median, us", "TFLOP/s",
        "GB/s", "Of the roofline", "Registers", "Spills", "Freshness", "Record",
    ]  # fmt: skip
    lines = [head, ["---"] * 6 + ["--:"] * 6 + ["---"] * 2, *rows]
    shown = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return Page(
        EXPLORER,
        sections(
            meta(description="Every record in one table that sorts and filters"),
            "# Explorer",
            "Every record. Click a heading to sort, type to search, choose values to filter; "
            "it all happens in the page. Registers and spills are the largest over the stages; "
            "TFLOP/s and GB/s are the cost model's FLOPs and bytes over the time.",
            problems.above_ceiling(site.runs, link),
            "## Records { data-search-exclude }",
            f'<div class="explorer" data-filters="1,3,4,5,12" markdown>\n\n{shown}\n\n</div>'
            if rows
            else "No record is committed yet.",
        ),
        nav=("Results", "Explorer"),
    )


def _explorer_row(site: Site, run: Run, link: Link) -> list[str]:
    outcome = run.outcome
    total = outcome.total.median_us if outcome and outcome.total else None
    largest = (problems.worst(run, metric) for metric in ("registers", "spill_instructions"))
    return [
        version_link(run, site, link),
        cell(problems.target_name(run.record.target)),
        cell(problems.problem_text(run.record)),
        problems.problem_of(run.record).regime,
        cell(run.record.mode),
        run.record.outcome.status,
        _plain(total) if total else "",
        _plain(outcome.flops / total / 1e6) if outcome and total else "",
        _plain(outcome.bytes / total / 1e3) if outcome and total else "",
        problems.fraction(run),
        *("" if value is None else f"{value:g}" for value in largest),
        "stale" if run.stale else "fresh",
        f"[record]({link(run.name)})",
    ]


def _plain(value: float) -> str:
    """Four digits without separators or exponent, for a column that sorts."""
    return f"{float(f'{value:.4g}'):.10g}"
