"""Online softmax of a warpgroup: lazy rescaling, causal mask, and weights as wgmma operand."""

from __future__ import annotations

import operator

import cutlass
import cutlass.cute as cute
from cutlass import Float32, const_expr, range_constexpr

from mla_var3.kernel.cute_python.kit.slabs import KEYS

#: A finite start keeps exp2(old - new) defined for rows that see no key at all.
LOWEST = -1.0e30
LN_2 = 0.6931471805599453


def reduced(combine, values):
    """Values combined pairwise, as a tree, which has few steps that wait for each other."""
    while len(values) > 1:
        pairs = [combine(*values[i : i + 2]) for i in range(0, len(values) - 1, 2)]
        values = pairs + values[len(pairs) * 2 :]
    return values[0]


@cute.jit
def softmax(wg, tile, lazy: cutlass.Constexpr, hide: cutlass.Constexpr = None):
    """Scores to weights under a running maximum; ``shrink`` is what older sums are worth.

    With ``lazy`` a maximum is raised only by more than that (log2); None raises it in each tile.
    ``hide`` masks in place of ``mask``.
    """
    if (tile + 1) * KEYS > wg.limit[2]:
        if const_expr(hide is None):
            mask(wg, tile)
        else:
            hide(wg, tile)
    for r in range_constexpr(2):
        mine = [4 * j + 2 * r + i for j in range(8) for i in range(2)]  # the row's 16 scores
        top = reduced(cute.arch.fmax, [wg.score[i] for i in mine])
        top = cute.arch.fmax(top, cute.arch.shuffle_sync_bfly(top, 1))
        top = cute.arch.fmax(top, cute.arch.shuffle_sync_bfly(top, 2))
        old, top = wg.row_max[r], top * wg.scale_log2
        new = raised(old, top, lazy)
        wg.shrink[r] = cute.math.exp2(old - new, fastmath=True)
        wg.row_max[r] = new
        for i in mine:
            wg.score[i] = cute.math.exp2(wg.score[i] * wg.scale_log2 - new, fastmath=True)
        total = reduced(operator.add, [wg.score[i] for i in mine])
        wg.row_sum[r] = wg.row_sum[r] * wg.shrink[r] + total
    round_weights(wg)


@cute.jit
def raised(old, top, lazy: cutlass.Constexpr):
    """The running maximum after a tile whose highest score is ``top``."""
    new = cute.arch.fmax(old, top)
    if const_expr(lazy is not None):
        new = top if top - old > lazy else old
    return new


@cute.jit
def mask(wg, tile):
    """Hide the keys that a row does not see."""
    for i in range_constexpr(cute.size(wg.score)):
        key = tile * KEYS + 8 * (i // 4) + 2 * (wg.lane % 4) + i % 2
        hidden = key >= wg.limit[i // 2 % 2]
        wg.score[i] = -Float32.inf if hidden else wg.score[i]


@cute.jit
def round_weights(wg):
    """Weights in the element type, as the A operand."""
    flat = cute.make_tensor(wg.weights.iterator, wg.score.layout)
    flat.store(wg.score.load().to(wg.weights.element_type))


@cute.jit
def store_weights(wg):
    """Write the own weights to shared memory, where the other warpgroup reads them."""
    flat = cute.make_tensor(wg.weights.iterator, wg.score.layout)
    cute.copy(wg.store, wg.store_thread.retile(flat), wg.own_weights)


@cute.jit
def publish_max(wg, side: cutlass.Constexpr):
    """Write the running maximum to shared memory; one thread per row does."""
    if wg.lane % 4 == 0:
        for r in range_constexpr(2):
            wg.maxima[side, wg.row + 8 * r] = wg.row_max[r]


@cute.jit
def adopt_max(wg, side: cutlass.Constexpr):
    """Take over the maximum that the other warpgroup has raised."""
    for r in range_constexpr(2):
        new = wg.maxima[side, wg.row + 8 * r]
        wg.shrink[r] = cute.math.exp2(wg.row_max[r] - new, fastmath=True)
        wg.row_max[r] = new
        wg.row_sum[r] = wg.row_sum[r] * wg.shrink[r]


@cute.jit
def rescale(values, shrink):
    """Multiply rows by ``shrink``; skipped where no row of the warp has moved."""
    if cute.arch.vote_any_sync(shrink[0] * shrink[1] != Float32(1.0)):
        for i in range_constexpr(cute.size(values)):
            values[i] = values[i] * shrink[i // 2 % 2]


@cute.jit
def rescale_weights(wg):
    """Multiply weights by ``shrink``, and round them again; skipped where no row has moved."""
    if cute.arch.vote_any_sync(wg.shrink[0] * wg.shrink[1] != Float32(1.0)):
        for i in range_constexpr(cute.size(wg.score)):
            wg.score[i] = wg.score[i] * wg.shrink[i // 2 % 2]
        round_weights(wg)
