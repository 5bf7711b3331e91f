"""Lowers PTX integer arithmetic and comparisons to numpy; passes floats on to ``floating``."""

from __future__ import annotations

from mla_var3.emulator.lower import floating
from mla_var3.emulator.lower.base import Op, family, numpy_name
from mla_var3.gpuless.ptx import bits

COMPARE = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "lo": "<",
    "ls": "<=",
    "hi": ">",
    "hs": ">=",
}
COMBINE = {"and": "&", "or": "|", "xor": "^"}


def is_float(op: Op) -> bool:
    """Whether an instruction works on floats."""
    return op.kind.startswith(("f", "bf", "e"))


@family("add", "sub")
def add(op: Op) -> list[str]:
    """Lower ``add``, ``sub``."""
    if is_float(op):
        return floating.add(op)
    sign = "+" if op.parts[0] == "add" else "-"
    if op.kind.endswith("x2"):
        return op.put(f"fn.join({' + '.join(_halves(op))})", "u32")
    a, b = op.get(1), op.get(2)
    if op.has("cc"):
        function = "add_carry" if sign == "+" else "sub_borrow"
        kind = "u" + op.kind[1:]
        a, b = op.get(1, kind), op.get(2, kind)
        value = f"fn.{function}({a}, {b}, machine.carry[{op.s}] & False)"
        return [f"x, machine.carry[{op.s}] = {value}", *op.put("x", kind)]
    if op.has("sat"):
        return op.put(f"np.clip({a}.astype(I64) {sign} {b}, -2**31, 2**31 - 1)")
    return op.put(f"{a} {sign} {b}")


@family("addc", "subc")
def addc(op: Op) -> list[str]:
    """Lower ``addc``, ``subc``."""
    function = "add_carry" if op.parts[0] == "addc" else "sub_borrow"
    kind = "u" + op.kind[1:]
    value = f"fn.{function}({op.get(1, kind)}, {op.get(2, kind)}, machine.carry[{op.s}])"
    store = f"machine.carry[{op.s}]" if op.has("cc") else "y"
    return [f"x, {store} = {value}", *op.put("x", kind)]


@family("mul", "mad", "fma")
def mul(op: Op) -> list[str]:
    """Lower ``mul``, ``mad``, ``fma``."""
    if is_float(op):
        return floating.mul(op)
    plus = op.parts[0].startswith("mad")
    if op.parts[1] == "wide":
        wide = f"{op.kind[0]}{2 * bits(op.kind)}"
        product = f"{op.get(1)}.astype({numpy_name(wide)}) * {op.get(2)}"
        return op.put(product + (f" + {op.get(3, wide)}" if plus else ""), wide)
    product = _high(op) if op.parts[1] == "hi" else f"{op.get(1)} * {op.get(2)}"
    return op.put(product + (f" + {op.get(3)}" if plus else ""))


def _high(op: Op) -> str:
    width, signed = bits(op.kind), op.kind[0] == "s"
    if width == 64:
        value = f"fn.mul_hi64({op.get(1)}, {op.get(2)}, {signed})"
        return f"{value}.view(I64)" if signed else value
    wide = "I64" if signed else "U64"
    high = f"({op.get(1)}.astype({wide}) * {op.get(2)} >> {wide}({width}))"
    return f"{high}.astype({numpy_name(op.kind)})"


@family("div", "rem")
def div(op: Op) -> list[str]:
    """Lower ``div``, ``rem``."""
    if is_float(op):
        return floating.div(op)
    function = {"div": "divide", "rem": "remainder"}[op.parts[0]]
    prefix = "" if op.kind[0] == "s" else "u"
    name = {"udivide": "udivide", "uremainder": "uremainder"}.get(prefix + function, function)
    return op.put(f"fn.{name}({op.get(1)}, {op.get(2)})")


@family("min", "max")
def minmax(op: Op) -> list[str]:
    """Lower ``min``, ``max``."""
    if is_float(op):
        return floating.minmax(op)
    if op.kind.endswith("x2"):
        return _minmax2(op)
    value = f"np.{op.parts[0]}imum({op.get(1)}, {op.get(2)})"
    return op.put(f"np.maximum({value}, 0)" if op.has("relu") else value)


def _minmax2(op: Op) -> list[str]:
    value = f"np.{op.parts[0]}imum({', '.join(_halves(op))})"
    value = f"np.maximum({value}, np.int16(0))" if op.has("relu") else value
    return op.put(f"fn.join({value})", "u32")


def _halves(op: Op) -> list[str]:
    """Both operands as pairs of integers of 16 bits, [n, 2]; of a constant n is 1."""
    half = {"s": "np.int16", "u": "np.uint16"}[op.kind[0]]
    return [f"np.atleast_1d({op.get(i, 'u32')}).view({half}).reshape(-1, 2)" for i in (1, 2)]


@family("abs", "neg")
def sign(op: Op) -> list[str]:
    """Lower ``abs``, ``neg``."""
    if is_float(op):
        return floating.sign(op)
    return op.put(f"np.abs({op.get(1)})" if op.parts[0] == "abs" else f"-{op.get(1)}")


@family("sad")
def sad(op: Op) -> list[str]:
    """Lower ``sad``."""
    a, b, c = (op.get(i) for i in (1, 2, 3))
    return op.put(f"{c} + np.where({a} > {b}, {a} - {b}, {b} - {a})")


@family("setp")
def setp(op: Op) -> list[str]:
    """Lower ``setp``."""
    a, b = _operands(op)
    value = compare(op.parts[1], a, b, is_float(op))
    combine = next((COMBINE[p] for p in op.parts[2:] if p in COMBINE), None)
    targets = [t.strip() for t in op.args[0].split("|")]
    lines, tests = [f"x = {value}"], ["x", "~x"]
    if combine:
        # Before the first is written, which may be the predicate that both are combined with.
        both = ", ".join(f"{test} {combine} {op.get(3, 'pred')}" for test in tests[: len(targets)])
        lines, tests = [*lines, f"{'x, y' if len(targets) == 2 else 'x'} = {both}"], ["x", "y"]
    for target, test in zip(targets, tests, strict=False):
        lines += op.put(test, "pred", target)
    return lines


@family("set")
def set_(op: Op) -> list[str]:
    """Lower ``set``."""
    a, b = _operands(op)
    test = compare(op.parts[1], a, b, is_float(op))
    combine = next((COMBINE[p] for p in op.parts[2:] if p in COMBINE), None)
    if combine:
        test = f"({test}) {combine} {op.get(3, 'pred')}"
    result = op.parts[-2]
    if result == "f32":
        return op.put(f"np.where({test}, F32(1), F32(0))", "f32")
    return op.put(f"np.where({test}, U32(0xffffffff), U32(0))", "u32")


def _operands(op: Op) -> tuple[str, str]:
    if is_float(op):
        return floating.value(op, 1), floating.value(op, 2)
    return op.get(1, op.raw()), op.get(2, op.raw())


def compare(test: str, a: str, b: str, floats: bool) -> str:
    """Expression of a comparison; those that end in u hold for NaN too."""
    unordered = f"np.isnan({a})" if a == b else f"(np.isnan({a}) | np.isnan({b}))"
    if test == "nan":
        return unordered
    if test == "num":
        return f"~{unordered}"
    if test in ("equ", "neu", "ltu", "leu", "gtu", "geu"):
        return f"({a} {COMPARE[test[:2]]} {b}) | {unordered}"
    if test == "ne" and floats:  # Ordered: false for NaN, unlike Python's !=.
        return f"({a} < {b}) | ({a} > {b})"
    return f"{a} {COMPARE[test]} {b}"


@family("testp")
def testp(op: Op) -> list[str]:
    """Lower ``testp``."""
    x = floating.value(op, 1)
    tiny = "F32(2.0**-126)" if op.kind == "f32" else "2.0**-1022"
    test = {
        "finite": f"np.isfinite({x})",
        "infinite": f"np.isinf({x})",
        "number": f"~np.isnan({x})",
        "notanumber": f"np.isnan({x})",
        "normal": f"np.isfinite({x}) & (np.abs({x}) >= {tiny})",
        "subnormal": f"(np.abs({x}) < {tiny}) & ({x} != 0)",
    }[op.parts[1]]
    return op.put(test, "pred")


@family("dp4a", "dp2a")
def dp(op: Op) -> list[str]:
    """Lower ``dp4a``, ``dp2a``."""
    kinds = [p for p in op.parts if p in ("u32", "s32")]
    signs = (kinds[0] == "s32", kinds[1] == "s32")
    kind = "s32" if any(signs) else "u32"
    parts = 4 if op.parts[0] == "dp4a" else 2
    b = op.get(2, "u32")
    if op.has("hi"):
        b = f"({b} >> U32(16))"
    value = f"fn.dot({op.get(1, 'u32')}, {b}, {op.get(3, kind)}, {signs}, {parts})"
    return op.put(f"({value}).astype({numpy_name(kind)})", kind)
