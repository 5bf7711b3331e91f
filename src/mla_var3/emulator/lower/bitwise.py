"""Lowers PTX bitwise logic, shifts and bit fields to Python source over numpy."""

from __future__ import annotations

import numpy as np

from mla_var3.emulator.lower.base import Op, family, numpy_name
from mla_var3.gpuless.ptx import bits

LOGIC = {"and": "&", "or": "|", "xor": "^"}


@family("and", "or", "xor")
def logic(op: Op) -> list[str]:
    """Lower ``and``, ``or``, ``xor``."""
    kind = op.raw()
    return op.put(f"{op.get(1, kind)} {LOGIC[op.parts[0]]} {op.get(2, kind)}", kind)


@family("not")
def not_(op: Op) -> list[str]:
    """Lower ``not``."""
    kind = op.raw()
    return op.put(
        f"~{op.get(1, kind)}" if kind != "pred" else f"~np.asarray({op.get(1, kind)})", kind
    )


@family("cnot")
def cnot(op: Op) -> list[str]:
    """Lower ``cnot``."""
    kind = op.raw()
    return op.put(f"({op.get(1, kind)} == 0).astype({numpy_name(kind)})", kind)


@family("shl", "shr")
def shift(op: Op) -> list[str]:
    """Lower ``shl``, ``shr``."""
    kind = op.raw()
    symbol = "<<" if op.parts[0] == "shl" else ">>"
    # A shift by the width or more gives zeros, or the sign: numpy does so for its own shifts.
    amount = f"np.minimum({op.get(2, 'u32')}, U32({bits(kind)})).astype({numpy_name(kind)})"
    return op.put(f"{op.get(1, kind)} {symbol} {amount}", kind)


@family("shf")
def funnel(op: Op) -> list[str]:
    """Lower ``shf``."""
    args = ", ".join(op.get(i, "u32") for i in (1, 2, 3))
    return op.put(f"fn.funnel('{op.parts[1]}', '{op.parts[2]}', {args})", "u32")


@family("prmt")
def prmt(op: Op) -> list[str]:
    """Lower ``prmt``."""
    mode = op.parts[2] if len(op.parts) > 2 else ""
    args = ", ".join(op.get(i, "u32") for i in (1, 2, 3))
    return op.put(f"fn.permute({args}, '{mode}')", "u32")


@family("lop3")
def lop3(op: Op) -> list[str]:
    """Lower ``lop3``."""
    args = ", ".join(op.get(i, "u32") for i in (1, 2, 3))
    value = f"fn.lop3({args}, {int(op.args[4], 0)})"
    if not op.has("and", "or"):
        return op.put(value, "u32")
    target, test = op.pair(0)
    lines = [f"x = {value}", *(op.put("x", "u32", target) if target != "_" else [])]
    logic_ = "&" if op.has("and") else "|"
    return [*lines, *op.put(f"(x != 0) {logic_} {op.get(5, 'pred')}", "pred", test or "_")]


@family("popc")
def popc(op: Op) -> list[str]:
    """Lower ``popc``."""
    return op.put(f"fn.popcount({op.get(1, op.raw())})", "u32")


@family("clz")
def clz(op: Op) -> list[str]:
    """Lower ``clz``."""
    width = bits(op.kind)
    return op.put(f"U32({width}) - fn.bit_length({op.get(1, op.raw())})", "u32")


@family("brev")
def brev(op: Op) -> list[str]:
    """Lower ``brev``."""
    return op.put(f"fn.reverse({op.get(1, op.raw())}, {bits(op.kind)})", op.raw())


@family("bfind")
def bfind(op: Op) -> list[str]:
    """Lower ``bfind``."""
    signed, amount = op.kind[0] == "s", op.has("shiftamt")
    return op.put(f"fn.find_bit({op.get(1)}, {signed}, {amount}, {bits(op.kind)})", "u32")


@family("fns")
def fns(op: Op) -> list[str]:
    """Lower ``fns``."""
    return op.put(f"fn.find_nth({op.get(1)}, {op.get(2, 'u32')}, {op.get(3, 's32')})", "u32")


@family("bfe")
def bfe(op: Op) -> list[str]:
    """Lower ``bfe``.

    Of a field that begins past the word ptxas makes -1, whatever the sign, where the field is
    known (seen on an H200 and in SASS of ptxas 13.4; the ISA says the sign).
    """
    kind = "u" + op.kind[1:]
    if (field := _field(op, 2)) and op.kind == "s32" and field[0] >= 32 and field[1]:
        return op.put(op.constant(np.uint32(0xFFFFFFFF)), kind)
    args = f"{op.get(1, kind)}, {op.get(2, 'u32')}, {op.get(3, 'u32')}"
    return op.put(f"fn.extract({args}, {bits(op.kind)}, {op.kind[0] == 's'})", kind)


@family("bfi")
def bfi(op: Op) -> list[str]:
    """Lower ``bfi``.

    Where the field is known, the assembler of driver 580 takes a length past the word modulo 32
    (seen on an H200; the ISA, and ptxas 13.4, say up to the end).
    """
    kind = op.raw()
    length = op.get(4, "u32")
    if (field := _field(op, 3)) and bits(kind) == 32 and field[1] > 32:
        length = op.constant(np.uint32(field[1] & 31))
    args = f"{op.get(1, kind)}, {op.get(2, kind)}, {op.get(3, 'u32')}, {length}"
    return op.put(f"fn.insert({args}, {bits(kind)})", kind)


def _field(op: Op, first: int) -> tuple[int, int] | None:
    """Start and length of a bit field that are both constants."""
    both = op.args[first : first + 2]
    return (int(both[0], 0), int(both[1], 0)) if all(x[:1].isdigit() for x in both) else None


@family("bmsk")
def bmsk(op: Op) -> list[str]:
    """Lower ``bmsk``."""
    return op.put(f"fn.bit_mask({op.get(1, 'u32')}, {op.get(2, 'u32')}, {op.has('wrap')})", "u32")


@family("szext")
def szext(op: Op) -> list[str]:
    """Lower ``szext``."""
    length = op.get(2, "u32")
    length = f"({length} & U32(31))" if op.has("wrap") else f"np.minimum({length}, U32(32))"
    return op.put(f"fn.extract({op.get(1, 'u32')}, 0, {length}, 32, {op.kind == 's32'})", "u32")
