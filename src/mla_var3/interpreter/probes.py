"""Probes of an interpreted launch: keep watched lines, find the first NaN, infinity, wrapped index.

Probes are built into a program when it is lowered, so a launch without them pays nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import torch
from cuda.tile import _datatype as dt
from cuda.tile._ir.type import TileTy

from mla_var3.interpreter import taint
from mla_var3.interpreter.launch_report import Watched
from mla_var3.interpreter.names import assigned_name

if TYPE_CHECKING:
    from mla_var3.interpreter.program import Env, Runtime, SourceLine, Step
    from mla_var3.interpreter.slots import Slots


@dataclass(frozen=True)
class Probes:
    """What is looked at.

    Attributes:
        watch: Lines, as ``"file.py:12"``, whose values are kept.
        numerics: Whether the first NaN, the first infinity and wrapped indices are looked for.
    """

    watch: tuple[str, ...] = ()
    numerics: bool = False

    def watches(self, where: SourceLine) -> bool:
        """Tells whether a line is watched."""
        file, line = PurePath(where[0]), where[1]
        return any(
            spec.rpartition(":")[2] == str(line) and file.match(spec.rpartition(":")[0])
            for spec in self.watch
        )


def probed(probes: Probes, step: Step, op: Any, lo: Slots, loc: Any) -> Step:
    """Returns a step that also does what the probes ask for."""
    if lo.local is not None:
        return step
    where = (loc.filename or "<unknown>", loc.line)
    if probes.watches(where):
        step = _watching(step, op, lo, loc)
    if probes.numerics and _is_float(op):
        step = _judging(step, op, lo, where)
    return step


def _watching(step: Step, op: Any, lo: Slots, loc: Any) -> Step:
    if not op.result_vars or not isinstance(op.result_vars[0].get_type(), TileTy):
        return step
    slot, name = lo.slot(op.result_vars[0]), assigned_name(loc) or op.op
    where = (loc.filename, loc.line)
    # Of the operations of one expression, the last one has its value.
    span = (*where, loc.col, loc.last_line, loc.end_col)
    lo.watched[span] = slot

    def watch(env: Env, rt: Runtime) -> None:
        step(env, rt)
        if lo.watched[span] != slot:
            return
        value = env[slot]
        kept = value.clone() if isinstance(value, torch.Tensor) else value
        rt.watched.append(Watched(where, rt.block, name, kept))

    return watch


# ----------------------------------------------------------------------------------- numerics


def _is_float(op: Any) -> bool:
    """Tells whether an operation makes floats that a program computes, not names or constants."""
    if len(op.result_vars) == 0 or op.op in ("typed_const", "make_dummy", "assign"):
        return False
    ty = op.result_vars[0].get_type()
    return isinstance(ty, TileTy) and dt.is_float(ty.dtype)


def _judging(step: Step, op: Any, lo: Slots, where: SourceLine) -> Step:
    r, dtype = lo.slot(op.result_vars[0]), op.result_vars[0].get_type().dtype
    tiles = [v for v in op.all_inputs() if isinstance(v.get_type(), TileTy)]
    inputs = lo.slots([v for v in tiles if dt.is_arithmetic(v.get_type().dtype)])
    overflow = "float16-overflow" if dtype is dt.float16 else "infinity"

    def judge(env: Env, rt: Runtime) -> None:
        step(env, rt)
        out = env[r]
        if bool(torch.isfinite(out).all()):
            return
        for kind, test in (("nan", torch.isnan), (overflow, torch.isinf)):
            bad = test(out)
            found = rt.taints.get(r)
            if found is not None:
                bad = bad & ~found.mask
            if kind not in rt.judged and bool(bad.any()) and not _had(env, inputs, test):
                rt.judged.add(kind)
                rt.log.add(kind, where, _born(env, rt, op, inputs, bad, kind), "warning")

    return judge


def _had(env: Env, inputs: tuple[int, ...], test: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    values = (env[slot] for slot in inputs)
    return any(bool(test(v).any()) for v in values if isinstance(v, torch.Tensor))


_SAY = {
    "nan": "the first NaN",
    "infinity": "the first infinity",
    "float16-overflow": "the first value that rounds beyond 65504, the largest of float16,",
}


def _born(
    env: Env, rt: Runtime, op: Any, inputs: tuple[int, ...], bad: torch.Tensor, kind: str
) -> str:
    at = tuple(int(i) for i in bad.nonzero()[0])
    text = f"{_SAY[kind]} comes from {getattr(op, 'fn', op.op)} here, in block {rt.block}"
    text += f" at element {at}" if at else ""
    operands = [element(env[slot], at, tuple(bad.shape)) for slot in inputs]
    shown = [o for o in operands if o is not None]
    return text + (f", of {', '.join(shown)}" if shown else "")


def element(value: Any, at: tuple[int, ...], shape: tuple[int, ...]) -> str | None:
    """Returns the operand at an element of a result, if operand and result have one shape."""
    if not isinstance(value, torch.Tensor):
        return str(value)
    if tuple(value.shape) != shape:
        return None
    number = value[at].item()
    return f"{number:g}" if isinstance(number, float) else str(number)


def wrap_checked(step: Step, op: Any, lo: Slots, where: SourceLine) -> Step:
    """Follows elements of signed integers that wrapped, to report them in an address."""
    a, b, r = lo.slot(op.lhs), lo.slot(op.rhs), lo.slot(op.result_var)
    origin = taint.Origin("index-overflow", where, f"an {op.result_var.get_type().dtype}")
    functions: dict[str, Callable[[Any, Any], Any]] = {
        "add": operator.add,
        "sub": operator.sub,
        "mul": operator.mul,
    }
    exact = functions[op.fn]

    def check(env: Env, rt: Runtime) -> None:
        step(env, rt)
        wide = exact(torch.as_tensor(env[a]).long(), torch.as_tensor(env[b]).long())
        wrapped = wide != env[r]
        if bool(wrapped.any()):
            rt.taints[r] = taint.made(rt, wrapped, origin)

    return check
