# ruff: noqa: E501  # Tables of operands.
"""How operands become Python text: registers of every width, constants, symbols and addresses."""

from __future__ import annotations

import numpy as np
import pytest

from mla_var3.emulator.lower.base import (
    NotLowered,
    Op,
    Writer,
    integer,
    lower,
    numpy_name,
    row_name,
)
from mla_var3.emulator.program import Program
from mla_var3.emulator.windows import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW
from mla_var3.gpuless.ptx import parse

TEXT = """
.version 8.8
.target sm_100a
.address_size 64
.global .align 8 .b8 table[64];
.visible .entry k(.param .u64 first, .param .u32 second, .param .align 8 .b8 third[16]) {
.reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<8>; .reg .f32 %f<4>; .reg .b64 %rd<8>;
.local .align 8 .b8 frame[32]; .local .align 8 .b8 deep[8];
.shared .align 16 .b8 a[24]; .shared .align 128 .b8 b[8]; .extern .shared .align 16 .b8 c[];
BODY
ret;
}
"""


def writer(body: str = "") -> Writer:
    return Writer(Program(parse(TEXT.replace("BODY", body))))


def lowered(statement: str) -> list[str]:
    """The lines of one instruction, the first of the kernel."""
    made = writer(statement)
    return lower(made, made.program.kernel.instructions[0])


def op(statement: str) -> Op:
    made = writer(statement)
    return Op(made, made.program.kernel.instructions[0], "s")


def test_windows_lie_apart() -> None:
    assert [w >> 48 for w in (SHARED_WINDOW, PARAM_WINDOW, LOCAL_WINDOW)] == [0x200, 0x300, 0x400]


def test_a_symbol_is_an_address_in_its_space() -> None:
    made = writer()
    table = made.program.address_of("table")
    wanted = {
        "first": PARAM_WINDOW, "second": PARAM_WINDOW + 8, "third": PARAM_WINDOW + 16,
        "frame@0": 0, "deep@0": 32, "a@0": 0x400, "b@0": 0x480, "c@0": 0x490, "table": table,
    }  # fmt: skip
    for name, address in wanted.items():
        assert made.symbol(name) == address
        assert made.symbol(f"{name}+12") == made.symbol(f" {name} + 12") == address + 12
    assert made.program.static_shared == 0x490
    assert made.program.local_bytes == 40
    with pytest.raises(NotLowered, match="nobody"):
        made.symbol("nobody+4")


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("%r1", "u32", "r0[s]"), ("%r1", "b32", "r0[s]"), ("%r1", "s32", "rs0[s]"), ("%r1", "f32", "rf0[s]"),
        ("%r1", "u16", "r0[s].astype(np.uint16)"), ("%r1", "b8", "r0[s].astype(np.uint8)"),
        ("%r1", "s16", "r0[s].astype(np.uint16).view(np.int16)"),
        ("%rd1", "f32", "q0[s].astype(np.uint32).view(np.float32)"), ("%rd1", "s64", "qs0[s]"), ("%rd1", "f64", "qf0[s]"),
        ("%h1", "u16", "h0[s]"), ("%h1", "s16", "hs0[s]"), ("%h1", "f16", "hf0[s]"), ("%h1", "u8", "h0[s].astype(np.uint8)"),
        ("%p1", "pred", "p0[s]"), ("%tid.x", "u32", "sp_tid_x[s]"), ("%laneid", "u64", "sp_laneid[s].astype(np.uint64)"),
        ("%h1", "u32", None), ("%r1", "b64", None), ("%r1", "pred", None), ("%p1", "u32", None), ("%nothing", "u32", None),
    ],
)  # fmt: skip
def test_a_register_is_read_as_a_type(name: str, kind: str, text: str | None) -> None:
    made = writer()
    made.program.rows.clear()
    made.program.counts.update(dict.fromkeys(made.program.counts, 0))
    if text is None:
        with pytest.raises(NotLowered):
            made.read(name, kind, "s")
    else:
        assert made.read(name, kind, "s") == text


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("%r1", "u32", "r0[s] = x"), ("%r1", "f32", "rf0[s] = x"), ("%r1", "s16", "rs0[s] = x"),
        ("%r1", "u16", "r0[s] = x"), ("%r1", "b8", "r0[s] = x"), ("%rd1", "s32", "qs0[s] = x"),
        ("%rd1", "f32", "q0[s] = x"), ("%h1", "s16", "hs0[s] = x"), ("%h1", "s8", "hs0[s] = x"),
        ("%p1", "pred", "p0[s] = x"), ("_", "u32", "x"), ("%nothing", "u32", None),
    ],
)  # fmt: skip
def test_a_narrow_value_is_widened_by_its_type(name: str, kind: str, text: str | None) -> None:
    made = writer()
    made.program.rows.clear()
    made.program.counts.update(dict.fromkeys(made.program.counts, 0))
    if text is None:
        with pytest.raises(NotLowered):
            made.write(name, kind, "s", "x")
    else:
        assert made.write(name, kind, "s", "x") == [text]


@pytest.mark.parametrize("kind", ["u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "b32"])
def test_constants_wrap_to_the_width_of_their_type(kind: str) -> None:
    width = int(kind[1:])
    for value in (0, 1, -1, (1 << width) - 1, 1 << width, 1 << width - 1, -(1 << width - 1) - 1):
        code = value & (1 << width) - 1
        wanted = code - (1 << width) if kind[0] == "s" and code >> width - 1 else code
        made = integer(value, kind)
        assert (int(made), made.dtype.itemsize * 8) == (wanted, width)
    assert integer(0x3F800000, "f32") == np.float32(1)


def test_names_of_rows_and_types() -> None:
    assert [row_name("r", 3, k) for k in ("u32", "b32", "s32", "f32")] == ["r3", "r3", "rs3", "rf3"]
    assert [row_name("p", 2, k) for k in ("pred", "u32")] == ["p2", "p2"]
    kinds = ("u8", "b16", "s32", "f64", "f16")
    assert [numpy_name(k) for k in kinds] == ["np.uint8", "np.uint16", "np.int32", "np.float64", "np.float16"]  # fmt: skip


@pytest.mark.parametrize(
    ("address", "register", "offset"),
    [
        ("[%rd1]", "q", 0), ("[%rd1+8]", "q", 8), ("[%rd1 + 0x10]", "q", 16), ("[%rd1+-8]", "q", (1 << 64) - 8),
        ("[ %rd1 + -0x10 ]", "q", (1 << 64) - 16), ("[%r1]", "r", 0), ("[%r1+4]", "r", 4), ("[%r1+-4]", "r", (1 << 32) - 4),
    ],
)  # fmt: skip
def test_an_address_is_a_register_and_an_offset(address: str, register: str, offset: int) -> None:
    made = op("ld.global.u32 %r2, [%rd1];")
    found = made.address(address)
    number = made.writer.index("%rd1" if register == "q" else "%r1")
    if not offset:
        assert found == f"{register}{number}[s]"
        return
    name = found.removeprefix(f"({register}{number}[s] + ").removesuffix(")")
    constant = made.writer.program.constants[name]
    assert int(constant) == offset
    assert constant.dtype == (np.uint64 if register == "q" else np.uint32)


@pytest.mark.parametrize(
    ("address", "value"),
    [("[a@0]", 0x400), ("[a@0+8]", 0x408), ("[b@0+-8]", 0x478), ("[c@0]", 0x490), ("[1024]", 1024), ("[1024+4]", 1028),
     ("[first]", PARAM_WINDOW), ("[second+4]", PARAM_WINDOW + 12)],
)  # fmt: skip
def test_an_address_may_be_a_symbol_or_a_number(address: str, value: int) -> None:
    made = op("ld.global.u32 %r2, [%rd1];")
    constant = made.writer.program.constants[made.address(address)]
    assert (int(constant), constant.dtype) == (value, np.uint64)


def test_where_ctas_work_in_pairs_shared_addresses_name_the_thread_s_cta() -> None:
    made = op("ld.global.u32 %r2, [%rd1];")
    made.writer.program.pairs = True
    constant = f"k{len(made.writer.program.constants)}"
    assert made.address("[a@0+4]") == f"({constant} + sp_shared_window[s])"
    assert made.get("a@0+4", "u32") == f"(k{int(constant[1:]) + 1} + sp_shared_window[s])"
    # What lies elsewhere is the same for all.
    assert made.address("[first]") == f"k{int(constant[1:]) + 2}"
    made.writer.program.pairs = False
    assert made.address("[a@0+4]") == f"k{int(constant[1:]) + 3}"


def test_parts_of_an_instruction() -> None:
    made = op("add.rz.ftz.f32 %f1, %f2, %f3;")
    assert (made.kind, made.raw(), made.rounding()) == ("f32", "f32", "rz")
    assert (made.has("ftz"), made.has("sat", "ftz"), made.has("sat"), made.has("add")) == (True, True, False, False)  # fmt: skip
    assert made.vector("{%r1, %r2 ,%r3}") == ["%r1", "%r2", "%r3"]
    assert made.vector(1) == ["%f2"]
    assert op("mov.b32 %r1, %r2;").raw() == "u32"
    assert [op(f"add.{m}.f32 %f1, %f2, %f3;").rounding() for m in ("rn", "rz", "rm", "rp")] == ["rn", "rz", "rm", "rp"]  # fmt: skip
    assert op("add.f32 %f1, %f2, %f3;").rounding() == "rn"
    both = op("shfl.sync.idx.b32 %r1|%p1, %r2, %r3, %r4, %r5;")
    assert (both.pair(0), both.pair(1)) == (("%r1", "%p1"), ("%r2", None))
    negated = op("selp.b32 %r1, %r2, %r3, %p1;")
    assert negated.get("!%p1", "pred") == f"~{negated.get('%p1', 'pred')}"
    assert negated.put("y", "u32", "%r3") == [f"r{negated.writer.index('%r3')}[s] = y"]


def test_a_guard_chooses_the_threads() -> None:
    plain, guarded, negated = (
        lowered(f"{g} add.u32 %r1, %r2, %r3;") for g in ("", "@%p1", "@!%p1")
    )
    (line,) = plain
    assert guarded == ["for t in machine.select(p0, s, False, 0):", f"  {line.replace('[s]', '[t]')}"]  # fmt: skip
    assert negated == ["for t in machine.select(p0, s, True, 0):", f"  {line.replace('[s]', '[t]')}"]  # fmt: skip
    assert lowered("cp.async.bulk.prefetch.L2.global [%rd1], 16;") == []
    assert lowered("@%p1 cp.async.bulk.prefetch.L2.global [%rd1], 16;")[1:] in ([], ["  pass"])


def test_a_row_is_made_where_a_register_is_first_named() -> None:
    program = writer("add.u32 %r5, %r2, %r3;").program
    rows = {name: program.row(name) for name in ("%r5", "%r2", "%r3", "%rd7", "%h2", "%f1", "%p3")}
    assert [group for group, _ in rows.values()] == ["r", "r", "r", "q", "h", "r", "p"]
    assert len({program.row(name) for name in rows}) == len(rows)
    assert program.counts["r"] >= 4
    assert program.row("%tid.x") is program.row("nothing") is None
    assert program.row_names("rf", 3) == ["rf0", "rf1", "rf2"]
