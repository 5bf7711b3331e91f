"""How a version compares with the one before it, as badges, headlines and chips say it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from generators.model import problems
from generators.model.problems import NOISE
from generators.write.text import cell
from mla_var3.runtime.registry import Version

if TYPE_CHECKING:
    from generators.model.run import Run
    from generators.model.site import Site

#: Mark of what rests on a stale record.
STALE = " (stale)"

Word = Literal["start", "not measured", "negative result", "mixed", "faster", "slower", "neutral"]


@dataclass(frozen=True)
class Step:
    """One problem at which a version and the one before ran in the same run.

    Attributes:
        run: The version's run.
        at: What tells the problem from the others.
        gain: Time before over time after.
        stale: Whether the sources of one of the two have changed since.
    """

    run: Run
    at: str
    gain: float
    stale: bool

    @property
    def word(self) -> Literal["faster", "slower", "neutral"]:
        """Which way it went, if any."""
        if abs(1 - 1 / self.gain) < NOISE:
            return "neutral"
        return "faster" if self.gain > 1 else "slower"

    @property
    def said(self) -> str:
        """The gain as people say it."""
        return problems.percent(1.0, self.gain)

    @property
    def where(self) -> str:
        """The problem, and whether what was measured there is stale."""
        return self.at + STALE * self.stale


@dataclass(frozen=True)
class Verdict:
    """What became of a version.

    Attributes:
        before: The version before; None for the first.
        negative: Whether its entry is marked as a failure.
        steps: All problems compared, in order.
    """

    before: Version | None
    negative: bool
    steps: tuple[Step, ...]

    @cached_property
    def word(self) -> Word:
        """The verdict in a word or two."""
        if self.before is None:
            return "start"
        if self.negative:
            return "negative result"
        if not self.steps:
            return "not measured"
        words = {step.word for step in self.steps} - {"neutral"}
        return "mixed" if len(words) > 1 else next(iter(words), "neutral")

    @cached_property
    def extremes(self) -> tuple[Step, Step]:
        """The step that gained most and the one that gained least."""
        ordered = sorted(self.steps, key=lambda step: step.gain)
        return ordered[-1], ordered[0]

    @property
    def badge(self) -> str:
        """The verdict as a mark: a shape, a word and the changes from least to most."""
        said = self.range
        if said and self.word in ("faster", "slower"):
            return badge(self.word, said)
        if self.before and self.word == "neutral":
            said = f"as fast as {self.before.version}"
        return badge(self.word, ", ".join(filter(None, [self.word, said])))

    @property
    def range(self) -> str:
        """From the worst change to the best over all problems; empty where there is none."""
        words = {step.word for step in self.steps}
        if not words - {"neutral"}:
            return ""
        most, least = self.extremes
        if {"faster", "slower"} <= words:
            said = f"{least.said} to {most.said}"
        else:
            first = most if "faster" in words else least
            last = least if first is most else most
            every = len(self.steps) > 1 and "neutral" not in words and first.said != last.said
            said = f"{last.said.rsplit(maxsplit=1)[0]} to {first.said}" if every else first.said
            said = f"up to {said}" if "neutral" in words else said
        than = f" than {self.before.version}" if self.before else ""
        return said + than + self._many + STALE * any(step.stale for step in self.steps)

    @property
    def _many(self) -> str:
        """At how many problems of all it changed."""
        changed = sum(step.word != "neutral" for step in self.steps)
        if changed < len(self.steps):
            return f" at {changed} of {len(self.steps)} problems"
        return f", {changed} problems" if changed > 1 else ""

    @property
    def largest(self) -> Step | None:
        """The step that tells most: the largest change in the direction of the verdict."""
        if not self.steps:
            return None
        most, least = self.extremes
        if self.word == "negative result":
            return least
        return most if most.gain * least.gain >= 1 else least

    @property
    def headline(self) -> str:
        """One sentence on how it compares, without a full stop; empty where nothing does."""
        if self.before is None or not self.steps:
            return ""
        (most, least), than = self.extremes, f"than {self.before.version}"
        up, down = most.word == "faster", least.word == "slower"
        if up and down:
            return f"Up to {most.said} {than} at {most.where}, up to {least.said} at {least.where}"
        if not up and not down:
            return f"As fast as {self.before.version}, within {NOISE:.0%} at every problem measured"
        telling = most if up else least
        upto = "" if len(self.steps) == 1 else "Up to "
        return f"{upto}{telling.said} {than} at {telling.where}"


def of(site: Site, version: Version, before: Version | None) -> Verdict:
    """The verdict on a version, from records and its devlog entry."""
    devlog = site.catalogue.devlogs.get(version.design_key)
    entries = {entry.version: entry for entry in devlog.entries} if devlog else {}
    entry = entries.get(version.version)
    found = _pairs(site, before, version) if before else []
    varying = problems.varying_shared([new.record for _, new in found])
    ordered = sorted(found, key=lambda pair: problems.problem_of(pair[1].record).order)
    steps = tuple(_step(old, new, varying) for old, new in ordered)
    return Verdict(before, bool(entry and entry.negative), steps)


def _step(old: Run, new: Run, varying: list[str]) -> Step:
    at = problems.sizes(new.record, varying) or str(problems.problem_of(new.record))
    return Step(new, at, old.total.median_us / new.total.median_us, old.stale or new.stale)


def _pairs(site: Site, before: Version, after: Version) -> list[tuple[Run, Run]]:
    """Runs of two versions that timed the same problem in the same run, each with its best n."""
    old, new = _fastest(site.runs_of(before)), _fastest(site.runs_of(after))
    return [(old[key], run) for key, run in new.items() if key in old]


def _fastest(runs: Iterable[Run]) -> dict[tuple[object, ...], Run]:
    """By what times must share to compare; a version may take a problem in several ways."""
    timed = [run for run in runs if run.is_timed and run.record.run is not None]
    slowest_first = sorted(timed, key=lambda run: -run.total.median_us)
    return {together(run): run for run in slowest_first}


def together(run: Run) -> tuple[object, ...]:
    """What two runs must share for their times to compare."""
    record = run.record
    return record.run, record.target, record.mode, problems.problem_of(record)


# -- pieces of HTML --------------------------------------------------------------------------------


def badge(word: str, text: str) -> str:
    """A mark whose class names its colour and shape."""
    kind = word.split()[0]
    return f'<span class="badge badge--{kind}">{cell(text)}</span>'


def bar(share: float) -> str:
    """A share as a number with a bar behind it."""
    return f'<span class="share" style="--share:{min(share, 1):.3f}">{share:.0%}</span>'


def chips(steps: tuple[Step, ...]) -> str:
    """A chip per problem: where, and the change in time with its sign."""
    shown = "".join(
        f'<li class="chip chip--{step.word}"><span>{cell(step.at)}</span> '
        f"<strong>{100 * (1 / step.gain - 1):+.1f} %</strong>{STALE * step.stale}</li>"
        for step in steps
    )
    return f'<ul class="chips">{shown}</ul>' if shown else ""
