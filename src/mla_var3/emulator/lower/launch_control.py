"""Lowers PTX ``clusterlaunchcontrol`` to calls of the unit that hands out waiting clusters."""

from __future__ import annotations

from mla_var3.emulator.lower.base import Op, family


@family("clusterlaunchcontrol")
def clusterlaunchcontrol(op: Op) -> list[str]:
    """Lower ``clusterlaunchcontrol``."""
    if op.parts[1] == "try_cancel":
        everyone = op.has("multicast::cluster::all")
        operands = f"{op.address(0)}, {op.address(1)}, {everyone}"
        return [f"launch_control.claim({operands}, {op.s}, {op.pc})"]
    low, high = (op.get(half, "u64") for half in op.vector(1))
    if op.has("is_canceled"):
        return op.put(f"launch_control.canceled({low})", "pred")
    axes = [p.removeprefix("get_first_ctaid::") for p in op.parts]
    axis = next(("xyz".index(p) for p in axes if p in ("x", "y", "z")), 0)
    lines = [f"x, y = {low}, {high}"]
    for i, name in enumerate(op.vector(0)[:3], axis):
        lines += op.put(f"launch_control.first(x, y, {i})", "u32", name) if name != "_" else []
    return lines
