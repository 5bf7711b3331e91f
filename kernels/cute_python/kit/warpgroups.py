"""Consumer warpgroups of latent attention, left and right: their views, registers and roles."""

from __future__ import annotations

import enum
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, const_expr
from cutlass.cute.nvgpu import warp

from mla_var3.kernel.cute_python.kit.handovers import CONSUMERS
from mla_var3.kernel.cute_python.kit.products import SMEM, output_mma, score_mma
from mla_var3.kernel.cute_python.kit.slabs import (
    HALF,
    KEYS,
    ROPE_SLAB,
    ROWS,
    SLAB,
    SLABS,
    operand_layout,
    shared_slabs,
    value_layout,
)


class Side(enum.IntEnum):
    """The two consumer warpgroups, and the tile of each pair whose weights they make."""

    LEFT = 0
    RIGHT = 1


THREADS = CONSUMERS + 128
CONSUMER_REGISTERS, PRODUCER_REGISTERS = 240, 24
#: The order in which the two sides multiply the slabs of a tile: rope first, since it is freed
#: first, then the own half, which the other warpgroup is waiting to refill.
EVEN_ORDER = (ROPE_SLAB, 0, 1, 2, 3, 4, 5, 6, 7)
ODD_ORDER = (ROPE_SLAB, 4, 5, 6, 7, 0, 1, 2, 3)


class Warpgroup(NamedTuple):
    """Views and registers of one consumer warpgroup; vectors of two are its thread's two rows."""

    full: cute.Pointer  # barriers of the slabs, two tiles of nine
    free: cute.Pointer  # barriers of Free
    q: cute.Tensor  # operand A: [64, 64] x 9 slabs
    k: cute.Tensor  # operand B: [64, 64] x 18 slabs
    v: tuple[cute.Tensor, ...]  # operand B: [256, 64], own columns of the even and the odd tile
    peer_weights: cute.Tensor  # operand A: [64, 64], what the other warpgroup stored
    own_weights: cute.Tensor  # where this one stores its own
    store: cute.TiledCopy  # registers to shared memory by stmatrix
    store_thread: cute.ThrCopy
    maxima: cute.Tensor  # shared [2, 64]: running maximum after the even and the odd tile
    sums: cute.Tensor  # shared [2, 64]
    score: cute.Tensor  # [64, 64] fp32 accumulator
    out: cute.Tensor  # [64, 256] fp32 accumulator
    weights: cute.Tensor  # [64, 64] operand A in registers
    q_rope: cute.Tensor  # [64, 64] operand A in registers
    row_max: cute.Tensor  # in units of log2
    row_sum: cute.Tensor  # over the own tiles and the thread's own columns
    shrink: cute.Tensor  # factor that a raised maximum puts on older sums
    limit: cute.Tensor  # one past the last key that its rows see, and that all of the 64 do
    scale_log2: Float32
    row: Int32  # first row of the thread; the second is eight below
    lane: Int32


@cute.jit
def views(storage, dtype, scale_log2, side: cutlass.Constexpr):
    """Views and registers of one side."""
    thread = cute.arch.thread_idx()[0] % 128
    lane = thread % 32
    row = thread // 32 * 16 + lane // 4
    s_q = shared_slabs(storage.q, dtype, SLABS)  # [64, 64, 9]
    s_kv = shared_slabs(storage.kv, dtype, 2 * SLABS)  # [64, 64, 18]
    even_weights = shared_slabs(storage.weights, dtype, 1)[None, None, 0]
    odd_weights = s_q[None, None, ROPE_SLAB]  # its queries are in registers by then
    own, peer = (
        (even_weights, odd_weights)
        if const_expr(side == Side.LEFT)
        else (odd_weights, even_weights)
    )
    score, out = score_mma(dtype, SMEM), output_mma(dtype, SMEM)
    in_score, in_out = score.get_slice(thread), out.get_slice(thread)
    stmatrix = cute.make_copy_atom(warp.StMatrix8x8x16bOp(False, 4), dtype)
    store = cute.make_tiled_copy_C(stmatrix, score)
    v_layout = value_layout(dtype)
    halves = [
        cute.make_tensor(
            cute.recast_ptr(
                s_kv.iterator + (tile * SLABS + 4 * side) * SLAB * SLAB,
                v_layout.inner,
                dtype,
            ),
            v_layout.outer,
        )
        for tile in range(2)
    ]
    two = cute.make_layout(2)
    return Warpgroup(
        full=storage.full.data_ptr(),
        free=storage.free.data_ptr(),
        q=in_score.make_fragment_A(in_score.partition_A(s_q)),
        k=in_score.make_fragment_B(in_score.partition_B(s_kv)),
        v=tuple(in_out.make_fragment_B(in_out.partition_B(x)) for x in halves),
        peer_weights=in_out.make_fragment_A(in_out.partition_A(peer)),
        own_weights=store.get_slice(thread).partition_D(own),
        store=store,
        store_thread=store.get_slice(thread),
        maxima=storage.maxima.get_tensor(cute.make_layout((2, ROWS), stride=(ROWS, 1))),
        sums=storage.sums.get_tensor(cute.make_layout((2, ROWS), stride=(ROWS, 1))),
        score=in_score.make_fragment_C(in_score.partition_shape_C((ROWS, KEYS))),
        out=in_out.make_fragment_C(in_out.partition_shape_C((ROWS, HALF))),
        weights=cute.make_rmem_tensor(operand_layout(), dtype),
        q_rope=cute.make_rmem_tensor(operand_layout(), dtype),
        row_max=cute.make_rmem_tensor(two, Float32),
        row_sum=cute.make_rmem_tensor(two, Float32),
        shrink=cute.make_rmem_tensor(two, Float32),
        limit=cute.make_rmem_tensor(cute.make_layout(3), Int32),
        scale_log2=scale_log2,
        row=row,
        lane=lane,
    )
