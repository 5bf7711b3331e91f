"""Findings in kernels of others: runs each at its smallest input, and again with a remedy.

``third_party/findings.toml`` says what was found, in which order it happens and what would mend it.
The command runs the unmodified source, keeps what the emulator prints, and shows that the remedy
silences it. The table is ``results/conformance/findings.json``; pages are made from both.
"""

from __future__ import annotations

import importlib.util
import linecache
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal
from unittest import mock

from pydantic import BaseModel, ConfigDict, Field

from mla_var3 import arguments, forked, inputs
from mla_var3.emulator.diagnostics import Diagnostic
from mla_var3.emulator.options import MODELS, Options
from mla_var3.emulator.seeded import Edit, edited
from mla_var3.errors import EmulatorError
from mla_var3.gpuless import scripts
from mla_var3.gpuless.suites import find, sources
from mla_var3.paths import repo_root, write_atomic

LISTED = Path("third_party/findings.toml")
TABLE = Path("results/conformance/findings.json")
SUITE = "cutlass-examples"
#: A module of an installed package begins so, in place of a path below the suite's folder.
INSTALLED = "module:"
LIMIT = 900.0


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Finding(_Model):
    """One finding as it could be sent to those who wrote the kernel.

    Attributes:
        title: What is wrong, as a headline.
        script: The script that shows it, below the suite's folder.
        arguments: Of its smallest run that shows it.
        arch: What it is compiled for.
        source: The file that holds the lines: the script, or ``module:`` and a module's name.
        kind: Kind of the report.
        model: Memory model that reports it.
        at: Texts of lines; every line of the report holds one of them.
        happens: What happens, step by step.
        follows: What a kernel may come to by that.
        smallest: Why no smaller input shows it.
        remedy: What would mend it, in words.
        edits: The remedy, as edits of the source.
    """

    title: str
    script: str
    arguments: str
    arch: str
    source: str
    kind: str
    model: Literal["default", "strict"] = "default"
    at: tuple[str, ...]
    happens: tuple[str, ...] = Field(min_length=2)
    follows: str
    smallest: str
    remedy: str
    edits: tuple[Edit, ...] = Field(min_length=1)

    @property
    def command(self) -> str:
        """What shows it again."""
        where = f"third_party/cutlass/{find(SUITE).folder}/{self.script}"
        run = f"nox -s run -- --arch={self.arch} --schedules 1"
        if self.model != "default":
            run += f" --memory_model {self.model}"
        return f"{run} {where} {self.arguments}"


class Shown(_Model):
    """What a run showed.

    Attributes:
        finding: Key of the finding.
        report: What the emulator printed of it, without the paths of this machine.
        lines: Line numbers of the report in ``source``, in its order.
        passes: Whether the script's own check passed all the same.
        mended: Reports of the same kind and lines that are left with the remedy.
        versions: Of the packages that took part.
        refused: Why it did not run.
    """

    finding: str
    report: str = ""
    lines: tuple[int, ...] = ()
    passes: bool = False
    mended: int = -1
    versions: dict[str, str] = {}
    refused: str = ""

    @property
    def ok(self) -> bool:
        """Whether it is shown, and gone with the remedy."""
        return bool(self.report) and self.mended == 0

    def __str__(self) -> str:
        said = self.refused or (
            f"shown at lines {', '.join(map(str, self.lines))}, "
            f"{'gone' if self.mended == 0 else 'there still'} with the remedy"
        )
        return f"{'ok ' if self.ok else 'BAD'} {self.finding}: {said}"


class Table(_Model):
    """What every finding showed."""

    findings: tuple[Shown, ...]


@dataclass(frozen=True)
class Findings:
    """Run what was found in others' kernels, as it is and with the remedy.

    Attributes:
        checkout: A checkout of NVIDIA/cutlass; by default what ``examples fetch`` made.
        only: Run those whose key contains this, and keep the rest of the table.
    """

    checkout: Annotated[Path | None, arguments.named("--checkout=DIR")] = None
    only: str = ""


def main(argv: Sequence[str], prog: str) -> int:
    """Entry point of the command: 0, or 1 where a finding is not shown, or not mended.

    Raises:
        EmulatorError: No key contains what ``only`` says.
    """
    asked: Findings = arguments.parse(Findings, argv, prog)
    listed = read()
    chosen = {key: one for key, one in listed.items() if asked.only in key}
    if not chosen:
        raise EmulatorError(f"no finding's key contains {asked.only!r}")
    folder = sources(find(SUITE), asked.checkout)
    path = repo_root() / TABLE
    done = {one.finding: one for one in table().findings} if path.is_file() else {}
    with tempfile.TemporaryDirectory(prefix="findings-") as scratch:
        # As it is and mended in processes of their own, since one traces a kernel only once.
        work = {
            (key, how): partial(examine, key, one, folder)
            for key, one in chosen.items()
            for how, examine in (("as it is", show), ("mended", mended))
        }
        for (key, how), end in forked.run(
            work, folder=Path(scratch), workers=1, timeout=LIMIT, explain=_sentence
        ):
            if how == "as it is":
                done[key] = end.result or Shown(finding=key, refused=end.failure or "")
            else:
                done[key] = done[key].model_copy(
                    update={"mended": end.result.mended if end.result else -1}
                )
                print(done[key], flush=True)
    rows = tuple(done[key] for key in listed if key in done)
    write_atomic(path, Table(findings=rows).model_dump_json(indent=1) + "\n")
    print(f"{sum(one.ok for one in rows)} of {len(rows)} shown and mended; wrote {TABLE}")
    return 0 if all(one.ok for one in rows) else 1


def _sentence(error: BaseException) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


def read(path: Path | None = None) -> dict[str, Finding]:
    """The findings, by key.

    Raises:
        EmulatorError: The file is missing or not as it should be.
    """
    path = path or repo_root() / LISTED
    with inputs.faults_as(EmulatorError, path.name):
        return {key: Finding.model_validate(one) for key, one in inputs.read_toml(path).items()}


def table(path: Path | None = None) -> Table:
    """What was shown last.

    Raises:
        EmulatorError: The table is missing or not as it should be.
    """
    path = path or repo_root() / TABLE
    try:
        return Table.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EmulatorError(f"{path.name} cannot be read: {str(error).splitlines()[0]}") from None


def show(key: str, finding: Finding, folder: Path) -> Shown:
    """Run a finding's script as it is.

    Raises:
        EmulatorError: The script cannot run.
    """
    source = _source(finding, folder)
    found, passes = _run(finding, folder / finding.script)
    one = next((d for d in found if _is_it(d, finding)), None)
    if one is None:
        return Shown(finding=key, refused="no report of this kind names these lines")
    sites = [s for s in (one.at, one.other) if s is not None and s.line is not None]
    paths = {f"{folder}/": "", f"{_packages(source)}/": ""}
    return Shown(
        finding=key,
        report=_without(str(one), paths),
        lines=tuple(s.line for s in sites if s.line is not None),
        passes=passes,
        versions={name: version(name) for name in ("nvidia-cutlass-dsl",)},
    )


def mended(key: str, finding: Finding, folder: Path) -> Shown:
    """Run a copy with the remedy, and count what is reported of it still.

    Raises:
        EmulatorError: An edit does not fit the source, or the script cannot run.
    """
    source = _source(finding, folder)
    text = source.read_text(encoding="utf-8")
    for edit in finding.edits:
        text, _ = edited(text, edit)
    with tempfile.TemporaryDirectory(prefix="findings-") as scratch:
        copy = Path(scratch, source.name)
        copy.write_text(text, encoding="utf-8")
        script = folder / finding.script
        if finding.source.startswith(INSTALLED):
            _replace(finding.source.removeprefix(INSTALLED), copy)
        else:
            script = copy
        # Examples look for their own package from where they lie. What was compiled before is not
        # taken: a module that was replaced has its old name.
        kept = mock.patch.dict(os.environ, {"HYPERMLA_CACHE_DIR": scratch})
        with kept, mock.patch.object(sys, "path", [*sys.path, str(folder)]):
            found, _ = _run(finding, script, (folder / finding.script).parent)
        return Shown(finding=key, mended=sum(_is_it(d, finding) for d in found))


def _run(
    finding: Finding, script: Path, folder: Path | None = None
) -> tuple[list[Diagnostic], bool]:
    import torch

    from mla_var3.emulator.script import environment

    torch.manual_seed(0)
    options = Options(model=MODELS[finding.model], counting="off")
    with environment(options, finding.arch) as run:
        ended = scripts.run(script, finding.arguments.split(), folder)
    if ended.error is not None and not isinstance(ended.error, AssertionError):
        raise ended.error
    return run.diagnostics, ended.error is None


def _is_it(found: Diagnostic, finding: Finding) -> bool:
    """The kind, and every line of the report holds one of the texts."""
    lines = [
        linecache.getline(s.file, s.line) if s.file and s.line else ""
        for s in (found.at, found.other)
        if s is not None
    ]
    return found.kind == finding.kind and all(any(t in x for t in finding.at) for x in lines)


def _source(finding: Finding, folder: Path) -> Path:
    """The file that a remedy edits."""
    if not finding.source.startswith(INSTALLED):
        return folder / finding.source
    name = finding.source.removeprefix(INSTALLED)
    where = importlib.util.find_spec(name)
    if where is None or where.origin is None:
        raise EmulatorError(f"there is no module {name}")
    return Path(where.origin)


def _replace(name: str, copy: Path) -> None:
    """A module of this process comes from a copy."""
    where = importlib.util.spec_from_file_location(name, copy)
    assert where is not None
    assert where.loader is not None
    module = importlib.util.module_from_spec(where)
    sys.modules[name] = module
    where.loader.exec_module(module)
    package, _, last = name.rpartition(".")
    setattr(sys.modules[package], last, module)


def _packages(source: Path) -> str:
    """The folder of packages that a file lies in."""
    return next((str(p) for p in source.parents if p.name == "dsl_packages"), "/nowhere")


def _without(text: str, paths: Mapping[str, str]) -> str:
    for path, name in paths.items():
        text = text.replace(path, name)
    return text
