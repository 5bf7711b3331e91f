"""Backtest of the advice: counts past speedups whose pattern it would have ranked in the top 3.

For each step that gained, the advice is asked about the version before it. Nothing that the step
itself taught is known to the advice: the gains of the same two versions, on whatever problem, are
left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mla_var3.evidence.compare import Comparison, neighbors
from mla_var3.knowledge import history
from mla_var3.knowledge.history import Gain
from mla_var3.knowledge.matching import WORTH, match
from mla_var3.knowledge.pages import Catalogue

#: The least gain of a step that advice should have pointed at: what is worth a word.
GAINED = WORTH
TOP = 3


@dataclass(frozen=True)
class Case:
    """One step and the advice for the version before it.

    Attributes:
        step: The step.
        applied: Ids of the pages that it followed; none where no page describes it.
        advised: Ids of the pages that lead the advice, best first; what stands beside them as
            "see also" counts for nothing.
        beside: The same, each with the pages that say the same.
        promised: Gain that the first applied page promised; None where none is advised or measured.
    """

    step: Comparison
    applied: tuple[str, ...]
    advised: tuple[str, ...]
    beside: tuple[tuple[str, ...], ...] = ()
    promised: float | None = None

    @property
    def place(self) -> int | None:
        """Place of the first applied page, from 1; None when none was advised."""
        places = (i for i, page in enumerate(self.advised, 1) if page in self.applied)
        return next(places, None)

    def __str__(self) -> str:
        where = "-" if self.place is None else self.place
        applied = ", ".join(self.applied) or "no page describes it"
        first = ", ".join(self.advised[:TOP]) or "silence"
        step = f"{where:>2}  {self.step.gain:5.2f}x  {history.name(self.step)}"
        return f"{step}: {applied}; advised {first}"


@dataclass(frozen=True)
class Backtest:
    """All cases of a history.

    Attributes:
        cases: The steps that gained at least ``GAINED``, in path order.
        advised: Ids of the pages advised for each timed record, today's knowledge and all gains.
    """

    cases: tuple[Case, ...]
    advised: tuple[tuple[str, ...], ...]

    @property
    def described(self) -> tuple[Case, ...]:
        """Cases whose step some page describes."""
        return tuple(case for case in self.cases if case.applied)

    def within(self, places: int) -> int:
        """Cases in which an applied page stood among the first ``places``."""
        return sum(case.place is not None and case.place <= places for case in self.cases)

    @property
    def silent(self) -> int:
        """Timed records for which nothing is advised."""
        return sum(not pages for pages in self.advised)

    def __str__(self) -> str:
        return (
            f"{len(self.cases)} steps gained at least {GAINED}x, {len(self.described)} of them "
            f"described by a page: its page stood in the top {TOP} {self.within(TOP)} times, "
            f"first {self.within(1)} times; of {len(self.advised)} timed records "
            f"{self.silent} get no advice"
        )


def backtest(catalogue: Catalogue, *, held_out: bool = False) -> Backtest:
    """Replay the advice over every timed record of a checkout.

    Args:
        catalogue: The pages and records.
        held_out: Forget, before each step, all that its design taught in any language.
    """
    records = history.timed(catalogue)
    gains = history.gains(catalogue)
    steps = [step for step in neighbors(records) if step.gain >= GAINED]
    cases = tuple(_case(step, catalogue, gains, held_out) for step in steps)
    advised = tuple(
        tuple(found.page.pattern.id for found in match(record, catalogue, gains))
        for record in records
    )
    return Backtest(cases, advised)


def _case(
    step: Comparison, catalogue: Catalogue, gains: Mapping[str, Sequence[Gain]], held_out: bool
) -> Case:
    own = history.transition(step)

    def forgotten(gain: Gain) -> bool:
        return gain.transition == own or (held_out and gain.transition[2] == own[2])

    known = {page: [gain for gain in found if not forgotten(gain)] for page, found in gains.items()}
    advised = match(step.before, catalogue, known)
    pages = tuple(page.pattern.id for page in history.applied(step, catalogue))
    promises = (found.gain for found in advised if set(found.ids) & set(pages))
    return Case(
        step, pages, tuple(found.page.pattern.id for found in advised),
        tuple(found.ids for found in advised), next(promises, None),
    )  # fmt: skip
