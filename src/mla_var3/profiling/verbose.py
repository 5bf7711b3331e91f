"""Writes report-verbose.md of mode ``ncu``: Nsight Compute's advice, ranked, and hot lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mla_var3.profiling import hot
from mla_var3.profiling.ncu_rep import Advice, Profiled
from mla_var3.tables import cell, table

#: Rows of the tables of lines, stalls and opcodes.
ROWS = 12


@dataclass(frozen=True)
class Ranked:
    """A recommendation, and what in the kernel's language answers it.

    Attributes:
        advice: What Nsight Compute says.
        lever: What to change; empty where the language leaves it to its compiler or to nobody.
    """

    advice: Advice
    lever: str


def ranked(advice: Iterable[Advice], levers: Mapping[str, str]) -> list[Ranked]:
    """Recommendations: first those that the language can act on, each part by Nsight's estimate.

    Args:
        advice: What the rules say; what is not a recommendation is left out.
        levers: What answers a rule, by the rule's identifier.
    """
    found = [Ranked(x, levers.get(x.rule, "")) for x in advice if x.kind == "optimization"]
    return sorted(found, key=lambda x: (not x.lever, -(x.advice.speedup or 0.0)))


def render(
    title: str, language: str, launches: Mapping[str, Profiled], levers: Mapping[str, str]
) -> str:
    """The report.

    Args:
        title: The version.
        language: The language's name in prose.
        launches: The launch of each stage, by its path.
        levers: What answers a rule in that language, by the rule's identifier.
    """
    about = (
        "Nsight Compute estimates each gain on its own: of the kernel's time, or of the work of "
        f"one unit. First stand those that {language} lets you act on."
    )
    parts = [_stage(path, launch, language, levers) for path, launch in launches.items()]
    return "\n".join([f"# {title}: what Nsight Compute recommends", "", about, "", *parts])


def _stage(path: str, launch: Profiled, language: str, levers: Mapping[str, str]) -> str:
    found = ranked(launch.advice, levers)
    lines = [f"## {path}", "", f"Launched as {_code(launch.name[:120])}.", ""]
    lines += _advice(f"To act on in {language}", [x for x in found if x.lever])
    lines += _advice(f"Out of reach of {language}", [x for x in found if not x.lever])
    notes = [f"- {cell(x.message)}" for x in launch.advice if x.kind in ("warning", "error")]
    lines += ["### Notes on this measurement", "", *notes, ""] if notes else []
    return "\n".join([*lines, *_hot(launch), *_stalls(launch), *_opcodes(launch)])


def _advice(title: str, found: Sequence[Ranked]) -> list[str]:
    if not found:
        return []
    lines = [f"### {title}", ""]
    for number, one in enumerate(found, 1):
        said = one.advice.title or one.advice.rule
        lines.append(f"{number}. **{cell(said)}** ({_estimate(one.advice)})")
        lines.append(f"    - {cell(one.advice.message)}")
        lines += [f"    - In this language: {one.lever}"] if one.lever else []
    return [*lines, ""]


def _estimate(advice: Advice) -> str:
    if advice.speedup is None:
        return "no estimate"
    return f"{advice.speedup:.1f} % of {'the time' if advice.overall else 'one unit'}"


def _hot(launch: Profiled) -> list[str]:
    samples = hot.total(launch.instructions, hot.SAMPLES)
    rows = [
        (_code(f"{x.file}:{x.number}"), f"{x.samples / samples:.1%}", _code(x.stall),
         _source(launch, x), "<br>".join(_code(i.sass) for i in x.hottest()))
        for x in hot.lines(launch)[:ROWS]
        if x.samples
    ]  # fmt: skip
    header = ("line", "samples", "waiting for", "source", "hottest SASS")
    return ["### Hot lines", "", table(header, rows), ""] if rows else []


def _source(launch: Profiled, line: hot.Line) -> str:
    text = (launch.sources or {}).get(line.file, "").splitlines()
    return _code(text[line.number - 1].strip()) if 0 < line.number <= len(text) else ""


def _code(text: str) -> str:
    """Code as such, whatever characters it has; empty text stays so."""
    return f"`{text}`" if text and "`" not in text else cell(text)


def _stalls(launch: Profiled) -> list[str]:
    return _shares("What warps waited for", "stall", hot.stalls(launch.instructions))


def _opcodes(launch: Profiled) -> list[str]:
    ordered = sorted((launch.opcodes or {}).items(), key=lambda x: (-x[1], x[0]))
    return _shares("Warp instructions by opcode", "opcode", dict(ordered))


def _shares(title: str, what: str, found: Mapping[str, float]) -> list[str]:
    whole = sum(found.values())
    rows = [(_code(k), f"{v:,.0f}", f"{v / whole:.1%}") for k, v in list(found.items())[:ROWS]]
    return [f"### {title}", "", table((what, "count", "share"), rows), ""] if rows else []
