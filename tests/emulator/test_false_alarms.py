# ruff: noqa: E501  # A PTX statement stays on its line.
"""What packages do rightly and looks wrong, each beside the mistake that it looks like."""

from __future__ import annotations

import numpy as np
import pytest

from mla_var3.emulator import launch
from mla_var3.emulator.launcher import region_of
from mla_var3.emulator.options import STRICT, Options
from mla_var3.emulator.units.tensormap import tiled

WAYS = [Options(), Options(seed=1), Options(seed=2, model=STRICT)]
HEAD = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(PARAMETERS)
{
.reg .pred %p<9>; .reg .b32 %r<32>; .reg .f32 %f<9>; .reg .b64 %rd<9>;
"""

# Two warps take turns: the first lets itself go by its own arrival, as flash-attention's warpgroups
# do, and each lets the other go.
TURNS = (
    HEAD.replace("PARAMETERS", ".param .u64 out")
    + """.shared .align 16 .b8 word[128];
ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, word;
and.b32 %r3, %r1, 31; shl.b32 %r4, %r3, 2; add.u32 %r4, %r4, %r2; shr.u32 %r5, %r1, 5;
mov.u32 %r6, 0; setp.ne.u32 %p1, %r5, 0;
@%p1 bra SECOND;
st.shared.u32 [%r4], 0;
bar.arrive 1, 64;
AGAIN
FIRST:
bar.sync 1, 64;
ld.shared.u32 %r7, [%r4]; add.u32 %r7, %r7, 1; st.shared.u32 [%r4], %r7;
bar.arrive 2, 64;
add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, 3;
@%p2 bra FIRST;
bar.sync 1, 64;
ld.shared.u32 %r7, [%r4]; mul.wide.u32 %rd2, %r3, 4; add.u64 %rd2, %rd2, %rd1; st.global.u32 [%rd2], %r7;
ret;
SECOND:
bar.sync 2, 64;
ld.shared.u32 %r7, [%r4]; mul.lo.u32 %r7, %r7, 10; st.shared.u32 [%r4], %r7;
bar.arrive 1, 64;
add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, 3;
@%p2 bra SECOND;
ret;
}
"""
)


@pytest.mark.parametrize("options", WAYS, ids=["lowest", "seed", "strict"])
def test_a_warp_that_lets_itself_go(options: Options) -> None:
    out = np.zeros(32, np.uint32)
    done = launch(TURNS.replace("AGAIN", ""), [out], 1, 64, options=options)
    assert not done.diagnostics, done.diagnostics[0]
    assert (out == 1110).all()


@pytest.mark.parametrize("options", WAYS, ids=["lowest", "seed", "strict"])
def test_a_warp_that_runs_ahead_of_its_barrier(options: Options) -> None:
    out = np.zeros(32, np.uint32)
    text = TURNS.replace("AGAIN", "bar.arrive 1, 96;\nbar.arrive 1, 96;")
    found = launch(text, [out], 1, 64, options=options).diagnostics
    assert {"barrier-mismatch"} <= {d.kind for d in found}
    assert any("arrives twice" in d.message for d in found)


# Rows of one sequence among many, by a map whose extents are no tensor's: the box is clipped where
# the sequence ends. As CUTLASS and Triton make them, with and without a base that is moved.
RAGGED = (
    HEAD.replace(
        "PARAMETERS",
        ".param .align 64 .b8 map[128], .param .u64 out, .param .u32 clip, .param .u32 wrap, .param .u32 row",
    )
    + """.shared .align 128 .b8 box[512]; .shared .align 8 .b8 bar[8];
ld.param.u64 %rd2, [out]; ld.param.u32 %r8, [clip]; ld.param.u32 %r9, [wrap]; ld.param.u32 %r10, [row];
mov.b64 %rd1, map; mov.u32 %r1, %tid.x; mov.u32 %r2, box; mov.u32 %r3, bar; setp.ne.u32 %p1, %r1, 0; mov.u32 %r4, 0;
@%p1 bra READY;
mbarrier.init.shared.b64 [%r3], 1;
fence.mbarrier_init.release.cluster;
READY:
bar.sync 0;
@%p1 bra WAIT;
mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 512;
LOAD
WAIT:
mbarrier.try_wait.parity.shared.b64 %p2, [%r3], 0;
@!%p2 bra WAIT;
shl.b32 %r5, %r1, 2; add.u32 %r6, %r2, %r5; ld.shared.f32 %f1, [%r6]; cvt.u64.u32 %rd3, %r5; add.u64 %rd3, %rd3, %rd2;
st.global.f32 [%rd3], %f1;
ret;
}
"""
)
BIG, MOST = 1 << 30, (1 << 31) - 1
LOAD = "cp.async.bulk.tensor.{n}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%rd1, {{{at}}}], [%r3];"


def ragged(offset: int, length: int, shifted: bool) -> tuple[np.ndarray, np.ndarray, list]:
    """What a box of the sequence at an offset brings, its rows, and what was reported."""
    rows = np.random.default_rng(0).standard_normal((20, 32)).astype(np.float32)
    out = np.zeros((4, 32), np.float32)
    base, stride = rows.ctypes.data, 128
    if shifted:
        dims, strides = (32, BIG, MOST), (4, stride, stride)
        text = RAGGED.replace("LOAD", LOAD.format(n=3, at="%r4, %r8, %r10"))
        base = (base - BIG * stride) % 2**64
    else:
        dims, strides = (32, BIG, MOST, MOST), (4, stride, 2**34 - stride, stride)
        text = RAGGED.replace("LOAD", LOAD.format(n=4, at="%r4, %r8, %r9, %r10"))
    box = (32, 4, *[1] * (len(dims) - 2))
    descriptor = tiled(base, dims, strides, box, "f32").encode()
    arguments = [descriptor, out, BIG - length, BIG, offset + length]
    done = launch(text, arguments, 1, 128, regions=[region_of(rows, "rows")])
    return out, rows, done.diagnostics


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize(("offset", "length"), [(0, 4), (3, 2), (16, 4), (7, 1)])
def test_a_ragged_map_reads_its_sequence_and_zeros(offset: int, length: int, shifted: bool) -> None:
    out, rows, found = ragged(offset, length, shifted)
    assert not found, found[0]
    assert (out[:length] == rows[offset : offset + length]).all()
    assert (out[length:] == 0).all()


@pytest.mark.parametrize("shifted", [False, True])
def test_a_ragged_map_beyond_the_tensor_is_reported(shifted: bool) -> None:
    _, _, found = ragged(18, 4, shifted)
    assert "out-of-bounds" in {d.kind for d in found}
