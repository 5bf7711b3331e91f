"""Lowers PTX mbarriers, fences and warp barriers to calls; the scheduler runs blocking ones."""

from __future__ import annotations

from mla_var3.emulator.lower.base import NotLowered, Op, family


@family("mbarrier")
def mbarrier(op: Op) -> list[str]:
    """Lower ``mbarrier``."""
    name = op.parts[1]
    state = not op.args[0].startswith("[")
    if name == "pending_count":
        return op.put(f"sync.pending({op.get(1, 'u64')}, {op.s})", "u32")
    at, rest = op.address(1 if state else 0), op.args[2 if state else 1 :]
    if name == "init":
        return [f"sync.init({at}, {op.get(rest[0], 'u32')}, {op.s}, {op.pc})"]
    if name == "inval":
        return [f"sync.invalidate({at}, {op.s}, {op.pc})"]
    bytes_ = op.get(rest[0], "u32") if op.has("expect_tx", "complete_tx") else "0"
    bytes_ = f"-{bytes_}.astype(I64)" if name == "complete_tx" else bytes_
    count = op.get(rest[0], "u32") if rest and not op.has("expect_tx", "complete_tx") else "1"
    if name in ("expect_tx", "complete_tx"):
        count = "0"
    elif name not in ("arrive", "arrive_drop"):
        raise NotLowered(op.instruction.op)
    call = f"sync.arrive({at}, {count}, {bytes_}, {name == 'arrive_drop'}, {op.s}, {op.pc})"
    if not state or op.args[0] == "_":
        return [call]
    return op.put(call, "u64")


@family("fence", "membar")
def fence(op: Op) -> list[str]:
    """Lower ``fence``, ``membar``."""
    return [f"sync.fence('{op.instruction.op}', {op.s})"]


@family("griddepcontrol")
def grid_dependency(op: Op) -> list[str]:
    """Lower ``griddepcontrol``; letting the next grid begin changes nothing for this one."""
    return [f"words.wait_for_grid({op.s})"] if op.has("wait") else []


@family("bar", "barrier")
def warp_barrier(op: Op) -> list[str]:
    """Lower ``bar``, ``barrier``."""
    if op.instruction.op != "bar.warp.sync":
        raise NotLowered(op.instruction.op)
    return [f"warps.sync({op.get(0, 'u32')}, {op.s})"]
