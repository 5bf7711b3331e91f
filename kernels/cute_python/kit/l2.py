"""Merge of two CTAs of any clusters that hold partial outputs of the same rows, through L2.

Each has a place of its own in global memory: half an output, 64 maxima and 64 sums, all fp32, and
signals, one per warp or piece, which are zero between launches. The half goes there whole, or in
pieces that producer warps relay.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, const_expr, range_constexpr
from cutlass.cute.nvgpu import cpasync

from mla_var3.kernel.cute_python.kit.slabs import HALF, ROWS, SLAB

#: Values of a place, and signals.
PLACE, SIGNALS = ROWS * HALF + 2 * ROWS, 4
#: Threads at the barrier of a piece: a warpgroup that leaves it and a warp that relays it.
RELAY_THREADS = 128 + 32


def place_of(exchange, cta):
    """Maxima and sums [64, 2] and the thread's own 128 values [4, 32] of a CTA's place.

    A warp moves 512 bytes at once.
    """
    place = exchange[cta, None]
    numbers = cute.make_tensor(place.iterator, cute.make_layout((ROWS, 2), stride=(1, ROWS)))
    thread = cute.arch.thread_idx()[0] % 128
    quads = cute.local_tile(cute.domain_offset(2 * ROWS, place), (4,), (thread,))
    return numbers, cute.make_tensor(quads.iterator, cute.make_layout((4, 32), stride=(1, 512)))


def signal_of(signals, cta):
    """Address of this warp's signal among those of a CTA."""
    return cute.domain_offset((cta, cute.arch.warp_idx() % SIGNALS), signals).iterator


@cute.jit
def leave_half(exchange, signals, cta, out, row_max, row_sum, row, lane):
    """Write a warpgroup's half of the output to the place of CTA ``cta``, and say so."""
    numbers, quads = place_of(exchange, cta)
    quad = cute.make_rmem_tensor(4, out.element_type)
    for j in range_constexpr(32):
        for i in range_constexpr(4):
            quad[i] = out[4 * j + i]
        cute.autovec_copy(quad, quads[None, j])
    if lane % 4 == 0:
        for r in range_constexpr(2):
            numbers[row + 8 * r, 0] = row_max[r]
            numbers[row + 8 * r, 1] = row_sum[r]
    cute.arch.sync_warp()  # all that the warp has written is before its release
    with cute.arch.elect_one():
        cute.arch.red(
            signal_of(signals, cta), Int32(1), op="add", dtype=Int32, sem="release", scope="gpu"
        )


@cute.jit
def await_half(signals, cta, lane):
    """Wait until the same warp of CTA ``cta`` has written, and leave its signal zero again."""
    signal = signal_of(signals, cta)
    while cute.arch.load(signal, Int32, sem="acquire", scope="gpu") == 0:
        pass
    cute.arch.sync_warp()  # all lanes have seen it
    if lane == 0:
        cute.arch.store(signal, Int32(0), sem="relaxed", scope="gpu")


@cute.jit
def take_half(exchange, signals, cta, out, row_max, row_sum, row, lane):
    """Merge what CTA ``cta`` has left into the same half of this CTA's output."""
    await_half(signals, cta, lane)
    numbers, quads = place_of(exchange, cta)
    mine, theirs = cute.make_rmem_tensor_like(row_max), cute.make_rmem_tensor_like(row_max)
    for r in range_constexpr(2):
        peer_max = numbers[row + 8 * r, 0]
        new = cute.arch.fmax(row_max[r], peer_max)
        mine[r] = cute.math.exp2(row_max[r] - new, fastmath=True)
        theirs[r] = cute.math.exp2(peer_max - new, fastmath=True)
        row_sum[r] = row_sum[r] * mine[r] + numbers[row + 8 * r, 1] * theirs[r]
        row_max[r] = new
    quad = cute.make_rmem_tensor(4, out.element_type)
    for j in range_constexpr(32):
        cute.autovec_copy(quads[None, j], quad)
        for i in range_constexpr(4):
            out[4 * j + i] = out[4 * j + i] * mine[i // 2] + quad[i] * theirs[i // 2]


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
