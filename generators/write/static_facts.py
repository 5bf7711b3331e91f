"""Makes tables of compile facts (registers, spills, MMA) of a version beside the one before."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from generators.model import problems, targets
from generators.model.run import Run
from generators.write import figures
from generators.write.text import cell, factored
from mla_var3.evidence import Stage, StaticFacts
from mla_var3.knowledge.evidence import Link
from mla_var3.languages import languages
from mla_var3.runtime import tiling_text
from mla_var3.runtime.registry import Version
from mla_var3.static.occupancy import of_facts

_HEAD = (
    "Registers", "Spill loads / stores (stack, bytes)", "Shared memory, bytes", "Warps per block",
    "MMA path", "TMA loads / stores", "Blocks per SM (limit)", "Of its language",
)  # fmt: skip
_TABLE = ("Stage", "Tiling", *_HEAD, "Records")


@dataclass(frozen=True)
class Compiled:
    """One stage as one record has it."""

    run: Run
    stage: Stage
    facts: StaticFacts

    def cells(self) -> tuple[str, ...]:
        """The figures shown, by column of ``_HEAD``."""
        facts = self.facts
        if facts.error is not None:
            return (cell(f"failed: {facts.error}"), *[""] * (len(_HEAD) - 1))
        held = of_facts(facts)
        spills = facts.spill_loads, facts.spill_stores, facts.stack_bytes
        return (
            str(facts.registers),
            "{} / {} ({:,})".format(*spills) if any(spills) else "none",
            f"{facts.shared_bytes:,}",
            str(facts.warps_per_block),
            cell(facts.mma_path),
            f"{facts.tma_loads} / {facts.tma_stores}",
            f"{held.blocks_per_sm} ({held.limiter})" if held else "",
            cell(", ".join(self._own())),
        )

    def _own(self) -> Iterator[str]:
        """What only the language's compiler says: its metrics that are read from the facts."""
        language = languages().get(self.run.record.kernel.language)
        for metric in language.metrics if language else ():
            value = metric.read(self.stage.tiling, self.facts)
            if metric.origin == "static" and value is not None:
                yield f"{metric.name.replace('_', ' ')} {value}"


def _compiled(runs: Iterable[Run]) -> list[Compiled]:
    return [
        Compiled(run, stage, stage.static)
        for run in runs
        for stage in (run.outcome.stages if run.outcome else ())
        if stage.static is not None
    ]


def _place(item: Compiled, version: Version) -> tuple[str, str, problems.Problem]:
    """What the same stage of another version has in common with this one."""
    name = item.stage.name.replace(version.name, version.design)
    return item.run.record.target, name, problems.problem_of(item.run.record)


def facts_tables(
    runs: list[Run], version: Version, earlier: list[Run], before: Version | None, link: Link
) -> dict[str, str]:
    """Static facts of a version by stage; equal ones of several problems in one row.

    Args:
        runs: Records of the version.
        version: The version.
        earlier: Records of the version before.
        before: The version before; None for the first.
        link: Addresses as seen from the page.

    Returns:
        What was found for each target that stages were compiled for, by its name.
    """
    found = _compiled(runs)
    old = {_place(item, before): item for item in _compiled(earlier)} if before else {}
    varying = problems.varying([item.run.record for item in found])
    tables: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for item in found:
        cells = item.cells()
        if (other := old.get(_place(item, version))) is not None:
            cells = tuple(map(_change, other.cells(), cells))
        key = (cell(item.stage.name), cell(tiling_text(item.stage.tiling)), *cells)
        label = problems.sizes(item.run.record, varying) or "record"
        rows = tables.setdefault(targets.target_name(item.run.record.target), {})
        rows.setdefault(key, []).append(figures.record_link(item.run, link, cell(label)))
    return {
        name: factored(
            _TABLE, [[*key, "<br>".join(links)] for key, links in rows.items()], "stage and problem"
        )
        for name, rows in sorted(tables.items(), key=lambda item: (len(item[0]), item[0]))
    }


def tiling_words(runs: Iterable[Run], version: Version) -> str:
    """What the fields of the version's tilings mean, of those that its records set."""
    set_ = {name for run in runs for stage in (run.outcome.stages if run.outcome else ())
            for name, value in stage.tiling.items() if value is not None}  # fmt: skip
    told = {
        field.name: field.metadata.get("help", "")
        for kind in version.plan_class().tiling_types.values()
        for field in dataclasses.fields(kind)
        if field.name in set_
    }
    said = "; ".join(f"`{name}`: {cell(text)}" for name, text in told.items() if text)
    return f"Fields of the tiling: {said}." if said else ""


def _change(old: str, new: str) -> str:
    return new if old == new else f"{old or 'none'} → **{new}**"
