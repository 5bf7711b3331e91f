"""Writes report.html: a run's records as one self-contained page, summary, figures and report."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from markdown_it import MarkdownIt

from mla_var3 import evidence, roofline
from mla_var3.devices import SmLimits
from mla_var3.evidence import Passed, Record, StaticFacts
from mla_var3.profiling import report, summary
from mla_var3.runtime import costs
from mla_var3.static.occupancy import limits_of

_STYLE = """
:root { color-scheme: light dark; --series-1: #00677f; --series-2: #a24a00; --edge: #788794; }
@media (prefers-color-scheme: dark) { :root { --series-1: #58c9e4; --series-2: #f3a45c; } }
body { font: 16px/1.6 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }
table { border-collapse: collapse; display: block; font-size: 0.85rem; overflow-x: auto; }
th, td { border-bottom: 1px solid var(--edge); padding: 0.3rem 0.7rem; text-align: left; }
h1 { font-size: 1.6rem; line-height: 1.2; }
figure { margin: 1.5rem 0; overflow-x: auto; }
summary { cursor: pointer; font-weight: 600; }
svg { height: auto; max-width: 100%; }
"""


def render(
    found: Sequence[Record],
    next_steps: Sequence[str] | None = None,
    artefacts: Iterable[Path] = (),
    known: Sequence[tuple[str, str]] = (),
) -> str:
    """The page: the screen that the command prints, the figures, then the whole report.

    Args:
        found: Records of one version, any number of targets.
        next_steps: Lines on what to try next; None where nobody looked.
        known: What the records say of the version: a name and a sentence per fact.
        artefacts: Files the run left, named at the end.
    """
    title = html.escape(f"{found[0].kernel.name}: report")
    figures = "\n".join(f"<figure>\n{figure}\n</figure>" for figure in _figures(found))
    whole = _html(report.render(found, next_steps, artefacts, known=known))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>'
        '\n<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        f"{_html(summary.render(found, next_steps, known))}"
        f"\n{figures}\n<details>\n<summary>The whole report</summary>\n{whole}\n</details>\n"
        "</body>\n</html>\n"
    )


def _html(markdown: str) -> str:
    """A report as HTML; what looks like HTML in it stays text."""
    return MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown)


def _figures(found: Sequence[Record]) -> Iterator[str]:
    if bars := _registers(found):
        yield bars
    for record in found:
        if drawing := _roofline(record):
            yield drawing


# -- registers -------------------------------------------------------------------------------------

_ROW, _LABEL, _WIDE = 26, 260, 380


def _registers(found: Sequence[Record]) -> str:
    """A bar per stage and arch: registers of those that a thread can name, and what spills."""
    rows = [
        (f"{stage.name}, {record.target.removeprefix(evidence.model.STATIC)}", stage.static, limits)
        for record in found
        for stage in (record.outcome.stages if isinstance(record.outcome, Passed) else ())
        if stage.static is not None and stage.static.error is None
        if (limits := limits_of(stage.static.arch))
    ]
    if not rows:
        return ""
    bars = "\n".join(_bar(number, *row) for number, row in enumerate(rows))
    told = "; ".join(f"{name}: {_said(facts, limits)}" for name, facts, limits in rows)
    height = _ROW * (len(rows) + 1)
    return (
        f'<svg role="img" viewBox="0 0 900 {height}" width="900" font-size="13" '
        f'fill="currentColor"><title>Registers per thread</title><desc>{html.escape(told)}</desc>\n'
        f'<text x="0" y="15" font-weight="600">Registers per thread, of those '
        f"that it can name</text>\n{bars}\n</svg>"
    )


def _bar(number: int, name: str, facts: StaticFacts, limits: SmLimits) -> str:
    top = _ROW * (number + 1)
    width = _WIDE * min(1.0, facts.registers / limits.registers_per_thread)
    color = "var(--series-2)" if facts.spills else "var(--series-1)"
    return (
        f'<text x="0" y="{top + 14}">{html.escape(name)}</text>'
        f'<rect x="{_LABEL}" y="{top}" width="{_WIDE}" height="18" fill="none" '
        'stroke="var(--edge)"/>'
        f'<rect x="{_LABEL}" y="{top}" width="{width:.1f}" height="18" fill="{color}"/>'
        f'<text x="{_LABEL + _WIDE + 8}" y="{top + 14}">{html.escape(_said(facts, limits))}</text>'
    )


def _said(facts: StaticFacts, limits: SmLimits) -> str:
    spills, most = facts.spill_instructions, limits.registers_per_thread
    spilled = f"{spills:,} spill instructions" if spills else "no spills"
    return f"{facts.registers} of {most}, {spilled}"


# -- roofline --------------------------------------------------------------------------------------


def _roofline(record: Record) -> str:
    """The timed stages of a record under the roofs of its device; what only compiled has no place.

    Empty where nothing was timed, or no rate is known.
    """
    least, known = costs.bound(record), costs.reference(record)
    timed = list(_timed(record))
    if least is None or known is None or not timed:
        return ""
    # Here and not above: matplotlib takes a second, which every import of the modes would.
    from mla_var3.roofline.figures import Point, Roof, roofline_svg

    roofs = [Roof(f"bound of {least.device}", least.rates)]
    if (known.rates.tflops, known.rates.gbps) != (least.rates.tflops, least.rates.gbps):
        roofs.append(Roof("reference", known.rates))
    title = f"Roofline of {record.kernel.name} on {record.target}"
    drawn = roofline_svg(title, roofs, [Point.measured(*found) for found in timed])
    return f"<figcaption>{html.escape(title)}</figcaption>\n{drawn}"


def _timed(record: Record) -> Iterator[tuple[str, roofline.Prediction, float]]:
    """Stages with a time and a place: a stage without FLOPs or bytes has none."""
    for stage in record.outcome.stages if isinstance(record.outcome, Passed) else ():
        allowed = costs.bound(record, stage)
        if stage.duration is None or allowed is None or not 0 < allowed.intensity < math.inf:
            continue
        yield stage.name, allowed, stage.duration.median_us
