"""Spans of warps over steps: how waits are told, drawn, written for a viewer, and compared."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from mla_var3.emulator.timeline import COLORS, LANE, MARGIN, WIDTH, Span, Timeline, difference

SVG = "{http://www.w3.org/2000/svg}"
SPANS = [
    Span("run", 3, 0, 100, 1),
    Span("wait", 1, 100, 150, 2),
    Span("wgmma", 1, 150, 151, 3),
    Span("an event that has no color", 1, 160, 170, 4),
    Span("run", 1, 199_990, 200_000, 5),
]


def place(pc: int) -> str:
    return f"line <{pc}>"


def test_who_waits_waits_from_the_first_time_until_it_runs() -> None:
    line = Timeline()
    line.run([0, 1], 0, 4, 0)
    line.wait([0], 4, 7)
    line.wait([0], 6, 9)
    line.run([1], 4, 8, 4)
    line.run([0], 8, 9, 7)
    line.run([0], 9, 11, 8)
    line.wait([1], 8, 5)
    line.run([1], 8, 12, 5)
    line.event("wgmma", [0, 1], 5, 3)
    assert line.spans == [
        Span("run", 0, 0, 4, 0), Span("run", 1, 0, 4, 0), Span("run", 1, 4, 8, 4),
        Span("wait", 0, 4, 8, 7), Span("run", 0, 8, 9, 7), Span("run", 0, 9, 11, 8),
        Span("run", 1, 8, 12, 5), Span("wgmma", 0, 5, 6, 3), Span("wgmma", 1, 5, 6, 3),
    ]  # fmt: skip


def test_a_viewer_gets_every_span() -> None:
    told = json.loads(Timeline([*SPANS, Span("run", 2, 5, 5, 6)]).chrome(place))
    assert told["displayTimeUnit"] == "ns"
    assert [(e["name"], e["tid"], e["ts"], e["dur"]) for e in told["traceEvents"]] == [
        *((s.what, s.warp, s.start, s.end - s.start) for s in SPANS),
        ("run", 2, 5, 1),
    ]
    assert [e["args"]["at"] for e in told["traceEvents"]] == [
        f"line <{n}>" for n in (1, 2, 3, 4, 5, 6)
    ]
    assert {(e["ph"], e["pid"], e["cat"] == e["name"]) for e in told["traceEvents"]} == {
        ("X", 0, True)
    }


def test_a_drawing_has_a_lane_for_each_warp() -> None:
    drawing = ET.fromstring(Timeline(list(SPANS)).svg(place))
    texts = {t.text: (float(t.get("x")), float(t.get("y"))) for t in drawing.iter(f"{SVG}text")}
    assert texts["warp 1"][1] == 13
    assert texts["warp 3"][1] == LANE + 13
    scale = (WIDTH - MARGIN) / 200_000
    drawn = [r for r in drawing.iter(f"{SVG}rect") if r.find(f"{SVG}title") is not None]
    known = [s for s in SPANS if s.what in COLORS]
    for rect, span in zip(drawn, known, strict=True):
        x, y, width, height = (float(rect.get(k)) for k in ("x", "y", "width", "height"))
        assert abs(x - (MARGIN + span.start * scale)) < 0.06
        assert abs(width - max(0.5, (span.end - span.start) * scale)) < 0.06
        assert y == 2 + LANE * (span.warp == 3)
        assert height == (LANE - 4 if span.what in ("run", "wait") else LANE // 2)
        assert rect.get("fill") == COLORS[span.what]
        assert rect.find(f"{SVG}title").text == f"{span.what}: line <{span.pc}>"
    legend = [r for r in drawing.iter(f"{SVG}rect") if r.find(f"{SVG}title") is None]
    assert [float(r.get("x")) for r in legend] == [MARGIN + 110 * i for i in range(len(COLORS))]
    assert {float(r.get("y")) for r in legend} == {2 * LANE + 6}
    assert [texts[what] for what in COLORS] == [
        (MARGIN + 110 * i + 14, 2 * LANE + 16) for i in range(len(COLORS))
    ]
    assert drawing.get("viewBox") == f"0 0 {WIDTH} {2 * LANE + 24}"


def test_nothing_can_be_drawn_too() -> None:
    drawing = ET.fromstring(Timeline().svg(place))
    assert len(list(drawing.iter(f"{SVG}rect"))) == len(COLORS)


def test_two_timelines_differ_at_the_first_step_of_a_warp_or_in_its_end() -> None:
    first = Timeline(list(SPANS))
    assert difference(first, Timeline(list(SPANS))) == []
    changed = [SPANS[0], SPANS[1], Span("run", 1, 150, 151, 8), *SPANS[3:]]
    assert difference(first, Timeline(changed)) == ["warp 1 step 1: wgmma at ptx#3, run at ptx#8"]
    assert difference(first, Timeline(changed), place) == [
        "warp 1 step 1: wgmma at line <3>, run at line <8>"
    ]
    later = [Span(s.what, s.warp, s.start + 1, s.end + 2, s.pc) for s in SPANS]
    assert difference(first, Timeline(later)) == []
    assert difference(first, Timeline(SPANS[:-1])) == ["warp 1: 4 steps and 3 steps"]
    assert difference(Timeline(SPANS[:1]), first) == ["warp 1: 0 steps and 4 steps"]


@given(st.data())
def test_of_each_warp_only_the_first_difference_is_told(data: st.DataObject) -> None:
    step = st.tuples(st.sampled_from(["run", "wait"]), st.integers(0, 3))
    sides = [data.draw(st.lists(st.lists(step, max_size=5), min_size=2, max_size=2)) for _ in "ab"]
    lines = [
        Timeline(
            [Span(what, w, t, t + 1, pc) for w in (0, 1) for t, (what, pc) in enumerate(side[w])]
        )
        for side in sides
    ]
    wanted = []
    for w in (0, 1):
        a, b = sides[0][w], sides[1][w]
        apart = [i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y]
        if apart:
            (x, m), (y, n), i = a[apart[0]], b[apart[0]], apart[0]
            wanted.append(f"warp {w} step {i}: {x} at ptx#{m}, {y} at ptx#{n}")
        elif len(a) != len(b):
            wanted.append(f"warp {w}: {len(a)} steps and {len(b)} steps")
    assert difference(*lines) == wanted
