"""Drafts, checks and compiles every fetched CUTLASS example as adopted; writes a results table.

No example needs a recipe of its own for this.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import shlex
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mla_var3 import evidence, forked, inputs
from mla_var3.app import drafting
from mla_var3.app.naming import value_of
from mla_var3.archs import base_arch
from mla_var3.errors import HyperMlaError, UsageError
from mla_var3.examples.store import id_of
from mla_var3.gpuless import suites
from mla_var3.paths import relative, results_dir, write_atomic

#: Seconds that one example may take.
TIMEOUT_S = 180.0
Stage = Literal["drafted", "checked", "compiled"]


class Case(BaseModel):
    """One example.

    Attributes:
        id: Its id.
        path: Its file.
        blob: What git calls the file's content.
        arguments: How it is run small.
        arch: What it is run as.
        reached: How far it came; None where it cannot be drafted.
        reason: Why it came no further.
        kernels: Its kernels.
        error: Largest relative error against its own reference.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    id: str
    path: str
    blob: str = ""
    arguments: str
    arch: str
    reached: Stage | None = None
    reason: str = ""
    kernels: list[str] = Field(default_factory=list)
    error: float | None = None


class Table(BaseModel):
    """What came of all of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    commit: str
    toolchain: dict[str, str]
    timeout_s: float
    cases: list[Case]

    @property
    def adopted(self) -> int:
        """How many were checked and compiled."""
        return sum(case.reached == "compiled" for case in self.cases)


def path_of() -> Path:
    """The table's file."""
    return results_dir() / "conformance" / "adopted-examples.json"


def read(path: Path | None = None) -> Table:
    """The table that is committed.

    Raises:
        InputError: It is missing, or not sound.
    """
    return Table.model_validate(inputs.read_json(path or path_of()))


def runs(text: str) -> list[suites.Script]:
    """The shortest run of each example whose path has a text.

    Raises:
        UsageError: None has it.
    """
    known = [run for run in drafting.examples().values() if text in run.path]
    if not known:
        raise UsageError(f"no example has {text!r} in its path")
    return known


def one(run: suites.Script, folder: Path) -> dict[str, Any]:
    """Draft, check and compile an example; what goes wrong ends it with the reason."""
    from mla_var3.blobs import blob_id
    from mla_var3.campaign import adopted, running, skeleton

    name = id_of(run.path)
    source = folder / run.path
    found: dict[str, Any] = {
        "id": name, "path": run.path, "arguments": run.arguments, "arch": run.arch,
        "blob": blob_id(source.read_bytes()),
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as place:
        target = Path(place) / f"{name.replace('-', '_')}.py"
        try:
            arguments = shlex.split(run.arguments)
            with contextlib.redirect_stdout(io.StringIO()):
                drafting.draft(source, target, base_arch(run.arch), arguments, own_reference=True)
            if skeleton.TODO in target.read_text(encoding="utf-8"):
                return found | {"reason": "it compares its result with nothing by itself"}
            found["reached"] = "drafted"
            subject = adopted.adopt(target)
            checked = subject.check({})
            if checked.wrong:
                return found | {"reason": _line(checked.wrong.replace(f"{folder}/", ""))}
            launches = checked.trace.launches
            found |= {
                "reached": "checked", "error": float(f"{checked.error:.1e}"),
                "kernels": [running.short(launch.kernel) for launch in launches],
            }  # fmt: skip
            made = adopted.records(subject, checked, lambda _: None)
            failed = [r.outcome.error for r in made if isinstance(r.outcome, evidence.Failed)]
            return found | ({"reason": _line(failed[0])} if failed else {"reached": "compiled"})
        except HyperMlaError as error:
            said = str(error).replace(f"{folder}/", "").replace(place, "out/adopted")
            return found | {"reason": _line(said)}


def _line(error: object) -> str:
    return " ".join(str(error).split())[:300] or "no word"


def adopt_all(
    asked: Sequence[suites.Script], folder: Path, timeout: float
) -> Iterator[tuple[suites.Script, Case]]:
    """Each example in a process of its own, as they end."""
    by_id = {id_of(run.path): run for run in asked}
    work: dict[str, Callable[[], dict[str, Any]]] = {
        name: functools.partial(one, run, folder) for name, run in by_id.items()
    }
    with tempfile.TemporaryDirectory() as logs:
        ended = forked.run(work, folder=Path(logs), workers=1, timeout=timeout, explain=_explained)
        for name, what in ended:
            run = by_id[name]
            content = what.result or {
                "id": name, "path": run.path, "arguments": run.arguments, "arch": run.arch,
                "reason": _line(what.failure),
            }  # fmt: skip
            yield run, Case.model_validate(content)


def _explained(error: BaseException) -> str:
    return f"{type(error).__name__}: {_line(error)}"


def main(text: str, argv: Sequence[str]) -> int:
    """Adopt all examples with a text in their path, and write the table; returns the exit code.

    Raises:
        UsageError: No example has the text, or the limit is none.
    """
    from mla_var3.profiling import recording

    asked, suite = runs(text), suites.find(drafting.SUITE)
    try:
        timeout = float(value_of("--timeout", argv) or TIMEOUT_S)
    except ValueError:
        timeout = 0.0
    if not 0 < timeout < float("inf"):
        raise UsageError(f"--timeout={value_of('--timeout', argv)} is not a number of seconds")
    folder = suites.sources(suite, None)
    import torch  # noqa: F401 - Once, before the forks.

    known = {case.id: case for case in read().cases} if path_of().is_file() else {}
    for number, (_, case) in enumerate(adopt_all(asked, folder, timeout), 1):
        known[case.id] = case
        said = case.reached if case.reached == "compiled" else case.reason
        print(f"[{number}/{len(asked)}] {case.id}: {said}", flush=True)
        table = Table(
            commit=suite.commit, toolchain=recording.toolchain(["nvidia-cutlass-dsl", "torch"]),
            timeout_s=timeout, cases=sorted(known.values(), key=lambda one: one.id),
        )  # fmt: skip
        write_atomic(path_of(), json.dumps(table.model_dump(), indent=1) + "\n")
    print(f"{table.adopted} of {len(table.cases)} examples are adopted, checked and compiled")
    print(f"wrote {relative(path_of())}")
    return 0
