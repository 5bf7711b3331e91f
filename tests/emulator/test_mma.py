# ruff: noqa: E501  # A PTX statement stays on its line.
"""``mma.sync`` of every type and shape against matrices that are put together element by element."""

from __future__ import annotations

import re
import zlib

import numpy as np
import pytest

from mla_var3.emulator import launch

LANES, WARPS = 32, 2
#: Bits of exponent and fraction, and whether the largest exponent holds infinities.
FLOATS = {
    "f16": (5, 10, True), "bf16": (8, 7, True), "tf32": (8, 23, True), "f32": (8, 23, True),
    "e5m2": (5, 2, True), "e4m3": (4, 3, False), "e3m2": (3, 2, False), "e2m3": (2, 3, False),
    "e2m1": (2, 1, False),
}  # fmt: skip
BITS = {"f16": 16, "bf16": 16, "tf32": 32}


def number(code: int, kind: str) -> float:
    """The value of a code."""
    if kind in ("u8", "s8"):
        return code - 256 * (kind == "s8" and code > 127)
    if kind == "ue8m0":
        return 2.0 ** (code - 127)
    exponent_bits, fraction_bits, _ = FLOATS["e4m3" if kind == "ue4m3" else kind]
    if kind == "tf32":
        code &= ~0x1FFF  # The low bits are not read.
    fraction = code & (1 << fraction_bits) - 1
    exponent = code >> fraction_bits & (1 << exponent_bits) - 1
    sign = -1 if code >> exponent_bits + fraction_bits & 1 else 1
    bias = (1 << exponent_bits - 1) - 1
    whole = fraction + (bool(exponent) << fraction_bits)
    return sign * whole * 2.0 ** (max(exponent, 1) - bias - fraction_bits)


def codes(kind: str, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Random codes of small exact numbers."""
    if kind in ("u8", "s8"):
        return random.integers(0, 256, shape)
    exponent_bits, fraction_bits, _ = FLOATS[kind]
    bias = (1 << exponent_bits - 1) - 1
    top = min(bias + 2, (1 << exponent_bits) - 1)
    exponent = random.integers(max(bias - 2, 0), top, shape)
    low = min(fraction_bits, 4)
    fraction = random.integers(0, 1 << low, shape) << fraction_bits - low
    if kind == "tf32":
        fraction |= random.integers(0, 1 << 13, shape)
    sign = random.integers(0, 2, shape)
    return sign << exponent_bits + fraction_bits | exponent << fraction_bits | fraction


def packing(kind: str, k: int) -> tuple[int, int, int]:
    """Elements per register, bits of each, and the lowest bit of one's code."""
    if kind == "e2m1" and k == 64:
        return 8, 4, 0
    return 32 // BITS.get(kind, 8), BITS.get(kind, 8), 2 if kind == "e2m1" else 0


def packed(matrix: np.ndarray, kind: str, k: int, tall: bool) -> np.ndarray:
    """Registers [warps, registers, lanes] of A (``tall``, [m, k]) or of B turned over ([n, k])."""
    each, bits, low = packing(kind, k)
    count = k // (4 * each) * (2 if tall else 1)
    out = np.zeros((len(matrix), count, LANES), np.uint32)
    for w, r, lane, e in np.ndindex(len(matrix), count, LANES, each):
        group, quad = divmod(lane, 4)
        half, piece = (r & 1, r >> 1) if tall else (0, r)
        code = int(matrix[w, group + 8 * half, (piece * 4 + quad) * each + e]) << low
        out[w, r, lane] |= np.uint32(code << bits * e)
    return out


def accumulators(matrix: np.ndarray, kind: str) -> np.ndarray:
    """Registers of C or D."""
    count = 2 if kind == "f16" else 4
    out = np.zeros((len(matrix), count, LANES), np.uint32)
    for w, r, lane in np.ndindex(out.shape):
        group, quad = divmod(lane, 4)
        if kind == "f16":
            pair = matrix[w, group + 8 * r, 2 * quad : 2 * quad + 2].astype(np.float16)
            out[w, r, lane] = pair.view(np.uint32)[0]
        else:
            one = matrix[w, group + 8 * (r >> 1), 2 * quad + (r & 1)]
            out[w, r, lane] = np.array([one], "i4" if kind == "s32" else "f4").view(np.uint32)[0]
    return out


def run(op: str, a: np.ndarray, b: np.ndarray, c: np.ndarray, more: str = "") -> np.ndarray:
    """The registers of D; ``%s0`` and ``%s1`` hold the words after those of C."""
    extra = c.shape[1] - (2 if op.endswith(".f16") else 4)
    counts = [a.shape[1], b.shape[1], c.shape[1]]
    d = np.zeros((WARPS, counts[2] - extra, LANES), np.uint32)
    loads = []
    for place, (name, count) in enumerate(zip("abc", counts, strict=True)):
        loads.append(
            f"ld.param.u64 %d0, [p{place}]; mad.wide.u32 %d0, %w, {128 * count}, %d0; add.u64 %d0, %d0, %d9;"
        )
        loads += [f"ld.global.b32 %{name}{i}, [%d0+{128 * i}];" for i in range(count)]
    group = {
        n: "{" + ", ".join(f"%{n}{i}" for i in range(m)) + "}"
        for n, m in zip("abc", counts, strict=True)
    }
    kept = counts[2] - extra
    group["c"] = "{" + ", ".join(f"%c{i}" for i in range(kept)) + "}"
    group["d"] = "{" + ", ".join(f"%e{i}" for i in range(kept)) + "}"
    text = (
        ".version 8.8\n.target sm_120a\n.address_size 64\n.visible .entry k(.param .u64 p0, .param .u64 p1, "
        ".param .u64 p2, .param .u64 p3)\n{\n.reg .b32 %a<8>, %b<8>, %c<8>, %e<8>, %r<4>, %w; .reg .b64 %d<10>; .reg .b16 %h<4>;\n"
        "mov.u32 %r0, %tid.x; shr.u32 %w, %r0, 5; and.b32 %r1, %r0, 31; mul.wide.u32 %d9, %r1, 4;\n"
        + "\n".join(loads)
        + f"\n{op} {group['d']}, {group['a']}, {group['b']}, {group['c']}{more};\n"
        + f"ld.param.u64 %d0, [p3]; mad.wide.u32 %d0, %w, {128 * kept}, %d0; add.u64 %d0, %d0, %d9;\n"
        + "\n".join(f"st.global.b32 [%d0+{128 * i}], %e{i};" for i in range(kept))
        + "\nret;\n}\n"
    )
    done = launch(text, [a, b, c, d], 1, LANES * WARPS)
    assert not done.diagnostics, done.diagnostics[0]
    return d


def matrices(op: str) -> tuple:
    """Sizes, types, codes and values of random operands."""
    random = np.random.default_rng(zlib.crc32(op.encode()))
    m, n, k = map(int, re.search(r"m(\d+)n(\d+)k(\d+)", op).groups())
    d, a, b, c = (p for p in op.split(".") if p in (*FLOATS, "s32", "u8", "s8"))
    ca, cb = codes(a, (WARPS, m, k), random), codes(b, (WARPS, n, k), random)
    x, y = (
        np.vectorize(lambda v, kind=kind: number(int(v), kind))(z) for z, kind in ((ca, a), (cb, b))
    )
    z = random.integers(-9, 9, (WARPS, m, n)).astype(float)
    return (k, d, a, b, c), (ca, cb), (x, y, z)


OPS = [
    "m16n8k8.row.col.f16.f16.f16.f16", "m16n8k16.row.col.f16.f16.f16.f16",
    "m16n8k8.row.col.f32.f16.f16.f32", "m16n8k16.row.col.f32.f16.f16.f32",
    "m16n8k8.row.col.f32.bf16.bf16.f32", "m16n8k16.row.col.f32.bf16.bf16.f32",
    "m16n8k4.row.col.f32.tf32.tf32.f32", "m16n8k8.row.col.f32.tf32.tf32.f32",
    "m16n8k16.row.col.s32.u8.s8.s32", "m16n8k32.row.col.s32.s8.u8.s32",
    "m16n8k32.row.col.satfinite.s32.s8.s8.s32", "m16n8k16.row.col.f32.e4m3.e5m2.f32",
    "m16n8k32.row.col.f16.e5m2.e4m3.f16", "m16n8k32.row.col.f32.e5m2.e5m2.f32",
    "m16n8k32.row.col.kind::f8f6f4.f32.e3m2.e2m3.f32",
    "m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32",
    "m16n8k32.row.col.kind::f8f6f4.f16.e2m3.e2m1.f16",
]  # fmt: skip


@pytest.mark.parametrize("op", OPS)
def test_products(op: str) -> None:
    (k, d, a, b, c), (ca, cb), (x, y, z) = matrices(op)
    got = run(
        f"mma.sync.aligned.{op}",
        packed(ca, a, k, True),
        packed(cb, b, k, False),
        accumulators(z, c),
    )
    assert got.tolist() == accumulators(x @ y.swapaxes(1, 2) + z, d).tolist()


@pytest.mark.parametrize("saturates", [True, False])
def test_integer_sums_end_at_their_limits_where_they_are_asked_to(saturates: bool) -> None:
    (k, *_), (ca, cb), _ = matrices(OPS[10])
    ca[:], cb[:, :4], cb[:, 4:] = 127, 127, 129
    z = np.full((WARPS, 16, 8), 2**31 - 5, np.int64)
    z[..., 4:] = -(2**31) + 5
    op = f"mma.sync.aligned.m16n8k32.row.col{'.satfinite' * saturates}.s32.s8.s8.s32"
    got = run(op, packed(ca, "s8", k, True), packed(cb, "s8", k, False), accumulators(z, "s32"))
    total = z + 32 * 127 * 127 * np.where(np.arange(8) < 4, 1, -1)
    wanted = np.clip(total, -(2**31), 2**31 - 1) if saturates else (total + 2**31) % 2**32 - 2**31
    assert got.tolist() == accumulators(wanted, "s32").tolist()


#: Kind, types, scale and how many of them per row; then which byte and which lanes hold them.
SCALED = [
    ("mxf8f6f4.block_scale", 32, "e4m3", "e5m2", "ue8m0", 1, (2, 1, 3, 2)),
    ("mxf8f6f4.block_scale.scale_vec::1X", 32, "e2m1", "e3m2", "ue8m0", 1, (0, 0, 1, 3)),
    ("mxf4.block_scale.scale_vec::2X", 64, "e2m1", "e2m1", "ue8m0", 2, (2, 1, 0, 1)),
    ("mxf4nvf4.block_scale.scale_vec::4X", 64, "e2m1", "e2m1", "ue4m3", 4, (0, 0, 0, 2)),
]


@pytest.mark.parametrize(
    ("kind", "k", "a", "b", "scale", "vector", "ids"), SCALED, ids=lambda v: str(v)
)
def test_products_of_scaled_blocks(
    kind: str, k: int, a: str, b: str, scale: str, vector: int, ids: tuple[int, int, int, int]
) -> None:
    op = f"mma.sync.aligned.m16n8k{k}.row.col.kind::{kind}.f32.{a}.{b}.f32.{scale}"
    _, (ca, cb), (x, y, z) = matrices(op.replace(f".{scale}", ""))
    byte_a, thread_a, byte_b, thread_b = ids
    random = np.random.default_rng(1)
    low, high = (124, 131) if scale == "ue8m0" else (0x28, 0x40)
    words = random.integers(low, high, (WARPS, 2, LANES, 4)).astype(np.uint8)
    factor = np.vectorize(lambda code: number(int(code), scale))(words)
    for w, row, j in np.ndindex(WARPS, 16, vector):
        # Of a quad the first or the last two lanes hold rows g and g + 8 of A, one lane column g.
        lane = 4 * (row % 8) + 2 * thread_a + row // 8
        part = slice(j * k // vector, (j + 1) * k // vector)
        x[w, row, part] *= factor[w, 0, lane, byte_a + j]
        if row < 8:
            y[w, row, part] *= factor[w, 1, 4 * row + thread_b, byte_b + j]
    c = np.concatenate([accumulators(z, "f32"), words.view(np.uint32)[..., 0]], 1)
    more = f", {{%c4}}, {{{byte_a}, {thread_a}}}, {{%c5}}, {{{byte_b}, {thread_b}}}"
    got = run(op, packed(ca, a, k, True), packed(cb, b, k, False), c, more)
    wanted = accumulators(x @ y.swapaxes(1, 2) + z, "f32")
    np.testing.assert_allclose(got.view(np.float32), wanted.view(np.float32), rtol=1e-6)


@pytest.mark.parametrize(("high", "low"), [(254, 0), (0, 254), (200, 60)])
def test_factors_far_from_one_leave_what_their_product_gives(high: int, low: int) -> None:
    """2**127 and 2**-127: neither operand times its own factor is a float32."""
    op = "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0"
    _, (ca, cb), (x, y, z) = matrices(op.replace(".ue8m0", ""))
    factors = np.zeros((WARPS, 2, LANES), np.uint32)
    factors[:, 0], factors[:, 1] = high, low
    c = np.concatenate([accumulators(z, "f32"), factors], 1)
    more = ", {%c4}, {0, 0}, {%c5}, {0, 0}"
    got = run(op, packed(ca, "e4m3", 32, True), packed(cb, "e4m3", 32, False), c, more)
    wanted = (x @ y.swapaxes(1, 2)) * 2.0 ** (high + low - 254) + z
    np.testing.assert_allclose(
        got.view(np.float32), accumulators(wanted, "f32").view(np.float32), rtol=1e-5
    )


def test_products_in_double() -> None:
    random = np.random.default_rng(3)
    a, b = random.integers(-9, 9, (2, 8, 4)).astype(float)
    c, d = random.integers(-9, 9, (8, 8)).astype(float), np.zeros((8, 8))
    text = (
        ".version 8.8\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 b, "
        ".param .u64 c, .param .u64 d)\n{\n.reg .b32 %r<4>; .reg .b64 %d<9>; .reg .f64 %f<9>;\n"
        "mov.u32 %r0, %tid.x; ld.param.u64 %d0, [a]; ld.param.u64 %d1, [b]; ld.param.u64 %d2, [c]; ld.param.u64 %d3, [d];\n"
        "mad.wide.u32 %d0, %r0, 8, %d0; ld.global.f64 %f0, [%d0]; mad.wide.u32 %d1, %r0, 8, %d1; ld.global.f64 %f1, [%d1];\n"
        "mad.wide.u32 %d2, %r0, 16, %d2; ld.global.v2.f64 {%f2, %f3}, [%d2];\n"
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%f4, %f5}, {%f0}, {%f1}, {%f2, %f3};\n"
        "mad.wide.u32 %d3, %r0, 16, %d3; st.global.v2.f64 [%d3], {%f4, %f5}; ret;\n}\n"
    )
    done = launch(text, [a, b, c, d], 1, LANES)
    assert not done.diagnostics
    assert d.tolist() == (a @ b.T + c).tolist()


#: Opcode, and how many registers A, B and C take.
IN_PLACE = [
    ("m16n8k16.row.col.f32.f16.f16.f32", 4, 2, 4),
    ("m16n8k16.row.col.f16.f16.f16.f16", 4, 2, 2),
    ("m16n8k32.row.col.s32.s8.u8.s32", 4, 2, 4),
    ("m8n8k4.row.col.f64.f64.f64.f64", 1, 1, 2),
]


@pytest.mark.parametrize(("op", "a", "b", "c"), IN_PLACE)
def test_results_may_take_the_registers_of_c_in_another_order(
    op: str, a: int, b: int, c: int
) -> None:
    """All operands are read before any result is written."""
    wide = "f64" in op
    data = np.random.default_rng(5).integers(0, 64, (a + b + c, LANES)).astype(np.uint32)
    out = np.zeros((2, c, LANES), np.uint64 if wide else np.uint32)
    size, kind = out.itemsize * LANES, "b64" if wide else "b32"
    names = [f"%x{i}" for i in range(a + b + c)]
    group = [
        "{" + ", ".join(n) + "}" for n in (names[:a], names[a : a + b], names[: a + b - 1 : -1])
    ]
    fresh, taken = [f"%y{i}" for i in range(c)], names[a + b :]
    text = (
        ".version 8.8\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 o)\n{\n"
        f".reg .{kind} %x<{a + b + c}>, %y<{c}>; .reg .b32 %r<3>; .reg .b64 %i, %o;\n"
        "mov.u32 %r0, %tid.x; ld.param.u64 %i, [a]; mad.wide.u32 %i, %r0, 4, %i; "
        f"ld.param.u64 %o, [o]; mad.wide.u32 %o, %r0, {out.itemsize}, %o;\n"
    )
    for i, name in enumerate(names):
        text += f"ld.global.b32 %r1, [%i+{4 * LANES * i}]; "
        text += f"cvt.rn.f64.u32 {name}, %r1;\n" if wide else f"mov.b32 {name}, %r1;\n"
    for results in (fresh, taken):
        text += (
            f"mma.sync.aligned.{op} {{{', '.join(results)}}}, {group[0]}, {group[1]}, {group[2]};\n"
        )
    for i, name in enumerate([*fresh, *taken]):
        text += f"st.global.{kind} [%o+{size * i}], {name};\n"
    done = launch(text + "ret;\n}\n", [data, out], 1, LANES)
    assert not done.diagnostics, done.diagnostics[0]
    assert out[0].any()
    assert out[1].tolist() == out[0].tolist()
