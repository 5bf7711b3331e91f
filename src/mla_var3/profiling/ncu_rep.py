"""Reads Nsight Compute report files (``.ncu-rep``) by NVIDIA's own module, as plain data.

The module ``ncu_report`` needs neither a GPU nor the command ``ncu``. nsight-python brings it; each
Nsight Compute ships the same module among its extras. It is loaded in a process of its own, since
that of 2025.3 crashes in one that loaded torch first.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import math
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import TypeAdapter

from mla_var3 import front
from mla_var3.errors import ToolchainError
from mla_var3.static.source import relative_source

MODULE = "ncu_report"
#: Where NVIDIA's packages put an Nsight Compute, by its version.
INSTALLED = Path("/opt/nvidia/nsight-compute")
#: The metric whose instances are all instructions of a kernel, by address.
EXECUTED = "inst_executed"
OPCODES = "sass__inst_executed_per_opcode"
#: PTX as it stands in a kernel's debug section: lines that end with a zero byte.
_PTX = re.compile(rb"\.version \d+\.\d+[\t\n\0\x20-\x7e]+")


@dataclass(frozen=True)
class Metric:
    """One counter of a launch.

    Attributes:
        name: Nsight Compute's.
        value: In its base unit; text for what is not a number.
        unit: Such as ``byte`` or ``ns``; empty for counts.
        section: The section of the report that shows it; empty where none does.
    """

    name: str
    value: float | str
    unit: str = ""
    section: str = ""


@dataclass(frozen=True)
class Advice:
    """What one of Nsight Compute's rules says of a launch.

    Attributes:
        rule: The rule's identifier, such as ``SharedMemoryConflicts``.
        section: The section that it belongs to.
        title: Its headline; may be empty.
        message: What it says, links as plain text.
        kind: ``optimization``, ``warning``, ``error`` or ``ok``.
        speedup: Its estimate in percent; None where it gives none.
        overall: Whether the estimate is of the whole kernel's time, and not of one unit's work.
    """

    rule: str
    section: str
    title: str
    message: str
    kind: str
    speedup: float | None = None
    overall: bool = False


@dataclass(frozen=True)
class Instruction:
    """One SASS instruction.

    Attributes:
        offset: Bytes from the kernel's first instruction.
        sass: Its text.
        ptx: The line of PTX that it stems from; may be empty.
        file: The source file that it stems from; empty where the compiler left none.
        line: The line there, from 1.
        values: Counters of this instruction by name.
    """

    offset: int
    sass: str
    ptx: str
    file: str
    line: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class Profiled:
    """One launch that Nsight Compute looked at.

    Attributes:
        name: The kernel's name, demangled.
        metrics: All counters.
        advice: What the rules say.
        instructions: In order of their addresses; empty where none were counted singly.
        opcodes: Warp instructions by opcode.
        sources: Text of the source files that the report holds, by name.
        ptx: The kernel's PTX; empty where the report holds none.
    """

    name: str
    metrics: tuple[Metric, ...]
    advice: tuple[Advice, ...] = ()
    instructions: tuple[Instruction, ...] = ()
    opcodes: Mapping[str, float] | None = None
    sources: Mapping[str, str] | None = None
    ptx: str = ""

    def value(self, name: str) -> float | None:
        """A counter's number; None where it was not collected."""
        found = next((m.value for m in self.metrics if m.name == name), None)
        return found if isinstance(found, float) else None


#: Launches as JSON, in which they pass from process to process.
LAUNCHES = TypeAdapter(list[Profiled])


# -- the module ------------------------------------------------------------------------------------


def extras() -> Path | None:
    """The folder beside the ``ncu`` on PATH that holds the module; None where none is needed."""
    if importlib.util.find_spec(MODULE) is not None or (ncu := shutil.which("ncu")) is None:
        return None
    folders = (place / "extras" / "python" for place in _installations(Path(ncu)))
    return next((folder for folder in folders if any(folder.glob(f"{MODULE}*"))), None)


def _installations(ncu: Path) -> Iterator[Path]:
    """Folders that may hold the installation of an ``ncu``, which may be a script that finds it."""
    real = ncu.resolve()
    yield from real.parents[:4]
    if version := _version(ncu):
        yield INSTALLED / version
        yield from (parent / f"nsight-compute-{version}" for parent in real.parents[:2])


@functools.cache  # A mode asks before it times anything and again when it reads.
def _version(ncu: Path) -> str:
    """What ``ncu --version`` states, such as ``2025.3.1``; empty where it states none."""
    try:
        done = subprocess.run(
            [str(ncu), "--version"], capture_output=True, encoding="utf-8", errors="replace",
            check=False, timeout=60,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = re.search(r"Version (\d+\.\d+\.\d+)", done.stdout)
    return match.group(1) if match else ""


def missing() -> str | None:
    """Why reports cannot be read here; None where they can."""
    if importlib.util.find_spec(MODULE) is not None or extras() is not None:
        return None
    return (
        f"NVIDIA's Python module {MODULE} is neither installed (mla_var3[gpu] brings it) nor in "
        "extras/python of the Nsight Compute whose ncu is on PATH"
    )


def module() -> ModuleType:
    """NVIDIA's module.

    Raises:
        ToolchainError: It is not found, or cannot be loaded.
    """
    if (lacking := missing()) is not None:
        raise ToolchainError(f"an Nsight Compute report cannot be read: {lacking}")
    if (folder := extras()) is not None:
        sys.path.append(str(folder))
    try:
        return importlib.import_module(MODULE)
    except (ImportError, OSError) as error:
        raise ToolchainError(f"{MODULE} cannot be loaded: {error}") from error


# -- the report ------------------------------------------------------------------------------------


def read(path: Path) -> list[Profiled]:
    """All launches of a report, read in a process of its own.

    Raises:
        ToolchainError: The module is missing or crashes, or the file is not a report that it can
            read.
    """
    from mla_var3.profiling import replay

    if (lacking := missing()) is not None:
        raise ToolchainError(f"an Nsight Compute report cannot be read: {lacking}")
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "launches.json"
        replay.run([sys.executable, "-m", __name__, str(path), str(plain)], MODULE)
        return LAUNCHES.validate_json(plain.read_bytes())


def load(path: Path) -> list[Profiled]:
    """Read a report in this process.

    Raises:
        ToolchainError: The module is missing, or the file is not a report that it can read.
    """
    ncu_report = module()
    try:
        report = ncu_report.load_report(str(path))
        actions = [
            report.range_by_idx(i).action_by_idx(j)
            for i in range(report.num_ranges())
            for j in range(report.range_by_idx(i).num_actions())
        ]
    except (RuntimeError, OSError, ValueError, AttributeError) as error:
        raise ToolchainError(f"{path.name} cannot be read by {MODULE}: {error}") from error
    if not actions:
        raise ToolchainError(
            f"{path.name} holds no launch: Nsight Compute profiled none, or it is not a report of "
            f"a version that {MODULE} knows"
        )
    texts = [match.group() for match in _PTX.finditer(path.read_bytes())]
    return [_profiled(ncu_report, action, texts) for action in actions]


def _profiled(ncu_report: ModuleType, action: Any, ptx: list[bytes]) -> Profiled:
    bases = ncu_report.IAction
    sections = _sections(action)
    return Profiled(
        name=str(action.name(bases.NameBase_DEMANGLED)),
        metrics=tuple(_metrics(action, sections)),
        advice=tuple(_advice(ncu_report, found) for found in action.rule_results_as_dicts()),
        instructions=tuple(_instructions(action)),
        opcodes=_instances(action.metric_by_name(OPCODES)),
        sources={relative_source(file): text for file, text in _files(action) if text},
        ptx=ptx_of(str(action.name(bases.NameBase_MANGLED)), ptx),
    )


def _sections(action: Any) -> dict[str, str]:
    """Title of the first section that shows each metric; older modules do not tell."""
    ordered = sorted(getattr(action, "sections", tuple)(), key=lambda section: section.order())
    return {
        metric.name(): section.name()
        for section in reversed(ordered)
        for metric in (*section.header_metrics(), *section.body_metrics())
    }


def _metrics(action: Any, sections: Mapping[str, str]) -> Iterator[Metric]:
    for name in sorted(action.metric_names()):
        if name.startswith(("group:", "breakdown:")):
            continue  # Lists of other metrics.
        metric = action.metric_by_name(name)
        if (value := metric.value()) is not None:
            unit = str(metric.unit() or "")
            yield Metric(name, _plain(value), unit, sections.get(name, ""))


def _plain(value: Any) -> float | str:
    """A finite number as one; text else, such as ``nan`` for what could not be collected."""
    number = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if number else str(value)


def _advice(ncu_report: ModuleType, found: Mapping[str, Any]) -> Advice:
    said, estimate = found["rule_message"], found.get("speedup_estimation") or {}
    return Advice(
        rule=found["rule_identifier"],
        section=found["section_identifier"],
        title=said["title"],
        message=plain_text(said["message"]),
        kind=_kinds(ncu_report).get(int(said["type"]), "ok"),
        speedup=float(estimate["speedup"]) if estimate else None,
        overall=estimate.get("type") == int(ncu_report.SpeedupType.GLOBAL),
    )


def _kinds(ncu_report: ModuleType) -> dict[int, str]:
    types = ncu_report.MsgType
    return {int(t): t.name.lower() for t in (types.OPTIMIZATION, types.WARNING, types.ERROR)}


def plain_text(message: str) -> str:
    """A rule's message with its links as the words that they show."""
    message = re.sub(r"@url:([^:@]*):[^@]*@", r"\1", message)
    return re.sub(r"@(?:section|sass|source):[^@]*:([^:@]*)@", r"\1", message)


def _files(action: Any) -> list[tuple[str, str]]:
    return sorted((str(name), str(text)) for name, text in dict(action.source_files()).items())


def _instances(metric: Any) -> dict[Any, float]:
    """A metric's numbers by what they belong to: an address, or an opcode."""
    if metric is None or not metric.has_correlation_ids():
        return {}
    keys = metric.correlation_ids()
    found = ((keys.value(i), metric.value(i)) for i in range(metric.num_instances()))
    return {key: float(value) for key, value in found if isinstance(value, int | float)}


def _instructions(action: Any) -> Iterator[Instruction]:
    addresses = sorted(_instances(action.metric_by_name(EXECUTED)))
    known = set(addresses)
    tables = {name: _instances(action.metric_by_name(name)) for name in action.metric_names()}
    tables = {name: found for name, found in tables.items() if found and known.issuperset(found)}
    for address in addresses:
        info = action.source_info(address)
        yield Instruction(
            offset=address - addresses[0],
            sass=relative_targets(action.sass_by_pc(address), addresses[0], addresses[-1]),
            ptx=" ".join(action.ptx_by_pc(address).split()),
            file=relative_source(info.file_name()) if info else "",
            line=info.line() if info else 0,
            values={name: found[address] for name, found in tables.items() if address in found},
        )


def relative_targets(sass: str, first: int, last: int) -> str:
    """An instruction whose addresses within the kernel are offsets, as those of its lines are."""

    def offset(match: re.Match[str]) -> str:
        address = int(match.group(), 16)
        return f"{address - first:#x}" if first <= address <= last else match.group()

    return re.sub(r"0x[0-9a-f]+", offset, " ".join(sass.split()))


def ptx_of(name: str, texts: list[bytes]) -> str:
    """The text of PTX that defines a kernel; empty where none does."""
    entry = f".entry {name}".encode()
    found = next((text for text in texts if re.search(re.escape(entry) + rb"\W", text)), b"")
    lines = found[: found.rfind(b"}") + 1].replace(b"\0", b"\n").decode("ascii")
    return re.sub(r"\n{2,}", "\n", lines) + "\n" if lines else ""


def main() -> int:
    """Read the report that the process's first argument names, into the file of the second."""
    report, plain = map(Path, sys.argv[1:])
    plain.write_bytes(LAUNCHES.dump_json(load(report)))
    return 0


if __name__ == "__main__":
    front.run("mla_var3.profiling.ncu_rep:main")
