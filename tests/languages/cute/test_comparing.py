"""What a run says of an edit that it does not choose: whether its two values differ."""

from __future__ import annotations

import numpy as np
import pytest

from mla_var3.emulator.lower.base import FAMILIES
from mla_var3.emulator.options import Options
from mla_var3.languages.cute import choices, comparing
from tests.emulator.snippets import evaluate
from tests.languages.cute.test_selections import asks

T = "setp.ne.s32 %p1, %r1, 0;\n"
LANES = np.arange(64, dtype=np.uint32)
WIDE, NARROW, ZEROS = LANES.astype(np.uint64), LANES.astype(np.uint16), np.zeros(64, np.float32)
LOOP = (
    "mov.u32 %r4, 0;\nmov.u32 %o, 0;\n$L:\nselp.b32 %r5, %i0, %r4, %p1;\nadd.u32 %o, %o, %r5;\n"
    f"{T}add.u32 %r4, %r4, 1;\nsetp.lt.u32 %p2, %r4, 3;\n@%p2 bra $L;\n"
)


@pytest.mark.parametrize(
    ("body", "inputs", "differs"),
    [
        (f"{T}selp.b32 %o, %i0, %i1, %p1;", [LANES, LANES.copy()], False),
        (f"{T}selp.b32 %o, %i0, %i1, %p1;", [LANES, np.where(LANES == 63, 5, LANES)], True),
        (f"{T}selp.f32 %o, %i0, %i1, %p1;", [ZEROS, -ZEROS], True),
        (f"{T}selp.f32 %o, %i0, %i1, %p1;", [ZEROS * np.nan, ZEROS * np.nan], False),
        (f"{T}selp.f32 %o, 0f3F800000, 0f00000000, %p1;", [ZEROS], True),
        (f"{T}selp.b64 %o, %i0, %i1, %p1;", [WIDE, WIDE + (1 << 40)], True),
        (f"{T}selp.b16 %o, %i0, 7, %p1;", [NARROW], True),
        (f"{T}add.u32 %r5, %i0, 1; selp.b32 %r5, %i0, %r5, %p1; mov.u32 %o, %r5;", [LANES], True),
        (
            f"{T}setp.eq.u32 %p2, %i0, 3; mov.u32 %o, %i0; @%p2 selp.b32 %o, %i0, 9, %p1;",
            [LANES], True,
        ),
        (LOOP, [LANES], True),
    ],
)  # fmt: skip
def test_an_edit_is_noted_where_its_values_differ(
    body: str, inputs: list[np.ndarray], differs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FAMILIES, "selp", FAMILIES["selp"])  # Put back at the end.
    monkeypatch.setattr(choices, "_playing", None)
    comparing.begin(choices.is_open, choices.differs)
    choosing = choices.CuteChoices()
    given = [x.astype(inputs[0].dtype) for x in inputs]
    found = []
    for number in (None, 7):
        choosing.take(number)
        options = Options(environment=choices.environment())
        found.append(evaluate(asks(1, 7) + body, given, given[0].dtype.type, options).tobytes())
        assert choosing.differing() == ({7} if differs and number is None else set())
    assert (found[0] != found[1]) is differs
