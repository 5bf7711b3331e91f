"""Halves of a merge that pass through L2 in pieces, and the warps that relay them.

A warpgroup leaves its half in the place of its CTA (meeting.py) and waits for nothing. A producer
warp per piece, which has nothing left to load, signals the piece once all of it is there, awaits
the same piece of the other CTA, and has it copied to where the queries were.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, const_expr, range_constexpr
from cutlass.cute.nvgpu import cpasync

from mla_var3.kernel.cute_python.mla.flash_mla.common import ROWS, SLAB
from mla_var3.kernel.cute_python.mla.flash_mla.meeting import await_half, place_of, signal_of

#: Threads at the barrier of a piece: a warpgroup that leaves it and a warp that relays it.
RELAY_THREADS = 128 + 32


@cute.jit
def leave_pieces(exchange, cta, out, row_max, row_sum, row, lane, barrier: cutlass.Constexpr):
    """Write a warpgroup's half of the output to the place of CTA ``cta``.

    Named barriers from ``barrier`` on tell of each piece, the first also of maxima and sums.
    """
    numbers, quads = place_of(exchange, cta)
    if lane % 4 == 0:
        for r in range_constexpr(2):
            numbers[row + 8 * r, 0] = row_max[r]
            numbers[row + 8 * r, 1] = row_sum[r]
    quad = cute.make_rmem_tensor(4, out.element_type)
    for j in range_constexpr(32):
        for i in range_constexpr(4):
            quad[i] = out[4 * j + i]
        cute.autovec_copy(quad, quads[None, j])
        if const_expr(j % 8 == 7):
            cute.arch.barrier_arrive(barrier_id=barrier + j // 8, number_of_threads=RELAY_THREADS)


@cute.jit
def signal_piece(signals, cta, barrier: cutlass.Constexpr):
    """Await what the warpgroup writes of this warp's piece; the release covers its writes too."""
    cute.arch.barrier(barrier_id=barrier, number_of_threads=RELAY_THREADS)
    with cute.arch.elect_one():
        cute.arch.red(
            signal_of(signals, cta), Int32(1), op="add", dtype=Int32, sem="release", scope="gpu"
        )


@cute.jit
def fetch_piece(storage, exchange, signals, peer, piece: cutlass.Constexpr):
    """Await a piece of CTA ``peer`` and copy it to the place of the queries, which is free."""
    await_half(signals, peer, cute.arch.lane_idx())
    cute.arch.fence_proxy("async.global")  # the copy reads what the peer's threads have written
    place, barrier = exchange[peer, None], storage.pieces.data_ptr() + piece
    with cute.arch.elect_one():
        if const_expr(piece == 0):
            copy_in(place, 0, storage.peer.data_ptr(), 2 * ROWS, barrier)
        size, first = ROWS * SLAB, piece * ROWS * SLAB
        queries = cute.recast_ptr(storage.q.data_ptr(), dtype=Float32)
        copy_in(place, 2 * ROWS + first, queries + first, size, barrier)


@cute.jit
def copy_in(place, first, into, size: cutlass.Constexpr, barrier):
    """Copy fp32 values from a place to shared memory, whose ``barrier`` counts their bytes."""
    atom = cute.make_copy_atom(cpasync.CopyBulkG2SOp(), Float32)
    row = cute.make_layout(size)
    source = cute.make_tensor(cute.domain_offset(first, place).iterator, row)
    cute.copy(atom, source, cute.make_tensor(into, row), mbar_ptr=barrier)
