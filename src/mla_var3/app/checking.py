"""Command ``check``: correctness of many versions, in parallel on the CPU's cores."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import itertools
import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.console import Console

from mla_var3 import forked, languages
from mla_var3.errors import HyperMlaError, NotExecutableError
from mla_var3.runtime import cases, coverage, registry
from mla_var3.runtime.cases import Case
from mla_var3.runtime.execution import Facts
from mla_var3.runtime.registry import Version

EXIT_FAILED = 1
#: Problems that are made for each version beside those of its workload.
MADE = 60
#: Gaps that are named for each version; a number says how many there are beside them.
SHOWN = 8


@dataclass(frozen=True)
class CheckOutcome:
    """Result of checking one version on one problem; sent between processes.

    Attributes:
        version: The version.
        slug: The problem.
        error: Largest relative error.
        explanation: What is wrong; empty when nothing is.
        skipped: Why it was not run; empty when it was.
        order: The order in which its blocks started; None where nobody chose it.
        facts: Which ways its branches, loops and indices went.
    """

    version: str
    slug: str
    error: float = 0.0
    explanation: str = ""
    skipped: str = ""
    order: str | None = None
    facts: Facts = field(default_factory=dict, repr=False)

    def line(self) -> str:
        """Verdict with markup for the console."""
        if self.skipped:
            return f"{self.version:<24} {self.slug:<52} [yellow]skipped[/yellow]"
        verdict = "[red]WRONG[/red]" if self.explanation else "[green]ok[/green]"
        return f"{self.version:<24} {self.slug:<52} error {self.error:.1e} {verdict}"


def check(versions: Sequence[Version], console: Console) -> int:
    """Check versions and say what came of it; 0 when all are right, 1 when any is wrong.

    Raises:
        NotExecutableError: None of them can run here.
    """
    outcomes = check_versions(versions, console)
    wrong = [o for o in outcomes if o.explanation]
    ran = [o for o in outcomes if not o.skipped]
    if not ran:
        raise NotExecutableError(outcomes[0].skipped)
    for reason in dict.fromkeys(o.skipped for o in outcomes if o.skipped):
        console.print(f"not checked: {reason}", markup=False)
    checked = len({o.version for o in ran})
    verdict = f"{len(wrong)} wrong" if wrong else "all right"
    console.print(f"{checked} version(s), {len(ran)} problems: {verdict}")
    console.print(f"tried {tried(versions, outcomes)}", markup=False)
    for name, missing in unreached(outcomes).items():
        shown = [*missing[:SHOWN], *([f"{len(missing) - SHOWN} more"] if missing[SHOWN:] else [])]
        console.print(f"{name}: not reached on a CPU: {'; '.join(shown)}", markup=False)
    return EXIT_FAILED if wrong else 0


def unreached(outcomes: Sequence[CheckOutcome]) -> dict[str, list[str]]:
    """By version, what none of its problems went through; such a version is checked in part."""
    facts: dict[str, list[Facts]] = {}
    for outcome in outcomes:
        facts.setdefault(outcome.version, []).append(outcome.facts)
    found = {name: coverage.gaps(coverage.joined(parts)) for name, parts in facts.items()}
    return {name: missing for name, missing in found.items() if missing}


def tried(versions: Sequence[Version], outcomes: Sequence[CheckOutcome]) -> str:
    """What the problems that ran tried, in one line; outcomes as ``check_versions`` gives them."""
    all_cases = [cases_of(v)[i] for v in versions for i in problems(v)]
    ran = zip(all_cases, outcomes, strict=True)
    return cases.tried([(case, o.order) for case, o in ran if not o.skipped])


def check_versions(
    versions: Sequence[Version], console: Console, workers: int | None = None
) -> list[CheckOutcome]:
    """Check every small problem of each version.

    Args:
        versions: What to check.
        console: Told each result as it comes.
        workers: Processes; the number of cores by default.

    Returns:
        Outcomes in order of versions and problems.

    Raises:
        HyperMlaError: A process was killed.
    """
    jobs = [(v.qualified, v.version, i) for v in versions for i in problems(v)]
    outcomes: list[CheckOutcome] = []
    with _pool(min(workers or os.cpu_count() or 1, len(jobs))) as pool:
        # Workers inherit the mask: an interrupt while they import would print a traceback each.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            futures = [pool.submit(_check_one, *job) for job in jobs]
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        for number, future in enumerate(futures, 1):
            outcome = future.result()
            outcomes.append(outcome)
            console.print(f"\\[{number:>3}/{len(jobs)}] {outcome.line()}")
            if outcome.explanation:
                console.print(f"          {outcome.explanation}", markup=False)
    return outcomes


def cases_of(version: Version) -> list[Case]:
    """How the small problems of a version are run here.

    A GPU starts blocks as it likes, and may lack the registers or the memory for another tiling.
    Where a language runs them fast, problems are made beside those of the workload.
    """
    import torch

    plan = version.plan_class()()
    if torch.cuda.is_available():
        return [Case(small, "default", "forward") for small in plan.check_plans()]
    fast = languages.find(version.language).cpu_problems is None
    return _cases(version, MADE if fast else 0)


@functools.lru_cache(4)  # Each problem of a version asks for all of them.
def _cases(version: Version, made: int) -> list[Case]:
    return cases.cases(version.plan_class()(), made)


def problems(version: Version) -> list[int]:
    """Numbers of the small problems that are checked here; see ``Language.cpu_problems``."""
    import torch

    those = cases_of(version)
    most = languages.find(version.language).cpu_problems
    if most is None or torch.cuda.is_available():
        return list(range(len(those)))
    flops = [case.plan._algorithmic_flops_bytes().flops for case in those]
    cheapest = sorted(range(len(those)), key=flops.__getitem__)
    # The cheapest of each tiling come first, so that few problems still try more than one.
    alike = [[i for i in cheapest if those[i].sizes == sizes] for sizes in cases.SIZES]
    turns = [i for turn in itertools.zip_longest(*alike) for i in turn if i is not None]
    return sorted(turns[:most])


@contextlib.contextmanager
def _pool(workers: int) -> Iterator[concurrent.futures.Executor]:
    pool = concurrent.futures.ProcessPoolExecutor(
        workers, mp_context=multiprocessing.get_context("spawn"), initializer=_end_in_silence
    )
    try:
        yield pool
    except concurrent.futures.BrokenExecutor as error:
        raise HyperMlaError("a checking process was killed, perhaps for lack of memory") from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _end_in_silence() -> None:
    """End this worker without a message on an interrupt or with its parent, which reports."""
    forked.end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _check_one(design: str, version: str, index: int) -> CheckOutcome:
    import torch

    from mla_var3.runtime.check import check_plan

    torch.set_num_threads(1)
    found = registry.find(design, version)
    case = cases_of(found)[index]
    plan = case.plan
    device = "cuda" if torch.cuda.is_available() else "cpu"
    reason = languages.find(found.language).cannot_execute() if device == "cpu" else None
    if reason is not None:
        return CheckOutcome(found.key, plan.slug(), skipped=reason)
    try:
        result = check_plan(plan, device, case.order if device == "cpu" else None)
    except NotExecutableError as error:
        return CheckOutcome(found.key, plan.slug(), skipped=str(error))
    orders = {execution.order for execution in result.executions}
    return CheckOutcome(
        found.key, plan.slug(), result.max_relative_error, result.explain(),
        order=orders.pop() if len(orders) == 1 else None, facts=coverage.of(result.executions),
    )  # fmt: skip
