# ruff: noqa: E501  # A PTX statement stays on its line.
"""Answers of ``mbarrier.try_wait`` that are taken for granted, by lanes of any masks."""

from __future__ import annotations

import random

import numpy as np
import pytest

from mla_var3.emulator.launcher import launch

READERS, PLACES = 64, 2
ALL = (1 << READERS) - 1

#: Warps 2 and 3 write a word each and arrive at an mbarrier each. Then the lanes of warps 0 and 1
#: that a round names ask for the end of the phase of one of the two, and read its word: always
#: (trusting), or where the answer is yes.
ROUNDS = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 rounds, .param .u32 count)
{
.reg .pred %p<8>; .reg .b32 %r<16>; .reg .b64 %rd<4>;
.shared .align 16 .b8 words[16]; .shared .align 16 .b8 bars[16];
mov.u32 %r0, %tid.x; mov.u32 %r1, words; mov.u32 %r2, bars; setp.ne.u32 %p0, %r0, 0;
@%p0 bra READY;
mbarrier.init.shared.b64 [%r2], 1; mbarrier.init.shared.b64 [%r2+8], 1;
READY: bar.sync 0;
ld.param.u64 %rd0, [rounds]; ld.param.u32 %r9, [count]; mov.u32 %r8, 0;
setp.lt.u32 %p1, %r0, 64;
@%p1 bra LOOP;
and.b32 %r4, %r0, 31; setp.ne.u32 %p2, %r4, 0;
@%p2 bra END;
shr.u32 %r4, %r0, 5; sub.u32 %r4, %r4, 2; mad.lo.u32 %r5, %r4, 4, %r1; mad.lo.u32 %r6, %r4, 8, %r2;
st.shared.u32 [%r5], 7; mbarrier.arrive.shared.b64 _, [%r6];
bra END;
LOOP:
ld.global.b64 %rd1, [%rd0]; ld.global.b64 %rd2, [%rd0+8]; ld.global.b64 %rd3, [%rd0+16];
shr.b64 %rd1, %rd1, %r0; shr.b64 %rd2, %rd2, %r0; cvt.u32.u64 %r4, %rd1; cvt.u32.u64 %r5, %rd2; cvt.u32.u64 %r6, %rd3;
and.b32 %r4, %r4, 1; and.b32 %r5, %r5, 1; setp.eq.u32 %p1, %r4, 0; setp.ne.u32 %p2, %r6, 0;
@%p1 bra NEXT;
mad.lo.u32 %r6, %r5, 4, %r1; mad.lo.u32 %r7, %r5, 8, %r2;
mbarrier.try_wait.parity.shared.b64 %p3, [%r7], 0;
or.pred %p3, %p3, %p2;
@!%p3 bra NEXT;
ld.shared.u32 %r4, [%r6];
NEXT:
add.u32 %r8, %r8, 1; add.u64 %rd0, %rd0, 24; setp.lt.u32 %p1, %r8, %r9;
@%p1 bra LOOP;
END: ret;
}
"""

#: Who asks, which of them asks for the second mbarrier, and whether they take a yes for granted.
Round = tuple[int, int, bool]


def found(rounds: list[Round]) -> set[str]:
    """Kinds of what is reported."""
    table = np.array(rounds, np.uint64)
    done = launch(ROUNDS, [table, len(rounds)], 1, 128)
    return {d.kind for d in done.diagnostics}


def wanted(rounds: list[Round]) -> set[str]:
    """The same by the rule, lane by lane: none hears yes before no, unless its warp knows."""
    refused, knows = [0] * PLACES, set[tuple[int, int]]()
    for who, second, trusting in rounds:
        for place, lanes in enumerate((who & ~second, who & second)):
            warps = {(w, place) for w in (0, 1) if lanes >> 32 * w & 0xFFFFFFFF}
            if lanes & ~refused[place] and warps - knows:
                refused[place] |= lanes
                if trusting:
                    return {"race"}
            else:
                knows |= warps
    return set()


def drawn(seed: int) -> list[Round]:
    """Rounds by chance, of few masks: some have lanes in common."""
    draw = random.Random(seed)
    few = [draw.getrandbits(READERS) for _ in range(3)]
    few += [few[0] & few[1], few[1] | few[2], 0xFFFFFFFF, ALL, 0]
    second = [0, 0, ALL, draw.getrandbits(READERS)]
    return [
        (draw.choice(few), draw.choice(second), draw.random() < 0.3)
        for _ in range(draw.randrange(2, 9))
    ]


@pytest.mark.parametrize("seed", range(24))
def test_no_lane_is_answered_yes_before_it_heard_no(seed: int) -> None:
    rounds = drawn(seed)
    assert found(rounds) == wanted(rounds)


LOW = 0xFFFF
FIRST_AND_HIGH = 0xFFFF0001


@pytest.mark.parametrize(
    ("rounds", "kinds"),
    [
        ([(LOW, 0, False), (FIRST_AND_HIGH, 0, True)], {"race"}),
        ([(LOW, 0, False), (LOW, 0, True)], set()),
        ([(LOW, 0, False), (LOW, 0, False), (FIRST_AND_HIGH, 0, True)], set()),
        ([(0b11, 0b10, False), (0b11, 0b00, True)], {"race"}),
        ([(0b11, 0b00, False), (0b11, 0b00, False), (0b11, 0b10, True)], {"race"}),
        ([(0b11, 0b10, False), (0b11, 0b10, False), (ALL, 0b10, True)], {"race"}),
    ],
    ids=["one lane heard it", "all heard it", "the warp knows", "at the other mbarrier",
         "the first mbarrier alone is known", "another warp"],
)  # fmt: skip
def test_lanes_that_share_a_first_lane_are_not_each_other(
    rounds: list[Round], kinds: set[str]
) -> None:
    assert wanted(rounds) == kinds
    assert found(rounds) == kinds


#: The same instruction asks for the first phase of two mbarriers, one after the other, at one place.
AGAIN = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k()
{
.reg .pred %p<8>; .reg .b32 %r<16>;
.shared .align 16 .b8 words[16]; .shared .align 16 .b8 bar[8];
mov.u32 %r0, %tid.x; mov.u32 %r1, words; mov.u32 %r2, bar; mov.u32 %r3, 0; setp.ne.u32 %p0, %r0, 32;
LOOP:
@%p0 bra READY;
mbarrier.init.shared.b64 [%r2], 1;
READY: bar.sync 0;
setp.lt.u32 %p1, %r0, 32;
@%p1 bra ASK;
@%p0 bra NEXT;
st.shared.u32 [%r1], %r3; mbarrier.arrive.shared.b64 _, [%r2];
bra NEXT;
ASK:
mbarrier.try_wait.parity.shared.b64 %p3, [%r2], 0;
setp.eq.u32 %p4, %r3, TRUSTS; or.pred %p3, %p3, %p4;
@!%p3 bra NEXT;
ld.shared.u32 %r4, [%r1];
NEXT:
bar.sync 0;
@%p0 bra GONE;
mbarrier.inval.shared.b64 [%r2];
GONE:
add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 2;
@%p1 bra LOOP;
ret;
}
"""


@pytest.mark.parametrize(("trusts", "kinds"), [(0, {"race"}), (1, {"race"}), (2, set())])
def test_a_new_mbarrier_at_an_old_place_is_another(trusts: int, kinds: set[str]) -> None:
    done = launch(AGAIN.replace("TRUSTS", str(trusts)), [], 1, 64)
    assert {d.kind for d in done.diagnostics} == kinds
