# ruff: noqa: E501  # A PTX statement stays on its line.
"""What the text of ``wgmma`` says: signs, majors, registers of A; and integer sums at their ends."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from mla_var3.emulator.lower.base import lower
from mla_var3.emulator.units.layouts import Wgmma
from tests.emulator.machines import machine
from tests.emulator.test_base import lowered, op

ACCUMULATOR = "{%r1, %r2, %r3, %r4}"
LEFT = "{%r5, %r6, %r7, %f1}"


def product(modifiers: str, *operands: str) -> tuple[Wgmma, list[int], str]:
    """What is known of a product, the rows of its accumulator, and the rest of the line."""
    made = op(f"wgmma.mma_async.sync.aligned.{modifiers} {', '.join(operands)};")
    (line,) = lower(made.writer, made.writer.program.kernel.instructions[0])
    name, _, rest = line.removeprefix("wgmma.run(").partition(", ")
    rows = [made.writer.index(f"%r{i}") for i in range(1, 5)]
    return made.writer.program.constants[name], rows, rest


@pytest.mark.parametrize("registers", [False, True])
def test_signs_and_majors(registers: bool) -> None:
    """Immediates behind the predicate: both signs, and majors of what lies in shared memory."""
    for a_sign, b_sign, a_major, b_major in itertools.product((1, -1), (1, -1), (0, 1), (0, 1)):
        if registers and a_major:
            continue
        majors = (b_major,) if registers else (a_major, b_major)
        numbers = [str(n) for n in (a_sign, b_sign, *majors)]
        left = LEFT if registers else "%rd1"
        w, rows, rest = product("m64n8k16.f32.f16.f16", ACCUMULATOR, left, "%rd2", "%p1", *numbers)
        assert (w.n, w.k, w.d, w.a, w.b) == (8, 16, "f32", "f16", "f16")
        assert w.negative is (a_sign != b_sign)
        assert (w.a_transposed, w.b_transposed) == (bool(a_major), bool(b_major))
        assert w.rows.tolist() == rows
        assert (w.a_rows is not None) is registers
        assert rest.startswith("None, q" if registers else "q")
        assert not w.saturate


@pytest.mark.parametrize("saturate", [False, True])
def test_without_immediates_nothing_is_negated_or_transposed(saturate: bool) -> None:
    clamp = ".satfinite" * saturate
    w, _, _ = product(f"m64n8k32{clamp}.s32.s8.u8", ACCUMULATOR, "%rd1", "%rd2", "%p1")
    assert (w.negative, w.a_transposed, w.b_transposed) == (False, False, False)
    assert (w.d, w.a, w.b, w.n, w.k, w.saturate) == ("s32", "s8", "u8", 8, 32, saturate)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("wgmma.fence.sync.aligned;", "wgmma.fence(0, s, 0)"), ("wgmma.commit_group.sync.aligned;", "wgmma.commit(0, s, 0)"),
        ("wgmma.wait_group.sync.aligned 0;", "wgmma.wait(0, s, 0)"), ("wgmma.wait_group.sync.aligned 7;", "wgmma.wait(7, s, 0)"),
    ],
)  # fmt: skip
def test_groups(text: str, line: str) -> None:
    assert lowered(text) == [line]


LOW, HIGH = -(2**31), 2**31 - 1


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("keep", [False, True])
def test_integer_sums_at_both_ends(keep: bool, saturate: bool) -> None:
    m = machine((128, 1, 1))
    unit: Any = m.units["wgmma"]
    m.r = np.zeros((1, 4), np.uint32)
    m.rs = m.r.view(np.int32)
    m.rs[0] = old = [HIGH - 2, LOW + 2, 5, HIGH]
    total = (
        np.array([[2.0, -2.0, -9.0, 1.0]])
        if keep
        else np.array([[HIGH, LOW, HIGH + 1.0, LOW - 1.0]])
    )
    w = Wgmma(8, 32, "s32", "s8", "s8", np.arange(1), None, False, False, False, saturate)
    made = unit._integers(w, total, keep, slice(0, 1), slice(0, 4))
    exact = [int(t) + (o if keep else 0) for t, o in zip(total[0], old, strict=True)]
    if saturate:
        wanted = [min(max(e, LOW), HIGH) for e in exact]
    else:
        wanted = [(e - LOW) % 2**32 + LOW for e in exact]
    assert made.tolist() == [wanted]
    assert made.dtype == np.int32
