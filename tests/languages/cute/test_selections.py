"""Which edits of a kernel only select, by the text of the kernel."""

from __future__ import annotations

import numpy as np
import pytest

from mla_var3.emulator.lower.base import FAMILIES
from mla_var3.emulator.options import Options
from mla_var3.gpuless.ptx import Kernel, parse
from mla_var3.languages.cute import choices, selections
from mla_var3.languages.cute.selections import FIRST
from tests.emulator.snippets import evaluate

HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 k_param_0)
{
.reg .pred %p<9>;
.reg .b32 %r<30>;
.reg .b64 %rd<4>;
"""


def asks(flag: int, number: int) -> str:
    """What a choice is in PTX, by a flag of one of these registers."""
    return (
        f"{{ .reg .pred chosen; mov.b32 %r{flag}, %envreg0; "
        f"setp.eq.u32 chosen, %r{flag}, {FIRST + number}; selp.b32 %r{flag}, 1, 0, chosen; }}\n"
    )


def kernel(*lines: str) -> Kernel:
    return parse(f"{HEAD}{''.join(f'{line}' for line in lines)}ret;\n}}\n").kernel("k")


SELECTS = "setp.eq.b32 %p1, %r1, 0;\nselp.b32 %r8, %r20, %r21, %p1;\nselp.f32 %r9, 1, 2, %p1;\n"


def test_an_edit_that_only_selects_has_its_predicates() -> None:
    found = selections.find(kernel(asks(1, 7), SELECTS, asks(2, 9), "setp.ne.s32 %p2, %r2, 0;\n"))
    assert found.numbers == {7, 9}
    assert found.by == {"%p1": 7, "%p2": 9}
    assert not found.others


@pytest.mark.parametrize(
    "beyond",
    [
        "or.b32 %r10, %r1, %r20;\n",  # the flag as a number
        "@%p1 add.s32 %r10, %r20, 1;\n",  # its predicate as a guard
        "@!%p1 bra $L;\n$L:\n",
        "and.pred %p4, %p1, %p5;\n",
        "setp.lt.s32 %p1, %r20, %r21;\n",  # the predicate's register again
        "mov.b32 %r1, %r20;\n",
        "selp.b32 %r10, %r1, %r20, %p6;\n",  # the flag as what is selected
        "setp.eq.b32 %p4, %r1, 1;\n",  # no test that is known
        f"{asks(2, 9)}setp.eq.b32 %p1, %r2, 0;\n",  # one predicate of two edits
        "selp.b32 %r10, %r20, %r21, !%p1;\n",
        f"{asks(2, 9)}@%p1 setp.eq.b32 %p2, %r2, 0;\n",  # a guard of what is known
        "setp.eq.b32 %p4|%p5, %r1, 0;\n",
        "setp.eq.u32 %p4, %r3, 1523580935;\nselp.b32 %r2, 1, %r20, %p4;\n",  # no 0 or 1
        "mov.b32 %r10, %envreg0;\n",  # who is chosen, as a number
    ],
)
def test_an_edit_that_does_anything_else_has_none(beyond: str) -> None:
    found = selections.find(kernel(asks(1, 7), SELECTS, beyond))
    assert 7 in found.numbers
    assert 7 in found.others
    assert 7 not in found.by.values()


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
    monkeypatch.setitem(FAMILIES, "selp", choices._compared)
    monkeypatch.setattr(choices, "_playing", None)
    choosing = choices.CuteChoices()
    given = [x.astype(inputs[0].dtype) for x in inputs]
    found = []
    for number in (None, 7):
        choosing.take(number)
        options = Options(environment=choices.environment())
        found.append(evaluate(asks(1, 7) + body, given, given[0].dtype.type, options).tobytes())
        assert choosing.differing() == ({7} if differs and number is None else set())
    assert (found[0] != found[1]) is differs


def test_a_kernel_without_choices_has_none() -> None:
    found = selections.find(kernel("setp.eq.u32 %p1, %r1, 5;\nselp.b32 %r2, 1, 0, %p1;\n"))
    assert (found.numbers, found.by) == (frozenset(), {})
