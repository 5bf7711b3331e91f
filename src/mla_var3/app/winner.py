"""Renders the results of ``compare`` and ``bench`` on one screen, winner first, from records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rich.table import Table

from mla_var3 import evidence
from mla_var3.evidence import Passed, Record, StaticFacts
from mla_var3.evidence.compare import Versus, median_us, than
from mla_var3.knowledge import metrics
from mla_var3.runtime import costs
from mla_var3.tables import axes

#: Rows of a table on one screen, and tables of counters.
ROWS, COUNTED = 16, 3
Pair = tuple[Record, Record]


def median(record: Record | None) -> float | None:
    """Median time of the whole; None where nothing was timed."""
    outcome = record.outcome if record is not None else None
    return outcome.total.median_us if isinstance(outcome, Passed) and outcome.total else None


def facts_of(record: Record) -> list[StaticFacts]:
    """What the compiler made of each stage."""
    return record.outcome.facts if isinstance(record.outcome, Passed) else []


def spills_of(record: Record) -> int:
    """Spill loads and stores of all stages."""
    return sum(facts.spill_instructions for facts in facts_of(record))


# -- two versions ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class SideBySide:
    """What the records of two versions say, as a screen shows it.

    Attributes:
        names: The versions, as readers tell them apart.
        timed: The second against the first, wherever a run timed both.
        compiled: Pairs compiled for one arch.
        counted: Pairs of which Nsight Compute counted, at one problem each.
    """

    names: tuple[str, str]
    timed: Versus
    compiled: tuple[Pair, ...]
    counted: tuple[Pair, ...] = ()

    @property
    def verdict(self) -> str:
        """Which of the two to take, in one sentence."""
        timed = self.timed
        if not timed.pairs:
            return self._on_paper
        first, second = self.names
        places = " and ".join(dict.fromkeys(pair.before.target for pair in timed.pairs))
        who = {"faster": f"{second} wins", "slower": f"{first} wins"}.get(
            timed.word, "No clear winner"
        )
        return f"{who}: {second} is {timed.than(first)}, in one run on {places}; {timed.counted}."

    @property
    def _on_paper(self) -> str:
        lost = "no time of one run compares them"
        spills = [sum(spills_of(pair[side]) for pair in self.compiled) for side in (0, 1)]
        if spills[0] == spills[1]:
            return f"No winner yet: {lost}."
        better = int(spills[1] < spills[0])
        return (
            f"{self.names[better]} leads on paper: {spills[better]:,} spill instructions against "
            f"{spills[1 - better]:,} over all archs; {lost}."
        )


def duel(names: tuple[str, str], timed: Versus, pairs: Iterable[Pair]) -> SideBySide:
    """Two versions side by side.

    Args:
        names: The versions, as readers tell them apart.
        timed: The second against the first.
        pairs: Records of both of the same target, mode and problem.
    """
    both = list(pairs)
    compiled = tuple(pair for pair in both if all(map(facts_of, pair)))
    counted = tuple(pair for pair in both if all(map(_has_counters, pair)))
    return SideBySide(names, timed, compiled, counted)


def _has_counters(record: Record) -> bool:
    outcome = record.outcome
    return isinstance(outcome, Passed) and any(stage.counters for stage in outcome.stages)


def duel_tables(found: SideBySide) -> list[Table]:
    """Times by problem, what the compiler made of both by arch, and what Nsight Compute counted."""
    made = []
    if found.timed.pairs:
        made.append(_times(found))
    if found.compiled:
        made.append(_compiled(found))
    return [*made, *(_counted(found.names, pair) for pair in found.counted[:COUNTED])]


def _times(found: SideBySide) -> Table:
    """A row per problem, named by what tells it from the others."""
    pairs = found.timed.pairs
    problems = [{"on": pair.before.target, **pair.before.problem} for pair in pairs]
    names = list(dict.fromkeys(name for problem in problems for name in problem))
    differing = [n for n in names if len({problem.get(n) for problem in problems}) > 1] or names
    fixed = axes({n: problems[0].get(n) for n in names if n not in differing})
    table = _table(f"us at {fixed}" if fixed else "us", "problem", *found.names, "")
    rows = [
        ([problem.get(name) for name in differing], pair)
        for problem, pair in zip(problems, pairs, strict=True)
    ]
    rows.sort(key=lambda row: [(isinstance(v, str), v or 0) for v in row[0]])
    for values, pair in rows[:ROWS]:
        at = axes(dict(zip(differing, values, strict=True)))
        times = (f"{median_us(record):,.1f}" for record in (pair.before, pair.after))
        table.add_row(at, *times, pair.said)
    if len(rows) > ROWS:
        table.caption = f"{len(rows) - ROWS} more problems: --verbose"
    return table


#: What a compile is judged by: the worst stage at the worst problem.
_JUDGED: dict[str, Callable[[Record], str]] = {
    "registers": lambda record: str(max(facts.registers for facts in facts_of(record))),
    "spills": lambda record: f"{spills_of(record):,}",
    "MMA": lambda record: ", ".join(dict.fromkeys(f.mma_path for f in facts_of(record))),
}


def _compiled(found: SideBySide) -> Table:
    table = _table(f"compiled, {found.names[0]} to {found.names[1]}", "arch", *_JUDGED)
    worst: dict[str, Pair] = {}
    for pair in found.compiled:
        best = worst.setdefault(pair[0].target, pair)
        if sum(map(spills_of, pair)) > sum(map(spills_of, best)):
            worst[pair[0].target] = pair
    for target, (one, other) in sorted(worst.items(), key=lambda item: (len(item[0]), item[0])):
        cells = [(read(one), read(other)) for read in _JUDGED.values()]
        shown = (old if old == new else f"{old} to {new}" for old, new in cells)
        table.add_row(target.removeprefix(evidence.model.STATIC), *shown)
    return table


#: What counters say of a stage: a metric's name, how it is called, and its digits.
_COUNTERS = (
    ("tensor_pipe_percent", "tensor pipe, %", 1), ("dram_percent", "DRAM, %", 1),
    ("achieved_occupancy_percent", "occupancy, %", 1), ("local_memory_bytes", "spilled bytes", 0),
)  # fmt: skip
REGISTERS = "launch__registers_per_thread"


def _counted(names: tuple[str, str], pair: Pair) -> Table:
    """A column per version and stage, a row per counter."""
    where = axes({"on": pair[0].target, **pair[0].problem})
    stages = [(n, r, s) for n, r in zip(names, pair, strict=True) for s in _stages(r)]
    alone = len(stages) == len(pair)
    titles = [name if alone else f"{name} {stage.name}" for name, _, stage in stages]
    table = _table(f"counted by Nsight Compute, {where}", "", *titles)
    for metric, said, digits in _COUNTERS:
        values = (metrics.metric(metric).read(record, stage) for _, record, stage in stages)
        table.add_row(said, *("" if v is None else f"{v:,.{digits}f}" for v in values))
    counts = (stage.counters.get(REGISTERS) for _, _, stage in stages)
    table.add_row("registers", *("" if count is None else f"{count:.0f}" for count in counts))
    return table


def _stages(record: Record) -> list[evidence.Stage]:
    return list(record.outcome.stages) if isinstance(record.outcome, Passed) else []


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    return table


# -- many versions ---------------------------------------------------------------------------------


def podium(found: Sequence[tuple[str, Record | None]]) -> str:
    """Which of many versions to take, in one sentence.

    Args:
        found: Versions by name, each with its record.
    """
    timed = sorted(
        (time, name, record) for name, record in found
        if record is not None and (time := median(record)) is not None
    )  # fmt: skip
    if not timed:
        return _least_spills(found)
    time, name, record = timed[0]
    said = f"{name} wins: {time:,.1f} us"
    if (share := costs.fraction(record)) is not None:
        said += f", {share:.0%} of the bound"
    if len(timed) > 1:
        after, second, other = timed[1]
        one_run = record.run == other.run
        how = f"next is {second}, {after:,.1f} us in another run"
        said += f"; {than(after, time, second)}, the next" if one_run else f"; {how}"
    return f"{said}."


def _least_spills(found: Sequence[tuple[str, Record | None]]) -> str:
    totals: dict[str, int] = {}
    for name, record in found:
        if record is not None and facts_of(record):
            totals[name] = totals.get(name, 0) + spills_of(record)
    if not totals:
        return "No winner: nothing was timed or compiled."
    least = min(totals.values())
    names = [name for name, spills in totals.items() if spills == least]
    more = f" and {len(names) - 2} more" if len(names) > 3 else ""
    told = ", ".join(names[: 2 if more else 3])
    return f"No winner without a GPU; least spills ({least:,}): {told}{more}."


def ranking(found: Sequence[tuple[str, Record | None, str]]) -> Table:
    """Versions from the fastest to the slowest, then those with no time, each in one line.

    Args:
        found: Versions by name, each with its record, or why there is none.
    """
    table = _table("bench", "version", "where", "us", "of the bound", "registers", "spills", "MMA")
    for name, record, absent in sorted(found, key=_order):
        if record is None:
            table.add_row(name, "absent", "", "", "", "", absent)
            continue
        table.add_row(name, record.target, *_line(record))
    return table


def _order(row: tuple[str, Record | None, str]) -> tuple[bool, bool, float, int]:
    record = row[1]
    time = median(record)
    spills = spills_of(record) if record is not None else 0
    ended = record is not None and isinstance(record.outcome, Passed)
    return not ended, time is None, time or 0.0, spills


def _line(record: Record) -> list[str]:
    outcome = record.outcome
    if isinstance(outcome, evidence.Failed):
        return ["failed", "", "", "", outcome.error]
    if isinstance(outcome, evidence.Skipped):
        return ["skipped", "", "", "", outcome.reason]
    time, share = median(record), costs.fraction(record)
    facts = facts_of(record)
    judged = [read(record) for read in _JUDGED.values()] if facts else ["", "", ""]
    return [
        "" if time is None else f"{time:,.1f}",
        "" if share is None else f"{share:.0%}",
        *judged,
    ]
