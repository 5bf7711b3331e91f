# ruff: noqa: E501  # A PTX statement stays on its line.
"""``wgmma`` of every type, major and swizzle against matrices laid out element by element."""

from __future__ import annotations

import itertools
import zlib
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.emulator import launch
from mla_var3.emulator.options import STRICT, Options
from mla_var3.emulator.program import Program
from mla_var3.emulator.units.products import _chains
from mla_var3.gpuless.ptx import parse
from tests.emulator.test_mma import BITS, codes, number, packed

GROUP, HALF = 128, 8192
#: Swizzle in bytes: how a descriptor spells it, and which bits of the address it turns over.
SWIZZLES = {0: (0, 0), 32: (3, 0x10), 64: (2, 0x30), 128: (1, 0x70)}


@dataclass(frozen=True)
class Tile:
    """How an operand lies in shared memory: which axis is contiguous, the swizzle, both offsets."""

    transposed: bool
    swizzle: int
    leading: int
    stride: int

    def word(self, start: int) -> int:
        """Its descriptor, for what lies at ``start``."""
        code = SWIZZLES[self.swizzle][0]
        return start >> 4 | self.leading >> 4 << 16 | self.stride >> 4 << 32 | code << 62

    def at(self, i: int, k: int, size: int) -> int:
        """Where an element lies (PTX ISA, "canonical layouts"), before the swizzle."""
        if not self.transposed:
            where = k * size
            if not self.swizzle:
                return i // 8 * self.stride + where // 16 * self.leading + i % 8 * 16 + where % 16
            return i // 8 * self.stride + i % 8 * self.swizzle + where
        wide = (self.swizzle or 16) // size
        inner = i % wide * size + k % 8 * (self.swizzle or 16)
        if not self.swizzle:
            return i // wide * self.stride + k // 8 * self.leading + inner
        return i // wide * self.leading + k // 8 * self.stride + inner

    def image(self, matrix: np.ndarray, size: int, offset: int) -> np.ndarray:
        """The bytes of 8 KiB of shared memory with a matrix [i, k] of codes."""
        out = np.zeros(HALF, np.uint8)
        for i, k in np.ndindex(matrix.shape):
            at = self.at(i, k, size)
            at ^= (at + offset) >> 3 & SWIZZLES[self.swizzle][1]
            assert at + size <= HALF
            out[at : at + size] = np.frombuffer(
                int(matrix[i, k]).to_bytes(size, "little"), np.uint8
            )
        return out


def kernel(
    op: str, n: int, count: int, a_words: tuple[int, ...], more: str, keep: bool, registers: bool
) -> str:
    """One warpgroup: fills shared memory, multiplies ``len(a_words)`` times, stores the sums."""
    accumulators = "{" + ", ".join(f"%c{i}" for i in range(count)) + "}"
    words, products = [], []  # Products of a line that follow each other at once are done as one.
    for step, (a, b) in enumerate(a_words):
        left, right = f"%w{2 * step}", f"%w{2 * step + 1}"
        words.append(
            f"mov.b64 {left}, {a}; add.u64 {left}, {left}, %w9; mov.b64 {right}, {b}; add.u64 {right}, {right}, %w9;"
        )
        left = "{%a0, %a1, %a2, %a3}" if registers else left
        products.append(
            f"wgmma.mma_async.sync.aligned.{op} {accumulators}, {left}, {right}, {'%p2' if step else '%p1'}{more};"
        )
    return f"""
.version 8.8\n.target sm_90a\n.address_size 64
.visible .entry k(.param .u64 x, .param .u64 c, .param .u64 a)
{{
.reg .pred %p<4>; .reg .b32 %r<9>; .reg .b32 %c<{count}>; .reg .b32 %a<4>; .reg .b64 %d<9>; .reg .b64 %w<10>;
.shared .align 1024 .b8 s[{2 * HALF}];
mov.u32 %r0, %tid.x; ld.param.u64 %d0, [x]; ld.param.u64 %d1, [c]; ld.param.u64 %d2, [a];
mov.u32 %r8, %ctaid.x; mad.wide.u32 %d0, %r8, {2 * HALF}, %d0; mad.wide.u32 %d1, %r8, {512 * count}, %d1;
mad.wide.u32 %d0, %r0, 16, %d0; mov.u32 %r1, s; mad.lo.u32 %r2, %r0, 16, %r1;
{"".join(f"ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%d0+{2048 * i}]; st.shared.v4.b32 [%r2+{2048 * i}], {{%r4, %r5, %r6, %r7}};" + chr(10) for i in range(8))}
mad.wide.u32 %d1, %r0, 4, %d1; mad.wide.u32 %d2, %r0, 4, %d2;
{"".join(f"ld.global.b32 %c{i}, [%d1+{512 * i}];" for i in range(count))}
{"".join(f"ld.global.b32 %a{i}, [%d2+{512 * i}];" for i in range(4))}
shr.u32 %r3, %r1, 4; cvt.u64.u32 %w9, %r3;
setp.eq.u32 %p1, %r0, {"%r0" if keep else "1000"}; setp.eq.u32 %p2, %r0, %r0;
{chr(10).join(words)}
fence.proxy.async.shared::cta; bar.sync 0;
wgmma.fence.sync.aligned;
.loc 1 7 0
{chr(10).join(products)}
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
{"".join(f"st.global.b32 [%d1+{512 * i}], %c{i};" for i in range(count))}
ret;
}}
.file 1 "k.py"
"""


def sums(matrix: np.ndarray, kind: str) -> np.ndarray:
    """Accumulator registers [registers, 128] of a matrix [64, n]."""
    n = matrix.shape[1]
    out = np.zeros((n // (4 if kind == "f16" else 2), GROUP), np.uint32)
    for r, thread in np.ndindex(out.shape):
        warp, lane = divmod(thread, 32)
        group, quad = divmod(lane, 4)
        if kind == "f16":
            row, column = 16 * warp + group + 8 * (r & 1), 8 * (r >> 1) + 2 * quad
            out[r, thread] = matrix[row, column : column + 2].astype(np.float16).view(np.uint32)[0]
        else:
            row, column = 16 * warp + group + 8 * (r >> 1 & 1), 8 * (r >> 2) + 2 * quad + (r & 1)
            one = np.array([matrix[row, column]], "i4" if kind == "s32" else "f4")
            out[r, thread] = one.view(np.uint32)[0]
    return out


def check(
    d: str, a: str, b: str, n: int, left: Tile | None, right: Tile, *, signs: tuple[int, int] = (1, 1),
    keep: bool = True, steps: int = 1, limit: bool = False, options: str = "", ctas: int = 1,
) -> None:  # fmt: skip
    """One sum of products, against numpy; A in registers where no tile is given."""
    size = BITS.get(a, 8) // 8
    k = 32 // size
    random = np.random.default_rng(zlib.crc32(f"{d}{a}{b}{n}{left}{right}{signs}{keep}".encode()))
    ca, cb = codes(a, (64, k * steps), random), codes(b, (n, k * steps), random)
    c = random.integers(-9, 9, (64, n)).astype(float)
    if limit:
        ca[:], cb[:], c[:] = 255, 127, 2**31 - 99
    x, y = (
        np.vectorize(lambda v, kind=kind: number(int(v), kind))(z) for z, kind in ((ca, a), (cb, b))
    )
    images = [np.zeros(HALF, np.uint8), right.image(cb, size, HALF)]
    words = [(0, right.word(HALF))] * steps
    if left is not None:
        images[0] = left.image(ca, size, 0)
        # Along k the next step begins 32 bytes on, or two groups of eight rows on.
        words = [
            (left.word(left.at(0, k * s, size)), right.word(HALF + right.at(0, k * s, size)))
            for s in range(steps)
        ]
    fragment = np.zeros((4, GROUP), np.uint32)
    if left is None:
        fragment = packed(ca.reshape(4, 16, k), a, k, True).transpose(1, 0, 2).reshape(4, GROUP)
    registers = sums(c, d)
    majors = ([left.transposed] if left else []) + [right.transposed]
    more = "" if d == "s32" else f", {signs[0]}, {signs[1]}"
    more += "".join(f", {int(m)}" for m in majors) if a in ("f16", "bf16") else ""
    op = f"m64n{n}k{k}{options}.{d}.{a}.{b}"
    text = kernel(op, n, len(registers), tuple(words), more, keep, left is None)
    others = np.zeros((ctas - 1, 2 * HALF), np.uint8)  # Of the CTAs before the one looked at.
    image = np.concatenate([others.reshape(-1), *images])
    every = np.concatenate([np.zeros_like(registers)] * (ctas - 1) + [registers])
    arrays = [image, every, np.ascontiguousarray(fragment)]
    done = launch(text, arrays, ctas, GROUP, cluster=ctas, options=Options(timeline=True))
    assert not done.diagnostics, done.diagnostics[0]
    assert done.trace is not None
    terms = n * k * steps * {"f16": 2, "bf16": 2, "tf32": 4}.get(b, 1) // 2
    for warp in range(4 * ctas):  # However many of the products are one.
        told = done.trace.steps[0, warp]
        assert sum(step.amount for step in told if step.kind == "product") == terms
    registers = every[-len(registers) :]
    wanted = signs[0] * signs[1] * (x @ y.T) + keep * c
    if limit:
        wanted = np.minimum(wanted, 2**31 - 1) if options else (wanted + 2**31) % 2**32 - 2**31
    assert registers.tolist() == sums(wanted, d).tolist()
    assert done.counts.tensor_flops == 2 * 64 * n * k * steps * ctas


def along_k(swizzle: int, rows: int) -> Tile:
    """Contiguous along k: 32 bytes of each row, or as many as the swizzle repeats."""
    return (
        Tile(False, swizzle, 8 * 16 * (rows // 8), 128)
        if not swizzle
        else Tile(False, swizzle, 0, 8 * swizzle)
    )


def along_rows(swizzle: int, rows: int) -> Tile:
    """Contiguous along m or n."""
    if not swizzle:
        return Tile(True, 0, 128, 512)
    return Tile(True, swizzle, 32 * swizzle, 8 * swizzle)


MAJORS = [
    (a(x, 64), b(y, 32))
    for (x, a), (y, b) in itertools.zip_longest(
        [(s, f) for s in SWIZZLES for f in (along_k, along_rows)],
        [(s, f) for s in (32, 0, 128, 64) for f in (along_rows, along_k)],
    )
]


@pytest.mark.parametrize(("left", "right"), MAJORS)
def test_majors_and_swizzles(left: Tile, right: Tile) -> None:
    check("f32", "f16", "f16", 64 if right.swizzle == 128 and right.transposed else 32, left, right)


@pytest.mark.parametrize("registers", [False, True])
@pytest.mark.parametrize(
    ("d", "a", "b", "n"),
    [
        ("f16", "f16", "f16", 24), ("f32", "bf16", "bf16", 8), ("f32", "tf32", "tf32", 16),
        ("f16", "e4m3", "e5m2", 16), ("f32", "e5m2", "e4m3", 40), ("s32", "u8", "s8", 24),
        ("s32", "s8", "u8", 8),
    ],
)  # fmt: skip
def test_types(d: str, a: str, b: str, n: int, registers: bool) -> None:
    check(d, a, b, n, None if registers else along_k(128, 64), along_k(64, n))
    check(d, a, b, n, None if registers else along_k(0, 64), along_k(32, n), keep=False)


@pytest.mark.parametrize("signs", [(-1, 1), (1, -1), (-1, -1)])
@pytest.mark.parametrize("d", ["f32", "f16"])
def test_signs(d: str, signs: tuple[int, int]) -> None:
    check(d, "f16", "f16", 16, along_k(128, 64), along_k(128, 16), signs=signs)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(
    ("left", "right"),
    [(along_k(128, 64), along_k(128, 16)), (along_rows(64, 64), along_rows(32, 16))],
)
def test_a_chain_along_k(left: Tile, right: Tile, keep: bool) -> None:
    check("f32", "bf16", "bf16", 16, left, right, steps=2, keep=keep)


@pytest.mark.parametrize("options", ["", ".satfinite"])
def test_integer_sums_wrap_unless_they_saturate(options: str) -> None:
    check("s32", "u8", "s8", 8, along_k(128, 64), along_k(128, 8), limit=True, options=options)


@pytest.mark.parametrize(
    ("tile", "start", "kinds"),
    [
        (Tile(False, 128, 0, 1024), 0, set()),
        (Tile(False, 128, 0, 4096), 0, {"out-of-bounds"}),
        (Tile(False, 128, 0, 1024), 128, {"strict descriptor"}),
        (Tile(False, 64, 0, 512), 256, {"strict descriptor"}),
        (Tile(False, 64, 0, 512), 512, set()),
        (Tile(False, 128, 0, 1024), 32, set()),
        (Tile(False, 0, 1024, 128), 16384 - 1024, {"out-of-bounds"}),
    ],
)
def test_descriptors_that_lead_elsewhere(tile: Tile, start: int, kinds: set[str]) -> None:
    right = along_k(128, 8)
    text = kernel(
        "m64n8k16.f32.f16.f16",
        8,
        4,
        ((tile.word(start), right.word(HALF)),),
        ", 1, 1, 0, 0",
        True,
        False,
    )
    arrays = [
        np.zeros(2 * HALF, np.uint8),
        np.zeros((4, GROUP), np.uint32),
        np.zeros((4, GROUP), np.uint32),
    ]
    found = {d.kind for d in launch(text, arrays, 1, GROUP).diagnostics}
    assert found == {kind for kind in kinds if "strict" not in kind}
    strict = launch(text, arrays, 1, GROUP, options=Options(model=STRICT))
    assert {d.kind for d in strict.diagnostics} == {kind.removeprefix("strict ") for kind in kinds}


@pytest.mark.parametrize("registers", [False, True])
@pytest.mark.parametrize(("left", "right"), [(0, 128), (128, 0)])
def test_each_cta_of_a_cluster_multiplies_its_own(left: int, right: int, registers: bool) -> None:
    first = None if registers else along_k(left, 64)
    check("f32", "f16", "f16", 16, first, along_k(right, 16), steps=1, ctas=2)
    check(
        "f32", "f16", "f16", 16, first, along_rows(right, 16) if right else along_k(0, 16), ctas=2
    )


PRODUCT = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%c0, %c1, %c2, %c3}, %w0, %w1, %p1, 1, 1, 0, 0;"


@pytest.mark.parametrize(
    ("between", "joined"),
    [
        ("", True), ("add.u32 %r1, %r1, 1;", True), ("mov.b64 %w2, %w1;", True), ("mov.b64 %w1, %w2;", False), ("ld.shared.u32 %r1, [%r2];", False),
        ("st.shared.u32 [%r2], %r1;", False), ("mov.b32 %r1, %c3;", False), ("mov.b32 %c0, %r1;", False),
        ("mov.b64 %w0, %w2;", False), ("add.u32 %r1, %r1, 1; mov.b32 %r1, %c1;", False), ("L: add.u32 %r1, %r1, 1;", False),
        (".loc 1 6 0", False), ("wgmma.commit_group.sync.aligned;", False),
    ],
)  # fmt: skip
def test_products_that_follow_each_other_are_one(between: str, joined: bool) -> None:
    text = f"""
.version 8.8\n.target sm_90a\n.address_size 64\n.visible .entry k() {{
.reg .pred %p<2>; .reg .b32 %r<4>; .reg .b32 %c<4>; .reg .b64 %w<4>;
.loc 1 5 0
{PRODUCT}
{between}
{PRODUCT}
bra.uni L2; {"" if "L:" in between else "L:"} L2: ret;
}}
.file 1 "k.py"
"""
    parsed = Program(parse(text)).kernel
    first, second = (i.pc for i in parsed.instructions if i.op.startswith("wgmma.mma"))
    stops = frozenset(i.pc for i in parsed.instructions if i.op.startswith("wgmma.commit"))
    assert _chains(parsed, stops) == (({first}, {second}) if joined else (set(), set()))
    other = text[::-1].replace(PRODUCT[::-1], PRODUCT.replace("%c0", "%c1", 1)[::-1], 1)[::-1]
    assert _chains(Program(parse(other)).kernel, stops) == (set(), set())


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_bytes_of_operands_may_not_change_while_they_are_read(data: st.DataObject) -> None:
    """A thread writes one byte behind the products; the wait comes later."""
    left = data.draw(st.sampled_from([None, along_k(128, 64), along_k(0, 64), along_rows(64, 64)]))
    right = data.draw(st.sampled_from([along_k(64, 16), along_k(0, 16), along_rows(32, 16)]))
    read: dict[int, int] = {}  # Bytes of A by the warp whose quarter they are.
    inside: set[int] = set()
    for tile, rows, first in ((left, 64, 0), (right, 16, HALF)):
        for i, k in np.ndindex(rows, 16) if tile else ():
            at = tile.at(i, k, 2)
            at = first + (at ^ (at + first) >> 3 & SWIZZLES[tile.swizzle][1])
            inside |= {at, at + 1}
            if not first and not tile.transposed:
                read |= dict.fromkeys((at, at + 1), i // 16)
    edges = sorted(b + d for b in inside for d in (-1, 0, 1) if 0 <= b + d < 2 * HALF)
    at, thread = data.draw(st.sampled_from(edges)), data.draw(st.integers(0, 127))
    word = left.word(0) if left else 0
    majors = ([left.transposed] if left else []) + [right.transposed]
    text = kernel(
        "m64n16k16.f32.f16.f16", 16, 8, ((word, right.word(HALF)),),
        ", 1, 1" + "".join(f", {int(m)}" for m in majors), False, left is None,
    ).replace(
        "wgmma.commit_group.sync.aligned;",
        f"wgmma.commit_group.sync.aligned; setp.eq.u32 %p3, %r0, {thread}; @%p3 st.shared.u8 [%r1+{at}], %r0;",
    )  # fmt: skip
    arrays = [
        np.zeros(2 * HALF, np.uint8),
        np.zeros((8, GROUP), np.uint32),
        np.zeros((4, GROUP), np.uint32),
    ]
    found = launch(text, arrays, 1, GROUP).diagnostics
    assert [d.kind for d in found] == ["race"] * (at in inside)
    if at in inside:
        assert f"shared {0x400 + at:#x} is still read by wgmma of warp" in found[0].message
        assert (
            f"thread {thread} (warp {thread // 32}, lane {thread % 32}) writes it"
            in found[0].message
        )
        # A warp's own products it knows of no sooner.
        assert found[0].other_who == f"wgmma of warp {read.get(at, 0)}"


@pytest.mark.parametrize(("register", "needs"), [("%a2", True), ("%c1", True), ("%r5", False)])
def test_registers_of_a_product_are_written_before_its_fence(register: str, needs: bool) -> None:
    """Both those of A and the sums."""
    right = along_k(128, 8)
    text = kernel(
        "m64n8k16.f32.f16.f16", 8, 4, ((0, right.word(HALF)),), ", 1, 1, 0", True, True
    ).replace(
        "wgmma.fence.sync.aligned;",
        f"wgmma.fence.sync.aligned; bar.sync 0; add.u32 {register}, %r5, %r6;",
    )
    arrays = [
        np.zeros(2 * HALF, np.uint8),
        np.zeros((4, GROUP), np.uint32),
        np.zeros((4, GROUP), np.uint32),
    ]
    found = [d.kind for d in launch(text, arrays, 1, GROUP).diagnostics]
    assert found == (["missing-wgmma-fence"] if needs else [])


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3), (3, 2, 1, 0)])
def test_an_accumulator_may_lie_in_registers_of_any_order(order: tuple[int, ...]) -> None:
    from types import SimpleNamespace

    from mla_var3.emulator.units.layouts import Wgmma
    from mla_var3.emulator.units.wgmma import WarpgroupProducts

    rows = np.zeros((8, GROUP), np.float32)
    machine = SimpleNamespace(rf=rows, r=rows.view(np.uint32), rs=rows.view(np.int32))
    those = SimpleNamespace(machine=machine)
    made = Wgmma(8, 16, "f32", "f16", "f16", np.array(order), None, False, False, False)
    product = np.arange(64 * 8, dtype=np.float32).reshape(64, 8)
    for keep in (False, True):
        WarpgroupProducts._store(those, made, product, keep, slice(0, GROUP))
    # Row 16 warp + 8 half + group, column 2 quad + pair, of thread 32 warp + 4 group + quad.
    for register, row in enumerate(order):
        half, pair = divmod(register, 2)
        for thread in range(GROUP):
            warp, lane = divmod(thread, 32)
            i, j = 16 * warp + 8 * half + lane // 4, 2 * (lane % 4) + pair
            assert rows[row, thread] == 2 * product[i, j]
