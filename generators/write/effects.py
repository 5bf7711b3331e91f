"""Reports a code change's effect on compiled code, hunk by hunk, from both versions' records.

A record says which source line each instruction came from, so the code of a hunk is that of its
changed lines. Registers, spills and shared memory belong to a whole kernel: they stand beside the
hunks that lie in functions which the kernel was compiled from, and are never split between them.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from generators.model import problems
from generators.model.run import Run
from generators.model.site import Site
from generators.write import figures
from generators.write.source import repo_name
from generators.write.text import cell, factored, sections
from mla_var3.blobs import once_per_content
from mla_var3.evidence import Stage, StaticFacts
from mla_var3.knowledge.changes import Comparison, Hunk, Line
from mla_var3.knowledge.evidence import Link
from mla_var3.runtime.flattening import is_composed
from mla_var3.runtime.registry import Version
from mla_var3.syntax import statements

#: What is counted of a line, with its name.
_COUNTED = {"instructions": "SASS", "mma": "tensor-core", "tma": "TMA", "spills": "spill"}
_HEAD = (
    "Stage", "Arch", "Registers", "Spill instructions", "Stack, bytes", "SASS instructions",
    "Shared memory, bytes", "MMA path", "Changes in its functions",
)  # fmt: skip


@dataclass(frozen=True)
class Side:
    """A version as one record has it compiled.

    Attributes:
        version: The version.
        run: The record.
        stages: What was compiled.
    """

    version: Version
    run: Run
    stages: tuple[Stage, ...]

    @cached_property
    def counts(self) -> dict[tuple[str, int], Counter[str]]:
        """Instructions of each line of the version's own files, over all its kernels."""
        found: dict[tuple[str, int], Counter[str]] = {}
        for facts in {facts_of(stage).kernel: facts_of(stage) for stage in self.stages}.values():
            for row in facts.lines:
                counts = found.setdefault((row.file, row.line), Counter())
                counts.update(instructions=row.instructions, mma=row.mma, tma=row.tma,
                              spills=row.spill_loads + row.spill_stores)  # fmt: skip
        return found

    def of(self, hunk: Hunk) -> Counter[str]:
        """Instructions of the hunk's changed lines."""
        total: Counter[str] = Counter()
        for line in self.changed(hunk):
            total.update(self.counts.get((self.file(line), line.number), {}))
        return total

    def changed(self, hunk: Hunk) -> Iterator[Line]:
        """The hunk's changed lines that are the version's."""
        return (line for line in hunk.lines("changed") if line.side == self.version.version)

    def file(self, line: Line) -> str:
        """The file of a line as records name it; none holds the lines of a flattened version."""
        return "" if self._composed else f"{self._folder}/{line.file}"

    @cached_property
    def _folder(self) -> str:
        return repo_name(self.version.path.parent)

    @cached_property
    def _composed(self) -> bool:
        return is_composed(self.version.path)

    def touches(self, hunk: Hunk, stage: Stage) -> bool:
        """Whether a changed line lies in a function that the stage was compiled from."""
        used = self._used[stage.name]
        places = ((self.file(line), line.number) for line in self.changed(hunk))
        return any(self._functions.get(place, place) in used for place in places)

    @cached_property
    def _used(self) -> dict[str, set[tuple[str, int]]]:
        """Functions that each stage was compiled from, and lines outside of any."""
        return {
            stage.name: {
                self._functions.get(place, place)
                for place in ((row.file, row.line) for row in facts_of(stage).lines)
            }
            for stage in self.stages
        }

    @cached_property
    def _functions(self) -> dict[tuple[str, int], tuple[str, int]]:
        """Where the innermost function around each line of the version's own files begins."""
        found: dict[tuple[str, int], tuple[str, int]] = {}
        for path in sorted(self.version.path.parent.rglob("*.py")):
            file = repo_name(path)
            found |= {(file, line): (file, start) for line, start in _starts(path).items()}
        return found


@once_per_content  # Every pair of records asks for both versions.
def _starts(path: Path) -> dict[int, int]:
    """Where the innermost function around each line of a file begins."""
    found: dict[int, int] = {}
    # Outer functions come first.
    for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            start = node.lineno - len(node.decorator_list)
            found |= dict.fromkeys(range(start, (node.end_lineno or start) + 1), start)
    return found


def facts_of(stage: Stage) -> StaticFacts:
    """The static facts of a stage that has them."""
    assert stage.static is not None
    return stage.static


@dataclass(frozen=True)
class Built:
    """Both versions compiled for one arch, at one problem, by the same tools."""

    old: Side
    new: Side

    @property
    def arch(self) -> str:
        """Compile target."""
        return self.new.run.record.target.removeprefix("static/")

    def stages(self) -> Iterator[tuple[str, Stage | None, Stage | None]]:
        """The stages of both by name; what has no counterpart stands alone."""
        old = {_name(self.old, stage): stage for stage in self.old.stages}
        new = {_name(self.new, stage): stage for stage in self.new.stages}
        for name in dict.fromkeys([*new, *old]):
            yield name, old.get(name), new.get(name)


def _name(side: Side, stage: Stage) -> str:
    return stage.name.replace(side.version.name, side.version.design)


# -- from records ----------------------------------------------------------------------------------


def built(site: Site, before: Version, after: Version) -> list[Built]:
    """Compiles of both versions per arch, at the problem that most archs have.

    Stale records are left out, and those of different tools: their lines or their figures do not
    compare.
    """
    olds = list(_sides(site, before))
    found: dict[problems.Problem, dict[str, Built]] = {}
    for new in _sides(site, after):
        if old := next((old for old in olds if _compares(old.run, new.run)), None):
            pairs = found.setdefault(problems.problem_of(new.run.record), {})
            pairs.setdefault(new.run.record.target, Built(old, new))
    chosen = max(found.values(), key=_telling, default={})
    return sorted(chosen.values(), key=lambda pair: (len(pair.arch), pair.arch))


def _sides(site: Site, version: Version) -> Iterator[Side]:
    for run in site.runs_of(version):
        if run.record.is_static and run.outcome and not run.stale:
            stages = tuple(s for s in run.outcome.stages if s.static is not None and s.static.ok)
            yield Side(version, run, stages)


def _compares(old: Run, new: Run) -> bool:
    one, other = old.record, new.record
    shared = one.problem.keys() & other.problem.keys()
    return (
        one.target == other.target
        and one.toolchain == other.toolchain
        and all(one.problem[name] == other.problem[name] for name in shared)
    )


def _telling(pairs: dict[str, Built]) -> tuple[int, int]:
    """Archs first, then stages and work: a path without tokens is compiled away."""
    return len(pairs), max(
        sum(work.flops for stage in pair.new.stages if (work := pair.new.run.work_of(stage)))
        for pair in pairs.values()
    )


# -- a hunk's own lines ----------------------------------------------------------------------------


def of_hunks(changes: Comparison, pairs: Sequence[Built]) -> list[list[str]]:
    """What became of the code of each hunk's changed lines: a sentence per arch, as HTML."""
    return [list(_joined(_of(hunk, pairs))) for hunk in changes.hunks]


def _of(hunk: Hunk, pairs: Sequence[Built]) -> Iterator[tuple[str, str]]:
    for pair in pairs:
        old, new = pair.old.of(hunk), pair.new.of(hunk)
        if said := [_step(f"{text} ", old[name], new[name])
                    for name, text in _COUNTED.items() if old[name] or new[name]]:  # fmt: skip
            yield pair.arch, ", ".join(said)


def _joined(said: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Archs of which the same is said, together."""
    archs: dict[str, list[str]] = {}
    for arch, sentence in said:
        archs.setdefault(sentence, []).append(arch)
    return (f"{', '.join(named)}: {sentence}" for sentence, named in archs.items())


def _step(before: str, old: int, new: int) -> str:
    shown = f"{new:,}" if old == new else f"{old:,} → <strong>{new:,}</strong>"
    return f"{before}{shown}"


# -- whole kernels ---------------------------------------------------------------------------------


def summary(changes: Comparison, pairs: Sequence[Built], link: Link) -> str:
    """The kernels that differ, with the changes that touch them; empty where no record tells."""
    rows = [row for pair in pairs for row in _rows(changes, pair)]
    if not pairs:
        return ""
    record = pairs[0].new.run.record
    made = ", ".join(
        f"{cell(pair.arch)} ({figures.record_link(pair.old.run, link, 'before')}, "
        f"{figures.record_link(pair.new.run, link, 'after')})"
        for pair in pairs
    )
    at = f"Compiled by the same tools at {cell(str(problems.problem_of(record)))} for {made}."
    if not rows:
        return f"{at} No kernel differs."
    return sections(factored(_HEAD, rows, "stage and arch"), f"{at} {_READING}")


_READING = (
    "A change below says how many instructions the compiler ascribes to its lines; code that it "
    "moved or merged counts where its line table puts it. Registers, spills and shared memory "
    "belong to a whole kernel: where several changes lie in its functions, no record splits them."
)


def _rows(changes: Comparison, pair: Built) -> Iterator[list[str]]:
    for name, old, new in pair.stages():
        touched = [
            number
            for number, hunk in enumerate(changes.hunks, 1)
            if (old and pair.old.touches(hunk, old)) or (new and pair.new.touches(hunk, new))
        ]
        figures = _figures(old, new)
        if touched or any("→" in figure for figure in figures):
            yield [cell(name), cell(pair.arch), *figures, _by(touched, old, new)]


def _figures(old: Stage | None, new: Stage | None) -> list[str]:
    columns = [list(_shown(stage)) if stage else ["none"] * 6 for stage in (old, new)]
    return [a if a == b else f"{a} → **{b}**" for a, b in zip(*columns, strict=True)]


def _shown(stage: Stage) -> Iterator[str]:
    facts = facts_of(stage)
    figures = (facts.registers, facts.spill_instructions, facts.stack_bytes, facts.instructions,
               facts.shared_bytes)  # fmt: skip
    yield from (f"{figure:,}" for figure in figures)
    yield cell(facts.mma_path)


def _by(touched: list[int], old: Stage | None, new: Stage | None) -> str:
    """The changes that lie in a kernel's functions, and what of its tiling differs."""
    tiling = _tiling(old, new)
    match touched:
        case []:
            said = "none"
        case [one]:
            said = f"[{one}](#change-{one}) alone"
        case several:
            said = ", ".join(f"[{n}](#change-{n})" for n in several) + ": together"
    return f"{said}; tiling: {tiling}" if tiling else said


def _tiling(old: Stage | None, new: Stage | None) -> str:
    """Fields of the tiling that both have and that differ."""
    if old is None or new is None:
        return ""
    return cell(", ".join(
        f"{name} {value} → {new.tiling[name]}"
        for name, value in old.tiling.items()
        if name in new.tiling and new.tiling[name] != value
    ))  # fmt: skip
