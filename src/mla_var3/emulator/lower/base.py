"""Shared parts of PTX lowering: registry of opcode families, and source text of operands.

``lower`` returns the Python lines for one instruction; the modules beside this one register a
function per opcode family and write operands, results and addresses by ``Op`` and ``Writer``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from mla_var3.emulator.lower import forms
from mla_var3.emulator.windows import PARAM_WINDOW
from mla_var3.gpuless.ptx import FAULTS, Instruction, bits

if TYPE_CHECKING:
    from mla_var3.emulator.program import Program

Family = Callable[["Op"], list[str]]
FAMILIES: dict[str, Family] = {}
#: Hints, which change no value.
NOTHING = {
    "prefetch",
    "prefetchu",
    "nanosleep",
    "discard",
    "applypriority",
    "pmevent",
}


#: Operand with the mask of the lanes whose values are put together: other masks, other groups.
MASKS = {"shfl": 4, "vote": 2, "redux": 2, "match": 2, "elect": 1}

#: Special registers that a machine has, as rows named ``sp_...``; lowered code reads no others.
SPECIAL = {
    name: f"sp_{name[1:].replace('.', '_')}"
    for name in (
        *("%laneid", "%warpid", "%nwarpid", "%smid", "%nsmid", "%gridid"),
        *("%dynamic_smem_size", "%total_smem_size", "%is_explicit_cluster"),
        *("%cluster_ctarank", "%cluster_nctarank", "%envreg0"),
        *("%clock", "%clock64", "%clock_hi", "%globaltimer", "%globaltimer_lo"),
        *(f"%lanemask_{test}" for test in ("eq", "le", "lt", "ge", "gt")),
        *(
            f"%{stem}.{axis}"
            for stem in ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid")
            for axis in "xyz"
        ),
        *(f"%cluster_{stem}.{axis}" for stem in ("ctaid", "nctaid") for axis in "xyz"),
    )
}


class NotLowered(ValueError):
    """This form of an instruction has no lowering; running it ends the launch with a sentence."""


def family(*names: str) -> Callable[[Family], Family]:
    """Register the lowering of all opcodes whose first word is one of ``names``."""

    def register(function: Family) -> Family:
        for name in names:
            FAMILIES[name] = function
        return function

    return register


def lower(writer: Writer, instruction: Instruction) -> list[str]:
    """Python lines that do what an instruction does for the threads ``s``."""
    if not forms.runs(instruction.op):
        return [f"machine.unsupported({instruction.pc})"]
    if instruction.parts[0] in NOTHING:
        return []
    guarded = instruction.guard is not None
    who = "t" if guarded else "s"
    mask = _mask(writer, instruction)
    op = Op(writer, instruction, "u" if mask else who)
    try:
        body = FAMILIES[instruction.parts[0]](op)
    except FAULTS:
        body = [f"machine.unsupported({instruction.pc})"]
    if mask:
        body = [f"for u in machine.groups({mask}, {who}):", *("  " + line for line in body)]
    if not guarded:
        return body
    found = writer.program.row(instruction.guard or "")
    if found is None or found[0] != "p":
        return [f"machine.unsupported({instruction.pc})"]
    guard = f"p{found[1]}"
    head = f"for t in machine.select({guard}, s, {instruction.negated}, {instruction.pc}):"
    return [head, *("  " + line for line in body or ["pass"])]


def _mask(writer: Writer, instruction: Instruction) -> str | None:
    """Row of the mask of lanes that an instruction names, where it may differ among them."""
    at = MASKS.get(instruction.parts[0])
    if at is None or at >= len(instruction.args):
        return None
    found = writer.program.row(instruction.args[at])
    return None if found is None else f"{found[0]}{found[1]}"


#: Bits of the registers of each group but predicates.
_WIDTHS = {"h": 16, "r": 32, "q": 64}


class Writer:
    """Names of rows and of constants, as the lowered source uses them."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def index(self, name: str) -> int:
        """Number of a register's row."""
        found = self.program.row(name)
        if found is None:
            raise NotLowered(name)
        return found[1]

    def constant(self, value: Any) -> str:
        """Name of a constant."""
        name = f"k{len(self.program.constants)}"
        self.program.constants[name] = value
        return name

    def read(self, name: str, kind: str, s: str) -> str:
        """Expression for an operand as values of a PTX type: row, special register or constant."""
        found = self.program.row(name)
        if found is not None:
            return self._row(found, kind, s)
        if name.startswith("%"):
            return self._special(name, kind, s)
        constant = self.constant(self.immediate(name, kind))
        return self.own(name, constant, s) if bits(kind) >= 32 else constant

    def own(self, text: str, constant: str, s: str) -> str:
        """A shared variable's address; where CTAs work in pairs it names the thread's CTA."""
        if self.program.pairs and text.partition("+")[0].strip() in self.program.placed:
            return f"({constant} + sp_shared_window[{s}])"
        return constant

    def _special(self, name: str, kind: str, s: str) -> str:
        if name not in SPECIAL:
            raise NotLowered(name)
        row = f"{SPECIAL[name]}[{s}]"
        return row if bits(kind) == 32 else f"{row}.astype(np.uint{bits(kind)})"

    def _row(self, found: tuple[str, int], kind: str, s: str) -> str:
        group, number = found
        if (kind == "pred") != (group == "p"):
            raise NotLowered(kind)
        if kind == "pred":
            return f"p{number}[{s}]"
        have, want = _WIDTHS[group], bits(kind)
        if want > have:
            raise NotLowered(kind)
        if want < have:
            low = f"{group}{number}[{s}].astype(np.uint{want})"
            return f"{low}.view({numpy_name(kind)})" if kind[0] in "sf" else low
        return f"{row_name(group, number, kind)}[{s}]"

    def immediate(self, text: str, kind: str) -> Any:
        """A constant operand as a numpy scalar of the PTX type."""
        width = bits(kind)
        if kind == "pred":
            return bool(int(text))
        if text == "WARP_SZ":
            text = "32"
        if text.startswith(("0f", "0F")):
            raw = struct.unpack("<f", struct.pack("<I", int(text[2:], 16)))[0]
            return (
                np.dtype(f"f{width // 8}").type(raw)
                if kind[0] == "f"
                else np.uint32(int(text[2:], 16))
            )
        if text.startswith(("0d", "0D")):
            raw = struct.unpack("<d", struct.pack("<Q", int(text[2:], 16)))[0]
            return (
                np.dtype(f"f{width // 8}").type(raw)
                if kind[0] == "f"
                else np.uint64(int(text[2:], 16))
            )
        if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", text):
            return integer(_octal(text.rstrip("U")), kind)
        if kind[0] == "f":
            return np.dtype(f"f{width // 8}").type(float(text))
        return integer(self.symbol(text), kind)

    def symbol(self, text: str) -> int:
        """Address of a variable, in the space that it lives in."""
        name, _, offset = text.partition("+")
        at = int(offset or 0)
        name = name.strip()
        program = self.program
        for p in program.kernel.parameters:
            if p.name == name:
                return PARAM_WINDOW + p.offset + at
        for placed in (program.placed, program.local):
            if name in placed:
                return placed[name] + at
        if name in program.kernel.variables:
            return program.address_of(name) + at
        raise NotLowered(text)

    def write(self, name: str, kind: str, s: str, value: str) -> list[str]:
        """Lines that store ``value``, of a PTX type, to a register."""
        if name == "_":
            return [value]
        found = self.program.row(name)
        if found is None:
            raise NotLowered(name)
        group, number = found
        if kind != "pred" and group != "p" and bits(kind) < (have := _WIDTHS[group]):
            # A wider register takes a narrow value with its sign, or with zeros.
            kind = f"s{have}" if kind[0] == "s" else f"u{have}"
        return [f"{row_name(group, number, kind)}[{s}] = {value}"]


def _octal(text: str) -> int:
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    if len(digits) > 1 and digits.startswith("0") and digits.isdigit():
        return sign * int(digits, 8)
    return sign * int(digits, 0)


def row_name(group: str, number: int, kind: str) -> str:
    """``rf3`` for float32 values in the row of a 32-bit register."""
    if group == "p":
        return f"p{number}"
    return f"{group}{kind[0] if kind[0] in 'sf' else ''}{number}"


def numpy_name(kind: str) -> str:
    """``np.int16`` for s16; bits count as unsigned."""
    word = {"s": "int", "f": "float"}.get(kind[0], "uint")
    return f"np.{word}{bits(kind)}"


def integer(value: int, kind: str) -> Any:
    """An integer as a numpy scalar of a PTX type, wrapped to its width."""
    width = bits(kind)
    code = np.array(value & (1 << width) - 1, f"u{width // 8}")
    view = {"s": "i", "f": "f"}.get(kind[0], "u")
    return code.view(f"{view}{width // 8}")[()]


class Op:
    """One instruction while it is lowered; ``s`` names the variable that holds its threads."""

    def __init__(self, writer: Writer, instruction: Instruction, s: str) -> None:
        self.writer, self.instruction, self.s = writer, instruction, s
        self.parts, self.args = instruction.parts, instruction.args
        self.kind = instruction.parts[-1]
        self.pc = instruction.pc

    @property
    def modifiers(self) -> set[str]:
        return set(self.parts[1:])

    def has(self, *names: str) -> bool:
        """Whether the opcode has one of these modifiers."""
        return not self.modifiers.isdisjoint(names)

    def get(self, operand: int | str, kind: str | None = None) -> str:
        """Expression for an operand, by number or as text."""
        text = self.args[operand] if isinstance(operand, int) else operand
        if text.startswith("!"):
            return f"~{self.writer.read(text[1:].strip(), kind or self.kind, self.s)}"
        return self.writer.read(text, kind or self.kind, self.s)

    def put(self, value: str, kind: str | None = None, operand: int | str = 0) -> list[str]:
        """Lines that store ``value`` to an operand."""
        text = self.args[operand] if isinstance(operand, int) else operand
        return self.writer.write(text, kind or self.kind, self.s, value)

    def raw(self) -> str:
        """The type with bits taken as unsigned."""
        return "u" + self.kind[1:] if self.kind[0] == "b" else self.kind

    def address(self, operand: int | str) -> str:
        """Expression for ``[register+offset]`` or ``[symbol+offset]``."""
        text = self.args[operand] if isinstance(operand, int) else operand
        inside = re.sub(r"\+\s*-", "+-", text.strip()[1:-1].strip())
        plus = re.search(r"\s*\+\s*(-?(?:0x)?[0-9a-fA-F]+)$", inside)
        base, offset = (inside[: plus.start()], int(plus[1], 0)) if plus else (inside, 0)
        found = self.writer.program.row(base)
        if found is None:
            value = self.writer.symbol(base) if not base.isdigit() else int(base)
            constant = self.writer.constant(np.uint64(value + offset))
            return self.writer.own(base, constant, self.s)
        group = found[0]
        word = np.uint64 if group == "q" else np.uint32
        expression = f"{group}{found[1]}[{self.s}]"
        if not offset:
            return expression
        mask = (1 << 64) - 1 if group == "q" else (1 << 32) - 1
        return f"({expression} + {self.writer.constant(word(offset & mask))})"

    def constant(self, value: Any) -> str:
        """Name of a constant."""
        return self.writer.constant(value)

    def vector(self, operand: int | str) -> list[str]:
        """Registers of ``{...}``, or the one register that an operand is."""
        text = self.args[operand] if isinstance(operand, int) else operand
        return [x.strip() for x in text[1:-1].split(",")] if text.startswith("{") else [text]

    def pair(self, operand: int) -> tuple[str, str | None]:
        """``%r1|%p1`` to both registers."""
        first, _, second = self.args[operand].partition("|")
        return first.strip(), second.strip() or None

    def rounding(self) -> str:
        """Rounding mode: rn, rz, rm or rp."""
        return next((m for m in ("rz", "rm", "rp") if m in self.parts), "rn")
