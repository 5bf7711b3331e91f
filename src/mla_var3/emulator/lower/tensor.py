"""Lowers PTX ``mma`` and ``wgmma`` to calls of the units; decodes their shapes and types."""

from __future__ import annotations

import re

import numpy as np

from mla_var3.emulator.lower.base import Op, family
from mla_var3.emulator.units.layouts import Shape, Wgmma
from mla_var3.emulator.units.products import ProductText

TYPES = {"f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8", "f64", "e2m1", "e3m2", "e2m3"}


@family("mma")
def mma(op: Op) -> list[str]:
    """Lower ``mma``."""
    kinds = [p for p in op.parts if p in TYPES or p in ("f32", "s32")]
    m, n, k = _sizes(next(p for p in op.parts if p.startswith(("m1", "m8"))))
    shape = Shape(m, n, k, kinds[0], kinds[1], kinds[2], op.has("satfinite"))
    rows = [_rows(op, i) for i in range(4)]
    scales = "None"
    if op.has("block_scale"):
        names = [x for i in range(4, len(op.args)) for x in op.vector(i)]
        scale = next(p for p in op.parts if p.startswith("ue"))
        vector = next((int(p[-2]) for p in op.parts if p.startswith("scale_vec::")), 1)
        words = [op.get(names[0], "u32"), op.get(names[3], "u32")]
        ids = [op.get(names[i], "u16") for i in (1, 2, 4, 5)]
        scales = f"('{scale}', {vector}, {', '.join(words + ids)})"
    return [f"mma.run({op.constant((shape, rows))}, {scales}, {op.s}, {op.pc})"]


def _sizes(text: str) -> list[int]:
    """Extents of a shape such as ``m16n8k16``."""
    return [int(number) for number in re.findall(r"\d+", text)]


def _rows(op: Op, operand: int) -> list[int]:
    return [op.writer.index(x) for x in op.vector(operand)]


@family("wgmma")
def wgmma(op: Op) -> list[str]:
    """Lower ``wgmma``."""
    if op.parts[1] != "mma_async":
        count = int(op.args[0]) if op.args else 0
        name = {"fence": "fence", "commit_group": "commit", "wait_group": "wait"}[op.parts[1]]
        return [f"wgmma.{name}({count}, {op.s}, {op.pc})"]
    _, n, k = _sizes(op.parts[4])
    rows = np.array(_rows(op, 0))
    a = np.array(_rows(op, 1)) if op.args[1].startswith("{") else None
    scale = [int(x) for x in op.args[4:]]
    signs = scale[:2] if scale else [1, 1]
    major = [0, *scale[2:]] if a is not None else scale[2:]
    d_type, a_type, b_type = op.parts[-3:]
    shape = Wgmma(
        n,
        k,
        d_type,
        a_type,
        b_type,
        rows,
        a,
        signs[0] != signs[1],
        bool(major[0]) if major else False,
        bool(major[1]) if len(major) > 1 else False,
        op.has("satfinite"),
    )
    first = "None" if a is not None else op.get(1, "u64")
    constant = op.constant(shape)
    operands = f"{constant}, {first}, {op.get(2, 'u64')}, {op.get(3, 'pred')}"
    if op.pc in op.writer.program.text(ProductText).queued:
        return [f"wgmma.queue({operands})"]
    return [f"wgmma.run({operands}, {op.s}, {op.pc})"]
