"""A unit joins by its class alone: nothing else of the core knows it."""

from typing import ClassVar

import numpy as np
import pytest

from mla_var3.emulator import launch, machine, program
from mla_var3.emulator.lower import FAMILIES, forms
from mla_var3.emulator.units.base import WARP, Unit, UnitText
from mla_var3.emulator.units.pending import Operation
from mla_var3.emulator.units.registry import UNITS

READ = Operation("a late read", "pending-accumulator", "late.wait before the register is touched")
#: Each warp reads a register late; warp 1 begins, and the last `late.wait` needs that all began.
TEXT = """
.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{{
.reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<4>;
ld.param.u64 %rd0, [out];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd1, %r1, 4;
add.u64 %rd0, %rd0, %rd1;
late.read %r2;
{wait}
st.global.u32 [%rd0], %r2;
ret;
}}
"""


class LateText(UnitText):
    together: ClassVar[frozenset[str]] = frozenset({"late"})
    blocking: ClassVar[tuple[str, ...]] = ("late.wait",)

    def closes(self, i):
        return i.op == "late.read"

    def registers(self):
        return [i.args[0] for i in self.kernel.instructions if i.op == "late.read"]

    def touches(self, i):
        return i.parts[0] != "late"


class Late(Unit):
    name = "late"
    text = LateText

    def start(self):
        self.begun = set()

    def read(self, row, s, pc):
        self.machine.r[row][s] = 7
        for warp in self.machine.warps_of(s):
            self.begun.add(warp)
            self.machine.pending.hold(warp, READ, 1, {row}, (), pc)
        self.machine.progress += 1
        self.machine.scheduler.wake(self.name)

    def block(self, f, i):
        if len(self.begun) < self.machine.clocks.warps:
            f.wait = self.name
            return False
        for warp in f.warps:
            self.machine.pending.release(warp, READ, 1)
        f.pc += 1
        return True

    def waits(self, f, pc):
        return f"{len(self.begun)} warps have begun"

    def finish(self):
        self.machine.reporter.add("left-pending", 0, f"{len(self.begun)} warps were late")


@pytest.fixture
def late(monkeypatch):
    for owner in (program, machine):
        monkeypatch.setattr(owner, "UNITS", (*UNITS, Late))
    form = forms.form
    mine = forms.Form("run", "9.9", "late", (), True)
    monkeypatch.setattr(forms, "form", lambda op: mine if op.startswith("late.") else form(op))
    monkeypatch.setitem(
        FAMILIES,
        "late",
        lambda op: [f"late.read({op.writer.index(op.args[0])}, {op.s}, {op.pc})"],
    )


def run(wait):
    out = np.zeros(64, np.uint32)
    return out, launch(TEXT.format(wait=wait), [out], grid=1, block=2 * WARP)


def kinds(done):
    return [d.kind for d in done.diagnostics]


def test_its_instructions_wait_and_its_registers_are_watched(late):
    out, done = run("late.wait;")
    assert (out == 7).all()
    assert kinds(done) == ["left-pending"]
    assert "2 warps were late" in done.diagnostics[0].message


def test_its_register_is_touched_too_early(late):
    _, done = run("")
    assert kinds(done) == ["pending-accumulator", "left-pending"]
    found = done.diagnostics[0]
    assert "a late read" in found.message
    assert found.missing == READ.missing


def test_it_says_what_a_deadlock_waits_for(late):
    text = TEXT.replace("late.read", "setp.lt.u32 %p1, %r1, 32; @%p1 bra L; late.read")
    out = np.zeros(64, np.uint32)
    done = launch(text.format(wait="L: late.wait;"), [out], grid=1, block=2 * WARP)
    assert set(kinds(done)) == {"deadlock"}
    assert "1 warps have begun" in done.diagnostics[0].message


def test_every_unit_has_a_name_of_its_own():
    assert len({unit.name for unit in UNITS}) == len(UNITS)
