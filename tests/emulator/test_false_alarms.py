# ruff: noqa: E501  # A PTX statement stays on its line.
"""What packages do rightly and looks wrong, each beside the mistake that it looks like."""

from __future__ import annotations

import numpy as np
import pytest

from mla_var3.emulator import launch
from mla_var3.emulator.launcher import region_of
from mla_var3.emulator.options import MODELS, STRICT, Options
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


# Rows of a tile beyond the tensor's end are read with the others, and what they hold is discarded.
TAIL = (
    HEAD.replace("PARAMETERS", ".param .u64 x, .param .u64 out, .param .u32 n")
    + """.shared .align 16 .b8 tile[128];
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [out]; ld.param.u32 %r1, [n];
mov.u32 %r2, %tid.x; mul.wide.u32 %rd3, %r2, 4; add.u64 %rd1, %rd1, %rd3; add.u64 %rd2, %rd2, %rd3;
shl.b32 %r3, %r2, 2; mov.u32 %r4, tile; add.u32 %r3, %r3, %r4; setp.lt.u32 %p1, %r2, %r1;
@%p1 ld.global.f32 %f1, [%rd1];
@%p1 st.shared.f32 [%r3], %f1;
bar.sync 0;
ld.shared.f32 %f2, [%r3]; mul.f32 %f3, %f2, 0f40000000;
USE
st.global.f32 [%rd2], %f4;
ret;
}
"""
)
USES = {
    "selected": "selp.f32 %f4, %f3, 0f00000000, %p1;",
    "guarded": "mov.f32 %f4, 0f00000000; @%p1 mov.f32 %f4, %f3;",
    "used": "mov.f32 %f4, %f3;",
    "times zero": "selp.f32 %f5, 0f3F800000, 0f00000000, %p1; mul.f32 %f4, %f3, %f5;",
    "largest": "max.f32 %f4, %f3, 0fC2C80000;",
    "least": "min.f32 %f4, %f3, 0f42C80000;",
    "only whether": "setp.gt.f32 %p2, %f3, 0f00000000; selp.f32 %f4, %f2, 0f00000000, %p1; @!%p1 selp.f32 %f4, 0f3F800000, 0f40000000, %p2;",
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("options", WAYS, ids=["lowest", "seed", "strict"])
def test_values_of_unwritten_rows_that_are_discarded(use: str, options: Options) -> None:
    x = np.arange(1, 33, dtype=np.float32)
    out = np.full(32, -1, np.float32)
    before = x.copy()
    done = launch(
        TAIL.replace("USE", USES[use]), [x, out, 20], 1, 32, options=options, unwritten=[out]
    )
    discarded = use in ("selected", "guarded") and options.model is not STRICT
    kinds = [] if discarded else ["uninitialized-read"]
    assert [d.kind for d in done.diagnostics] == kinds
    assert (x == before).all()
    assert (out[:20] == 2 * x[:20]).all() or use == "only whether"
    if discarded:
        assert (out[20:] == 0).all()


def test_what_other_bytes_do_leaves_no_trace() -> None:
    x, out = np.ones(32, np.float32), np.zeros(32, np.float32)
    text = TAIL.replace("USE", "atom.global.add.f32 %f5, [%rd1], 0f3F800000; " + USES["selected"])
    for _ in range(2):
        done = launch(text, [x, out, 20], 1, 32)
        assert not done.diagnostics
    assert (x == 3).all()


def test_values_of_a_launch_that_never_ends_are_not_discarded() -> None:
    x, out = np.ones(32, np.float32), np.zeros(32, np.float32)
    text = TAIL.replace("USE", USES["selected"] + "\nbar.sync 1, 64;")
    kinds = {d.kind for d in launch(text, [x, out, 20], 1, 32).diagnostics}
    assert kinds == {"deadlock", "uninitialized-read"}


@pytest.mark.parametrize("race", [False, True])
def test_values_that_are_discarded_beside_another_mistake(race: bool) -> None:
    """What is not used is no mistake, and the other one stays."""
    text = (
        HEAD.replace("PARAMETERS", ".param .u64 out")
        + """.shared .align 16 .b8 word[256];
ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, word; ld.shared.u32 %r3, [%r2+128]; setp.lt.u32 %p1, %r1, 32;
@%p1 st.shared.u32 [%r2], 1; @!%p1 st.shared.u32 [%r2+PLACE], 2; setp.eq.u32 %p1, %r1, 0; @%p1 st.global.u32 [%rd1], 7; ret;
}
""".replace("PLACE", "0" if race else "64")
    )
    out = np.zeros(1, np.uint32)
    kinds = ["race"] * race
    assert [d.kind for d in launch(text, [out], 1, 64).diagnostics] == kinds
    assert out[0] == 7
    found = launch(text, [out], 1, 64, options=Options(model=STRICT)).diagnostics
    assert [d.kind for d in found] == ["uninitialized-read", *kinds]


# Two warps store to the same words: the same, as both threads do that have half of a row, or not.
ONE_PLACE = (
    HEAD.replace("PARAMETERS", ".param .u64 out")
    + """ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;
and.b32 %r3, %r1, 31; shr.u32 %r4, %r1, 5; mul.wide.u32 %rd2, %r3, 4; add.u64 %rd2, %rd2, %rd1;
mad.lo.u32 %r5, WHO, AWAY, 7; mov.u32 %r6, %r5;
setp.ne.u32 %p1, %r4, 0;
@%p1 bra SECOND;
st.global.u32 [%rd2], %r5;
ret;
SECOND:
st.global.u32 [%rd2], %r6;
ret;
}
"""
)


@pytest.mark.parametrize(
    ("away", "grid", "model", "kinds"),
    [
        ("0", 1, "default", set()),
        ("0", 1, "strict", {"global-race"}),
        ("1", 1, "default", {"global-race"}),
        ("0", 2, "default", {"global-race"}),  # Of two clusters it is reported.
    ],
)
def test_two_warps_may_store_the_same(away: str, grid: int, model: str, kinds: set[str]) -> None:
    out = np.zeros(32, np.uint32)
    text = ONE_PLACE.replace("WHO", "%r4").replace("AWAY", away)
    done = launch(text, [out], grid, 64, options=Options(model=MODELS[model]))
    assert {d.kind for d in done.diagnostics} == kinds
    assert (out == 7 + int(away)).all()
