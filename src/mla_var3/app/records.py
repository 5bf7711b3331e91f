"""Command ``records``: verifies, lists, shows and migrates measurement records (``evidence``)."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from mla_var3 import arguments, front
from mla_var3.arguments import named
from mla_var3.errors import UnknownNameError
from mla_var3.paths import relative, results_dir

if TYPE_CHECKING:
    from mla_var3.evidence import Record

PROG = "python -m mla_var3.app.records"
EXIT_FAULTS = 1


def verify(settle: bool = True) -> int:
    """Hold every file against its content hash, every record against repository, device, bounds.

    Args:
        settle: Whether versions and problems that were edited since are compiled and run, so that
            it is known whether records are still of them.

    Returns:
        0 when none has a fault, else 1; records of changed code are listed, and are not a fault.
    """
    from mla_var3 import evidence
    from mla_var3.app import settling
    from mla_var3.app import verify as verifier
    from mla_var3.evidence import integrity

    root = results_dir()
    for path in verifier.sweep(root):
        print(f"swept {relative(path)}, which a killed run left")
    if settle:
        settling.settle(lambda text: print(text, flush=True))
    verdicts = list(verifier.verify(root))
    for verdict in verdicts:
        for fault in verdict.faults:
            print(f"FAULT {verdict.name}: {fault}")
    made = [v.record for v in verdicts if v.record is not None]
    standing = {id(record) for record in evidence.newest(made)}
    states = [(v.name, v.state) for v in verdicts if v.state and id(v.record) in standing]
    for name, state in states:
        if state.is_stale:
            print(f"{name} {state}")
    kinds = Counter(state.kind for _, state in states)
    if not integrity.repository_known():
        print("not verified: no git history, so sources and commits could not be looked up")
    wrong = sum(bool(v.faults) for v in verdicts)
    print(
        f"{len(made)} records, {len(made) - len(standing)} of them measured again since: "
        f"{wrong} with faults, {kinds['code changed']} of changed code, "
        f"{kinds['toolchain moved']} of a moved toolchain"
    )
    return EXIT_FAULTS if wrong else 0


def list_(
    target: str | None = None,
    language: str | None = None,
    design: str | None = None,
    version: str | None = None,
    mode: str | None = None,
) -> int:
    """List records, one line each: status, median time, address, run; the state if not fresh.

    Args:
        target: Device key, static/sm_90, or cpu.
        language: Key of the language.
        design: The design.
        version: The version.
        mode: The mode.

    Raises:
        UnknownNameError: No record has the asked value.
    """
    from mla_var3 import evidence

    found = list(
        evidence.find(target=target, language=language, design=design, version=version, mode=mode)
    )
    if not found:
        _refuse(target=target, language=language, design=design, version=version, mode=mode)
    for record in found:
        print(_line(record))
    print(f"{len(found)} records")
    return 0


def _refuse(**asked: str | None) -> None:
    """Raise UnknownNameError for the first value that no record has, of those with the others."""
    from mla_var3 import evidence
    from mla_var3.evidence.store import keys

    left = [keys(record) for record in evidence.find()]
    for name, value in asked.items():
        if value is None:
            continue
        known = list(dict.fromkeys(one[name] for one in left))
        if value not in known:
            raise UnknownNameError(name, value, known)
        left = [one for one in left if one[name] == value]


def _line(record: Record) -> str:
    from mla_var3 import evidence

    total = record.outcome.total if isinstance(record.outcome, evidence.Passed) else None
    time = f"{total.median_us:10.1f} us" if total else " " * 13
    state = evidence.state_of(record)
    said = "" if state.kind == "fresh" else f"  {state}"
    return f"{record.outcome.status:<8}{time}  {evidence.address(record)}@{record.run}{said}"


def show(record: Annotated[tyro.conf.Positional[str], named("RECORD")]) -> int:
    """Show one record as the report that it makes, or all of a file.

    Args:
        record: Its address, with or without results/ and @run, or a file of records.
    """
    from rich.console import Console
    from rich.markdown import Markdown

    from mla_var3 import evidence
    from mla_var3.profiling import report

    if record.endswith(".json"):
        path = Path(record) if Path(record).exists() else results_dir() / record
        found = list(evidence.records_of(path))
    else:
        found = [evidence.at(record)]
    Console(highlight=False).print(Markdown(report.render(found)))
    return 0


def migrate() -> int:
    """Turn files of older schemas into files of runs, and bring back what was overwritten.

    Every value is compared before the older files go; where one is missing, nothing is changed.
    """
    from mla_var3.evidence import upgrade

    done = upgrade.upgrade(results_dir())
    for path in done.files:
        print(f"wrote {relative(path)}")
    print(
        f"{done.records} records in {len(done.removed)} files, and {done.restored} that had been "
        f"overwritten, now in {len(done.files)} files of runs; {done.values} values compared, "
        "none changed"
    )
    return 0


def schema() -> int:
    """Print the JSON Schema of a file of records."""
    from mla_var3 import evidence

    print(json.dumps(evidence.json_schema(), indent=1))
    return 0


COMMANDS: dict[str, Callable[..., int]] = {
    "verify": verify,
    "list": list_,
    "show": show,
    "migrate": migrate,
    "schema": schema,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that ``argv`` (the process's by default) names; returns the exit code."""
    command, rest, prog = arguments.choose(COMMANDS, sys.argv[1:] if argv is None else argv, PROG)
    return int(arguments.parse(command, rest, prog) or 0)


if __name__ == "__main__":
    front.run("mla_var3.app.records:main")
