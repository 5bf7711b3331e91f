# ruff: noqa: E501  # A PTX statement stays on its line.
"""tcgen05: tensor memory and its products have the right values, and every missing wait is found."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.emulator import launch
from mla_var3.emulator.formats import decode
from mla_var3.emulator.options import STRICT, Options
from mla_var3.emulator.units.layouts import values
from mla_var3.emulator.units.tcgen05 import descriptors, products
from mla_var3.emulator.units.tensormap import tiled
from mla_var3.errors import EmulatorError
from tests.emulator.events import Snippet, wait
from tests.emulator.tcgen05 import (
    ACCUMULATOR,
    ALLOC,
    COPIED,
    DEALLOC,
    FENCES,
    LOADED,
    STORED,
    TAIL,
    Product,
    instruction,
    matrix,
)
from tests.emulator.test_bulk import placed_maps
from tests.emulator.test_events import lines, raced

DEFAULT = [Options(), Options(seed=1), Options(seed=2)]
default = pytest.mark.parametrize("options", DEFAULT, ids=["lowest", "seed 1", "seed 2"])
strict = Options(model=STRICT)


def codes(kind: str, rows: int, seed: int) -> np.ndarray:
    """Random operands of 32 bytes per row whose products are exact."""
    random = np.random.default_rng(seed)
    if kind in ("s8", "u8"):
        return random.integers(0, 256, (rows, 32)).astype(np.uint8)
    small = random.integers(-4, 5, (rows, 32)).astype(np.float32)
    match kind:
        case "f16":
            return small[:, :16].astype(np.float16).view(np.uint16)
        case "bf16":
            return (small[:, :16].copy().view(np.uint32) >> 16).astype(np.uint16)
        case "tf32":
            return small[:, :8].copy().view(np.uint32)
    every = np.arange({"e2m1": 16, "e2m3": 64, "e3m2": 64}.get(kind, 256), dtype=np.uint8)
    plain = values(every, kind)
    exact = every[np.isin(plain, np.arange(-8, 9) / 2)]
    return random.choice(exact, (rows, 32))


def words(rows: np.ndarray, m: int, sums: str) -> np.ndarray:
    """An accumulator [m, n] as the words of 128 lanes; lanes that it leaves alone are 0."""
    out = np.zeros((128, rows.shape[1]), np.uint32)
    if sums == "s32":
        put = rows.astype(np.int64).astype(np.uint32)
    elif sums == "f16":
        put = rows.astype(np.float16).view(np.uint16).astype(np.uint32)
    else:
        put = rows.astype(np.float32).view(np.uint32)
    lanes = np.arange(m) if m == 128 else np.arange(64) // 16 * 32 + np.arange(64) % 16
    out[lanes] = put
    return out


KINDS = [
    ("f16", "f16", "f16", "f32"),
    ("f16", "bf16", "f16", "f32"),
    ("f16", "f16", "f16", "f16"),
    ("tf32", "tf32", "tf32", "f32"),
    ("f8f6f4", "e4m3", "e5m2", "f32"),
    ("f8f6f4", "e5m2", "e4m3", "f16"),
    ("f8f6f4", "e2m3", "e3m2", "f32"),
    ("f8f6f4", "e2m1", "e4m3", "f32"),
    ("i8", "s8", "u8", "s32"),
]


@pytest.mark.parametrize(("m", "n"), [(128, 16), (64, 8), (64, 128), (128, 128)])
@pytest.mark.parametrize(("kind", "a", "b", "sums"), KINDS)
def test_a_product_in_tensor_memory(m, n, kind, a, b, sums):
    left, right = codes(a, m, 1), codes(b, n, 2)
    want = values(left, a).astype(np.float64) @ values(right, b).astype(np.float64).T
    product = Product(m, n, kind, instruction(m, n, a, b, sums))
    got, done = product.run(left, right)
    lanes = slice(None) if m == 128 else np.arange(128) % 32 < 16
    assert (got[lanes] == words(want, m, sums)[lanes]).all()
    # The kernel loads all lanes, and half of them have nothing where a product has 64 rows.
    assert {d.kind for d in done.diagnostics} == (set() if m == 128 else {"uninitialized-read"})
    assert done.counts.matrix_flops.sum() == 2 * m * n * left.shape[1]


def test_a_from_tensor_memory():
    left, right = codes("f16", 128, 3), codes("f16", 32, 4)
    want = values(left, "f16") @ values(right, "f16").T
    product = Product(128, 32, "f16", instruction(128, 32, "f16", "f16"), in_tensor=True)
    got, done = product.run(left, right)
    assert (got == words(want, 128, "f32")).all()
    assert not done.diagnostics


@pytest.mark.parametrize("zeros", ["", "none"])
@pytest.mark.parametrize("collector", [".collector::b0::discard", ".collector::b3::fill"])
@pytest.mark.parametrize(("m", "n"), [(32, 64), (32, 128), (64, 64), (64, 128), (128, 64)])
def test_a_product_that_keeps_b_in_place(m: int, n: int, collector: str, zeros: str) -> None:
    """All lanes are in use: where there are fewer rows, the columns are cut, leftmost first."""
    left, right = codes("e4m3", m, 1), codes("e5m2", n, 2)
    want = values(left, "e4m3").astype(np.float32) @ values(right, "e5m2").astype(np.float32).T
    word = instruction(m, n, "e4m3", "e5m2")
    product = Product(m, n, "f8f6f4", word, collector=collector, zeros=zeros)
    got, done = product.run(left, right)
    wide = n * m // 128
    folded = np.concatenate([want[:, at : at + wide] for at in range(0, n, wide)])
    assert (got.view(np.float32) == folded).all()
    assert not done.diagnostics, done.diagnostics[0]
    assert done.counts.matrix_flops.sum() == 2 * m * n * 32


def test_a_from_tensor_memory_where_b_stays_in_place() -> None:
    left, right = codes("f16", 128, 3), codes("f16", 64, 4)
    word = instruction(128, 64, "f16", "f16")
    product = Product(128, 64, "f16", word, True, collector=".collector::b1::lastuse")
    got, done = product.run(left, right)
    assert (got.view(np.float32) == values(left, "f16") @ values(right, "f16").T).all()
    assert not done.diagnostics


@pytest.mark.parametrize(
    ("m", "n", "more", "said"),
    [
        (64, 64, {"in_tensor": True}, "64 rows with A in tensor memory"),
        (64, 64, {"zeros": "some"}, "columns of zeros"),
        (64, 32, {}, "no tcgen05.mma.ws of 64 x 32"),
        (96, 64, {}, "no tcgen05.mma.ws of 96 x 64"),
    ],
)
def test_what_is_not_there_where_b_stays_in_place(m: int, n: int, more: dict, said: str) -> None:
    word = instruction(m, n, "f16", "f16")
    product = Product(m, n, "f16", word, collector=".collector::b0::use", **more)
    with pytest.raises(EmulatorError, match=said):
        product.run(codes("f16", m, 1), codes("f16", n, 1))


@pytest.mark.parametrize("lane", [0, 16])
def test_sixty_four_rows_of_a_lie_in_either_half_of_a_warps_lanes(lane: int) -> None:
    left, right = codes("f16", 128, 3), codes("f16", 8, 4)
    at = lane << 16
    product = Product(64, 8, "f16", instruction(64, 8, "f16", "f16"), True, moved=(at, at))
    got, _ = product.run(left, right)
    here = np.arange(128) % 32 // 16 == lane // 16
    want = values(left, "f16")[here] @ values(right, "f16").T
    assert (got.view(np.float32)[here] == want).all()


@pytest.mark.parametrize(("past", "said"), [(0, ""), (1, "column 1025")])
@pytest.mark.parametrize("name", ["an accumulator", "a matrix"])
def test_an_operand_past_the_columns_is_found_and_far_past_them_refused(
    name: str, past: int, said: str
) -> None:
    """Both take 8 columns; as many lie behind the last as there are."""
    moved = (1016 + past, 0) if name == "an accumulator" else (0, 1016 - 256 + past)
    product = Product(128, 8, "f16", instruction(128, 8, "f16", "f16"), True, moved=moved)
    left, right = codes("f16", 128, 3), codes("f16", 8, 4)
    if said:
        with pytest.raises(EmulatorError, match=f"{name}.* reaches {said}"):
            product.run(left, right)
        return
    _, done = product.run(left, right)
    assert "out-of-bounds" in {d.kind for d in done.diagnostics}


@pytest.mark.parametrize("m", [128, 256])
@pytest.mark.parametrize("options", [*DEFAULT[:2], strict], ids=["lowest", "seed", "strict"])
def test_a_pair_of_ctas_has_halves_of_both_operands(m, options):
    n = 64
    left, right = codes("f16", m, 7), codes("f16", n, 8)
    want = values(left, "f16") @ values(right, "f16").T
    product = Product(m, n, "f16", instruction(m, n, "f16", "f16"), pair=True)
    got, done = product.run(left, right, options)
    if m == 128:  # 64 rows per CTA: lanes above have the right half of the columns.
        want = np.concatenate([want[r : r + 64, c : c + 32] for r in (0, 64) for c in (0, 32)])
    assert (got.view(np.float32) == want).all()
    assert not done.diagnostics, done.diagnostics[0]


@pytest.mark.parametrize("options", [*DEFAULT, strict])
def test_a_commit_into_a_cta_that_may_have_ended(options):
    _, done = TAIL.run(options=options)
    assert not done.diagnostics, done.diagnostics[0]
    _, done = TAIL.run({"tail": ""}, options)
    assert [d.kind for d in done.diagnostics] == ["cluster-exit"]
    assert done.diagnostics[0].at.line == TAIL.line("commit")


def test_strict_asks_for_a_wait_at_each_barrier_of_a_commit():
    """A second commit that is waited for says in practice that the first has arrived."""
    first = TAIL.steps["commit"]
    edits = {
        "commit": first + " " + first.replace("[%r3]", "[%r3+8]"),
        "tail": TAIL.steps["tail"].replace("%r3", "%r3+8"),
    }
    assert not TAIL.run(edits)[1].diagnostics
    _, done = TAIL.run(edits, strict)
    assert [d.kind for d in done.diagnostics] == ["cluster-exit"]
    assert done.diagnostics[0].at.line == TAIL.line("commit")
    message = done.diagnostics[0].message
    assert "nobody has waited for that when the CTA ends" in message
    place = re.search(r"at the mbarrier at shared (0x[0-9a-f]+) of CTA 0 of the cluster", message)
    assert place
    assert int(place[1], 16) >= 0x400
    assert int(place[1], 16) % 8 == 0


@pytest.mark.parametrize(
    ("kind", "element", "scaled", "scale", "block"),
    [
        ("mxf8f6f4", "e4m3", ".block_scale", "ue8m0", 32),
        ("mxf8f6f4", "e5m2", ".block_scale.block32", "ue8m0", 32),
        ("mxf4", "e2m1", ".block_scale.block32", "ue8m0", 32),
        ("mxf4nvf4", "e2m1", ".block_scale.block16", "ue4m3", 16),
    ],
)
def test_block_scales(kind, element, scaled, scale, block):
    random, packed = np.random.default_rng(9), kind != "mxf8f6f4"
    left, right = (random.integers(0, 256, (rows, 32)).astype(np.uint8) for rows in (128, 128))
    if not packed:
        left, right = codes(element, 128, 1), codes(element, 128, 2)
    one = 127 if scale == "ue8m0" else 0x38
    factors = [one + random.integers(-2, 3, (128, 4)).astype(np.uint8) for _ in range(2)]
    code = {"e5m2": 1, "e2m1": 1}.get(element, 0)
    word = code << 7 | code << 10 | (scale == "ue8m0") << 23 | 128 // 8 << 17 | 128 // 16 << 24
    got, done = Product(128, 128, kind, word, scaled=scaled).run(
        left, right, scales=(factors[0], factors[1])
    )

    def whole(raw: np.ndarray, factor: np.ndarray) -> np.ndarray:
        plain = np.stack([raw & 15, raw >> 4], -1).reshape(len(raw), -1) if packed else raw
        return (
            values(plain, element) * np.repeat(decode(factor, scale), block, 1)[:, : plain.shape[1]]
        )

    want = whole(left, factors[0]) @ whole(right, factors[1]).T
    assert np.allclose(got.view(np.float32), want, rtol=1e-5)
    assert not done.diagnostics, done.diagnostics[0]


@pytest.mark.parametrize(("high", "low"), [(254, 0), (3, 250)])
def test_block_scales_far_from_one(high: int, low: int) -> None:
    """Neither operand times its own factor is a float32, and their product is."""
    left, right = codes("e4m3", 128, 1), codes("e4m3", 128, 2)
    word = 1 << 23 | 128 // 8 << 17 | 128 // 16 << 24
    factors = [np.full((128, 4), x, np.uint8) for x in (high, low)]
    got, done = Product(128, 128, "mxf8f6f4", word, scaled=".block_scale").run(
        left, right, scales=(factors[0], factors[1])
    )
    want = values(left, "e4m3") @ values(right, "e4m3").T * 2.0 ** (high + low - 254)
    assert np.allclose(got.view(np.float32), want, rtol=1e-5)
    assert not done.diagnostics, done.diagnostics[0]


def test_negation_and_saturation():
    left, right = codes("f16", 128, 5), codes("f16", 8, 6)
    want = -(values(left, "f16") @ values(right, "f16").T)
    got, _ = Product(128, 8, "f16", instruction(128, 8, "f16", "f16", more=1 << 14)).run(
        left, right
    )
    assert (got.view(np.float32) == want).all()


@pytest.mark.parametrize(
    ("word", "said"),
    [
        (instruction(128, 16, "f16", "f16", more=4), "sparse"),
        (instruction(96, 16, "f16", "f16"), "no tcgen05.mma of 96 x 16 by 1 CTAs"),
        (instruction(128, 16, "f16", "f16", more=5 << 7), "kind::f16 has no operand format 5"),
    ],
)
def test_what_no_descriptor_means_is_refused(word, said):
    with pytest.raises(EmulatorError, match=said):
        Product(128, 16, "f16", word).run(codes("f16", 128, 1), codes("f16", 16, 1))


MASK = (0x80000001, 0, 0xFFFF0000, 2)


@pytest.mark.parametrize(
    ("mask", "pair"), [(MASK, False), ((0,) * 4, False), (MASK[::-1] + MASK, True)]
)
def test_lanes_of_a_mask_are_left_as_they_are(mask: tuple[int, ...], pair: bool) -> None:
    m = 256 if pair else 128
    left, right = codes("f16", m, 7), codes("f16", 16, 8)
    want = (values(left, "f16") @ values(right, "f16").T).astype(np.float32).view(np.uint32)
    word = instruction(m, 16, "f16", "f16")
    got, done = Product(m, 16, "f16", word, pair=pair, mask=mask).run(left, right)
    off = np.array([mask[lane // 32] >> lane % 32 & 1 for lane in range(m)], bool)
    assert ((got == want) == ~off[:, None]).all()
    assert not done.diagnostics, done.diagnostics[0]


@pytest.mark.parametrize("saturates", [False, True])
def test_sums_of_integers_end_at_the_limits_where_asked_to(saturates: bool) -> None:
    word = instruction(128, 16, "s8", "s8", "s32", more=8 * saturates)
    form = descriptors.Product.of(word, descriptors.Kind("i8", False, 0))
    old = np.array([2**31 - 5, -(2**31) + 5, 7], np.int32)
    out = np.array([9.0, -9.0, -9.0])
    keep = products._sum(out, old.view(np.uint32), form, True, 0).view(np.int32).tolist()
    assert keep == ([2**31 - 1, -(2**31), -2] if saturates else [4 - 2**31, 2**31 - 4, -2])
    alone = np.array([2.0**31 - 1, -(2.0**31), 2.0**31 - 2])
    made = products._sum(alone, old.view(np.uint32), form, False, 0).view(np.int32).tolist()
    assert made == alone.tolist()


# Copies ----------------------------------------------------------------------------------------
COPIES = [
    ("128x256b", (0, 1, 2, 3), 2),
    ("128x128b", (0, 1, 2, 3), 1),
    ("64x128b.warpx2::02_13", (0, 1, 0, 1), 1),
    ("64x128b.warpx2::01_23", (0, 0, 1, 1), 1),
    ("32x128b.warpx4", (0, 0, 0, 0), 1),
]


@pytest.mark.parametrize("options", [Options(), strict], ids=["default", "strict"])
@pytest.mark.parametrize(("shape", "quarters", "pieces"), COPIES)
def test_rows_are_copied_to_lanes(options, shape, quarters, pieces):
    load = COPIED.steps["load"]
    if pieces == 1:
        load = load.replace(".x8", ".x4").replace("%a3, %a4, %a5, %a6, %a7", "%a3")
        load += " ".join(f"mov.b32 %a{i}, 0;" for i in range(4, 8))
    edits = {"copy": COPIED.steps["copy"].replace("128x256b", shape), "load": load}
    (source, out), done = COPIED.run(edits, options)
    want = np.zeros((128, 8), np.uint32)
    for lane in range(128):
        row = quarters[lane // 32] * 32 + lane % 32
        for piece in range(pieces):
            at = row // 8 * 256 + piece * 128 + row % 8 * 16
            want[lane, 4 * piece : 4 * piece + 4] = source[at // 4 : at // 4 + 4]
    assert (out.reshape(128, 8) == want).all()
    assert not done.diagnostics, done.diagnostics[0]


@pytest.mark.parametrize(
    ("edits", "kind", "pair"),
    [
        ({"commit": "@!%p1 mbarrier.arrive.shared.b64 _, [%r3];"}, "race", ("load", "copy")),
        ({"proxy": ""}, "missing-proxy-fence", ("copy", "fill")),
        ({"where": COPIED.steps["where"].replace("%r20, 8", "%r20, 60")}, "out-of-bounds", None),
    ],
    ids=["commit", "proxy fence", "columns"],
)
def test_misuse_of_a_copy_is_found(edits, kind, pair):
    found = raced(COPIED, edits, Options(), kind)
    assert pair in found if pair else found


@pytest.mark.parametrize("at", ["0x10000", "2040"])
def test_a_copy_to_single_lanes_or_far_past_the_columns_is_refused(at):
    copy = f"add.u32 %r24, %r24, {at}; " + COPIED.steps["copy"]
    with pytest.raises(EmulatorError, match=r"a tcgen05\.cp to tensor memory 0x"):
        COPIED.run({"copy": copy})


@pytest.mark.parametrize("at", [504, 520])
def test_a_copy_past_the_columns_is_found(at):
    copy = f"add.u32 %r24, %r24, {at}; " + COPIED.steps["copy"]
    _, done = COPIED.run({"copy": copy})
    found = [d for d in done.diagnostics if d.kind == "out-of-bounds"]
    assert found[0].at.line == COPIED.line("copy")
    assert "not all are allocated" in found[0].message


def test_a_copy_may_end_at_the_last_column():
    edits = {
        name: COPIED.steps[name].replace(", 64;", ", 512;").replace("%r20, 8", "%r20, 504")
        for name in ("alloc", "where", "dealloc")
    }
    (source, out), done = COPIED.run(edits)
    assert out[:4].tolist() == source[:4].tolist()
    assert not done.diagnostics


@pytest.mark.parametrize("swizzle", range(4))
def test_a_box_is_read_with_the_swizzle_that_brought_it(swizzle: int) -> None:
    """A tensor map brings the 4096 bytes that the copy reads by a descriptor without a swizzle."""
    out = np.zeros(1024, np.uint32)
    box = 8 << swizzle, 256 >> swizzle
    t = tiled(out.ctypes.data, box, (2, 2 * box[0]), box, "f16", swizzle)
    fill = (
        "@%p1 bra FILLED; mov.u32 %r4, 0; mbarrier.arrive.expect_tx.shared.b64 _, [%r3+8], 4096;\n"
        "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r2], [%rd0, {%r4, %r4}], [%r3+8];\n"
        "FILLED: mul.wide.u32 %rd5, %r1, 32;\n" + wait("%r3+8").replace("W:", "V:").replace("bra W", "bra V").replace("D:", "E:").replace("bra D", "bra E")
    )  # fmt: skip
    done = launch(COPIED.text({"fill": fill}), [placed_maps(t), out], 1, 128)
    found = [d for d in done.diagnostics if d.kind == "descriptor"]
    assert len(found) == (swizzle != 0)
    assert all(f"the {16 << swizzle}-byte swizzle has written" in d.message for d in found)


# Loads and stores ------------------------------------------------------------------------------
#: Layouts of a load's registers in bits: threads, then values, each as extents and strides; from
#: CUTLASS's atoms of tensor memory, which the emulator's patterns do not read.
ATOMS = {
    "32x32b": (((32,), (1 << 21,)), ((32,), (1,)), 1),
    "16x64b": (((2, 2, 8), (512, 32, 64)), ((32,), (1,)), 1),
    "16x128b": (((4, 8), (32, 128)), ((32, 2), (1, 1024)), 2),
    "16x256b": (((4, 8), (64, 256)), ((64, 2), (1, 2048)), 4),
}


def _offset(i: int, extents: tuple[int, ...], strides: tuple[int, ...]) -> int:
    at = 0
    for n, s in zip(extents, strides, strict=True):
        at += i % n * s
        i //= n
    return at


def place(shape: str, thread: int, register: int) -> tuple[int, int]:
    """Row and column of a register by its atom; later repetitions follow in the columns."""
    threads, registers, each = ATOMS[shape]
    repeat, register = divmod(register, each)
    bit = _offset(thread, *threads) + _offset(32 * register, *registers)
    if shape == "32x32b":
        return bit >> 21, repeat
    width = int(shape[3:-1])
    return bit // width, bit % width // 32 + repeat * width // 32


def transfer(shape: str, count: int) -> str:
    """A kernel that stores registers to tensor memory by a shape, and loads lanes by another."""

    def vector(stem: str, n: int) -> str:
        return "{" + ", ".join(f"%{stem}{i}" for i in range(n)) + "}"

    move = "\n".join(f"ld.global.b32 %v{i}, [%rd3+{4 * i}];" for i in range(count))
    clear = "\n".join(f"mov.b32 %w{i}, 0;" for i in range(64))
    back = "\n".join(f"st.global.b32 [%rd4+{4 * i}], %w{i};" for i in range(64))
    again = "\n".join(f"st.global.b32 [%rd3+{4 * i}], %v{i};" for i in range(count))
    return f"""
.version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b) {{
.reg .b32 %v<{count}>, %w<64>, %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>;
.shared .align 16 .b8 hold[16];
mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; setp.ne.u32 %p1, %r2, 0;
@!%p1 {ALLOC} [hold], 64;
bar.sync 0;
ld.shared.b32 %r3, [hold]; shl.b32 %r4, %r2, 21; add.u32 %r3, %r3, %r4;
{clear}
tcgen05.st.sync.aligned.32x32b.x64.b32 [%r3], {vector("w", 64)};
ld.param.u64 %rd1, [a]; mul.wide.u32 %rd2, %r1, {4 * count}; add.u64 %rd3, %rd1, %rd2;
ld.param.u64 %rd1, [b]; mul.wide.u32 %rd2, %r1, 256; add.u64 %rd4, %rd1, %rd2;
{move}
tcgen05.wait::st.sync.aligned;
tcgen05.st.sync.aligned.{shape}.b32 [%r3], {vector("v", count)};
tcgen05.wait::st.sync.aligned;
tcgen05.ld.sync.aligned.32x32b.x64.b32 {vector("w", 64)}, [%r3];
tcgen05.ld.sync.aligned.{shape}.b32 {vector("v", count)}, [%r3];
tcgen05.wait::ld.sync.aligned;
{back}
{again}
bar.sync 0;
@!%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, 64;
ret;
}}
"""


@settings(max_examples=8, deadline=None)
@given(st.sampled_from(sorted(ATOMS)), st.sampled_from([1, 2, 4, 8]))
def test_registers_lie_where_the_atoms_say(shape, times):
    count = ATOMS[shape][2] * times
    a = np.arange(128 * count, dtype=np.uint32).reshape(128, count) + 1
    given_, b = a.copy(), np.zeros((128, 64), np.uint32)
    done = launch(transfer(f"{shape}.x{times}", count), [a, b], block=128)
    want = np.zeros((128, 64), np.uint32)
    for t in range(128):
        for i in range(count):
            row, column = place(shape, t % 32, i)
            want[t // 32 * 32 + row, column] = given_[t, i]
    assert (b == want).all()
    assert (a == given_).all()
    assert not done.diagnostics


# Order ------------------------------------------------------------------------------------------
def unfenced(options: Options) -> dict[str, str]:
    """What is left out of the kernel where the model does not ask for it."""
    return {} if options.model is STRICT else dict.fromkeys(FENCES, "")


@pytest.mark.parametrize("options", [*DEFAULT, strict, Options(model=STRICT, seed=3)])
def test_the_kernel_is_right_and_clean(options):
    (out,), done = ACCUMULATOR.run(unfenced(options), options)
    assert not done.diagnostics, done.diagnostics[0]
    # Ones in 16 columns: 16 along k twice, and once; words are added up as integers.
    twice, once = (16 * int(np.float32(x).view(np.uint32)) % 2**32 for x in (32, 16))
    assert (out[:128] == twice).all()
    assert (out[128:] == once).all()


@default
@pytest.mark.parametrize(
    ("edits", "pairs"),
    [
        ({"commit": "mbarrier.arrive.shared.b64 _, [%r3];"}, {("load", "more"), ("again", "load")}),
        ({"stored": ""}, {("again", "store")}),
        (
            {"commit_again": "@!%p1 mbarrier.arrive.shared.b64 _, [%r3+8];"},
            {("load_again", "again")},
        ),
    ],
    ids=["no commit", "no wait::st", "no second commit"],
)
def test_a_missing_wait_is_found_at_both_lines(options, edits, pairs):
    found = raced(ACCUMULATOR, unfenced(options) | edits, options)
    assert found & pairs, found


@default
def test_a_load_is_over_when_its_registers_are_used(options):
    plain = unfenced(options)
    assert not raced(ACCUMULATOR, plain | {"loaded": ""}, options)
    late = plain | {"loaded": "", "use": "", "use_late": ACCUMULATOR.steps["use"]}
    assert raced(ACCUMULATOR, late, options) == {("again", "load")}
    assert not raced(ACCUMULATOR, late | {"loaded": ACCUMULATOR.steps["loaded"]}, options)


def test_strict_asks_for_wait_ld():
    assert raced(ACCUMULATOR, {"loaded": ""}, strict) == {("again", "load")}


@pytest.mark.parametrize(
    ("fence", "pair"),
    [
        ("after", ("load", "more")),
        ("taken", ("again", "load")),
        ("after_again", ("load_again", "again")),
        ("before", ("again", "load")),
    ],
)
def test_strict_asks_for_fences(fence, pair):
    assert pair in raced(ACCUMULATOR, {fence: ""}, strict)


def kinds(edits: dict[str, str], options: Options) -> set[str]:
    _, done = ACCUMULATOR.run(edits, options)
    return {d.kind for d in done.diagnostics}


@pytest.mark.parametrize("options", [*DEFAULT[:2], strict])
@pytest.mark.parametrize(
    ("edits", "kind"),
    [
        ({"proxy": ""}, "missing-proxy-fence"),
        ({"commit": ""}, "deadlock"),
        ({"dealloc": ""}, "tensor-memory-left"),
        ({"dealloc": ACCUMULATOR.steps["dealloc"].replace("64", "32")}, "tensor-memory-allocation"),
        ({"first": ""}, "uninitialized-read"),
        ({"alloc": ACCUMULATOR.steps["alloc"].replace("64", "32")}, "out-of-bounds"),
        ({"load": "xor.b32 %r22, %r22, 0x200000; " + ACCUMULATOR.steps["load"]}, "tensor-memory-lanes"),
        ({"dealloc": "", "use_again": ACCUMULATOR.steps["dealloc"] + ACCUMULATOR.steps["use_again"]}, "race"),
    ],
    ids=["proxy fence", "commit", "dealloc", "dealloc size", "first sum", "columns", "lanes", "early dealloc"],
)  # fmt: skip
def test_misuse_is_found(options, edits, kind):
    assert kind in kinds(unfenced(options) | edits, options)


def test_nothing_is_allocated_once_the_right_is_given_up():
    relinquish = ACCUMULATOR.steps["relinquish"]
    edits = unfenced(Options()) | {"alloc": relinquish + ACCUMULATOR.steps["alloc"]}
    assert "tensor-memory-allocation" in kinds(edits, Options())


def first_with(word: int) -> tuple[set[str], list[str]]:
    """Kinds and texts of what is said of a product whose A has this descriptor."""
    first = f"mov.u64 %rd20, {word}; " + ACCUMULATOR.steps["first"].replace("%rd10", "%rd20", 1)
    _, done = ACCUMULATOR.run({"first": first}, strict)
    return {d.kind for d in done.diagnostics}, [str(d) for d in done.diagnostics]


def test_a_descriptor_past_shared_memory_is_found():
    found, said = first_with(matrix(0x3000))
    assert "out-of-bounds" in found
    assert any(
        "reaches shared 0x3000 to 0x4000, and shared memory spans 0x400 to" in s for s in said
    )


@pytest.mark.parametrize(
    ("code", "swizzle", "start"), [(2, 128, 0x580), (4, 64, 0x480), (6, 32, 0x480)]
)
def test_a_swizzled_tile_off_its_pattern_is_found_under_the_strict_model(code, swizzle, start):
    found, said = first_with(matrix(start) | code << 61)
    assert "descriptor" in found
    wanted = f"with the {swizzle}-byte swizzle starts at shared {start:#x}, off its {8 * swizzle}-byte pattern"
    assert any(wanted in s and f"aligned to {8 * swizzle} bytes" in s for s in said)


def test_alloc_waits_for_columns():
    # Warp 1 asks for more than is left, and gets it when warp 0 gives back.
    alloc = ACCUMULATOR.steps["alloc"]
    second = (
        f"setp.ne.u32 %p6, %r6, 1; @!%p6 {ALLOC} [%r3+40], 512; @!%p6 ld.shared.b32 %r30, [%r3+40]; "
        "@!%p6 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r30, 512;"
    )
    early = {"relinquish": "", "end": second, "alloc": alloc}
    swapped = {
        **unfenced(Options()),
        **early,
        "end": "",
        "dealloc": ACCUMULATOR.steps["dealloc"] + second,
    }
    assert not kinds(swapped, Options())
    held = {**unfenced(Options()), **early, "dealloc": "", "end": second}
    _, done = ACCUMULATOR.run(held)
    stuck = [d for d in done.diagnostics if d.kind == "deadlock"]
    assert stuck
    assert "448 of 512 columns of tensor memory free" in str(stuck[0])
    assert lines(done, "deadlock")


COLUMNS_LEFT = Snippet(
    {
        "init": "setp.ne.u32 %p2, %r1, 32; mov.u32 %r3, bars; shr.u32 %r6, %r1, 5; setp.ne.u32 %p1, %r6, 0;",
        "first": f"@!%p1 {ALLOC} [%r3], 64; bar.warp.sync -1; @!%p1 ld.shared.u32 %r20, [%r3];",
        "free": f"@!%p1 {DEALLOC} %r20, 64;",
        "all": f"@!%p1 {ALLOC} [%r3+8], 512; bar.warp.sync -1; @!%p1 ld.shared.u32 %r21, [%r3+8];",
        "give": "@!%p1 st.global.u32 [%rd0], %r21;",
        "end": f"@!%p1 {DEALLOC} %r21, 512;",
    },
    words=(1,),
)  # fmt: skip


def test_columns_that_are_given_back_are_allocated_again():
    (out,), done = COLUMNS_LEFT.run()
    assert not done.diagnostics
    assert out[0] == 0
    _, done = COLUMNS_LEFT.run({"free": ""})
    assert "deadlock" in {d.kind for d in done.diagnostics}


@pytest.mark.parametrize(
    ("at", "kinds"), [(48, set()), (49, {"out-of-bounds"}), (64, {"out-of-bounds"})]
)
def test_loads_stay_in_what_is_allocated(at, kinds):
    load = f"add.u32 %r22, %r22, {at}; " + ACCUMULATOR.steps["load"]
    _, done = ACCUMULATOR.run(unfenced(Options()) | {"load": load})
    assert {d.kind for d in done.diagnostics} - {"uninitialized-read"} == kinds


def test_a_commit_tells_what_its_thread_knew():
    """A word that the thread stores before the commit is read by all behind the wait."""
    store = "st.shared.u32 [%r3+40], %r7; " + ACCUMULATOR.steps["first"]
    read = ACCUMULATOR.steps["after"] + " ld.shared.u32 %r31, [%r3+40];"
    edits = unfenced(Options()) | {"first": store, "after": read}
    assert not ACCUMULATOR.run(edits)[1].diagnostics
    late = ACCUMULATOR.steps["commit"] + " st.shared.u32 [%r3+40], %r7;"
    assert raced(
        ACCUMULATOR, edits | {"first": ACCUMULATOR.steps["first"], "commit": late}, Options()
    )


MEET = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
PAIRED = Snippet(
    {
        "who": "mov.u32 %r3, bars; mov.u32 %r7, %cluster_ctarank; setp.ne.u32 %p1, %r7, FIRST; mad.lo.u32 %r8, %r7, 32, %r1; mul.wide.u32 %rd3, %r8, 4; add.u64 %rd4, %rd0, %rd3;",
        "early": "@!%p1 tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r3], 64;",
        "meet": MEET,
        "late": "@%p1 tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r3], 64;",
        "second": "tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r3+8], 32;",
        "use": "ld.shared.u32 %r20, [%r3]; ld.shared.u32 %r21, [%r3+8]; tcgen05.st.sync.aligned.32x32b.x1.b32 [%r20], {%r8}; tcgen05.st.sync.aligned.32x32b.x1.b32 [%r21], {%r21};"
        f" {STORED} tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r22}}, [%r20]; tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r23}}, [%r21]; {LOADED} add.u32 %r22, %r22, %r23; st.global.u32 [%rd4], %r22;",
        "over": MEET,
        "end": "tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r20, 64; tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r21, 32;",
    },
    words=(64,),
    block=32,
    grid=2,
    cluster=2,
)  # fmt: skip


@pytest.mark.parametrize("first", [0, 1])
def test_whichever_of_a_pair_asks_first_allocates_for_both(first):
    who = PAIRED.steps["who"].replace("FIRST", str(first))
    (out,), done = PAIRED.run({"who": who})
    assert not done.diagnostics, done.diagnostics[0]
    assert out.tolist() == [64 + t for t in range(64)]


@pytest.mark.parametrize(("written", "said"), [(8, "column 8"), (1, "column 1"), (16, "")])
def test_the_first_column_that_nothing_wrote_is_named(written, said):
    values = ", ".join(["%r1"] * written)
    store = f"tcgen05.st.sync.aligned.32x32b.x{written}.b32 [%r22], {{{values}}}; {STORED}"
    first = "bra.uni ISSUED;"
    edits = unfenced(Options()) | {
        "first": first,
        "load": f"{store} {ACCUMULATOR.steps['load']}",
        "wait": "",
    }
    edits |= dict.fromkeys(
        (
            "more",
            "commit",
            "after",
            "again",
            "commit_again",
            "wait_again",
            "load_again",
            "loaded_again",
            "use_again",
        ),
        "",
    )
    _, done = ACCUMULATOR.run(edits)
    found = [d.message for d in done.diagnostics if d.kind == "uninitialized-read"]
    assert all(said in text and "lanes 0 to 15" in text for text in found), found
    assert bool(found) is bool(said)


@pytest.mark.parametrize("lane", [0, 16])
def test_sixty_four_rows_begin_at_either_half_of_a_warps_lanes(lane):
    first = ACCUMULATOR.steps["first"].replace("[%r20]", "[%r31]")
    word = instruction(64, 16, "f16", "f16")
    edits = unfenced(Options()) | {
        "more": "",
        "first": f"add.u32 %r31, %r20, {lane << 16}; mov.b32 %r25, {word}; {first}",
    }
    edits |= dict.fromkeys(
        ("again", "commit_again", "wait_again", "load_again", "loaded_again", "use_again"), ""
    )
    (out,), _ = ACCUMULATOR.run(edits)
    once = 16 * int(np.float32(16).view(np.uint32)) % 2**32
    here = np.arange(128) % 32 // 16 == lane // 16
    assert ((out[:128] == once) == here).all()


@pytest.mark.parametrize(("rows", "lane"), [(128, 16), (64, 8), (64, 32)])
def test_no_matrix_begins_at_another_lane(rows, lane):
    first = ACCUMULATOR.steps["first"].replace("[%r20]", "[%r31]")
    word = instruction(rows, 16, "f16", "f16")
    edits = {"first": f"add.u32 %r31, %r20, {lane << 16}; mov.b32 %r25, {word}; {first}"}
    with pytest.raises(
        EmulatorError, match=f"{rows} rows in tensor memory cannot begin at lane {lane}"
    ):
        ACCUMULATOR.run(edits)


@pytest.mark.parametrize("lane", [0, 16])
def test_sixty_four_rows_are_written_at_their_lanes_alone(lane: int) -> None:
    """Of each warp's lanes the other half has nothing: a load of it alone says so."""
    first = ACCUMULATOR.steps["first"].replace("[%r20]", "[%r31]")
    load = ACCUMULATOR.steps["load"].replace("32x32b", "16x64b").replace(".x16", ".x8")
    load = load.replace(", %a8, %a9, %a10, %a11, %a12, %a13, %a14, %a15", "")
    empty = " ".join(f"mov.b32 %a{i}, 0;" for i in range(8, 16))
    edits = unfenced(Options()) | {
        "more": "",
        "first": f"add.u32 %r31, %r20, {lane << 16}; mov.b32 %r25, {instruction(64, 16, 'f16', 'f16')}; {first}",
    }
    edits |= dict.fromkeys(
        ("again", "commit_again", "wait_again", "load_again", "loaded_again", "use_again"), ""
    )
    for other in (0, 16):
        at = f"add.u32 %r22, %r22, {other << 16}; "
        _, done = ACCUMULATOR.run(edits | {"load": at + load + empty})
        said = [d.message for d in done.diagnostics if d.kind == "uninitialized-read"]
        wrong = [f"lanes {32 * w + other} to {32 * w + other + 15}" for w in range(4)]
        assert len(said) == (1 if lane != other else 0), said
        assert all(any(w in text for w in wrong) for text in said)


def test_a_second_allocation_may_not_end_while_it_is_read() -> None:
    """Columns 32 to 63 are given back before the load of them is over."""
    kernel = Snippet(
        {
            "init": "mov.u32 %r3, bars;",
            "first": f"{ALLOC} [%r3], 32;",
            "second": f"{ALLOC} [%r3+8], 32;",
            "where": "ld.shared.u32 %r20, [%r3]; ld.shared.u32 %r21, [%r3+8];",
            "store": f"tcgen05.st.sync.aligned.32x32b.x1.b32 [%r21], {{%r1}}; {STORED}",
            "load": "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r22}, [%r21];",
            "loaded": LOADED,
            "free": f"{DEALLOC} %r21, 32;",
            "end": f"{DEALLOC} %r20, 32;",
        },
        words=(1,),
        block=32,
    )
    assert kernel.run()[1].diagnostics == []
    assert raced(kernel, {"loaded": ""}, Options()) == {("free", "load")}
    assert raced(kernel, {"store": kernel.steps["store"].replace(STORED, "")}, strict) >= {
        ("load", "store")
    }


#: Each warp stores to the lanes that are so far from its own.
#: Without the one assumption; fences are not what these tests are about.
lanes_only = Options(model=replace(Options().model, lanes_by_warp=False))

LANES_OFF = Snippet(
    {
        "init": "mov.u32 %r3, bars; shr.u32 %r6, %r1, 5; setp.ne.u32 %p1, %r6, 0;",
        "alloc": f"@!%p1 {ALLOC} [%r3], 32; bar.sync 0;",
        "where": "ld.shared.u32 %r20, [%r3]; shl.b32 %r4, %r6, 5; add.u32 %r4, %r4, OFF; and.b32 %r4, %r4, 127; shl.b32 %r4, %r4, 16; add.u32 %r21, %r20, %r4;",
        "store": "",
        "end": f"{STORED} bar.sync 0; @!%p1 {DEALLOC} %r20, 32;",
    },
    words=(1,),
    block=128,
)


@pytest.mark.parametrize(
    ("options", "kinds"), [(Options(), set()), (lanes_only, {"tensor-memory-lanes"})]
)
def test_lane_0_names_a_warps_own_quarter_but_under_the_strict_model(options, kinds) -> None:
    """Each warp's numbers come back: in one quarter the last warp's would."""
    where = "ld.shared.u32 %r20, [%r3]; mov.u32 %r21, %r20;"
    edits = {
        "where": where,
        "store": f"tcgen05.st.sync.aligned.32x32b.x1.b32 [%r21], {{%r1}}; {STORED} bar.sync 0;"
        f"tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r22}}, [%r21]; {LOADED}"
        "mul.wide.u32 %rd3, %r1, 4; add.u64 %rd4, %rd0, %rd3; st.global.u32 [%rd4], %r22;",
    }
    (out,), done = replace(LANES_OFF, words=(128,)).run(edits, options)
    assert out.tolist() == list(range(128))
    assert {d.kind for d in done.diagnostics} == kinds


@pytest.mark.parametrize("off", [-32, -16, 0, 8, 16, 32, 64])
@pytest.mark.parametrize(("shape", "fine"), [("32x32b", (0,)), ("16x64b", (0, 16))])
def test_a_warp_reaches_the_lanes_of_its_quarter(
    shape: str, fine: tuple[int, ...], off: int
) -> None:
    edits = {
        "where": LANES_OFF.steps["where"].replace("OFF", str(off)),
        "store": f"tcgen05.st.sync.aligned.{shape}.x1.b32 [%r21], {{%r1}};",
    }
    _, done = LANES_OFF.run(edits, lanes_only)
    found = done.diagnostics
    assert {d.kind for d in found} == (set() if off in fine else {"tensor-memory-lanes"})
    assert sum(d.times for d in found) == (0 if off in fine else 4)
    if found:
        lane = off % 128
        said = f"tcgen05.st by warp 0 at lane {lane}, and a warp of this number reaches lanes 0 to 31 only"
        assert found[0].message == said


def test_columns_hold_nothing_when_they_are_allocated_again() -> None:
    kernel = Snippet(
        {
            "init": "mov.u32 %r3, bars;",
            "first": f"{ALLOC} [%r3], 32; ld.shared.u32 %r20, [%r3];",
            "store": f"tcgen05.st.sync.aligned.32x32b.x1.b32 [%r20], {{%r1}}; {STORED}",
            "free": f"{DEALLOC} %r20, 32;",
            "second": f"{ALLOC} [%r3], 32; ld.shared.u32 %r20, [%r3];",
            "again": f"tcgen05.st.sync.aligned.32x32b.x1.b32 [%r20], {{%r1}}; {STORED}",
            "load": f"tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r22}}, [%r20]; {LOADED}",
            "end": f"{DEALLOC} %r20, 32;",
        },
        words=(1,),
        block=32,
    )
    assert kernel.run()[1].diagnostics == []
    (found,) = kernel.run({"again": ""})[1].diagnostics
    assert (found.kind, found.at.line) == ("uninitialized-read", kernel.line("load"))


def test_where_ctas_work_in_pairs_an_address_names_its_cta() -> None:
    kernel = Snippet(
        {
            "where": "mov.u32 %r3, bars; mov.u32 %r7, %cluster_ctarank; mad.lo.u32 %r8, %r7, 32, %r1; mul.wide.u32 %rd3, %r8, 8; add.u64 %rd4, %rd0, %rd3; xor.b32 %r9, %r7, 1;",
            "alloc": "tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r3], 32; ld.shared.u32 %r20, [%r3];",
            "ranks": "getctarank.shared::cluster.u32 %r10, %r3; mapa.shared::cluster.u32 %r11, %r3, %r9; getctarank.shared::cluster.u32 %r12, %r11;",
            "give": f"st.global.v2.u32 [%rd4], {{%r10, %r12}}; {MEET}",
            "end": "tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r20, 32;",
        },
        words=(128,),
        block=32,
        grid=2,
        cluster=2,
    )
    (out,), done = kernel.run()
    assert done.diagnostics == []
    assert out.reshape(2, 32, 2).tolist() == [[[0, 1]] * 32, [[1, 0]] * 32]


@pytest.mark.parametrize(("past", "kinds"), [(0, set()), (16, {"out-of-bounds"})])
def test_a_matrix_may_end_where_shared_memory_does(past: int, kinds: set[str]) -> None:
    """The first product's A ends with the barriers, which come last."""
    shared = ACCUMULATOR.shared.replace("a[4096]", "before[16384]; .shared .align 128 .b8 a[4096]")
    shared = shared.replace("bars[64]", "bars[128]")
    kernel = Snippet(ACCUMULATOR.steps, words=(256,), shared=shared, block=128)
    at = 0x400 + 16384 + 4096 + 128 - 4096 + past
    first = f"mov.u64 %rd20, {matrix(at)}; " + ACCUMULATOR.steps["first"].replace(
        "%rd10", "%rd20", 1
    )
    _, done = kernel.run(unfenced(Options()) | {"first": first})
    assert {d.kind for d in done.diagnostics} & {"out-of-bounds"} == kinds


@pytest.mark.parametrize("mask", [1, 2, 3])
def test_a_commit_arrives_at_the_ctas_that_its_mask_names(mask: int):
    """Whoever is not named waits for ever."""
    edits = {"init": TAIL.steps["init"].replace("%h1, 3;", f"%h1, {mask};")}
    assert edits["init"] != TAIL.steps["init"] or mask == 3
    _, done = TAIL.run(edits)
    waits = {d.at.line for d in done.diagnostics if d.kind == "deadlock"}
    left = {TAIL.line(name) for name, cta in (("wait", 0), ("tail", 1)) if not mask >> cta & 1}
    assert left <= waits
    assert bool(waits) is (mask != 3)
