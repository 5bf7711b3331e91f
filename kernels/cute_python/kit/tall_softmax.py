"""Softmax of a row per thread: scores from tensor memory to weights under a running maximum."""

from __future__ import annotations

import operator
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, const_expr, range_constexpr

from mla_var3.kernel.cute_python.kit.slabs import KEYS
from mla_var3.kernel.cute_python.kit.softmax import LOWEST, raised, reduced
from mla_var3.kernel.cute_python.kit.tensor_memory import columns, load_lane, store_lane

#: Columns that a thread holds at a time while it rescales or stores an output.
CHUNK = 32


class Row(NamedTuple):
    """What a thread keeps of its row."""

    limit: Int32  # one past the last key that it sees
    least: Int32  # the same for the row of the tile that sees fewest
    length: Int32  # of the sequence
    top: cute.Tensor  # running maximum, log2
    total: cute.Tensor  # running sum of weights


def seen(work, row, length):
    """One past the last key that a row sees; bottom-right aligned, so it may be below 1."""
    return cutlass.min(row // work.heads + (length - work.masked + 1), length)


def begin(work, first, row, length, end):
    """An empty sum of row ``row`` of a tile that begins with row ``first``.

    ``end`` is one past the last key of a part, or more.
    """
    top, total = cute.make_rmem_tensor(1, Float32), cute.make_rmem_tensor(1, Float32)
    top[0], total[0] = LOWEST, 0.0
    limit, least = [cutlass.min(seen(work, x, length), end) for x in (row, first)]
    return Row(limit, least, length, top, total)


@cute.jit
def hide(score, row, tile, box: cutlass.Constexpr):
    """Keys that the row does not see, and places of boxes without keys (``kit/pages.py``)."""
    for i in range_constexpr(KEYS):
        first = tile * KEYS + i // box * box
        kept = cutlass.max(cutlass.min(row.length - first, box), 0)
        place = i % box - (box - kept)
        hidden = (place < 0) | (first + place >= row.limit)
        score[i] = -Float32.inf if hidden else score[i]


def highest(score):
    """The highest of 64 scores."""
    return reduced(cute.arch.fmax, [score[i] for i in range(KEYS)])


@cute.jit
def exponentials(
    score, row, top, lazy: cutlass.Constexpr, scale_log2, boost: cutlass.Constexpr = 0
):
    """Scores to weights, where ``top`` is the highest; gives what older sums are worth.

    Weights are 2**boost times as large as they would be, and so are the sums of them.
    """
    old, highest = row.top[0], top * scale_log2
    if const_expr(boost):
        highest = highest - boost
    new = raised(old, highest, lazy)
    shrink = cute.math.exp2(old - new, fastmath=True)
    for i in range_constexpr(KEYS):
        score[i] = cute.math.exp2(score[i] * scale_log2 - new, fastmath=True)
    total = reduced(operator.add, [score[i] for i in range(KEYS)])
    row.top[0], row.total[0] = new, row.total[0] * shrink + total
    return shrink


@cute.jit
def rescale(base, first, count: cutlass.Constexpr, shrink):
    """Multiply this thread's lane of so many columns."""
    for i in cutlass.range(count // CHUNK, unroll=1):
        part = columns(base, first + CHUNK * i, CHUNK)
        values = load_lane(part)
        for j in range_constexpr(CHUNK):
            values[j] = values[j] * shrink
        store_lane(values, part)


@cute.jit
def inverse_total(row):
    """One over the row's sum; nothing of a row that sees no key."""
    total = row.total[0]
    return Float32(0.0) if total == 0.0 else Float32(1.0) / total


def log_sum(row):
    """The LSE to base 2."""
    return row.top[0] + cute.math.log2(row.total[0], fastmath=True)


@cute.jit
def store_lse(row, work, place, lse, unit, empty, sequence):
    """The LSE of row ``place`` of a sequence."""
    value = log_sum(row) * unit
    value = empty if row.total[0] == 0.0 else value
    lse[sequence, place % work.heads, place // work.heads, 0] = value


@cute.jit
def store_chunk(values, inverse, target, column, dtype: cutlass.Constexpr):
    """So many columns of a row, from column ``column * CHUNK`` of ``target`` on."""
    rounded = cute.make_rmem_tensor(CHUNK, dtype)
    rounded.store((values.load() * inverse).to(dtype))
    cute.autovec_copy(rounded, cute.local_tile(target, (CHUNK,), (column,)))
