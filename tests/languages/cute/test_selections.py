"""Which edits of a kernel only select, by the text of the kernel."""

from __future__ import annotations

import pytest

from mla_var3.gpuless.ptx import Kernel, parse
from mla_var3.languages.cute import selections
from mla_var3.languages.cute.selections import FIRST

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
    return parse(f"{HEAD}{''.join(lines)}ret;\n}}\n").kernel("k")


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


def test_a_kernel_without_choices_has_none() -> None:
    found = selections.find(kernel("setp.eq.u32 %p1, %r1, 5;\nselp.b32 %r2, 1, 0, %p1;\n"))
    assert (found.numbers, found.by) == (frozenset(), {})
