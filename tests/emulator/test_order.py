"""Proxy fences: which writes by threads a unit may read, by a search of all fences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.emulator.options import DEFAULT
from mla_var3.emulator.order import unfenced

WARPS = 3
NUMBERS = st.integers(0, 6)
EACH = st.lists(NUMBERS, min_size=WARPS, max_size=WARPS)
FENCES = st.lists(st.sets(NUMBERS), min_size=WARPS, max_size=WARPS)
WRITES = st.lists(st.tuples(st.integers(0, WARPS - 1), NUMBERS, st.booleans()), min_size=1)


@given(
    EACH, EACH, WRITES, st.lists(st.sets(NUMBERS), min_size=WARPS, max_size=WARPS), st.booleans()
)
def test_a_write_needs_a_fence_of_its_writer_or_one_of_the_reader(
    seen: list[int], fenced: list[int], writes: list[tuple[int, int, bool]],
    fences: list[set[int]], reader: bool,
) -> None:  # fmt: skip
    """The writer fences at or after its write, and the reader knows of what it did since."""
    model = replace(DEFAULT, reader_fences=reader)
    who, when, generic = (list(x) for x in zip(*writes, strict=True))
    found = unfenced(
        np.array(seen), np.array(fenced), model, np.array(who), np.array(when), np.array(generic),
        [sorted(f) for f in fences],
    )  # fmt: skip
    wanted = [
        plain
        and not any(number <= fence < seen[warp] for fence in fences[warp])
        and not (reader and number <= fenced[warp])
        for warp, number, plain in writes
    ]
    assert found.tolist() == wanted
