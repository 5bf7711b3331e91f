# ruff: noqa: E501  # A PTX statement stays on its line.
"""Small kernels of ``tcgen05``, and what their operands look like as words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator import launch
from mla_var3.emulator.clusters import Launch
from mla_var3.emulator.options import Options
from tests.emulator.events import Snippet, wait

CTA = "cta_group::1"
ALLOC = f"tcgen05.alloc.{CTA}.sync.aligned.shared::cta.b32"
DEALLOC = f"tcgen05.dealloc.{CTA}.sync.aligned.b32"
COMMIT = f"tcgen05.commit.{CTA}.mbarrier::arrive::one.shared::cluster.b64"
AFTER, BEFORE = "tcgen05.fence::after_thread_sync;", "tcgen05.fence::before_thread_sync;"
LOADED, STORED = "tcgen05.wait::ld.sync.aligned;", "tcgen05.wait::st.sync.aligned;"

#: Codes of operand formats, and of accumulators.
FORMATS = {"f16": 0, "bf16": 1, "tf32": 2, "e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5, "u8": 0, "s8": 1}  # fmt: skip
SUMS = {"f16": 0, "f32": 1, "s32": 2}


BOTH = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"


def registers(stem: str, count: int) -> str:
    return "{" + ", ".join(f"%{stem}{i}" for i in range(count)) + "}"


def instruction(m: int, n: int, a: str, b: str, d: str = "f32", more: int = 0) -> int:
    """An instruction descriptor."""
    return SUMS[d] << 4 | FORMATS[a] << 7 | FORMATS[b] << 10 | n // 8 << 17 | m // 16 << 24 | more


def matrix(start: int, leading: int = 128, stride: int = 256) -> int:
    """The descriptor of an operand without a swizzle; the start is added at run time."""
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | 1 << 46


@dataclass(frozen=True)
class Product:
    """A kernel that multiplies once: A [m, 32 bytes] by B [n, 32 bytes], both along k.

    A pair of CTAs has half of the rows of each in each CTA. With ``scaled``, which are modifiers of
    the opcode, scale factors come behind A and B: a word per row. ``mask`` has words of lanes that
    are left as they are. ``moved`` is added to the addresses of D, and of A in tensor memory, as the
    product is issued. ``collector`` is that of a product that keeps B in place (``.ws``), and
    ``zeros`` its operand that says which columns are zeros.
    """

    m: int
    n: int
    kind: str
    word: int
    in_tensor: bool = False
    pair: bool = False
    scaled: str = ""
    mask: tuple[int, ...] = ()
    moved: tuple[int, int] = (0, 0)
    collector: str = ""
    zeros: str = ""

    @property
    def wide(self) -> int:
        """Columns of tensor memory that the accumulator takes."""
        if self.collector:
            return self.n * self.m // 128
        return self.n // 2 if self.pair and self.m == 128 else self.n

    def text(self) -> str:
        n = self.n
        rows, mine = (self.m // 2, n // 2) if self.pair else (self.m, n)
        wide, ws = self.wide, ".ws" * bool(self.collector)
        group = f"cta_group::{1 + self.pair}"
        commit = "[%r3]" if not self.pair else "[%r3], %h1"
        cast = ".multicast::cluster" if self.pair else ""
        factors = "[%r20], [%r21], " if self.scaled else ""
        scales = "".join(f"ld.global.b32 %a{i}, [%rd7+{128 * i}];\n" for i in range(4))
        scale = (
            f"""
and.b32 %r4, %r1, 31; mul.wide.u32 %rd5, %r4, 4; add.u64 %rd7, %rd1, %rd5; add.u64 %rd7, %rd7, 4096;
add.u32 %r20, %r8, 300; add.u32 %r21, %r8, 310; shl.b32 %r4, %r2, 21; add.u32 %r22, %r20, %r4; add.u32 %r23, %r21, %r4;
{scales}
tcgen05.st.sync.aligned.32x32b.x4.b32 [%r22], {registers("a", 4)};
add.u64 %rd7, %rd2, %rd5; add.u64 %rd7, %rd7, {32 * n};
{scales}
tcgen05.st.sync.aligned.32x32b.x4.b32 [%r23], {registers("a", 4)};
{STORED}
"""
            if self.scaled
            else ""
        )
        loads = "\n".join(
            f"ld.global.v4.b32 {{%a{i}, %a{i + 1}, %a{i + 2}, %a{i + 3}}}, [%rd4+{4 * i}];"
            for i in (0, 4)
        )
        put = "".join(
            f"@%p3 st.shared.v4.b32 [%r5+{o}], {{%a{i}, %a{i + 1}, %a{i + 2}, %a{i + 3}}};\n"
            for i, o in ((0, 0), (4, 128))
        )
        first = "%rd10" if not self.in_tensor else "[%r13]"
        give = "\n".join(f"st.global.b32 [%rd6+{4 * i}], %d{i};" for i in range(wide))
        masked = registers("m", len(self.mask)) + ", " if self.mask else ""
        mask = " ".join(f"mov.b32 %m{i}, {word};" for i, word in enumerate(self.mask))
        return f"""
.version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c) {{
.reg .pred %p<9>; .reg .b16 %h<2>; .reg .b32 %r<32>, %a<8>, %m<8>, %d<{n}>; .reg .b64 %rd<16>;
.shared .align 128 .b8 left[4096]; .shared .align 128 .b8 right[8192];
.shared .align 8 .b8 bar[8]; .shared .align 4 .b8 hold[4];
ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c];
mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; mov.u32 %r3, bar;
setp.ne.u32 %p1, %r1, 0; setp.ne.u32 %p2, %r2, 0;
@%p1 bra READY;
mbarrier.init.shared.b64 [%r3], 1; fence.mbarrier_init.release.cluster;
READY:
@%p2 bra ALLOCATED;
tcgen05.alloc.{group}.sync.aligned.shared::cta.b32 [hold], 512;
ALLOCATED:
{BOTH if self.pair else "bar.sync 0;"}
mov.u32 %r7, %cluster_ctarank; mul.wide.u32 %rd5, %r7, {32 * rows}; add.u64 %rd1, %rd1, %rd5;
mul.wide.u32 %rd5, %r7, {32 * mine}; add.u64 %rd2, %rd2, %rd5; mul.wide.u32 %rd5, %r7, {512 * wide}; add.u64 %rd3, %rd3, %rd5;
mov.b16 %h1, 3;
ld.shared.b32 %r8, [hold]; add.u32 %r9, %r8, 256;
shl.b32 %r4, %r2, 21; add.u32 %r10, %r8, %r4; add.u32 %r11, %r9, %r4;
shr.u32 %r4, %r1, 3; shl.b32 %r4, %r4, 8; and.b32 %r5, %r1, 7; shl.b32 %r5, %r5, 4; add.u32 %r4, %r4, %r5;
mul.wide.u32 %rd5, %r1, 32;
add.u64 %rd4, %rd2, %rd5; setp.lt.u32 %p3, %r1, {min(mine, 128)}; @!%p3 bra HALF;
{loads}
mov.u32 %r5, right; add.u32 %r5, %r5, %r4;
{put}
HALF:
add.u64 %rd4, %rd1, %rd5;
{loads}
setp.lt.u32 %p3, %r1, {rows}; mov.u32 %r5, left; add.u32 %r5, %r5, %r4;
{put}
tcgen05.st.sync.aligned.32x32b.x8.b32 [%r11], {registers("a", 8)};
{STORED}
{scale}
fence.proxy.async.shared::cta; {BEFORE}
{BOTH if self.pair else "bar.sync 0;"}
setp.ne.u32 %p5, %r7, 0; or.pred %p5, %p5, %p1;
@%p5 bra ISSUED;
{AFTER}
mov.u32 %r5, left; shr.u32 %r5, %r5, 4; cvt.u64.u32 %rd10, %r5; add.u64 %rd10, %rd10, {matrix(0)};
mov.u32 %r5, right; shr.u32 %r5, %r5, 4; cvt.u64.u32 %rd11, %r5; add.u64 %rd11, %rd11, {matrix(0)};
mov.b32 %r12, {self.word}; setp.ne.u32 %p4, %r12, %r12;
{mask}
add.u32 %r14, %r8, {self.moved[0]}; add.u32 %r13, %r9, {self.moved[1]};
mov.b64 %rd12, {int(self.zeros == "some")};
tcgen05.mma{ws}.{group}.kind::{self.kind}{self.scaled}{self.collector} [%r14], {first}, %rd11, %r12, {factors}{masked}%p4{", %rd12" * bool(self.zeros)};
tcgen05.commit.{group}.mbarrier::arrive::one.shared::cluster{cast}.b64 {commit};
ISSUED:
{wait("%r3")}
{AFTER}
tcgen05.ld.sync.aligned.32x32b.x{wide}.b32 {registers("d", wide)}, [%r10];
{LOADED} {BEFORE}
mul.wide.u32 %rd5, %r1, {4 * wide}; add.u64 %rd6, %rd3, %rd5;
{give}
{BOTH if self.pair else "bar.sync 0;"}
@%p2 bra END;
{AFTER}
tcgen05.dealloc.{group}.sync.aligned.b32 %r8, 512;
END: ret;
}}
"""

    def run(
        self,
        a: NDArray[Any],
        b: NDArray[Any],
        options: Options | None = None,
        scales: tuple[NDArray[Any], NDArray[Any]] | None = None,
    ) -> tuple[NDArray[np.uint32], Launch]:
        """The accumulator's words [128 lanes of each CTA, columns], and what the launch gave."""
        rows, ctas = max(128, len(a)), 1 + self.pair
        left = np.zeros((max(rows, 128 * ctas) + 16, 32), np.uint8)
        left[: len(a)] = a.view(np.uint8).reshape(len(a), 32)
        right = np.zeros((len(b) + 16, 32), np.uint8)
        right[: len(b)] = b.view(np.uint8).reshape(len(b), 32)
        if scales is not None:  # A word of four scale factors per row.
            left.reshape(-1)[4096:4608] = scales[0].reshape(-1)
            right.reshape(-1)[32 * len(b) :][: 4 * len(b)] = scales[1].reshape(-1)
        out = np.zeros((128 * ctas, self.wide), np.uint32)
        arrays = [left.view(np.uint32), right.view(np.uint32), out]
        done = launch(self.text(), arrays, ctas, 128, cluster=ctas, options=options)
        return out, done


_N = 16
_WORD = instruction(128, _N, "f16", "f16")
_ROW = "shr.u32 %r4, %r1, 3; shl.b32 %r4, %r4, 8; and.b32 %r5, %r1, 7; shl.b32 %r5, %r5, 4; add.u32 %r4, %r4, %r5;"
_MMA = f"tcgen05.mma.{CTA}.kind::f16"


def _load(stem: str) -> str:
    return f"tcgen05.ld.sync.aligned.32x32b.x{_N}.b32 {registers(stem, _N)}, [%r22];"


def _give(stem: str) -> str:
    add = " ".join(f"add.u32 %{stem}0, %{stem}0, %{stem}{i};" for i in range(1, _N))
    return f"{add} st.global.u32 [%rd4], %{stem}0;"


#: An accumulator is made, read, and made again from an A that threads put into tensor memory.
ACCUMULATOR = Snippet(
    {
        "init": "mov.u32 %r2, a; mov.u32 %r3, bars; shr.u32 %r6, %r1, 5; setp.ne.u32 %p1, %r1, 0; setp.ne.u32 %p2, %r6, 0; @%p1 bra READY; "
        "mbarrier.init.shared.b64 [%r3], 1; mbarrier.init.shared.b64 [%r3+8], 1; fence.mbarrier_init.release.cluster; READY:",
        "alloc": f"@!%p2 {ALLOC} [%r3+32], 64;",
        "relinquish": f"@!%p2 tcgen05.relinquish_alloc_permit.{CTA}.sync.aligned;",
        "fill": f"{_ROW} add.u32 %r5, %r2, %r4; mov.b32 %r7, 0x3c003c00; st.shared.v4.b32 [%r5], {{%r7, %r7, %r7, %r7}}; st.shared.v4.b32 [%r5+128], {{%r7, %r7, %r7, %r7}};",
        "proxy": "fence.proxy.async.shared::cta;",
        "told": BEFORE,
        "filled": "bar.sync 0;",
        "known": AFTER,
        "where": "ld.shared.b32 %r20, [%r3+32]; shl.b32 %r21, %r6, 21; add.u32 %r22, %r20, %r21; add.u32 %r23, %r22, 32; add.u32 %r24, %r20, 32; "
        f"shr.u32 %r5, %r2, 4; cvt.u64.u32 %rd10, %r5; add.u64 %rd10, %rd10, {matrix(0)}; mov.b32 %r25, {_WORD}; setp.ne.u32 %p8, %r25, %r25; setp.eq.u32 %p7, %r25, %r25; "
        "shl.b32 %r26, %r1, 2; cvt.u64.u32 %rd3, %r26; add.u64 %rd4, %rd0, %rd3; @%p1 bra ISSUED;",
        "first": f"{_MMA} [%r20], %rd10, %rd10, %r25, %p8;",
        "more": f"{_MMA} [%r20], %rd10, %rd10, %r25, %p7;",
        "commit": f"{COMMIT} [%r3];",
        "issued": "ISSUED:",
        "wait": wait("%r3"),
        "after": AFTER,
        "load": _load("a"),
        "loaded": LOADED,
        "use": _give("a"),
        "store": f"tcgen05.st.sync.aligned.32x32b.x8.b32 [%r23], {{{', '.join(['%r7'] * 8)}}};",
        "stored": STORED,
        "before": BEFORE,
        "given": "bar.sync 0;",
        "use_late": "",
        "taken": AFTER,
        "again": f"@!%p1 {_MMA} [%r20], [%r24], %rd10, %r25, %p8;",
        "commit_again": f"@!%p1 {COMMIT} [%r3+8];",
        "wait_again": wait("%r3+8").replace("W:", "V:").replace("bra W", "bra V").replace("D:", "E:").replace("bra D", "bra E"),
        "after_again": AFTER,
        "load_again": _load("b"),
        "loaded_again": LOADED,
        "use_again": _give("b").replace("[%rd4]", "[%rd4+512]"),
        "before_end": BEFORE,
        "over": "bar.sync 0;",
        "end": AFTER,
        "dealloc": f"@!%p2 {DEALLOC} %r20, 64;",
    },
    words=(256,),
    shared=f".shared .align 128 .b8 a[4096]; .shared .align 8 .b8 bars[64]; .reg .b32 %a<{_N}>, %b<{_N}>;",
    block=128,
)  # fmt: skip

#: Steps that only PTX asks for: all fences.
FENCES = ("told", "known", "after", "before", "taken", "after_again", "before_end", "end")

#: A CTA multiplies and commits to both of its cluster; the other waits before it ends.
TAIL = Snippet(
    {
        "init": ACCUMULATOR.steps["init"] + " mov.b16 %h1, 3;",
        "begun": BOTH,
        "other": "mov.u32 %r27, %cluster_ctarank; setp.ne.u32 %p5, %r27, 0; @%p5 bra OTHER;",
        "alloc": f"@!%p2 {ALLOC} [%r3+32], 64;",
        "fill": ACCUMULATOR.steps["fill"],
        "filled": f"fence.proxy.async.shared::cta; {BEFORE} bar.sync 0; {AFTER}",
        "where": ACCUMULATOR.steps["where"],
        "mma": ACCUMULATOR.steps["first"],
        "commit": COMMIT.replace(".b64", ".multicast::cluster.b64") + " [%r3], %h1;",
        "issued": "ISSUED:",
        "wait": wait("%r3"),
        "dealloc": f"{AFTER} @!%p2 {DEALLOC} %r20, 64; bra END;",
        "otherwise": "OTHER:",
        "tail": ACCUMULATOR.steps["wait_again"].replace("+8", ""),
        "end": "END:",
    },
    words=(256,),
    shared=ACCUMULATOR.shared,
    block=128,
    grid=2,
    cluster=2,
)

#: Each thread brings 32 bytes, and a copy takes rows of them to columns 8 to 15.
COPIED = Snippet(
    {
        "init": ACCUMULATOR.steps["init"],
        "alloc": ACCUMULATOR.steps["alloc"],
        "fill": "mul.wide.u32 %rd5, %r1, 32; add.u64 %rd6, %rd0, %rd5; shl.b32 %r4, %r1, 5; add.u32 %r4, %r4, %r2; "
        + " ".join(
            f"ld.global.v4.b32 {{%r10, %r11, %r12, %r13}}, [%rd6+{i}]; st.shared.v4.b32 [%r4+{i}], {{%r10, %r11, %r12, %r13}};"
            for i in (0, 16)
        ),
        "proxy": "fence.proxy.async.shared::cta;",
        "filled": f"{BEFORE} bar.sync 0; {AFTER}",
        "where": "ld.shared.b32 %r20, [%r3+32]; shl.b32 %r21, %r6, 21; add.u32 %r24, %r20, 8; add.u32 %r22, %r24, %r21; "
        f"shr.u32 %r5, %r2, 4; cvt.u64.u32 %rd10, %r5; add.u64 %rd10, %rd10, {matrix(0)};",
        "copy": f"@!%p1 tcgen05.cp.{CTA}.128x256b [%r24], %rd10;",
        "commit": f"@!%p1 {COMMIT} [%r3];",
        "wait": wait("%r3"),
        "after": AFTER,
        "load": f"tcgen05.ld.sync.aligned.32x32b.x8.b32 {registers('a', 8)}, [%r22];",
        "loaded": LOADED,
        "give": "add.u64 %rd6, %rd1, %rd5; " + " ".join(f"st.global.b32 [%rd6+{4 * i}], %a{i};" for i in range(8)),
        "before_end": BEFORE,
        "over": "bar.sync 0;",
        "end": AFTER,
        "dealloc": f"@!%p2 {DEALLOC} %r20, 64;",
    },
    words=(1024, 1024),
    shared=".shared .align 128 .b8 a[4096]; .shared .align 8 .b8 bars[64]; .reg .b32 %a<8>;",
    block=128,
)  # fmt: skip
