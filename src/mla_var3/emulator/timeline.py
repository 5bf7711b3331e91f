"""Timeline of a cluster's warps over steps or cycles: writes it as a Chrome trace or an SVG."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from html import escape
from typing import Any

COLORS = {
    "run": "#4c78a8",
    "wait": "#e45756",
    "wgmma": "#54a24b",
    "TMA load": "#f58518",
    "TMA store": "#b279a2",
}
#: Pixels: height of a warp's lane, width of the drawing, margin for names.
LANE, WIDTH, MARGIN = 18, 960, 70


@dataclass(frozen=True)
class Span:
    """A warp did something from one step to another; ``pc`` is where."""

    what: str
    warp: int
    start: int
    end: int
    pc: int


@dataclass
class Timeline:
    """Spans and events of a cluster; a step is one instruction issued by the scheduler."""

    spans: list[Span] = field(default_factory=list)
    waiting: dict[int, tuple[int, int]] = field(default_factory=dict)

    def run(self, warps: list[int], start: int, end: int, pc: int) -> None:
        """Warps ran instructions."""
        for w in warps:
            if w in self.waiting:
                since, at = self.waiting.pop(w)
                if start > since:
                    self.spans.append(Span("wait", w, since, start, at))
            self.spans.append(Span("run", w, start, end, pc))

    def wait(self, warps: list[int], step: int, pc: int) -> None:
        """Warps found a barrier not ready."""
        for w in warps:
            self.waiting.setdefault(w, (step, pc))

    def event(self, what: str, warps: list[int], step: int, pc: int) -> None:
        """Something short."""
        for w in warps:
            self.spans.append(Span(what, w, step, step + 1, pc))

    def chrome(self, site: Any) -> str:
        """For Perfetto or chrome://tracing: one track per warp, microseconds are steps."""
        events = [
            {
                "name": s.what,
                "cat": s.what,
                "ph": "X",
                "ts": s.start,
                "dur": max(1, s.end - s.start),
                "pid": 0,
                "tid": s.warp,
                "args": {"at": str(site(s.pc))},
            }
            for s in self.spans
        ]
        return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})

    def svg(self, site: Any) -> str:
        """A picture: a lane per warp, time from left to right."""
        last = max((s.end for s in self.spans), default=1)
        warps = sorted({s.warp for s in self.spans})
        scale = (WIDTH - MARGIN) / last
        body = [f'<text x="2" y="{LANE * i + 13}">warp {w}</text>' for i, w in enumerate(warps)]
        for s in self.spans:
            x, width = MARGIN + s.start * scale, max(0.5, (s.end - s.start) * scale)
            color = COLORS.get(s.what)
            if color is None:
                continue
            y, height = (
                LANE * warps.index(s.warp) + 2,
                LANE - 4 if s.what in ("run", "wait") else LANE // 2,
            )
            body.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" fill="{color}">'
                f"<title>{escape(f'{s.what}: {site(s.pc)}')}</title></rect>"
            )
        legend = LANE * len(warps) + 16
        for i, (what, color) in enumerate(COLORS.items()):
            x = MARGIN + 110 * i
            body.append(f'<rect x="{x}" y="{legend - 10}" width="10" height="10" fill="{color}"/>')
            body.append(f'<text x="{x + 14}" y="{legend}">{what}</text>')
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {legend + 8}" '
            f'font-family="sans-serif" font-size="11">{"".join(body)}</svg>'
        )


def difference(first: Timeline, second: Timeline, site: Any = None) -> list[str]:
    """Where two schedules of a kernel part: per warp the first step that differs, in words.

    Args:
        first: A schedule.
        second: Another one of the same kernel.
        site: Says where an instruction stands; by default its number.
    """
    out = []
    where = site or (lambda pc: f"ptx#{pc}")
    for warp in sorted({s.warp for s in [*first.spans, *second.spans]}):
        a, b = ([s for s in t.spans if s.warp == warp] for t in (first, second))
        for i, (x, y) in enumerate(zip(a, b, strict=False)):
            if (x.what, x.pc) != (y.what, y.pc):
                out.append(
                    f"warp {warp} step {i}: {x.what} at {where(x.pc)}, {y.what} at {where(y.pc)}"
                )
                break
        else:
            if len(a) != len(b):
                out.append(f"warp {warp}: {len(a)} steps and {len(b)} steps")
    return out
