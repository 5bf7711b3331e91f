"""Makes the result pages: roofline and leaderboard per device, compile facts per arch, explorer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from generators.draw import charts
from generators.model import choice, compare, problems, targets
from generators.model.run import Run
from generators.model.site import Site
from generators.pages import analyses, fitting, kernels
from generators.pages.devices import contributed
from generators.pages.kernels import run_version
from generators.pages.proofs import checked
from generators.pages.version_facts import why_not
from generators.write import figures, verdicts
from generators.write.page import Page
from generators.write.text import capital, cell, factored, fold, meta, sections, table
from mla_var3.devices import Device
from mla_var3.evidence import CPU
from mla_var3.evidence.compare import NOISE, repeats
from mla_var3.evidence.model import STATIC
from mla_var3.knowledge import metrics
from mla_var3.knowledge.evidence import Link
from mla_var3.runtime import costs
from mla_var3.workloads import workloads

EXPLORER = "results/explorer.md"
#: What readers call all that was measured.
FOUND_BY = (
    "all records", "download all records", "every measurement", "which GPUs were measured",
    "benchmark results", "list of all benchmarks", "leaderboard", "fastest kernel per problem",
    "table of times", "measured times on an H200", "raw benchmark data",
    "parquet file of records", "which hardware was tested",
    "how fast are your kernels", "fraction of the roofline", "compare records of one run",
)  # fmt: skip
#: Problems of a workload above which the table of each is folded.
MANY = 6
#: More problems stand behind a line per regime.
LISTED = 30
#: Problems of a workload above which the table of the fastest is folded.
LONG = 20


def target_page(target: str) -> str:
    """Path of the page of a record's target."""
    return f"results/{target.removeprefix('static/')}.md"


def _targets(site: Site) -> dict[str, list[Run]]:
    """Runs by target: GPUs and the CPU first, then archs by number."""
    found: dict[str, list[Run]] = {}
    for run in site.runs:
        found.setdefault(run.record.target, []).append(run)

    def order(target: str) -> tuple[bool, int, str]:
        arch = target.partition("sm_")[2]
        return target.startswith(STATIC), len(arch), target

    return {target: found[target] for target in sorted(found, key=order)}


def places(site: Site) -> Mapping[str, str]:
    """``results`` and, under it, each target that has records."""
    found = {f"results/{target}": target_page(target) for target in _targets(site)}
    return {"results": "results/index.md", "results/explorer": EXPLORER, **found}


def pages(site: Site) -> list[Page]:
    """Index, explorer, then a page per target."""
    by_target = _targets(site)
    return [
        _index(site, by_target),
        _explorer(site),
        *(_target(site, target, runs) for target, runs in by_target.items()),
    ]


def _roofline(target: str, layer: str, runs: list[Run]) -> str:
    """One figure per workload of a GPU: each design's best at each problem, as a path."""
    device = targets.device_of(target)
    paths = _paths(runs)
    if device is None or not paths or target.startswith(STATIC):
        return ""
    known = targets.roofs(target, problems.problem_of(compare.fastest(runs)[0].record).dtype)
    if known is None:
        return ""  # The page says so.
    bound, reference = known
    roofs = [("bound", bound)]
    if (bound.tflops, bound.gbps) != (reference.tflops, reference.gbps):
        roofs.append(("reference", reference))
    where = f"{device.name}, {figures.layer_title(layer)}"
    title = f"Roofline of {where}, each mark the best of any run"
    return charts.figure(charts.Roofline(title, tuple(roofs), paths))


def _paths(runs: list[Run]) -> tuple[charts.Path, ...]:
    """The fastest run of each design at each problem, by intensity."""
    found: dict[str, list[tuple[float, float, str]]] = {}
    for problem, group in problems.by_problem(runs).items():
        for run in _best_of_each(group, lambda run: figures.design_of(run.record)):
            work, time = run.work, run.total.median_us
            if work is not None and work.flops and work.bytes:
                stale = " (stale)" if run.stale else ""
                point = (work.flops / work.bytes, work.flops / time / 1e6)
                said = f"{_version(run)}{stale} at {problem}"
                found.setdefault(figures.design_of(run.record), []).append((*point, said))
    peers = workloads()[runs[0].record.kernel.layer].peers if runs else {}
    first = next(iter(peers), "")
    # The library that all compare with has a name, then what reaches most; the rest is grey.
    named = sorted(found, key=lambda d: (d != first, -max(rate for _, rate, _ in found[d])))
    colors = {design: color for color, design in enumerate(named[: charts.MOST])}
    return tuple(
        charts.Path(peers.get(design, design), tuple(sorted(points)), colors.get(design, -1))
        for design, points in sorted(found.items())
    )


def _version(run: Run) -> str:
    return f"{figures.called(run.record)} {run.record.kernel.version}"


def _best_of_each(runs: Iterable[Run], key: Callable[[Run], str]) -> list[Run]:
    chosen: dict[str, Run] = {}
    for run in compare.fastest(runs):
        chosen.setdefault(key(run), run)
    return list(chosen.values())


def _index(site: Site, by_target: Mapping[str, list[Run]]) -> Page:
    path = "results/index.md"
    link = site.link(path)
    rows = []
    for target, runs in by_target.items():
        rows.append(
            [
                f"[{cell(targets.target_name(target))}]({link(f'results/{target}')})",
                ", ".join(sorted({run.record.mode for run in runs})),
                str(len(runs)),
                str(len({_version(run) for run in runs})),
                str(sum(run.record.outcome.status == "failed" for run in runs)),
                str(sum(run.stale for run in runs)),
            ]
        )
    head = ["Where", "Modes", "Records", "Versions", "Failed", "Stale"]
    return Page(
        path,
        sections(
            meta(description="Rooflines, leaderboards and every record", found_by=list(FOUND_BY)),
            "# Results",
            "Every figure here is read from a record of what one run observed. "
            "A record whose machine code, launch or workload has changed since is **stale**, is "
            "marked so and ranks behind every fresh one. Times "
            "of different runs stand side by side, since conditions are recorded with them; "
            f"ratios are formed within one run only. {_noise(site)}",
            table(head, rows) or "No record is committed yet.",
            "All records in one table that sorts and filters: "
            f"[explorer]({link('results/explorer')}). All that was ever measured, in "
            f"[one Parquet file]({link('results/records.parquet')}).",
            _advisor(site, link),
            *analyses.comparisons(site, link),
            "## Fastest at each problem",
            _champions(site, link),
        ),
        nav=("Results",),
    )


def _noise(site: Site) -> str:
    """When two times count as equal, and why."""
    found = len(repeats(site.catalogue.index.records))
    return (
        f"Medians of one run that differ by less than {NOISE:.1%} are as fast as each other: of "
        f"{found} ratios that a later run measured again, more than nine of ten had moved by less."
    )


def _advisor(site: Site, link: Link) -> str:
    """Where a reader's own sizes are answered from these records."""
    found = ", ".join(analyses.advisors(site, link))
    return f"Which kernel for sizes of your own, and how sure that is: {found}." if found else ""


def champions(site: Site) -> list[Run]:
    """What to use at each problem of each device."""
    return [
        choice.chosen(site, found).run
        for runs in _targets(site).values()
        for group in problems.by_problem(runs).values()
        if (found := compare.fastest(_by_events(compare.with_all_work(group))))
    ]


def _by_events(runs: Sequence[Run]) -> Sequence[Run]:
    """The runs timed by events, as the advisor and the skills read them; all if none is."""
    return [run for run in runs if run.is_timed and run.record.mode == "event"] or runs


def _champions(site: Site, link: Link) -> str:
    """What to use at each problem: a table per workload."""
    head = ["Device", "Problem", "Regime", "Version", "Median", figures.OF_BOUND, "Record"]
    parts = [
        sections(
            f"### {cell(figures.layer_title(layer))}",
            _few_or_folded(table(head, [_champion(site, run, link) for run in runs]), len(runs)),
            _reading(site, runs, link),
        )
        for layer, runs in problems.by_layer(champions(site)).items()
    ]
    return "\n".join(parts) or "No record with a time is committed yet."


def _few_or_folded(shown: str, problems_: int) -> str:
    """A table, behind a line where it is long."""
    if problems_ <= LONG:
        return shown
    return fold("Every problem", f"the fastest at each of {problems_}", shown)


def _champion(site: Site, run: Run, link: Link) -> list[str]:
    target, problem = run.record.target, problems.problem_of(run.record)
    return [
        f"[{cell(targets.target_name(target))}]({link(f'results/{target}')})",
        cell(str(problem)),
        cell(problem.regime),
        run_version(site, run, link),
        figures.duration(run.total),
        figures.fraction(run),
        figures.record_link(run, link),
    ]


def _target(site: Site, target: str, runs: list[Run]) -> Page:
    path = target_page(target)
    link = site.link(path)
    name = targets.target_name(target)
    device = targets.device_of(target)
    title, found_by, fits = f"Results on {name}", {}, []
    if target.startswith(STATIC):
        sm = target.removeprefix(STATIC)
        title = f"Compiled for {name}" + (f" ({device.name})" if device else "")
        found_by = {"found_by": fitting.found_by_arch(sm)}
        fits = [fitting.verdict(site, sm, link), fitting.designs(site, sm, link)]
    return Page(
        path,
        sections(
            meta(title=title, description=f"Rooflines, leaderboards of {name}", **found_by),
            f"# {cell(title)}",
            *fits,
            _about(target, device, link),
            *contributed(site, target),
            _advisor(site, link),
            *(_layer(site, target, layer, own, link)
              for layer, own in sorted(problems.by_layer(runs).items(), key=_without_figures)),
        ),
        nav=("Results", name),
    )  # fmt: skip


def _without_figures(layer: tuple[str, list[Run]]) -> bool:
    """Whether nothing of a workload ran or compiled, so that its reasons come last."""
    return not any(run.outcome for run in layer[1])


def _layer(site: Site, target: str, layer: str, runs: list[Run], link: Link) -> str:
    """What a target has of one workload."""
    parts, only_checked = [_reading(site, runs, link), _roofline(target, layer, runs)], []
    found: list[tuple[str, list[Run], str]] = []
    for problem, group in sorted(
        problems.by_problem(runs).items(), key=lambda item: not any(run.outcome for run in item[1])
    ):
        boards = [_leaderboard(site, group, link), _compiled(site, group, link)]
        if not any(boards):
            only_checked += group
            continue
        found.append((str(problem), group, sections(*boards).strip()))
    # A page of many tables is read by nobody: each then stands behind its fastest.
    if len(found) > MANY:
        parts += _folded(found)
    else:
        parts += [f"### {cell(name)}\n\n{text}" for name, _, text in found]
    parts += [_failures(site, runs, link), _checked_only(only_checked)]
    return sections(f"## {cell(figures.layer_title(layer))}", *parts)


def _folded(found: Sequence[tuple[str, list[Run], str]]) -> list[str]:
    """Problems behind a line each; of very many those of one regime behind another line."""
    regimes: dict[str, list[str]] = {}
    for name, group, text in found:
        regime = problems.problem_of(group[0].record).regime
        regimes.setdefault(regime, []).append(fold(cell(name), _fastest_said(group), text))
    if len(found) <= LISTED or len(regimes) == 1:
        return [one for folded in regimes.values() for one in folded]
    return [
        fold(cell(capital(regime or "other")), f"{len(folded)} problems", "\n\n".join(folded))
        for regime, folded in regimes.items()
    ]


def _fastest_said(runs: list[Run]) -> str:
    """The fastest at a problem and its time; how many versions where nothing was timed."""
    ranked = compare.fastest(runs)
    if not ranked:
        return f"{len({_version(run) for run in runs})} versions"
    first = ranked[0]
    library = workloads()[first.record.kernel.layer].peers.get(first.record.kernel.design)
    stale = " (stale)" if first.stale else ""
    return f"{library or _version(first)}, {figures.duration(first.total)}{stale}"


def _about(target: str, device: Device | None, link: Link) -> str:
    if target == CPU:
        return "Runs on a CPU: whether results are right, and what a run counted. Never a time."
    if device is None:
        return f"{cell(target)} has no file among the devices, so that no roofline can be drawn."
    page = f"[{cell(device.name)}]({link(f'knowledge/devices/{device.key}.toml')})"
    if target.startswith(STATIC):
        return (
            f"What the compiler makes of each version for {target.removeprefix('static/')}, "
            f"without a GPU; the bound is that of {page}, which no kernel can beat."
        )
    return (
        f"Measured on {page}. In the roofline a path is a design: its fastest version at each "
        f"problem, in order of intensity. {figures.RATES}"
    )


def _reading(site: Site, runs: list[Run], link: Link) -> str:
    """What to know before comparing times; empty where there are none."""
    timed = {(run.record.kernel.language, run.record.kernel.design) for run in runs if run.is_timed}
    designs = [
        versions
        for versions in site.designs().values()
        if (versions[0].language, versions[0].design) in timed
    ]
    return kernels.what_times_cover(designs, link)


def _leaderboard(site: Site, runs: list[Run], link: Link) -> str:
    ranked = compare.fastest(runs)
    rows = []
    for run in ranked:
        first = ranked[0]
        same = run.record.run is not None and run.record.run == first.record.run
        behind = verdicts.ratio(first.total.median_us, run.total.median_us)
        found = checked(run)
        rows.append(
            [
                run_version(site, run, link),
                figures.duration(run.total),
                ("fastest" if run is first else behind) if same else "",
                figures.rate(run, "flops"),
                figures.rate(run, "bytes"),
                figures.fraction(run),
                cell(run.record.mode),
                cell(problems.own_sizes(run, site.open_axes)),
                found.status if found else "not in this run",
                figures.record_link(run, link),
            ]
        )
    head = [
        "Version", "Median", "Against the fastest, same run", "Arithmetic", figures.LEAST_BYTES,
        figures.OF_BOUND, "Mode", "Own sizes", "Checked", "Record",
    ]  # fmt: skip
    return table(head, rows)


def _compiled(site: Site, runs: list[Run], link: Link) -> str:
    static = sorted((run for run in runs if run.record.mode == "static"), key=_compile_rank)
    rows = [_compiled_row(site, run, link) for run in static if run.outcome]
    head = [
        "Version", "Spills", "Registers", "Shared memory", "MMA paths", "Bound", "Bound by",
        "Record",
    ]  # fmt: skip
    return sections(
        factored(head, rows, "version") if rows else "",
        _not_compiled(site, [run for run in static if not run.outcome], link),
    ).strip()


def _not_compiled(site: Site, runs: list[Run], link: Link) -> str:
    """Why versions were not compiled, each reason once."""
    reasons: dict[str, list[str]] = {}
    for run in runs:
        _, status, said = why_not(run)
        shown = f"{run_version(site, run, link)} ({figures.record_link(run, link)})"
        reasons.setdefault(f"{status}: {said}", []).append(shown)
    return "\n".join(f"- {cell(said)}: {', '.join(shown)}" for said, shown in reasons.items())


def _compiled_row(site: Site, run: Run, link: Link) -> list[str]:
    least = costs.bound(run.record)
    return [
        run_version(site, run, link),
        *(_most(run, metric) for metric in ("spill_instructions", "registers", "shared_bytes")),
        ", ".join(_texts(run, "mma_path")),
        figures.amount("bound_us", least.time_us) if least else "",
        least.bound if least else "",
        figures.record_link(run, link),
    ]


def _compile_rank(run: Run) -> tuple[bool, float, float, str]:
    spills, registers = (compare.worst(run, m) for m in ("spill_instructions", "registers"))
    return run.outcome is None, spills or 0, registers or 0, run.name


def _most(run: Run, metric: str) -> str:
    value = compare.worst(run, metric)
    return "" if value is None else figures.amount(metric, value)


def _texts(run: Run, metric: str) -> list[str]:
    values = (
        str(reading.value) for reading in metrics.readings_of(run.record, metrics.metric(metric))
    )
    return [cell(value) for value in dict.fromkeys(values) if value != "none"]


def _failures(site: Site, runs: list[Run], link: Link) -> str:
    rows = [
        [
            run_version(site, run, link),
            cell(site.problem_text(run)),
            cell(run.record.mode),
            status,
            cell(said),
            figures.record_link(run, link),
        ]
        for run in runs
        for _, status, said in [why_not(run)]
        if said and run.record.mode != "static"
    ]
    shown = table(["Version", "Problem", "Mode", "Outcome", "Why", "Record"], rows)
    return f"### Runs that did not pass\n\n{shown}" if shown else ""


def _checked_only(runs: list[Run]) -> str:
    """Problems at which versions were checked and neither timed nor compiled."""
    rows = []
    for problem, group in problems.by_problem(runs).items():
        outcomes: dict[str, list[str]] = {}
        for run in group:
            if (found := checked(run)) is not None:
                outcomes.setdefault(found.status, []).append(_version(run))
        rows += [
            [cell(str(problem)), outcome, str(len(names)), cell(", ".join(names))]
            for outcome, names in outcomes.items()
        ]
    shown = table(["Problem", "Outcome", "Versions", "Which"], rows)
    return f"### Checked only\n\n{shown}" if shown else ""


#: What every window shows comes first: the page hides columns from the right until they fit.
_COLUMNS = (
    "Version", "Problem", "Median, us", figures.OF_BOUND, "Where", "Regime", "Mode", "Outcome",
    "TFLOP/s", "GB/s", "Registers", "Spills", "Freshness",
)  # fmt: skip
_NUMBERS = ("Median, us", figures.OF_BOUND, "TFLOP/s", "GB/s", "Registers", "Spills")
#: Columns to choose values of.
_FACETS = ("Where", "Regime", "Mode", "Outcome", "Freshness")


def _explorer(site: Site) -> Page:
    link = site.link(EXPLORER)
    blocks = [_explored(site, layer, runs, link)
              for layer, runs in problems.by_layer(site.runs).items()]  # fmt: skip
    return Page(
        EXPLORER,
        sections(
            meta(
                description="Every record in tables that sort and filter",
                hide=["navigation", "toc"],
            ),
            "# Explorer",
            "Every record, one table per workload; the problem leads to the record. Click a "
            "heading to sort, type to search, choose values and columns; the address keeps it. "
            "Registers and spills are the largest over the stages; TFLOP/s and GB/s are the cost "
            "model's FLOPs and bytes over the time.",
            *blocks,
            "" if blocks else "No record is committed yet.",
        ),
        nav=("Results", "Explorer"),
    )


def _explored(site: Site, layer: str, runs: list[Run], link: Link) -> str:
    """The records of one workload, as ``docs/assets/js/tables.js`` finds them."""
    facets = ",".join(str(_COLUMNS.index(name)) for name in _FACETS)
    shown = table(
        _COLUMNS,
        [_explorer_row(site, run, link) for run in runs],
        right=_NUMBERS,
        all_columns=True,
    )
    return (
        f"## {cell(figures.layer_title(layer))} {{ data-search-exclude }}\n\n"
        f'<div class="explorer" data-key="{layer}" data-filters="{facets}" markdown>'
        f"\n\n{shown}\n\n</div>"
    )


def _explorer_row(site: Site, run: Run, link: Link) -> list[str]:
    outcome = run.outcome
    total, work = outcome.total.median_us if outcome and outcome.total else None, run.work
    largest = (compare.worst(run, metric) for metric in ("registers", "spill_instructions"))
    return [
        run_version(site, run, link),
        f"[{cell(site.problem_text(run))}]({link(run.name)})",
        _plain(total) if total else "",
        figures.fraction(run),
        cell(targets.target_name(run.record.target)),
        cell(problems.problem_of(run.record).regime),
        cell(run.record.mode),
        run.record.outcome.status,
        _plain(work.flops / total / 1e6) if work and total else "",
        _plain(work.bytes / total / 1e3) if work and total else "",
        *("" if value is None else f"{value:g}" for value in largest),
        "stale" if run.stale else "fresh",
    ]


def _plain(value: float) -> str:
    """Four digits without separators or exponent, for a column that sorts."""
    return f"{float(f'{value:.4g}'):.10g}"
