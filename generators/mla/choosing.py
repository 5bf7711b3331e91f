"""Says which kernel to take for a case of decode, by the times of one run per row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from generators.mla import reached
from generators.mla.same_work import PAGE, PEER, PEER_NAME, time_of
from generators.model.choice import kernel_of
from generators.model.run import Run
from generators.model.site import Site
from generators.write import figures
from generators.write.text import table
from mla_var3.evidence.compare import said, word
from mla_var3.knowledge.evidence import Link
from mla_var3.workloads.mla import WORKLOAD


@dataclass(frozen=True)
class Case:
    """A problem that people choose a kernel for.

    Attributes:
        b: Sequences.
        h: Query heads on the card.
        t: Cached tokens of each sequence.
        topk: Tokens of a sparse list; None for dense attention.
    """

    b: int
    h: int
    t: int
    topk: int | None = None

    @property
    def ours(self) -> str:
        """The design of ours that computes it."""
        return "sparse_mla" if self.topk else "flash_mla"

    @property
    def peer(self) -> str:
        """The library's."""
        return "deepseek_sparse_decode" if self.topk else PEER


#: From small batches to large ones, few heads among them.
CASES = (
    Case(1, 128, 8192),
    Case(1, 128, 131072),
    Case(4, 128, 65536),
    Case(32, 16, 4096),
    Case(128, 16, 4096),
    Case(32, 128, 4096),
    Case(128, 128, 4096),
    Case(128, 64, 65536),
    Case(32, 128, 65536, 2048),
    Case(128, 64, 65536, 2048),
)
#: The kernel of this project that is written in Triton, and the problems at which it is named.
TRITON = "triton_mla"
NAMED = (Case(32, 128, 4096), Case(32, 16, 4096))


def text(site: Site, link: Link) -> str:
    """A row per case; empty where no run timed one beside the library."""
    rows = [row for case in CASES if (row := _row(site, case, link))]
    if not rows:
        return ""
    head = ["Problem", "Ours, CuTe DSL", PEER_NAME, "Ours, cuTile", "Take"]
    return table(head, rows)


def triton(site: Site, link: Link) -> str:
    """What the same work takes in Triton, beside the library."""
    told = []
    for case in NAMED:
        for runs in _groups(site, case):
            mine = _fastest(run for run in runs if _design(run) == TRITON)
            theirs = _fastest(run for run in runs if _design(run) == case.peer)
            if mine and theirs:
                told.append(
                    f"{time_of(mine, link)} where {PEER_NAME} takes "
                    f"{time_of(theirs, link)} ({_sizes(case)})"
                )
                break
    return "; ".join(told)


def tiles(site: Site, heads: int, link: Link) -> str:
    """What cuTile takes at cases of few heads, beside the others of its run; may be empty."""
    told = []
    for case in (case for case in CASES if case.h <= heads and not case.topk):
        for runs in _groups(site, case):
            tile, pair = _tile(runs), _pair(case, runs)
            if tile and pair:
                mine, theirs = (time_of(run, link) for run in pair)
                told.append(
                    f"{time_of(tile, link)} where ours takes {mine} and "
                    f"{PEER_NAME} {theirs} ({_sizes(case)})"
                )
                break
    return "; ".join(told)


def _row(site: Site, case: Case, link: Link) -> list[str] | None:
    groups = _groups(site, case)
    both = [(runs, pair) for runs in groups if (pair := _pair(case, runs))]
    if not both:
        return None
    # A run that has all three sides says most; else the newest.
    runs, (mine, theirs) = next((one for one in both if _tile(one[0])), both[0])
    tile = _tile(runs)
    before, after = theirs.total.median_us, mine.total.median_us
    found = {
        "faster": f"ours, {said(before, after)}",
        "as fast": "either",
        "slower": f"**keep FlashMLA**, {said(after, before)}",
    }[word(before, after)]
    return [
        (f"sparse {case.topk:,} of " if case.topk else "") + _sizes(case),
        f"{kernel_of(mine)[-1]} {_timed(mine, link)}",
        _timed(theirs, link),
        time_of(tile, link) if tile else "not in it",
        found,
    ]


def _timed(run: Run, link: Link) -> str:
    """The time with the rate that is the larger share of its published ceiling."""
    time, work = time_of(run, link), run.work
    if work is None:
        return time
    sheet, _ = reached.rates(run)
    computes = work.flops / sheet.tflops / 1e3 > work.bytes / sheet.gbps
    return f"{time}, {figures.rate(run, 'flops' if computes else 'bytes')}"


def _sizes(case: Case) -> str:
    return f"b={case.b} h={case.h} t={case.t:,}"


def _groups(site: Site, case: Case) -> list[list[Run]]:
    """Timed runs of the case, those of one run together, the newest first."""
    found: dict[object, list[Run]] = defaultdict(list)
    for run in (*site.runs, *site.earlier):
        if run.is_timed and run.record.run and run.record.mode == "event" and _is(run, case):
            found[run.record.run, run.record.target].append(run)
    return sorted(found.values(), key=lambda runs: max(run.record.time for run in runs))[::-1]


def _is(run: Run, case: Case) -> bool:
    record = run.record
    if record.kernel.layer != WORKLOAD.key:
        return False
    problem = record.problem
    sizes = {name: problem.get(name) for name in ("b", "h", "t", "topk")}
    asked = {"b": case.b, "h": case.h, "t": case.t, "topk": case.topk}
    return (
        sizes == asked
        and problem.get("s") == 1
        and problem.get("dtype") == "bf16"
        and not problem.get("lengths")
        and not problem.get("causal")
        and not WORKLOAD.lighter(problem)
    )


def _pair(case: Case, runs: list[Run]) -> tuple[Run, Run] | None:
    mine = _fastest(
        run
        for run in runs
        if _design(run) == case.ours
        and run.record.kernel.language == "cute-dsl"
        and (case.topk or run.record.problem.get("page") == PAGE)
    )
    theirs = _fastest(run for run in runs if _design(run) == case.peer)
    return (mine, theirs) if mine and theirs else None


def _tile(runs: list[Run]) -> Run | None:
    return _fastest(
        run
        for run in runs
        if run.record.kernel.language == "cutile-dsl" and _design(run).startswith("flash_mla")
    )


def _design(run: Run) -> str:
    return run.record.kernel.design


def _fastest(runs: Iterable[Run]) -> Run | None:
    return min(runs, key=lambda run: run.total.median_us, default=None)
