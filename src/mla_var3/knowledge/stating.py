"""Lists the facts that advice rests on for each stage of a record: a value, or why there is none.

A fact may have no meaning for a stage, such as waits for warpgroup products where an arch has none,
or nobody may have observed it. The two are told apart, and neither is an empty field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from mla_var3 import evidence, languages
from mla_var3.archs import base_arch
from mla_var3.evidence import CheckedCase, Passed, Record, Stage, StaticFacts
from mla_var3.knowledge import losses, metrics, tiles
from mla_var3.runtime import costs
from mla_var3.static import sass

Standing = Literal["stated", "no meaning", "not observed"]


@dataclass(frozen=True)
class Statement:
    """One fact of a stage.

    Attributes:
        fact: Its name.
        standing: Whether it is stated, means nothing there, or was not observed.
        text: The value with its unit, or the reason.
    """

    fact: str
    standing: Standing
    text: str

    def __str__(self) -> str:
        return f"{self.fact}: {self.text}"


@dataclass(frozen=True)
class _Asked:
    """A stage of a record, with what several facts need."""

    record: Record
    stage: Stage
    facts: StaticFacts | None

    @property
    def language(self) -> languages.Language:
        return languages.find(self.record.kernel.language)

    @property
    def multiplies(self) -> bool:
        return self.facts is not None and self.facts.mma_path != "none"

    def value(self, name: str) -> object:
        """A metric of the stage, None where the record does not state it."""
        return metrics.metric(name).read(self.record, self.stage)


class _NoMeaningError(Exception):
    """A fact means nothing for a stage; says why."""


class _NotObservedError(Exception):
    """Nobody observed a fact of a stage; says why."""


def stated(record: Record, stage: Stage) -> list[Statement]:
    """Every fact of a stage, each with its value or the reason why it has none.

    Args:
        record: Static, or joined with a static one of the same sources.
        stage: One of its stages.
    """
    facts = stage.static if stage.static is not None and stage.static.ok else None
    asked = _Asked(record, stage, facts)
    return [_statement(name, reader, asked) for name, reader in FACTS.items()]


def _statement(name: str, reader: _Reader, asked: _Asked) -> Statement:
    try:
        return Statement(name, "stated", reader(asked))
    except _NoMeaningError as reason:
        return Statement(name, "no meaning", str(reason))
    except _NotObservedError as reason:
        return Statement(name, "not observed", str(reason))


def of_record(record: Record) -> Iterator[tuple[Stage, list[Statement]]]:
    """The facts of each stage of a record; none of one that did not pass."""
    if isinstance(record.outcome, Passed):
        for stage in record.outcome.stages:
            yield stage, stated(record, stage)


def newest(records: Iterable[Record], words: Sequence[str] = ()) -> list[Record]:
    """The newest static record of each version, arch and problem, in that order.

    Args:
        records: Any records.
        words: Design, with ``@language`` where wanted, and version; all by default.
    """
    design, _, language = (words[0] if words else "").partition("@")
    found = evidence.newest(
        record
        for record in records
        if record.is_static
        and design in ("", record.kernel.design)
        and language in ("", record.kernel.language)
        and (len(words) < 2 or words[1] == record.kernel.version)
    )
    return sorted(found, key=lambda record: record.key)


# -- launch ---------------------------------------------------------------------------------------


def _grid(asked: _Asked) -> str:
    found = losses.grid(asked.record, asked.stage)
    if not found:
        raise _NotObservedError("the host code chooses it, and no compile of this problem ran it")
    return " x ".join(map(str, found))


def _waves(asked: _Asked) -> str:
    return f"{_of_waves(asked, 'waves'):.3g}"


def _last_wave(asked: _Asked) -> str:
    return f"{_of_waves(asked, 'last_wave_fill'):.0%} of its places"


def _of_waves(asked: _Asked, name: str) -> float:
    _grid(asked)
    found = asked.value(name)
    if not isinstance(found, float):
        raise _NotObservedError(_without_occupancy(asked))
    return found


def _without_occupancy(asked: _Asked) -> str:
    if asked.facts is None:
        return "no compile tells how many blocks an SM holds"
    return "no device file of this arch tells how many SMs there are, or a block does not fit"


# -- counted work ---------------------------------------------------------------------------------


def _case(asked: _Asked, name: str) -> CheckedCase:
    """The first checked problem that counted something."""
    outcome = asked.record.outcome
    checked = outcome.correctness if isinstance(outcome, Passed) else None
    cases = checked.cases if checked is not None else []
    for case in cases:
        if getattr(case, name) is not None:
            return case
    raise _NotObservedError("the record has no run on a CPU that counted it")


def _least(asked: _Asked, case: CheckedCase, name: str) -> int:
    """FLOPs or bytes that the problem of a case needs at least."""
    found = costs.of_case(asked.record, case)
    if found is None or not getattr(found, name):
        raise _NotObservedError("the version no longer tells the work of the problem that ran")
    return int(getattr(found, name))


def _on(case: CheckedCase) -> str:
    sizes = ", ".join(
        f"{axis}={value}" for axis, value in case.problem.items()
        if isinstance(value, int) and not isinstance(value, bool)
    )  # fmt: skip
    return f" (all stages, at {sizes})"


def _flops(asked: _Asked) -> str:
    case = _case(asked, "mma_flops")
    if not case.mma_flops:
        raise _NoMeaningError("no matrix product ran")
    return f"{case.mma_flops / _least(asked, case, 'flops'):.3g} times the algorithmic{_on(case)}"


def _rows(asked: _Asked) -> str:
    """Rows used of rows computed; where a tiling names no rows, the share of FLOPs needed."""
    if not asked.multiplies:
        raise _NoMeaningError("the stage multiplies nothing")
    fill = tiles.tile_fill(asked.record, asked.stage)
    if fill is not None:
        return f"{min(1.0, fill):.0%} of a tile that could be full"
    case = _case(asked, "mma_flops")
    least = costs.of_case(asked.record, case)
    if least is None or not case.mma_flops:
        raise _NotObservedError("the version no longer tells the work of the problem that ran")
    return f"{min(1.0, least.flops / case.mma_flops):.0%} of the FLOPs that ran{_on(case)}"


def _bytes(asked: _Asked) -> str:
    case = _case(asked, "bytes_loaded")
    moved = (case.bytes_loaded or 0) + (case.bytes_stored or 0)
    return f"{moved / _least(asked, case, 'bytes'):.3g} times the least{_on(case)}"


def _conflicts(asked: _Asked) -> str:
    _require_threads(asked)
    case = _case(asked, "bank_conflicts")
    return f"{case.bank_conflicts:,} extra wavefronts{_on(case)}"


def _sectors(asked: _Asked) -> str:
    _require_threads(asked)
    case = _case(asked, "sectors")
    if not case.least_sectors:
        raise _NoMeaningError("TMA moves everything, by whole boxes")
    return f"{(case.sectors or 0) / case.least_sectors:.3g} times the least{_on(case)}"


def _require_threads(asked: _Asked) -> None:
    if asked.language.cpu_builds is None:
        raise _NoMeaningError(
            f"a source in {asked.language.title} names no threads: its compiler decides which "
            "thread accesses what, and the run on a CPU is of tiles"
        )


# -- compiled code --------------------------------------------------------------------------------


def _compiled(asked: _Asked) -> StaticFacts:
    if asked.facts is None:
        raise _NotObservedError("the record holds no compile")
    return asked.facts


def _shared_read(asked: _Asked) -> str:
    facts = _compiled(asked)
    if not asked.multiplies:
        raise _NoMeaningError("the stage multiplies nothing")
    found = losses.shared_bytes_per_flop(facts)
    if found is None:
        raise _NoMeaningError(
            "not every product is a warpgroup's" if "GMMA" in facts.mma_path else
            f"{facts.mma_path} has no operand in shared memory whose shape its opcode names"
        )  # fmt: skip
    return f"{found:.3g} bytes per FLOP at most"


def _waits(asked: _Asked) -> str:
    facts = _compiled(asked)
    products = [sass.mma_family(opcode) for opcode in facts.mma_instructions]
    if "GMMA" not in products:
        raise _NoMeaningError(
            "the stage multiplies nothing" if not asked.multiplies else
            f"{base_arch(facts.arch)} took {facts.mma_path}, no warpgroup products"
        )  # fmt: skip
    found = getattr(facts, "waits_per_wgmma", None)
    if found is None:
        raise _NotObservedError("the compile was recorded before waits were read")
    return f"{found:.3g}"


def _registers(asked: _Asked) -> str:
    facts = _compiled(asked)
    return f"{facts.registers} per thread" + (
        f", {facts.most_registers} where it multiplies"
        if facts.most_registers != facts.registers else ""
    )  # fmt: skip


def _spills(asked: _Asked) -> str:
    return f"{_compiled(asked).spill_instructions} instructions"


def _in_flight(asked: _Asked) -> str:
    facts = _compiled(asked)
    depth = getattr(facts, "ring_depth", None)
    if isinstance(depth, int):
        return str(depth)
    if not facts.tma_loads and not facts.async_copies:
        raise _NoMeaningError("no load is asynchronous: a step loads when it needs")
    if not asked.multiplies:
        raise _NoMeaningError("the stage multiplies nothing, so that no product hides a load")
    if not facts.tma_loads:
        raise _NoMeaningError("its copies are LDGSTS, which threads wait for by groups and no ring")
    if facts.tensor_memory_columns:
        raise _NoMeaningError("barriers of tensor memory lie among those of loads and tell no ring")
    raise _NotObservedError("the barriers of the compile tell no ring, or were not read")


_Reader = Callable[[_Asked], str]
#: What static records state, in the order of a report.
FACTS: dict[str, _Reader] = {
    "grid": _grid,
    "waves": _waves,
    "last wave": _last_wave,
    "rows used": _rows,
    "FLOPs": _flops,
    "bytes": _bytes,
    "shared memory read": _shared_read,
    "bank conflicts": _conflicts,
    "sectors": _sectors,
    "waits per wgmma": _waits,
    "registers": _registers,
    "spills": _spills,
    "stages in flight": _in_flight,
}
