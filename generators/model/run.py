"""``Run``: a measurement record as pages read it, with address, staleness, time and work."""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.evidence import Duration, Passed, Record, Stage
from mla_var3.runtime import costs
from mla_var3.workloads import Cost


@dataclass(frozen=True)
class Run:
    """A measurement record with its address, and whether it is stale.

    Attributes:
        name: Address of the record, below ``results/``.
        record: The record.
        stale: Whether the version's sources changed since it was made.
    """

    name: str
    record: Record
    stale: bool

    @property
    def outcome(self) -> Passed | None:
        """Results of a run that passed; None for one that failed or was skipped."""
        return self.record.outcome if isinstance(self.record.outcome, Passed) else None

    @property
    def work(self) -> Cost | None:
        """FLOPs and least DRAM bytes of the whole, where today's cost model tells."""
        return costs.cost(self.record)

    def work_of(self, stage: Stage) -> Cost | None:
        """FLOPs and least DRAM bytes of one stage, where today's cost model tells."""
        return costs.cost(self.record, stage)

    @property
    def is_timed(self) -> bool:
        """Whether it states a time for the whole."""
        return self.outcome is not None and self.outcome.total is not None

    @property
    def total(self) -> Duration:
        """Time of the whole; only a run that is timed has one."""
        assert self.outcome is not None
        assert self.outcome.total is not None
        return self.outcome.total
