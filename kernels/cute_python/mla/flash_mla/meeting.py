"""What two CTAs with the same rows exchange through global memory, which is to say through L2.

A CTA has a place of its own: half an output, 64 maxima and 64 sums, all fp32, and a signal per
warp. Warp i of a warpgroup leaves there what it does not keep; warp i of the peer's takes it.
"""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import Int32, range_constexpr

from mla_var3.kernel.cute_python.mla.flash_mla.common import HALF, ROWS

#: Values of a place, and signals.
PLACE, SIGNALS = ROWS * HALF + 2 * ROWS, 4


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
