"""PTX of others: nothing that stands in it is ever run as Python.

The run takes fixed seeds; ``nox -s fuzz`` takes as many as it is told.
"""

from __future__ import annotations

import builtins
import random
import re
import sys

import numpy as np
import pytest

from mla_var3.emulator.launcher import launch
from mla_var3.emulator.lower.base import SPECIAL
from mla_var3.emulator.machine import Machine
from mla_var3.emulator.options import Options
from mla_var3.emulator.program import Program
from mla_var3.errors import EmulatorError
from mla_var3.gpuless.ptx import parse
from tests.emulator.kernels import ALL, MIRROR
from tests.emulator.test_hostile import HEAD, TAIL
from tests.hostile import CALL, with_other_tokens

CASES = 300
#: All that lowered code may name.
NAMES = re.compile(
    r"(bank_)?(rs|rf|r|qs|qf|q|hs|hf|h|p|k)\d*|np|fn|formats|F16|F32|F64|U16|U32|U64|I32|I64|machine"
    r"|memory|sync|words|warps|mma|wgmma|bulk|cp_async|budgets|parameters|def|f|s|t|x|y|pass|for|in|or|and"
    r"|None|True|False|dtype|" + "|".join(SPECIAL.values())
)


def sources(program: Program) -> list[str]:
    return [text for s in program.segments.values() for text in (s.source, s.batched)]


def unnamed(source: str) -> set[str]:
    """Names in lowered code that are not its own; what stands in quotes or after a dot is none."""
    bare = re.sub(r"'[\w.:]*'", "0", source)
    assert "'" not in bare
    words = re.findall(r"(?<![\w.])[^\W\d]\w*", bare)
    return {word for word in words if not NAMES.fullmatch(word)}


def attempt(text: str, arguments: list, block: int, cluster: int) -> str:
    """Read, lower and run a text; what it is refused with, or nothing."""
    try:
        program = Program(parse(text))
        assert not set().union(*map(unnamed, sources(program)))
        options = Options(max_steps=300, jobs=1)
        launch(program, arguments, cluster, block, cluster=cluster, options=options)
    except EmulatorError as error:
        return str(error)
    return ""


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list:
    calls: list = []
    monkeypatch.setattr(builtins, "ran", calls, raising=False)
    return calls


def test_hostile_tokens_are_refused_or_mean_nothing(ran: list) -> None:
    names = sorted(ALL)
    samples = {n: ALL[n].ptx() for n in names}
    refused = 0
    for seed in range(CASES):
        rng = random.Random(seed)
        kernel = ALL[rng.choice(names)]
        case = kernel.case()
        text = with_other_tokens(samples[kernel.name], seed)
        said = attempt(text, case.arguments, kernel.block, kernel.cluster)
        assert "\n" not in said, seed
        refused += bool(said)
    assert not ran
    assert refused > CASES // 3


@pytest.mark.parametrize(
    "operand",
    [f"%x[{CALL}]", f"%tid.x[{CALL}]", f"%{CALL}", "%r1[0]", "%a(1)", "%r0 or %r1", "%r0\\", "'a'"],
)
def test_text_that_is_no_operand_is_refused(ran: list, operand: str) -> None:
    with pytest.raises(EmulatorError, match="is not an operand of PTX"):
        parse(f"{HEAD}.reg .b32 %r<4>; mov.u32 %r0, {operand}; ret;{TAIL}")
    assert not ran


@pytest.mark.parametrize("name", ["%np", "%machine.x", "%tid", "%tid.w", "%ctaid.x.y", "%pm0"])
def test_unknown_special_registers_are_not_emulated(name: str) -> None:
    text = f"{HEAD}.reg .b32 %r<4>; mov.u32 %r0, {name}; ret;{TAIL}"
    with pytest.raises(EmulatorError, match=r"mov\.u32 is not emulated"):
        launch(text, [], 1, 32)


@pytest.mark.parametrize("other", ["%f0", "%r0"])
def test_a_number_is_no_predicate(other: str) -> None:
    text = (
        f"{HEAD}.reg .pred %p<2>; .reg .f32 %f<9>; .reg .b32 %r<9>; "
        f"or.pred %p1, %p0, {other}; ret;{TAIL}"
    )
    with pytest.raises(EmulatorError, match=r"or\.pred is not emulated"):
        launch(text, [], 1, 32)


@pytest.mark.parametrize("kind", ["b9999999999", "b99999", "b1025"])
def test_absurd_types_are_refused(kind: str) -> None:
    with pytest.raises(EmulatorError, match="is not a type of PTX"):
        Program(parse(f"{HEAD}.reg .{kind} %r<4>; mov.{kind} %r0, 1; ret;{TAIL}"))


def test_a_machine_has_every_special_register(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[str]] = []
    start = Machine.start

    def spy(self: Machine, *args: object) -> None:
        seen.append(set(self.special))
        start(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Machine, "start", spy)
    launch(MIRROR.ptx(), [np.zeros((3, 128), "f4"), np.zeros((3, 128), "f4"), 3], 1, 128)
    own = {"shared_window"}  # Of the machine, where addresses of shared variables begin.
    assert seen[0] - own == {row.removeprefix("sp_") for row in SPECIAL.values()}
    assert sys.modules["builtins"] is builtins
