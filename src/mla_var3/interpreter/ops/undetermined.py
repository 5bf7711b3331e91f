"""Undetermined elements (padding, unwritten memory): fills in poison values, reports their use.

The other handlers call it; ``interpreter.taint`` follows such elements from operation to operation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from cuda.tile import _datatype as dt
from cuda.tile._datatype import DType

from mla_var3.interpreter import taint
from mla_var3.interpreter.conversions import full
from mla_var3.interpreter.launch_report import SourceLine
from mla_var3.interpreter.lowering import Lowering
from mla_var3.interpreter.program import Env, Runtime, Step
from mla_var3.interpreter.values import held_dtype, wrap_int

#: What hardware gives for padding that no mode determines: the tensor memory accelerator fills
#: with zeros (CUDA driver API, cuTensorMapEncodeTiled, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE).
_HARDWARE_PADDING = 0.0

_SAID = {
    "undetermined-padding": "undetermined padding of {!r}, loaded here, reaches",
    "uninitialised-read": "elements of {!r} that nothing wrote, loaded here, reach",
    "division-by-zero": "an integer is divided by zero here; the result, which is not defined, "
    "reaches",
    "shift-range": "an integer is shifted here by a count outside its width; the result, which "
    "is not defined, reaches",
    "index-overflow": "{} wraps around here, and reaches",
}
#: Harmless in a value, which may be meant to wrap; not in an address.
_ADDRESS_ONLY = frozenset({"index-overflow"})
#: Not known to be wrong.
_WARNINGS = frozenset({"index-overflow"})


def poison(rt: Runtime, dtype: DType) -> float | int | bool:
    """Returns the value that stands for an undetermined element."""
    if dt.is_float(dtype):
        return rt.float_poison
    if dt.is_boolean(dtype):
        return True
    return wrap_int(rt.int_poison, dt.int64 if dtype is dt.uint64 else dtype)


def poisoned(rt: Runtime, shape: tuple[int, ...], dtype: DType) -> torch.Tensor:
    """Returns a tile of undetermined elements."""
    if dt.is_float(dtype) and math.isnan(rt.float_poison):
        return torch.full(shape, math.nan, dtype=held_dtype(dtype))
    return full(shape, poison(rt, dtype), dtype)


def determined(padding: float | None, dtype: DType) -> bool:
    """Tells whether a padding mode determines elements; integers have no infinities."""
    return padding is not None and (dt.is_float(dtype) or math.isfinite(padding))


def padding_tile(
    rt: Runtime, shape: tuple[int, ...], dtype: DType, padding: float | None
) -> torch.Tensor:
    """Returns a tile filled with padding, with poison (or what hardware gives) if undetermined."""
    value = padding
    if value is None or not determined(value, dtype):
        if not rt.hardware_padding:
            return poisoned(rt, shape, dtype)
        value = _HARDWARE_PADDING
    if value == 0 and math.copysign(1.0, value) > 0:
        return torch.zeros(shape, dtype=held_dtype(dtype))
    return full(shape, value if dt.is_float(dtype) else int(value), dtype)


def outside_tile(
    rt: Runtime, shape: tuple[int, ...], dtype: DType, padding: float | None
) -> torch.Tensor:
    """Returns a tile that lies wholly outside its array: undefined, but padding on hardware."""
    if rt.hardware_padding:
        return padding_tile(rt, shape, dtype, padding)
    return poisoned(rt, shape, dtype)


def undefined_result(
    r: int, origin: taint.Origin, lo: Lowering
) -> Callable[[Runtime, torch.Tensor], None]:
    """Returns what an operation calls for elements of its result that are not defined.

    They are reported where they reach something, since the front end moves operations to where a
    kernel that is right never uses them; in a combiner, which follows no element, at once.
    """

    def fail(rt: Runtime, mask: torch.Tensor) -> None:
        rt.taints[r] = taint.made(rt, mask, origin)

    def fail_at_once(rt: Runtime, mask: torch.Tensor) -> None:
        report(rt, rt.origins.bit(origin), origin.where, "a reduction or scan", int(mask.sum()))

    return fail if lo.local is None else fail_at_once


def with_fresh(step: Step, op: Any, lo: Lowering) -> Any:
    """Pairs a step that may enter ``Fresh`` elements with the rule that keeps them."""
    if lo.local is not None:
        return step
    inputs, r = lo.slots((op.lhs, op.rhs)), lo.slot(op.result_var)
    return step, taint.augmented(inputs, r, op.result_var.get_type().shape)


def enter(rt: Runtime, slot: int, mask: torch.Tensor | None, origin: taint.Origin) -> None:
    """Adds undetermined elements to the taint of a slot."""
    if mask is None or not bool(mask.any()):
        return
    bit = rt.origins.bit(origin)
    new, found = taint.Taint(mask.long() * bit, bit), rt.taints.get(slot)
    rt.taints[slot] = new if found is None else found | new


def in_decision(
    rt: Runtime, slots: Sequence[int], where: SourceLine, what: str, *, address: bool = False
) -> None:
    """Reports undetermined values that decide an address or a branch."""
    for slot in slots:
        found = rt.taints.get(slot)
        if found is not None:
            report(rt, found.exact_bits(), where, what, address=address)


def in_address(
    env: Env, rt: Runtime, pointer: int, mask: int | None, where: SourceLine, what: str
) -> None:
    """Reports undetermined pointers where the mask lets them be used, and an undetermined mask."""
    if mask is not None:
        in_decision(rt, (mask,), where, what, address=True)
    found = rt.taints.get(pointer)
    if found is not None:
        allowed = None if mask is None else torch.as_tensor(env[mask]).expand(found.labels.shape)
        report(rt, found.exact_bits(allowed), where, what, address=True)


def in_value(
    rt: Runtime,
    found: taint.Taint | None,
    allowed: torch.Tensor | tuple[slice, ...] | None,
    where: SourceLine,
    what: str,
) -> None:
    """Reports undetermined elements that are written where ``allowed`` says so."""
    if found is None:
        return
    labels = found.labels
    if isinstance(allowed, tuple):
        labels = labels[allowed]
    elif allowed is not None:
        labels = torch.where(allowed, labels, 0)
    if bool(labels.any()):
        part = taint.Taint(labels, found.bits)
        report(rt, part.exact_bits(), where, what, int((labels != 0).sum()))


def report(
    rt: Runtime, bits: int, where: SourceLine, what: str, count: int = 1, *, address: bool = False
) -> None:
    """Reports that undetermined values reached what the program is observed by."""
    for origin in rt.origins.named(bits):
        if origin.kind in _ADDRESS_ONLY and not address:
            continue
        about = f"{origin.subject}>{where[0]}:{where[1]}"
        if rt.log.seen(origin.kind, origin.where, about):
            continue
        rt.log.add(
            origin.kind,
            origin.where,
            f"{_SAID[origin.kind].format(origin.subject)} {what} at {where[0]}:{where[1]} in "
            f"block {rt.block}" + (f" ({count} elements)" if count > 1 else ""),
            _severity(rt, origin.kind),
            about=about,
        )


def _severity(rt: Runtime, kind: str) -> Any:
    if kind == "undetermined-padding" and rt.hardware_padding:
        return "info"
    return "warning" if kind in _WARNINGS else "error"
