# ruff: noqa: E501  # A PTX statement stays on its line.
"""Loads and stores of every type and width: signs, vectors, offsets, parameters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.emulator.launcher import launch
from mla_var3.emulator.options import MODELS, Options

HEAD = ".version 8.8\n.target sm_90a\n.address_size 64\n"
BYTES = np.random.default_rng(3).integers(0, 256, 512, np.uint8)
#: Register of each width in bits that may be wider than what is loaded.
REGISTER = {16: ("b16", "h"), 32: ("b32", "r"), 64: ("b64", "d")}


def _kernel(parameters: str, body: str, shared: str = "") -> str:
    return (
        f"{HEAD}.visible .entry k({parameters})\n{{\n.reg .pred %p<4>; .reg .b16 %h<9>; "
        f".reg .b32 %r<9>; .reg .b64 %d<9>; .reg .b64 %a<9>; .reg .b32 %t<9>; {shared}\n{body}\nret;\n}}\n"
    )


@pytest.mark.parametrize("space", ["global", "shared", ""])
@pytest.mark.parametrize(
    "kind", ["s8", "u8", "b8", "s16", "u16", "b16", "s32", "u32", "b32", "u64", "s64", "b64"]
)
@pytest.mark.parametrize("register", [16, 32, 64])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_load_extends_what_it_reads_by_its_sign(
    space: str, kind: str, register: int, count: int
) -> None:
    """32 threads read elements side by side at an offset; a signed type fills with its sign."""
    width = int(kind[1:]) // 8
    if 8 * width > register or width * count > 16:
        return
    name, bank = REGISTER[register]
    size = width * count
    regs = [f"%{bank}{i}" for i in range(count)]
    target = regs[0] if count == 1 else "{" + ", ".join(regs) + "}"
    vector = f".v{count}" if count > 1 else ""
    base = "%a0"
    copy = ""
    if space == "shared":
        copy = "mov.u32 %t1, s; shl.b32 %t2, %t0, 4; add.u32 %t3, %t1, %t2; mul.wide.u32 %a3, %t0, 16; add.u64 %a3, %a0, %a3; ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%a3]; st.shared.v4.b32 [%t3], {%r4, %r5, %r6, %r7}; bar.sync 0; mad.lo.u32 %t4, %t0, %t5, %t1; "
        base = "%t4"
    stores = " ".join(
        f"st.global.{name} [%a2+{i * register // 8}], {r};" for i, r in enumerate(regs)
    )
    body = (
        f"ld.param.u64 %a0, [x]; ld.param.u64 %a1, [y]; mov.u32 %t0, %tid.x; mov.u32 %t5, {size}; {copy}"
        f"mul.wide.u32 %a2, %t0, {count * register // 8}; add.u64 %a2, %a1, %a2; "
        f"mul.wide.u32 %a3, %t0, {size}; add.u64 %a0, %a0, %a3; "
        f"ld{'.' + space if space else ''}{vector}.{kind} {target}, [{base}]; {stores}"
    )
    out = np.zeros(32 * count, f"u{register // 8}")
    text = _kernel(".param .u64 x, .param .u64 y", body, ".shared .align 16 .b8 s[512];")
    room = np.empty(528, np.uint8)
    x = room[-room.ctypes.data % 16 :][:512]
    x[:] = BYTES
    assert launch(text, [x, out], 1, 32).diagnostics == []
    letter = "i" if kind[0] == "s" else "u"
    wanted = x[: 32 * size].view(f"{letter}{width}").astype(f"{letter}{register // 8}")
    assert out.tolist() == wanted.view(out.dtype).tolist()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_parameter_is_read_at_its_offset(data: st.DataObject) -> None:
    """A structure by value between two pointers, and elements of it at an offset."""
    width = data.draw(st.sampled_from([1, 2, 4, 8]))
    count = data.draw(st.sampled_from([1, 2, 4] if width < 8 else [1, 2]))
    sign = data.draw(st.sampled_from("us"))
    at = width * count * data.draw(st.integers(0, 32 // (width * count) - 1))
    plus = data.draw(st.sampled_from(["", "+"])) if at == 0 else "+"
    regs = [f"%d{i}" for i in range(count)]
    target = regs[0] if count == 1 else "{" + ", ".join(regs) + "}"
    vector = f".v{count}" if count > 1 else ""
    stores = " ".join(f"st.global.b64 [%a0+{8 * i}], {r};" for i, r in enumerate(regs))
    place = f"[given{plus}{at}]" if plus else "[given]"
    body = f"ld.param.u64 %a0, [y]; ld.param{vector}.{sign}{8 * width} {target}, {place}; {stores}"
    given_ = bytes(data.draw(st.binary(min_size=32, max_size=32)))
    out, last = np.zeros(count, np.uint64), np.zeros(1, np.uint64)
    text = _kernel(
        ".param .u32 n, .param .align 16 .b8 given[32], .param .u64 y, .param .u64 z", body
    )
    assert launch(text, [7, given_, out, last], 1, 1).diagnostics == []
    letter = "i" if sign == "s" else "u"
    wanted = np.frombuffer(given_, f"{letter}{width}")[at // width :][:count]
    assert out.tolist() == wanted.astype(f"{letter}8").view(np.uint64).tolist()


@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("arrays", [1, 2, 3])
def test_lanes_read_vectors_of_several_arrays(width: int, count: int, arrays: int) -> None:
    """Each lane has an array of its own to read, and one that it writes."""
    if width * count > 16:
        return
    size, name = width * count, f"b{8 * width}"
    bank = "d" if width == 8 else "r" if width == 4 else "h"
    regs = [f"%{bank}{i}" for i in range(count)]
    target = regs[0] if count == 1 else "{" + ", ".join(regs) + "}"
    vector = f".v{count}" if count > 1 else ""
    loads = " ".join(f"ld.param.u64 %a{i}, [x{i}];" for i in range(arrays))
    choose = " ".join(
        f"setp.eq.u32 %p1, %t1, {i}; selp.b64 %a6, %a{i}, %a6, %p1;" for i in range(arrays)
    )
    body = (
        f"{loads} ld.param.u64 %a7, [y]; mov.u32 %t0, %tid.x; rem.u32 %t1, %t0, {arrays}; mov.u64 %a6, %a0; {choose} "
        f"mul.wide.u32 %a5, %t0, {size}; add.u64 %a6, %a6, %a5; add.u64 %a7, %a7, %a5; "
        f"ld.global{vector}.{name} {target}, [%a6]; st.global{vector}.{name} [%a7], {target};"
    )
    parameters = ", ".join(f".param .u64 x{i}" for i in range(arrays)) + ", .param .u64 y"
    rows = []
    for i in range(arrays + 1):
        room = np.empty(32 * size + 16, np.uint8)
        row = room[-room.ctypes.data % 16 :][: 32 * size]
        row[:] = np.random.default_rng(i).integers(0, 256, 32 * size, np.uint8)
        rows.append(row)
    assert launch(_kernel(parameters, body), rows, 1, 32).diagnostics == []
    got = rows[-1].reshape(32, size)
    for lane in range(32):
        assert (got[lane] == rows[lane % arrays].reshape(32, size)[lane]).all()


@pytest.mark.parametrize(("width", "count"), [(1, 4), (2, 2), (4, 1), (4, 2), (4, 4), (8, 2)])
@pytest.mark.parametrize("other", [None, 0, -1])
@pytest.mark.parametrize("lane", [0, 17])
def test_two_warps_may_store_the_same_where_the_model_says_so(
    width: int, count: int, other: int | None, lane: int
) -> None:
    """Every element of a vector must be the same in both; one lane may differ in one."""
    size, bank = width * count, "d" if width == 8 else "r" if width == 4 else "h"
    regs = [f"%{bank}{i}" for i in range(count)]
    source = regs[0] if count == 1 else "{" + ", ".join(regs) + "}"
    vector = f".v{count}" if count > 1 else ""
    code = f"b{max(16, 8 * width)}"
    values = " ".join(f"mov.{code} {r}, {11 + 2 * i};" for i, r in enumerate(regs))
    changed = "" if other is None else f"@%p1 mov.{code} {regs[other]}, 99;"
    body = (
        f"ld.param.u64 %a0, [y]; mov.u32 %t0, %tid.x; and.b32 %t1, %t0, 31; {values} "
        f"setp.eq.u32 %p1, %t0, {32 + lane}; {changed} mul.wide.u32 %a1, %t1, {size}; "
        f"add.u64 %a0, %a0, %a1; setp.lt.u32 %p2, %t0, 32; "
        + " ".join(f"@{p} st.global{vector}.b{8 * width} [%a0], {source};" for p in ("%p2", "!%p2"))
    )
    text = _kernel(".param .u64 y", body)
    for model in MODELS.values():
        for seed in (None, 1):
            room = np.zeros(32 * size + 16, np.uint8)
            out = room[-room.ctypes.data % 16 :][: 32 * size].view(f"u{width}")
            done = launch(text, [out], 1, 64, options=Options(model=model, seed=seed))
            races = [d.kind for d in done.diagnostics]
            assert races == (["global-race"] if other is not None or not model.equal_stores else [])
            same = np.tile(11 + 2 * np.arange(count), 32).reshape(32, count)
            assert (np.delete(out.reshape(32, count), lane, 0) == same[1:]).all()
            if other is not None:
                assert out.reshape(32, count)[lane][other] == 99


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_elements_may_be_numbers_or_nowhere(data: st.DataObject) -> None:
    """A vector that is stored may hold numbers of the text; one that is loaded may drop some."""
    width = data.draw(st.sampled_from([2, 4, 8]))
    count = data.draw(st.sampled_from([n for n in (1, 2, 4) if n * width <= 16]))
    space = data.draw(st.sampled_from(["global", "shared", "local"]))
    bank, code = {2: "h", 4: "r", 8: "d"}[width], f"b{8 * width}"
    numbers = [data.draw(st.integers(0, (1 << 8 * width) - 1)) for _ in range(count)]
    written = [data.draw(st.booleans()) for _ in range(count)]
    taken = [data.draw(st.booleans()) for _ in range(count)]
    taken[0] |= count == 1
    moves = " ".join(f"mov.{code} %{bank}{i}, {n};" for i, n in enumerate(numbers))
    given_ = [
        str(n) if w else f"%{bank}{i}"
        for i, (n, w) in enumerate(zip(numbers, written, strict=True))
    ]
    found = [f"%{bank}{4 + i}" if t else "_" for i, t in enumerate(taken)]
    vector = f".v{count}" if count > 1 else ""
    pack = (lambda x: x[0]) if count == 1 else (lambda x: "{" + ", ".join(x) + "}")
    size = width * count
    where = {
        "global": f"mul.wide.u32 %a2, %t0, {size}; add.u64 %a2, %a2, %a0;",
        "shared": f"mov.u32 %t1, s; mad.lo.u32 %t1, %t0, {size}, %t1; cvt.u64.u32 %a2, %t1;",
        "local": "mov.u64 %a2, held;",
    }[space]
    back = " ".join(
        f"st.global.{code} [%a1+{width * i}], {f};" for i, f in enumerate(found) if f != "_"
    )
    body = (
        f".local .align 16 .b8 held[16]; ld.param.u64 %a0, [x]; ld.param.u64 %a1, [y]; mov.u32 %t0, %tid.x; {moves} {where} "
        f"st.{space}{vector}.{code} [%a2], {pack(given_)}; ld.{space}{vector}.{code} {pack(found)}, [%a2]; "
        f"mul.wide.u32 %a3, %t0, {size}; add.u64 %a1, %a1, %a3; {back}"
    )
    text = _kernel(".param .u64 x, .param .u64 y", body, ".shared .align 16 .b8 s[512];")
    rows = []
    for _ in range(2):
        room = np.zeros(32 * size + 16, np.uint8)
        rows.append(room[-room.ctypes.data % 16 :][: 32 * size].view(f"u{width}"))
    assert launch(text, rows, 1, 32).diagnostics == []
    wanted = [n if t else 0 for n, t in zip(numbers, taken, strict=True)]
    assert rows[1].reshape(32, count).tolist() == [wanted] * 32
    if space == "global":
        assert rows[0].reshape(32, count).tolist() == [numbers] * 32
