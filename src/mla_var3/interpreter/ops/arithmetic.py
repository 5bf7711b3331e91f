"""Interpreter handlers of elementwise operations: arithmetic, comparison, conversion, ``where``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from cuda.tile import _datatype as dt
from cuda.tile._datatype import DType
from cuda.tile._numeric_semantics import RoundingMode

from mla_var3.errors import InterpreterError
from mla_var3.interpreter import taint
from mla_var3.interpreter.arrays import Pointer
from mla_var3.interpreter.conversions import cast, flush_subnormals, full, round_float
from mla_var3.interpreter.exact import exact_directed, fma, sqrt
from mla_var3.interpreter.handlers import handler
from mla_var3.interpreter.lowering import Lowering
from mla_var3.interpreter.ops import scalars
from mla_var3.interpreter.ops.undetermined import undefined_result, with_fresh
from mla_var3.interpreter.probes import wrap_checked
from mla_var3.interpreter.program import Env, Runtime, Step, line_of
from mla_var3.interpreter.taint import Origin
from mla_var3.interpreter.values import from_bits, to_bits, to_scalar, to_tensor, wrap

Binary = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Unary = Callable[[torch.Tensor], torch.Tensor]

_DIRECTED = (RoundingMode.RZ, RoundingMode.RM, RoundingMode.RP)


def binary_step(a: int, b: int, r: int, fn: Binary) -> Step:
    """Returns the closure that applies a function to two slots."""

    def step(env: Env, rt: Runtime) -> None:
        env[r] = fn(env[a], env[b])

    return step


def unary_step(a: int, r: int, fn: Callable[[Any], Any]) -> Step:
    """Returns the closure that applies a function to one slot."""

    def step(env: Env, rt: Runtime) -> None:
        env[r] = fn(env[a])

    return step


# ------------------------------------------------------------------------------ arithmetic


def _float_binary(fn: str, propagate_nan: bool) -> Binary:
    if fn in ("min", "max"):
        if propagate_nan:
            return torch.minimum if fn == "min" else torch.maximum
        return torch.fmin if fn == "min" else torch.fmax
    return _FLOAT_BINARY[fn]


_FLOAT_BINARY: dict[str, Binary] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "truediv": torch.div,
    "floordiv": lambda a, b: torch.floor(a / b),
    "pow": torch.pow,
    "atan2": torch.atan2,
    "c_mod": torch.fmod,
}


def _with_modes(
    fn: str, plain: Callable[..., torch.Tensor], op: Any, dtype: Any
) -> Callable[..., torch.Tensor]:
    """Wraps a float function with its rounding mode, flushing and tf32 rounding."""
    if op.rounding_mode in _DIRECTED:
        mode = op.rounding_mode

        def directed(*xs: torch.Tensor) -> torch.Tensor:
            return exact_directed(fn, torch.broadcast_tensors(*xs), dtype, mode)

        plain = directed
    if op.flush_to_zero:
        inner = plain

        def flushed(*xs: torch.Tensor) -> torch.Tensor:
            return flush_subnormals(inner(*(flush_subnormals(x) for x in xs)))

        plain = flushed
    if dtype is dt.tfloat32:
        unrounded = plain
        return lambda *xs: round_float(unrounded(*xs), dt.tfloat32, None)
    return plain


def _unsigned64(fn: Callable[[Any, Any], Any]) -> Binary:
    """Applies a numpy function to uint64, which torch has no arithmetic for."""

    def apply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        out = fn(a.numpy().view(np.uint64), b.numpy().view(np.uint64))
        if out.dtype == np.bool_:
            return torch.from_numpy(np.asarray(out))
        return torch.from_numpy(np.asarray(out).view(np.int64))

    return apply


_DIVIDE_UNSIGNED64: dict[str, Callable[[Any, Any], Any]] = {
    "floordiv": np.floor_divide,
    "c_mod": np.remainder,
    "cdiv": lambda a, b: a // b + (a % b != 0).astype(np.uint64),
}


def _divide(mode: str, dtype: Any) -> Binary:
    """Integer division (or remainder) by divisors that are not zero."""
    if dtype is dt.uint64:
        return _unsigned64(_DIVIDE_UNSIGNED64[mode])

    def divide(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a, b = a.long(), b.long()
        # The smallest int64 divided by -1 traps on x86; negation wraps as the quotient does.
        minus = b == -1
        b = torch.where(minus, 1, b)
        if mode == "c_mod":
            return wrap(torch.where(minus, 0, torch.fmod(a, b)), dtype)
        quotient = torch.div(a, b, rounding_mode="floor")
        if mode == "cdiv":
            quotient = quotient + (quotient * b != a)
        return wrap(torch.where(minus, -a, quotient), dtype)

    return divide


def _checked_division(op: Any, lo: Lowering, dtype: Any) -> Step:
    """Division by divisors that may be zero, whose quotient is undefined."""
    a, b, r = lo.slot(op.lhs), lo.slot(op.rhs), lo.slot(op.result_var)
    divide, where = _divide(op.fn, dtype), line_of(op)
    fail = undefined_result(r, Origin("division-by-zero", where), lo)

    def step(env: Env, rt: Runtime) -> None:
        y = env[b]
        zero = y == 0
        if bool(zero.any()):
            fail(rt, zero)
            y = torch.where(zero, 1, y)
            env[r] = torch.where(zero, wrap(torch.tensor(rt.int_poison), dtype), divide(env[a], y))
            return
        env[r] = divide(env[a], y)

    return step


def _int_binary(fn: str, dtype: Any) -> Binary:
    if fn in ("min", "max"):
        if dtype is dt.uint64:
            return _unsigned64(np.minimum if fn == "min" else np.maximum)
        return torch.minimum if fn == "min" else torch.maximum
    plain = _FLOAT_BINARY[fn]  # add, sub and mul are the same functions for integers
    if dtype in (dt.uint16, dt.uint32):
        return lambda a, b: wrap(plain(a, b), dtype)
    return plain


@handler("raw_binary_arith")
def raw_binary_arith(op: Any, lo: Lowering) -> Any:
    """Addition, subtraction, products, quotients, remainders, powers, minimum, maximum."""
    dtype = op.result_var.get_type().dtype
    a, b, r = lo.slot(op.lhs), lo.slot(op.rhs), lo.slot(op.result_var)
    if dt.is_float(dtype):
        kind = {"truediv": "div", "floordiv": "div", "c_mod": "mod"}.get(op.fn, op.fn)
        lo.count(kind, math.prod(op.result_var.get_type().shape))
        fn = _with_modes(op.fn, _float_binary(op.fn, op.propagate_nan), op, dtype)
        return binary_step(a, b, r, fn)
    if op.fn in ("floordiv", "cdiv", "c_mod"):
        scalar = lo.is_scalar(op.result_var)
        build = scalars.division if scalar else _checked_division
        return with_fresh(build(op, lo, dtype), op, lo)
    if lo.is_scalar(op.result_var):
        step = scalars.binary_arith(op, lo)
        if op.fn in ("add", "sub") and dt.is_signed(dtype):
            return with_fresh(step, op, lo)
    else:
        step = binary_step(a, b, r, _int_binary(op.fn, dtype))
        if _may_wrap(op, lo, dtype):
            step = wrap_checked(step, op, lo, line_of(op))
            if op.fn != "mul":
                return with_fresh(step, op, lo)
    if op.fn == "mul" and lo.local is None:
        return step, taint.annihilated(a, b, r, 0)
    return step


def _may_wrap(op: Any, lo: Lowering, dtype: Any) -> bool:
    """Tells whether integers that wrap are looked for here; those of 64 bits are not."""
    signed = dt.is_signed(dtype) and dtype.bitwidth < 64
    return signed and lo.probes.numerics and lo.local is None and op.fn in ("add", "sub", "mul")


@handler("raw_fpowi")
def raw_fpowi(op: Any, lo: Lowering) -> Any:
    """A float base to an integer power."""
    ty = op.result_var.get_type()
    lo.count("pow", math.prod(ty.shape))
    held, dtype = lo.slot(op.base), op.exponent.get_type().dtype
    exponent, r = lo.slot(op.exponent), lo.slot(op.result_var)

    def step(env: Env, rt: Runtime) -> None:
        base = env[held]
        power = to_tensor(env[exponent], dtype)
        env[r] = round_float(torch.pow(base.double(), power.double()), ty.dtype, None)

    return step


@handler("fma")
def fused_multiply_add(op: Any, lo: Lowering) -> Any:
    """Lhs * rhs + acc, rounded once."""
    dtype = op.result_var.get_type().dtype
    a, b, c, r = (lo.slot(v) for v in (op.lhs, op.rhs, op.acc, op.result_var))
    lo.count("fma", 2 * math.prod(op.result_var.get_type().shape))
    fn = _with_modes("fma", fma, op, dtype)

    def step(env: Env, rt: Runtime) -> None:
        env[r] = fn(env[a], env[b], env[c])

    return step


# Those whose results are not counted as floating-point operations are left out of FLOPs.
_NOT_COUNTED = frozenset({"neg", "abs", "floor", "ceil"})

_FLOAT_UNARY: dict[str, Unary] = {
    "abs": torch.abs,
    "neg": torch.neg,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "sin": torch.sin,
    "cos": torch.cos,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "tan": torch.tan,
    "tanh": torch.tanh,
    "log": torch.log,
    "log2": torch.log2,
    "sqrt": sqrt,
    "rsqrt": torch.rsqrt,
    "floor": torch.floor,
    "ceil": torch.ceil,
}

# The largest float32 subnormal; ``threshold`` keeps what is above it, and NaN.
_LARGEST_SUBNORMAL = 2.0**-126 - 2.0**-149


def _flushed_exp2(x: torch.Tensor) -> torch.Tensor:
    """exp2 with flushing: an input that is flushed gives 1 either way, and results have no sign."""
    return torch.threshold(torch.exp2(x), _LARGEST_SUBNORMAL, 0.0)


@handler("unaryop")
def unaryop(op: Any, lo: Lowering) -> Any:
    """Elementwise functions of one tile."""
    ty = op.result_var.get_type()
    if lo.is_scalar(op.result_var):
        return scalars.unary(op, lo)
    x, r = lo.slot(op.operand), lo.slot(op.result_var)
    if dt.is_float(ty.dtype):
        if op.fn not in _NOT_COUNTED:
            lo.count(op.fn, math.prod(ty.shape))
        if op.fn == "exp2" and op.flush_to_zero:
            return unary_step(x, r, _flushed_exp2)
        return unary_step(x, r, _with_modes(op.fn, _FLOAT_UNARY[op.fn], op, ty.dtype))
    if op.fn in ("invert", "bitwise_not", "not_"):
        fn: Unary = torch.logical_not if dt.is_boolean(ty.dtype) else torch.bitwise_not
    elif dt.is_boolean(ty.dtype):  # abs; a bool is never negative
        return unary_step(x, r, lambda v: v)
    else:
        fn = {"neg": torch.neg, "abs": torch.abs}[op.fn]
    if ty.dtype in (dt.uint16, dt.uint32):
        return unary_step(x, r, lambda v: wrap(fn(v), ty.dtype))
    return unary_step(x, r, fn)


# --------------------------------------------------------------------- comparison and bits

_COMPARE: dict[str, Binary] = {
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
}

_COMPARE_UNSIGNED64: dict[str, Binary] = {
    "lt": _unsigned64(np.less),
    "le": _unsigned64(np.less_equal),
    "gt": _unsigned64(np.greater),
    "ge": _unsigned64(np.greater_equal),
}


@handler("raw_cmp")
def raw_cmp(op: Any, lo: Lowering) -> Any:
    """Elementwise comparison."""
    dtype = op.lhs.get_type().dtype
    a, b, r = lo.slot(op.lhs), lo.slot(op.rhs), lo.slot(op.result_var)
    if lo.is_scalar(op.result_var):
        return scalars.compare(op, lo)
    if dtype is dt.uint64 and op.fn in _COMPARE_UNSIGNED64:
        return binary_step(a, b, r, _COMPARE_UNSIGNED64[op.fn])
    return binary_step(a, b, r, _COMPARE[op.fn])


@handler("raw_binary_bitwise")
def raw_binary_bitwise(op: Any, lo: Lowering) -> Any:
    """Bitwise and, or, exclusive or."""
    a, b, r = lo.slot(op.lhs), lo.slot(op.rhs), lo.slot(op.result_var)
    if lo.is_scalar(op.result_var):
        step = scalars.bitwise(op, lo)
    else:
        fn = {"and_": torch.bitwise_and, "or_": torch.bitwise_or, "xor": torch.bitwise_xor}[op.fn]
        step = binary_step(a, b, r, fn)
    if op.fn == "and_" and lo.local is None:
        return step, taint.annihilated(a, b, r, 0)
    if op.fn == "or_" and dt.is_boolean(op.result_var.get_type().dtype) and lo.local is None:
        return step, taint.annihilated(a, b, r, True)
    return step


@handler("raw_bitwise_shift")
def raw_bitwise_shift(op: Any, lo: Lowering) -> Any:
    """Shifts; a count that is not below the width has no defined result."""
    dtype = op.result_var.get_type().dtype
    if lo.is_scalar(op.result_var):
        return with_fresh(scalars.shift(op, lo), op, lo)
    a, b, r = lo.slot(op.lhs), lo.slot(op.rhs), lo.slot(op.result_var)
    width = dtype.bitwidth
    fail = undefined_result(r, Origin("shift-range", line_of(op)), lo)
    fn: Binary = torch.bitwise_right_shift
    if op.fn == "lshift":
        fn = _shift_left(dtype)
    elif dtype is dt.uint64:
        fn = _unsigned64(np.right_shift)

    def step(env: Env, rt: Runtime) -> None:
        x, n = env[a], env[b]
        bad = (n < 0) | (n >= width)
        if bool(bad.any()):
            fail(rt, bad)
            n = torch.where(bad, 0, n)
            env[r] = torch.where(bad, wrap(torch.tensor(rt.int_poison), dtype), fn(x, n))
            return
        env[r] = fn(x, n)

    return with_fresh(step, op, lo)


def _shift_left(dtype: Any) -> Binary:
    return lambda x, n: wrap(x << n, dtype)


# ------------------------------------------------------------------ selection and conversion


@handler("raw_where")
def raw_where(op: Any, lo: Lowering) -> Any:
    """Elementwise selection."""
    c, x, y, r = (lo.slot(v) for v in (op.cond, op.x, op.y, op.result_var))
    if lo.is_scalar(op.cond):

        def pick(env: Env, rt: Runtime) -> None:
            env[r] = env[x] if env[c] else env[y]

        return pick, taint.selected(c, x, y, r)
    if dt.is_foreign_pointer_dtype(op.result_var.get_type().dtype):
        return _where_pointer(op, lo)

    def step(env: Env, rt: Runtime) -> None:
        env[r] = torch.where(env[c], env[x], env[y])

    return step, taint.selected(c, x, y, r) if lo.local is None else taint.own


def _where_pointer(op: Any, lo: Lowering) -> Step:
    c, x, y, r = (lo.slot(v) for v in (op.cond, op.x, op.y, op.result_var))
    file, line = line_of(op)

    def step(env: Env, rt: Runtime) -> None:
        p, q = env[x], env[y]
        if p.array is not q.array:
            raise InterpreterError(
                f"{file}:{line}: a tile of pointers selects between {p.array.name!r} and "
                f"{q.array.name!r}; the interpreter follows pointers into one array only"
            )
        chosen = torch.where(env[c], torch.as_tensor(p.offset), torch.as_tensor(q.offset))
        env[r] = Pointer(p.array, chosen, p.itemsize)

    return step


@handler("tile_astype")
def tile_astype(op: Any, lo: Lowering) -> Any:
    """Conversion between dtypes."""
    source, target = op.x.get_type().dtype, op.result_var.get_type().dtype
    x, r = lo.slot(op.x), lo.slot(op.result_var)
    mode = None if op.rounding_mode is RoundingMode.RN else op.rounding_mode
    step = _conversion(op, lo, x, r, source, target, mode)
    return _narrowing(step, op) if _narrows(op, lo, source, target) else step


def _narrows(op: Any, lo: Lowering, source: DType, target: DType) -> bool:
    """Tells whether an index that grows with the problem is put into 16 bits or fewer."""
    if lo.local is not None or not all(map(_is_integer, (source, target))):
        return False
    return target.bitwidth < _INDEX_BITS <= source.bitwidth and lo.grows(op.x)


def _is_integer(dtype: DType) -> bool:
    return not (dt.is_float(dtype) or dt.is_boolean(dtype))


def _narrowing(step: Step, op: Any) -> Step:
    where, target = line_of(op), op.result_var.get_type().dtype
    highest = dt.IntegerInfo(target).max

    def told(env: Env, rt: Runtime) -> None:
        if not rt.log.seen("narrow-index", where):
            rt.log.add(
                "narrow-index",
                where,
                f"an index that grows with the problem is made {target}, which holds {highest} at "
                "most: beyond it wraps around",
                "warning",
            )
        step(env, rt)

    return told


def _conversion(
    op: Any, lo: Lowering, x: int, r: int, source: DType, target: DType, mode: Any
) -> Step:
    if lo.is_scalar(op.result_var):
        if lo.is_scalar(op.x):
            return unary_step(x, r, scalars.converter(target))
        return unary_step(x, r, lambda v: to_scalar(cast(v, source, target, mode), target))
    if lo.is_scalar(op.x):
        return unary_step(x, r, lambda v: cast(to_tensor(v, source), source, target, mode))
    if _plain_conversion(source, target) and mode is None:
        to = _PLAIN[target]
        return unary_step(x, r, lambda v: v.to(to))
    return unary_step(x, r, lambda v: cast(v, source, target, mode))


#: An index of fewer bits may be too narrow for the extents of a problem.
_INDEX_BITS = 32
_PLAIN = {
    dt.float16: torch.float16,
    dt.bfloat16: torch.bfloat16,
    dt.float32: torch.float32,
}


def _plain_conversion(source: Any, target: Any) -> bool:
    """Tells whether torch's own conversion rounds once, to nearest even."""
    return source in _PLAIN and target in _PLAIN


@handler("tile_bitcast")
def tile_bitcast(op: Any, lo: Lowering) -> Any:
    """The same bits under another dtype."""
    source, target = op.x.get_type().dtype, op.result_var.get_type().dtype
    x, r, scalar = lo.slot(op.x), lo.slot(op.result_var), lo.is_scalar(op.result_var)

    def step(env: Env, rt: Runtime) -> None:
        out = from_bits(to_bits(to_tensor(env[x], source), source), target)
        env[r] = to_scalar(out, target) if scalar else out

    return step


@handler("tile_pack")
def tile_pack(op: Any, lo: Lowering) -> Any:
    """A one-dimensional tile as its bytes, little end first; 4-bit values low half first."""
    dtype = op.x.get_type().dtype
    x, r = lo.slot(op.x), lo.slot(op.result_var)

    def step(env: Env, rt: Runtime) -> None:
        bits = to_bits(env[x], dtype)
        if dtype.bitwidth == 4:
            env[r] = bits[0::2] | (bits[1::2] << 4)
        else:
            env[r] = bits.clone(memory_format=torch.contiguous_format).view(torch.uint8)

    return step, _regrouped(op, lo)


@handler("tile_unpack")
def tile_unpack(op: Any, lo: Lowering) -> Any:
    """The inverse of packing."""
    dtype = op.result_var.get_type().dtype
    x, r = lo.slot(op.x), lo.slot(op.result_var)
    bits_dtype = {16: torch.int16, 32: torch.int32, 64: torch.int64}.get(dtype.bitwidth)

    def step(env: Env, rt: Runtime) -> None:
        packed = env[x].contiguous()
        if bits_dtype is None:
            bits = torch.stack((packed & 0xF, packed >> 4), dim=-1).flatten()
        else:
            bits = packed.view(bits_dtype)
        env[r] = from_bits(bits, dtype)

    return step, _regrouped(op, lo)


def _regrouped(op: Any, lo: Lowering) -> taint.Rule:
    """The taint of a tile whose elements are cut up or joined: by groups of bytes."""
    x, r = lo.slot(op.x), lo.slot(op.result_var)
    old, new = op.x.get_type().shape[0], op.result_var.get_type().shape[0]

    if new >= old:
        return taint.reshaped(x, r, lambda labels: labels.repeat_interleave(new // old))
    return taint.spread([x], [r], lambda mask: mask.reshape(new, old // new).any(-1))


@handler("typed_const")
def typed_const(op: Any, lo: Lowering) -> Any:
    """A constant."""
    ty, r = op.result_var.get_type(), lo.slot(op.result_var)
    if lo.is_scalar(op.result_var):
        value = scalars.converter(ty.dtype)(op.value)
    elif hasattr(ty, "shape"):
        value = full(ty.shape, op.value, ty.dtype)
    else:
        value = op.value

    def step(env: Env, rt: Runtime) -> None:
        env[r] = value

    return step


@handler("tile_arange")
def tile_arange(op: Any, lo: Lowering) -> Any:
    """0, 1, 2, ..."""
    ty, r = op.result_var.get_type(), lo.slot(op.result_var)
    value = wrap(torch.arange(ty.shape[0]), ty.dtype)

    def step(env: Env, rt: Runtime) -> None:
        env[r] = value

    return step


@handler("assume_div_by")
def assume_div_by(op: Any, lo: Lowering) -> Any:
    """Promises that a value is divisible; reported where it is not."""
    x, r, where = lo.slot(op.x), lo.slot(op.result_var), line_of(op)
    divisor, name = op.divisor, op.x.get_original_name()
    pointer = dt.is_pointer_dtype(op.x.get_type().dtype)

    def step(env: Env, rt: Runtime) -> None:
        value = env[r] = env[x]
        number = value.address() if pointer else int(value)
        if number % divisor:
            subject = f"the address of {value.array.name!r}" if pointer else f"{name!r} = {number}"
            rt.log.add(
                "assumption",
                where,
                f"{subject} is assumed to be divisible by {divisor}, but is not",
                about=name,
            )

    return step


@handler("assume_bounded")
def assume_bounded(op: Any, lo: Lowering) -> Any:
    """Promises that a value lies in a range; reported where it does not."""
    x, r, where = lo.slot(op.x), lo.slot(op.result_var), line_of(op)
    low, high, name = op.lower_bound, op.upper_bound, op.x.get_original_name()

    def step(env: Env, rt: Runtime) -> None:
        value = env[r] = env[x]
        if (low is not None and value < low) or (high is not None and value > high):
            rt.log.add(
                "assumption",
                where,
                f"{name!r} = {value} is assumed to lie in [{low}, {high}], but does not",
                about=name,
            )

    return step
