"""Registers that warpgroups ask for: together, and no more than there are."""

from __future__ import annotations

import pytest

from mla_var3.emulator import launch
from mla_var3.emulator.options import STRICT, Options

#: One warp of a warpgroup asks at a place of its own.
ALONE = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k()
.reqntid 128, 1, 1
{
.reg .pred %p<3>; .reg .b32 %r<4>;
mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 32;
@!%p1 bra OTHERS;
setmaxnreg.dec.sync.aligned.u32 COUNT;
bra END;
OTHERS:
setmaxnreg.dec.sync.aligned.u32 40;
END:
ret;
}
"""


@pytest.mark.parametrize(("count", "options", "fine"), [
    (40, Options(), True), (48, Options(), True), (40, Options(model=STRICT), False),
])  # fmt: skip
def test_each_warp_may_ask_at_a_place_of_its_own(count, options, fine) -> None:
    found = launch(ALONE.replace("COUNT", str(count)), [], 1, 128, options=options).diagnostics
    assert [d.kind for d in found] == [] if fine else ["register-budget"]


TEXT = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k()
.reqntid 384, 1, 1
{
.reg .pred %p<3>; .reg .b32 %r<4>;
mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; setp.lt.u32 %p1, %r2, 4; setp.ge.u32 %p2, %r2, WHO;
@!%p1 bra CONSUMER;
@%p2 bra END;
setmaxnreg.dec.sync.aligned.u32 FEW;
bra END;
CONSUMER:
setmaxnreg.inc.sync.aligned.u32 MANY;
END:
ret;
}
"""


@pytest.mark.parametrize(
    ("few", "many", "who", "said"),
    [
        (24, 240, 4, None),
        (40, 232, 4, None),
        (40, 240, 4, "ask for 66560 registers, and a CTA of 12 warps begins with 64512 at most"),
        (32, 240, 4, "ask for 65536 registers"),  # The file has them, the CTA has not.
        (24, 240, 1, "1 of the 4 warps of a warpgroup execute setmaxnreg"),
        (24, 240, 3, "3 of the 4 warps"),
        (24, 236, 4, "setmaxnreg with 236 registers"),
        (16, 240, 4, "setmaxnreg with 16 registers"),
    ],
)
def test_register_budgets(few: int, many: int, who: int, said: str | None) -> None:
    text = TEXT.replace("FEW", str(few)).replace("MANY", str(many)).replace("WHO", str(who))
    found = launch(text, [], 2, 384).diagnostics
    if said is None:
        assert not found, found[0]
    else:
        assert [d.kind for d in found] == ["register-budget"]
        assert said in found[0].message


@pytest.mark.parametrize(("many", "warps", "fine"), [
    (256, 8, True), (128, 16, True), (136, 16, False), (128, 13, True), (136, 13, False),
])  # fmt: skip
def test_a_cta_has_what_it_began_with(many: int, warps: int, fine: bool) -> None:
    """Of 13 warps each has what 16 have room for."""
    text = TEXT.replace("384", str(32 * warps)).replace("WHO", "0").replace("MANY", str(many))
    text = text.replace("setp.lt.u32 %p1, %r2, 4;", "setp.lt.u32 %p1, %r2, 0;")
    found = launch(text.replace("FEW", "24"), [], 1, 32 * warps).diagnostics
    assert ([d.kind for d in found if "begins with" in d.message] == []) == fine


def test_the_largest_of_what_is_too_much_is_named() -> None:
    text = TEXT.replace("FEW", "40").replace("MANY", "240").replace("WHO", "4")
    (found,) = launch(text, [], 1, 384).diagnostics
    assert found.at.instruction.startswith("setmaxnreg.inc.sync.aligned.u32 240")


def test_each_cta_has_registers_of_its_own() -> None:
    text = TEXT.replace("WHO", "4").replace("FEW", "24").replace("MANY", "240")
    assert launch(text, [], 2, 384, cluster=2).diagnostics == []
    some = text.replace(
        "setp.ge.u32 %p2, %r2, 4;", "mov.u32 %r3, %ctaid.x; setp.eq.u32 %p2, %r3, 0;"
    )
    some = some.replace("CONSUMER:\n", "CONSUMER:\n@%p2 bra END;\n")
    assert launch(some, [], 2, 384, cluster=2).diagnostics == []
