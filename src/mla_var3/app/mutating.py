"""Command ``check --mutants``: derives wrong kernels from a version and tests that each is found.

The results are kept in ``mutants.json`` beside the devlog: for each edit the problem that shows it,
or that none does. Such a one fails, unless ``unreached.toml`` says why it changes nothing. Where a
kernel is compiled, ``choosing`` judges what one compile serves, and ``judge`` each of the others.
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
from pathlib import Path

from rich.console import Console

from mla_var3 import forked, inputs, languages
from mla_var3.app import checking, choosing
from mla_var3.app.judging import Judged, Wrong, alone, judge, sentence
from mla_var3.blobs import once_per_content
from mla_var3.errors import HyperMlaError, NotExecutableError
from mla_var3.evidence.fingerprint import digest
from mla_var3.paths import relative, write_atomic
from mla_var3.runtime import calling, registry, unreached
from mla_var3.runtime.registry import Version

FILE = "mutants.json"
#: Seconds that the check of one wrong kernel may take.
TIMEOUT_S = 600.0
#: Of the chance by which a sample is taken.
SEED = "7"
#: Wrong kernels after which what was found is kept.
OFTEN = 20
#: What is kept of one that compiles to the code of the version for each of its problems.
SAME_CODE = "same code"
#: By file below ``kernels/`` and edit the problem that shows it; None where none does.
Shown = dict[str, dict[str, str | None]]


def path_of(version: Version) -> Path:
    """The file in which the findings of a version's design stand."""
    return version.path.parents[1] / FILE


def derived(version: Version) -> Iterator[Wrong]:
    """All wrong kernels that a version judges: edits of functions that it is the first to call.

    What changes nothing in versions that are named, and what is known to change no code of a
    version, is for the next one that calls the function.
    """
    return (one for one, judge in _edits(version) if judge == version)


def passed_on(version: Version) -> Iterator[Wrong]:
    """Wrong kernels that compile to the code of a version, and that another one judges."""
    alike = _alike(version)
    edits = _edits(version) if alike else ()
    return (one for one, judge in edits if judge != version and (one.place, one.edit) in alike)


def _edits(version: Version) -> Iterator[tuple[Wrong, Version]]:
    """Edits of functions that a version calls and may judge, each with who judges it."""
    language, callers = languages.find(version.language), _callers(version.language)
    called = calling.called(version)
    open_ = {at for at in called if version in _may_judge(callers[at])}
    for file in sorted({file for file, _ in open_}):
        for one in language.mutants(inputs.read_text(file)):
            if (at := (file, one.line)) in open_:
                wrong = Wrong(version, file, one.edit, one.text)
                yield wrong, _judge(callers[at], wrong)


def _judge(callers: Sequence[Version], one: Wrong) -> Version:
    """Of those that call a function the first in which the edit may change something."""
    return next((v for v in callers if not _is_same_here(v, one)), callers[0])


def _is_same_here(version: Version, one: Wrong) -> bool:
    if one.edit in unreached.same_here(version):
        return True
    return (one.place, one.edit) in _alike(version)


def _may_judge(callers: Sequence[Version]) -> Sequence[Version]:
    """Those of whom some edit may be to judge: up to the first in which none is the same."""
    passing = itertools.takewhile(lambda v: unreached.same_here(v) or _alike(v), callers)
    return callers[: 1 + sum(1 for _ in passing)]


def _alike(version: Version) -> frozenset[tuple[str, str]]:
    """File and edit of those that compile to the code of a version for each of its problems."""
    path = path_of(version)
    return _all_alike(path).get(version.version, frozenset()) if path.exists() else frozenset()


@once_per_content  # Whoever judges the edits of shared code asks for many versions.
def _all_alike(path: Path) -> dict[str, frozenset[tuple[str, str]]]:
    """By version of a design what ``_alike`` gives."""
    return {
        version: frozenset(
            (place, edit)
            for place, edits in shown.items()
            for edit, said in edits.items()
            if said == SAME_CODE
        )
        for version, shown in _recorded(path).items()
    }


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
    return dict(_recorded(path).get(version.version, {})) if path.exists() else {}


def _recorded(path: Path) -> dict[str, Shown]:
    """By version of a design what was found.

    Raises:
        HyperMlaError: The file cannot be read.
    """
    try:
        return {name: dict(shown) for name, shown in json.loads(inputs.read_text(path)).items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise HyperMlaError(f"{relative(path)}: {error}") from error


def missed(version: Version, shown: Shown, among: Iterable[Wrong] | None = None) -> list[Wrong]:
    """Of wrong kernels, all by default, those that no problem shows, and nobody says why."""
    argued = unreached.same(version)
    return [
        one
        for one in (derived(version) if among is None else among)
        if shown.get(one.place, {}).get(one.edit) is None and one.edit not in argued
    ]


def sample(every: Iterable[Wrong], most: int) -> list[Wrong]:
    """So many of them, spread by chance that is always the same; all where ``most`` is 0.

    Whether one is among them does not hang on what else there is in its file.
    """
    found = list(every)
    if not most:
        return found
    return sorted(found, key=lambda one: digest([SEED, one.place, one.edit]))[:most]


def check(
    versions: Sequence[Version], console: Console, most: int = 0, compiles: int | None = None
) -> int:
    """Find the wrong kernels of versions, as far as it is not known; 0 when all are shown.

    Args:
        versions: Whose wrong kernels are judged.
        console: Told of each.
        most: How many of each version are judged; all where it is 0.
        compiles: Of these, how many that take a compile of their own; all by default.

    Raises:
        NotExecutableError: None of the versions has any.
    """
    found = [version for version in versions if next(derived(version), None) is not None]
    if not found:
        raise NotExecutableError("no wrong kernels are derived from the sources of these versions")
    left = 0
    for version in found:
        every = list(derived(version))
        wanted = sample(every, most)
        shown = _of_version(version, every, wanted, console, compiles)
        judged = [w for w in wanted if w.edit in shown.get(w.place, {})]
        lines = [f"  {w.place}: {w.edit}" for w in missed(version, shown, judged)]
        left += len(lines)
        argued = unreached.same(version)
        open_ = sum(1 for w in wanted if w not in judged and w.edit not in argued)
        console.print(
            f"{version.key}: {len(wanted) - open_} of {len(every)} wrong kernels "
            f"judged, {len(lines)} not found",
            markup=False,
        )
        for line in lines:
            console.print(line, markup=False)
        console.print(relative(_write(version, shown)), markup=False)
    return checking.EXIT_FAILED if left else 0


def _of_version(
    version: Version,
    every: Sequence[Wrong],
    wanted: Sequence[Wrong],
    console: Console,
    compiles: int | None,
) -> Shown:
    """What was known of the present edits, and what is found of those that are wanted."""
    before = known(version)
    shown: Shown = {}
    for one in (*every, *passed_on(version)):
        if (slug := before.get(one.place, {}).get(one.edit)) is not None:
            shown.setdefault(one.place, {})[one.edit] = slug
    argued = unreached.same(version)
    open_ = (w for w in wanted if w.edit not in shown.get(w.place, {}))
    todo = [w for w in open_ if w.edit not in argued]
    kept = itertools.count(1)

    def keep(one: Wrong, slug: str | None) -> None:
        shown.setdefault(one.place, {})[one.edit] = slug
        if not next(kept) % OFTEN:  # Whoever stops here goes on from here.
            _write(version, shown)

    for number, (one, slug) in enumerate(_verdicts(version, todo, compiles, keep), 1):
        keep(one, slug)
        console.print(f"[{number}/{len(todo)}] {one.edit}: {slug or 'NOT FOUND'}", markup=False)
    return shown


def _write(version: Version, shown: Shown) -> Path:
    path = path_of(version)
    whole = json.loads(inputs.read_text(path)) if path.exists() else {}
    sorted_ = {place: dict(sorted(shown[place].items())) for place in sorted(shown)}
    whole = dict(sorted({**whole, version.version: sorted_}.items()))
    write_atomic(path, json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
    return path


def _verdicts(
    version: Version,
    todo: Sequence[Wrong],
    compiles: int | None = None,
    keep: Callable[[Wrong, str | None], None] = lambda _one, _slug: None,
) -> Iterator[tuple[Wrong, str | None]]:
    """Each wrong kernel, with the problem that shows it; None where none does.

    Who took too long is left out.

    Args:
        version: Whose wrong kernels they are.
        todo: What is judged.
        compiles: How many of those are judged that take a compile of their own; all by default.
        keep: Told of those that share their compiles as each is judged, in another process: their
            verdicts come here together, once the last is.
    """
    if not todo:
        return
    _imported()
    with tempfile.TemporaryDirectory(prefix="hypermla-mutants-") as name:
        folder, kills = Path(name), Counter[str]()
        choose = functools.partial(_pickled, version)
        cases, _ = alone(choose, folder, TIMEOUT_S, "no problem was chosen", str)
        chosen = choosing.judged(todo, cases, folder, lambda n, said: keep(todo[n], said))
        yield from ((todo[number], said) for number, said in chosen.verdicts.items())
        yield from ((todo[number], SAME_CODE) for number in sorted(chosen.same))
        own = sorted(chosen.own)[:compiles]
        work = {n: functools.partial(judge, todo[n], cases, kills) for n in own}
        for number, ended in _run(work, folder):
            one, said = todo[number], Judged.of(ended)
            if ended.late:
                continue
            if said.refusal:
                yield one, said.kept if _is_its_own(one, said, cases, folder) else None
                continue
            kills[said.slug or ""] += 1
            yield one, said.slug


def _run(
    work: Mapping[int, Callable[[], Judged]], folder: Path
) -> Iterator[tuple[int, forked.Ended[Judged]]]:
    yield from forked.run(
        work, folder=folder, workers=os.cpu_count() or 1, timeout=TIMEOUT_S, explain=sentence
    )


def _is_its_own(one: Wrong, said: Judged, cases: bytes, folder: Path) -> bool:
    """Whether a wrong kernel that does not run has that from its edit.

    It ends so again, and the version as it is goes through the same problem.
    """
    if said.is_killed:
        return False
    apart = folder / "again"
    apart.mkdir(exist_ok=True)
    unedited = dataclasses.replace(one, text=inputs.read_text(one.file))
    both = enumerate((one, unedited))
    work = {n: functools.partial(judge, x, cases, {}, said.slug) for n, x in both}
    ends = {number: Judged.of(ended) for number, ended in _run(work, apart)}
    return (ends[0].kept, ends[1]) == (said.kept, Judged(None))


def _imported() -> None:
    """Import what every process needs, and no kernel: forks share it."""
    import torch  # noqa: F401

    import mla_var3.runtime.check
    import mla_var3.runtime.ct_kernel  # noqa: F401


def _pickled(version: Version) -> bytes:
    """The problems of a version, the cheap ones first, for processes with other sources."""
    import torch

    torch.set_num_threads(1)
    those = checking.cases_of(version)
    those.sort(key=lambda case: case.plan._algorithmic_flops_bytes().flops)
    return pickle.dumps(those)
