"""Instructions are counted for the source lines that they come from."""

from __future__ import annotations

from mla_var3.evidence import LineFacts
from mla_var3.static.lines import line_facts
from mla_var3.static.sass import Instruction


def test_instructions_are_counted_by_line_in_order():
    found = line_facts(
        [
            Instruction("UTMALDG.3D", "/somewhere/k.py", 14),
            Instruction("LDL.128", "/somewhere/k.py", 12),
            Instruction("STL", "/somewhere/k.py", 12),
            Instruction("HGMMA.64x64x16.F32.BF16", "/somewhere/k.py", 12),
        ]
    )
    assert found == [
        LineFacts(file="k.py", line=12, instructions=3, mma=1, spill_loads=1, spill_stores=1),
        LineFacts(file="k.py", line=14, instructions=1, tma=1),
    ]


def test_an_instruction_without_a_line_counts_for_none():
    assert line_facts([Instruction("BRA", None, None), Instruction("BRA", "/k.py", 0)]) == []
