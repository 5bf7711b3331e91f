"""Causal limits, bottom-right aligned: how many keys a row sees, or all or any of a tile's rows."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32, const_expr

from mla_var3.kernel.cute_python.kit.slabs import ROWS


def seen(row, queries, keys, causal: cutlass.Constexpr):
    """One past the last key that a row sees; bottom-right aligned, so it may be below 1."""
    return row % queries + (keys - queries + 1) if causal else keys


@cute.jit
def seen_by_all(first, queries, keys, causal: cutlass.Constexpr):
    """Keys that each of the rows ``first`` to ``first + 63`` sees."""
    least = keys
    if const_expr(causal):
        query = first % queries
        # Rows that reach the next head meet its first query.
        query = Int32(0) if query + ROWS > queries else query
        least = seen(query, queries, keys, causal)
    return least


def seen_by_any(first, queries, keys, causal: cutlass.Constexpr, rows=ROWS):
    """Keys that at least one of ``rows`` rows from ``first`` on sees."""
    if not causal:
        return keys
    last = cutlass.min(first % queries + (rows - 1), queries - 1)
    return cutlass.max(seen(last, queries, keys, causal), 0)
