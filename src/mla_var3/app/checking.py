"""Command ``check``: tests many versions against their references, in parallel on CPU cores."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import itertools
import json
import math
import os
import tempfile
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rich.console import Console

from mla_var3 import collecting, forked, languages
from mla_var3.app import few_builds, plan_values, vast, verdicts
from mla_var3.app.verdicts import CheckOutcome, Place
from mla_var3.errors import HyperMlaError, NotExecutableError, ToolchainError
from mla_var3.forked import Ended
from mla_var3.paths import out_dir, relative, write_atomic
from mla_var3.runtime import cases, coverage, registry, unreached
from mla_var3.runtime.cases import Case
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.registry import Version
from mla_var3.static.source import relative_source
from mla_var3.workloads.base import MOST_STEPS

if TYPE_CHECKING:
    from mla_var3.runtime.check import CaseResult

_Answer = TypeVar("_Answer")

EXIT_FAILED = 1
#: Problems that are made for each version beside those of its workload.
MADE = 60
#: Problems that are made where a GPU runs them, and the steps of tiles that one may take.
MADE_FOR_GPU, MOST_STEPS_OF_GPU = 24, 40_000
#: Problems that one process runs where nothing is compiled.
TOGETHER = 16
#: What all of these processes have loaded, beside the sources of the versions.
LOADED = ("torch", "mla_var3.app.checking")
#: Gaps that are named for each version; a number says how many there are beside them.
SHOWN = 8


class Group(NamedTuple):
    """Problems of a version that one process runs, since they share what is compiled."""

    design: str
    version: str
    cases: tuple[Case, ...]

    @property
    def module(self) -> str:
        """Where its version is defined; loading it loads what its language needs."""
        return registry.find(self.design, self.version).plan_class().__module__

    def is_of(self, version: Version) -> bool:
        """Whether its problems are those of a version."""
        return (self.design, self.version) == (version.qualified, version.version)


def check(versions: Sequence[Version], console: Console, *, anew: bool = False) -> int:
    """Check versions and say what came of it; 0 when all are right, 1 when any is wrong.

    Args:
        versions: What to check.
        console: Told each result as it comes.
        anew: Whether what an earlier check found right is run again, though all that it rests on
            is the same.

    Raises:
        NotExecutableError: None of them can run here.
    """
    # Before sources are loaded: they may be edited meanwhile.
    rests = {(v.qualified, v.version): verdicts.rests_on(v) for v in versions}
    groups, absent = _groups(versions)
    made = [one for version in versions if version not in absent for one in _calls_of(version)]
    places = _places([(*one[:2], one.cases, rests[one[:2]]) for one in groups], anew)
    outcomes = check_groups(groups, console, places=places) if groups else []
    calls = _check_calls(made, console, _places([(*one, None) for one in made], anew))
    wrong = [o for o in (*outcomes, *calls) if o.explanation]
    ran = [o for o in outcomes if not o.skipped]
    reasons = [*absent.values(), *(o.skipped for o in outcomes if o.skipped)]
    if not ran:
        raise NotExecutableError(reasons[0])
    for reason in dict.fromkeys(reasons):
        console.print(f"not checked: {reason}", markup=False)
    checked = len({o.version for o in ran})
    verdict = f"{len(wrong)} wrong" if wrong else "all right"
    also = f", {len(calls)} calls of servers" if calls else ""
    console.print(f"{checked} version(s), {len(ran)} problems{also}: {verdict}")
    if kept := sum(bool(o.kept) for o in (*ran, *calls)):
        console.print(
            f"{kept} of them were right in an earlier check, and all that they rest on is the "
            "same: --anew runs them again",
            markup=False,
        )
    console.print(f"tried {tried(groups, outcomes)}", markup=False)
    covered = [
        covers(
            version,
            outcomes,
            [case.plan for group in groups if group.is_of(version) for case in group.cases],
        )
        for version in versions
        if version not in absent
    ]
    for one in covered:
        if text := one.text():
            console.print(text, markup=False)
    stale = list(needless(covered))
    for text in stale:
        console.print(text, markup=False)
    console.print(relative(_record(groups, outcomes, covered, calls)), markup=False)
    return EXIT_FAILED if wrong or stale or any(one.open for one in covered) else 0


def _places(
    those: Sequence[tuple[str, str, tuple[Case, ...] | str, Mapping[str, Any] | None]], anew: bool
) -> list[Place]:
    """Where outcomes are kept: nowhere where a GPU runs them.

    Args:
        those: Each a design, a version, and with them the parts of ``Place.of``.
        anew: Whether what is kept is dropped.
    """
    import torch

    if torch.cuda.is_available():
        return []
    places = [Place.of(registry.find(*one[:2]), *one[2:]) for one in those]
    for place in places if anew else ():
        place.drop()
    return places


@dataclass(frozen=True)
class Covered:
    """What the problems of a version went through.

    Attributes:
        version: The version.
        ran: Whether any told what it went through.
        open: What none of them went through, and nobody argues; such a version fails.
        argued: What none of them can go through, with the reason that its design gives.
    """

    version: Version
    ran: bool
    open: tuple[str, ...]
    argued: Mapping[str, str]

    def text(self) -> str:
        """What is missing, in one line; empty where nothing is."""
        if self.open:
            more = [f"{len(self.open) - SHOWN} more"] if self.open[SHOWN:] else []
            file = relative(unreached.path_of(self.version))
            return (
                f"{self.version.key} fails: no problem shows these, and {file} does not say why: "
                f"{'; '.join([*self.open[:SHOWN], *more])}"
            )
        if self.argued:
            file = relative(unreached.path_of(self.version))
            return f"{self.version.key}: {len(self.argued)} not reached, for the reasons in {file}"
        return ""


def covers(
    version: Version, outcomes: Sequence[CheckOutcome], those: Sequence[KernelPlan]
) -> Covered:
    """What the problems of a version went through.

    Args:
        version: The version.
        outcomes: Those of its problems, among others.
        those: Its problems.
    """
    mine = [o for o in outcomes if o.version == version.key and not o.skipped]
    gaps = coverage.gaps(coverage.joined(o.facts for o in mine))
    gaps += plan_values.gaps(version.plan_class()(), those, _steps(version)) if mine else []
    open_, argued = unreached.told_apart(gaps, unreached.named(version))
    return Covered(version, any(o.facts for o in mine), tuple(open_), argued)


def needless(covered: Sequence[Covered]) -> Iterator[str]:
    """Reasons for gaps that no version of their design has; only where all of it was checked."""
    folders: dict[Path, list[Covered]] = {}
    for one in covered:
        folders.setdefault(unreached.path_of(one.version), []).append(one)
    for path, those in folders.items():
        whole = registry.select(those[0].version.qualified)
        if len(whole) > len(those) or not all(one.ran and one.version in whole for one in those):
            continue
        found = {unreached.without_line(gap) for one in those for gap in one.argued}
        named = {gap: None for one in those for gap in unreached.named(one.version)}
        for gap in named:
            if gap not in found:
                yield f"{relative(path)} argues what problems reach, or no version has: {gap}"


def _record(
    groups: Sequence[Group],
    outcomes: Sequence[CheckOutcome],
    covered: Sequence[Covered],
    calls: Sequence[CheckOutcome],
) -> Path:
    """Write what was checked, and what not with its reason, as JSON; returns the file."""
    every = [case for group in groups for case in group.cases]
    versions = {
        one.version.key: {
            "sources": dict(one.version.sources()),
            "problems": [
                {"problem": case.plan.problem(), "tilings": case.sizes, "error": o.error,
                 "wrong": o.explanation, "skipped": o.skipped, "kept": o.kept}
                for case, o in zip(every, outcomes, strict=True) if o.version == one.version.key
            ],
            "calls": [
                {"call": o.slug, "error": o.error, "wrong": o.explanation, "kept": o.kept}
                for o in calls if o.version == one.version.key
            ],
            "not reached": list(one.open),
            "not reached, argued": dict(one.argued),
        }
        for one in covered
    }  # fmt: skip
    path = out_dir() / "check" / f"{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}.json"
    write_atomic(path, json.dumps(versions, indent=1) + "\n")
    return path


def tried(groups: Sequence[Group], outcomes: Sequence[CheckOutcome]) -> str:
    """What the problems that ran tried, in one line; outcomes as ``check_groups`` gives them."""
    ran = zip((case for group in groups for case in group.cases), outcomes, strict=True)
    return cases.tried([(case, o.order) for case, o in ran if not o.skipped])


def check_groups(
    groups: Sequence[Group],
    console: Console,
    workers: int | None = None,
    places: Sequence[Place] = (),
) -> list[CheckOutcome]:
    """Check every problem of each group.

    Args:
        groups: What to check.
        console: Told each result as it comes.
        workers: Processes; the number of cores by default.
        places: Where the outcomes of each group are kept; none is taken or kept by default.

    Returns:
        Outcomes in order of groups and problems.

    Raises:
        HyperMlaError: A process was killed.
    """
    count = sum(len(group.cases) for group in groups)
    outcomes: list[CheckOutcome] = []
    work = [functools.partial(_check_some, *one) for one in groups]
    for outcome in _run(work, [group.module for group in groups], places, workers):
        outcomes.append(outcome)
        console.print(f"\\[{len(outcomes):>3}/{count}] {outcome.line()}")
        if outcome.explanation:
            console.print(f"          {outcome.explanation}", markup=False)
    return outcomes


def _calls_of(version: Version) -> list[tuple[str, str, str]]:
    """Calls of a server that launch kernels beside the version that servers call: no version is.

    Each with the design and the version; none of another version.
    """
    from mla_var3.serving import launching

    package, _, _ = launching.COMPILER.rpartition(".")
    if not version.plan_class().__module__.startswith(f"{package}."):
        return []
    from mla_var3.serving import trials

    called = importlib.import_module(launching.COMPILER).Plan is version.plan_class()
    return [(version.qualified, version.version, name) for name in trials.names() if called]


def _check_calls(
    calls: Sequence[tuple[str, str, str]], console: Console, places: Sequence[Place] = ()
) -> list[CheckOutcome]:
    work = [functools.partial(_check_call, *one) for one in calls]
    modules = [registry.find(*one[:2]).plan_class().__module__ for one in calls]
    outcomes = list(_run(work, modules, places))
    for outcome in outcomes:
        console.print(outcome.line())
        if outcome.explanation:
            console.print(f"          {outcome.explanation}", markup=False)
    return outcomes


def _check_call(design: str, version: str, name: str) -> list[CheckOutcome] | HyperMlaError:
    """Make a call of a server, where its kernels can run."""
    import torch

    from mla_var3.serving import trials

    key = registry.find(design, version).key
    torch.set_num_threads(1)
    try:
        errors = trials.run(name, "cuda" if torch.cuda.is_available() else "cpu")
    except ToolchainError as error:
        return [CheckOutcome(key, name, math.nan, str(error))]
    except HyperMlaError as error:
        return error  # It is pickled, and so keeps its class.
    except Exception as error:  # noqa: BLE001  # Another's fault is raised again.
        return [CheckOutcome(key, name, math.nan, raised(error))]
    wrong = "; ".join(str(e) for e in errors if not e.ok)
    return [CheckOutcome(key, name, max(e.error for e in errors), wrong)]


def _run(
    work: Sequence[Callable[[], list[CheckOutcome] | HyperMlaError]],
    modules: Sequence[str],
    places: Sequence[Place],
    workers: int | None = None,
) -> Iterator[CheckOutcome]:
    """Outcomes of work in its order: those that are kept, else run in processes."""
    found = {n: place.kept() for n, place in enumerate(places)}
    there = {n: outcomes for n, outcomes in found.items() if outcomes is not None}
    todo = {n: one for n, one in enumerate(work) if n not in there}
    runs = _side_by_side(todo, [modules[n] for n in todo], workers)
    return _in_order(runs, there, places, len(work))


def _side_by_side(
    work: Mapping[int, Callable[[], _Answer]], modules: Sequence[str], workers: int | None = None
) -> Generator[tuple[int, Ended[_Answer]], None, None]:
    """Run work in processes that have loaded the modules of versions, as it ends."""
    with tempfile.TemporaryDirectory() as logs:
        yield from forked.run(
            work,
            folder=Path(logs),
            workers=workers or os.cpu_count() or 1,
            timeout=math.inf,
            explain=_traced,
            load=(*LOADED, *dict.fromkeys(modules)),
        )


def _in_order(
    runs: Generator[tuple[int, Ended[list[CheckOutcome] | HyperMlaError]], None, None],
    there: dict[int, list[CheckOutcome]],
    places: Sequence[Place],
    count: int,
) -> Iterator[CheckOutcome]:
    """Outcomes in the order of groups, each when those before it are there, as some are already."""
    with contextlib.closing(runs):  # What still runs ends at once, whoever keeps the error.
        for place in range(count):
            while place not in there:
                number, end = next(runs)
                answer = _answer(end, "checking")
                if isinstance(answer, HyperMlaError):
                    raise answer
                if places:
                    places[number].keep(answer)
                there[number] = answer
            yield from there.pop(place)


def _answer(end: Ended[_Answer], doing: str) -> _Answer:
    if end.crashed:
        raise HyperMlaError(
            f"a {doing} process was killed, perhaps for lack of memory: {end.failure}"
        )
    if end.result is None:
        raise RuntimeError(end.failure)
    return end.result


def _traced(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _groups(versions: Sequence[Version]) -> tuple[list[Group], dict[Version, str]]:
    """The problems of versions, and why some have none here, as where an example is not fetched."""
    groups: list[Group] = []
    absent: dict[Version, str] = {}
    for version, answer in zip(versions, _chosen_by_each(versions), strict=True):
        if isinstance(answer, NotExecutableError):
            absent[version] = str(answer)
        elif isinstance(answer, HyperMlaError):
            raise answer
        else:
            groups += answer
    return groups, absent


def _chosen_by_each(versions: Sequence[Version]) -> list[list[Group] | HyperMlaError]:
    """The problems of each version; of several side by side, since choosing takes seconds."""
    if len(versions) == 1:
        return [_choose(versions[0].qualified, versions[0].version)]
    work = {n: functools.partial(_choose, v.qualified, v.version) for n, v in enumerate(versions)}
    modules = [version.module for version in versions]
    ends = dict(_side_by_side(work, modules))
    return [_answer(ends[number], "choosing") for number in work]


def _choose(design: str, version: str) -> list[Group] | HyperMlaError:
    try:
        return groups_of(registry.find(design, version))
    except HyperMlaError as error:
        return error  # It is pickled, and so keeps its class.
    except Exception as error:  # noqa: BLE001  # Another's fault is raised again.
        return HyperMlaError(f"{design} {version} cannot be planned: it {raised(error)}")


def groups_of(version: Version) -> list[Group]:
    """The problems of a version by what they share."""
    with collecting.uncollected():  # Choosing makes many objects, and drops few.
        those = cases_of(version)
    shared: dict[int, list[Case]] = {}
    for number, case in enumerate(those):
        own = -1 - number // TOGETHER if case.build is None else case.build
        shared.setdefault(own, []).append(case)
    return [Group(version.qualified, version.version, tuple(one)) for one in shared.values()]


def cases_of(version: Version) -> list[Case]:
    """How the small problems of a version are run here.

    A GPU starts blocks as it likes. Where nothing is compiled, problems are made beside those of
    the workload; else few builds are run at many sizes.
    """
    # Schedules are the same for all builds.
    return [
        dataclasses.replace(case, plan=cases.as_checked(case.plan), metadata=not number)
        for number, case in enumerate(_chosen(version))
    ]


def _chosen(version: Version) -> Sequence[Case]:
    import torch

    plan, language = version.plan_class()(), languages.find(version.language)
    if torch.cuda.is_available():
        return _cases_for_gpu(plan, language.cpu_builds)
    if language.cannot_execute() is None and language.cpu_builds is not None:
        # What cannot be built here says so where it runs.
        wanted = unreached.reaching(version)
        return few_builds.chosen(plan, language.cpu_builds, wanted) or cases.cases(plan)[:1]
    named = (few_builds.as_named(plan, one) for one in unreached.reaching(version))
    found = [*cases.cases(plan, MADE), *map(cases.as_planned, named)]
    others = plan_values.unseen(plan, [one.plan for one in found], MOST_STEPS)
    return [*found, *map(cases.as_planned, others)]


def _steps(version: Version) -> int:
    """The most steps of tiles that a problem of a version takes on a CPU."""
    compiled = languages.find(version.language).cpu_builds is not None
    return few_builds.MOST_STEPS if compiled else MOST_STEPS


def _cases_for_gpu(plan: KernelPlan, builds: int | None) -> list[Case]:
    """The small problems under default tilings, and others that take a CPU too long.

    A GPU may lack the registers or the memory for another tiling, and runs in no time what a CPU
    cannot run: many sequences with many heads over many keys.
    """
    small = [Case(one, "default", "forward", runs=2) for one in plan.check_plans()]
    if builds is not None:
        return small + few_builds.chosen(plan, builds)
    made = itertools.islice(cases.drawn(plan, len(small), MOST_STEPS_OF_GPU), MADE_FOR_GPU)
    large = (dataclasses.replace(one.plan, tilings={}, machine=None) for one in made)
    return small + [Case(one, "default", "forward") for one in large]


def _check_some(
    design: str, version: str, those: Sequence[Case]
) -> list[CheckOutcome] | HyperMlaError:
    with collecting.uncollected():
        import torch

        found = registry.find(design, version)
    torch.set_num_threads(1)
    try:
        with collecting.seldom():
            return [check_case(found, case) for case in those]
    except HyperMlaError as error:
        return error  # It is pickled, and so keeps its class.


def settled(version: Version, case: Case, result: CaseResult) -> CaseResult:
    """A result without the findings that the version argues, or that are for tuning to see."""
    return result.knowing(unreached.findings(version), slow=case.sizes != "default")


def raised(error: Exception) -> str:
    """What a version's own code raised, and where, in one sentence.

    Raises:
        Exception: The very error, where it is no fault of a version: one of the check itself or of
            this machine, or raised past all of a kernel's files.
    """
    frames = traceback.extract_tb(error.__traceback__)
    named = [(relative_source(frame.filename), frame.lineno) for frame in frames]
    places = [f"{file}:{line}" for file, line in named if file.startswith("kernels/")]
    if not places or isinstance(error, HyperMlaError | OSError | MemoryError):
        raise error
    return f"raised {type(error).__name__} at {places[-1]}: {' '.join(str(error).split())}"


def check_case(version: Version, case: Case) -> CheckOutcome:
    """Check a version on one problem."""
    import torch

    from mla_var3.runtime.check import check_plan

    plan, key = case.plan, version.key
    device = "cuda" if torch.cuda.is_available() else "cpu"
    reason = languages.find(version.language).cannot_execute() if device == "cpu" else None
    if reason is not None:
        return CheckOutcome(key, plan.slug(), skipped=reason)
    try:
        order = case.order if device == "cpu" else None
        ran = check_plan(
            plan, device, order, case.runs, conflicts=False,
            metadata=case.metadata, beside=case.beside, nan=case.nan, retuned=case.retuned,
        )  # fmt: skip
        result = settled(version, case, ran)
    except NotExecutableError as error:
        return CheckOutcome(key, plan.slug(), skipped=str(error))
    except Exception as error:  # noqa: BLE001  # Another's fault is raised again.
        return CheckOutcome(key, plan.slug(), math.nan, raised(error))
    orders = {execution.order for execution in result.executions}
    wrong = [result.explain()]
    wrong += [vast.refused(plan), plan.unsound()] if case.metadata else []
    return CheckOutcome(
        key, plan.slug(), result.max_relative_error, "; ".join(filter(None, wrong)),
        order=orders.pop() if len(orders) == 1 else None, facts=coverage.of(result.executions),
    )  # fmt: skip
