"""Lanes that a mask names, and that never come."""

from __future__ import annotations

import numpy as np
import pytest

from mla_var3.emulator import Options, launch

TEXT = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 o)
{
.reg .pred %p<3>; .reg .b32 %r<6>; .reg .b64 %d<4>;
mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, LANES; mov.u32 %r2, 7;
@%p1 bra OTHER;
shfl.sync.bfly.b32 %r2, %r1, 1, 31, MASK;
bra END;
OTHER:
ELSE
END:
ld.param.u64 %d1, [o]; mul.wide.u32 %d2, %r1, 4; add.u64 %d1, %d1, %d2; st.global.u32 [%d1], %r2;
ret;
}
"""
SAME = "shfl.sync.bfly.b32 %r2, %r1, 2, 31, 0xffff0000;"


@pytest.mark.parametrize("options", [Options(), Options(seed=1)], ids=["lowest", "seed"])
@pytest.mark.parametrize(
    ("threads", "lanes", "mask", "otherwise", "kind"),
    [
        (32, 16, "0x0000ffff", "", None),
        (32, 16, "0x0000ffff", "ret;", None),
        (32, 16, "0x0000ffff", SAME, None),
        (64, 32, "-1", "ret;", None),  # A whole warp has ended, which no mask names.
        (48, 48, "-1", "", None),  # Lanes that there are not.
        (32, 16, "-1", "", "mask-mismatch"),
        (32, 16, "-1", "ret;", "mask-mismatch"),
        (32, 31, "-1", "ret;", "mask-mismatch"),
        (32, 16, "-1", SAME, "mask-mismatch"),
    ],
)
def test_lanes_that_never_come(threads, lanes, mask, otherwise, kind, options) -> None:
    out = np.zeros(threads, np.uint32)
    text = TEXT.replace("LANES", str(lanes)).replace("MASK", mask).replace("ELSE", otherwise)
    found = {d.kind for d in launch(text, [out], 1, threads, options=options).diagnostics}
    assert found == ({kind} if kind else set())
    if kind is None:
        assert (out[:lanes] == np.arange(lanes) ^ 1).all()


#: Lane 0 of warp 1 waits for warp 0, whose lanes come to the same instruction as its own.
BEHIND = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 o)
{
.reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %d<4>;
.shared .align 8 .b8 bar[8];
mov.u32 %r0, %tid.x; mov.u32 %r1, bar; setp.ne.u32 %p0, %r0, 0;
@%p0 bra GO;
mbarrier.init.shared.b64 [%r1], 1;
GO: bar.sync 0;
setp.ne.u32 %p1, %r0, 32;
@%p1 bra ON;
W: mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0;
@!%p2 bra W;
ON:
SYNC
@%p0 bra END;
mbarrier.arrive.shared.b64 _, [%r1];
END:
ld.param.u64 %d0, [o]; mul.wide.u32 %d1, %r0, 4; add.u64 %d0, %d0, %d1; st.global.u32 [%d0], %r0;
ret;
}
"""


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize(
    "sync",
    [
        "shfl.sync.idx.b32 %r2, %r0, 0, 31, -1;",
        "bar.warp.sync -1;",
        "shr.u32 %r3, %r0, 5; add.u32 %r3, %r3, 1; bar.sync %r3, 32;",
    ],
)
def test_a_whole_warp_does_not_wait_for_the_rest_of_another(sync: str, seed: int | None) -> None:
    out = np.zeros(64, np.uint32)
    done = launch(BEHIND.replace("SYNC", sync), [out], 1, 64, options=Options(seed=seed))
    assert done.diagnostics == []
    assert out.tolist() == list(range(64))
