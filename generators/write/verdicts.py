"""Writes comparisons of times in words, such as "1.8x faster": sentences, badges and chips."""

from __future__ import annotations

from collections.abc import Sequence

from generators.model.compare import Step, Verdict
from generators.model.run import Run
from generators.write.figures import duration
from generators.write.text import cell, fold, sections
from mla_var3.evidence.compare import NOISE, said, than

#: Mark of what rests on a stale record.
STALE = " (stale)"


def ratio(before: float, after: float) -> str:
    """How two times of one run compare, as people read it: ``1.8x faster``, ``2.1x slower``."""
    return said(before, after)


def against(mine: Run, other: Run, name: str) -> str:
    """How a run compares with another of the same run: ``1.1x faster than FlashMLA (70.9 us ..)``.

    Args:
        mine: The run that the sentence is about.
        other: What it is compared with.
        name: The other, as the sentence calls it.
    """
    ours, theirs = mine.total.median_us, other.total.median_us
    both = f"({duration(mine.total).removesuffix(' us')} against {duration(other.total)})"
    return f"{than(theirs, ours, name)} {both}"


def gain(step: Step) -> str:
    """The gain of a step as people say it: ``1.8x faster``."""
    return step.compared.said


def place(step: Step) -> str:
    """The problem of a step, marked where one of its records is stale."""
    return step.at + STALE * step.stale


def span(verdict: Verdict) -> str:
    """From the worst change to the best over all problems; empty where nothing changed."""
    if not verdict.words:
        return ""
    than = f" than {verdict.before.version}" if verdict.before else ""
    stale = STALE * any(step.stale for step in verdict.steps)
    return _from_to(verdict) + than + _many(verdict) + stale


def _from_to(verdict: Verdict) -> str:
    most, least = verdict.extremes
    if len(verdict.words) > 1:
        return f"{gain(least)} to {gain(most)}"
    first, last = (most, least) if "faster" in verdict.words else (least, most)
    if verdict.changed < len(verdict.steps):
        return f"up to {gain(first)}"
    if gain(first) == gain(last):
        return gain(first)
    return f"{gain(last).rsplit(maxsplit=1)[0]} to {gain(first)}"


def _many(verdict: Verdict) -> str:
    """At how many problems of all it changed."""
    if verdict.changed < len(verdict.steps):
        return f" at {verdict.changed} of {len(verdict.steps)} problems"
    return f", {verdict.changed} problems" if verdict.changed > 1 else ""


def headline(verdict: Verdict) -> str:
    """One sentence on how a version compares, without a full stop; empty where nothing does."""
    if verdict.before is None or not verdict.steps:
        return ""
    before = verdict.before.version
    (most, least), than = verdict.extremes, f"than {before}"
    up, down = most.word == "faster", least.word == "slower"
    if up and down:
        return f"Up to {gain(most)} {than} at {place(most)}, up to {gain(least)} at {place(least)}"
    if not up and not down:
        return f"As fast as {before}, within {NOISE:.1%} at every problem measured"
    telling = most if up else least
    upto = "" if len(verdict.steps) == 1 else "Up to "
    return f"{upto}{gain(telling)} {than} at {place(telling)}"


def badge(verdict: Verdict) -> str:
    """The verdict as a mark: a shape, a word and the changes from least to most."""
    spanned = span(verdict)
    if spanned and verdict.word in ("faster", "slower"):
        return mark(verdict.word, spanned)
    if verdict.before and verdict.word == "as fast":
        return mark(verdict.word, f"as fast as {verdict.before.version}")
    if verdict.before and verdict.word == "not measured" and verdict.timed:
        return mark(verdict.word, f"not timed beside {verdict.before.version}")
    if verdict.word == "not measured":
        return mark(verdict.word, "no record of a time")
    return mark(verdict.word, ", ".join(filter(None, [verdict.word, spanned])))


#: Classes that are not a word's first.
KINDS = {"as fast": "neutral"}


def mark(word: str, text: str) -> str:
    """A mark whose class names its colour and shape."""
    kind = KINDS.get(word, word.split()[0])
    return f'<span class="badge badge--{kind}">{cell(text)}</span>'


def bar(share: float) -> str:
    """A share as a number with a bar behind it."""
    return f'<span class="share" style="--share:{min(share, 1):.3f}">{share:.0%}</span>'


#: Problems above which those at which nothing changed are folded away.
MANY = 12


def chips(steps: tuple[Step, ...]) -> str:
    """A chip per problem: where, and the change in time with its sign.

    Of many problems those that changed stand open, the others behind their number.
    """
    same = [step for step in steps if step.word == "as fast"] if len(steps) > MANY else []
    changed = [step for step in steps if step not in same]
    title = f"As fast at {len(same)} of {len(steps)} problems"
    return sections(_listed(changed), fold(title, "", _listed(same))).strip()


def _listed(steps: Sequence[Step]) -> str:
    shown = "".join(
        f'<li class="chip chip--{KINDS.get(step.word, step.word)}"><span>{cell(step.at)}</span> '
        f"<strong>{100 * (1 / step.gain - 1):+.1f} %</strong>{STALE * step.stale}</li>"
        for step in steps
    )
    return f'<ul class="chips">{shown}</ul>' if shown else ""
