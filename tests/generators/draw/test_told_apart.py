"""Charts: a few lines have a colour and a label, each its own, and the rest is grey."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from generators.draw.charts import MOST, Line, told_apart


@given(st.lists(st.floats(1, 1e5), min_size=1, max_size=30), st.integers(0, 29))
def test_versions_of_a_design(times: list[float], lead: int) -> None:
    lead %= len(times)
    lines = [
        Line(f"v{i}", ((1.0, us), (2.0, us)), 0, leads=i == lead) for i, us in enumerate(times)
    ]
    shown = told_apart(lines, alike=True)
    named = [line for line in shown if line.labelled]
    assert len(named) == min(len(times), MOST)
    assert len({line.color for line in named}) == len(named)
    assert all(line.color < 0 for line in shown if not line.labelled)
    assert shown[lead].labelled
    assert shown[lead].leads
    assert [line.label for line in shown] == [line.label for line in lines]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=12))
def test_designs_keep_one_colour_each(versions: list[int]) -> None:
    lines = [
        Line(
            f"d{design} v{i}", ((1.0, 10.0 * design + i + 1),), design, leads=not i, labelled=not i
        )
        for design, count in enumerate(versions)
        for i in range(count)
    ]
    shown = told_apart(lines, alike=False)
    colors = {line.label.split()[0]: set() for line in shown}
    for line in shown:
        colors[line.label.split()[0]].add(line.color)
    assert all(len(found) == 1 for found in colors.values())
    named = [line for line in shown if line.labelled]
    assert len(named) == min(len(versions), MOST) == len({line.color for line in named})
    assert not any(line.leads for line in shown if line.color < 0)


def test_what_has_one_mark_is_named_only_where_nothing_has_more():
    marks = [Line(f"v{i}", ((1.0, 9.0 - i),), i) for i in range(3)]
    several = Line("v9", ((1.0, 10.0), (2.0, 20.0)), 9)
    shown = told_apart([*marks, several], alike=True)
    assert [line.label for line in shown if line.labelled] == ["v9"]
    assert all(line.labelled for line in told_apart(marks, alike=True))


def test_the_peer_is_named_before_others():
    lines = [Line(f"v{i}", ((1.0, 1.0 + i), (2.0, 2.0 + i)), i) for i in range(MOST + 3)]
    peer = Line("FlashMLA", ((1.0, 99.0), (2.0, 199.0)), MOST + 3, first=True)
    shown = {line.label: line for line in told_apart([*lines, peer], alike=True)}
    assert shown["FlashMLA"].labelled
    assert sum(line.labelled for line in shown.values()) == MOST
