"""Runs CuTe kernels with seeded bugs in the emulator, and writes a table of its reports.

Each runs in a process of its own; ``mla_var3.emulator.seeded`` reads the bugs and judges reports.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Annotated
from unittest import mock

from mla_var3 import arguments, forked
from mla_var3.collecting import uncollected
from mla_var3.emulator import seeded
from mla_var3.emulator.diagnostics import Diagnostic
from mla_var3.emulator.options import DEFAULT, STRICT, Options
from mla_var3.emulator.seeded import (
    CLEAN,
    CUTLASS,
    Bug,
    Outcome,
    Subject,
    Values,
    counted,
    edited,
    judged,
)
from mla_var3.errors import EmulatorError
from mla_var3.gpuless import scripts
from mla_var3.languages.cute import emulation
from mla_var3.languages.cute.compile import compile_host
from mla_var3.paths import repo_root
from mla_var3.runtime import registry

#: Seconds that one kernel may take.
LIMIT = 600.0
#: Segments after which a cluster of these small problems is called endless.
MAX_STEPS = 100_000
#: Every kernel runs under both models, and the unmodified ones under more schedules.
OPTIONS = Options(model=STRICT, counting="off", max_steps=MAX_STEPS)
OTHERS = (dataclasses.replace(OPTIONS, model=DEFAULT),)
SCHEDULES = 3


def source_of(subject: Subject, bug: Bug | None, cutlass: Path | None) -> Path:
    """The file that a bug edits."""
    if bug is not None and bug.file is not None:
        return repo_root() / bug.file
    if subject.version is not None:
        return registry.find(*subject.version.split()).path
    script = subject.script or ""
    if not script.startswith(CUTLASS):
        return repo_root() / script
    if cutlass is None:
        raise EmulatorError("a checkout of NVIDIA/cutlass must be named for its examples")
    return cutlass / script.removeprefix(CUTLASS)


@dataclasses.dataclass(frozen=True)
class Seeded:
    """Run kernels with seeded bugs, and write the table of what the emulator says of each.

    Attributes:
        cutlass: A checkout of NVIDIA/cutlass; without one its examples keep what the table says.
        only: Run those whose key (``kernel/bug``) contains this, and keep the rest of the table.
        resume: Keep what the table has, and run what is missing.
        workers: Processes at a time.
        schedules: Under how many schedules unmodified kernels run, in either model.
        out: Where the table goes.
    """

    cutlass: Annotated[Path, arguments.named("--cutlass=DIR")] = Path("third_party/cutlass")
    only: str = ""
    resume: bool = False
    workers: int = 1
    schedules: int = SCHEDULES
    out: Path = seeded.TABLE


def main(argv: Sequence[str], prog: str) -> int:
    """Entry point of the command: 0, or 1 where a bug was missed or a right kernel was not clean.

    Raises:
        EmulatorError: No key contains what ``only`` says, or the list of bugs is not sound.
    """
    asked: Seeded = arguments.parse(Seeded, argv, prog)
    subjects = seeded.read()
    keys = [f"{name}/{bug}" for name, s in subjects.items() for bug in (CLEAN, *s.bugs)]
    if not any(asked.only in key for key in keys):
        raise EmulatorError(f"no seeded bug's key contains {asked.only!r}")
    for name in ("workers", "schedules"):
        if (count := getattr(asked, name)) < 1:
            raise EmulatorError(f"--{name}={count} must be positive")
    out = repo_root() / asked.out
    done = {o.key: o for o in seeded.table(out).outcomes} if out.is_file() else {}
    cutlass = asked.cutlass.resolve() if asked.cutlass.is_dir() else None
    kept = set(done) if asked.resume else set()
    wanted = {key for key in keys if asked.only in key} - kept
    for outcome in examine_all(subjects, cutlass, wanted, asked):
        done[outcome.key] = outcome
        print(outcome, flush=True)
        # The file's order, without what it no longer lists.
        seeded.save((done[key] for key in keys if key in done), out)
    print(f"{seeded.summary(done[key] for key in keys if key in done)}; wrote {asked.out}")
    return 0 if all(done[key].ok for key in keys if key in done) else 1


@dataclasses.dataclass(frozen=True)
class Seen:
    """What a run gave: the values, and the reports of each launch."""

    values: Values
    diagnostics: list[Diagnostic]
    refused: str = ""


def examine(
    name: str,
    subject: Subject,
    bug_name: str,
    cutlass: Path | None = None,
    schedules: int = SCHEDULES,
) -> Outcome:
    """Run one kernel, edited or not, in this process.

    Args:
        name: Key of the kernel.
        subject: The kernel.
        bug_name: One of its bugs, or ``unmodified``.
        cutlass: A checkout of NVIDIA/cutlass.
        schedules: How many the unmodified kernel runs under, in either model.

    Raises:
        EmulatorError: The edit does not fit the source.
    """
    bug = subject.bugs.get(bug_name)
    source = source_of(subject, bug, cutlass)
    shown = _shown(source, cutlass)
    text, line = source.read_text(encoding="utf-8"), 0
    for edit in subject.first:
        text, _ = edited(text, edit)
    if bug is not None:
        text, line = edited(text, bug)
    with tempfile.TemporaryDirectory(prefix="seeded-") as folder:
        copy = Path(folder, source.name)
        copy.write_text(text, encoding="utf-8")
        seeds = range(1, schedules if bug is None else 1)
        more = [dataclasses.replace(x, seed=n) for n in seeds for x in (OPTIONS, *OTHERS)]
        others = (*OTHERS, *more)
        run = _run_version if subject.version else _run_script
        seen = run(subject, source, copy, others)
        names = {str(copy): shown}
        found = counted(seen.diagnostics, subject.argued)
        return judged(name, bug_name, bug, found, seen.values, seen.refused, names).model_copy(
            update={
                "source": shown,
                "line": line,
                "arch": subject.arch,
                "schedules": schedules if bug is None else 0,
            }
        )


def _shown(path: Path, cutlass: Path | None) -> str:
    if cutlass is not None and path.is_relative_to(cutlass):
        return path.relative_to(cutlass).as_posix()
    return path.resolve().relative_to(repo_root().resolve()).as_posix()


def _run_script(subject: Subject, source: Path, copy: Path, others: Iterable[Options]) -> Seen:
    import torch

    from mla_var3.emulator.script import environment

    torch.manual_seed(0)

    def work() -> None:
        ended = scripts.run(copy, subject.arguments.split(), source.parent)
        if ended.error is not None:
            raise ended.error

    # NVIDIA's examples look for their own package from where they lie.
    roots = [str(p) for p in source.resolve().parents if p.name == "CuTeDSL"]
    with (
        mock.patch.object(sys, "path", [*sys.path, *roots]),
        environment(OPTIONS, subject.arch, tuple(others)) as run,
    ):
        values, refused = _attempt(work)
    return Seen(values, run.diagnostics, refused)


def _attempt(work: Callable[[], object]) -> tuple[Values, str]:
    """Whether a script's own assertions hold, or why it has no end."""
    try:
        work()
    except AssertionError:
        return "wrong", ""
    except EmulatorError as error:
        return "none", str(error)
    return "right", ""


def _run_version(subject: Subject, source: Path, copy: Path, others: Iterable[Options]) -> Seen:
    import torch

    from mla_var3.emulator.emulation import emulating
    from mla_var3.runtime.check import compare
    from mla_var3.runtime.memory import poison_outputs

    torch.manual_seed(0)
    found = registry.find(*(subject.version or "").split())
    with _module(source, copy):
        plan = found.plan_of(subject.problem)
        if subject.sms is not None:
            few = dataclasses.replace(plan.target, sm_count=subject.sms)
            plan = dataclasses.replace(plan, machine=few)
        inputs = plan.prepare_inputs("cpu")
        kernels = plan.plan(*inputs)
        poison_outputs(kernels)
        with emulating(OPTIONS, tuple(others)) as run:
            for _, kernel in kernels.stages():
                kernel.tiling = dataclasses.replace(kernel.tiling, **subject.tiling)
                host, values = kernel.host()  # type: ignore[attr-defined]
                # A cache of its own: line numbers are those of this copy.
                compiled = compile_host(
                    host, values, subject.arch, cache_dir=copy.parent / "compiled", facts=False
                )
                emulation.call(run, kernel.name, compiled, host, values)
        reference, outputs = plan.reference_fn(*inputs), kernels.output_tensors
        errors = [compare(n, outputs[n], x, plan.tolerance(n)) for n, x in reference.items()]
    return Seen("right" if all(e.ok for e in errors) else "wrong", run.diagnostics)


@contextlib.contextmanager
def _module(source: Path, copy: Path) -> Iterator[None]:
    """A kernel's module, or one that it imports, comes from the copy."""
    parts = source.resolve().relative_to((repo_root() / "kernels").resolve()).with_suffix("").parts
    name = ".".join((registry.PACKAGE, *parts))
    for loaded in [n for n in sys.modules if n.startswith(registry.PACKAGE + ".")]:
        del sys.modules[loaded]
    specification = importlib.util.spec_from_file_location(name, copy)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    try:
        yield
    finally:
        del sys.modules[name]


# The whole set ----------------------------------------------------------------------------------
def examine_all(
    subjects: Mapping[str, Subject], cutlass: Path | None, wanted: Set[str], asked: Seeded
) -> Iterator[Outcome]:
    """Run kernels by key, each edit in a process of its own, and give the outcomes as they end."""
    _warm()
    work = {
        (name, bug): functools.partial(examine, name, subject, bug, cutlass, asked.schedules)
        for name, subject in subjects.items()
        for bug in (CLEAN, *subject.bugs)
        if f"{name}/{bug}" in wanted
        and not (cutlass is None and (subject.script or "").startswith(CUTLASS))
    }
    with tempfile.TemporaryDirectory(prefix="seeded-") as folder:
        ended = forked.run(
            work, folder=Path(folder), workers=asked.workers, timeout=LIMIT, explain=_sentence
        )
        for (name, bug), end in ended:
            arch, why = subjects[name].arch, end.failure or ""
            failed = Outcome(kernel=name, bug=bug, source="", arch=arch, refused=why)
            yield end.result or failed


def _sentence(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def _warm() -> None:
    """Load what every kernel needs before processes are forked."""
    with uncollected():
        import torch

        from mla_var3.emulator.script import load

        load()
        import cutlass.cute.runtime
        import cutlass.utils  # noqa: F401

    torch.set_num_threads(1)
