"""Trials of an automatic search: which ones are timed, which is fastest, what pruning cost."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mla_var3.campaign import surfaces
from mla_var3.campaign.cases import Outcome
from mla_var3.campaign.workspace import Workspace
from mla_var3.languages import ranking

REPORT, DATA = "auto.md", "auto.json"


@dataclass(frozen=True)
class Trial:
    """A candidate.

    Attributes:
        compiled: What its compile gave.
        score: By static facts; None where they prune it.
        timed: What its timing gave; None where it was not timed.
    """

    compiled: Outcome
    score: float | None
    timed: Outcome | None = None

    @property
    def name(self) -> str:
        """Version and tilings."""
        return f"{self.compiled.case.version} {surfaces.label(self.compiled)}"

    @property
    def is_default(self) -> bool:
        """Whether it is a version as it comes."""
        return not self.compiled.case.tilings

    @property
    def us(self) -> float | None:
        """Its time."""
        return self.timed.median_us if self.timed is not None else None


@dataclass(frozen=True)
class Regret:
    """What pruning and ordering by static facts cost and saved, where all candidates were timed.

    Attributes:
        loss: By which share the best of those that would have been timed is slower than the best.
        saving: Which share of the timing's wall time the others took.
        kept: How many would have been timed.
        all_: How many were.
    """

    loss: float
    saving: float
    kept: int
    all_: int

    def __str__(self) -> str:
        return (
            f"of {self.all_} timed candidates static facts keep {self.kept}: the best of them is "
            f"{self.loss:.1%} slower than the best of all, for {1 - self.saving:.0%} of the time"
        )


def regret(trials: Sequence[Trial], top: int) -> Regret | None:
    """What static facts cost and saved; None where the pruned ones were not timed.

    Args:
        trials: All trials of a run.
        top: How many of each version would have been timed beside its default.
    """
    timed = [trial for trial in trials if trial.us is not None]
    pruned = [trial for trial in timed if trial.score is None]
    kept = [trial for trial in chosen(trials, top) if trial.us is not None]
    could = [trial for trial in trials if trial.score is None and trial.compiled.record]
    if not kept or (could and not pruned):
        return None
    best, mine = (min(t.us for t in each if t.us is not None) for each in (timed, kept))
    spent = [sum(t.timed.seconds for t in each if t.timed) for each in (timed, kept)]
    return Regret(mine / best - 1, 1 - spent[1] / spent[0] if spent[0] else 0.0,
                  len(kept), len(timed))  # fmt: skip


def chosen(trials: Sequence[Trial], top: int) -> list[Trial]:
    """What is timed: of each version its default, then the best by static facts.

    Where stages are tuned alone they take turns, since their scores do not compare: of 18 trials of
    flash_mla_fp8 the best by score were all of its merge, and the tiling that made it 1.26 times
    faster was the only one of the other stage.
    """
    found = []
    for _, group in itertools.groupby(trials, key=lambda trial: trial.compiled.case.version):
        mine = list(group)
        stages: dict[tuple[str, ...], list[Trial]] = {}
        for trial in sorted(mine, key=lambda t: -(t.score or 0.0)):
            if trial.score is not None and not trial.is_default:
                stages.setdefault(tuple(trial.compiled.case.tilings), []).append(trial)
        alone = (ranking.ordered(one, lambda t: t.score or 0.0, _tile_size)
                 for one in stages.values())  # fmt: skip
        turns = itertools.zip_longest(*alone)
        ranked = [trial for turn in turns for trial in turn if trial is not None]
        found += [*(t for t in mine if t.is_default and t.compiled.record), *ranked[:top]]
    return found


def _tile_size(trial: Trial) -> int:
    return sum(ranking.tile_size(fields) for fields in trial.compiled.case.tilings.values())


def fastest(trials: Iterable[Trial]) -> Trial | None:
    """The fastest trial; None where nothing was timed."""
    timed = [trial for trial in trials if trial.us is not None]
    return min(timed, key=lambda trial: trial.us or math.inf, default=None)


def report(found: Workspace, trials: Sequence[Trial], top: int) -> str:
    """All trials as a page, the fastest first, then by static facts."""
    best, cost = fastest(trials), regret(trials, top)
    lines = [f"# Trials of campaign {found.settings.name}", ""]
    if best is not None:
        defaults = [t for t in trials if t.is_default and t.us is not None]
        lines += [
            f"Fastest: {best.name}, {best.us:,.2f} us. Defaults in the same run: "
            + (", ".join(f"{t.name} {t.us:,.2f} us" for t in defaults) or "none")
            + ".",
            "",
        ]
    else:
        first = next(iter(chosen([t for t in trials if not t.is_default], 1)), None)
        words = (
            f"Beside the default, static facts put {first.name} first" if first
            else "Static facts keep none beside the default"
        )  # fmt: skip
        lines += [f"Nothing was timed: this is not {found.settings.device}. {words}.", ""]
    if cost is not None:
        lines += [f"Pruning: {cost}.", ""]
    lines += ["| candidate | static score | time | |", "|---|---|---|---|"]
    order = sorted(trials, key=lambda t: (t.us or math.inf, -(t.score or 0.0)))
    return "\n".join([*lines, *map(_row, order)]) + "\n"


def _row(trial: Trial) -> str:
    score = "pruned" if trial.score is None else f"{trial.score:,.3g}"
    time_ = "" if trial.us is None else f"{trial.us:,.2f} us"
    said = trial.timed if trial.timed is not None and trial.us is None else trial.compiled
    text = str(said).replace("|", "/")
    return f"| {trial.name} | {score} | {time_} | {text} |"


def data(trials: Sequence[Trial], top: int) -> str:
    """The same for programs."""
    best, cost = fastest(trials), regret(trials, top)
    rows = [
        {"version": t.compiled.case.version, "tilings": t.compiled.case.tilings,
         "score": t.score, "median_us": t.us, "reason": t.compiled.reason}
        for t in trials
    ]  # fmt: skip
    content = {
        "best": best.name if best else None,
        "regret": dataclasses.asdict(cost) if cost else None,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "trials": rows,
    }
    return json.dumps(content, indent=1) + "\n"
