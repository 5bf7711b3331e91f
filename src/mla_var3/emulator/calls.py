"""Emulated device functions: runs PTX calls of printf and assertion failure, and ends on others."""

from __future__ import annotations

import ctypes
import linecache
import re
import struct
from typing import TYPE_CHECKING

import numpy as np

from mla_var3.errors import EmulatorError
from mla_var3.gpuless.ptx import Instruction

if TYPE_CHECKING:
    from mla_var3.emulator.fragments import Fragment
    from mla_var3.emulator.machine import Machine

SPEC = re.compile(r"%[-+ #0]*(?:\d+|\*)?(?:\.\d+)?(hh|h|ll|l|z|j|t)?([diouxXcfFeEgGaAsp%])")


def call(machine: Machine, f: Fragment, i: Instruction) -> None:
    """``call`` of a known function; any other ends the launch."""
    names = [a for a in i.args if not a.startswith("(")]
    name = names[0]
    given = (
        [x.strip() for x in i.args[-1].strip("()").split(",")] if i.args[-1].startswith("(") else []
    )
    if name == "vprintf":
        _printf(machine, f, given)
        if i.args[0].startswith("("):
            at = machine.program.local[i.args[0].strip("() ")]
            machine.memory.local.bytes[f.ids, at : at + 4] = 0
            machine.memory.local.known[f.ids, at : at + 4] = True
        return
    if name == "__assertfail":
        text, file = (_text(_word(machine, int(f.ids[0]), p)) for p in given[:2])
        number = _word(machine, int(f.ids[0]), given[2]) & 0xFFFFFFFF
        where = f" ({file}:{number})" if file else ""
        raise machine.reporter.stop(
            i.pc, f"an assertion of the kernel fails: {text}{where}, {_threads(machine, f)},"
        )
    raise machine.reporter.stop(i.pc, f"the call of {name:.60} is not emulated")


def trapped(machine: Machine, f: Fragment, i: Instruction) -> EmulatorError:
    """What ends a launch at a ``trap``: mostly an assertion, whose text PTX has no longer."""
    file, line = machine.program.kernel.place(i)
    source = linecache.getline(file, line).strip() if file and line else ""
    if "assert" in source:
        what = f"an assertion of the kernel fails: {source:.200}"
    else:
        what = f"the kernel stops itself ({i.op})"
    return machine.reporter.stop(i.pc, f"{what}, {_threads(machine, f)},")


def _threads(machine: Machine, f: Fragment) -> str:
    """Threads in words: the first, its CTA, and how many more."""
    more = f" and {f.n - 1} more" if f.n > 1 else ""
    return f"{machine.thread(f.s, 0)} of CTA {machine.index}{more}"


def _word(machine: Machine, thread: int, parameter: str) -> int:
    at = machine.program.local[parameter]
    return int(machine.memory.local.bytes[thread, at : at + 8].view(np.uint64)[0])


def _text(address: int) -> str:
    return ctypes.string_at(address).decode(errors="replace") if address else ""


def _printf(machine: Machine, f: Fragment, given: list[str]) -> None:
    for thread in f.ids.tolist():
        text = _text(_word(machine, thread, given[0]))
        start = _word(machine, thread, given[1]) & (1 << 48) - 1
        frame = machine.memory.local.bytes[thread].tobytes()[start:]
        machine.printed.append(_format(text, frame))


def _format(text: str, frame: bytes) -> str:
    """``printf`` with arguments packed as variadic: ints in 4 bytes, the rest in 8, aligned."""
    at = 0

    def one(match: re.Match[str]) -> str:
        nonlocal at
        size, kind = match.groups()
        if kind == "%":
            return "%"
        wide = kind in "fFeEgGaAsp" or size in ("l", "ll", "z", "j", "t")
        width = 8 if wide else 4
        at = -(-at // width) * width
        raw = frame[at : at + width]
        at += width
        spec = match[0].replace(size or "", "") if size else match[0]
        if kind in "fFeEgGaA":
            return spec % struct.unpack("<d", raw)
        value = int.from_bytes(raw, "little", signed=kind in "di")
        if kind == "s":
            return spec % _text(value)
        return spec.replace("p", "#x").replace("u", "d") % value

    return SPEC.sub(one, text)
