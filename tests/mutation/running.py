"""Runs mutants inside one pytest process, each in a fork of it and against the tests of its line.

A first run, or what an earlier one left, tells which tests reach which line and how long each
takes. A mutant is killed by a test that fails, by one that takes far longer than it did, or by one
that ends the process.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import itertools
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import coverage
import pytest

from mla_var3 import forked
from mla_var3.paths import out_dir, repo_root, write_atomic

from .living import living
from .mutants import Module, Mutant

PACKAGE = repo_root() / "src/mla_var3"
#: What is mutated, and which tests are about it.
ROOMS = ("interpreter", "emulator")
TESTS = ("tests/interpreter", "tests/emulator", "tests/gpuless")
#: A test that takes this many times its time, and so many seconds more, does not end.
PATIENCE, GRACE_S = 20.0, 5.0


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: the test that killed it, or none; and how many were run."""

    killer: str
    tests: int


@dataclass
class Reached:
    """Which tests reach a line, and how long each takes.

    Attributes:
        seconds: By test.
        lines: Names of tests by file and line.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[int, list[str]]] = field(default_factory=dict)

    @functools.cached_property
    def breadth(self) -> Counter[str]:
        """How many lines each test reaches, once all are known."""
        reached = (names for held in self.lines.values() for names in held.values())
        return Counter(itertools.chain.from_iterable(reached))

    def of(self, mutant: Mutant, readers: Sequence[tuple[str, int]] = ()) -> list[str]:
        """The tests that reach a mutant: all of those named after its module, then the others.

        Of both take turns one case of each test, and those that reach least besides.

        Args:
            mutant: What is reached.
            readers: File and line of whatever names a table, or a function whose results are kept:
                of those that use it, few are seen to reach it. Where nobody names a table, whoever
                reaches its module.
        """
        lines = self.lines.get(mutant.file, {})
        names = set(lines.get(mutant.line, []))
        named = [self.lines.get(file, {}).get(line, []) for file, line in readers]
        if mutant.where.startswith("=") and not named:
            named = list(lines.values())
        names.update(itertools.chain.from_iterable(named))
        own = f"/test_{Path(mutant.file).stem}.py"
        return [
            *self._ordered([name for name in names if _file(name).endswith(own)]),
            *self._ordered([name for name in names if not _file(name).endswith(own)]),
        ]

    def _ordered(self, names: list[str]) -> list[str]:
        cases: dict[str, list[str]] = defaultdict(list)
        for name in sorted(names, key=lambda n: (self.seconds[n], n)):
            cases[name.partition("[")[0]].append(name)
        rounds = [n for one in itertools.zip_longest(*cases.values()) for n in one if n is not None]
        narrow = sorted(rounds, key=lambda name: self.breadth[name])
        pairs = zip(rounds, narrow, strict=True)
        return list(dict.fromkeys(name for pair in pairs for name in pair))

    def add(self, other: Reached) -> None:
        """Join in what other tests reach."""
        self.seconds.update(other.seconds)
        for file, held in other.lines.items():
            here = self.lines.setdefault(file, {})
            for line, names in held.items():
                here.setdefault(line, []).extend(names)


class Kept:
    """What the tests of a file reached when they were last run, until something of that changes.

    Args:
        folder: Where it is kept, a file for each of the tests.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._shared = _shared()
        # As they are now, when they have just been loaded: tests run for minutes.
        files = [*_files(PACKAGE, ROOMS), *_files(repo_root(), TESTS)]
        self._content = {path: path.read_bytes() for path in files}

    def read(self, tests: str) -> Reached | None:
        """What the tests of a file reach, or None when that has to be asked anew."""
        path = self._path(tests)
        if not path.is_file():
            return None
        told = json.loads(path.read_text(encoding="utf-8"))
        if told["digest"] != self._digest(tests, told["lines"]):
            return None
        names = list(told["seconds"])
        lines = {
            file: {int(line): [names[at] for at in places] for line, places in held.items()}
            for file, held in told["lines"].items()
        }
        return Reached(told["seconds"], lines)

    def write(self, tests: str, reached: Reached) -> None:
        place = {name: number for number, name in enumerate(reached.seconds)}
        lines = {
            file: {line: sorted(place[name] for name in names) for line, names in held.items()}
            for file, held in reached.lines.items()
        }
        told = {
            "digest": self._digest(tests, lines), "seconds": reached.seconds, "lines": lines,
        }  # fmt: skip
        write_atomic(self._path(tests), json.dumps(told))

    def _path(self, tests: str) -> Path:
        return self.folder / f"{tests.replace('/', '.')}.json"

    def _digest(self, tests: str, files: Iterable[str]) -> str:
        """Of the tests, of what all tests share, and of every module that these reached."""
        paths = [repo_root() / tests, *(PACKAGE / file for file in sorted(files))]
        told = self._shared.copy()
        for path in paths:
            told.update(self._content.get(path, b"gone"))
        return told.hexdigest()[:16]


def _files(base: Path, folders: Iterable[str]) -> list[Path]:
    return [path for folder in folders for path in (base / folder).rglob("*.py")]


def _shared() -> Any:
    """The digest of what says for every test which lines it reaches."""
    files = [repo_root() / "tests/conftest.py", *_files(PACKAGE, ["gpuless"])]
    files += [p for p in _files(repo_root(), TESTS) if not p.name.startswith("test_")]
    told = hashlib.sha256()
    for path in sorted(files):
        told.update(str(path.relative_to(repo_root())).encode() + path.read_bytes())
    return told


class Runner:
    """A pytest plugin that runs mutants instead of a session.

    Args:
        mutants: What to run.
        seconds: Of tests that a mutant gets at most.
        workers: Processes at a time.
        tell: Told of each verdict.
        again: Whether to ask anew which tests reach what.
        elsewhere: Functions that run in another process, and which one starts it.
    """

    def __init__(
        self,
        mutants: Sequence[Mutant],
        *,
        seconds: float,
        workers: int,
        tell: Callable[[Mutant, Verdict], None],
        again: bool = False,
        elsewhere: Mapping[str, str] | None = None,
    ) -> None:
        self.elsewhere = elsewhere or {}
        self.mutants, self.limit, self.workers = mutants, seconds, workers
        self.tell, self.again = tell, again
        self.reached = Reached()
        self.failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Tell what tests reach, then run the mutants."""
        if not session.items:
            raise session.Failed("no test was found")
        vars(os)["cpu_count"] = lambda: 1  # What runs in a process of its own is not seen.
        self._see(session.items, Kept(out_dir() / "mutation"))
        self._run({item.nodeid: item for item in session.items})
        return True

    def _see(self, items: list[pytest.Item], kept: Kept) -> None:
        """Learn what each test reaches, where possible from an earlier run."""
        files = list(dict.fromkeys(_file(item.nodeid) for item in items))
        stale = {file for file in files if self.again or kept.read(file) is None}
        if stale:
            self._look_apart([item for item in items if _file(item.nodeid) in stale], kept)
        for file in files:
            if reached := kept.read(file):
                self.reached.add(reached)

    def _look_apart(self, items: list[pytest.Item], kept: Kept) -> None:
        """Look in a fork: what tests leave in caches would hide a change from those run later."""

        def look() -> bool:
            self._look(items)
            for file in {_file(item.nodeid) for item in items}:
                kept.write(file, self._of_file(file))
            return True

        with tempfile.TemporaryDirectory() as folder:
            for _, ended in forked.run(
                {"look": look}, folder=Path(folder), workers=1, timeout=3600, explain=repr
            ):
                if not ended.result:
                    raise RuntimeError(f"the tests could not be looked at: {ended.failure}")

    def _of_file(self, tests: str) -> Reached:
        """What those of one file reach."""
        mine = Reached({n: s for n, s in self.reached.seconds.items() if _file(n) == tests})
        for file, held in self.reached.lines.items():
            lines = {line: [n for n in names if n in mine.seconds] for line, names in held.items()}
            if lines := {line: names for line, names in lines.items() if names}:
                mine.lines[file] = lines
        return mine

    def _look(self, items: list[pytest.Item]) -> None:
        """Run every test once, and note what it reaches."""
        watch = coverage.Coverage(
            data_file=None, config_file=False, include=[f"{PACKAGE / room}/*" for room in ROOMS]
        )
        said = time.monotonic()
        for number, (item, following) in enumerate(itertools.zip_longest(items, items[1:])):
            self.failed, began = False, time.process_time()  # Others may have the machine.
            watch.start()
            watch.switch_context(item.nodeid)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            watch.stop()
            if not self.failed:
                self.reached.seconds[item.nodeid] = time.process_time() - began
            if time.monotonic() - said > 20:
                said = time.monotonic()
                print(f"{number} of {len(items)} tests looked at", file=sys.stderr, flush=True)
        self._note(watch.get_data())

    def _note(self, data: coverage.CoverageData) -> None:
        for file in data.measured_files():
            held = self.reached.lines.setdefault(str(Path(file).relative_to(PACKAGE)), {})
            for line, names in data.contexts_by_lineno(file).items():
                held[line] = [name for name in names if name in self.reached.seconds]

    def _run(self, items: dict[str, pytest.Item]) -> None:
        modules: dict[str, Module] = {}
        everywhere = [Module(p, p.relative_to(PACKAGE).as_posix()) for p in _files(PACKAGE, ROOMS)]
        work = {}
        for mutant in self.mutants:
            module = modules.setdefault(mutant.file, Module(PACKAGE / mutant.file, mutant.file))
            tests = self._tests_of(mutant, module, everywhere)
            names = [name for name in tests if name in items]
            if not names:
                self.tell(mutant, Verdict("", 0))
                continue
            work[mutant] = functools.partial(self._attempt, module, mutant, names, items)
        living(), _caches()  # Once for all forks.
        gc.freeze()  # A fork that collects would copy everything.
        with tempfile.TemporaryDirectory() as folder:
            for mutant, ended in forked.run(
                work, folder=Path(folder), workers=self.workers, timeout=12 * self.limit + 120,
                explain=lambda error: f"{type(error).__name__}: {error}",
            ):  # fmt: skip
                if ended.crashed:
                    verdict = Verdict("a test that ended the process", 0)
                elif ended.result is None:
                    raise RuntimeError(f"{mutant.key}: {ended.failure}")
                else:
                    verdict = ended.result
                self.tell(mutant, verdict)

    def _tests_of(self, mutant: Mutant, module: Module, everywhere: Sequence[Module]) -> list[str]:
        """The tests that reach a mutant; in another process, those that start one."""
        starts = self.elsewhere.get(f"{mutant.file} {mutant.where}")
        if starts is not None:
            return self.reached.of(next(m for m in module.mutants() if m.where == starts))
        name = module.kept(mutant.where)
        if name is None:
            return self.reached.of(mutant)
        readers = [(one.file, line) for one in everywhere for line in one.readers(name)]
        return self.reached.of(mutant, readers)

    def _attempt(
        self, module: Module, mutant: Mutant, names: list[str], items: dict[str, pytest.Item]
    ) -> Verdict:
        """Run a mutant's tests until one fails; in a process of its own."""
        try:
            applied = module.apply(mutant)
        except Exception as error:  # noqa: BLE001  # So would the import of its module.
            return Verdict(f"{type(error).__name__} at import", 0)
        if not applied:  # Its module is loaded by no test.
            return Verdict("", 0)
        _forget()
        asked = list(_within(names, self.reached.seconds, self.limit))
        for number, (name, following) in enumerate(
            itertools.zip_longest(asked, asked[1:]), start=1
        ):
            self.failed = False
            ends = self.reached.seconds[name] * PATIENCE + GRACE_S
            # Ends the process: killed. By its own time, since others may have the machine.
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_PROF, ends)
            items[name].config.hook.pytest_runtest_protocol(
                item=items[name], nextitem=items.get(following)
            )
            signal.setitimer(signal.ITIMER_PROF, 0)
            if self.failed:
                return Verdict(name, number)
        return Verdict("", len(asked))


def _within(names: list[str], seconds: dict[str, float], limit: float) -> Iterator[str]:
    """As many tests as the time allows, and at least one."""
    left = limit
    for name in names:
        if left > 0:
            yield name
        left -= seconds[name]


def _forget() -> None:
    """Empty the caches, which hold what the code before the change made."""
    from mla_var3.interpreter import frontend

    frontend.clear_cache()
    for one in _caches():
        one.cache_clear()


@functools.cache
def _caches() -> list[Any]:
    """The functions of the package that keep their results."""
    return [
        one
        for one in gc.get_objects()
        if isinstance(one, functools._lru_cache_wrapper) and one.__module__.startswith("mla_var3")
    ]


def _file(test: str) -> str:
    return test.partition("::")[0]


def run(runner: Runner, tests: Sequence[str] = TESTS) -> int:
    """Start pytest with a runner; returns its exit code."""
    os.environ.setdefault("COLUMNS", "100")
    return int(
        pytest.main(
            [
                *tests, "-s", "-o", "addopts=", "-p", "no:cacheprovider", "-p", "no:timeout",
                "-p", "no:xdist", "-p", "no:cov", "-p", "no:benchmark", "-p", "no:terminalreporter",
                "-m", "not benchmark and not browser and not exhaustive",
            ],
            plugins=[runner],
        )
    )  # fmt: skip
