# ruff: noqa: E501  # A PTX statement stays on its line.
"""Atomics, and loads and stores of every space, against Python's integers and numpy's floats."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.emulator import launch
from mla_var3.emulator.atomics import _modify
from mla_var3.emulator.formats import from_bf16, to_bf16
from mla_var3.emulator.options import Options
from mla_var3.errors import EmulatorError

THREADS = 64
RANDOM = np.random.default_rng(4)
CODE = {2: np.uint16, 4: np.uint32, 8: np.uint64}
#: Operation, type, and which spaces it is tried on.
SPACES = ("global", "shared", "")
OPS = [
    *((op, kind) for op in ("and", "or", "xor", "exch", "cas") for kind in ("b32", "b64")),
    *(("add", kind) for kind in ("u32", "s32", "u64", "f32", "f64", "noftz.f16", "noftz.bf16")),
    *((op, kind) for op in ("min", "max") for kind in ("u32", "s32", "u64", "s64")),
    ("inc", "u32"), ("dec", "u32"), ("cas", "b16"),
]  # fmt: skip


def number(code: int, kind: str) -> object:
    """What a code of an atomic's type stands for."""
    width = int(re.search(r"\d+$", kind)[0])
    if kind == "noftz.bf16":
        return np.float32(from_bf16(np.array([code], np.uint16))[0])
    if kind[-3] == "f" or kind.startswith("noftz"):
        return np.array([code], CODE[width // 8]).view(f"f{width // 8}")[0]
    return code - (code >> width - 1 << width) if kind[0] == "s" else code


def coded(value: object, kind: str) -> int:
    width = int(re.search(r"\d+$", kind)[0])
    if kind == "noftz.bf16":
        return int(to_bf16(np.array([value], np.float32))[0])
    if kind[-3] == "f" or kind.startswith("noftz"):
        return int(np.array([value], f"f{width // 8}").view(CODE[width // 8])[0])
    return int(value) % (1 << width)


def applied(op: str, kind: str, old: int, given: int, new: int) -> int:
    """What stands there after an atomic (PTX ISA, "atom")."""
    match op:
        case "exch":
            return given
        case "cas":
            return new if old == given else old
        case "and":
            return old & given
        case "or":
            return old | given
        case "xor":
            return old ^ given
        case "inc":
            return 0 if old >= given else old + 1
        case "dec":
            return given if old == 0 or old > given else old - 1
    a, b = number(old, kind), number(given, kind)
    if op == "add" and kind == "noftz.bf16":
        return coded(float(Fraction(float(a)) + Fraction(float(b))), kind)
    return coded(a + b if op == "add" else (min if op == "min" else max)(a, b), kind)


def body(op: str, kind: str, space: str, width: int, each: int) -> str:
    """A kernel in which each thread changes a word: its own, or thread 0's (``each`` 0)."""
    bank = "v"
    code = f"b{8 * width}"
    shared = space != "global"
    base = {
        "shared": "cvt.u64.u32 %d8, %r9;",
        "": "cvt.u64.u32 %d8, %r9; cvta.shared.u64 %d8, %d8;",
    }.get(space, "")
    at = "[%r9]" if space == "shared" else "[%d8]"
    third = f", %{bank}3" if op == "cas" else ""
    return f"""
.version 8.8\n.target sm_90a\n.address_size 64
.visible .entry k(.param .u64 w, .param .u64 g, .param .u64 n, .param .u64 o)
{{
.reg .b{8 * width} %v<9>; .reg .b32 %r<19>; .reg .b64 %d<19>; .shared .align 128 .b8 s[{THREADS * 8}];
mov.u32 %r0, %tid.x; mul.lo.u32 %r1, %r0, {width}; cvt.u64.u32 %d0, %r1;
ld.param.u64 %d1, [w]; ld.param.u64 %d2, [g]; ld.param.u64 %d3, [n]; ld.param.u64 %d4, [o];
add.u64 %d5, %d1, %d0; add.u64 %d2, %d2, %d0; add.u64 %d3, %d3, %d0; add.u64 %d4, %d4, %d0;
ld.global.{code} %{bank}2, [%d2]; ld.global.{code} %{bank}3, [%d3];
mov.u32 %r8, s; add.u32 %r8, %r8, %r1;
{f"ld.global.{code} %{bank}4, [%d5]; st.shared.{code} [%r8], %{bank}4; bar.sync 0;" if shared else ""}
mul.lo.u32 %r9, %r1, {each}; cvt.u64.u32 %d8, %r9; mov.u32 %r10, s; add.u32 %r9, %r9, %r10; add.u64 %d8, %d8, %d1;
{base}
atom{"." + space if space else ""}.{op}.{kind} %{bank}5, {at}, %{bank}2{third};
st.global.{code} [%d4], %{bank}5;
{f"bar.sync 0; ld.shared.{code} %{bank}4, [%r8]; st.global.{code} [%d5], %{bank}4;" if shared else ""}
ret;
}}
"""


def operands(op: str, kind: str) -> list[np.ndarray]:
    """Words that are there, given and new."""
    width = int(re.search(r"\d+$", kind)[0]) // 8
    if kind[-3] == "f" or kind.startswith("noftz"):
        made = [RANDOM.integers(-64, 64, THREADS) / 4 for _ in range(3)]
        return [np.array([coded(x, kind) for x in m], CODE[width]) for m in made]
    words, given, new = (
        RANDOM.integers(0, 2 ** (8 * width), THREADS, CODE[width]) for _ in range(3)
    )
    if op in ("cas", "min", "max", "inc", "dec"):
        given[::4] = words[::4]
        words[1::4] = 0
    if op in ("inc", "dec"):
        given[2::4] = words[2::4] - 1
        given[3::8] = words[3::8] + 1
    return [words, given, new]


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize(("op", "kind"), OPS)
def test_words_of_their_own(op: str, kind: str, space: str) -> None:
    words, given, new = operands(op, kind)
    out, before = np.zeros_like(words), words.copy()
    done = launch(body(op, kind, space, words.itemsize, 1), [words, given, new, out], 1, THREADS)
    assert not done.diagnostics, done.diagnostics[0]
    assert out.tolist() == before.tolist()
    wanted = [applied(op, kind, *map(int, row)) for row in zip(before, given, new, strict=True)]
    assert words.tolist() == wanted


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize(("op", "kind"), [x for x in OPS if x[0] not in ("exch", "cas")])
def test_one_word_of_all(op: str, kind: str, space: str) -> None:
    words, given, new = operands(op, kind)
    if op in ("inc", "dec"):
        given[:] = 9
        words[0] = 4
    out, before = np.zeros_like(words), words.copy()
    done = launch(body(op, kind, space, words.itemsize, 0), [words, given, new, out], 1, THREADS)
    assert not done.diagnostics, done.diagnostics[0]
    # Some order of the threads explains what each of them saw and what is left.
    assert words[1:].tolist() == before[1:].tolist()
    at = int(before[0])
    for thread in range(THREADS):  # The emulator's: lane after lane, warp after warp.
        assert int(out[thread]) == at
        at = applied(op, kind, at, int(given[thread]), 0)
    assert int(words[0]) == at


@pytest.mark.parametrize(("count", "aligned"), [(2, True), (4, True)])
def test_vectors_of_floats(count: int, aligned: bool) -> None:
    x, y = np.arange(count * 32, dtype="f4"), np.zeros(count * 32, "f4")
    names = [f"%f{i}" for i in range(count)]
    group = "{" + ", ".join(names) + "}"
    old = "{" + ", ".join(f"%f{8 + i}" for i in range(count)) + "}"
    text = (
        ".version 8.8\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 x, .param .u64 y)\n{\n"
        ".reg .f32 %f<16>; .reg .b32 %r<4>; .reg .b64 %d<4>;\nmov.u32 %r0, %tid.x; ld.param.u64 %d0, [x]; ld.param.u64 %d1, [y];\n"
        f"mad.wide.u32 %d0, %r0, {4 * count}, %d0; mad.wide.u32 %d1, %r0, {4 * count}, %d1;\n"
        + "".join(
            f"mov.f32 {n}, 0f{np.float32(i + 1).view(np.uint32):08X};\n"
            for i, n in enumerate(names)
        )
        + f"atom.global.add.v{count}.f32 {old}, [%d0], {group}; st.global.v{count}.f32 [%d1], {old};\n"
        f"red.global.add.v{count}.f32 [%d0], {group}; ret;\n}}\n"
    )
    before = x.copy()
    assert not launch(text, [x, y], 1, 32).diagnostics
    assert y.tolist() == before.tolist()
    assert x.tolist() == (before + 2 * np.tile(np.arange(1, count + 1, dtype="f4"), 32)).tolist()


@pytest.mark.parametrize(
    "op", ["add.u32", "min.s32", "max.u32", "inc.u32", "dec.u32", "and.b32", "or.b32", "xor.b32"]
)
def test_reductions_give_nothing_back(op: str) -> None:
    name, kind = op.split(".")
    words = RANDOM.integers(0, 2**32, 32, np.uint32)
    given = RANDOM.integers(0, 2**32, 32, np.uint32)
    before = words.copy()
    text = (
        ".version 8.8\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 x, .param .u64 y)\n{\n"
        ".reg .b32 %r<4>; .reg .b64 %d<4>;\nmov.u32 %r0, %tid.x; ld.param.u64 %d0, [x]; ld.param.u64 %d1, [y];\n"
        "mad.wide.u32 %d0, %r0, 4, %d0; mad.wide.u32 %d1, %r0, 4, %d1; ld.global.u32 %r1, [%d1];\n"
        f"red.global.{op} [%d0], %r1; ret;\n}}\n"
    )
    assert not launch(text, [words, given], 1, 32).diagnostics
    rows = zip(before.tolist(), given.tolist(), strict=True)
    assert words.tolist() == [applied(name, kind, a, b, 0) for a, b in rows]


# Spaces --------------------------------------------------------------------------------------------


def spaces(width: int, count: int, stores: bool) -> str:
    """Thread i reads or writes local (i % 4 = 0), shared (1), its parameter (2) or global memory."""
    bank, code, size = "v", f"b{8 * width}", width * count
    names = [f"%{bank}{i}" for i in range(count)]
    group = "{" + ", ".join(names) + "}" if count > 1 else names[0]
    dot = f".v{count}" if count > 1 else ""
    access = (
        f"ld.global{dot}.{code} {group}, [%d1]; st{dot}.{code} [%d9], {group};"
        if stores
        else f"ld{dot}.{code} {group}, [%d9]; st.global{dot}.{code} [%d1], {group};"
    )
    back = f"ld{dot}.{code} {group}, [%d9]; st.global{dot}.{code} [%d3], {group};" if stores else ""
    fill = "" if stores else (
        f"ld.global{dot}.{code} {group}, [%d0]; st.local{dot}.{code} [%d5], {group}; "
        f"st.shared{dot}.{code} [%r9], {group};"
    )  # fmt: skip
    return f"""
.version 8.8\n.target sm_90a\n.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y, .param .u64 z, .param .align 16 .b8 p[64])
{{
.reg .pred %p<9>; .reg .b{max(16, 8 * width)} %v<9>; .reg .b32 %r<19>; .reg .b64 %d<19>;
.shared .align 128 .b8 s[{64 * size}]; .local .align 16 .b8 l[64];
mov.u32 %r10, %tid.x; mul.lo.u32 %r11, %r10, {size}; cvt.u64.u32 %d10, %r11;
ld.param.u64 %d0, [x]; ld.param.u64 %d1, [y]; ld.param.u64 %d3, [z];
add.u64 %d0, %d0, %d10; add.u64 %d1, %d1, %d10; add.u64 %d3, %d3, %d10;
mov.u64 %d5, l; add.u64 %d5, %d5, 16; mov.u32 %r9, s; add.u32 %r9, %r9, %r11;
{fill}
and.b32 %r12, %r10, 3;
cvta.local.u64 %d9, %d5;
setp.eq.u32 %p1, %r12, 1; cvt.u64.u32 %d6, %r9; cvta.shared.u64 %d6, %d6; selp.b64 %d9, %d6, %d9, %p1;
setp.eq.u32 %p2, %r12, 2; mov.u64 %d7, p; cvta.param.u64 %d7, %d7; add.u64 %d7, %d7, {size}; {"selp.b64 %d9, %d7, %d9, %p2;" if not stores else "selp.b64 %d9, %d3, %d9, %p2;"}
setp.eq.u32 %p3, %r12, 3; selp.b64 %d9, {"%d3" if stores else "%d0"}, %d9, %p3;
{access}
{back}
ret;
}}
"""


@pytest.mark.parametrize("stores", [False, True])
@pytest.mark.parametrize(
    ("width", "count"), [(1, 1), (2, 1), (4, 1), (8, 1), (4, 2), (4, 4), (8, 2), (2, 4)]
)
def test_a_generic_address_may_be_of_every_space(width: int, count: int, stores: bool) -> None:
    size = width * count
    x = RANDOM.integers(0, 256, 64 * size, np.uint8)
    y, z = (np.zeros_like(x) for _ in range(2))
    if stores:
        y[:] = x
    parameter = RANDOM.integers(0, 256, 64, np.uint8)
    done = launch(spaces(width, count, stores), [x, y, z, parameter.tobytes()], 1, 64)
    assert not done.diagnostics, done.diagnostics[0]
    wanted = x.reshape(64, size).copy()
    if not stores:
        wanted[2::4] = parameter[size : 2 * size]
    assert (z if stores else y).reshape(64, size).tolist() == wanted.tolist()


LOCAL = """
.version 8.8\n.target sm_90a\n.address_size 64
.visible .entry k(.param .u64 o)
{{
.reg .b32 %r<9>; .reg .b64 %d<9>; .local .align 16 .b8 l[32];
mov.u64 %d0, l; mov.u32 %r0, %tid.x; ld.param.u64 %d1, [o]; mad.wide.u32 %d1, %r0, 4, %d1;
st.local.b32 [%d0+4], %r0; {body}
st.global.b32 [%d1], %r1; ret;
}}
"""


@pytest.mark.parametrize(
    ("body", "kinds"),
    [
        ("ld.local.b32 %r1, [%d0+4];", []),
        ("ld.local.b32 %r1, [%d0+8];", ["uninitialized-read"]),
        ("ld.local.b32 %r1, [%d0+5];", ["uninitialized-read"]),
        ("st.local.b32 [%d0+28], %r0; ld.local.b32 %r1, [%d0+28];", []),
        ("st.local.b32 [%d0+29], %r0; mov.u32 %r1, 0;", ["out-of-bounds"]),
        ("st.local.b32 [%d0], %r0; ld.local.b32 %r1, [%d0+32];", ["out-of-bounds"]),
        ("st.local.b32 [%d0], %r0; ld.local.v2.b32 {%r1, %r2}, [%d0+28];", ["out-of-bounds"]),
    ],
)
def test_local_memory_has_ends_and_nothing_in_it(body: str, kinds: list[str]) -> None:
    out = np.zeros(32, np.uint32)
    done = launch(LOCAL.format(body=body), [out], 1, 32)
    assert [d.kind for d in done.diagnostics] == kinds
    assert done.counts is not None


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            "mov.u64 %d2, o; cvta.param.u64 %d2, %d2; st.b32 [%d2], %r0;",
            "a kernel parameter is written",
        ),
        ("mov.u64 %d2, o; cvta.param.u64 %d2, %d2; ld.b64 %d3, [%d2+4096];", "read past their end"),
        (
            "mov.u64 %d2, l; cvta.local.u64 %d2, %d2; atom.add.u32 %r1, [%d2], %r0;",
            "an atomic on local memory",
        ),
    ],
)
def test_what_no_space_allows_ends_the_launch(more: str, said: str) -> None:
    with pytest.raises(EmulatorError, match=said):
        launch(LOCAL.format(body=more), [np.zeros(32, np.uint32)], 1, 32, options=Options())


def test_what_lies_inside_is_stored_beside_what_does_not() -> None:
    out = np.zeros((32, 4), np.uint32)
    text = """
.version 8.8\n.target sm_90a\n.address_size 64
.visible .entry k(.param .u64 o)
{
.reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %d<3>; .shared .align 16 .b8 s[512];
ld.param.u64 %d0, [o]; mov.u32 %r0, %tid.x; mov.u32 %r1, s; mad.lo.u32 %r1, %r0, 16, %r1; mad.wide.u32 %d0, %r0, 16, %d0;
setp.lt.u32 %p0, %r0, 30; selp.u32 %r2, 0, 1048576, %p0; add.u32 %r2, %r1, %r2;
mul.lo.u32 %r3, %r0, 4; add.u32 %r4, %r3, 1; add.u32 %r5, %r3, 2; add.u32 %r6, %r3, 3;
st.shared.v4.u32 [%r2], {%r3, %r4, %r5, %r6}; @!%p0 bra OVER;
ld.shared.v4.u32 {%r3, %r4, %r5, %r6}, [%r1]; st.global.v4.u32 [%d0], {%r3, %r4, %r5, %r6};
OVER: ret;
}
"""
    assert [d.kind for d in launch(text, [out], 1, 32).diagnostics] == ["out-of-bounds"]
    assert out[:30].ravel().tolist() == list(range(120))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_threads_that_meet_at_words_change_them_one_after_the_other(data: st.DataObject) -> None:
    """Any number at any words, elements that follow each other, and lanes that are left out."""
    op, kind = data.draw(st.sampled_from([x for x in OPS if "f" not in x[1][-3:-2] + x[1][:2]]))
    width = int(re.search(r"\d+$", kind)[0]) // 8
    count = data.draw(st.integers(1, 3))
    words = np.array(data.draw(st.lists(st.integers(0, 5), min_size=8, max_size=8)), CODE[width])
    n = data.draw(st.integers(1, 6))
    index = np.array(data.draw(st.lists(st.integers(0, 8 - count), min_size=n, max_size=n)))
    keep = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    operands = [
        np.array(data.draw(st.lists(st.integers(0, 5), min_size=n, max_size=n)), CODE[width])
        for _ in range(2 * count if op == "cas" and count == 1 else count)
    ]
    if op == "cas" and count > 1:
        return
    wanted, olds = words.copy(), np.zeros((count, n), CODE[width])
    for j in range(count):
        for i in np.flatnonzero(keep):
            old = olds[j][i] = wanted[index[i] + j]
            new = operands[1][i] if op == "cas" else 0
            wanted[index[i] + j] = applied(op, kind, int(old), int(operands[j][i]), int(new))
    got = _modify(words, index, op, kind, operands, count, keep)
    assert words.tolist() == wanted.tolist()
    assert [row[keep].tolist() for row in got] == [row[keep].tolist() for row in olds]
