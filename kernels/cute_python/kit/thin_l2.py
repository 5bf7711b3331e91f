"""Few-row attention whose split-KV partials merge through L2, by a counter per row tile.

All of them are resident at once. Each writes what the others finish to a scratch tensor, signals
with a release at a counter, waits until all others have signaled, and finishes an equal share of
the output itself.
"""

from __future__ import annotations

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, const_expr, range_constexpr

from mla_var3.kernel.cute_python.kit.masks import seen_by_any
from mla_var3.kernel.cute_python.kit.slabs import KEYS, SLAB
from mla_var3.kernel.cute_python.kit.softmax import LN_2, LOWEST
from mla_var3.kernel.cute_python.kit.thin_cluster import ThinClusterKernel
from mla_var3.kernel.cute_python.kit.thin_slabs import BOTH, CONSUMERS, GROUPS

#: Distance of two counters, so that each has a line of L2 for itself.
LINE = 32
#: What the parts of a row tile add to their counter together: the highest bit is turned over when
#: all are in, and the others are zero again for the next launch.
TURN = 1 << 31


class ThinL2Kernel(ThinClusterKernel):
    """Clusters share the keys of a row tile.

    Args:
        causal: Whether a mask is aligned at the bottom right.
        tiling: Columns, splits and parts.
        options: Others of ``ThinKernel``.
    """

    def __init__(self, causal, tiling, **options):
        super().__init__(causal, tiling.columns, tiling.splits, **options)
        self.parts = tiling.parts
        #: Units of a warpgroup in its share; the parts take turns to finish one.
        self.slots = self.share * self.quads // GROUPS

    # ---- host half -------------------------------------------------------------------------
    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        qpe: cute.Tensor,
        z: cute.Tensor,
        kpe: cute.Tensor,
        partial: cute.Tensor,
        partial_lse: cute.Tensor,
        arrived: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        scale_log2: Float32,
        stream: cuda.CUstream,
    ):
        """Launch; ``arrived`` is zero but for the highest bits, before the launch as after it."""
        scratch = (partial, partial_lse, arrived)
        self.start_on((q, qpe, z, kpe), scratch, o, lse, scale_log2, stream)

    def ctas(self) -> int:
        """CTAs per row tile of a sequence."""
        return self.splits * self.parts

    # ---- device half -----------------------------------------------------------------------
    @cute.jit
    def place(self, work):
        """Row tile, sequence and part of this CTA, its first key tile, and how many."""
        rows, queries, keys = work
        groups, item = cute.ceil_div(rows, self.columns), cute.arch.cluster_idx()[0]
        part, item = item % self.parts, item // self.parts
        block, batch = item % groups, item // groups
        first_row = block * self.columns
        tiles = cute.ceil_div(
            seen_by_any(first_row, queries, keys, self.causal, self.columns), KEYS
        )
        each = cute.ceil_div(tiles, self.splits * self.parts)
        first = (part * self.splits + self.rank()) * each
        count = cutlass.max(cutlass.min(each, tiles - first), 0)
        return block, batch, part, first, count

    @cute.jit
    def epilogue(self, wg, storage, scratch, o, lse, place, group: cutlass.Constexpr):
        """All warpgroups of the cluster merge, then its parts."""
        self.meet_in_cluster(wg, storage, scratch, lse, place, group)
        _, _, part = place
        if const_expr(self.parts > 1):
            self.give(wg, storage, scratch, part, group)
            if part < self.slots:  # as there may be more parts than units to finish
                self.take(wg, scratch, lse, place, group)
                self.store_output(wg, storage, scratch, o, place, group)
        else:
            self.store_output(wg, storage, scratch, o, place, group)

    @cute.jit
    def put_lse(self, wg, scratch, lse, place, column, top, total, group: cutlass.Constexpr):
        """The cluster's LSE of a column: for the other parts, or as it is."""
        block, batch, part = place
        if const_expr(group == 0):
            first = (wg.warp == 0) & (wg.lane < 4)
            value = top + cute.math.log2(total, fastmath=True)
            if const_expr(self.parts > 1):
                _, partial_lse, _ = scratch
                if first:
                    partial_lse[self.member(part), column] = value
            else:
                row = block * self.columns + column
                if first & (self.rank() == 0) & (row < lse.shape[0]):
                    lse[row, batch] = value * LN_2

    # ---- the parts of a row tile -----------------------------------------------------------
    def team(self):
        """Number of the CTAs that share the keys and finish the same blocks, one of each part."""
        return cute.arch.cluster_idx()[0] // self.parts * self.splits + self.rank()

    def member(self, part):
        """Place of a part in the scratch tensors."""
        return self.team() * self.parts + part

    def unit(self, scratch, wg, part, number):
        """Four values of this thread in a unit that ``part`` gave."""
        partial, _, _ = scratch
        row = self.member(part) * (self.slots * GROUPS) + number
        return cute.local_tile(partial[row, None], (4,), (wg.thread,))

    @cute.jit
    def summed(self, wg, storage, number):
        """What the cluster has sent of a unit."""
        place = self.quads_of(wg, storage, 0)
        one, total = cute.make_rmem_tensor(4, Float32), cute.make_rmem_tensor(4, Float32)
        total.fill(0.0)
        for source in range_constexpr(self.splits):
            first = source * self.share
            cute.autovec_copy(place[None, number % self.quads, first + number // self.quads], one)
            total.store(total.load() + one.load())
        return total

    @cute.jit
    def give(self, wg, storage, scratch, part, group: cutlass.Constexpr):
        """Write the units that other parts finish."""
        for slot in range_constexpr(self.slots):
            if part != slot % self.parts:
                number = slot * GROUPS + group
                total = self.summed(wg, storage, number)
                cute.autovec_copy(total, self.unit(scratch, wg, part, number))
        self.meet(BOTH, CONSUMERS)
        if cute.arch.thread_idx()[0] == 0:
            self.signal(scratch, part)

    @cute.jit
    def counter(self, scratch):
        _, _, arrived = scratch
        return arrived.iterator + self.team() * LINE

    @cute.jit
    def signal(self, scratch, part):
        """Tell the other parts, and wait for those that have not told."""
        step = Int32(1)
        if part == 0:
            step = Int32(TURN - (self.parts - 1))
        counter = self.counter(scratch)
        before = cute.arch.atomic_add(counter, step, sem="release", scope="gpu")
        if part < self.slots:
            now = cute.arch.load(counter, Int32, sem="acquire", scope="gpu")
            while (now ^ before) >= 0:
                now = cute.arch.load(counter, Int32, sem="acquire", scope="gpu")

    @cute.jit
    def take(self, wg, scratch, lse, place, group: cutlass.Constexpr):
        """The LSE over all parts, in units of log2, by which their outputs are weighted."""
        self.meet(BOTH, CONSUMERS)  # one thread has waited for all
        block, batch, part = place
        _, partial_lse, _ = scratch
        for c in range_constexpr(self.mine):
            column = self.column(wg, c)
            top, total = Float32(LOWEST), Float32(0.0)
            for i in cutlass.range(self.parts, unroll=8):
                top = cute.arch.fmax(top, partial_lse[self.member(i), column])
            for i in cutlass.range(self.parts, unroll=8):
                value = partial_lse[self.member(i), column]
                total = total + cute.math.exp2(value - top, fastmath=True)
            wg.top[c] = top + cute.math.log2(total, fastmath=True)
            row = block * self.columns + column
            if const_expr(group == 0):
                first = (part == 0) & (self.rank() == 0) & (wg.warp == 0) & (wg.lane < 4)
                if first & (row < lse.shape[0]):
                    lse[row, batch] = wg.top[c] * LN_2
            # Rows that see no key: any weight of their zeros is right, but none is a NaN.
            wg.top[c] = cute.arch.fmax(wg.top[c], Float32(LOWEST))

    @cute.jit
    def weigh(self, wg, scratch, part, j, values):
        """Bring a part's four values of the columns of quad ``j`` under the LSE of all."""
        _, partial_lse, _ = scratch
        for i in range_constexpr(2):
            c = 2 * j + i
            value = partial_lse[self.member(part), self.column(wg, c)]
            weight = cute.math.exp2(value - wg.top[c], fastmath=True)
            values[i], values[i + 2] = values[i] * weight, values[i + 2] * weight

    @cute.jit
    def merged(self, wg, storage, scratch, part, number, j):
        """A unit of all parts: the own from shared memory, the others' from L2."""
        total = self.summed(wg, storage, number)
        self.weigh(wg, scratch, part, j, total)
        other = cute.make_rmem_tensor(4, Float32)
        for i in cutlass.range(1, self.parts, unroll=8):
            source = (part + i) % self.parts
            cute.autovec_copy(self.unit(scratch, wg, source, number), other)
            self.weigh(wg, scratch, source, j, other)
            total.store(total.load() + other.load())
        return total

    @cute.jit
    def store_output(self, wg, storage, scratch, o, place, group: cutlass.Constexpr):
        """Add what the cluster and the other parts have sent, and store."""
        _, _, part = place
        for slot in range_constexpr(self.slots):
            number = slot * GROUPS + group
            if const_expr(self.parts == 1):
                self.store_unit(wg, o, place, number, self.summed(wg, storage, number))
            elif part == slot % self.parts:
                j = number % self.quads
                total = self.merged(wg, storage, scratch, part, number, j)
                self.store_unit(wg, o, place, number, total)

    @cute.jit
    def store_unit(self, wg, o, place, number: cutlass.Constexpr, total):
        """Store a unit's values, two rows of the output and two dimensions of each."""
        block, batch, _ = place
        dimension = (self.rank() * self.share + number // self.quads) * SLAB
        for i in range_constexpr(4):
            row = block * self.columns + self.column(wg, 2 * (number % self.quads) + i % 2)
            if row < o.shape[0]:
                at = dimension + 16 * wg.warp + wg.lane // 4 + 8 * (i // 2)
                o[row, at, batch] = total[i].to(o.element_type)
