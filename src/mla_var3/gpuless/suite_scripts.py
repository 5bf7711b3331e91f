"""Runs the scripts of a third-party suite, each in a process of its own, and writes a table.

A ``Product`` (here the emulator) runs their kernels.
"""

from __future__ import annotations

import os
import random
import re
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from mla_var3 import forked
from mla_var3.blobs import blob_of
from mla_var3.errors import HyperMlaError, UsageError
from mla_var3.gpuless import tables
from mla_var3.gpuless.suites import Outcome, Script, Suite, sources
from mla_var3.gpuless.tables import Case, Found

#: What a script that a compiler or its own command line refuses ends with.
_REFUSALS = re.compile(
    r"DSL\w*Error|MLIRError|OpError|Diagnos|ImportError|ModuleNotFound|argparse|SystemExit"
)


@dataclass(frozen=True)
class Ran:
    """What the launches of a script came to.

    Attributes:
        findings: What was reported, each thing once.
        seconds: Time in what runs the kernels.
        clusters: Clusters that ran; none if the script launches nothing that is run here.
        instructions: Instructions that ran.
        schedules: Schedules that they ran under.
    """

    findings: Sequence[Found] = ()
    seconds: float = 0.0
    clusters: int = 0
    instructions: int = 0
    schedules: int = 1


@dataclass(frozen=True)
class Product:
    """What runs the kernels of the scripts.

    Attributes:
        examine: Runs a script; raises what ends it.
        settings: How, for the table.
        warm: Loads what every script needs, before processes are forked.
    """

    examine: Callable[[Script], Ran]
    settings: Mapping[str, str | int] = field(default_factory=dict)
    warm: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Choice:
    """Which scripts of a suite are run, and how many at a time.

    Attributes:
        checkout: A folder that has the sources; they are fetched by default.
        only: Run what contains this, and keep the rest of the table.
        resume: Keep what the table has of unchanged files, and run what is missing.
        workers: Scripts at a time, each in a process of its own.
        limit: Seconds after which a script is stopped.
        sample: Run so many at random, and keep the rest of the table; 0 runs all.
    """

    checkout: Path | None = None
    only: str = ""
    resume: bool = False
    workers: int = 1
    limit: float = 600.0
    sample: int = 0


def run(suite: Suite, product: Product, choice: Choice) -> int:
    """Runs a suite's scripts; the table is written whenever one ends.

    A run of some scripts adds to a table of the same versions and settings alone: another table
    stays as it is, and only what became of these is printed.

    Raises:
        UsageError: If the choice is empty.
    """
    if choice.workers < 1 or choice.limit <= 0:
        raise UsageError(
            f"--workers={choice.workers} and --limit={choice.limit:g} must be positive"
        )
    every = suite.runs()
    chosen = [script for script in every if choice.only in script.test]
    if not chosen:
        raise UsageError(f"no script of {suite.name} has {choice.only!r} in its name")
    if 0 < choice.sample < len(chosen):
        chosen = random.sample(chosen, choice.sample)
    folder = sources(suite, choice.checkout)
    path = tables.path_of(suite.name)
    some = bool(choice.only or choice.sample)
    other = _other(suite, product) if some else ""
    done = {} if other else _kept(suite, product, choice, folder)
    if choice.resume:
        chosen = [script for script in chosen if (script.test, script.arch) not in done]
    for i, case in enumerate(examine_all(suite, folder, chosen, product, choice), 1):
        done[case.test, case.arch] = case
        said = f"{case.outcome.value:<8}{case.test}: {case.why}"
        print(f"[{i}/{len(chosen)}] {said}", flush=True)
        rows = [done[key] for s in every if (key := (s.test, s.arch)) in done]
        if not other:
            path = tables.write(tables.made(suite, rows, product.settings))
    passed = sum(case.outcome is Outcome.PASSED for case in done.values())
    wrote = f"{path} stays as it is: {other}" if other else f"wrote {path}"
    print(f"{passed} of {len(done)} pass; {wrote}")
    return 0


def _other(suite: Suite, product: Product) -> str:
    """What of a table that exists is of other versions or settings than this run, in words."""
    path = tables.path_of(suite.name)
    if not path.is_file():
        return ""
    table, now = tables.read(path), tables.made(suite, (), product.settings)
    # A package more takes nothing from what the others came to.
    moved = {k: v for k, v in table.toolchain.items() if now.toolchain.get(k) != v}
    for k in sorted({*table.settings, *now.settings}):
        if (was := table.settings.get(k)) != now.settings.get(k):
            moved[k] = "not set" if was is None else str(was)
    return ", ".join(f"it is of {name} {value}" for name, value in moved.items())


def _kept(
    suite: Suite, product: Product, choice: Choice, folder: Path
) -> dict[tuple[str, str], Case]:
    """What stays of a table of the same versions and settings.

    Resumed runs take what is still true: of files that are the same, under as many schedules. A run
    of some scripts keeps all that it does not run; each row says what file it is of.
    """
    path = tables.path_of(suite.name)
    if not (choice.only or choice.resume or choice.sample) or not path.is_file():
        return {}
    table = tables.read(path)
    if _other(suite, product):
        return {}
    asked = {(script.test, script.arch): script for script in suite.runs()}
    return {
        key: case
        for case in table.cases
        if (key := (case.test, case.arch)) in asked
        and (not choice.resume or _holds(folder, case, asked[key]))
    }


def _holds(folder: Path, case: Case, script: Script) -> bool:
    """Whether a row is of the file as it is now, of the same packages, under as many schedules."""
    same = case.blob == _blob(folder, script.path) and case.requirements == script.requirements
    return same and (case.clusters == 0 or case.schedules >= script.schedules)


def _blob(folder: Path, path: str) -> str:
    return blob_of(folder / path) or ""


def examine_all(
    suite: Suite, folder: Path, chosen: Sequence[Script], product: Product, choice: Choice
) -> Iterator[Case]:
    """Runs scripts, each in a process of its own, and gives what became of them as they end.

    Args:
        suite: Explains what does not pass.
        folder: Where the scripts lie.
        chosen: Which.
        product: What runs their kernels.
        choice: How many at a time, for how long.
    """
    product.warm()
    work = {script: partial(_examine, suite, folder, script, product) for script in chosen}
    with tempfile.TemporaryDirectory(prefix="suite-") as logs:
        ended = forked.run(
            work,
            folder=Path(logs),
            workers=choice.workers,
            timeout=choice.limit,
            explain=sentence,
        )
        for script, end in ended:
            lost = {"outcome": "slow" if end.late else "failed", "reason": end.failure}
            facts: dict[str, Any] = {
                "test": script.test,
                "arch": script.arch,
                "blob": _blob(folder, script.path),
                "seconds": round(end.seconds, 1),
                "requirements": script.requirements,
                **(end.result or lost),
            }
            yield Case.model_validate(facts)


def _examine(suite: Suite, folder: Path, script: Script, product: Product) -> dict[str, Any]:
    os.chdir(folder)
    try:
        ran = product.examine(script)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # Whatever it raises is its outcome.
        return _ended(suite, folder, script, error)
    facts: dict[str, Any] = {
        "emulated_seconds": round(ran.seconds, 3),
        "clusters": ran.clusters,
        "instructions": ran.instructions,
        "schedules": ran.schedules,
    }
    if not ran.clusters:
        return facts | {"outcome": "refused", "reason": "it launches nothing that is run here"}
    kinds = sorted({found.kind for found in ran.findings})
    explained = [suite.explanation(script.test, kind) for kind in kinds]
    return facts | {
        "outcome": "found" if kinds else "passed",
        "findings": [found.model_dump() for found in ran.findings],
        "explained": "; ".join(e.reason for e in explained if e is not None),
    }


def _ended(suite: Suite, folder: Path, script: Script, error: BaseException) -> dict[str, Any]:
    """Of a script that raised."""
    said = sentence(error).replace(str(folder), "")
    refused = isinstance(error, HyperMlaError) or _REFUSALS.search(
        f"{type(error).__name__} {error}"
    )
    outcome = "refused" if refused else "failed"
    explanation = suite.explanation(script.test)
    known = explanation is not None and explanation.outcome == outcome
    why = explanation.reason.format(said=said)[:300] if explanation is not None and known else ""
    return {"outcome": outcome, "reason": said[:300], "explained": why}


def sentence(error: BaseException) -> str:
    """What ended a script, in one sentence, with where."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", x).strip() for x in str(error).splitlines()]
    first = next((x for x in lines if x), "")
    differ = [
        re.sub(r" at index.*", "", x) for x in lines if re.match("Mismatched|Greatest abs", x)
    ]
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" ({Path(last[0].filename).name}:{last[0].lineno})" if last and not differ else ""
    return f"{type(error).__name__}: {'; '.join([first, *differ])}{where}"
