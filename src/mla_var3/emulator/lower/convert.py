"""Lowers PTX ``cvt``, conversions between number formats, to Python source over numpy."""

from __future__ import annotations

from mla_var3.emulator.formats import SMALL
from mla_var3.emulator.lower.base import NotLowered, Op, family, numpy_name
from mla_var3.gpuless.ptx import bits

ROUND = {"i": "np.rint", "z": "np.trunc", "m": "np.floor", "p": "np.ceil"}
INTEGER_ROUNDING = {"rni": "i", "rzi": "z", "rmi": "m", "rpi": "p"}


@family("cvt")
def cvt(op: Op) -> list[str]:
    """Lower ``cvt``."""
    if op.parts[1] == "pack":
        return _pack(op)
    to, source = op.parts[-2], op.parts[-1]
    if to.endswith("x2") or source.endswith("x2"):
        return _packed(op, to, source)
    if to == "tf32":
        mode = next((m for m in ("rna", "rz") if op.has(m)), "rn")
        return op.put(f"formats.to_tf32({_relu(op, op.get(1, 'f32'))}, '{mode}')", "u32")
    if _is_float(to):
        return _to_float(op, to, source)
    if _is_float(source):
        return _to_integer(op, to, source)
    return _integers(op, to, source)


def _is_float(kind: str) -> bool:
    return kind.startswith(("f", "bf"))


def _relu(op: Op, text: str) -> str:
    return f"fn.float_max({text}, F32(0), True)" if op.has("relu") else text


def _values(op: Op, operand: int, kind: str) -> str:
    text = op.get(operand, "u16") if kind == "bf16" else op.get(operand, kind)
    text = f"formats.from_bf16({text})" if kind == "bf16" else text
    return f"fn.flush({text})" if op.has("ftz") and kind == "f32" else text


def _to_float(op: Op, to: str, source: str) -> list[str]:
    text = _values(op, 1, source)
    if not _is_float(source):
        text = _exact(text, to, source, op.rounding())
    whole = next((INTEGER_ROUNDING[m] for m in INTEGER_ROUNDING if op.has(m)), None)
    if whole:
        text = f"{ROUND[whole]}({text})"
    text = _relu(op, text)
    if op.has("sat"):
        text = f"fn.saturate({text})"
    mode = op.rounding()
    if to == "bf16":
        return op.put(_to_bf16(text, source, mode), "u16")
    if mode != "rn":
        text = f"fn.directed({text}, {numpy_name(to)}, '{mode}')"
    else:
        text = f"({text}).astype({numpy_name(to)})"
    return op.put(f"fn.flush({text})" if op.has("ftz") and to == "f32" else text, to)


def _exact(text: str, to: str, source: str, mode: str) -> str:
    """Integers as what is rounded once from here on."""
    if to == "f64":
        return text if mode == "rn" or bits(source) < 64 else f"({text}).astype(np.longdouble)"
    if bits(source) == 64:
        return f"fn.odd_integer({text})"
    return f"({text}).astype(F64)"


def _to_bf16(text: str, source: str, mode: str) -> str:
    if source in ("f32", "f16"):
        return f"formats.to_bf16({text}, '{mode}')"
    if mode == "rz":
        return f"formats.to_bf16(fn.directed({text}, F32, 'rz'), 'rz')"
    return f"fn.to_small({text}, 'bf16')"


def _to_integer(op: Op, to: str, source: str) -> list[str]:
    mode = next((INTEGER_ROUNDING[m] for m in INTEGER_ROUNDING if op.has(m)), "z")
    text = f"fn.to_integer({_values(op, 1, source)}, '{mode}', {bits(to)}, {to[0] == 's'})"
    return op.put(f"{text}.astype({numpy_name(to)})", to)


def _integers(op: Op, to: str, source: str) -> list[str]:
    text = op.get(1, source)
    if op.has("sat"):
        low, high = (
            (-(1 << bits(to) - 1), (1 << bits(to) - 1) - 1)
            if to[0] == "s"
            else (0, (1 << bits(to)) - 1)
        )
        text = f"np.clip({text}.astype(I64), {low}, {high})"
    return op.put(f"{text}.astype({numpy_name(to)})", to)


def _packed(op: Op, to: str, source: str) -> list[str]:
    if to == "ue8m0x2":
        return _scales(op, source)
    if source == "s2f6x2":
        return _fixed(op)
    small = to.removesuffix("x2") in SMALL
    if small and source == "f32":
        low, high = (_relu(op, op.get(i, "f32")) for i in (2, 1))
        form = to.removesuffix("x2")
        width = 4 if form == "e2m1" else 8
        code = (
            f"(formats.encode({high}, '{form}') << U16({width})) | formats.encode({low}, '{form}')"
        )
        return op.put(code, "u8" if width == 4 else "u16")
    if small:
        return _from_halves(op, to.removesuffix("x2"), source)
    if source.removesuffix("x2") in SMALL:
        return _to_halves(op, to, source.removesuffix("x2"))
    if to in ("f16x2", "bf16x2") and source == "f32":
        high, low = (_half(op, i, to) for i in (1, 2))
        return op.put(f"({high}.astype(U32) << U32(16)) | {low}", "u32")
    raise NotLowered(op.instruction.op)


def _scales(op: Op, source: str) -> list[str]:
    how = f"'{op.rounding()}', {op.has('satfinite')}"
    if source == "f32":
        high, low = (f"formats.encode_scale({op.get(i, 'f32')}, {how})" for i in (1, 2))
        return op.put(f"({high} << U16(8)) | {low}", "u16")
    code = f"formats.encode_scale(fn.halves({op.get(1, 'u32')}, 'bf16'), {how})"
    return [f"x = {code}", *op.put("x[:, 0] | (x[:, 1] << U16(8))", "u16")]


def _fixed(op: Op) -> list[str]:
    """Two bytes of six binary places, times a power of two each, which bf16 has exactly."""
    values = f"fn.octets({op.get(1, 'u16')}).view(np.int8) / F32(64)"
    if op.has("scaled::n2::ue8m0"):
        values = f"({values}) * formats.decode(fn.octets({op.get(2, 'u16')}), 'ue8m0')"
    return op.put(f"fn.join(formats.to_bf16({_relu(op, values)}))", "u32")


def _half(op: Op, operand: int, to: str) -> str:
    text, mode = _relu(op, op.get(operand, "f32")), op.rounding()
    if to == "bf16x2":
        return f"formats.to_bf16({text}, '{mode}')"
    if mode != "rn":
        return f"fn.directed({text}, F16, '{mode}').view(U16)"
    return f"fn.half({text})"


def _from_halves(op: Op, form: str, source: str) -> list[str]:
    kind = source.removesuffix("x2")
    values = _relu(op, f"fn.halves({op.get(1, 'u32')}, '{kind}')")
    code = f"formats.encode({values}, '{form}')"
    return [f"x = {code}", *op.put("x[:, 0] | (x[:, 1] << U16(8))", "u16")]


def _to_halves(op: Op, to: str, form: str) -> list[str]:
    if form == "e2m1":
        codes = [f"({op.get(1, 'u8')} & np.uint8(15))", f"({op.get(1, 'u8')} >> np.uint8(4))"]
    else:
        codes = [f"({op.get(1, 'u16')} & U16(255))", f"({op.get(1, 'u16')} >> U16(8))"]
    stacked = ", ".join(f"formats.decode({c}, '{form}')" for c in codes)
    values = _relu(op, f"np.stack(np.broadcast_arrays({stacked}), -1)")
    code = f"formats.to_bf16({values})" if to == "bf16x2" else f"({values}).astype(F16).view(U16)"
    return op.put(f"fn.join({code})", "u32")


def _pack(op: Op) -> list[str]:
    # cvt.pack.sat.s8.s32.b32 d, a, b, c: a and b clamped, put below the low half of c.
    to, source = op.parts[3], op.parts[4]
    width = bits(to)
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if to[0] == "s" else (0, (1 << width) - 1)
    codes = [
        f"(np.clip({op.get(i, source)}, {low}, {high}).astype(I64).astype(U32) & "
        f"U32({(1 << width) - 1}))"
        for i in (1, 2)
    ]
    text = f"({codes[0]} << U32({width})) | {codes[1]}"
    if len(op.args) > 3:
        text = f"({op.get(3, 'u32')} << U32({2 * width})) | {text}"
    return op.put(text, "u32")
