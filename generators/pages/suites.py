"""Makes the conformance page: results of third-party tests and examples that ran here."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from generators.model.site import Site
from generators.write.page import Page
from generators.write.text import fold
from mla_var3.gpuless.suites import Outcome, find
from mla_var3.gpuless.tables import Case, Table, read
from mla_var3.tables import cell, code, table

PATH = "results/conformance.md"
RECORDS = "results/conformance"


#: Titles of suites of scripts, and what they are.
_TITLES = {
    "cutlass-examples": ("CuTe DSL examples", ""),
    "cutlass-options": (
        "Every option of CUTLASS's attention for sm_100",
        "The MLA and FMHA examples with each option of their command lines, one at a time.",
    ),
    "strangers": (
        "Packages from PyPI",
        "Nobody here wrote these. Each case calls an unmodified package on a small problem and "
        "compares with torch, twice: the second time with what the package kept on disk.",
    ),
}


def places(site: Site) -> Mapping[str, str]:
    """The folder of the tables."""
    return {RECORDS: PATH} if (site.root / RECORDS).is_dir() else {}


def pages(site: Site) -> list[Page]:
    """One page with all tables; none in a checkout without any."""
    found = [read(file) for file in _files(site, "suite")]
    parts = [part for one in found if not one.files for part in _examples(one)]
    parts += _suites([one for one in found if one.files])
    parts += _peers(site)
    if not parts:
        return []
    head = "# Conformance\n\nWhat others wrote for a GPU, run here unchanged, mostly without one."
    return [Page(PATH, "\n\n".join([head, *parts, ""]), nav=("Results", "Conformance"))]


def _examples(found: Table) -> list[str]:
    """A suite of scripts: NVIDIA's CuTe DSL examples under the emulator."""
    verdict = ", ".join(f"{n} {outcome.value}" for outcome, n in found.counts().most_common())
    text = (
        f"{len(found.cases)} runs under the emulator: {verdict}. *Passed* is by the example's "
        "own assertions and without a report; *found* passed them and a report stands; *refused* "
        "meets what is not emulated or does not compile. "
        f"{_versions(found)}, memory model {cell(str(found.settings['memory_model']))}."
    )
    header = ("Example", "Arguments", "For", "Outcome", "Why", "Emulated (s)", "Clusters")
    rows = [_row(case, found) for case in found.cases]
    title, what = _TITLES.get(found.suite, (found.suite, ""))
    runs = table(header, rows, right=header[-2:])
    return [
        f"## {title}",
        f"{what} {text}".strip(),
        fold("Run by run", f"{len(rows)}, each with its outcome and why", runs),
    ]


def _versions(found: Table) -> str:
    return ", ".join(f"{cell(name)} {cell(number)}" for name, number in found.toolchain.items())


def _row(case: Case, found: Table) -> tuple[str, ...]:
    path, _, arguments = case.test.partition(" ")
    name = cell(path.rpartition("/")[2])
    if found.commit:
        folder = f"{found.repository}/blob/{found.commit}/{find(found.suite).folder}"
        name = f"[{name}]({folder}/{path})"
    own = f"with the packages of {case.requirements}" if case.requirements else ""
    said = [own, case.why, *(f"{f.kind}: {f.message}" for f in case.findings)]
    why = "; ".join(dict.fromkeys(filter(None, said)))
    ran = case.clusters > 0
    return (
        name,
        code(arguments) if arguments else "",
        case.arch,
        case.outcome.value,
        cell(why.strip("; ")),
        f"{case.emulated_seconds:.2f}" if ran else "",
        str(case.clusters) if ran else "",
    )


def _files(site: Site, kind: str) -> Iterator[Path]:
    """The tables of a kind, which has its key."""
    for file in sorted((site.root / RECORDS).glob("*.json")):
        if kind in json.loads(file.read_text(encoding="utf-8")):
            yield file


def _suites(found: list[Table]) -> list[str]:
    """Suites of tests: of cuTile kernels in the interpreter, of others in the emulator."""
    rows, why = [], []
    kinds = (Outcome.PASSED, Outcome.REFUSED, Outcome.FAILED, Outcome.SKIPPED)
    for suite in found:
        name = f"[{cell(suite.suite)}]({suite.repository}/tree/{suite.commit})"
        counts = suite.counts()
        ran = (str(counts[kind]) for kind in kinds)
        rows.append((name, suite.product, *ran, str(suite.sample or "all")))
        why += _exceptions(suite)
    header = ("Suite", "Run by", "Passed", "Refused", "Failed", "Skipped", "Cases of each test")
    shown = table(header, rows, right=header[2:], all_columns=True)
    return ["## Suites of tests", shown, *why] if rows else []


def _peers(site: Site) -> list[str]:
    """Tests of other libraries with a kernel of ours in place of theirs."""
    rows = []
    for file in _files(site, "peer"):
        name, found = file.stem, json.loads(file.read_text(encoding="utf-8"))
        address, commit = found["peer"]["repository"], found["peer"]["commit"]
        counts = Counter(one["outcome"] for one in found["cases"])
        reasons = sorted({one["reason"] for one in found["cases"] if "reason" in one})
        rows.append(
            (
                f"[{cell(name)}]({address}/tree/{commit})",
                cell(found["device"] or "emulator"),
                f"{len(found['cases']):,} of {found['of']:,}",
                *(str(counts[kind]) for kind in ("passed", "failed", "skipped")),
                cell("; ".join(reasons)),
            )
        )
    header = ("Library", "On", "Cases", "Passed", "Failed", "Skipped", "Why")
    text = (
        "Their tests of decode, dense and sparse, and of sparse prefill, on the calls of "
        "`mla_var3.serving` in place of theirs."
    )
    shown = table(header, rows, right=header[2:6], all_columns=True)
    return ["## Tests of other libraries on our kernel", text, shown] if rows else []


def _exceptions(suite: Table) -> list[str]:
    """What did not pass or was not run, one by one, each with its reason."""
    rows = [
        (code(case.test), str(case.cases), case.outcome.value, cell(case.why))
        for case in suite.cases
        if case.outcome is not Outcome.SKIPPED
    ]
    rows += [(code(one.test), "", "not run", cell(one.reason)) for one in suite.left_out]
    header = ("Test", "Cases", "Outcome", "Why")
    shown = fold(
        "What did not pass or was not run",
        f"{len(rows)}, each with its reason",
        table(header, rows, right=("Cases",)),
    )
    return [f"### {cell(suite.suite)}", shown] if rows else []
