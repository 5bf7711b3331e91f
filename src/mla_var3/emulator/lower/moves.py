"""Lowers PTX moves, selections, address conversions and ``mapa`` to Python source over numpy."""

from __future__ import annotations

from mla_var3.emulator.lower.base import NotLowered, Op, family
from mla_var3.emulator.windows import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW
from mla_var3.gpuless.ptx import bits

WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}


@family("mov")
def mov(op: Op) -> list[str]:
    """Lower ``mov``."""
    kind = op.raw()
    if kind == "u128":
        return _halves(op)
    if op.args[1].startswith("{"):
        return op.put(_packed(op, kind), kind)
    if op.args[0].startswith("{"):
        return _unpacked(op, kind)
    return op.put(op.get(1, kind), kind)


def _halves(op: Op) -> list[str]:
    """A move of 128 bits, which are two registers."""
    low, high = (op.get(x, "u64") for x in op.vector(1))
    names = op.vector(0)
    return [
        f"x, y = {low}, {high}",
        *op.put("x", "u64", names[0]),
        *op.put("y", "u64", names[1]),
    ]


def _packed(op: Op, kind: str) -> str:
    parts = op.vector(1)
    width, whole = bits(kind) // len(parts), bits(kind)
    return " | ".join(
        f"({op.get(p, f'u{width}')}.astype(np.uint{whole}) << np.uint{whole}({width * i}))"
        for i, p in enumerate(parts)
    )


def _unpacked(op: Op, kind: str) -> list[str]:
    parts = op.vector(0)
    width, whole = bits(kind) // len(parts), bits(kind)
    lines = [f"x = {op.get(1, f'u{whole}')}"]
    for i, part in enumerate(parts):
        if part != "_":
            value = f"(x >> np.uint{whole}({width * i})).astype(np.uint{width})"
            lines += op.put(value, f"u{width}", part)
    return lines


@family("selp")
def selp(op: Op) -> list[str]:
    """Lower ``selp``."""
    kind = op.raw()
    return op.put(f"np.where({op.get(3, 'pred')}, {op.get(1, kind)}, {op.get(2, kind)})", kind)


@family("slct")
def slct(op: Op) -> list[str]:
    """Lower ``slct``."""
    kind = "u" + op.parts[-2][1:]
    return op.put(f"np.where({op.get(3)} >= 0, {op.get(1, kind)}, {op.get(2, kind)})", kind)


@family("cvta")
def cvta(op: Op) -> list[str]:
    """Lower ``cvta``."""
    space = next((p.partition("::")[0] for p in op.parts if p.partition("::")[0] in WINDOWS), None)
    value = op.get(1, "u64") if op.kind == "u64" else f"{op.get(1, 'u32')}.astype(U64)"
    if space == "param":  # A symbol of a parameter is a generic address already.
        space = None
    if space is None:
        return op.put(f"{value} + U64(0)" if op.kind == "u64" else value, op.kind)
    window = op.constant(WINDOWS[space])
    sign = "-" if op.has("to") else "+"
    return op.put(f"{value} {sign} U64({window})", op.kind)


@family("isspacep")
def isspacep(op: Op) -> list[str]:
    """Lower ``isspacep``."""
    space = op.kind.partition("::")[0]
    address = op.get(1, "u64")
    if space in WINDOWS:
        return op.put(f"({address} >> U64(48)) == U64({WINDOWS[space] >> 48})", "pred")
    if space != "global":
        raise NotLowered(op.kind)
    return op.put(f"({address} >> U64(56)) == U64(0)", "pred")


@family("mapa")
def mapa(op: Op) -> list[str]:
    """Lower ``mapa``."""
    first = 0 if op.writer.program.pairs else 1
    rank = f"(({op.get(2, 'u32')} + U32({first})) << U32(24))"
    if op.kind == "u32":
        return op.put(f"({op.get(1, 'u32')} & U32(0xffffff)) | {rank}", "u32")
    return op.put(f"({op.get(1, 'u64')} & ~U64(0xff000000)) | {rank}.astype(U64)", "u64")


@family("getctarank")
def getctarank(op: Op) -> list[str]:
    """Lower ``getctarank``."""
    source = op.get(1, "u64" if op.kind == "u64" else "u32")
    return op.put(f"machine.rank_of({source}, {op.s})", "u32")


@family("createpolicy")
def createpolicy(op: Op) -> list[str]:
    """Lower ``createpolicy``."""
    return op.put("U64(0)", "b64")


@family("activemask")
def activemask(op: Op) -> list[str]:
    """Lower ``activemask``."""
    return op.put(f"warps.active({op.s})", "u32")
