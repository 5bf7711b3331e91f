"""Interpreter handlers of control flow (loops, branches, return), assertions and printing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from mla_var3.errors import InterpreterError
from mla_var3.interpreter import taint
from mla_var3.interpreter.debugger import MARK, stop
from mla_var3.interpreter.handlers import handler
from mla_var3.interpreter.launch_report import SourceLine
from mla_var3.interpreter.lowering import Lowering
from mla_var3.interpreter.ops.undetermined import in_decision
from mla_var3.interpreter.probes import element
from mla_var3.interpreter.program import (
    BREAK,
    CONTINUE,
    END,
    RETURN,
    Code,
    Env,
    Run,
    Runtime,
    Signal,
    Wait,
    line_of,
)
from mla_var3.interpreter.show import large, nested, window
from mla_var3.interpreter.ways import place_of


def _hand_over(env: Env, rt: Runtime, sources: Sequence[int], targets: Sequence[int]) -> None:
    """Assigns several slots at once, taints included."""
    values = [env[s] for s in sources]
    if rt.taints:
        taints = [rt.taints.get(s) for s in sources]
        for target, found in zip(targets, taints, strict=True):
            taint.assign(rt, target, found)
    for target, value in zip(targets, values, strict=True):
        env[target] = value


def _same(old: Any, new: Any) -> bool:
    if old is new:
        return True
    if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor):
        if not old.is_floating_point():
            return torch.equal(old, new)
        # The sign of a zero can end a loop; all NaN are one.
        alike = (old == new) & (torch.signbit(old) == torch.signbit(new))
        return bool((alike | (torch.isnan(old) & torch.isnan(new))).all())
    return not isinstance(old, torch.Tensor) and not isinstance(new, torch.Tensor) and old == new


#: Iterations that look at shared memory and change none, after which others may run.
_PATIENCE = 64


class _Loop(NamedTuple):
    """What counted loops and others have.

    Attributes:
        initial: Slots of what the first iteration is given.
        body_vars: Slots of what an iteration is given.
        results: Slots of what the loop leaves.
        where: Its line.
        code: Its body.
    """

    initial: Sequence[int]
    body_vars: Sequence[int]
    results: Sequence[int]
    where: SourceLine
    code: Code

    @property
    def size(self) -> int:
        """Steps of an iteration."""
        return max(1, self.code.size)

    def finish(self, env: Env, rt: Runtime, sources: Sequence[int]) -> None:
        """Leave the results."""
        _hand_over(env, rt, sources[: len(self.results)], self.results)


@handler("loop")
def loop(op: Any, lo: Lowering) -> Any:
    """A counted loop, or one without end that leaves by break."""
    one = _Loop(
        lo.slots(op.initial_values), lo.slots(op.body_vars), lo.slots(op.result_vars),
        line_of(op), lo.block(op.body),
    )  # fmt: skip
    return _counted(op, lo, one) if op.is_for_loop else _endless(one)


def _counted(op: Any, lo: Lowering, one: _Loop) -> Any:
    initial, body_vars, _, where, code = one
    bounds, size = lo.slots((op.start, op.stop, op.step)), one.size
    counter, place = lo.slot(op.induction_var), place_of(where)
    fixed = all(lo.constant(bound) is not None for bound in (op.start, op.stop, op.step))
    kind = "fixed loop" if fixed else "loop"

    def counted(env: Env, rt: Runtime) -> Run:
        if rt.taints:
            in_decision(rt, bounds, where, "the bounds of a loop")
        start, stop, by = (env[b] for b in bounds)
        if by <= 0:
            raise InterpreterError(
                f"{where[0]}:{where[1]}: block {rt.block} steps a loop by {by}; "
                "the step of a range must be positive"
            )
        _hand_over(env, rt, initial, body_vars)
        turns = len(range(start, stop, by))
        rt.went(kind, place, "none" if not turns else "one" if turns == 1 else "many")
        idle = 0
        for i in range(start, stop, by):
            rt.spend(size, where)
            env[counter] = i
            if rt.taints:
                rt.taints.pop(counter, None)
            version, looks = rt.memory.version, rt.memory.looks
            signal = yield from code.run(env, rt)
            if signal is None or signal.kind == RETURN:
                return signal
            _hand_over(env, rt, signal.slots, body_vars)
            if signal.kind == BREAK:
                break
            if version == rt.memory.version and looks != rt.memory.looks:
                idle += 1
                if idle % _PATIENCE == 0:
                    yield Wait(where, idle=False)
        one.finish(env, rt, body_vars)
        return None

    return counted


def _endless(one: _Loop) -> Any:
    initial, body_vars, _, where, code = one
    size = one.size

    def endless(env: Env, rt: Runtime) -> Run:
        _hand_over(env, rt, initial, body_vars)
        idle = 0
        while True:
            rt.spend(size, where)
            version, looks = rt.memory.version, rt.memory.looks
            carried = [env[s] for s in body_vars]
            signal = yield from code.run(env, rt)
            if signal is None or signal.kind == RETURN:
                return signal
            if signal.kind == BREAK:
                one.finish(env, rt, signal.slots)
                return None
            _hand_over(env, rt, signal.slots, body_vars)
            if version != rt.memory.version:
                continue
            waits = looks != rt.memory.looks
            idle += waits
            if all(_same(old, env[s]) for old, s in zip(carried, body_vars, strict=True)):
                if not waits:
                    raise _never_ends(rt, where)
                yield Wait(where, idle=True)
            elif waits and idle % _PATIENCE == 0:
                yield Wait(where, idle=False)

    return endless


def _never_ends(rt: Runtime, where: SourceLine) -> InterpreterError:
    return InterpreterError(
        f"{where[0]}:{where[1]}: this loop never ends: an iteration of block {rt.block} changed "
        "nothing"
    )


@handler("ifelse")
def ifelse(op: Any, lo: Lowering) -> Any:
    """A branch on a scalar."""
    cond, results, where = lo.slot(op.cond), lo.slots(op.result_vars), line_of(op)
    then, other, place = lo.block(op.then_block), lo.block(op.else_block), place_of(where)

    def step(env: Env, rt: Runtime) -> Run:
        if rt.taints:
            in_decision(rt, (cond,), where, "a branch")
        rt.went("branch", place, "taken" if env[cond] else "passed")
        signal = yield from (then if env[cond] else other).run(env, rt)
        if signal is None or signal.kind != END:
            return signal
        _hand_over(env, rt, signal.slots, results)
        return None

    return step


def _terminator(kind: str, variables: Sequence[Any], lo: Lowering) -> Any:
    signal = Signal(kind, lo.slots(variables))

    def step(env: Env, rt: Runtime) -> Signal:
        return signal

    return step


@handler("continue")
def continue_(op: Any, lo: Lowering) -> Any:
    """The next iteration."""
    return _terminator(CONTINUE, op.values, lo)


@handler("break")
def break_(op: Any, lo: Lowering) -> Any:
    """The end of a loop."""
    return _terminator(BREAK, op.values, lo)


@handler("end_branch")
def end_branch(op: Any, lo: Lowering) -> Any:
    """The end of a branch."""
    return _terminator(END, op.outputs, lo)


@handler("return")
def return_(op: Any, lo: Lowering) -> Any:
    """The end of the kernel."""
    return _terminator(RETURN, (), lo)


# ------------------------------------------------------------------------------ observation


@handler("assert")
def assert_(op: Any, lo: Lowering) -> Any:
    """Ends the launch where a condition does not hold."""
    cond, message, (file, line) = lo.slot(op.cond), op.message, line_of(op)
    compared = _comparison(op.cond, lo)

    def step(env: Env, rt: Runtime) -> None:
        if rt.taints:
            in_decision(rt, (cond,), (file, line), "an assertion")
        holds = torch.as_tensor(env[cond])
        if bool(holds.all()):
            return
        at = tuple(int(i) for i in (~holds).nonzero()[0]) if holds.ndim else ()
        text = f"{file}:{line}: assertion failed in block {rt.block}"
        text += f" at element {at}, one of {int((~holds).sum())}" if at else ""
        if compared is not None:
            a, symbol, b = compared
            left, right = (element(env[s], at, tuple(holds.shape)) for s in (a, b))
            text += f": {left} {symbol} {right} is false"
        raise InterpreterError(text + (f": {message}" if message else ""))

    return step, taint.own


_SYMBOLS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _comparison(cond: Any, lo: Lowering) -> tuple[int, str, int] | None:
    """Returns the slots that a condition compares, and how, if it is a comparison."""
    op = lo.defining.get(cond.name)
    if op is None or op.op != "raw_cmp":
        return None
    return lo.slot(op.lhs), _SYMBOLS[op.fn], lo.slot(op.rhs)


_SPECIFIER = re.compile(r"%%|%([ #0+-]*)([0-9]*)(\.[0-9]+)?(?:hh|h|ll|l)?([diuoxXeEfFgGaA])")


@handler("tile_printf")
def tile_printf(op: Any, lo: Lowering) -> Any:
    """Prints; a tile prints as nested lists of its elements, each in the format given."""
    args, types = lo.slots(op.args), [a.get_type() for a in op.args]
    for result in op.result_vars:
        lo.slot(result)
    text = op.format
    if text == MARK:
        return stop(lo, line_of(op)), taint.own

    def step(env: Env, rt: Runtime) -> None:
        if rt.print_blocks is not None and rt.block not in rt.print_blocks:
            return
        values = iter(zip((env[a] for a in args), types, strict=True))

        def render(match: re.Match[str]) -> str:
            if match.group() == "%%":
                return "%"
            value, ty = next(values)
            if isinstance(value, torch.Tensor) and value.numel() > rt.print_limit:
                part = _listed(window(value), ty.dtype)
                return large(value, lambda item: _formatted(item, match), part)
            return nested(_listed(value, ty.dtype), lambda item: _formatted(item, match))

        print(_SPECIFIER.sub(render, text), end="")

    return step, taint.own


def _listed(value: Any, dtype: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if dtype.name == "uint64":
        return _wrapped_list(value.tolist())
    return value.tolist()


def _wrapped_list(value: Any) -> Any:
    if isinstance(value, list):
        return [_wrapped_list(item) for item in value]
    return value % 2**64


def _formatted(value: Any, match: re.Match[str]) -> str:
    flags, width, precision, kind = match.groups()
    precision = precision or ""
    if kind in "aA":
        text = float(value).hex()
        return (text.upper() if kind == "A" else text).rjust(int(width or 0))
    if kind in "diuoxX":
        value = int(value)
    return f"%{flags}{width}{precision}{'d' if kind == 'u' else kind}" % value
