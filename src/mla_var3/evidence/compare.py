"""Compares the times of two versions in one run: one noise threshold and one wording for all.

Times compare within one run only. Two versions are as fast as each other where their medians of one
run differ by less than ``NOISE``; else one of them is faster. The rule is worked out from
repetition: of every two versions that two or more runs timed at the same problem from the same
sources, how far the ratio of their medians moved from run to run (``repeats``). Of the 611
repetitions among the committed records, all on H200s, half moved by less than 0.4 %, three quarters
by less than 0.9 % and nineteen of twenty by less than 2.5 %, which is the rule. Where both ratios
were beyond it, 316 times, the two runs never named different winners.

It says nothing of two times of different runs: one and the same version moved by 1.3 % in the
median and by 7.6 % in one of ten between runs, with the temperature and clock of the board.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from mla_var3.evidence.model import Passed, Record
from mla_var3.versions import number_of

#: Medians of one run that differ by a smaller share are as fast as each other.
NOISE = 0.025

Word = Literal["faster", "slower", "as fast"]
#: What is said over all problems.
Whole = Word | Literal["mixed"]
Problem = Callable[[Record], Hashable]


def word(before_us: float, after_us: float) -> Word:
    """Whether the second of two times of one run is faster than the first."""
    if max(before_us, after_us) < min(before_us, after_us) * (1 + NOISE):
        return "as fast"
    return "faster" if after_us < before_us else "slower"


def said(before_us: float, after_us: float) -> str:
    """How the second of two times of one run compares: ``1.8x faster``, ``2.1x slower``."""
    found = word(before_us, after_us)
    if found == "as fast":
        return found
    return f"{times(max(before_us, after_us) / min(before_us, after_us))} {found}"


def times(factor: float) -> str:
    """A factor as people say it: ``1.05x``, ``1.8x``, ``12x``."""
    digits = 3 if factor < 1.1 else 2
    return f"{float(f'{factor:.{digits}g}'):g}x"


def time_text(share: float) -> str:
    """A time as a share of another, in words: ``4.5 % less time``, ``12 % more time``."""
    percent = f"{float(f'{100 * abs(1 - share):.2g}'):g}"
    return f"{percent} % {'less' if share < 1 else 'more'} time" if percent != "0" else "equal time"


def than(before_us: float, after_us: float, name: str) -> str:
    """Comparison in words, with the other version: ``1.8x faster than v1``, ``as fast as v1``."""
    found = said(before_us, after_us)
    return f"{found} {'as' if found == 'as fast' else 'than'} {name}"


def median_us(record: Record) -> float:
    """Median time of the whole; of a timed record only."""
    assert isinstance(record.outcome, Passed)
    assert record.outcome.total is not None
    return record.outcome.total.median_us


# -- two versions ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """Two versions at one problem in one run.

    Attributes:
        before: Record of the one that is compared with.
        after: Record of the other, which is faster or slower.
    """

    before: Record
    after: Record

    @property
    def gain(self) -> float:
        """How many times faster the second is; below 1 it is slower."""
        return median_us(self.before) / median_us(self.after)

    @property
    def word(self) -> Word:
        """Whether the second is faster."""
        return word(median_us(self.before), median_us(self.after))

    @property
    def said(self) -> str:
        """Comparison in words, as a factor: ``1.8x faster``."""
        return said(median_us(self.before), median_us(self.after))


@dataclass(frozen=True)
class Versus:
    """One version against another at all problems that a run timed both at.

    Attributes:
        pairs: The problems, each with both records.
    """

    pairs: tuple[Comparison, ...]

    @cached_property
    def median(self) -> float:
        """Median over all problems, won and lost, of how many times faster the second is."""
        return statistics.median(pair.gain for pair in self.pairs)

    @cached_property
    def directions(self) -> set[Literal["faster", "slower"]]:
        """Directions of all problems at which the second is not as fast."""
        found = {pair.word for pair in self.pairs}
        return {way for way in ("faster", "slower") if way in found}

    @cached_property
    def word(self) -> Whole:
        """Whether the second is faster: at some problem, and slower at none; or the other way."""
        if len(self.directions) > 1:
            return "mixed"
        return next(iter(self.directions), "as fast")

    def than(self, name: str) -> str:
        """The second against the first in words, over all problems.

        Args:
            name: The first.
        """
        span = list(dict.fromkeys((self.worst.said, self.best.said)))
        if "as fast" in span:
            return " to ".join([f"as fast as {name}", *(one for one in span if one != "as fast")])
        return f"{' to '.join(span)} than {name}"

    @property
    def counted(self) -> str:
        """At how many problems the second is ahead, and at how many behind."""
        ahead, behind = self.count("faster"), self.count("slower")
        return f"ahead at {ahead} and behind at {behind} of {len(self.pairs)} problems"

    @property
    def told(self) -> str:
        """The verdict, by ``word``: each direction with its largest factor and its count."""
        whole = f"{len(self.pairs)} problems"
        extremes = (("faster", self.best), ("slower", self.worst))
        ways = [f"{x.said} at {self.count(x.word)}" for way, x in extremes if x.word == way]
        return f"up to {', '.join(ways)} of {whole}" if ways else f"as fast at all {whole}"

    @cached_property
    def best(self) -> Comparison:
        """Where the second gains most."""
        return max(self.pairs, key=lambda pair: pair.gain)

    @cached_property
    def worst(self) -> Comparison:
        """The problem at which the version gains least."""
        return min(self.pairs, key=lambda pair: pair.gain)

    def count(self, wanted: Word) -> int:
        """At how many problems the second is that."""
        return sum(pair.word == wanted for pair in self.pairs)


def same_problem(record: Record) -> Hashable:
    """What two records must share but for their version and run: place, mode and problem."""
    return record.target, record.mode, record.slug


def same_work(axes: Iterable[str]) -> Problem:
    """``same_problem`` but for what a design sets for itself: only these axes must be equal."""
    names = tuple(axes)
    return lambda record: (
        record.target, record.mode, tuple(record.problem.get(name) for name in names)
    )  # fmt: skip


def versus(
    before: Iterable[Record], after: Iterable[Record], problem: Problem = same_problem
) -> Versus:
    """Two versions, from all their records: at each problem in the newest run that timed both.

    Args:
        before: Records of the version that is compared with.
        after: Records of the other.
        problem: What two records of one run must share to compare; a version that a run timed at
            one problem in several ways counts with the fastest.
    """
    old, new = _fastest(before, problem), _fastest(after, problem)
    newest: dict[Hashable, Comparison] = {}
    for (run, what), record in new.items():
        if (other := old.get((run, what))) is None:
            continue
        known = newest.get(what)
        if known is None or known.after.time <= record.time:
            newest[what] = Comparison(other, record)
    return Versus(tuple(newest.values()))


def _fastest(found: Iterable[Record], problem: Problem) -> dict[tuple[str, Hashable], Record]:
    best: dict[tuple[str, Hashable], Record] = {}
    for record in found:
        if not record.is_timed:
            continue
        key = record.run, problem(record)
        if key not in best or median_us(record) < median_us(best[key]):
            best[key] = record
    return best


def neighbors(found: Iterable[Record], problem: Problem = same_problem) -> Iterator[Comparison]:
    """Every version against the one before it, wherever a run timed both."""
    versions: dict[tuple[str, str, str], dict[int, list[Record]]] = defaultdict(dict)
    for record in found:
        kernel = record.kernel
        design = versions[kernel.language, kernel.layer, kernel.design]
        design.setdefault(number_of(kernel.version), []).append(record)
    for design in versions.values():
        for number in sorted(design):
            if number + 1 in design:
                yield from versus(design[number], design[number + 1], problem).pairs


# -- what repeats ---------------------------------------------------------------------------------


def repeats(found: Iterable[Record]) -> list[float]:
    """By what share the ratio of two versions moved between two runs of the same sources."""
    ratios: dict[Hashable, list[float]] = defaultdict(list)
    runs: dict[Hashable, list[Record]] = defaultdict(list)
    for record in found:
        if record.is_timed and record.mode == "event":
            runs[record.run, same_problem(record)].append(record)
    for together in runs.values():
        for one, other in itertools.combinations(sorted(together, key=_made_of), 2):
            what = same_problem(one), _made_of(one), _made_of(other)
            ratios[what].append(math.log(median_us(one) / median_us(other)))
    return sorted(
        math.expm1(abs(one - other))
        for again in ratios.values()
        for one, other in itertools.combinations(again, 2)
    )


def _made_of(record: Record) -> tuple[str, ...]:
    kernel = record.kernel
    return kernel.language, kernel.design, kernel.version, *sorted(kernel.sources.values())
