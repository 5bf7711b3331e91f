"""Judges many wrong kernels of a version by few compiles: ``check --mutants`` where it can.

An edit of a run-time value is chosen in code that is compiled already (``languages.base.Choices``),
so that it costs no more than the launches of its problems. Only problems whose code holds the edit
are run: with nothing chosen each of them passes first.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mla_var3 import forked, inputs, languages
from mla_var3.app import edited
from mla_var3.app.judging import KILLS, Judged, Wrong, alone, of_case, sentence
from mla_var3.errors import HyperMlaError
from mla_var3.languages.base import Choices
from mla_var3.runtime.cases import Case
from mla_var3.runtime.registry import Version

#: Seconds that the first problem of a build may take, and a version with all of its wrong kernels.
BUILD_S, ALL_S = 1800.0, 20000.0
#: Seconds that a wrong kernel may take beyond four times what the version takes.
LONGER_S = 60.0
#: Problems of an edit that are tried first, twice as many in each turn after it.
FIRST = 4


@dataclass(frozen=True)
class Chosen:
    """What came of wrong kernels that share their compiles.

    Attributes:
        verdicts: By place in the list the problem that shows it, or that it was refused; None
            where no problem shows it, also since none compiles its function, or since its values
            are the same in all of them. Who took too long, or was killed, has none.
        same: Places of those that compile to the same code for every problem.
        own: Places of those that take a compile of their own.
    """

    verdicts: Mapping[int, str | None]
    same: frozenset[int]
    own: frozenset[int]


def judged(
    todo: Sequence[Wrong],
    cases: bytes,
    folder: Path,
    tell: Callable[[int, str | None], None] = lambda _number, _said: None,
) -> Chosen:
    """What the problems of a version say of its wrong kernels; imports no kernel here.

    Args:
        todo: Wrong kernels of one version.
        cases: Its problems, pickled.
        folder: For what is written meanwhile.
        tell: Told of each verdict as it is reached, in another process than this one.

    Raises:
        HyperMlaError: The version does not pass its problems with choices in its sources.
    """
    choices = languages.find(todo[0].version.language).choices()
    if choices is None:
        return Chosen({}, frozenset(), frozenset(range(len(todo))))
    apart = folder / "together"
    apart.mkdir()
    work = functools.partial(_all, todo, cases, choices, apart, tell)
    return alone(work, folder, ALL_S, "it was not judged")[0]


def _all(
    todo: Sequence[Wrong],
    cases: bytes,
    choices: Choices,
    folder: Path,
    tell: Callable[[int, str | None], None],
) -> Chosen:
    """As ``judged``; for a process of its own, which forks others once it has all imported."""
    import torch

    torch.set_num_threads(1)
    log = folder / "kinds"
    numbers: dict[Path, dict[str, int]] = {}
    for number, one in enumerate(todo):
        numbers.setdefault(one.file, {})[one.edit] = number
    for file, those in numbers.items():
        # What is kept of an earlier compile would not say of what kind an edit is.
        edited.play(file, f"{choices.written(inputs.read_text(file), those)}# {log}\n")
    choices.play(log)
    found: list[Case] = pickle.loads(cases)
    version = todo[0].version
    _compile(version, found, folder)
    runs = _as_it_is(version, found, choices)  # Forks find all kernels lowered.
    kinds, every = choices.kinds(log), frozenset(range(len(todo)))
    own = frozenset(n for n in every if "other" in kinds.get(n, ()))
    chosen = frozenset().union(*(run.numbers for run in runs)) - own
    verdicts: dict[int, str | None] = dict.fromkeys(every - kinds.keys())
    order = _by_what_is_new(runs)
    open_ = {n: [run for run in order if n in run.differing] for n in sorted(chosen)}
    for number, said in _in_turns(version, open_, choices, folder):
        verdicts[number] = said
        tell(number, said)
    return Chosen(verdicts, every - own - chosen - verdicts.keys(), own)


def _by_what_is_new(runs: Sequence[_Run]) -> list[_Run]:
    """Problems by how many edits, per second, differ in them and in none before; else the fast.

    What does more than select counts as differing in all of them: it is tried by unlike ones first.
    """
    left, seen, order = sorted(runs, key=lambda run: run.seconds), set[int](), list[_Run]()
    while left:
        best = max(left, key=lambda run: len(run.differing - seen) / max(run.seconds, 0.001))
        left.remove(best)
        seen |= best.differing
        order.append(best)
    return order


def _in_turns(
    version: Version, open_: dict[int, list[_Run]], choices: Choices, folder: Path
) -> Iterator[tuple[int, str | None]]:
    """What the problems say of those that can be chosen, a few problems of each in a turn.

    Most are shown by the first of them, and what shows none takes as long as all the others.

    Args:
        version: Whose wrong kernels they are.
        open_: By number the problems in which it gives another value, in the order in which they
            are tried, but for those that have shown others; emptied here.
        choices: Chooses one.
        folder: For what is written meanwhile.
    """
    kills = Counter[str]()
    most = FIRST
    while open_:
        alike = [number for number, mine in open_.items() if not mine]
        for number in alike:
            del open_[number]
            yield number, None
        work = {}
        timeout = LONGER_S
        for number, mine in open_.items():
            mine.sort(key=lambda run: -(kills[run.slug] // KILLS))
            some, open_[number] = mine[:most], mine[most:]
            timeout = max(timeout, LONGER_S + 4 * sum(run.seconds for run in some))
            work[number] = functools.partial(_one, version, number, some, choices)
        for number, said in _chosen(work, timeout, folder / f"turn-{most}"):
            if said is None:
                del open_[number]
            elif said.kept is not None:
                del open_[number]
                kills[said.slug or ""] += 1
                yield number, said.kept
        most *= 2


@dataclass(frozen=True)
class _Run:
    """A problem with nothing chosen, and how long it took.

    Attributes:
        case: The problem.
        numbers: Those that its code can choose.
        differing: Those of them that may change what it gives.
        seconds: Wall time.
    """

    case: Case
    numbers: frozenset[int]
    differing: frozenset[int]
    seconds: float

    @property
    def slug(self) -> str:
        return self.case.plan.slug()


def _compile(version: Version, cases: Sequence[Case], folder: Path) -> None:
    """Have the kernels of each build compiled, side by side, before they are run one by one."""
    apart = folder / "builds"
    apart.mkdir()
    firsts = {case.build: functools.partial(of_case, version, case) for case in reversed(cases)}
    runs = forked.run(
        firsts, folder=apart, workers=os.cpu_count() or 1, timeout=BUILD_S, explain=sentence
    )
    for _ in runs:
        pass  # What is wrong with one, it shows again.


def _as_it_is(version: Version, cases: Sequence[Case], choices: Choices) -> list[_Run]:
    """Run the problems with nothing chosen, which all have to pass."""
    found = []
    for case in cases:
        choices.take(None)
        began = time.monotonic()
        if (said := of_case(version, case)) is not None:
            what = said.refusal or f"{case.plan.slug()} is wrong"
            raise HyperMlaError(f"{version.key} with choices in its sources: {what}")
        seconds = time.monotonic() - began
        found.append(_Run(case, choices.taken(), choices.differing(), seconds))
    return found


def _chosen(
    work: Mapping[int, Callable[[], Judged]], timeout: float, folder: Path
) -> Iterator[tuple[int, Judged | None]]:
    """What comes of those that are chosen; None of who was late or killed."""
    folder.mkdir()
    for number, ended in forked.run(
        work, folder=folder, workers=os.cpu_count() or 1, timeout=timeout, explain=sentence
    ):
        said = Judged.of(ended)
        yield number, None if ended.late or said.is_killed else said


def _one(version: Version, number: int, runs: Sequence[_Run], choices: Choices) -> Judged:
    """What these problems say of one that is chosen."""
    choices.take(number)
    for run in runs:
        if (said := of_case(version, run.case)) is not None:
            return dataclasses.replace(said, slug=run.slug)
    return Judged(None)
