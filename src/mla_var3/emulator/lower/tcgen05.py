"""Lowers PTX ``tcgen05`` (tensor memory, its products, copies, fences) to calls of that unit."""

from __future__ import annotations

import re

import numpy as np

from mla_var3.emulator.lower.base import NotLowered, Op, family
from mla_var3.emulator.units.tcgen05.descriptors import Kind
from mla_var3.emulator.units.tcgen05.products import Form

#: Elements per scale factor, as the opcode says it; 32 where it does not.
BLOCKS = {"block16": 16, "block32": 32, "scale_vec::4X": 16}
SHAPES = ("32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2")


@family("tcgen05")
def tcgen05(op: Op) -> list[str]:
    """Lower ``tcgen05``; ``alloc`` blocks, and the scheduler runs it."""
    match op.parts[1]:
        case "dealloc":
            operands = f"{op.get(0, 'u32')}, {op.get(1, 'u32')}"
            return [f"tensor_memory.dealloc({operands}, {op.s}, {op.pc})"]
        case "relinquish_alloc_permit":
            return [f"tensor_memory.relinquish({op.s})"]
        case "wait::ld" | "wait::st" as which:
            return [f"tensor_memory.wait({which == 'wait::ld'}, {op.s})"]
        case "fence::after_thread_sync" | "fence::before_thread_sync" as which:
            return [f"tensor_memory.fence({which == 'fence::after_thread_sync'}, {op.s})"]
        case "ld":
            return _load(op)
        case "st":
            return _store(op)
        case "mma":
            return _product(op)
        case "commit":
            mask = op.get(1, "u16") if op.has("multicast::cluster") else "None"
            return [f"tcgen05.commit({op.address(0)}, {mask}, {op.s}, {op.pc})"]
        case "cp":
            return _copy(op)
    raise NotLowered(op.instruction.op)


def _shape(op: Op, at: int) -> str:
    """The shape of a load or store, and how far its second half is from the first."""
    shape = next(p for p in op.parts if p in SHAPES)
    return f"'{shape}', {{}}, {int(op.args[at], 0) if shape == '16x32bx2' else 0}"


def _load(op: Op) -> list[str]:
    rows = op.constant(np.array([op.writer.index(x) for x in op.vector(0)]))
    shape = _shape(op, 2).format(op.has("pack::16b"))
    return [f"tensor_memory.load({rows}, {shape}, {op.address(1)}, {op.s}, {op.pc})"]


def _store(op: Op) -> list[str]:
    values = ", ".join(op.get(x, "u32") for x in op.vector(len(op.args) - 1))
    shape = _shape(op, 1).format(op.has("unpack::16b"))
    return [f"tensor_memory.store([{values}], {shape}, {op.address(0)}, {op.s}, {op.pc})"]


def _product(op: Op) -> list[str]:
    name = next(p.removeprefix("kind::") for p in op.parts if p.startswith("kind::"))
    block = 0
    if op.has("block_scale"):
        block = next((BLOCKS[p] for p in op.parts if p in BLOCKS), 32)
    rest = list(op.args[4:])
    scales = [op.address(rest.pop(0)), op.address(rest.pop(0))] if block else []
    mask = []
    if rest[0].startswith("{"):
        mask = [op.get(x, "u32") for x in op.vector(rest.pop(0))]
    keep, stationary = op.get(rest.pop(0), "pred"), op.has("ws")
    if stationary:
        mask = [op.get(x, "u64") for x in rest]
    shift = int(rest[0], 0) if rest and not stationary else 0
    in_tensor = op.args[1].startswith("[")
    kind = Kind(name, op.has("cta_group::2"), block, stationary)
    form = op.constant(Form(kind, in_tensor, shift))
    a = op.address(1) if in_tensor else op.get(1, "u64")
    operands = [op.address(0), a, op.get(2, "u64"), op.get(3, "u32"), keep]
    groups = ", ".join(f"({', '.join(group)},)" if group else "()" for group in (scales, mask))
    return [f"tcgen05.product({form}, ({', '.join(operands)}), {groups}, {op.s}, {op.pc})"]


def _copy(op: Op) -> list[str]:
    shape = next(m for p in op.parts if (m := re.fullmatch(r"(\d+)x(\d+)b", p)))
    repeat = next((p for p in op.parts if p.startswith("warpx")), "")
    operands = f"{op.has('cta_group::2')}, {op.address(0)}, {op.get(1, 'u64')}"
    return [f"tensor_copies.copy({shape[1]}, {shape[2]}, '{repeat}', {operands}, {op.s}, {op.pc})"]
