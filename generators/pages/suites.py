"""What others wrote, run here: NVIDIA's examples and tests, and other libraries' tests."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from generators.model.site import Site
from generators.write.page import Page
from mla_var3.emulator.conformance import FOLDER, Outcome, Table, read
from mla_var3.tables import cell, code, table

PATH = "results/conformance.md"
RECORDS = "results/conformance"
EXAMPLES = f"{RECORDS}/cutlass-examples.json"
CUTLASS = "https://github.com/NVIDIA/cutlass/blob"


def places(site: Site) -> Mapping[str, str]:
    """The folder of the tables."""
    return {RECORDS: PATH} if (site.root / RECORDS).is_dir() else {}


def pages(site: Site) -> list[Page]:
    """One page with all tables; none in a checkout without any."""
    parts = []
    if (site.root / EXAMPLES).is_file():
        parts += _examples(read(site.root / EXAMPLES))
    parts += _suites(site)
    parts += _peers(site)
    if not parts:
        return []
    head = "# Conformance\n\nWhat others wrote for a GPU, run here unchanged, mostly without one."
    return [Page(PATH, "\n\n".join([head, *parts, ""]), nav=("Results", "Conformance"))]


def _examples(found: Table) -> list[str]:
    """NVIDIA's CuTe DSL examples under the emulator."""
    counts = Counter(o.status for o in found.examples)
    verdict = ", ".join(f"{n} {status}" for status, n in counts.most_common())
    text = (
        f"{len(found.examples)} runs under the emulator: {verdict}. *Passed* is by the example's "
        "own assertions and without a report; *found* passed them and a report stands; *refused* "
        "meets what is not emulated or does not compile. CuTe DSL "
        f"{cell(found.dsl)}, memory model {cell(found.memory_model)}."
    )
    header = ("Example", "Arguments", "For", "Outcome", "Why", "Emulated (s)", "Clusters")
    rows = [_row(o, found.cutlass) for o in found.examples]
    return ["## CuTe DSL examples", text, table(header, rows, right=header[-2:])]


def _row(o: Outcome, commit: str) -> tuple[str, ...]:
    name = o.example.rpartition("/")[2]
    link = f"[{cell(name)}]({CUTLASS}/{commit}/{FOLDER.as_posix()}/{o.example})"
    why = "; ".join(dict.fromkeys([o.reason, *(f"{f.kind}: {f.message}" for f in o.findings)]))
    ran = o.clusters > 0
    return (
        link,
        code(o.arguments) if o.arguments else "",
        o.arch,
        o.status,
        cell(why.strip("; ")),
        f"{o.emulated_seconds:.2f}" if ran else "",
        str(o.clusters) if ran else "",
    )


def _tables(site: Site, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and content of the tables of a kind, which has its key."""
    for file in sorted((site.root / RECORDS).glob("*.json")):
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if kind in content:
            yield file.stem, content


def _suites(site: Site) -> list[str]:
    """Test suites of cuTile kernels in the interpreter."""
    rows, why = [], []
    for _, suite in _tables(site, "suite"):
        name = f"[{cell(suite['suite'])}]({suite['repository']}/tree/{suite['commit']})"
        kinds = ("passed", "refused", "failed", "skipped")
        counts = (str(sum(f[k] for f in suite["files"])) for k in kinds)
        rows.append((name, *counts, str(suite["sample"] or "all")))
        why += _exceptions(suite)
    header = ("Suite", "Passed", "Refused", "Failed", "Skipped", "Cases of each test")
    shown = table(header, rows, right=header[1:], all_columns=True)
    return ["## cuTile suites", shown, *why] if rows else []


def _peers(site: Site) -> list[str]:
    """Tests of other libraries with a kernel of ours in place of theirs."""
    rows = []
    for name, found in _tables(site, "peer"):
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
        "Their tests of dense decode, with `flash_mla@cute-dsl` in place of their kernel: an even "
        "choice of their cases."
    )
    shown = table(header, rows, right=header[2:6], all_columns=True)
    return ["## Tests of other libraries on our kernel", text, shown] if rows else []


def _exceptions(suite: dict[str, Any]) -> list[str]:
    """What did not pass or was not run, one by one, each with its reason."""
    told = [e for e in suite["exceptions"] if e["outcome"] != "skipped"]
    rows = [
        (code(e["test"]), str(e["cases"]), e["outcome"], cell(e["explained"] or e["reason"]))
        for e in told
    ]
    rows += [(code(e["test"]), "", "not run", cell(e["reason"])) for e in suite.get("left_out", ())]
    header = ("Test", "Cases", "Outcome", "Why")
    return [f"### {cell(suite['suite'])}", table(header, rows, right=("Cases",))] if rows else []
