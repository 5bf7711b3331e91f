# ruff: noqa: E501  # A PTX statement stays on its line.
"""Six small kernels in PTX, each with its reference, for tests and for seeded bugs.

A line of a body may end in ``//@mark``; the mark names it in mutants and in what they expect.
Line numbers in reports are those of the body.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from mla_var3.emulator.clusters import Launch
from mla_var3.emulator.launcher import launch
from mla_var3.emulator.options import Options
from mla_var3.emulator.units.tensormap import tiled

FILE = "kernel.py"


@dataclass
class Case:
    """Inputs of a run, what the output should be, and where it is."""

    arguments: list
    expected: np.ndarray
    out: np.ndarray
    keep: list = field(default_factory=list)


@dataclass(frozen=True)
class Kernel:
    """A kernel with its launch."""

    name: str
    target: str
    parameters: str
    registers: str
    shared: str
    body: str
    case: Callable[[], Case]
    block: int
    grid: int = 1
    cluster: int = 1

    def line(self, mark: str) -> int:
        """Line of a mark."""
        for n, line in enumerate(self.body.splitlines(), 1):
            if re.search(rf"//@{mark}\b", line):
                return n
        raise KeyError(mark)

    def ptx(self, edits: dict[str, str] | None = None) -> str:
        """The PTX, with the lines of some marks replaced (empty: left out)."""
        edits = edits or {}
        lines = []
        used = set()
        for n, line in enumerate(self.body.splitlines(), 1):
            mark = re.search(r"//@(\w+)", line)
            text = line
            if mark and mark[1] in edits:
                text = edits[mark[1]]
                used.add(mark[1])
            lines += [f".loc 1 {n} 0", text]
        assert used == set(edits), set(edits) - used
        body = "\n".join(lines)
        return (
            f".version 8.0\n.target {self.target}\n.address_size 64\n"
            f".visible .entry {self.name}({self.parameters})\n{{\n{self.registers}\n{self.shared}\n{body}\n}}\n"
            f'.file 1 "{FILE}"\n'
        )

    def run(
        self, edits: dict[str, str] | None = None, options: Options | None = None
    ) -> tuple[bool, Launch]:
        """Whether the values are right, and what else a run gave."""
        case = self.case()
        done = launch(
            self.ptx(edits),
            case.arguments,
            self.grid,
            self.block,
            cluster=self.cluster,
            unwritten=[case.out],
            options=options,
            regions=case.keep,
        )
        scale = np.abs(case.expected).max() + 1e-30
        close = np.abs(case.out.astype(float) - case.expected).max() / scale < 2e-3
        return bool(close), done


def _random(*shape: int, kind: str = "f4", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(kind)


REGISTERS = (
    ".reg .pred %p<12>; .reg .b16 %h<8>; .reg .b32 %r<64>; .reg .f32 %f<64>; .reg .b64 %rd<32>;"
)

# Tiles turned around through shared memory ------------------------------------------------------
MIRROR_BODY = """\
ld.param.u64 %rd1, [src]; ld.param.u64 %rd2, [dst]; ld.param.u32 %r1, [n];
mov.u32 %r2, %tid.x; //@thread
mov.u32 %r3, buffer;
shl.b32 %r4, %r2, 2; add.u32 %r5, %r3, %r4;
sub.u32 %r6, 127, %r2; shl.b32 %r6, %r6, 2; add.u32 %r6, %r3, %r6; //@mirror
mov.u32 %r7, 0;
LOOP:
mad.lo.u32 %r8, %r7, 128, %r2; mul.wide.u32 %rd3, %r8, 4; //@index
add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3;
ld.global.f32 %f1, [%rd4]; //@fetch
st.shared.f32 [%r5], %f1; //@fill
bar.sync 0; //@ready
ld.shared.f32 %f2, [%r6]; //@take
st.global.f32 [%rd5], %f2; //@store
bar.sync 0; //@free
add.u32 %r7, %r7, 1; setp.lt.u32 %p1, %r7, %r1; //@count
@%p1 bra LOOP; //@loop
ret; //@end
"""


def _mirror() -> Case:
    source, out = _random(3, 128), np.zeros((3, 128), "f4")
    return Case([source, out, 3], source[:, ::-1], out)


MIRROR = Kernel(
    "mirror",
    "sm_80",
    ".param .u64 src, .param .u64 dst, .param .u32 n",
    REGISTERS,
    ".shared .align 16 .b8 buffer[512];",
    MIRROR_BODY,
    _mirror,
    128,
)


# cp.async, ldmatrix, mma.sync -------------------------------------------------------------------
def _stage(step: str, buffer: str, mark: str) -> str:
    """Copy k-step ``step`` of A and B to ``buffer``."""
    return f"""\
mul.lo.u32 %r20, {buffer}, 1280; add.u32 %r20, %r20, %r3; shl.b32 %r21, {step}, 5; cvt.u64.u32 %rd5, %r21;
add.u32 %r22, %r20, %r10; add.u64 %rd6, %rd3, %rd5; //@{mark}_where
cp.async.cg.shared.global [%r22], [%rd6], 16; //@{mark}_a
add.u32 %r23, %r20, %r11; add.u64 %rd7, %rd4, %rd5;
@%p1 cp.async.cg.shared.global [%r23+1024], [%rd7], 16; //@{mark}_b"""


PRODUCT_BODY = f"""\
ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd8, [d];
mov.u32 %r2, %tid.x; mov.u32 %r3, buffer; and.b32 %r4, %r2, 31; shr.u32 %r5, %r2, 5;
shr.u32 %r6, %r2, 1; and.b32 %r7, %r2, 1; setp.lt.u32 %p1, %r2, 16;
shl.b32 %r8, %r6, 7; shl.b32 %r9, %r7, 4; add.u32 %r8, %r8, %r9; cvt.u64.u32 %rd9, %r8;
add.u64 %rd3, %rd1, %rd9; add.u64 %rd4, %rd2, %rd9;
shl.b32 %r10, %r2, 4; shl.b32 %r11, %r2, 4;
mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, 0f00000000; mov.f32 %f4, 0f00000000;
mov.u32 %r12, 0; mov.u32 %r13, 0;
{_stage("%r12", "%r13", "first")}
cp.async.commit_group; //@first_commit
LOOP:
add.u32 %r14, %r12, 1; and.b32 %r15, %r14, 1; setp.ge.u32 %p2, %r14, 4; //@parity
@%p2 bra SKIP;
{_stage("%r14", "%r15", "next")}
SKIP:
cp.async.commit_group; //@commit
cp.async.wait_group 1; //@wait
bar.sync 0; //@ready
and.b32 %r16, %r12, 1; mul.lo.u32 %r17, %r16, 1280; add.u32 %r17, %r17, %r3; //@buffer
and.b32 %r18, %r4, 15; shl.b32 %r19, %r5, 4; add.u32 %r18, %r18, %r19; shl.b32 %r18, %r18, 5;
shr.u32 %r24, %r4, 4; shl.b32 %r24, %r24, 4; add.u32 %r18, %r18, %r24; add.u32 %r18, %r18, %r17;
ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r30, %r31, %r32, %r33}}, [%r18]; //@load_a
and.b32 %r25, %r4, 7; shl.b32 %r25, %r25, 5; shr.u32 %r26, %r4, 3; and.b32 %r26, %r26, 1; shl.b32 %r26, %r26, 4;
add.u32 %r25, %r25, %r26; add.u32 %r25, %r25, %r17;
ldmatrix.sync.aligned.m8n8.x2.shared.b16 {{%r34, %r35}}, [%r25+1024]; //@load_b
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%f1, %f2, %f3, %f4}}, {{%r30, %r31, %r32, %r33}}, {{%r34, %r35}}, {{%f1, %f2, %f3, %f4}}; //@product
bar.sync 0; //@free
mov.u32 %r12, %r14; setp.lt.u32 %p3, %r12, 4; //@count
@%p3 bra LOOP;
shr.u32 %r40, %r4, 2; shl.b32 %r41, %r5, 4; add.u32 %r40, %r40, %r41; and.b32 %r42, %r4, 3; shl.b32 %r42, %r42, 3;
shl.b32 %r43, %r40, 5; add.u32 %r43, %r43, %r42; cvt.u64.u32 %rd10, %r43; add.u64 %rd11, %rd8, %rd10;
st.global.v2.f32 [%rd11], {{%f1, %f2}}; //@store_low
st.global.v2.f32 [%rd11+256], {{%f3, %f4}}; //@store_high
ret;
"""


def _product() -> Case:
    a, b = _random(32, 64, kind="f2"), _random(8, 64, kind="f2", seed=1)
    out = np.zeros((32, 8), "f4")
    return Case([a, b, out], a.astype("f4") @ b.astype("f4").T, out)


PRODUCT = Kernel(
    "product",
    "sm_80",
    ".param .u64 a, .param .u64 b, .param .u64 d",
    REGISTERS,
    ".shared .align 128 .b8 buffer[2560];",
    PRODUCT_BODY,
    _product,
    64,
)

# A ring of TMA loads, producer and consumer warps -----------------------------------------------
WAIT = """{{
.reg .pred P;
W: mbarrier.try_wait.parity.shared.b64 P, [{barrier}], {parity};
@P bra D;
bra W;
D:
}}"""


def wait(barrier: str, parity: str) -> str:
    """A loop that waits for a phase, on one line."""
    return " ".join(WAIT.format(barrier=barrier, parity=parity).split("\n"))


RING_BODY = f"""\
ld.param.u64 %rd2, [dst]; mov.b64 %rd1, map; ld.param.u32 %r1, [n];
mov.u32 %r2, %tid.x; mov.u32 %r3, ring; mov.u32 %r4, bars; shr.u32 %r5, %r2, 5; and.b32 %r6, %r2, 31;
setp.ne.u32 %p1, %r2, 0;
@%p1 bra READY;
mbarrier.init.shared.b64 [%r4], 1; //@init_full0
mbarrier.init.shared.b64 [%r4+8], 1; //@init_full1
mbarrier.init.shared.b64 [%r4+16], 4; //@init_empty0
mbarrier.init.shared.b64 [%r4+24], 4; //@init_empty1
fence.mbarrier_init.release.cluster; //@init_fence
READY:
bar.sync 0; //@init_barrier
mov.u32 %r7, 0; mov.f32 %f1, 0f00000000; setp.ne.u32 %p2, %r5, 4;
@%p2 bra CONSUMER;
setp.ne.u32 %p3, %r6, 0; //@elect
@%p3 bra END;
PRODUCE:
and.b32 %r8, %r7, 1; shr.u32 %r9, %r7, 1; and.b32 %r9, %r9, 1; shl.b32 %r10, %r8, 3; add.u32 %r10, %r10, %r4;
xor.b32 %r11, %r9, 1; //@empty_parity
add.u32 %r15, %r10, 16; {wait("%r15", "%r11")} //@wait_empty
mbarrier.arrive.expect_tx.shared.b64 _, [%r10], 512; //@expect
shl.b32 %r12, %r8, 9; add.u32 %r12, %r12, %r3; mov.u32 %r13, 0; //@slot
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r12], [%rd1, {{%r13, %r7}}], [%r10]; //@load
add.u32 %r7, %r7, 1; setp.lt.u32 %p4, %r7, %r1; //@produced
@%p4 bra PRODUCE;
bra END;
CONSUMER:
and.b32 %r8, %r7, 1; shr.u32 %r9, %r7, 1; and.b32 %r9, %r9, 1; shl.b32 %r10, %r8, 3; add.u32 %r10, %r10, %r4; //@full_parity
{wait("%r10", "%r9")} //@wait_full
shl.b32 %r12, %r8, 9; add.u32 %r12, %r12, %r3; shl.b32 %r13, %r2, 2; add.u32 %r12, %r12, %r13; //@slot2
ld.shared.f32 %f2, [%r12]; add.f32 %f1, %f1, %f2; //@take
bar.warp.sync -1;
setp.eq.u32 %p5, %r6, 0; //@elect2
@%p5 mbarrier.arrive.shared.b64 _, [%r10+16]; //@release
add.u32 %r7, %r7, 1; setp.lt.u32 %p4, %r7, %r1; //@consumed
@%p4 bra CONSUMER;
mul.wide.u32 %rd3, %r2, 4; add.u64 %rd4, %rd2, %rd3;
st.global.f32 [%rd4], %f1; //@store
END:
ret;
"""


def _ring() -> Case:
    source, out = _random(6, 128), np.zeros(128, "f4")
    descriptor = tiled(source.ctypes.data, (128, 6), (4, 512), (128, 1), "f32").encode()
    from mla_var3.emulator.launcher import region_of

    return Case([descriptor, out, 6], source.sum(0), out, [region_of(source, "source")])


RING = Kernel(
    "ring",
    "sm_90a",
    ".param .align 64 .b8 map[128], .param .u64 dst, .param .u32 n",
    REGISTERS,
    ".shared .align 128 .b8 ring[1024]; .shared .align 8 .b8 bars[32];",
    RING_BODY,
    _ring,
    160,
)

# wgmma from a ring of TMA loads, stored by TMA --------------------------------------------------
ACC = ", ".join(f"%f{i}" for i in range(32))


def _wgmma(k: int) -> str:
    return (
        f"add.u64 %rd12, %rd10, {2 * k}; add.u64 %rd13, %rd11, {2 * k}; "
        f"wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{ACC}}}, %rd12, %rd13, %p6, 1, 1, 0, 0; "
        "setp.eq.u32 %p6, %r6, %r6;"
    )


_OUT = " ".join(f"cvt.rn.f16x2.f32 %r{30 + i}, %f{2 * i + 1}, %f{2 * i};" for i in range(16))
# Register 4 j + 2 h + e: row g + 8 h, column 8 j + 2 q + e.
_PUT = " ".join(
    f"st.shared.b32 [%r22+{16 * j + 1024 * h}], %r{30 + 2 * j + h};"
    for j in range(8)
    for h in range(2)
)
GEMM_BODY = f"""\
mov.b64 %rd1, map_a; mov.b64 %rd2, map_b; mov.b64 %rd3, map_d; mov.u32 %r3, tiles; mov.u32 %r4, bars;
mov.u32 %r2, %tid.x; shr.u32 %r5, %r2, 5; and.b32 %r6, %r2, 31; setp.ne.u32 %p1, %r2, 0;
@%p1 bra READY;
mbarrier.init.shared.b64 [%r4], 1; mbarrier.init.shared.b64 [%r4+8], 1; //@init_full
mbarrier.init.shared.b64 [%r4+16], 4; mbarrier.init.shared.b64 [%r4+24], 4; //@init_empty
fence.mbarrier_init.release.cluster; //@init_fence
READY:
bar.sync 0; //@init_barrier
mov.u32 %r7, 0; setp.ne.u32 %p2, %r5, 4;
@%p2 bra CONSUMER;
setp.ne.u32 %p3, %r6, 0;
@%p3 bra END;
PRODUCE:
and.b32 %r8, %r7, 1; shr.u32 %r9, %r7, 1; and.b32 %r9, %r9, 1; shl.b32 %r10, %r8, 3; add.u32 %r10, %r10, %r4; xor.b32 %r11, %r9, 1;
add.u32 %r15, %r10, 16; {wait("%r15", "%r11")} //@wait_empty
mbarrier.arrive.expect_tx.shared.b64 _, [%r10], 16384; //@expect
shl.b32 %r12, %r8, 14; add.u32 %r12, %r12, %r3; shl.b32 %r13, %r7, 6; mov.u32 %r14, 0; add.u32 %r16, %r12, 8192; //@slot
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r12], [%rd1, {{%r13, %r14}}], [%r10]; //@load_a
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r16], [%rd2, {{%r13, %r14}}], [%r10]; //@load_b
add.u32 %r7, %r7, 1; setp.lt.u32 %p4, %r7, 4;
@%p4 bra PRODUCE;
bra END;
CONSUMER:
setp.ne.u32 %p6, %r2, %r2;
MAIN:
and.b32 %r8, %r7, 1; shr.u32 %r9, %r7, 1; and.b32 %r9, %r9, 1; shl.b32 %r10, %r8, 3; add.u32 %r10, %r10, %r4;
{wait("%r10", "%r9")} //@wait_full
shl.b32 %r12, %r8, 14; add.u32 %r12, %r12, %r3; shr.u32 %r12, %r12, 4; cvt.u64.u32 %rd10, %r12;
or.b64 %rd10, %rd10, 0x4000004000010000; add.u64 %rd11, %rd10, 512; //@descriptor
wgmma.fence.sync.aligned; //@fence
{_wgmma(0)} //@wgmma
{_wgmma(1)}
{_wgmma(2)}
{_wgmma(3)}
wgmma.commit_group.sync.aligned; //@group
wgmma.wait_group.sync.aligned 0; //@wait_group
setp.eq.u32 %p5, %r6, 0;
@%p5 mbarrier.arrive.shared.b64 _, [%r10+16]; //@release
add.u32 %r7, %r7, 1; setp.lt.u32 %p4, %r7, 4;
@%p4 bra MAIN;
bar.sync 1, 128; //@drained
{_OUT} //@convert
and.b32 %r20, %r6, 3; shr.u32 %r21, %r6, 2; shl.b32 %r23, %r5, 4; add.u32 %r21, %r21, %r23; shl.b32 %r22, %r21, 7;
shl.b32 %r20, %r20, 2; add.u32 %r22, %r22, %r20; add.u32 %r24, %r3, 8192; add.u32 %r22, %r22, %r24;
{_PUT} //@put
fence.proxy.async.shared::cta; //@proxy
bar.sync 1, 128; //@stored
setp.ne.u32 %p7, %r2, 0;
@%p7 bra END;
mov.u32 %r14, 0;
cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd3, {{%r14, %r14}}], [%r24]; //@out
cp.async.bulk.commit_group; //@out_group
cp.async.bulk.wait_group.read 0; //@out_wait
END:
ret;
"""


def _gemm() -> Case:
    from mla_var3.emulator.launcher import region_of

    a, b = _random(64, 256, kind="f2"), _random(64, 256, kind="f2", seed=1)
    out = np.zeros((64, 64), "f2")
    maps = [
        tiled(x.ctypes.data, (256, 64), (2, 512), (64, 64), "f16", 3).encode() for x in (a, b)
    ] + [tiled(out.ctypes.data, (64, 64), (2, 128), (64, 64), "f16").encode()]
    regions = [region_of(a, "a"), region_of(b, "b"), region_of(out, "d")]
    return Case(maps, a.astype("f4") @ b.astype("f4").T, out, regions)


GEMM = Kernel(
    "gemm",
    "sm_90a",
    ".param .align 64 .b8 map_a[128], .param .align 64 .b8 map_b[128], .param .align 64 .b8 map_d[128]",
    REGISTERS,
    ".shared .align 1024 .b8 tiles[32768]; .shared .align 8 .b8 bars[32];",
    GEMM_BODY,
    _gemm,
    160,
)

# Two CTAs of a cluster: multicast, distributed shared memory ------------------------------------
PAIR_BODY = f"""\
ld.param.u64 %rd2, [src]; ld.param.u64 %rd3, [dst]; mov.b64 %rd1, map; mov.u32 %r3, weights; mov.u32 %r4, bar_; mov.u32 %r5, inbox;
mov.u32 %r2, %tid.x; mov.u32 %r6, %cluster_ctarank; setp.ne.u32 %p1, %r2, 0;
@%p1 bra READY;
mbarrier.init.shared.b64 [%r4], 1; //@init
fence.mbarrier_init.release.cluster; //@init_fence
mbarrier.arrive.expect_tx.shared.b64 _, [%r4], 256; //@expect
READY:
barrier.cluster.arrive.release; //@arrive_init
barrier.cluster.wait.acquire; //@wait_init
bar.sync 0; //@local
setp.ne.u32 %p2, %r6, 0; or.pred %p2, %p2, %p1; mov.u32 %r7, 0; mov.u16 %h1, 3; //@mask
@%p2 bra LOADED;
cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%r3], [%rd1, {{%r7}}], [%r4], %h1; //@load
LOADED:
shl.b32 %r8, %r6, 6; add.u32 %r8, %r8, %r2; mul.wide.u32 %rd4, %r8, 4; add.u64 %rd5, %rd2, %rd4; add.u64 %rd6, %rd3, %rd4;
ld.global.f32 %f1, [%rd5]; //@fetch
shl.b32 %r9, %r2, 2; add.u32 %r10, %r5, %r9; xor.b32 %r11, %r6, 1; //@peer
mapa.shared::cluster.u32 %r12, %r10, %r11; //@mapa
st.shared::cluster.f32 [%r12], %f1; //@send
barrier.cluster.arrive.release; //@arrive_sent
barrier.cluster.wait.acquire; //@wait_sent
ld.shared.f32 %f2, [%r10]; //@receive
{wait("%r4", "0")} //@wait_full
add.u32 %r13, %r3, %r9; ld.shared.f32 %f3, [%r13]; //@weight
fma.rn.f32 %f4, %f1, %f3, %f2; st.global.f32 [%rd6], %f4; //@store
ret;
"""


def _pair() -> Case:
    from mla_var3.emulator.launcher import region_of

    source, weights, out = _random(2, 64), _random(64, seed=1), np.zeros((2, 64), "f4")
    descriptor = tiled(weights.ctypes.data, (64,), (4,), (64,), "f32").encode()
    return Case(
        [descriptor, source, out],
        source * weights + source[::-1],
        out,
        [region_of(weights, "weights")],
    )


PAIR = Kernel(
    "pair",
    "sm_90a",
    ".param .align 64 .b8 map[128], .param .u64 src, .param .u64 dst",
    REGISTERS,
    ".shared .align 128 .b8 weights[256]; .shared .align 16 .b8 inbox[256]; .shared .align 8 .b8 bar_[8];",
    PAIR_BODY,
    _pair,
    64,
    2,
    2,
)

# Partial sums of CTAs, added by the last --------------------------------------------------------
SPLIT_BODY = """\
ld.param.u64 %rd1, [src]; ld.param.u64 %rd2, [work]; ld.param.u64 %rd3, [count]; ld.param.u64 %rd4, [dst];
mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x; shl.b32 %r4, %r3, 6; add.u32 %r4, %r4, %r2; mul.wide.u32 %rd5, %r4, 4;
add.u64 %rd6, %rd1, %rd5; add.u64 %rd7, %rd2, %rd5; mov.u32 %r9, flag;
ld.global.f32 %f1, [%rd6]; mul.f32 %f1, %f1, %f1;
st.global.f32 [%rd7], %f1; //@partial
membar.gl; //@publish
bar.sync 0; //@all
setp.ne.u32 %p1, %r2, 0;
@%p1 bra ASKED;
atom.global.add.u32 %r5, [%rd3], 1; //@ask
st.shared.u32 [%r9], %r5; //@tell
ASKED:
bar.sync 0; //@told
ld.shared.u32 %r6, [%r9]; setp.ne.u32 %p2, %r6, 3; //@last
@%p2 bra END;
membar.gl; //@acquire
mul.wide.u32 %rd8, %r2, 4; add.u64 %rd9, %rd2, %rd8; add.u64 %rd10, %rd4, %rd8;
ld.global.f32 %f2, [%rd9]; ld.global.f32 %f3, [%rd9+256]; //@read_low
ld.global.f32 %f4, [%rd9+512]; ld.global.f32 %f5, [%rd9+768]; //@read_high
add.f32 %f2, %f2, %f3; add.f32 %f4, %f4, %f5; add.f32 %f2, %f2, %f4;
st.global.f32 [%rd10], %f2; //@store
END:
ret;
"""


def _split() -> Case:
    source, out = _random(4, 64), np.zeros(64, "f4")
    work, count = np.zeros((4, 64), "f4"), np.zeros(1, "u4")
    return Case([source, work, count, out], (source**2).sum(0), out)


SPLIT = Kernel(
    "split",
    "sm_80",
    ".param .u64 src, .param .u64 work, .param .u64 count, .param .u64 dst",
    REGISTERS,
    ".shared .align 4 .b8 flag[4];",
    SPLIT_BODY,
    _split,
    64,
    4,
)

ALL = {k.name: k for k in (MIRROR, PRODUCT, RING, GEMM, PAIR, SPLIT)}
