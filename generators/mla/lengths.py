"""Says how one kernel's time and its error change with the context, from records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import date

from generators.mla.same_work import PEER, PEER_NAME, time_of
from generators.model import targets
from generators.model.run import Run
from generators.model.site import Site
from generators.pages.kernels import run_version
from generators.write.text import cell, sections, table
from mla_var3.knowledge.evidence import Link
from mla_var3.workloads.mla import WORKLOAD

#: Mode whose times a page quotes.
_MODE = "event"
#: Lengths that a curve has at least.
_ENOUGH = 4


def times(site: Site, link: Link) -> str:
    """One kernel over contexts of one run, beside the library where the same run has it."""
    curves = _curves(run for run in (*site.runs, *site.earlier) if _is_ours(run))
    if not curves:
        return "No run timed one kernel at several contexts."
    longest = max(curves, key=_worth)
    found = sorted(longest, key=_context)
    version, beside = run_version(site, found[0], link), _library(site, found)
    problem = found[0].record.problem
    device = cell(targets.target_name(found[0].record.target))
    head = [
        "Context, tokens per sequence",
        "Time",
        *([PEER_NAME] if beside else []),
    ]
    rows = [
        [f"{_context(run):,}", time_of(run, link),
         *([time_of(beside[_context(run)], link)] if beside else [])]
        for run in found
    ]  # fmt: skip
    return sections(
        f"**From {_context(found[0]):,} to {_context(found[-1]):,} tokens, one kernel, one run:** "
        f"{version} on an {device.removeprefix('NVIDIA ')}, {problem['b']} sequences of equal "
        f"length, {problem['h']} heads, one query token, bf16.",
        table(head, rows, right=head),
        f"Twice the context takes {_doubled(found)} times as long: what every launch costs weighs "
        "less the longer it is. "
        f"{_longest(site, link)}",
        _others(longest, curves, link),
    )


def errors(site: Site, link: Link) -> str:
    """The relative error of one kernel at each context, of its record with most of them."""
    curves = _curves(
        run for run in (*site.runs, *site.earlier) if _is_ours(run) and error_of(run) is not None
    )
    if not curves:
        return "No record states errors at several contexts."
    longest = max(curves, key=_worth)
    found = sorted(longest, key=_context)
    told = [(f"{_context(run):,}", f"[{_power(error_of(run))}]({link(run.name)})") for run in found]
    return sections(
        table(["Keys", *(keys for keys, _ in told)], [["Error", *(error for _, error in told)]],
              right=[keys for keys, _ in told]),
        f"{run_version(site, found[0], link)}, {found[0].record.problem['b']} sequences, "
        f"{found[0].record.problem['h']} heads, bf16.",
    )  # fmt: skip


def _others(curve: list[Run], curves: list[list[Run]], link: Link) -> str:
    """The same version and run at other numbers of heads and sequences; empty without any."""

    def made(of: list[Run]) -> tuple[object, ...]:
        kernel = of[0].record.kernel
        return of[0].record.run, kernel.design, kernel.version, len(of)

    def size(of: list[Run]) -> tuple[int, int]:
        problem = of[0].record.problem
        return int(problem["b"]), int(problem["h"])  # type: ignore[arg-type]

    alike = sorted((of for of in curves if made(of) == made(curve)), key=size)
    if len(alike) < 2:
        return ""
    columns = [{_context(run): run for run in of} for of in alike]
    contexts = sorted(_context(run) for run in curve)
    head = ["Context", *(f"b = {b}, h = {h}" for b, h in map(size, alike))]
    rows = [
        [f"{t:,}", *(time_of(column[t], link) if t in column else "" for column in columns)]
        for t in contexts
    ]
    return sections(
        "The same run by sequences (b) and heads (h):",
        table(head, rows, right=head),
    )


def _power(error: float | None) -> str:
    """As the site writes it: 2.0e-3."""
    return f"{error:.1e}".replace("e-0", "e-")


def _doubled(curve: list[Run]) -> str:
    """How much longer each takes than that of half the context, least and most."""
    found = {_context(run): run.total.median_us for run in curve}
    ratios = [us / found[keys // 2] for keys, us in found.items() if keys // 2 in found]
    return f"{min(ratios):.1f} to {max(ratios):.1f}" if ratios else "as many"


def error_of(run: Run) -> float | None:
    """The largest relative error of a run's own problem."""
    outcome = run.outcome
    if outcome is None or outcome.correctness is None:
        return None
    return outcome.correctness.max_relative_error


def _is_ours(run: Run) -> bool:
    """Dense decode over equal lengths, one query token, of a kernel of ours."""
    record = run.record
    problem = record.problem
    return (
        run.is_timed
        and record.mode == _MODE
        and record.kernel.layer == WORKLOAD.key
        and record.kernel.language != "library"
        and problem.get("s") == 1
        and not problem.get("lengths")
        and "topk" not in problem
        and "page" in problem
    )


def _curves(runs: Iterable[Run]) -> list[list[Run]]:
    """Runs of one version and one run that differ in the context alone, a curve each."""
    found: dict[object, dict[int, Run]] = defaultdict(dict)
    for run in runs:
        found[_but_context(run), run.record.kernel.design, run.record.kernel.version][
            _context(run)
        ] = run
    return [list(curve.values()) for curve in found.values() if len(curve) >= _ENOUGH]


def _but_context(run: Run) -> tuple[object, ...]:
    """What runs of a curve have in common."""
    rest = {k: v for k, v in run.record.problem.items() if k != "t"}
    return run.record.run, run.record.target, tuple(sorted((k, str(v)) for k, v in rest.items()))


def _context(run: Run) -> int:
    return int(run.record.problem["t"])  # type: ignore[arg-type]


def _worth(curve: list[Run]) -> tuple[int, date, int, int]:
    """A curve of many lengths, then the newest, then many heads and few sequences."""
    problem = curve[0].record.problem
    heads, sequences = (int(problem[name]) for name in ("h", "b"))  # type: ignore[arg-type]
    return len(curve), curve[0].record.time.date(), heads, -sequences


def _library(site: Site, curve: list[Run]) -> dict[int, Run]:
    """The library's times at the same contexts in the same run; empty where any lacks."""
    wanted = _but_context(curve[0])
    known = {
        _context(run): run
        for run in (*site.runs, *site.earlier)
        if run.is_timed
        and run.record.mode == _MODE
        and run.record.kernel.design == PEER
        and _but_context(run) == wanted
    }
    return known if all(_context(run) in known for run in curve) else {}


def _longest(site: Site, link: Link) -> str:
    """The longest context at which a kernel of ours was timed."""
    timed = [run for run in (*site.runs, *site.earlier) if _is_ours(run)]
    longest = max(timed, key=lambda run: (_context(run), run.record.time))
    problem = longest.record.problem
    return (
        f"Longest that was timed: {_context(longest):,} tokens, "
        f"{run_version(site, longest, link)} with b = {problem['b']} and h = {problem['h']}, "
        f"{time_of(longest, link)}."
    )


def minutes(site: Site, link: Link) -> str:
    """How long the largest run of several kernels took, from its first record to its last."""
    runs: dict[str, list[Run]] = defaultdict(list)
    for run in (*site.runs, *site.earlier):
        if run.is_timed and run.record.mode == _MODE and run.record.kernel.layer == WORKLOAD.key:
            runs[run.record.run].append(run)
    whole = [found for found in runs.values() if len(_kernels(found)) > 1]
    if not whole:
        return "not recorded here"
    found = max(whole, key=len)
    times_of = sorted(run.record.time for run in found)
    problems = {str(sorted((k, str(v)) for k, v in run.record.problem.items())) for run in found}
    span = (times_of[-1] - times_of[0]).total_seconds() / 60
    last = max(found, key=lambda run: run.record.time)
    return (
        f"the largest run here, {len(_kernels(found))} kernels at {len(problems)} problems, took "
        f"[{span:.0f} minutes from its first record to its last]({link(last.name)})"
    )


def _kernels(runs: Iterable[Run]) -> set[tuple[str, str]]:
    return {(run.record.kernel.design, run.record.kernel.version) for run in runs}
