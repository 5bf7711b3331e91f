"""Epilogues of latent attention that merge and store 64 columns while the next ones arrive."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Float32, const_expr, range_constexpr

from mla_var3.kernel.cute_python.kit.dsmem import send_pieces
from mla_var3.kernel.cute_python.kit.epilogue import Epilogue
from mla_var3.kernel.cute_python.kit.handovers import Handover, cluster_sync
from mla_var3.kernel.cute_python.kit.l2 import fetch_piece, leave_pieces, signal_piece
from mla_var3.kernel.cute_python.kit.pieces import PIECE_BYTES, PIECES, received
from mla_var3.kernel.cute_python.kit.rings import Free
from mla_var3.kernel.cute_python.kit.schedule import rank_in_cluster
from mla_var3.kernel.cute_python.kit.slabs import ROWS, as_vector
from mla_var3.kernel.cute_python.kit.stores import (
    complete_sums,
    inverse_sum,
    send_slab,
    store_lse,
    store_partial,
    store_partial_slab,
)
from mla_var3.kernel.cute_python.kit.warpgroups import Side


@cute.jit
def weigh(wg, storage, mine, theirs, splits: cutlass.Constexpr):
    """What this CTA's sums and the peer's are worth in the output, by the sum of both."""
    mine.fill(1.0)
    theirs.fill(0.0)
    if const_expr(splits > 1):
        cute.arch.mbarrier_wait(storage.pieces.data_ptr(), 0)
        numbers = storage.peer.get_tensor(cute.make_layout((2, ROWS), stride=(ROWS, 1)))
        for r in range_constexpr(2):
            old, peer_max = wg.row_max[r], numbers[0, wg.row + 8 * r]
            wg.row_max[r] = cute.arch.fmax(old, peer_max)
            mine[r] = cute.math.exp2(old - wg.row_max[r], fastmath=True)
            theirs[r] = cute.math.exp2(peer_max - wg.row_max[r], fastmath=True)
            wg.row_sum[r] = wg.row_sum[r] * mine[r] + numbers[1, wg.row + 8 * r] * theirs[r]
    for r in range_constexpr(2):
        inverse = inverse_sum(wg, r)
        mine[r], theirs[r] = mine[r] * inverse, theirs[r] * inverse


@cute.jit
def add_piece(wg, storage, theirs, j: cutlass.Constexpr):
    """Add what the peer has sent of 64 columns, as soon as it is there."""
    cute.arch.mbarrier_wait(storage.pieces.data_ptr() + j, 0)
    quads, quad = received(storage, j), cute.make_rmem_tensor(4, Float32)
    for g in range_constexpr(8):
        cute.autovec_copy(quads[None, g], quad)
        for i in range_constexpr(4):
            at = 32 * j + 4 * g + i
            wg.out[at] = wg.out[at] + quad[i] * theirs[i // 2]


class PieceEpilogue(Epilogue):
    """Pieces leave as they are merged; a partial result leaves whole, at the end."""

    def fields(self):
        """A barrier per piece, and the peer's maxima and sums."""
        return {
            "pieces": cute.struct.MemRange[cutlass.Int64, PIECES],
            "peer": cute.struct.MemRange[Float32, 2 * ROWS],
        }

    @cute.jit
    def init(self, storage):
        """Barriers that count the bytes of the pieces; from one thread."""
        for i in range_constexpr(PIECES if self.splits > 1 else 0):
            piece = storage.pieces.data_ptr() + i
            cute.arch.mbarrier_init(piece, 1)
            numbers = 2 * ROWS * 4 if i == 0 else 0  # maxima and sums
            cute.arch.mbarrier_arrive_and_expect_tx(piece, PIECE_BYTES + numbers)

    @cute.jit
    def store(self, wg, storage, outputs, block, batch, side: cutlass.Constexpr):
        """Merge, divide by the row sums and store, piece by piece; left stores the LSE."""
        mine, theirs = cute.make_rmem_tensor(2, Float32), cute.make_rmem_tensor(2, Float32)
        weigh(wg, storage, mine, theirs, self.splits)
        if const_expr(side == Side.LEFT):
            store_lse(wg, as_vector(outputs[2]), block, batch)
        for j in range_constexpr(PIECES):
            for i in range_constexpr(32 * j, 32 * j + 32):
                wg.out[i] = wg.out[i] * mine[i // 2 % 2]
            if const_expr(self.splits > 1):
                add_piece(wg, storage, theirs, j)
            self.put_piece(wg, storage, outputs, block, batch, side, j)
        self.put_rest(wg, outputs, block, batch, side)

    @cute.jit
    def put_piece(self, wg, storage, outputs, block, batch, side, j: cutlass.Constexpr):
        """Send a piece on, unless a partial result waits for the last."""
        if const_expr(not self.partial):
            send_slab(wg, storage, outputs[0], outputs[1], block, batch, side, j)

    @cute.jit
    def put_rest(self, wg, outputs, block, batch, side: cutlass.Constexpr):
        """Store a partial result, or wait until TMA has read the pieces."""
        if const_expr(self.partial):
            store_partial(wg, outputs[1], block, batch, side)
        elif cute.arch.make_warp_uniform(cute.arch.warp_idx()) % 4 == 0:
            cute.arch.cp_async_bulk_wait_group(0, read=True)


class ClusterPieceEpilogue(PieceEpilogue):
    """Pieces come from the other CTA of the cluster, through distributed shared memory."""

    def split(self, item):
        """This CTA's number among those that split the keys."""
        return rank_in_cluster() // self.share

    @cute.jit
    def drain(self):
        """Producer warps take part in the barrier of the exchange."""
        if const_expr(self.splits > 1):
            cluster_sync()

    @cute.jit
    def offer(self):
        """Let the peer write to the place of the queries, which this warp has read."""
        if const_expr(self.splits > 1):
            cute.arch.cluster_arrive()

    @cute.jit
    def offer_last(self, more):
        """The same, of the side that reads them in every pair."""
        if not more:
            self.offer()

    @cute.jit
    def exchange(self, wg, storage, exchanged, split, side: cutlass.Constexpr):
        """Give one half to the CTA that holds the same rows; ``store`` merges the other."""
        peer = (rank_in_cluster() + self.share) % (self.splits * self.share)
        cute.arch.cluster_wait()  # the peer has read its queries
        if split != side:
            send_pieces(storage, peer, wg.out, wg.row_max, wg.row_sum, wg.row, wg.lane)


class L2PieceEpilogue(PieceEpilogue):
    """Pieces come through L2, relayed by producer warps, of which each has one."""

    def fields(self):
        """A barrier per piece, and the peer's maxima and sums, to which a bulk copy goes."""
        peer = cute.struct.MemRange[Float32, 2 * ROWS]
        return {
            "pieces": cute.struct.MemRange[cutlass.Int64, PIECES],
            "peer": cute.struct.Align[peer, 16],
        }

    @cute.jit
    def relay(self, storage, exchanged, piece: cutlass.Constexpr):
        """One warp: a piece of this CTA to the one with the same rows, and the same of that."""
        if const_expr(self.splits > 1):
            exchange, signals = exchanged
            cta = cute.arch.block_idx()[0]  # the other's cluster is the one beside this one
            signal_piece(signals, cta, Handover.FIRST_PIECE + piece)
            cute.arch.mbarrier_wait(storage.free.data_ptr() + Free.Q, 0)  # one item of a CTA here
            fetch_piece(storage, exchange, signals, cta ^ self.share, piece)

    @cute.jit
    def finish(self, wg, storage, outputs, exchanged, block, out, item, side: cutlass.Constexpr):
        """From a warpgroup's sums and fragments to its half of the output."""
        complete_sums(wg, side)
        if const_expr(self.splits == 1):
            self.store(wg, storage, outputs, block, out, side)
        else:
            split = self.split(item)
            if split == side:
                self.store(wg, storage, outputs, block, out, side)
            else:
                self.leave(wg, exchanged[0])

    @cute.jit
    def leave(self, wg, exchange):
        """Write the half that this CTA does not keep to its place in L2, piece by piece."""
        cta, barrier = cute.arch.block_idx()[0], int(Handover.FIRST_PIECE)
        leave_pieces(exchange, cta, wg.out, wg.row_max, wg.row_sum, wg.row, wg.lane, barrier)


class L2PartPieceEpilogue(L2PieceEpilogue):
    """The same; pieces of a partial result leave as they are merged, too."""

    @cute.jit
    def put_piece(self, wg, storage, outputs, block, batch, side, j: cutlass.Constexpr):
        """Send a piece on."""
        if const_expr(self.partial):
            store_partial_slab(wg, outputs[1], block, batch, side, j)
        else:
            send_slab(wg, storage, outputs[0], outputs[1], block, batch, side, j)

    @cute.jit
    def put_rest(self, wg, outputs, block, batch, side: cutlass.Constexpr):
        """Wait until TMA has read the pieces."""
        if cute.arch.make_warp_uniform(cute.arch.warp_idx()) % 4 == 0:
            cute.arch.cp_async_bulk_wait_group(0, read=True)
