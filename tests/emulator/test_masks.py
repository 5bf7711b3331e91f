# ruff: noqa: E501  # A PTX statement stays on its line.
"""Lanes that a mask names, and that never come."""

from __future__ import annotations

import numpy as np
import pytest

from mla_var3.emulator import Options, launch
from tests.emulator.events import Snippet

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


#: Lanes of one warp take part; its others have ended, or come later from behind.
OTHERS = Snippet(
    {
        "who": "mov.u32 %r2, %laneid; shr.u32 %r3, %r1, 5; setp.eq.u32 %p1, %r3, WARP; setp.lt.u32 %p2, %r2, 16; and.pred %p3, %p1, %p2; @%p3 bra PART; @%p1 bra AWAY; bra END;",
        "part": "PART: shfl.sync.idx.b32 %r4|%p4, %r1, 3, 31, -1; mul.wide.u32 %rd3, %r1, 4; add.u64 %rd4, %rd0, %rd3; st.global.u32 [%rd4], %r4;",
        "over": "bra END;",
        "away": "AWAY: GONE",
        "end": "END: MEET",
    },
    words=(64,),
)


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("warp", [0, 1])
@pytest.mark.parametrize("meet", ["", "bar.sync 0;"])
@pytest.mark.parametrize("gone", [True, False])
def test_lanes_of_another_warp_are_not_those_of_a_mask(
    gone: bool, meet: str, warp: int, seed: int | None
) -> None:
    """Of the own warp those that have ended are missing, and others are waited for.

    The other warp has ended by then, or all of it waits at the end.
    """
    edits = {
        "who": OTHERS.steps["who"].replace("WARP", str(warp)),
        "away": "AWAY: " + ("ret;" if gone else "add.u32 %r5, %r1, 1; bra PART;"),
        "end": f"END: {meet}",
    }
    (out,), done = OTHERS.run(edits, options=Options(seed=seed))
    kinds = [d.kind for d in done.diagnostics]
    assert kinds == (["mask-mismatch"] if gone else [])
    first = 32 * warp
    taking = 16 if gone else 32
    assert out[first : first + taking].tolist() == [first + 3] * taking
    for d in done.diagnostics:
        assert f"the mask of warp {warp} names lanes that have ended" in d.message
