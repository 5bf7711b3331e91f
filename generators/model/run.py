"""A record and where it lies."""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.evidence import Duration, Passed, Record


@dataclass(frozen=True)
class Run:
    """A record and where it lies.

    Attributes:
        name: Path of the record from the top of the checkout.
        record: The record.
        stale: Whether the version's sources changed since it was made.
    """

    name: str
    record: Record
    stale: bool

    @property
    def outcome(self) -> Passed | None:
        """What a run that ended found; None for one that failed or was skipped."""
        return self.record.outcome if isinstance(self.record.outcome, Passed) else None

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
