# ruff: noqa: E501  # A PTX statement stays on its line.
"""The table of instructions: every form that is run is lowered, and no modifier passes unread."""

from __future__ import annotations

import itertools
import re
import zlib
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.emulator import launch
from mla_var3.emulator.lower import FAMILIES, forms
from mla_var3.emulator.lower.base import NOTHING
from mla_var3.emulator.program import BLOCKING, Program
from mla_var3.errors import EmulatorError
from mla_var3.gpuless.ptx import parse
from tests.emulator.snippets import evaluate

FORMS = [form for group in forms.table().values() for form in group]
#: Opcodes of a form that are looked at; more would be the same in other types.
MOST = 24
HEAD = """.version 9.0
.target sm_120a
.address_size 64
.visible .entry k(.param .u64 a)
{
.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %d<40>; .reg .b128 %q<3>; .reg .f32 %f<9>;
.shared .align 128 .b8 s[1024];
"""
BITS = {"8": "%h", "16": "%h", "32": "%r", "64": "%d"}


def register(kind: str, number: int) -> str:
    """A register that holds a type."""
    if kind == "pred":
        return f"%p{number}"
    width = {"f16x2": "32", "bf16x2": "32", "u16x2": "32", "s16x2": "32", "f32x2": "64"}.get(kind)
    if kind == "tf32":
        width = "32"
    if re.match(r"e\dm\dx2|ue8m0x2", kind):
        width = "16"
    return f"{BITS[width or re.sub('[^0-9]', '', kind)]}{number}"


def values(op: str, kinds: list[str]) -> str:
    return ", ".join(register(kind, i) for i, kind in enumerate(kinds))


#: Operands that differ in type from the last part of the opcode, by the first part.
COUNT = {
    **dict.fromkeys(("add", "sub", "mul", "div", "rem", "min", "max", "and", "or", "xor", "addc"), 3),
    **dict.fromkeys(("subc", "copysign"), 3),
    **dict.fromkeys(("mad", "fma", "sad"), 4),
    **dict.fromkeys(("abs", "neg", "not", "cnot", "brev", "mov", "rcp", "rsqrt", "sqrt"), 2),
    **dict.fromkeys(("sin", "cos", "lg2", "ex2", "tanh"), 2),
}  # fmt: skip


def operands(form: forms.Form, op: str) -> str:
    """Operands that an opcode takes."""
    name, *parts = op.split(".")
    kind = parts[-1] if parts else ""
    if op == "mov.b128":
        return "%q1, {%d1, %d2}"
    if name in COUNT:
        if "wide" in parts:
            wide = kind[0] + str(2 * int(kind[1:]))
            return values(op, [wide, kind, kind, wide][: COUNT[name]])
        if len(parts) > 1 and parts[-2] == "f32" and kind in ("f16", "bf16"):  # Mixed precision.
            return values(op, ["f32", *[kind] * (COUNT[name] - 2), "f32"])
        return values(op, [kind] * COUNT[name])
    if name in OPERANDS:
        found = OPERANDS[name]
        return found(op, parts, kind) if callable(found) else found
    raise AssertionError(f"no operands are known for {op}")


def _setp(op: str, parts: list[str], kind: str) -> str:
    third = ", %p3" if {"and", "or", "xor"} & set(parts) else ""
    return f"%p0|%p1, {register(kind, 1)}, {register(kind, 2)}{third}"


def _set(op: str, parts: list[str], kind: str) -> str:
    third = ", %p3" if {"and", "or", "xor"} & set(parts) else ""
    return f"%r0, {register(kind, 1)}, {register(kind, 2)}{third}"


def _cvt(op: str, parts: list[str], kind: str) -> str:
    if parts[0] == "pack":
        return "%r0, %r1, %r2, %r3"
    if kind == "s2f6x2":
        return "%r0, %h1" + (", %h2" if "scaled::n2::ue8m0" in parts else "")
    to, two = parts[-2], parts[-1] == "f32" and parts[-2].endswith("x2")
    if to == "e2m1x2" or kind == "e2m1x2":
        return (
            f"%h0, {register(kind, 1)}" + (f", {register(kind, 2)}" if two else "")
            if to == "e2m1x2"
            else f"{register(to, 0)}, %h1"
        )
    return f"{register(to, 0)}, {register(kind, 1)}" + (f", {register(kind, 2)}" if two else "")


def _load(op: str, parts: list[str], kind: str) -> str:
    many = next((int(p[1:]) for p in parts if p in ("v2", "v4", "v8")), 1)
    names = [register(kind, i) for i in range(many)]
    target = f"{{{', '.join(names)}}}" if many > 1 else names[0]
    space = next((p.partition("::")[0] for p in parts if p.partition("::")[0] in ("param",)), "")
    return f"{target}, [{'a' if space else '%d30'}]" + (
        ", %d31" if "L2::cache_hint" in parts else ""
    )


def _store(op: str, parts: list[str], kind: str) -> str:
    target, _, rest = _load(op, parts, kind).partition(", [")
    if "async" in parts:
        return f"[%r30], {target}, [%r31]"
    return f"[{rest.partition(']')[0] if 'param' not in op else '%d30'}], {target}"


def _atom(op: str, parts: list[str], kind: str) -> str:
    many = next((int(p[1:]) for p in parts if p in ("v2", "v4", "v8")), 1)

    def group(first: int) -> str:
        names = [register(kind, first + i) for i in range(many)]
        return f"{{{', '.join(names)}}}" if many > 1 else names[0]

    second = f", {register(kind, 9 - 1)}" if "cas" in parts else ""
    hint = ", %d31" if "L2::cache_hint" in parts else ""
    target = f"{group(0)}, " if op.startswith("atom") else ""
    address = "[%r30]" if "async" in parts else "[%d30]"
    barrier = ", [%r31]" if "async" in parts else ""
    return f"{target}{address}, {group(4)}{second}{barrier}{hint}"


def _cp(op: str, parts: list[str], kind: str) -> str:
    hint = ", %d31" if "L2::cache_hint" in parts else ""
    mask = ", %h3" if "multicast::cluster" in parts else ""
    if "commit_group" in parts or "wait_all" in parts:
        return ""
    if "wait_group" in parts:
        return "0"
    if "tensor" in parts:
        n = int(next(p for p in parts if p in ("1d", "2d", "3d", "4d", "5d"))[0])
        place = f"[%d1, {{{', '.join(['%r1'] * n)}}}]"
        if "prefetch" in parts:
            return place + hint
        if "bulk_group" in parts:
            return f"{place}, [%r2]{hint}"
        return f"[%r2], {place}, [%r3]{mask}{hint}"
    if "bulk" in parts:
        if "prefetch" in parts:
            return f"[%d1], %r1{hint}"
        if "bulk_group" in parts:
            return f"[%d1], [%r2], %r3{hint}"
        source = "[%d1]" if "global" in parts else "[%r4]"
        return f"[%r2], {source}, %r3, [%r5]{mask}{hint}"
    if parts[-1] == "b64":
        return "[%r1]"
    return f"[%r1], [%d1], 16, %r2{hint}"


def _tensormap(op: str, parts: list[str], kind: str) -> str:
    if parts[0] == "cp_fenceproxy":
        return "[%d1], [%r1], 128"
    numbered = {"box_dim", "global_dim", "element_stride", "global_stride"} & set(parts)
    return f"[%d1], {'0, ' if numbered else ''}{register(kind, 3)}"


def _mbarrier(op: str, parts: list[str], kind: str) -> str:
    match parts[0]:
        case "init":
            return "[%r1], 1"
        case "inval":
            return "[%r1]"
        case "expect_tx" | "complete_tx":
            return "[%r1], %r2"
        case "pending_count":
            return "%r1, %d1"
        case "arrive" | "arrive_drop":
            remote = "shared::cluster" in parts
            more = ", %r2" if "expect_tx" in parts or "noComplete" in parts else ""
            return f"{'_' if remote else '%d1'}, [%r1]{more}"
    return f"%p1, [%r1], {'%r2' if 'parity' in parts else '%d2'}"


def _mma(op: str, parts: list[str], kind: str) -> str:
    m, n, k = map(int, re.findall(r"\d+", parts[2]))
    types = [p for p in parts if re.fullmatch(r"f16|bf16|tf32|e\dm\d|[su]8|f64|f32|s32", p)]

    def registers(kind: str, elements: int, scaled: bool = False) -> str:
        size = {"f64": 64, "f32": 32, "s32": 32, "tf32": 32, "f16": 16, "bf16": 16}.get(kind, 8)
        size = 4 if kind == "e2m1" and k == 64 else size
        count = max(1, elements * size // 32 // max(32, size)) if size <= 32 else elements // 32
        bank = "%d" if kind == "f64" else "%r"
        return "{" + ", ".join(f"{bank}{i}" for i in range(count)) + "}"

    scale = ", {%r1}, {%h1, %h2}, {%r2}, {%h3, %h4}" if "block_scale" in parts else ""
    return (
        ", ".join(
            [
                registers(types[0], m * n),
                registers(types[1], m * k),
                registers(types[2], n * k),
                registers(types[3], m * n),
            ]
        )
        + scale
    )


def _wgmma(op: str, parts: list[str], kind: str) -> str:
    if parts[0] != "mma_async":
        return "0" if parts[0] == "wait_group" else ""
    n = int(re.match(r"m64n(\d+)", parts[3])[1])
    types = parts[-3:]
    count = n // 2 if types[0] != "f16" else n // 4
    plain = ", 1, 1" if kind in ("tf32", "e4m3", "e5m2") else ", 1, 1, 0, 0"
    plain = "" if types[0] == "s32" else plain
    return "{" + ", ".join(f"%a{i}" for i in range(count)) + f"}}, %d1, %d2, %p1{plain}"


def _tcgen05(op: str, parts: list[str], kind: str) -> str:
    if parts[0] in ("ld", "st"):
        each = {"16x128b": 2, "16x256b": 4}.get(parts[3], 1)
        count = (
            each * int(parts[4][1:]) // (2 if "pack::16b" in parts or "unpack::16b" in parts else 1)
        )
        values = "{" + ", ".join(f"%a{i}" for i in range(max(count, 1))) + "}"
        far = ", 16" if parts[3] == "16x32bx2" else ""
        return f"{values}, [%r1]{far}" if parts[0] == "ld" else f"[%r1]{far}, {values}"
    mask = ", %h1" if "multicast::cluster" in parts else ""
    return {
        "alloc": "[%r1], 64", "dealloc": "%r1, 64", "commit": f"[%r1]{mask}", "cp": "[%r1], %d1",
        "mma": "[%r1], %d1, %d2, %r2, [%r3], [%r4], %p1" if "block_scale" in parts else "[%r1], %d1, %d2, %r2, {%r3, %r4, %r5, %r6}, %p1",
    }.get(parts[0], "")  # fmt: skip


def _launch_control(op: str, parts: list[str], kind: str) -> str:
    if parts[0] == "try_cancel":
        return "[%r1], [%r2]"
    target = {"is_canceled": "%p1", "get_first_ctaid": "{%r1, %r2, %r3, %r4}"}.get(parts[1], "%r1")
    return f"{target}, %q1"


def _barrier(op: str, parts: list[str], kind: str) -> str:
    if parts[0] == "warp":
        return "0xffffffff"
    if parts[0] == "cluster":
        return ""
    if "red" in parts:
        return f"{'%r1' if kind == 'u32' else '%p1'}, 1, %p2"
    return "1, 32"


OPERANDS = {
    "dp4a": "%r0, %r1, %r2, %r3", "dp2a": "%r0, %r1, %r2, %r3",
    "popc": lambda op, parts, kind: f"%r0, {register(kind, 1)}",
    "clz": lambda op, parts, kind: f"%r0, {register(kind, 1)}",
    "bfind": lambda op, parts, kind: f"%r0, {register(kind, 1)}",
    "bfe": lambda op, parts, kind: f"{register(kind, 0)}, {register(kind, 1)}, %r2, %r3",
    "bfi": lambda op, parts, kind: f"{register(kind, 0)}, {register(kind, 1)}, {register(kind, 2)}, %r3, %r4",
    "fns": "%r0, %r1, %r2, %r3",
    "bmsk": "%r0, %r1, %r2", "szext": "%r0, %r1, %r2",
    "lop3": lambda op, parts, kind: "%r0|%p0, %r1, %r2, %r3, 0x80, %p1" if len(parts) > 1 else "%r0, %r1, %r2, %r3, 0x80",
    "shl": lambda op, parts, kind: f"{register(kind, 0)}, {register(kind, 1)}, %r2",
    "shr": lambda op, parts, kind: f"{register(kind, 0)}, {register(kind, 1)}, %r2",
    "shf": "%r0, %r1, %r2, %r3", "prmt": "%r0, %r1, %r2, %r3",
    "selp": lambda op, parts, kind: f"{register(kind, 0)}, {register(kind, 1)}, {register(kind, 2)}, %p1",
    "slct": lambda op, parts, kind: f"{register(parts[-2], 0)}, {register(parts[-2], 1)}, {register(parts[-2], 2)}, {register(kind, 3)}",
    "setp": _setp, "set": _set, "cvt": _cvt,
    "testp": lambda op, parts, kind: f"%p0, {register(kind, 1)}",
    "cvta": lambda op, parts, kind: f"{register(kind, 0)}, {register(kind, 1)}",
    "isspacep": "%p0, %d1",
    "mapa": lambda op, parts, kind: f"{register(kind, 0)}, {register(kind, 1)}, %r2",
    "getctarank": lambda op, parts, kind: f"%r0, {register(kind, 1)}",
    "createpolicy": "%d0, 1.0",
    "prefetch": "[%d1]", "prefetchu": "[%d1]", "applypriority": "[%d1], 128", "discard": "[%d1], 128",
    "ld": _load, "ldu": _load, "st": _store, "atom": _atom, "red": _atom, "cp": _cp,
    "tensormap": _tensormap, "mbarrier": _mbarrier,
    "fence": lambda op, parts, kind: "[%d1], 128" if "tensormap::generic" in parts and "acquire" in parts else "",
    "membar": "", "bar": _barrier, "barrier": _barrier,
    "shfl": "%r0|%p0, %r1, 1, 31, -1",
    "vote": lambda op, parts, kind: f"{register(kind, 0)}, %p1, -1",
    "match": lambda op, parts, kind: f"%r0{'|%p0' if 'all' in parts else ''}, {register(kind, 1)}, -1",
    "activemask": "%r0", "redux": "%r0, %r1, -1", "elect": "%r0|%p0, -1",
    "ldmatrix": lambda op, parts, kind: f"{{{', '.join(f'%r{i}' for i in range((2 if kind == 'b8' else 1) * int(next(p for p in parts if p in ('x1', 'x2', 'x4'))[1])))}}}, [%r9]",
    "stmatrix": lambda op, parts, kind: f"[%r9], {{{', '.join(f'%r{i}' for i in range(int(next(p for p in parts if p in ('x1', 'x2', 'x4'))[1])))}}}",
    "movmatrix": "%r0, %r1", "setmaxnreg": "32", "mma": _mma, "wgmma": _wgmma, "tcgen05": _tcgen05, "clusterlaunchcontrol": _launch_control,
    "nanosleep": "32", "pmevent": "1", "griddepcontrol": "",
}  # fmt: skip


def lowered(op: str, text: str) -> str:
    """The source of one instruction."""
    more = ".reg .b32 %a<130>;\n" if op.startswith(("wgmma", "tcgen05")) else ""
    program = Program(parse(f"{HEAD}{more}{op} {text};\nret;\n}}\n"))
    if program.blocking >= {0, 1}:
        return ""
    return "".join(s.source for s in program.segments.values())


RUN = [
    form
    for form in FORMS
    if form.status == "run" and form.name not in ("bra", "brx", "ret", "exit", "call", "trap")
]


def chosen(form: forms.Form) -> list[str]:
    """Opcodes of a form: all, or an even choice."""
    opcodes = list(itertools.islice(form.opcodes(), 200_000))
    return opcodes[:: max(1, len(opcodes) // MOST)]


@pytest.mark.parametrize(
    "form", RUN, ids=lambda f: " ".join([f.name, *(g.names[0] for g in f.groups)])
)
def test_what_the_table_says_is_run_is_lowered(form: forms.Form) -> None:
    for op in chosen(form):
        assert forms.runs(op), op
        source = lowered(op, operands(form, op))
        assert "unsupported" not in source, (op, source)
        compile(source, op, "exec")


@pytest.mark.parametrize(
    "form",
    [f for f in FORMS if f.status != "run" and not f.open],
    ids=lambda f: " ".join([f.status, f.name, *(g.names[0] for g in f.groups)]),
)
def test_what_is_not_run_is_refused_and_no_form_hides_another(form: forms.Form) -> None:
    hidden = [op for op in chosen(form) if forms.runs(op)]
    # Of a form with a part that may be left out, what is left may be a form that is run.
    assert len(hidden) < len(chosen(form)), hidden


def test_every_family_is_in_the_table_and_lowered() -> None:
    run = {form.name for form in FORMS if form.status == "run"}
    waits = {name.partition(".")[0] for name in BLOCKING}
    assert set(FAMILIES) | NOTHING <= set(forms.table())
    assert run <= set(FAMILIES) | NOTHING | waits


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_modifier_more_is_refused(data: st.DataObject) -> None:
    form = data.draw(st.sampled_from(RUN))
    op = data.draw(st.sampled_from(chosen(form)))
    other = data.draw(
        st.sampled_from(
            ["relu", "sat", "ftz", "oob", "satfinite", "sp", "xorsign", "mmio", "bogus", "v16"]
        )
    )
    longer = ".".join([form.name, other, *op.split(".")[1:]])
    if not forms.runs(longer):
        assert "unsupported" in lowered(longer, operands(form, op))


def test_a_refusal_names_line_reason_and_all_that_the_kernel_lacks() -> None:
    text = HEAD.replace(".visible", '.file 1 "kernel.py"\n.visible') + (
        ".loc 1 7 0\nfma.rn.relu.f32 %f1, %f1, %f1, %f1;\ntex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%d1, {%f1,%f2}];\n"
        "tcgen05.shift.cta_group::1.down [%r1];\nret;\n}\n"
    )
    with pytest.raises(EmulatorError) as refusal:
        launch(text, [0], 1, 32)
    said = str(refusal.value)
    assert "fma.rn.relu.f32 is not emulated at kernel.py:7" in said
    assert "no form of the PTX ISA has these modifiers" in said
    assert "tex.2d.v4.f32.f32 (1)" in said
    assert "tcgen05.shift.cta_group::1.down (1)" in said


@pytest.mark.parametrize("kinds", ["u64.s32", "s64.u32", "u32.u64", "s32.s64"])
def test_integers_of_64_bits_do_not_saturate(kinds: str) -> None:
    to, source = ("%d1" if "64" in kind else "%r1" for kind in kinds.split("."))
    text = f"{HEAD}cvt.sat.{kinds} {to}, {source};\nret;\n}}\n"
    with pytest.raises(EmulatorError, match=rf"cvt\.sat\.{kinds} is not emulated"):
        launch(text, [0], 1, 32)


# Values, against exact rationals ---------------------------------------------------------------

#: Bits of the exponent and of the fraction.
FLOATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}
CODES = {"f16": np.uint16, "bf16": np.uint16, "f32": np.uint32, "f64": np.uint64}
Number = Fraction | str


def decoded(code: int, kind: str) -> tuple[Number, bool]:
    """A float as an exact number, ``inf`` or ``nan``; and whether its sign is set."""
    exponent_bits, fraction_bits = FLOATS[kind]
    sign = bool(code >> exponent_bits + fraction_bits)
    exponent = code >> fraction_bits & (1 << exponent_bits) - 1
    fraction = code & (1 << fraction_bits) - 1
    if exponent == (1 << exponent_bits) - 1:
        return ("nan" if fraction else "inf"), sign
    bias = (1 << exponent_bits - 1) - 1
    whole = fraction | (1 << fraction_bits if exponent else 0)
    value = Fraction(whole) * Fraction(2) ** (max(exponent, 1) - bias - fraction_bits)
    return (-value if sign else value), sign


def encoded(value: Fraction, kind: str, mode: str, zero: bool) -> int:
    """The code of an exact number, rounded once; ``zero`` is the sign of a zero."""
    exponent_bits, fraction_bits = FLOATS[kind]
    sign = value < 0 if value else zero
    size, top = abs(value), (1 << exponent_bits) - 1
    bias = (1 << exponent_bits - 1) - 1
    code = 0
    if size:
        exponent = size.numerator.bit_length() - size.denominator.bit_length()
        exponent -= size < Fraction(2) ** exponent
        exponent = max(exponent, 1 - bias)
        scaled = size / Fraction(2) ** (exponent - fraction_bits)
        whole, rest = divmod(scaled.numerator, scaled.denominator)
        half = Fraction(rest, scaled.denominator)
        up = {
            "rn": half > Fraction(1, 2) or (half == Fraction(1, 2) and whole & 1),
            "rz": False, "rm": sign and half > 0, "rp": not sign and half > 0,
        }[mode]  # fmt: skip
        whole += bool(up)
        code = (exponent + bias - 1 << fraction_bits) + whole
        if code >= top << fraction_bits:
            away = mode == "rn" or (mode == "rp" and not sign) or (mode == "rm" and sign)
            code = top << fraction_bits if away else (top << fraction_bits) - 1
    return code | sign << exponent_bits + fraction_bits


def flushed(code: int, kind: str) -> int:
    """A subnormal number as a zero of its sign."""
    exponent_bits, fraction_bits = FLOATS[kind]
    exponent = code >> fraction_bits & (1 << exponent_bits) - 1
    return code if exponent else code & 1 << exponent_bits + fraction_bits


def expected(
    name: str, mode: str, kinds: list[str], codes: list[int], parts: set[str]
) -> int | None:
    """What an instruction gives; None for NaN."""
    to = kinds[0]
    if "ftz" in parts:
        codes = [flushed(c, kind) for c, kind in zip(codes, kinds[1:], strict=True)]
    terms = [decoded(c, kind) for c, kind in zip(codes, kinds[1:], strict=True)]
    code = _result(name, mode, to, terms)
    if code is None:
        return 0 if "sat" in parts else None
    code = flushed(code, to) if "ftz" in parts else code
    value, sign = decoded(code, to)
    if "sat" in parts and (sign or value == 0):
        return 0
    if "sat" in parts and (value == "inf" or value > 1):
        return encoded(Fraction(1), to, "rn", False)
    return 0 if "relu" in parts and sign else code


def _result(name: str, mode: str, to: str, terms: list[tuple[Number, bool]]) -> int | None:
    if any(value == "nan" for value, _ in terms):
        return None
    exponent_bits, fraction_bits = FLOATS[to]

    def infinite(sign: bool) -> int:
        return (1 << exponent_bits) - 1 << fraction_bits | sign << exponent_bits + fraction_bits

    if name in ("mul", "fma"):
        (a, s), (b, t) = terms[:2]
        if "inf" in (a, b):
            product: tuple[Number, bool] | None = None if 0 in (a, b) else ("inf", s != t)
        else:
            product = (Fraction(a) * Fraction(b), s != t)
        if product is None:
            return None
        terms = [product, *terms[2:]]
    elif name == "sub":
        (b, t) = terms[1]
        terms = [terms[0], (b if isinstance(b, str) else -b, not t)]
    infinities = {sign for value, sign in terms if value == "inf"}
    if infinities:
        return None if len(infinities) > 1 else infinite(infinities.pop())
    total = sum((Fraction(value) for value, _ in terms), Fraction(0))
    signs = {sign for _, sign in terms}
    zero = signs == {True} or (mode == "rm" and True in signs and len(terms) > 1)
    return encoded(total, to, mode, zero)


ARITHMETIC = sorted(
    op
    for form in FORMS
    if form.name in ("add", "sub", "mul", "fma") and form.status == "run"
    for op in form.opcodes()
    if re.search(r"\.(f16|bf16|f32|f64)$", op)
)
INTERESTING = [0, 1, 2, 0x7F, 0x80, 0x3F80, 0x3C00, 0x7C00, 0x7F80, 0x8000, 0xFC00, 0x0400, 0x7BFF]


@pytest.mark.parametrize("op", ARITHMETIC)
def test_floats_against_exact_rationals(op: str) -> None:
    name, *parts = op.split(".")
    count = 3 if name == "fma" else 2
    wide = len(parts) > 1 and parts[-2] == "f32"
    kinds = ["f32", *[parts[-1]] * (count - 1), "f32"] if wide else [parts[-1]] * (count + 1)
    mode = next((p for p in parts if p in ("rz", "rm", "rp")), "rn")
    random = np.random.default_rng(zlib.crc32(op.encode()))
    n = 96
    inputs = []
    for kind in kinds[1:]:
        exponent_bits, fraction_bits = FLOATS[kind]
        width = 1 + exponent_bits + fraction_bits
        codes = random.integers(0, 2**width, n, dtype=np.uint64)
        near = random.random(n) < 0.6  # Exponents that meet.
        bias = (1 << exponent_bits - 1) - 1
        exponent = random.integers(bias - 4, bias + 5, n).astype(np.uint64)
        low = codes & np.uint64((1 << fraction_bits) - 1)
        sign = codes & np.uint64(1 << width - 1)
        codes = np.where(near, sign | exponent << np.uint64(fraction_bits) | low, codes)
        special = np.array(
            [encoded(Fraction(x), kind, "rn", False) for x in (0, 1, -1)]
            + [1, (1 << exponent_bits) - 1 << fraction_bits],
            np.uint64,
        )
        codes[:12] = random.choice(special, 12)
        inputs.append(codes.astype(CODES[kind]))
    body = f"{op} %o, {', '.join(f'%i{i}' for i in range(count))};"
    out = evaluate(body, inputs, CODES[kinds[0]])
    for given_, got in zip(zip(*inputs, strict=True), out.tolist(), strict=True):
        wanted = expected(name, mode, kinds, [int(x) for x in given_], set(parts))
        if wanted is None:
            assert decoded(got, kinds[0])[0] == "nan", (op, given_, hex(got))
        else:
            assert got == wanted, (op, [hex(int(x)) for x in given_], hex(got), hex(wanted))


# Conversions -------------------------------------------------------------------------------------

INTEGERS = {f"{sign}{width}": (sign == "s", width) for sign in "us" for width in (8, 16, 32, 64)}
WIDTHS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64, **{k: w for k, (_, w) in INTEGERS.items()}}
WORDS = {8: np.uint16, 16: np.uint16, 32: np.uint32, 64: np.uint64}
CONVERSIONS = sorted(
    op
    for form in FORMS
    if form.name == "cvt" and form.status == "run"
    for op in form.opcodes()
    if all(part in WIDTHS for part in op.split(".")[-2:])
)


def rounded(value: Fraction, mode: str) -> int:
    """An exact number as an integer."""
    down = value.numerator // value.denominator
    match mode:
        case "rmi":
            return down
        case "rpi":
            return down + (value != down)
        case "rzi":
            return down + (value < 0 and value != down)
    return round(value)  # Python's ties are to even.


def clamped(value: int, kind: str) -> int:
    signed, width = INTEGERS[kind]
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    return min(max(value, low), high)


def converted(op: str, code: int) -> int | None:
    """What a conversion gives, in the bits of its type; None for NaN."""
    parts = op.split(".")[1:]
    to, source = parts[-2:]
    whole = next((p for p in parts if p in ("rni", "rzi", "rmi", "rpi")), None)
    mode = next((p for p in parts if p in ("rz", "rm", "rp")), "rn")
    if "ftz" in parts and source == "f32":
        code = flushed(code, source)
    if source in INTEGERS:
        signed, width = INTEGERS[source]
        value: Number = Fraction(code - (code >> width - 1 << width) if signed else code)
        sign = False
    else:
        value, sign = decoded(code, source)
    if to in INTEGERS:
        return _to_integer(value, sign, whole, to, "sat" in parts or source not in INTEGERS)
    if value == "nan":
        return 0 if "sat" in parts else None
    exponent_bits, fraction_bits = FLOATS[to]
    top = 1 << exponent_bits + fraction_bits
    if value == "inf":
        out = (1 << exponent_bits) - 1 << fraction_bits | top * sign
    else:
        exact = Fraction(value)
        out = encoded(Fraction(rounded(exact, whole)) if whole else exact, to, mode, sign)
        out = flushed(out, to) if "ftz" in parts and to == "f32" else out
    if "relu" in parts and out & top:
        return 0
    if "sat" in parts:
        number, negative = decoded(out, to)
        if negative or number == 0:
            return 0
        return encoded(Fraction(1), to, "rn", False) if number == "inf" or number > 1 else out
    return out


def _to_integer(value: Number, sign: bool, whole: str | None, to: str, clamps: bool) -> int:
    width = INTEGERS[to][1]
    mask = (1 << width) - 1
    if value == "nan":
        return 1 << 63 if width == 64 else 0
    if value == "inf":
        return clamped(-(1 << 70) if sign else 1 << 70, to) & mask
    number = rounded(Fraction(value), whole or "rzi")
    return (clamped(number, to) if clamps else number) & mask


@pytest.mark.parametrize("op", CONVERSIONS)
def test_conversions_against_exact_rationals(op: str) -> None:
    to, source = op.split(".")[-2:]
    random = np.random.default_rng(zlib.crc32(op.encode()))
    width = WIDTHS[source]
    codes = random.integers(0, 2**width, 96, dtype=np.uint64)
    if source in FLOATS:
        exponent_bits, fraction_bits = FLOATS[source]
        bias = (1 << exponent_bits - 1) - 1
        near = random.integers(bias - 3, min(bias + 34, (1 << exponent_bits) - 1), 96)
        low = codes & np.uint64((1 << fraction_bits) - 1 & ~((1 << max(0, fraction_bits - 9)) - 1))
        sign = codes & np.uint64(1 << width - 1)
        ties = sign | near.astype(np.uint64) << np.uint64(fraction_bits) | low
        codes = np.where(random.random(96) < 0.6, ties, codes)
        inf = (1 << exponent_bits) - 1 << fraction_bits
        codes[:6] = [0, 1 << width - 1, inf, inf | 1 << width - 1, inf + 1, 1]
    else:
        few = random.integers(0, width, 96).astype(np.uint64)
        codes[::3] = (codes >> few)[::3]  # Numbers of every length.
        codes[1::6] = (np.uint64(1) << few)[1::6] + np.uint64(1)
        codes &= np.uint64((1 << width) - 1)
    given_ = codes.astype(WORDS[width])
    out = evaluate(f"{op} %o, %i0;", [given_], WORDS[WIDTHS[to]])
    mask = (1 << WIDTHS[to]) - 1
    for code, got in zip(codes.tolist(), (out & WORDS[WIDTHS[to]](mask)).tolist(), strict=True):
        wanted = converted(op, code)
        if wanted is None:
            assert decoded(got, to)[0] == "nan", (op, hex(code), hex(got))
        else:
            assert got == wanted, (op, hex(code), hex(got), hex(wanted))


@pytest.mark.parametrize("relu", ["", ".relu"])
def test_fixed_point_against_exact_rationals(relu: str) -> None:
    """Every byte and every scale, the second of two with another one; bf16 has all exactly."""
    low, scale = np.arange(1020) % 256, np.arange(1020) * 7 % 255
    high, other = 255 - low, 254 - scale
    words = [(y << 8 | x).astype(np.uint32) for x, y in ((low, high), (scale, other))]
    body = (
        "cvt.u16.u32 %h1, %i0; cvt.u16.u32 %h2, %i1;"
        f"cvt.rn.satfinite{relu}.scaled::n2::ue8m0.bf16x2.s2f6x2 %o, %h1, %h2;"
    )
    out = evaluate(body, words, np.uint32).tolist()
    for got, *both in zip(out, *(x.tolist() for x in (low, scale, high, other)), strict=True):
        for i in range(2):
            byte, power = both[2 * i : 2 * i + 2]
            value = Fraction(number(byte, "s8"), 64) * Fraction(2) ** (power - 127)
            value = max(value, Fraction(0)) if relu else value
            assert got >> 16 * i & 0xFFFF == encoded(value, "bf16", "rn", False)


# Integers ------------------------------------------------------------------------------------------


def number(code: int, kind: str) -> int:
    """An operand as a number."""
    width = int(kind[1:])
    return code - (code >> width - 1 << width) if kind[0] == "s" else code


def whole(op: str, codes: list[int]) -> int | None:
    """What an instruction on integers gives; None where the ISA leaves it open."""
    name, *parts = op.split(".")
    kind = parts[-1]
    width = int(kind[1:])
    a, b, *rest = [number(c, kind) for c in (*codes[:2], 0)][:2] + codes[2:]
    low, high = (
        (-(1 << width - 1), (1 << width - 1) - 1) if kind[0] == "s" else (0, (1 << width) - 1)
    )
    if "wide" in parts:
        third = number(rest[0], kind[0] + str(2 * width)) if name == "mad" else 0
        return a * b + third
    third = number(rest[0], kind) if rest else 0
    match name:
        case "add" | "sub":
            out = a + b if name == "add" else a - b
            return min(max(out, low), high) if "sat" in parts else out
        case "mul" | "mad":
            return (a * b >> width if "hi" in parts else a * b) + third
        case "div" | "rem":
            if not b:
                return None
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            return quotient if name == "div" else a - quotient * b
        case "min" | "max":
            out = min(a, b) if name == "min" else max(a, b)
            return max(out, 0) if "relu" in parts else out
        case "sad":
            return abs(a - b) + third
        case "and" | "or" | "xor":
            return {"and": a & b, "or": a | b, "xor": a ^ b}[name]
        case "abs" | "neg" | "not" | "cnot":
            return {"abs": abs(a), "neg": -a, "not": ~a, "cnot": int(a == 0)}[name]
        case "shl":
            return a << min(codes[1], width)
        case "shr":
            return a >> min(codes[1], width)
        case "popc":
            return codes[0].bit_count()
        case "clz":
            return width - codes[0].bit_length()
        case "brev":
            return int(f"{codes[0]:0{width}b}"[::-1], 2)
        case "bfind":
            found = (~a if a < 0 else a).bit_length() - 1
            return width - 1 - found if "shiftamt" in parts and found >= 0 else found
    raise AssertionError(op)


#: Operands; those of shifts and counts are not all of the opcode's type.
ARITY = {
    **dict.fromkeys(("add", "sub", "mul", "div", "rem", "min", "max", "and", "or", "xor"), 2),
    **dict.fromkeys(("mad", "sad"), 3),
    **dict.fromkeys(("abs", "neg", "not", "cnot", "popc", "clz", "brev", "bfind"), 1),
    **dict.fromkeys(("shl", "shr"), 2),
}
WHOLE = sorted(
    op
    for form in FORMS
    if form.name in ARITY and form.status == "run"
    for op in form.opcodes()
    if re.search(r"\.[busf](16|32|64)$", op) and not re.search(r"\.(f\d+|cc\..*)$", op)
)


@pytest.mark.parametrize("op", WHOLE)
def test_integers_against_python(op: str) -> None:
    name, *parts = op.split(".")
    width = int(parts[-1][1:])
    random = np.random.default_rng(zlib.crc32(op.encode()))
    count = ARITY[name]
    widths = [width] * count
    result = 32 if name in ("popc", "clz", "bfind") else width
    if "wide" in parts:
        result = 2 * width
        widths = [width, width, 2 * width][:count]
    if name in ("shl", "shr"):
        widths[1] = 32
    inputs = []
    for w in widths:
        codes = random.integers(0, 2**w, 128, dtype=np.uint64)
        codes[::2] >>= random.integers(0, w, 64).astype(np.uint64)
        edges = [0, 1, (1 << w) - 1, 1 << w - 1, (1 << w - 1) - 1, w - 1, w, w + 1]
        codes[1::4] = random.choice(np.array(edges, np.uint64), 32)
        inputs.append(codes.astype(WORDS[w]))
    body = f"{op} %o, {', '.join(f'%i{i}' for i in range(count))};"
    out = evaluate(body, inputs, WORDS[result])
    for given_, got in zip(zip(*inputs, strict=True), out.tolist(), strict=True):
        wanted = whole(op, [int(x) for x in given_])
        if wanted is not None:
            at = (op, [hex(int(x)) for x in given_])
            assert got == wanted & (1 << result) - 1, (*at, hex(got), hex(wanted))


#: Forms of one result whose operands are all of the type that comes last, of those that text has
#: numbers of.
REAL = sorted(
    op
    for form in FORMS
    if form.name in COUNT and form.status == "run"
    for op in form.opcodes()
    if op.split(".")[-1] in ("f32", "f64") and op.split(".")[-2] not in ("f16", "bf16")
)


@pytest.mark.parametrize("op", REAL)
def test_an_operand_may_be_a_number_in_the_text(op: str) -> None:
    """Registers and constants give the same, in any mix."""
    double = op.endswith("f64")
    kind, prefix = (np.float64, "0d") if double else (np.float32, "0f")
    code = np.uint64 if double else np.uint32
    numbers = np.array([1.7, -0.3, 2.0**-20], kind).view(code)
    count = COUNT[op.split(".")[0]] - 1
    inputs = [np.full(4, x, code) for x in numbers[:count]]
    texts = [f"%i{i}" for i in range(count)]
    wanted = evaluate(f"{op} %o, {', '.join(texts)};", inputs, code).tolist()
    assert len(set(wanted)) == 1
    for size in range(1, count + 1):
        for chosen in itertools.combinations(range(count), size):
            mixed = [
                f"{prefix}{int(numbers[i]):0{16 if double else 8}X}" if i in chosen else texts[i]
                for i in range(count)
            ]
            body = f"{op} %o, {', '.join(mixed)};"
            assert evaluate(body, inputs, code).tolist() == wanted, body
