"""Lowers PTX warp instructions to Python: shuffles, votes, ldmatrix, stmatrix, setmaxnreg."""

from __future__ import annotations

from mla_var3.emulator.lower.base import NotLowered, Op, family
from mla_var3.gpuless.ptx import bits


@family("shfl")
def shfl(op: Op) -> list[str]:
    """Lower ``shfl``."""
    mode = op.parts[2] if op.parts[1] == "sync" else op.parts[1]
    args = ", ".join(op.get(i, "u32") for i in (1, 2, 3))
    target, test = op.pair(0)
    lines = [f"x, y = warps.shuffle('{mode}', {args}, {op.s})", *op.put("x", "u32", target)]
    return lines + (op.put("y", "pred", test) if test else [])


@family("vote")
def vote(op: Op) -> list[str]:
    """Lower ``vote``."""
    mode = op.parts[2]
    kind = "u32" if mode == "ballot" else "pred"
    return op.put(f"warps.vote('{mode}', {op.get(1, 'pred')}, {op.s})", kind)


@family("redux")
def redux(op: Op) -> list[str]:
    """Lower ``redux``."""
    if bits(op.kind) != 32:
        raise NotLowered(op.kind)
    kind = op.raw()
    absolute, nan = op.has("abs"), op.has("NaN")
    return op.put(
        f"warps.reduce('{op.parts[2]}', {op.get(1, kind)}, {op.s}, {absolute}, {nan})", kind
    )


@family("match")
def match(op: Op) -> list[str]:
    """Lower ``match``."""
    target, test = op.pair(0)
    lines = [f"x, y = warps.match('{op.parts[1]}', {op.get(1, 'u' + op.kind[1:])}, {op.s})"]
    lines += op.put("x", "u32", target)
    return lines + (op.put("y", "pred", test) if test else [])


@family("elect")
def elect(op: Op) -> list[str]:
    """Lower ``elect``."""
    target, test = op.pair(0)
    lines = [f"x, y = warps.elect({op.s})", *op.put("x", "pred", test or "_")]
    return lines + (op.put("y", "u32", target) if target != "_" else [])


@family("ldmatrix")
def ldmatrix(op: Op) -> list[str]:
    """Lower ``ldmatrix``."""
    targets = op.vector(0)
    if op.kind == "b8":
        lines = [f"x = warps.ldmatrix_bytes({op.address(1)}, {len(targets)}, {op.s}, {op.pc})"]
        return lines + [line for i, t in enumerate(targets) for line in op.put(f"x[{i}]", "u32", t)]
    call = f"warps.ldmatrix({op.address(1)}, {len(targets)}, {op.has('trans')}, {op.s}, {op.pc})"
    lines = [f"x = {call}"]
    for i, target in enumerate(targets):
        lines += op.put(f"x[{i}]", "u32", target)
    return lines


@family("stmatrix")
def stmatrix(op: Op) -> list[str]:
    """Lower ``stmatrix``."""
    values = ", ".join(op.get(v, "u32") for v in op.vector(1))
    if op.kind == "b8":
        return [f"warps.stmatrix_bytes({op.address(0)}, [{values}], {op.s}, {op.pc})"]
    return [f"warps.stmatrix({op.address(0)}, [{values}], {op.has('trans')}, {op.s}, {op.pc})"]


@family("movmatrix")
def movmatrix(op: Op) -> list[str]:
    """Lower ``movmatrix``."""
    return op.put(f"warps.transpose({op.get(1, 'u32')}, {op.s})", "u32")


@family("setmaxnreg")
def setmaxnreg(op: Op) -> list[str]:
    """Lower ``setmaxnreg``."""
    return [f"budgets.ask({int(op.args[0])}, {op.s}, {op.pc})"]
