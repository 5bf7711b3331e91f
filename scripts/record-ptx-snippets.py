# ruff: noqa: E501  # A PTX statement stays on its line.
"""Record what a GPU makes of random PTX, for the emulator's tests; and settle a question of wgmma.

Needs numpy and a driver, nothing else of this project:

    python scripts/record-ptx-snippets.py --out tests/emulator/fixtures/snippets.npz
    python scripts/record-ptx-snippets.py --rendezvous

The first writes the results of every snippet. The second prints whether the four warps of a
warpgroup wait for each other at a wgmma (sm_90a only): one warp comes late and changes an operand
in shared memory before it arrives; the results of the other three tell which operand they read.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

#: Threads per snippet, snippets per kernel, instructions per snippet.
LANES, PER_KERNEL, STEPS = 8, 100, 5
COUNT, SEED = 10_000, 2026

INTEGER = [
    "add.u32 {d}, {a}, {b};", "sub.s32 {d}, {a}, {b};", "add.sat.s32 {d}, {a}, {b};",
    "mul.lo.u32 {d}, {a}, {b};", "mul.hi.u32 {d}, {a}, {b};", "mul.hi.s32 {d}, {a}, {b};",
    "mad.lo.s32 {d}, {a}, {b}, {c};", "mad.hi.u32 {d}, {a}, {b}, {c};",
    "min.s32 {d}, {a}, {b};", "max.s32 {d}, {a}, {b};", "min.u32 {d}, {a}, {b};",
    "max.u32 {d}, {a}, {b};", "and.b32 {d}, {a}, {b};", "or.b32 {d}, {a}, {b};",
    "xor.b32 {d}, {a}, {b};", "not.b32 {d}, {a};", "cnot.b32 {d}, {a};",
    "shl.b32 {d}, {a}, {b};", "shr.u32 {d}, {a}, {b};", "shr.s32 {d}, {a}, {b};",
    "shl.b32 {d}, {a}, {shift};", "shr.u32 {d}, {a}, {shift};", "shr.s32 {d}, {a}, {shift};",
    "and.b32 %x7, {b}, 31; shl.b32 {d}, {a}, %x7;", "shf.l.wrap.b32 {d}, {a}, {b}, {c};",
    "shf.r.wrap.b32 {d}, {a}, {b}, {c};", "shf.l.clamp.b32 {d}, {a}, {b}, {shift};",
    "shf.r.clamp.b32 {d}, {a}, {b}, {c};", "lop3.b32 {d}, {a}, {b}, {c}, {byte};",
    "popc.b32 {d}, {a};", "clz.b32 {d}, {a};", "brev.b32 {d}, {a};", "bfind.u32 {d}, {a};",
    "bfind.s32 {d}, {a};", "bfind.shiftamt.u32 {d}, {a};", "bfe.u32 {d}, {a}, {shift}, {byte};",
    "bfe.s32 {d}, {a}, {shift}, {shift2};", "bfe.u32 {d}, {a}, {b}, {c};",
    "bfe.s32 {d}, {a}, {b}, {c};", "bfi.b32 {d}, {a}, {b}, {shift}, {shift2};",
    "bfi.b32 {d}, {a}, {b}, {c}, {byte};", "prmt.b32 {d}, {a}, {b}, {selector};",
    "prmt.b32 {d}, {a}, {b}, {c};", "prmt.b32.f4e {d}, {a}, {b}, {shift};",
    "prmt.b32.b4e {d}, {a}, {b}, {shift};", "prmt.b32.rc8 {d}, {a}, {b}, {shift};",
    "prmt.b32.ecl {d}, {a}, {b}, {shift};", "prmt.b32.ecr {d}, {a}, {b}, {shift};",
    "prmt.b32.rc16 {d}, {a}, {b}, {shift};", "sad.u32 {d}, {a}, {b}, {c};",
    "sad.s32 {d}, {a}, {b}, {c};", "abs.s32 {d}, {a};", "neg.s32 {d}, {a};",
    "or.b32 %x7, {b}, 1; div.u32 {d}, {a}, %x7;", "or.b32 %x7, {b}, 1; rem.u32 {d}, {a}, %x7;",
    "or.b32 %x7, {b}, 1; and.b32 %x6, {a}, 0x7fffffff; div.s32 {d}, %x6, %x7;",
    "or.b32 %x7, {b}, 1; and.b32 %x6, {a}, 0x7fffffff; rem.s32 {d}, %x6, %x7;",
    "setp.lt.s32 %q1, {a}, {b}; selp.b32 {d}, {b}, {c}, %q1;",
    "setp.hs.u32 %q1, {a}, {b}; mov.b32 {d}, {c}; @%q1 add.u32 {d}, {d}, {a};",
    "setp.ne.b32 %q1, {a}, {b}; mov.b32 {d}, {c}; @!%q1 xor.b32 {d}, {d}, {imm};",
    "setp.gt.s32 %q1, {a}, 0; setp.le.and.u32 %q2, {b}, {c}, %q1; selp.b32 {d}, {a}, {c}, %q2;",
    "slct.b32.s32 {d}, {a}, {b}, {c};", "dp4a.s32.s32 {d}, {a}, {b}, {c};",
    "dp4a.u32.s32 {d}, {a}, {b}, {c};", "dp2a.lo.s32.s32 {d}, {a}, {b}, {c};",
    "dp2a.hi.u32.u32 {d}, {a}, {b}, {c};",
    "add.cc.u32 %x7, {a}, {b}; addc.u32 {d}, {c}, 0;",
    "sub.cc.u32 %x7, {a}, {b}; subc.u32 {d}, {c}, {a};",
    "mul.wide.u32 %y1, {a}, {b}; mov.b64 {{%x7, {d}}}, %y1;",
    "mul.wide.s32 %y1, {a}, {b}; shr.s64 %y1, %y1, {shift}; cvt.u32.u64 {d}, %y1;",
    "mov.b64 %y1, {{{a}, {b}}}; mov.b64 %y2, {{{b}, {c}}}; mul.hi.u64 %y1, %y1, %y2; "
    "mov.b64 {{{d}, %x7}}, %y1;",
    "mov.b64 %y1, {{{a}, {b}}}; popc.b64 {d}, %y1;", "mov.b64 %y1, {{{a}, {b}}}; clz.b64 {d}, %y1;",
    "cvt.s8.s32 %z1, {a}; cvt.s32.s8 {d}, %z1;", "cvt.u8.u32 %z1, {a}; cvt.u32.u8 {d}, %z1;",
    "cvt.sat.s8.s32 %z1, {a}; cvt.s32.s8 {d}, %z1;",
    "cvt.sat.u8.s32 %z1, {a}; cvt.u32.u8 {d}, %z1;",
    "cvt.sat.s16.s32 %z1, {a}; cvt.s32.s16 {d}, %z1;",
    "mov.b32 {{%z1, %z2}}, {a}; add.s16 %z1, %z1, %z2; mov.b32 {d}, {{%z2, %z1}};",
    "mov.b32 {{%z1, %z2}}, {a}; mul.wide.s16 {d}, %z1, %z2;", "bmsk.clamp.b32 {d}, {a}, {b};",
    "bmsk.wrap.b32 {d}, {a}, {b};", "mov.b32 {d}, {imm};",
]  # fmt: skip
#: Results that may be NaN are made one NaN: its payload is not promised.
FLOAT = [
    "add.rn.f32 {d}, {a}, {b};", "add.rz.f32 {d}, {a}, {b};", "add.rm.f32 {d}, {a}, {b};",
    "add.rp.f32 {d}, {a}, {b};", "add.rn.ftz.f32 {d}, {a}, {b};", "sub.rn.f32 {d}, {a}, {b};",
    "mul.rn.f32 {d}, {a}, {b};", "mul.rz.f32 {d}, {a}, {b};", "mul.rp.f32 {d}, {a}, {b};",
    "mul.rn.ftz.f32 {d}, {a}, {b};", "mul.rn.sat.f32 {d}, {a}, {b};",
    "fma.rn.f32 {d}, {a}, {b}, {c};", "fma.rz.f32 {d}, {a}, {b}, {c};",
    "fma.rm.f32 {d}, {a}, {b}, {c};", "fma.rp.f32 {d}, {a}, {b}, {c};",
    "fma.rn.ftz.f32 {d}, {a}, {b}, {c};", "min.f32 {d}, {a}, {b};", "max.f32 {d}, {a}, {b};",
    "min.NaN.f32 {d}, {a}, {b};", "max.NaN.f32 {d}, {a}, {b};", "abs.f32 {d}, {a};",
    "neg.f32 {d}, {a};", "copysign.f32 {d}, {a}, {b};", "div.rn.f32 {d}, {a}, {b};",
    "sqrt.rn.f32 {d}, {a};", "rcp.rn.f32 {d}, {a};", "cvt.rn.f32.s32 {d}, {a};",
    "cvt.rz.f32.u32 {d}, {a};", "cvt.rp.f32.s32 {d}, {a};", "cvt.rni.f32.f32 {d}, {a};",
    "cvt.rzi.f32.f32 {d}, {a};", "cvt.rmi.f32.f32 {d}, {a};", "cvt.sat.f32.f32 {d}, {a};",
    "cvt.rn.f16.f32 %z1, {a}; cvt.f32.f16 {d}, %z1;", (
        "cvt.rz.f16.f32 %z1, {a}; cvt.f32.f16 {d}, "
        "%z1;"
    ),
    "cvt.rn.bf16.f32 %z1, {a}; cvt.f32.bf16 {d}, %z1;", "cvt.rna.tf32.f32 {d}, {a};",
]  # fmt: skip
MIXED = [
    "cvt.rni.s32.f32 {d}, {a};", "cvt.rzi.s32.f32 {d}, {a};", "cvt.rmi.s32.f32 {d}, {a};",
    "cvt.rpi.u32.f32 {d}, {a};", "cvt.rzi.u32.f32 {d}, {a};", "cvt.rni.ftz.s32.f32 {d}, {a};",
    "setp.lt.f32 %q1, {a}, {b}; selp.b32 {d}, {b}, {c}, %q1;",
    "setp.neu.f32 %q1, {a}, {b}; selp.b32 {d}, {b}, {c}, %q1;",
    "setp.nan.f32 %q1, {a}, {b}; selp.b32 {d}, {b}, {c}, %q1;",
    "set.gt.u32.f32 {d}, {a}, {b};", "testp.finite.f32 %q1, {a}; selp.b32 {d}, {b}, {c}, %q1;",
    "testp.subnormal.f32 %q1, {a}; selp.b32 {d}, {b}, {c}, %q1;",
    "and.b32 %x7, {a}, 0xbfffbfff; and.b32 %x6, {b}, 0xbfffbfff; add.rn.f16x2 {d}, %x7, %x6;",
    "and.b32 %x7, {a}, 0xbfffbfff; and.b32 %x6, {b}, 0xbfffbfff; mul.rn.f16x2 {d}, %x7, %x6;",
    "and.b32 %x7, {a}, 0xbfffbfff; and.b32 %x6, {b}, 0xbfffbfff; fma.rn.f16x2 {d}, %x7, %x6, %x7;",
    "and.b32 %x7, {a}, 0xbfffbfff; and.b32 %x6, {b}, 0xbfffbfff; fma.rn.bf16x2 {d}, %x7, %x6, %x6;",
    "and.b32 %x7, {a}, 0xbfffffff; and.b32 %x6, {b}, 0xbfffffff; cvt.rn.f16x2.f32 {d}, %x7, %x6;",
    "and.b32 %x7, {a}, 0xbfffffff; and.b32 %x6, {b}, 0xbfffffff; cvt.rn.bf16x2.f32 {d}, %x7, %x6;",
    "and.b32 %x7, {a}, 0xbfffffff; cvt.rn.satfinite.e4m3x2.f32 %z1, %x7, %x7; cvt.u32.u16 "
    "{d}, %z1;",
    "and.b32 %x7, {a}, 0xbfffffff; cvt.rn.satfinite.e5m2x2.f32 %z1, %x7, %x7; cvt.u32.u16 "
    "{d}, %z1;",
]  # fmt: skip
#: Approximations and their greatest relative error (PTX ISA, floating point instructions).
APPROXIMATE = {
    "ex2.approx.f32 {d}, {a};": 2.0**-22,
    "ex2.approx.ftz.f32 {d}, {a};": 2.0**-22,
    "rcp.approx.f32 {d}, {a};": 2.0**-23,
    "sqrt.approx.f32 {d}, {a};": 2.0**-23,
    "rsqrt.approx.f32 {d}, {a};": 2.0**-22.9,
    "div.full.f32 {d}, {a}, {b};": 2.0**-22,
    "tanh.approx.f32 {d}, {a};": 2.0**-11,
}
CANONICAL = "setp.nan.f32 %q0, {d}, {d}; @%q0 mov.b32 {d}, 0x7fffffff;"
INTERESTING = [
    0, 1, 2, 31, 32, 33, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x3F800000, 0xBF800000, 0x7F800000,
    0xFF800000, 0x7FFFFFFF, 0x00000001, 0x007FFFFF, 0x00800000, 0x4F000000, 0xCF000000, 0x3F000000,
]  # fmt: skip


class Draw:
    """Numbers that are the same wherever and whenever they are drawn (a 64-bit LCG)."""

    def __init__(self, seed: int) -> None:
        self.state = seed * 2862933555777941757 + 3037000493 & (1 << 64) - 1

    def bits(self) -> int:
        """32 bits."""
        self.state = self.state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        return self.state >> 32

    def below(self, n: int) -> int:
        """A number from 0 up to ``n``."""
        return self.bits() * n >> 32

    def word(self) -> int:
        """An operand: any bits, a number about one, a small number or a special one."""
        match self.below(4):
            case 0:
                return self.bits()
            case 1:
                return self.bits() & 0x80FFFFFF | (self.below(24) + 115) << 23
            case 2:
                return self.below(256)
        return INTERESTING[self.below(len(INTERESTING))]


def snippet(draw: Draw) -> str:
    """``STEPS`` instructions from ``%x0``, ``%x1``, ``%x2`` to ``%x3``."""
    lines, values = [], ["%x0", "%x1", "%x2"]
    for step in range(STEPS):
        target = "%x3" if step == STEPS - 1 else f"%x{3 + step % 3}"
        kind = draw.below(3)
        table = (INTEGER, FLOAT, MIXED)[kind]
        text = table[draw.below(len(table))]
        operands = {k: values[draw.below(len(values))] for k in "abc"}
        # The target is a register of its own until the instruction is done.
        lines.append(
            text.format(
                d="%x8",
                **operands,
                shift=draw.below(40),
                shift2=draw.below(40),
                byte=draw.below(256),
                imm=draw.bits(),
                selector=draw.below(1 << 16),
            )
        )
        if kind == 1:
            lines.append(CANONICAL.format(d="%x8"))
        lines.append(f"mov.b32 {target}, %x8;")
        if target not in values:
            values.append(target)
    return " ".join(lines)


def kernel(snippets: list[str]) -> str:
    """A kernel that runs snippets one after the other; inputs [snippet, 3, lane]."""
    parts = [
        ".version 8.0", ".target sm_90a", ".address_size 64",
        ".visible .entry s(.param .u64 inputs, .param .u64 outputs)", "{",
        ".reg .pred %q<4>; .reg .b16 %z<4>; .reg .b32 %x<9>; .reg .b32 %t<2>; .reg .b64 %y<4>; "
        ".reg .b64 %at<4>;",
        "ld.param.u64 %at0, [inputs]; ld.param.u64 %at1, [outputs]; mov.u32 %t0, %tid.x;",
        "mul.wide.u32 %at2, %t0, 4; add.u64 %at0, %at0, %at2; add.u64 %at1, %at1, %at2;",
    ]  # fmt: skip
    for i, text in enumerate(snippets):
        at = 4 * LANES * 3 * i
        parts += [f"ld.global.b32 %x{j}, [%at0+{at + 4 * LANES * j}];" for j in range(3)]
        parts += [text, f"st.global.b32 [%at1+{4 * LANES * i}], %x3;"]
    return "\n".join([*parts, "ret;", "}", ""])


def batches(count: int = COUNT, seed: int = SEED) -> list[tuple[str, np.ndarray[Any, Any]]]:
    """Kernels with their inputs."""
    draw, out = Draw(seed), []
    for start in range(0, count, PER_KERNEL):
        n = min(PER_KERNEL, count - start)
        texts = [snippet(draw) for _ in range(n)]
        words = [draw.word() for _ in range(3 * LANES * n)]
        out.append((kernel(texts), np.array(words, np.uint32).reshape(n, 3, LANES)))
    return out


def approximations() -> list[tuple[str, str, np.ndarray[Any, Any]]]:
    """Each approximation's name, its kernel, and its inputs."""
    draw, out = Draw(SEED + 1), []
    for text in APPROXIMATE:
        words = [
            draw.bits() & 0x00FFFFFF | (draw.below(12) + 121) << 23 for _ in range(3 * LANES * 64)
        ]
        body = [text.format(d="%x3", a="%x0", b="%x1")] * 64
        out.append((text, kernel(body), np.array(words, np.uint32).reshape(64, 3, LANES)))
    return out


class Driver:
    """The CUDA driver: PTX in, numbers out."""

    def __init__(self) -> None:
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.do("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.do("cuDeviceGet", ctypes.byref(device), 0)
        self.do("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.do("cuCtxSetCurrent", context)
        name = ctypes.create_string_buffer(100)
        self.do("cuDeviceGetName", name, 100, device)
        version = ctypes.c_int()
        self.do("cuDriverGetVersion", ctypes.byref(version))
        self.device, self.version = name.value.decode(), version.value

    def do(self, name: str, *args: Any) -> None:
        """Call a function and stop if it fails."""
        if code := getattr(self.lib, name)(*args):
            sys.exit(f"error: {name} returns {code}")

    def function(self, ptx: str, name: str) -> ctypes.c_void_p:
        """A kernel of a PTX text."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.do("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(ptx.encode()))
        self.do("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        return function

    def memory(self, array: np.ndarray[Any, Any]) -> ctypes.c_uint64:
        """Device memory with the content of an array."""
        at = ctypes.c_uint64()
        self.do("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(array.nbytes))
        self.do(
            "cuMemcpyHtoD_v2", at, ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes)
        )
        return at

    def launch(self, function: ctypes.c_void_p, threads: int, args: list[Any]) -> None:
        """Run one block and wait."""
        pointers = (ctypes.c_void_p * len(args))(
            *(ctypes.cast(ctypes.byref(a), ctypes.c_void_p) for a in args)
        )
        self.do("cuLaunchKernel", function, 1, 1, 1, threads, 1, 1, 0, None, pointers, None)
        self.do("cuCtxSynchronize")

    def read(self, at: ctypes.c_uint64, array: np.ndarray[Any, Any]) -> None:
        """Copy device memory to an array."""
        self.do(
            "cuMemcpyDtoH_v2", ctypes.c_void_p(array.ctypes.data), at, ctypes.c_size_t(array.nbytes)
        )

    def run(self, ptx: str, inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Results [snippet, lane] of a kernel of snippets."""
        out = np.zeros((len(inputs), LANES), np.uint32)
        a, b = self.memory(inputs), self.memory(out)
        self.launch(self.function(ptx, "s"), LANES, [a, b])
        self.read(b, out)
        for at in (a, b):
            self.do("cuMemFree_v2", at)
        return out


#: Warp 3 sleeps, then doubles B and arrives; all four warps then multiply. Columns of ones: with
#: the old B each result is 16, with the new one 32.
RENDEZVOUS = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry rendezvous(.param .u64 results, .param .u64 times, .param .u32 naps)
{
.reg .pred %p<4>; .reg .b32 %r<16>; .reg .f32 %f<4>; .reg .b64 %rd<16>;
.shared .align 1024 .b8 tiles[4096];
mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; mov.u32 %r3, tiles; shl.b32 %r4, %r1, 2; add.u32 %r4, %r4, %r3;
mov.u32 %r5, 0; setp.ne.u32 %p0, %r5, %r5;
FILL:
st.shared.b32 [%r4], 0x3c003c00; add.u32 %r4, %r4, 512; add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 8;
@%p1 bra FILL;
fence.proxy.async.shared::cta;
bar.sync 0;
shr.u32 %r6, %r3, 4; cvt.u64.u32 %rd1, %r6; or.b64 %rd1, %rd1, 0x0000001000080000; add.u64 %rd2, %rd1, 128;
mov.f32 %f0, 0f00000000; mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, 0f00000000;
ld.param.u32 %r7, [naps]; setp.ne.u32 %p2, %r2, 3;
@%p2 bra ARRIVE;
NAP:
nanosleep.u32 1000; sub.u32 %r7, %r7, 1; setp.gt.s32 %p3, %r7, 0;
@%p3 bra NAP;
and.b32 %r8, %r1, 31; shl.b32 %r8, %r8, 3; add.u32 %r8, %r8, %r3;
st.shared.b32 [%r8+2048], 0x40004000; st.shared.b32 [%r8+2052], 0x40004000;
fence.proxy.async.shared::cta;
ARRIVE:
mov.u64 %rd3, %globaltimer;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd1, %rd2, %p0, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
mov.u64 %rd4, %globaltimer;
ld.param.u64 %rd5, [results]; mul.wide.u32 %rd6, %r1, 4; add.u64 %rd5, %rd5, %rd6;
st.global.f32 [%rd5], %f0;
ld.param.u64 %rd7, [times]; mul.wide.u32 %rd8, %r1, 16; add.u64 %rd7, %rd7, %rd8;
st.global.b64 [%rd7], %rd3; st.global.b64 [%rd7+8], %rd4;
ret;
}
"""


def rendezvous(driver: Driver, runs: int = 100) -> dict[str, Any]:
    """Whether warps 0 to 2 read what warp 3 wrote before it arrived, and when they were done."""
    function = driver.function(RENDEZVOUS, "rendezvous")
    new = early = 0
    for _ in range(runs):
        results, times = np.zeros(128, np.float32), np.zeros((128, 2), np.uint64)
        a, b = driver.memory(results), driver.memory(times)
        driver.launch(function, 128, [a, b, ctypes.c_uint32(200)])
        driver.read(a, results)
        driver.read(b, times)
        new += bool((results[:96] == 32).all())
        early += bool(times[:96, 1].min() < times[96:, 0].min())
    verdict = (
        "yes" if new == runs and not early else "no" if early == runs and not new else "unclear"
    )
    return {
        "device": driver.device, "driver": driver.version, "runs": runs, "read_the_new_operand": new,
        "done_before_the_last_warp_came": early, "rendezvous": verdict,
    }  # fmt: skip


def record(driver: Driver, path: Path) -> None:
    """Run all snippets and write their results."""
    exact = [driver.run(text, inputs) for text, inputs in batches()]
    near = [driver.run(text, inputs) for _, text, inputs in approximations()]
    facts = {"device": driver.device, "driver": driver.version, "seed": SEED, "count": COUNT}
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        path, exact=np.concatenate(exact), near=np.stack(near), facts=json.dumps(facts)
    )
    print(f"{path}: {COUNT} snippets on {driver.device}, driver {driver.version}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("tests/emulator/fixtures/snippets.npz"))
    parser.add_argument(
        "--rendezvous", action="store_true", help="settle the question of wgmma only"
    )
    arguments = parser.parse_args()
    driver = Driver()
    if arguments.rendezvous:
        print(json.dumps(rendezvous(driver), indent=1))
    else:
        record(driver, arguments.out)
        print(json.dumps(rendezvous(driver), indent=1))


if __name__ == "__main__":
    main()
