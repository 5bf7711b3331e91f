"""Lowers PTX floating-point arithmetic to Python source over numpy."""

from __future__ import annotations

from mla_var3.emulator.lower.base import NotLowered, Op, family

UNARY = {
    "sin": "np.sin",
    "cos": "np.cos",
    "ex2": "np.exp2",
    "lg2": "np.log2",
    "sqrt": "np.sqrt",
    "tanh": "np.tanh",
}


def value(op: Op, operand: int, kind: str | None = None) -> str:
    """Values of an operand; two per element where the format is packed."""
    kind = kind or op.kind
    text = _loaded(op, operand, kind)
    return f"fn.flush({text})" if op.has("ftz") and kind in ("f32", "f32x2") else text


def _loaded(op: Op, operand: int, kind: str) -> str:
    match kind:
        case "f16x2":
            return f"np.atleast_1d({op.get(operand, 'u32')}).view(F16)"
        case "bf16x2":
            return f"fn.halves({op.get(operand, 'u32')}, 'bf16')"
        case "bf16":
            return f"formats.from_bf16({op.get(operand, 'u16')})"
        case "f32x2":
            return f"np.atleast_1d({op.get(operand, 'u64')}).view(F32)"
        case "f16" | "f32" | "f64":
            return op.get(operand, kind)
    raise NotLowered(kind)


def store(op: Op, text: str, kind: str | None = None, operand: int | str = 0) -> list[str]:
    """Lines that store values in a format."""
    kind = kind or op.kind
    if op.has("ftz") and kind in ("f32", "f32x2", "bf16", "bf16x2"):
        text = f"fn.flush({text})"  # The smallest normal number of bf16 is that of f32.
    if op.has("sat"):
        text = f"fn.saturate({text})"
    if op.has("relu"):
        text = f"fn.float_max({text}, F32(0), True)"
    match kind:
        case "f16x2":
            return op.put(f"({text}).astype(F16).view(U32)", "u32", operand)
        case "bf16x2":
            return op.put(f"fn.join(formats.to_bf16({text}))", "u32", operand)
        case "bf16":
            return op.put(f"formats.to_bf16({text})", "u16", operand)
        case "f32x2":
            return op.put(f"({text}).view(U64)", "u64", operand)
    return op.put(text, kind, operand)


def _mixed(op: Op) -> bool:
    """Whether narrow values meet single precision, as in ``fma.rn.f32.bf16``."""
    return op.parts[-2] == "f32"


def _wide(op: Op, operand: int) -> str:
    """A factor, or the first term of a sum; in single precision where the others are."""
    text = value(op, operand)
    return f"{text}.astype(F32)" if _mixed(op) and op.kind == "f16" else text


def add(op: Op) -> list[str]:
    """Sums and differences of floats."""
    sign = "+" if op.parts[0] == "add" else "-"
    kind = "f32" if _mixed(op) else op.kind
    a, b = _wide(op, 1), value(op, 2, kind)
    if (mode := op.rounding()) != "rn":
        exact = f"fn.exact_add({a}, {sign}({b}), '{mode}')"
        return store(op, f"fn.directed({exact}, F32, '{mode}')", kind)
    return store(op, f"{a} {sign} {b}", kind)


def mul(op: Op) -> list[str]:
    """Products of floats, and products plus a third."""
    if op.parts[0] != "mul":
        kind = "f32" if _mixed(op) else op.kind
        return _fma(op, kind, _wide(op, 1), _wide(op, 2), value(op, 3, kind))
    a, b = value(op, 1), value(op, 2)
    if (mode := op.rounding()) != "rn":
        return store(op, f"fn.directed(np.multiply({a}, {b}, dtype=F64), F32, '{mode}')")
    return store(op, f"{a} * {b}")


def _fma(op: Op, kind: str, a: str, b: str, c: str) -> list[str]:
    match kind:
        case "f32" | "f32x2" if op.rounding() == "rn":
            return store(op, f"fn.fma32({a}, {b}, {c})", kind)
        case "f32" | "f32x2":
            mode = op.rounding()
            exact = f"fn.exact_fma({a}, {b}, {c}, '{mode}')"
            return store(op, f"fn.directed({exact}, F32, '{mode}')", kind)
        case "f64":
            return store(op, f"fn.fma64({a}, {b}, {c})")
        case "f16":
            return store(op, f"fn.fma_small({a}, {b}, {c}, 'f16').view(F16)")
        case "bf16":
            return store(op, f"formats.from_bf16(fn.fma_small({a}, {b}, {c}, 'bf16'))")
        case "f16x2":
            return store(op, f"fn.fma_small({a}, {b}, {c}, 'f16').view(F16)")
        case "bf16x2":
            return store(op, f"formats.from_bf16(fn.fma_small({a}, {b}, {c}, 'bf16'))")
    raise NotLowered(op.kind)


def div(op: Op) -> list[str]:
    """Quotients of floats."""
    a, b = value(op, 1), value(op, 2)
    if (mode := op.rounding()) != "rn" and op.kind == "f32":
        return store(op, f"fn.directed(np.divide({a}, {b}, dtype=F64), F32, '{mode}')")
    if op.has("approx"):
        return store(op, f"fn.quotient({a}, {b})")
    return store(op, f"{a} / {b}")


def minmax(op: Op) -> list[str]:
    """Smaller and larger of floats."""
    function = f"fn.float_{op.parts[0]}"
    nan = op.has("NaN")
    operands = [value(op, i) for i in range(1, len(op.args))]
    text = operands[0]
    for other in operands[1:]:
        text = f"{function}({text}, {other}, {nan})"
    return store(op, text)


def sign(op: Op) -> list[str]:
    """Absolute and negated floats."""
    text = value(op, 1)
    return store(op, f"np.abs({text})" if op.parts[0] == "abs" else f"-({text})")


@family("copysign")
def copysign(op: Op) -> list[str]:
    """Lower ``copysign``."""
    return store(op, f"np.copysign({value(op, 2)}, {value(op, 1)})")


@family(*UNARY)
def unary(op: Op) -> list[str]:
    """Lower the functions of one float; 2**x is 1 for a subnormal x as for the zero it becomes."""
    name = op.parts[0]
    text = _loaded(op, 1, op.kind) if name == "ex2" else value(op, 1)
    if name == "sqrt" and op.rounding() != "rn" and op.kind == "f32":
        return store(op, f"fn.directed(np.sqrt({text}, dtype=F64), F32, '{op.rounding()}')")
    return store(op, f"{UNARY[name]}({text})")


@family("rcp", "rsqrt")
def reciprocal(op: Op) -> list[str]:
    """Lower ``rcp``, ``rsqrt``."""
    text = value(op, 1) if op.parts[0] == "rcp" else f"np.sqrt({value(op, 1)}, dtype=F64)"
    exact = f"np.divide(1.0, {text}, dtype=F64)"
    mode = op.rounding() if op.parts[0] == "rcp" else "rn"
    if op.kind == "f32":
        return store(op, f"fn.directed({exact}, F32, '{mode}')")
    return store(op, exact)
