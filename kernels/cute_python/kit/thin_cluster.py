"""Few-row attention whose split-KV partials merge within a cluster, through DSMEM."""

from __future__ import annotations

import operator

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, const_expr, range_constexpr

from mla_var3.kernel.cute_python.kit.dsmem import remote_address, store_remote
from mla_var3.kernel.cute_python.kit.softmax import reduced
from mla_var3.kernel.cute_python.kit.thin_kernel import ThinKernel
from mla_var3.kernel.cute_python.kit.thin_slabs import BLOCKS, BOTH, CONSUMERS, GROUPS


class ThinClusterKernel(ThinKernel):
    """Each CTA of a cluster finishes an equal share of the blocks of the output."""

    @cute.jit
    def meet_in_cluster(self, wg, storage, scratch, lse, place, group: cutlass.Constexpr):
        """Sums, then outputs, to those that finish them."""
        self.over_keys(wg, wg.row_sum, operator.add, group)
        self.publish(wg, storage, group)
        self.cluster_sync()  # all have read their tiles, whose place the outputs take
        self.normalize(wg, storage, scratch, lse, place, group)
        self.add_other(wg, storage, group)
        self.send(wg, storage, group)
        self.cluster_sync()  # and all have sent

    def results(self, storage):
        """Maximum and sum of each column, by warpgroup of the cluster: [sources, 2, columns]."""
        n = self.columns
        shape = (self.splits * GROUPS, 2, n)
        return storage.results.get_tensor(cute.make_layout(shape, stride=(2 * n, n, 1)))

    @cute.jit
    def publish(self, wg, storage, group: cutlass.Constexpr):
        """Maxima and sums to every CTA of the cluster, each by one warp."""
        results, source = self.results(storage), self.rank() * GROUPS + group
        for peer in range_constexpr(self.splits):
            if (wg.warp == peer % 4) & (wg.lane < 4):
                for c in range_constexpr(self.mine):
                    at = results.iterator + source * 2 * self.columns + self.column(wg, c)
                    store_remote(remote_address(at, Int32(peer)), wg.row_max[c])
                    store_remote(remote_address(at + self.columns, Int32(peer)), wg.row_sum[c])

    @cute.jit
    def normalize(self, wg, storage, scratch, lse, place, group: cutlass.Constexpr):
        """Divide by the cluster's row sums, under its maximum; one warp stores the LSE."""
        results = self.results(storage)
        for c in range_constexpr(self.mine):
            column, sources = self.column(wg, c), range(self.splits * GROUPS)
            top = reduced(cute.arch.fmax, [results[i, 0, column] for i in sources])
            total = reduced(
                operator.add,
                [
                    results[i, 1, column]
                    * cute.math.exp2(results[i, 0, column] - top, fastmath=True)
                    for i in sources
                ],
            )
            own = cute.math.exp2(wg.row_max[c] - top, fastmath=True)
            wg.shrink[c] = Float32(0.0) if total == 0.0 else own / total
            self.put_lse(wg, scratch, lse, place, column, top, total, group)
        self.multiply(wg, wg.shrink)

    def quads_of(self, wg, storage, first):
        """Shared memory as groups of four values of this thread, from block ``first`` on."""
        values = cute.recast_ptr(storage.kv.data_ptr(), dtype=Float32)
        start = values + first * self.quads * 512 + wg.thread * 4
        shape = (4, self.quads, GROUPS * BLOCKS)
        return cute.make_tensor(start, cute.make_layout(shape, stride=(1, 512, 512 * self.quads)))

    @cute.jit
    def add_other(self, wg, storage, group: cutlass.Constexpr):
        """Add the other warpgroup's output in the half of the blocks that this one keeps."""
        half = BLOCKS // GROUPS
        place = self.quads_of(wg, storage, BLOCKS)  # behind what peers send
        for block in range_constexpr(BLOCKS):
            if const_expr(block // half != group):
                for j in range_constexpr(self.quads):
                    cute.autovec_copy(self.quad(wg, block, j), place[None, j, block])
        self.meet(BOTH, CONSUMERS)
        other = cute.make_rmem_tensor(4, Float32)
        for block in range_constexpr(half * group, half * (group + 1)):
            for j in range_constexpr(self.quads):
                cute.autovec_copy(place[None, j, block], other)
                for i in range_constexpr(4):
                    wg.out[block][4 * j + i] = wg.out[block][4 * j + i] + other[i]

    @cute.jit
    def send(self, wg, storage, group: cutlass.Constexpr):
        """Each block to the CTA that finishes it."""
        half = BLOCKS // GROUPS
        place = self.quads_of(wg, storage, self.rank() * self.share)
        for block in range_constexpr(half * group, half * (group + 1)):
            for j in range_constexpr(self.quads):
                at = place[None, j, block % self.share].iterator
                values = [wg.out[block][4 * j + i] for i in range(4)]
                store_remote(remote_address(at, Int32(block // self.share)), *values)
