"""Says at the top of a pattern's page what it brought, problem by problem, in times of one run."""

from __future__ import annotations

from collections.abc import Sequence

from generators.model import compare, problems
from generators.model.columns import language_title
from generators.model.compare import Step, Verdict
from generators.model.site import Site
from generators.write import verdicts
from generators.write.source import repo_name
from generators.write.text import cell, sections
from mla_var3.evidence.compare import NOISE
from mla_var3.knowledge.evidence import Link
from mla_var3.knowledge.schema import FrontMatter, PairEvidence
from mla_var3.runtime.registry import Version

#: Metrics that are times.
_TIMES = frozenset({"total_us", "duration_us"})
#: So many problems are named of each kind, and the number of the others.
_NAMED = 7


def section(site: Site, meta: FrontMatter, link: Link) -> str:
    """Where a pattern paid and where it did not; empty where no evidence is a pair of times.

    Args:
        site: All inputs.
        meta: The pattern.
        link: Addresses as seen from its page.
    """
    rows = [_row(site, *found, link) for found in _verdicts(site, meta)]
    if not rows:
        return ""
    asked = "What did mending it bring?" if meta.kind == "anti-pattern" else "When is it worth it?"
    return sections(
        f"**{asked}** Every problem that one run timed both versions at:",
        "\n".join(rows),
        f"The later version may have changed more besides, as noted; under {NOISE:.1%} is as fast."
        f"{_newest(site, meta, link)}",
    )


def _newest(site: Site, meta: FrontMatter, link: Link) -> str:
    """The newest version of each design that has an optimization."""
    if meta.kind == "anti-pattern":
        return ""
    using = [site.catalogue.version(key) for key in meta.used_by]
    newest: dict[str, Version] = {}
    for version in site.versions:
        if site.catalogue.version(version.key) in using:
            newest[version.design_key] = version
    if not newest:
        return ""
    named = ", ".join(f"[{cell(v.key)}]({link(repo_name(v.path))})" for v in newest.values())
    return f" Newest versions that have it: {named}."


def _verdicts(site: Site, meta: FrontMatter) -> list[tuple[PairEvidence, Version, Verdict]]:
    """The version after against the one before of each pair of times, once each."""
    found: dict[tuple[str, str], tuple[PairEvidence, Version, Verdict]] = {}
    for item in meta.evidence:
        if not isinstance(item, PairEvidence) or not _TIMES & set(item.metric):
            continue
        before, after = site.catalogue.pair(item.before, item.after)
        old, new = site.version_named(before.kernel), site.version_named(after.kernel)
        if old is None or new is None or old == new or (old.key, new.key) in found:
            continue
        verdict = compare.of(site, new, old)
        if verdict.steps:
            found[old.key, new.key] = item, new, verdict
    return list(found.values())


def _row(site: Site, pair: PairEvidence, after: Version, verdict: Verdict, link: Link) -> str:
    assert verdict.before is not None
    both = (verdict.before, after)
    one_design = verdict.before.design_key == after.design_key
    named = " to ".join(
        f"[{version.version if one_design else cell(version.key)}]({link(repo_name(version.path))})"
        for version in both
    )
    design = f"{cell(after.design)} " * one_design
    records = [step.compared.after for step in verdict.steps]
    shared = problems.compared(records[0].kernel.layer, records[0].problem)
    same = [name for name in problems.constant(records) if name in shared]
    on = next((d.name for d in site.devices if d.key == records[0].target), records[0].target)
    sizes = problems.sizes(records[0], same) if len(records) > 1 else ""
    where = "; " + ", ".join(cell(text) for text in (on, sizes) if text)
    note = f": {cell(pair.note)}" if pair.note else ""
    found = {word: [s for s in verdict.steps if s.word == word] for word in _WORDS}
    said = "; ".join(f"**{word}** {_places(steps)}" for word, steps in found.items())
    return f"- {design}{named}, {cell(language_title(after.language))}{note}{where}: {said}."


_WORDS = ("faster", "as fast", "slower")


def _places(steps: Sequence[Step]) -> str:
    """Problems in order; of many those that changed most."""
    if not steps:
        return "nowhere"
    kept = sorted(steps, key=lambda step: -max(step.gain, 1 / step.gain))[:_NAMED]
    named = [
        cell(verdicts.place(step))
        + ("" if step.word == "as fast" else f" ({verdicts.gain(step).split()[0]})")
        for step in steps
        if step in kept
    ]
    more = [f"{len(steps) - _NAMED} more"] if len(steps) > _NAMED else []
    return "at " + ", ".join([*named, *more])
