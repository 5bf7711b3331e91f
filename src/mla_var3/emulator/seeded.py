"""Seeded-bug test of the emulator: judges whether it reports bugs planted in kernel sources.

``tests/emulator/seeded.toml`` lists the kernels, the edits, and the lines that a report must name.
Results are the table ``results/conformance/seeded-bugs.json``, from which the pages of the mistakes
are made. ``mla_var3.languages.cute.seeding`` runs the edited kernels.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mla_var3 import inputs
from mla_var3.emulator.diagnostics import Diagnostic
from mla_var3.emulator.options import MODELS
from mla_var3.errors import EmulatorError
from mla_var3.paths import repo_root, write_atomic

SCHEMA = 1
BUGS = Path("tests/emulator/seeded.toml")
TABLE = Path("results/conformance/seeded-bugs.json")
#: Where NVIDIA's examples lie, below the checkout that ``examples fetch`` makes.
CUTLASS = "cutlass:"
CLEAN = "unmodified"
Values = Literal["right", "wrong", "none"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Edit(_Model):
    """A change of a source that moves no line.

    Attributes:
        find: Text that occurs once in the source.
        put: What takes its place, with as many lines.
    """

    find: str
    put: str


class Bug(Edit):
    """An edit that is a mistake.

    Attributes:
        kinds: Kinds of report of which one must be made.
        at: Texts of lines; every Python line of that report holds one of them.
        file: The edited module, where it is not the kernel's own.
        strict: It is a bug only if hardware does no more than PTX promises.
        why: What the edit leaves out, in words.
    """

    kinds: tuple[str, ...]
    at: tuple[str, ...]
    file: str | None = None
    strict: bool = False
    why: str


class Argued(_Model):
    """What the strict model says of an unmodified kernel all the same, and why no edit mends it.

    Attributes:
        kinds: Kinds of report.
        at: Texts of lines; every Python line of the report holds one of them, and one of its lines
            the first.
        why: The argument.
    """

    kinds: tuple[str, ...]
    at: tuple[str, ...]
    why: str


class Subject(_Model):
    """A kernel: a script with its arguments, or a version of a design at a small problem.

    Attributes:
        script: Path from the top of the checkout; ``cutlass:`` begins one of NVIDIA's.
        arguments: The script's.
        arch: What the kernel is compiled for.
        first: Edits made before any bug: what the PTX ISA asks for and the source leaves out, so
            that the unmodified kernel is clean under the strict model.
        version: Design and version, as users type them.
        problem: Fields of the version's plan.
        sms: Multiprocessors that the plan sizes its grid for, where not those of the usual device.
        tiling: Fields of its tiling.
        argued: Reports of the strict model that do not count, in any run of the kernel.
        bugs: The edits, by name.
    """

    script: str | None = None
    arguments: str = ""
    arch: str = "sm_90a"
    version: str | None = None
    problem: dict[str, Any] = {}
    sms: int | None = None
    tiling: dict[str, Any] = {}
    first: tuple[Edit, ...] = ()
    argued: tuple[Argued, ...] = ()
    bugs: dict[str, Bug] = Field(min_length=1)


class Report(_Model):
    """A diagnostic as it is printed, with its Python lines for those who count."""

    kind: str
    lines: tuple[str, ...]
    text: str


class Outcome(_Model):
    """What was said of one edited kernel, or of one that is not.

    Attributes:
        kernel: Key of the subject.
        bug: Name of the edit, or ``unmodified``.
        source: The edited file, from the top of the checkout.
        line: First line that the edit changes.
        arch: What the kernel was compiled for.
        schedules: Under how many schedules an unmodified kernel ran, per model.
        values: Whether the kernel's outputs were right all the same; ``none`` if it had no end.
        expected: Models under which it must be reported.
        reported: Models under which it was, with one of the kinds at the right lines.
        found: Per model how many reports there were.
        report: The report that counts; where the edit was missed, the first one.
        refused: Why the kernel did not run to its end.
    """

    kernel: str
    bug: str
    source: str
    line: int = 0
    arch: str = "sm_90a"
    schedules: int = 0
    values: Values = "none"
    expected: tuple[str, ...] = ()
    reported: tuple[str, ...] = ()
    found: dict[str, int] = {}
    report: Report | None = None
    refused: str = ""

    @property
    def key(self) -> str:
        """``kernel/bug``."""
        return f"{self.kernel}/{self.bug}"

    @property
    def ok(self) -> bool:
        """Reported wherever it must be; an unmodified kernel is right and clean."""
        if self.bug == CLEAN:
            return not self.refused and not any(self.found.values()) and self.values == "right"
        return bool(self.expected) and set(self.expected) <= set(self.reported)

    def __str__(self) -> str:
        if self.bug == CLEAN:
            said = "right and clean" if self.ok else f"{self.values}, {self.found}"
        else:
            said = f"values {self.values}, reported by {' and '.join(self.reported) or 'no model'}"
        why = f" ({self.refused})" if self.refused else ""
        return f"{'ok ' if self.ok else 'BAD'} {self.key}: {said}{why}"


class Table(_Model):
    """All outcomes, and what they were made with."""

    schema_version: int = SCHEMA
    dsl: str
    outcomes: tuple[Outcome, ...]


def read(path: Path | None = None) -> dict[str, Subject]:
    """The seeded bugs, by kernel.

    Raises:
        EmulatorError: The file is missing or not as it should be.
    """
    path = path or repo_root() / BUGS
    with inputs.faults_as(EmulatorError, path.name):
        listed = inputs.read_toml(path)
        return {name: Subject.model_validate(entry) for name, entry in listed.items()}


def table(path: Path | None = None) -> Table:
    """The committed table.

    Raises:
        EmulatorError: It is missing or not as it should be.
    """
    path = path or repo_root() / TABLE
    try:
        return Table.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EmulatorError(f"{path.name} cannot be read: {str(error).splitlines()[0]}") from None


def edited(text: str, bug: Edit) -> tuple[str, int]:
    """A source with the edit made, and the line where it begins.

    Raises:
        EmulatorError: ``find`` does not occur exactly once, or lines would move.
    """
    if (count := text.count(bug.find)) != 1:
        raise EmulatorError(f"{bug.find!r} occurs {count} times, needs exactly 1")
    if bug.find.count("\n") != bug.put.count("\n"):
        raise EmulatorError(f"the edit of {bug.find!r} moves the lines after it")
    return text.replace(bug.find, bug.put), text[: text.index(bug.find)].count("\n") + 1


def judged(
    kernel: str,
    bug_name: str,
    bug: Bug | None,
    diagnostics: list[Diagnostic],
    values: Values,
    refused: str,
    names: Mapping[str, str],
) -> Outcome:
    """The outcome of a run; ``names`` says what stands for a path in the report that is kept."""
    right = [d for d in diagnostics if bug is not None and _is_right(d, bug)]
    models = () if bug is None else ("strict",) if bug.strict else tuple(MODELS)
    kept = sorted(right, key=lambda d: d.model) or diagnostics
    stuck = any(d.kind == "deadlock" for d in diagnostics)
    return Outcome(
        kernel=kernel,
        bug=bug_name,
        source="",
        values="none" if stuck else values,
        expected=models,
        reported=tuple(m for m in MODELS if any(d.model == m for d in right)),
        found={m: sum(d.model == m for d in diagnostics) for m in MODELS},
        report=_report(kept[0], names) if kept else None,
        refused=refused,
    )


def counted(diagnostics: list[Diagnostic], argued: Iterable[Argued]) -> list[Diagnostic]:
    """Without what is argued of the kernel, under the strict model."""
    known = list(argued)
    return [
        d for d in diagnostics if d.model != "strict" or not any(_is_argued(d, a) for a in known)
    ]


def _is_right(d: Diagnostic, bug: Bug | Argued) -> bool:
    """One of the kinds, and every Python line of the report holds one of the texts."""
    return d.kind in bug.kinds and all(any(t in line for t in bug.at) for line in _lines(d))


def _is_argued(d: Diagnostic, argued: Argued) -> bool:
    """Likewise, and it is about the line of the argument: the first text is in one of them."""
    return _is_right(d, argued) and any(argued.at[0] in line for line in _lines(d))


def _lines(d: Diagnostic) -> list[str]:
    return [_line(site.file, site.line) for site in (d.at, d.other) if site is not None]


def _line(file: str | None, number: int | None) -> str:
    return linecache.getline(file, number) if file and number else ""


def _report(d: Diagnostic, names: Mapping[str, str]) -> Report:
    text = str(d)
    sites = [f"{s.file}:{s.line}" for s in (d.at, d.other) if s is not None]
    for path, name in {**names, f"{repo_root().resolve()}/": ""}.items():
        text = text.replace(path, name)
        sites = [s.replace(path, name) for s in sites]
    return Report(kind=d.kind, lines=tuple(sites), text=text)


def save(outcomes: Iterable[Outcome], path: Path | None = None) -> Table:
    """Write the table, in the order of the file that lists the bugs."""
    done = Table(dsl=version("nvidia-cutlass-dsl"), outcomes=tuple(outcomes))
    write_atomic(path or repo_root() / TABLE, done.model_dump_json(indent=1) + "\n")
    return done


def summary(outcomes: Iterable[Outcome]) -> str:
    """How many bugs were reported, in one line."""
    everything = list(outcomes)
    bugs = [o for o in everything if o.bug != CLEAN]
    clean = [o for o in everything if o.bug == CLEAN]
    by = {model: sum(model in o.reported for o in bugs) for model in MODELS}
    return (
        f"{len(bugs)} seeded bugs in {len({o.kernel for o in bugs})} kernels: "
        f"{by['strict']} reported in the strict model, {by['default']} in the default one, "
        f"{sum(o.values == 'right' for o in bugs)} with right values; "
        f"{sum(o.ok for o in clean)} of {len(clean)} unmodified kernels right and clean"
    )
