# ruff: noqa: E501  # A PTX statement stays on its line.
"""Parts of the emulator by themselves: chains that grow, formats, long products, tensor memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.emulator import formats
from mla_var3.emulator.launcher import _raw, launch
from mla_var3.emulator.lower import forms
from mla_var3.emulator.lower.base import Writer
from mla_var3.emulator.options import DEFAULT, STRICT, Options
from mla_var3.emulator.program import Program
from mla_var3.emulator.units import wgmma
from mla_var3.emulator.units.layouts import swizzled
from mla_var3.emulator.units.tcgen05 import memory
from mla_var3.gpuless.ptx import parse
from tests.emulator.events import Snippet, wait
from tests.emulator.tcgen05 import ALLOC, DEALLOC, LOADED, STORED


# Forms ------------------------------------------------------------------------------------------
def test_the_table_of_forms_is_read() -> None:
    read = forms.table.__wrapped__()
    assert read == forms.table()
    (table,) = (f for f in read["brx"])
    assert (table.status, table.since, list(table.opcodes())) == (
        "run",
        "6.0",
        ["brx.idx.uni", "brx.idx"],
    )
    group = forms._group("[a|$x+::y|b]", {"x": ("c", "d")})
    assert (group.names, group.optional) == (("a", "c::y", "d::y", "b"), True)
    assert forms._group("a", {}) == forms.Group(("a",), False)


@pytest.mark.parametrize(
    ("op", "said"),
    [
        ("add.s99", "no form of the PTX ISA has these modifiers"),
        ("tcgen05.cp.cta_group::1.4x256b", "it is not written yet (PTX ISA 8.6)"),
        ("bar.sync", "it does not take these operands here"),
    ],
)
def test_why_a_form_is_not_run(op: str, said: str) -> None:
    assert forms.why(op) == said


def test_some_forms_are_refused_for_good() -> None:
    refused = [f for found in forms.table().values() for f in found if f.status == "refused"]
    op = next(refused[0].opcodes())
    assert (
        forms.why(op)
        == "it needs what no CPU has, or is gone from the architectures that are emulated"
    )
    assert not forms.runs(op)


# Arguments --------------------------------------------------------------------------------------
def test_arguments_as_bytes() -> None:
    assert _raw(1.5, 4) == np.float32(1.5).tobytes()
    assert _raw(1.5, 8) == np.float64(1.5).tobytes()
    assert _raw(np.float16(1.5), 2) == np.float16(1.5).tobytes()
    assert _raw(np.int64(-2), 8) == np.int64(-2).tobytes()
    assert _raw(-2, 4) == b"\xfe\xff\xff\xff"
    assert _raw(b"ab", 7) == b"ab"


# Formats ----------------------------------------------------------------------------------------
@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_tf32_rounds_to_the_nearest(x: float) -> None:
    code = formats.to_tf32(np.array([x], np.float32), "rn")
    assert int(code[0]) & 0x1FFF == 0
    value = float(code.view(np.float32)[0])
    low = np.array([x], np.float32).view(np.uint32) & np.uint32(0xFFFFE000)
    if int(low[0]) & 0x7FFFE000 == 0x7F7FE000:
        return  # Its neighbor is no number.
    near = [float(v.view(np.float32)[0]) for v in (low, low + np.uint32(0x2000))]
    best = min(near, key=lambda v: (abs(v - x), int(np.float32(v).view(np.uint32)) >> 13 & 1))
    assert value == best


# Products ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(("m", "n", "k"), [(4, 8, 16), (512, 512, 64), (300, 256, 131), (64, 8, 8)])
def test_long_products_are_the_same_in_steps(m: int, n: int, k: int, monkeypatch) -> None:
    rng = np.random.default_rng(m)
    x, y = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    exact = x.astype(np.int64) @ y.astype(np.int64)
    assert (wgmma.multiplied(x, y) == exact).all()
    monkeypatch.setattr(wgmma, "BLAS_ALONE", m * n * 9)
    assert (wgmma.multiplied(x, y) == exact).all()


def test_a_chain_of_products_is_cut_where_a_sum_begins() -> None:
    def item(keep: object) -> tuple:
        return (None, None, None, keep)

    chain = [item(False), item(True), item(np.array([0, 1])), item(True)]
    first = [([chain[0], chain[1]], False), ([chain[2], chain[3]], False)]
    assert wgmma._sums(chain, 0) == first
    assert wgmma._sums(chain, 1) == [(chain, False)]
    assert wgmma._sums(chain[1:2], 0) == [(chain[1:2], True)]


# Chains -----------------------------------------------------------------------------------------
def barriers(count: int) -> Snippet:
    """A copy, with an mbarrier of its own, after the other: each is a chain more."""
    steps = {
        "start": "mov.u32 %r2, a; mov.u32 %r3, bars; setp.ne.u32 %p1, %r1, 0; @%p1 bra READY;",
        "init": " ".join(f"mbarrier.init.shared.b64 [%r3+{8 * i}], 1;" for i in range(count)),
        "made": "fence.mbarrier_init.release.cluster; READY: bar.sync 0; @%p1 bra LOADED;",
    }
    for i in range(count):
        steps[f"load {i}"] = (
            f"mbarrier.arrive.expect_tx.shared.b64 _, [%r3+{8 * i}], 16; "
            f"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2+{16 * i}], [%rd0+{16 * i}], 16, [%r3+{8 * i}];"
        )
    steps["loaded"] = "LOADED:"
    for i in range(count):
        steps[f"wait {i}"] = (
            wait(f"%r3+{8 * i}")
            .replace("W:", f"W{i}:")
            .replace("bra W;", f"bra W{i};")
            .replace("D:", f"D{i}:")
            .replace("bra D;", f"bra D{i};")
        )
    steps["take"] = "shl.b32 %r4, %r1, 2; add.u32 %r5, %r2, %r4; ld.shared.u32 %r6, [%r5];"
    steps["give"] = "cvt.u64.u32 %rd3, %r4; add.u64 %rd4, %rd1, %rd3; st.global.u32 [%rd4], %r6;"
    shared = f".shared .align 128 .b8 a[{16 * count}]; .shared .align 8 .b8 bars[{8 * count}];"
    return Snippet(steps, words=(4 * count, 4 * count), shared=shared, block=4 * count)


@pytest.mark.parametrize("model", [DEFAULT, STRICT])
@pytest.mark.parametrize("count", [8, 40, 100])
def test_there_may_be_any_number_of_chains(count: int, model) -> None:
    kernel = barriers(count)
    (source, out), done = kernel.run(options=Options(model=model))
    assert done.diagnostics == []
    assert (out == source).all()
    _, done = kernel.run({f"wait {count - 1}": ""}, Options(model=model))
    races = [d for d in done.diagnostics if d.kind == "race"]
    assert {(d.at.line, d.other.line) for d in races} == {
        (kernel.line("take"), kernel.line(f"load {count - 1}"))
    }
    # Nobody waits for that load before the CTA ends, where the model minds.
    left = [d for d in done.diagnostics if d.kind == "left-pending"]
    assert {d.at.line for d in left} <= {kernel.line(f"load {count - 1}")}
    assert len(races) + len(left) == len(done.diagnostics)


# Tensor memory ----------------------------------------------------------------------------------
def test_a_pattern_of_two_halves() -> None:
    lane, column, wide = memory.pattern("16x32bx2", 4, 64)
    for i in range(4):
        for t in range(32):
            assert (lane[i, t], column[i, t]) == (t % 16, i + (64 if t >= 16 else 0))
    assert wide == 4


def packed(load: str, store: str, values: Sequence[int], far: str = "") -> np.ndarray:
    """What registers hold that were stored to tensor memory in one way and loaded in another."""
    count = len(values)
    names = ", ".join(f"%w{i}" for i in range(16))
    given_, taken = (", ".join(f"%{stem}{i}" for i in range(count)) for stem in "vu")
    step = {
        "alloc": f"setp.ge.u32 %p1, %r1, 32; @!%p1 {ALLOC} [a], 32; bar.sync 0; ld.shared.b32 %r3, [a];",
        "clear": " ".join(f"mov.b32 %w{i}, 0;" for i in range(16)),
        "cleared": f"tcgen05.st.sync.aligned.32x32b.x16.b32 [%r3], {{{names}}}; {STORED}",
        "values": " ".join(f"add.u32 %v{i}, %r1, {v};" for i, v in enumerate(values)),
        "store": f"tcgen05.st.sync.aligned.{store}.b32 [%r3]{far}, {{{given_}}}; {STORED}",
        "load": f"tcgen05.ld.sync.aligned.{load}.b32 {{{taken}}}, [%r3]{far}; {LOADED}",
        "whole": f"tcgen05.ld.sync.aligned.32x32b.x16.b32 {{{names}}}, [%r3]; {LOADED}",
        "address": "mul.wide.u32 %rd3, %r1, 128; add.u64 %rd4, %rd0, %rd3;",
        "give": " ".join(f"st.global.u32 [%rd4+{4 * i}], %u{i};" for i in range(count)),
        "all": " ".join(f"st.global.u32 [%rd4+{64 + 4 * i}], %w{i};" for i in range(16)),
        "end": f"bar.sync 0; @!%p1 {DEALLOC} %r3, 32;",
    }
    kernel = Snippet(step, words=(1024,), block=32)
    text = (
        kernel.text()
        .replace("sm_90a", "sm_100a")
        .replace(".reg .pred %p<16>;", ".reg .pred %p<16>; .reg .b32 %u<16>, %v<16>, %w<16>;")
    )
    out = np.zeros(1024, np.uint32)
    done = launch(text, [out], 1, 32, options=Options())
    assert done.diagnostics == []
    return out.reshape(32, 32)


def test_a_packed_load_takes_low_halves_of_two_columns() -> None:
    values = [0x10000 * (i + 1) + 0x100 * i for i in range(4)]
    out = packed("32x32b.x4.unpack::16b".replace("unpack", "pack"), "32x32b.x4", values)
    assert [hex(v) for v in out[5, :4]] == [hex(v) for v in (
        (0x000 + 5) | (0x100 + 5) << 16, (0x200 + 5) | (0x300 + 5) << 16, 0, 0)]  # fmt: skip
    assert out[5, 16:20].tolist() == [v + 5 for v in values]


def test_an_unpacked_store_gives_each_half_a_column() -> None:
    values = [0x10000 * (i + 1) + 0x100 * i for i in range(4)]
    out = packed("32x32b.x4", "32x32b.x4.unpack::16b", values)
    assert out[7, 16:24].tolist() == [x for v in values for x in ((v + 7) & 0xFFFF, v >> 16)]
    assert out[7, :4].tolist() == out[7, 16:20].tolist()


def test_two_halves_lie_apart() -> None:
    out = packed("16x32bx2.x2", "16x32bx2.x2", [1000, 2000], far=", 8")
    for t in range(32):
        assert out[t, :2].tolist() == [1000 + t, 2000 + t]
    for t in range(16):
        assert out[t, 16:18].tolist() == [1000 + t, 2000 + t]
        assert out[t, 24:26].tolist() == [1016 + t, 2016 + t]


# Constants ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("12", "u32", 12), ("-1", "s32", -1), ("-1", "u32", 2**32 - 1), ("017", "s32", 15),
        ("-017", "s32", -15), ("0x1F", "u64", 31), ("0X1f", "u32", 31), ("7U", "u32", 7), ("0", "u32", 0),
        ("-0x10", "s64", -16), ("WARP_SZ", "u32", 32), ("0f3F800000", "f32", 1.0), ("0F40000000", "f32", 2.0),
        ("0f3F800000", "f64", 1.0), ("0d3FF8000000000000", "f64", 1.5), ("0D3FF8000000000000", "f32", 1.5),
        ("0f3F800000", "b32", 0x3F800000), ("0d3FF8000000000000", "b64", 0x3FF8000000000000),
        ("1.25", "f32", 1.25), ("-2.5", "f64", -2.5), ("1", "pred", True), ("0", "pred", False), ("65535", "u16", 65535),
    ],
)  # fmt: skip
def test_constants_as_ptx_writes_them(text: str, kind: str, value: float) -> None:
    writer = Writer(Program(parse(Snippet({"none": ""}).text())))
    made = writer.immediate(text, kind)
    assert made == value
    if kind == "pred":
        assert made is bool(value)
    else:
        assert np.dtype(type(made)).itemsize == int(kind[1:]) // 8
        assert np.dtype(type(made)).kind == (
            "f" if kind[0] == "f" else "i" if kind[0] == "s" else "u"
        )


def test_what_is_not_wanted_is_not_kept() -> None:
    kernel = Snippet(
        {
            "start": "mul.wide.u32 %rd3, %r1, 8; add.u64 %rd4, %rd0, %rd3;",
            "load": "ld.global.v2.u32 {_, %r2}, [%rd4];",
            "drop": "atom.global.add.u32 _, [%rd1], 2;",
            "give": "st.global.u32 [%rd4], %r2;",
        },
        words=(128, 1),
    )
    (x, count), done = kernel.run()
    assert done.diagnostics == []
    assert x[::2].tolist() == x[1::2].tolist() == list(range(1, 128, 2))
    assert count[0] == 1000 + 128


@pytest.mark.parametrize("name", [n for n, form in formats.SMALL.items() if form.mantissa])
def test_codes_of_small_formats_are_the_nearest_and_even_ones_where_two_are(name: str) -> None:
    form = formats.SMALL[name]
    finite = formats._magnitudes(name)
    assert (np.diff(finite) > 0).all()
    codes = np.arange(len(finite))
    assert formats.encode(finite, name).tolist() == codes.tolist()
    low, high = finite[:-1], finite[1:]
    middle, even = (low + high) / 2, codes[:-1] + (codes[:-1] & 1)
    assert formats.encode(middle, name).tolist() == even.tolist()
    near = np.nextafter(middle, 0), np.nextafter(middle, np.inf)
    assert formats.encode(near[0], name).tolist() == codes[:-1].tolist()
    assert formats.encode(near[1], name).tolist() == codes[1:].tolist()
    assert formats.encode(np.array([1e9, np.inf]), name).tolist() == [len(finite) - 1] * 2
    nan = len(finite) - 1 if form.nan is None else form.nan
    assert formats.encode(np.array([np.nan]), name).tolist() == [nan]
    if form.signed:
        sign = 1 << (form.exponent + form.mantissa)
        assert formats.encode(-middle, name).tolist() == (even + sign).tolist()
        assert formats.encode(np.array([-0.0]), name).tolist() == [sign]


@given(st.integers(0, 3), st.integers(0, 1 << 20))
def test_a_swizzle_flips_pieces_of_sixteen_bytes(mode: int, address: int) -> None:
    """Bits 4 to 6, as many as the mode has, by those three places above."""
    wanted = address
    for bit in range(mode):
        wanted ^= (address >> (7 + bit) & 1) << (4 + bit)
    assert swizzled(np.array([address]), mode)[0] == wanted


@pytest.mark.parametrize(
    ("value", "down", "up"),
    [
        (0.0, 0, 0), (1.0, 127, 127), (-1.5, 127, 128), (1.999, 127, 128), (0.75, 126, 127),
        (2.0**-127, 0, 0), (2.0**-126, 1, 1), (1.5 * 2.0**-127, 0, 1), (2.0**-140, 0, 0),
        (2.0**127, 254, 254), (1.5 * 2.0**127, 254, 255), (float("inf"), 255, 255),
        (float("nan"), 255, 255),
    ],
)  # fmt: skip
def test_scales_are_powers_of_two_on_the_side_asked_for(value: float, down: int, up: int) -> None:
    x = np.array([value])
    assert formats.encode_scale(x, "rz", False).tolist() == [down]
    assert formats.encode_scale(x, "rp", False).tolist() == [up]
    finite = 255 if np.isnan(value) else min(up, 254)
    assert formats.encode_scale(x, "rp", True).tolist() == [finite]


@pytest.mark.parametrize("source", ["f32", "bf16x2"])
def test_a_pair_of_scales_lies_as_its_operands_do(source: str) -> None:
    word = int(np.float32(1.5).view(np.uint32)) >> 16 | int(np.float32(8).view(np.uint32))
    given = "%f1, %f2" if source == "f32" else "%r1"
    text = f""".version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out) {{
.reg .b16 %h<2>; .reg .b32 %r<3>; .reg .f32 %f<3>; .reg .b64 %rd<2>;
ld.param.u64 %rd1, [out]; mov.f32 %f1, 0f41000000; mov.f32 %f2, 0f3FC00000; mov.b32 %r1, {word};
cvt.rp.satfinite.ue8m0x2.{source} %h1, {given};
cvt.u32.u16 %r2, %h1; st.global.u32 [%rd1], %r2; ret;
}}
"""
    out = np.zeros(1, np.uint32)
    launch(text, [out])
    assert out[0] == 130 << 8 | 128


def test_powers_of_two_without_a_sign() -> None:
    """ue8m0: 2**(code - 127), and one code for what is no number."""
    codes = np.arange(255)
    made = formats.decode(codes, "ue8m0")
    assert made.tolist() == [2.0 ** (c - 127) for c in codes.tolist()]
    assert formats.encode(made, "ue8m0").tolist() == codes.tolist()
    assert formats.encode(np.array([np.nan, 1e60]), "ue8m0").tolist() == [255, 254]
    assert np.isnan(formats.decode(np.array([255]), "ue8m0")[0])


def test_codes_that_are_no_numbers() -> None:
    five = formats.decode(np.array([0x7B, 0x7C, 0xFC, 0x7D, 0x7F, 0xFF]), "e5m2")
    assert five[:3].tolist() == [57344.0, np.inf, -np.inf]
    assert np.isnan(five[3:]).all()
    four = formats.decode(np.array([0x7E, 0xFE, 0x7F, 0xFF]), "e4m3")
    assert four[:2].tolist() == [448.0, -448.0]
    assert np.isnan(four[2:]).all()


@pytest.mark.parametrize("below", [0, 1, 2, 5])
def test_tf32_takes_ties_to_even(below: int) -> None:
    """Halfway between two codes the one whose last bit is 0 is taken."""
    code = np.uint32(0x3F800000 + (below << 13))
    tie = np.array([code + 0x1000, code + 0xFFF, code + 0x1001], np.uint32).view(np.float32)
    up = code + np.uint32(0x2000)
    wanted = [up if below % 2 else code, code, up]
    assert formats.to_tf32(tie, "rn").tolist() == [int(w) for w in wanted]
