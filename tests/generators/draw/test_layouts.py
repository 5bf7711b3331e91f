from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generators.draw import layouts
from generators.draw.layouts import Layout, size, swizzled


@pytest.mark.parametrize(
    ("layout", "at", "offset"),
    [
        (Layout((4, 8), (1, 4)), (1, 2), 9),
        (Layout((4, 8), (8, 1)), (1, 2), 10),
        (Layout(((2, 2), (2, 4)), ((1, 8), (2, 16))), (3, 5), 1 + 8 + 2 + 32),
        (Layout((8, 8), (8, 1), (3, 0, 3)), (5, 3), 40 + (3 ^ 5)),
    ],
)
def test_offsets(layout: Layout, at: tuple[int, int], offset: int) -> None:
    assert layout(*at) == offset


def test_ours_is_what_the_dsl_says(monkeypatch):
    """The pictures and the CuTe DSL agree on every cell."""
    monkeypatch.setenv("CUTE_DSL_ARCH", "sm_90a")
    from cutlass import cute

    shown = (
        Layout((4, 8), (8, 1)),
        Layout(((2, 2), (2, 4)), ((1, 8), (2, 16))),
        Layout((8, 8), (8, 1), (3, 0, 3)),
    )

    def compare(layout: Layout) -> None:  # Plain Python: traced as it is.
        theirs = cute.make_layout(layout.shape, stride=layout.stride)
        if layout.swizzle:
            theirs = cute.make_composed_layout(cute.make_swizzle(*layout.swizzle), 0, theirs)
        rows, columns = map(size, layout.shape)
        for row, column in itertools.product(range(rows), range(columns)):
            assert theirs((row, column)) == layout(row, column)

    @cute.jit
    def traced() -> None:
        for layout in shown:
            compare(layout)

    traced()


@given(st.integers(0, 4095), st.integers(0, 3), st.integers(0, 4), st.integers(3, 4))
def test_a_swizzle_is_its_own_inverse(offset: int, bits: int, base: int, shift: int) -> None:
    assert swizzled(swizzled(offset, bits, base, shift), bits, base, shift) == offset


@pytest.mark.parametrize("name", layouts.FIGURES)
def test_a_picture_says_what_it_shows(name: str) -> None:
    drawn = layouts.FIGURES[name]()
    assert drawn.count("<rect") >= 32
    assert 'role="img"' in drawn
    assert "<figcaption>" in drawn
