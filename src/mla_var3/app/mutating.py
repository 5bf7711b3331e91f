"""Command ``check --mutants``: derives wrong kernels from a version and tests that each is found.

The results are kept in ``mutants.json`` beside the devlog: for each edit the problem that shows it.
An edit that no problem shows fails, unless ``unreached.toml`` says why it changes nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import os
import pickle
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from mla_var3 import forked, inputs, languages
from mla_var3.app import checking, edited
from mla_var3.errors import HyperMlaError, NotExecutableError
from mla_var3.evidence.fingerprint import digest
from mla_var3.paths import relative, write_atomic
from mla_var3.runtime import calling, registry, unreached
from mla_var3.runtime.cases import Case
from mla_var3.runtime.registry import Version

FILE = "mutants.json"
#: Seconds that the check of one wrong kernel may take.
TIMEOUT_S = 600.0
#: Wrong kernels that a problem has shown, for each of which it is tried earlier.
KILLS = 3
#: Of the chance by which a sample is taken.
SEED = "7"
#: Wrong kernels after which what was found is kept.
OFTEN = 20
#: What is kept of one that does not run, before the name of the error that it ends with.
REFUSED = "refused: "
#: Errors of the machine, not of the sources: they judge nothing.
NOT_ITS_OWN = (OSError, MemoryError, NotExecutableError)
#: By file below ``kernels/`` and edit the problem that shows it.
Shown = dict[str, dict[str, str]]


@dataclass(frozen=True)
class Wrong:
    """A wrong kernel: a version with one edit of one of its sources."""

    version: Version
    file: Path
    edit: str
    text: str

    @property
    def place(self) -> str:
        """The edited file below ``kernels/``."""
        return _below(self.file)


@dataclass(frozen=True)
class Judged:
    """What the problems of a version say of a wrong kernel.

    Attributes:
        slug: The problem that shows it; None where none does.
        refusal: What it ended with instead of a result; empty where it ran.
        error: Name of that error.
    """

    slug: str | None
    refusal: str = ""
    error: str = ""

    @property
    def kept(self) -> str | None:
        """What is kept: the problem, or that it was refused."""
        return f"{REFUSED}{self.error}" if self.refusal else self.slug


def _below(file: Path) -> str:
    parts = file.parts
    return "/".join(parts[len(parts) - parts[::-1].index("kernels") :])


def path_of(version: Version) -> Path:
    """The file in which the findings of a version's design stand."""
    return version.path.parents[1] / FILE


def derived(version: Version) -> Iterator[Wrong]:
    """All wrong kernels that a version judges: edits of functions that it is the first to call.

    What changes nothing in versions that are named is for the next one that calls the function.
    """
    language, callers = languages.find(version.language), _callers(version.language)
    called = calling.called(version)
    open_ = {at for at in called if version in _may_judge(callers[at])}
    for file in sorted({file for file, _ in open_}):
        for one in language.mutants(inputs.read_text(file)):
            at = file, one.line
            if at in open_ and _judge(callers[at], one.edit) == version:
                yield Wrong(version, file, one.edit, one.text)


def _judge(callers: Sequence[Version], edit: str) -> Version:
    """Of those that call a function the first in which the edit may change something."""
    return next((v for v in callers if edit not in unreached.same_here(v)), callers[0])


def _may_judge(callers: Sequence[Version]) -> Sequence[Version]:
    """Those of whom some edit may be to judge: up to the first who argues of none."""
    return callers[: 1 + sum(1 for _ in itertools.takewhile(unreached.same_here, callers))]


@functools.cache
def _callers(language: str) -> dict[calling.Function, list[Version]]:
    """By function the versions that call it."""
    found: dict[calling.Function, list[Version]] = {}
    for version in registry.versions():
        if version.language == language:
            for function in sorted(calling.called(version)):
                found.setdefault(function, []).append(version)
    return found


def known(version: Version) -> Shown:
    """What was found of a version.

    Raises:
        HyperMlaError: The file cannot be read.
    """
    path = path_of(version)
    if not path.exists():
        return {}
    try:
        return dict(json.loads(inputs.read_text(path)).get(version.version, {}))
    except (ValueError, AttributeError) as error:
        raise HyperMlaError(f"{relative(path)}: {error}") from error


def missed(version: Version, shown: Shown, most: int = 0) -> list[Wrong]:
    """Of so many wrong kernels those that no problem shows, and nobody says why none can."""
    argued = unreached.same(version)
    return [
        one
        for one in sample(derived(version), most)
        if one.edit not in shown.get(one.place, {}) and one.edit not in argued
    ]


def sample(every: Iterable[Wrong], most: int) -> list[Wrong]:
    """So many of them, spread by chance that is always the same; all where ``most`` is 0.

    Whether one is among them does not hang on what else there is in its file.
    """
    found = list(every)
    if not most:
        return found
    return sorted(found, key=lambda one: digest([SEED, one.place, one.edit]))[:most]


def check(versions: Sequence[Version], console: Console, most: int = 0) -> int:
    """Find the wrong kernels of versions, as far as it is not known; 0 when all are shown.

    Args:
        versions: Whose wrong kernels are judged.
        console: Told of each.
        most: How many of each version are judged; all where it is 0.

    Raises:
        NotExecutableError: None of the versions has any.
    """
    found = [version for version in versions if next(derived(version), None) is not None]
    if not found:
        raise NotExecutableError("no wrong kernels are derived from the sources of these versions")
    left = 0
    for version in found:
        shown = _of_version(version, console, most)
        lines = [f"  {one.place}: {one.edit}" for one in missed(version, shown, most)]
        left += len(lines)
        every = list(derived(version))
        judged = len(sample(every, most))
        console.print(
            f"{version.key}: {judged} of {len(every)} wrong kernels judged, {len(lines)} not found",
            markup=False,
        )
        for line in lines:
            console.print(line, markup=False)
        console.print(relative(_write(version, shown)), markup=False)
    return checking.EXIT_FAILED if left else 0


def _of_version(version: Version, console: Console, most: int) -> Shown:
    """What was known of the present edits, and what is found of the others."""
    before, every = known(version), list(derived(version))
    shown: Shown = {}
    for one in every:
        if (slug := before.get(one.place, {}).get(one.edit)) is not None:
            shown.setdefault(one.place, {})[one.edit] = slug
    argued = unreached.same(version)
    open_ = (w for w in sample(every, most) if w.edit not in shown.get(w.place, {}))
    todo = [w for w in open_ if w.edit not in argued]
    for number, (one, slug) in enumerate(_verdicts(version, todo), 1):
        if slug:
            shown.setdefault(one.place, {})[one.edit] = slug
        if not number % OFTEN:  # Whoever stops here goes on from here.
            _write(version, shown)
        console.print(f"[{number}/{len(todo)}] {one.edit}: {slug or 'NOT FOUND'}", markup=False)
    return shown


def _write(version: Version, shown: Shown) -> Path:
    path = path_of(version)
    whole = json.loads(inputs.read_text(path)) if path.exists() else {}
    sorted_ = {place: dict(sorted(shown[place].items())) for place in sorted(shown)}
    whole = dict(sorted({**whole, version.version: sorted_}.items()))
    write_atomic(path, json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
    return path


def _verdicts(version: Version, todo: Sequence[Wrong]) -> Iterator[tuple[Wrong, str | None]]:
    """Each wrong kernel, with the problem that shows it; None where none does."""
    if not todo:
        return
    _imported()
    with tempfile.TemporaryDirectory(prefix="hypermla-mutants-") as name:
        folder, kills = Path(name), Counter[str]()
        cases = _alone(functools.partial(_pickled, version), folder)
        work = {n: functools.partial(judge, one, cases, kills) for n, one in enumerate(todo)}
        for number, ended in _run(work, folder):
            one, said = todo[number], _judged(ended)
            if said.refusal:
                yield one, said.kept if _is_its_own(one, said, cases, folder) else None
                continue
            kills[said.slug or ""] += 1
            yield one, said.slug


def _run(
    work: Mapping[int, Callable[[], Judged]], folder: Path
) -> Iterator[tuple[int, forked.Ended[Judged]]]:
    yield from forked.run(
        work, folder=folder, workers=os.cpu_count() or 1, timeout=TIMEOUT_S, explain=_sentence
    )


def _judged(ended: forked.Ended[Judged]) -> Judged:
    """What came of judging; a process that took too long shows nothing, one that died refuses."""
    if ended.result is not None:
        return ended.result
    if ended.late:
        return Judged(None)
    if not ended.crashed:
        raise HyperMlaError(ended.failure or "it was not judged")
    return Judged(None, ended.failure or "the process died", "crash")


def _is_its_own(one: Wrong, said: Judged, cases: bytes, folder: Path) -> bool:
    """Whether a wrong kernel that does not run has that from its edit.

    It ends so again, and the version as it is goes through the same problem.
    """
    if "signal 9" in said.refusal:  # Whoever runs short of memory kills so.
        return False
    apart = folder / "again"
    apart.mkdir(exist_ok=True)
    unedited = dataclasses.replace(one, text=inputs.read_text(one.file))
    both = enumerate((one, unedited))
    work = {n: functools.partial(judge, x, cases, {}, said.slug) for n, x in both}
    ends = {number: _judged(ended) for number, ended in _run(work, apart)}
    return (ends[0].kept, ends[1]) == (said.kept, Judged(None))


def _imported() -> None:
    """Import what every process needs, and no kernel: forks share it."""
    import torch  # noqa: F401

    import mla_var3.runtime.check
    import mla_var3.runtime.ct_kernel  # noqa: F401


def _alone(work: Callable[[], bytes], folder: Path) -> bytes:
    """What work gives, in a process of its own: this one is to import no kernel."""
    for _, ended in forked.run({0: work}, folder=folder, workers=1, timeout=TIMEOUT_S, explain=str):
        if ended.result is not None:
            return ended.result
        raise HyperMlaError(ended.failure or "no problem was chosen")
    raise HyperMlaError("no problem was chosen")


def _pickled(version: Version) -> bytes:
    """The problems of a version, the cheap ones first, for processes with other sources."""
    import torch

    torch.set_num_threads(1)
    those = checking.cases_of(version)
    those.sort(key=lambda case: case.plan._algorithmic_flops_bytes().flops)
    return pickle.dumps(those)


def judge(one: Wrong, cases: bytes, kills: Mapping[str, int], only: str | None = None) -> Judged:
    """What the problems of a version say of a wrong kernel. For a process of its own.

    Args:
        one: The wrong kernel.
        cases: The problems, pickled, since they are of the version's own classes.
        kills: How many wrong kernels each problem has shown; such come first.
        only: The one problem that is tried; all by default.

    Raises:
        OSError: The machine's fault, as are lack of memory and of the language.
    """
    import torch

    torch.set_num_threads(1)
    edited.play(one.file, one.text)
    try:
        found: list[Case] = pickle.loads(cases)
    except NOT_ITS_OWN:
        raise
    except Exception as error:  # noqa: BLE001  # The edit ends the import.
        return Judged(None, _sentence(error), type(error).__name__)
    # Problems of one build come one after the other, since each takes a compile.
    found.sort(key=lambda case: (-(kills.get(case.plan.slug(), 0) // KILLS), case.build or 0))
    for case in found:
        slug = case.plan.slug()
        if only in (None, slug) and (said := _of_case(one.version, case)) is not None:
            return dataclasses.replace(said, slug=slug)
    return Judged(None)


def _of_case(version: Version, case: Case) -> Judged | None:
    """What one problem says of a version; None where nothing is wrong."""
    from mla_var3.runtime.check import check_plan

    try:
        result = check_plan(case.plan, "cpu", case.order, case.runs, conflicts=False)
        wrong = checking.settled(version, case, result).explain()
    except NOT_ITS_OWN:
        raise
    except Exception as error:  # noqa: BLE001  # Whoever refuses the edit has seen it.
        return Judged(None, _sentence(error), type(error).__name__)
    return Judged(None) if wrong else None


def _sentence(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
