# ruff: noqa: E501  # A PTX statement stays on its line.
"""What the text of a tcgen05 instruction says of its product, copy or load."""

from __future__ import annotations

import re

import numpy as np
import pytest

from mla_var3.emulator.lower.base import lower
from mla_var3.emulator.lower.tcgen05 import Form
from mla_var3.emulator.units.tcgen05.descriptors import Kind
from tests.emulator.tcgen05 import ACCUMULATOR
from tests.emulator.test_base import lowered, op

D, A, B, WORD = "[%r1]", "%rd1", "%rd2", "%r2"


def product(modifiers: str, *operands: str) -> tuple[str, Form]:
    """The operands of a product by their registers' names, and its form."""
    made = op(f"tcgen05.mma.{modifiers} {', '.join(operands)};")
    program = made.writer.program
    (line,) = lower(made.writer, program.kernel.instructions[0])
    for name in ("%p1", *(f"%rd{i}" for i in (1, 2)), *(f"%r{i}" for i in range(1, 8))):
        group, number = program.row(name)
        line = re.sub(rf"\b{group}{number}\[s\]", name, line)
    name, _, rest = line.removeprefix("tcgen05.product(").partition(", ")
    return rest, program.constants[name]


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("shift", [None, 0, 1, 15])
def test_a_product_may_scale_its_accumulator_first(group: int, shift: int | None) -> None:
    more = () if shift is None else (str(shift),)
    line, form = product(f"cta_group::{group}.kind::f16", D, A, B, WORD, "%p1", *more)
    assert form == Form(Kind("f16", group == 2, 0), False, shift or 0)
    assert line == "(%r1, %rd1, %rd2, %r2, %p1), (), (), s, 0)"


def test_a_product_may_take_a_from_tensor_memory_and_leave_lanes_out() -> None:
    line, form = product(
        "cta_group::1.kind::tf32", D, "[%r3]", B, WORD, "{%r4, %r5, %r6, %r7}", "%p1"
    )
    assert form == Form(Kind("tf32", False, 0), True, 0)
    assert line == "(%r1, %r3, %rd2, %r2, %p1), (), (%r4, %r5, %r6, %r7,), s, 0)"


@pytest.mark.parametrize(
    ("modifiers", "block"),
    [
        ("kind::mxf8f6f4.block_scale.scale_vec::1X", 32), ("kind::mxf4.block_scale.scale_vec::2X", 32),
        ("kind::mxf4nvf4.block_scale.scale_vec::4X", 16), ("kind::mxf4nvf4.block_scale.block16", 16),
        ("kind::mxf4nvf4.block_scale.block32", 32), ("kind::mxf8f6f4.block_scale", 32),
    ],
)  # fmt: skip
def test_scale_factors_are_of_so_many_elements(modifiers: str, block: int) -> None:
    line, form = product(f"cta_group::1.{modifiers}", D, A, B, WORD, "[%r3]", "[%r4]", "%p1")
    assert form == Form(
        Kind(modifiers.partition(".")[0].removeprefix("kind::"), False, block), False, 0
    )
    assert line == "(%r1, %rd1, %rd2, %r2, %p1), (%r3, %r4,), (), s, 0)"


@pytest.mark.parametrize(
    ("modifiers", "said"),
    [
        ("cta_group::1.128x256b", "128, 256, '', False"), ("cta_group::2.128x128b", "128, 128, '', True"),
        ("cta_group::1.64x128b.warpx2::02_13", "64, 128, 'warpx2::02_13', False"),
        ("cta_group::1.32x128b.warpx4", "32, 128, 'warpx4', False"),
    ],
)  # fmt: skip
def test_a_copy_says_its_rows_and_their_bits(modifiers: str, said: str) -> None:
    assert lowered(f"tcgen05.cp.{modifiers} [%r1], %rd1;") == [
        f"tensor_copies.copy({said}, r0[s], q0[s], s, 0)"
    ]


@pytest.mark.parametrize("shift", [0, 2])
def test_an_accumulator_is_halved_so_often_before_it_is_added_to(shift: int) -> None:
    """Both products are the same sums of ones: 16 each."""
    edits = {"more": ACCUMULATOR.steps["more"].replace(", %p7;", f", %p7, {shift};")}
    assert edits["more"] != ACCUMULATOR.steps["more"]
    (out,), done = ACCUMULATOR.run(edits)
    assert done.diagnostics == []
    each = np.float32(16 + 16 / 2**shift).view(np.uint32)
    assert (out[:128] == np.uint32((int(each) * 16) & 0xFFFFFFFF)).all()
