"""Emulated atomics: reads, modifies and writes memory as one, and what each operation stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mla_var3.emulator import formats
from mla_var3.emulator.formats import F16, F32, F64, U16
from mla_var3.emulator.lagging import waiting
from mla_var3.emulator.within import withhold
from mla_var3.emulator.words import Keeps

if TYPE_CHECKING:
    from mla_var3.emulator.access import Memory

ACQUIRES = ("acquire", "acq_rel")
RELEASES = ("release", "acq_rel")


def reach_of(order: str) -> tuple[str, str]:
    """How an access is ordered, and for whom: ``cta``, ``cluster``, or ``gpu`` and beyond."""
    kind, _, reach = order.partition(".")
    return kind, reach or "gpu"


def atomic(
    memory: Memory,
    space: str,
    operation: str,
    kind: str,
    address: Any,
    values: list[Any],
    count: int,
    s: Any,
    pc: int,
    order: str,
) -> list[Any]:
    """Read, modify and write in one state space.

    Args:
        memory: That of the cluster.
        space: Its name.
        operation: Such as ``add`` and ``cas``.
        kind: Type of an operand.
        address: Of each thread [n].
        values: Operands, ``count`` arrays [n]; of ``cas`` what is compared, then what is new.
        count: Elements that follow each other.
        s: The threads.
        pc: The instruction.
        order: How it is ordered.

    Returns:
        What stood there before: ``count`` arrays [n] of codes.
    """
    m, width = memory.machine, np.dtype(code(kind)).itemsize
    order, reach = reach_of(order)
    size = width * count
    if space == "shared":
        at, good = memory.shared_at(address, size, s, pc, "atomic")
        if m.checks:
            m.shadow_atomic(m.shared.granules(at, size), s, pc)
        keep = slice(None) if good is None else good
        return _modify(m.shared.views[width], at // width, operation, kind, values, count, keep)
    if space != "global":
        raise m.reporter.stop(pc, f"an atomic on {space} memory is not emulated")
    out = [np.zeros(len(address), code(kind)) for _ in range(count)]
    signal = kind[0] in "usb" or operation in ("exch", "cas")
    if signal:
        learns = order in ACQUIRES or m.model.relaxed_publishes
        with waiting(m, s):
            m.words.acquire(address, m.warp[s], learns, reach)
        if m.trace is not None:
            m.trace.read_words(m.number, address, m.warp[s], pc)
    for region, at, part in memory.global_at(address, size, s, pc, "atomic"):
        chosen = slice(None) if part is None else part
        memory.note(region, at, size, pc, True, s, True, part)
        subset = [v[chosen] for v in values]
        view, index = region.views[width], at // width
        with m.lock:
            old = _modify(view, index, operation, kind, subset, count, slice(None))
            changed = any((view[index + j] != old[j]).any() for j in range(count))
        m.memory_map.changes += changed
        if not changed:
            m.scheduler.asks(pc)
        for target, value in zip(out, old, strict=True):
            target[chosen] = value
    if signal:
        whole = order in RELEASES or m.model.relaxed_publishes
        keeps: Keeps = "near" if learns and whole and reach == "gpu" else "all"
        m.words.release(address, m.warp[s], whole, keeps, reach)
        withhold(m, s, pc)
        if m.trace is not None:
            m.trace.write_words(m.number, address, m.warp[s], pc)
    m.progress += 1
    return out


def code(kind: str) -> str:
    """Unsigned numpy type of the codes of an atomic's operand."""
    return {"f16x2": "u4", "bf16x2": "u4", "f16": "u2", "bf16": "u2"}.get(
        kind, f"u{int(kind[1:]) // 8 if kind[1:].isdigit() else 4}"
    )


def _modify(
    view: Any, index: Any, operation: str, kind: str, values: list[Any], count: int, keep: Any
) -> list[Any]:
    """Apply the operation thread after thread; values of ``cas`` are compare and new."""
    olds = [np.zeros(len(index), view.dtype) for _ in range(count)]
    lanes = np.arange(len(index))[keep]
    for j in range(count):
        extra = values[count:] if operation == "cas" else []
        chosen = index[lanes] + j
        if len(np.unique(chosen)) == len(chosen):
            old = view[chosen]
            view[chosen] = combine(
                operation, kind, old, values[j][lanes], *(e[lanes] for e in extra)
            )
            olds[j][lanes] = old
            continue
        for i in lanes:
            at = slice(int(index[i]) + j, int(index[i]) + j + 1)
            old = view[at].copy()
            view[at] = combine(
                operation, kind, old, values[j][i : i + 1], *(e[i : i + 1] for e in extra)
            )
            olds[j][i] = old[0]
    return olds


def combine(operation: str, kind: str, old: Any, value: Any, new: Any = None) -> Any:
    """What an atomic stores, as codes."""
    old = np.ascontiguousarray(old)
    value = np.ascontiguousarray(value).astype(old.dtype)
    match operation:
        case "exch":
            return value
        case "cas":
            return np.where(old == value, new, old)
        case "and":
            return old & value
        case "or":
            return old | value
        case "xor":
            return old ^ value
        case "inc":
            return np.where(old >= value, old.dtype.type(0), old + old.dtype.type(1))
        case "dec":
            return np.where((old == 0) | (old > value), value, old - old.dtype.type(1))
    a, b = _numbers(old, kind), _numbers(value, kind)
    result = {"add": np.add, "min": np.minimum, "max": np.maximum}[operation](a, b)
    return _codes(result, kind)


def _numbers(codes: Any, kind: str) -> Any:
    match kind:
        case "f32":
            return codes.view(F32)
        case "f64":
            return codes.view(F64)
        case "f16":
            return codes.view(F16)
        case "bf16":
            return formats.from_bf16(codes)
    return codes.view(f"i{codes.itemsize}") if kind[0] == "s" else codes


def _codes(numbers: Any, kind: str) -> Any:
    match kind:
        case "bf16":
            return formats.to_bf16(numbers)
        case "f16":
            return numbers.view(U16)
    return numbers.view(f"u{numbers.itemsize}")
