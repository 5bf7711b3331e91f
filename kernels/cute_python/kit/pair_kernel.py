"""Kernel of latent attention for pairs of CTAs that multiply as one, and make each score once.

Each CTA of a pair holds 64 rows (head, query) and all 512 columns of their output, which take half
of its tensor memory. For scores it loads 64 of 128 keys, for the output 256 of 512 columns of all
128 keys: the instruction takes one half of its second operand from each CTA. The first CTA's warp
multiplies for both. A thread has a row and 64 of its keys, so that two threads share a row.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, range_constexpr
from cutlass.cute.nvgpu import tcgen05

from mla_var3.kernel.cute_python.kit.pages import PageLoads
from mla_var3.kernel.cute_python.kit.pair_products import (
    PAIR_TILE,
    half_operand,
    pair_accumulator,
    pair_mma,
    row_operand,
)
from mla_var3.kernel.cute_python.kit.slabs import KEYS, LATENT, ROPE_SLAB, ROWS, SLAB
from mla_var3.kernel.cute_python.kit.tall_products import STEPS, shared, slab_layout
from mla_var3.kernel.cute_python.kit.tall_softmax import (
    CHUNK,
    begin,
    exponentials,
    hide,
    highest,
    inverse_total,
    log_sum,
    rescale,
    store_chunk,
    store_lse,
)
from mla_var3.kernel.cute_python.kit.tensor_kernel import TensorKernel
from mla_var3.kernel.cute_python.kit.tensor_memory import (
    after_sync,
    before_sync,
    columns,
    load_lane,
    stored,
)

#: Slabs that shared memory holds beside queries and weights.
SLOTS = 16
#: Columns of tensor memory: blocks of the output, then two tiles of scores.
OUTPUT, SCORES = 0, 256
#: Threads of softmax of a CTA, and the barrier by which those that share rows meet.
THREADS, EXCHANGE = 128, 1


class PairKernel(TensorKernel):
    """64 rows of each CTA; the scores of a tile are made while those before become weights."""

    pair = True
    rows, slots = ROWS, SLOTS
    #: Blocks of the output, a slab each in both CTAs, what a product makes of one, and by how much
    #: weights are larger than they would be (log2).
    blocks, value_tile, boost = LATENT // 2 // SLAB, PAIR_TILE, 0

    @property
    def block_columns(self):
        """Columns of a block of the output in one CTA."""
        return self.value_tile[1] // 2

    #: Columns of the sums of rotary parts: those of the scores, to which they add.
    rotary_scores = SCORES

    def barriers(self):
        return TensorKernel.barriers(self) | {
            "scored": (2, 1), "weighed": (1, 2 * THREADS), "summed": (1, 1)
        }  # fmt: skip

    def fields(self, dtype):
        """Weights of 128 keys, and what two threads tell each other of their row."""
        memory, align = cute.struct.MemRange, cute.struct.Align
        return {
            "exchange": memory[Float32, 3 * THREADS],
            "weights": align[memory[dtype, 2 * ROWS * KEYS], 1024],
        }

    def count(self, start, stop):
        """Tiles of 128 keys of a part."""
        return (stop - start + 1) // 2

    # ---- the warp that loads ---------------------------------------------------------------
    @cute.jit
    def load(self, storage, q_tensors, kv_tensors, work):
        """Keys of each tile, and one tile behind them values."""
        rank = self.schedule.rank()
        ring = shared(storage.keys, slab_layout(self.dtype, KEYS, self.slots))
        keys = PageLoads(kv_tensors, ring, work.table, self.box, 1, 0, None)
        atom, latent, rope_atom, rope = kv_tensors
        moved = atom, cute.domain_offset((0, SLAB * rank, 0), latent), rope_atom, rope
        values = PageLoads(moved, ring, work.table, self.box, 1, 0)
        entries, taken, loaded = keys.entries(), Int32(0), Int32(0)
        for sequence in cutlass.range(work.first, work.last + 1, unroll=1):
            length = work.lengths[sequence]
            start, stop, _ = self.schedule.part(work, sequence, length)
            self.load_queries(storage, q_tensors, work.block, sequence, (taken & 1) ^ 1)
            count = self.count(start, stop)
            for i in cutlass.range(count + 1, unroll=1):
                tile = start + 2 * i
                if i < count:
                    where = sequence, length, tile + rank
                    self.load_keys(storage, keys, entries, where, loaded)
                    loaded = loaded + self.slabs
                if i > 0:
                    for other in range_constexpr(2):
                        where = sequence, length, tile - 2 + other
                        self.load_values(storage, values, entries, where, loaded)
                        loaded = loaded + self.blocks
            taken = taken + 1
        self.drain(storage, loaded, taken)

    @cute.jit
    def load_keys(self, storage, loads, entries, where, number):
        """This CTA's 64 keys of a tile, all slabs of them."""
        sequence, length, tile = where
        self.look_up(loads, entries, sequence, length, tile)
        for slab in range_constexpr(self.slabs):
            which = ROPE_SLAB if slab == self.slabs - 1 else slab
            self.load_slab(storage, loads, which, entries, tile, length, number + slab)

    @cute.jit
    def load_values(self, storage, loads, entries, where, number):
        """64 keys of a tile, every other slab of them."""
        sequence, length, tile = where
        self.look_up(loads, entries, sequence, length, tile)
        for block in range_constexpr(self.blocks):
            self.load_slab(storage, loads, 2 * block, entries, tile, length, number + block)

    # ---- the warp that multiplies ----------------------------------------------------------
    @cute.jit
    def multiply(self, storage, base, work):
        """Scores of a tile ahead, and weights times values; by the first CTA for both."""
        if self.schedule.rank() == 0:
            taken, tiles, used = Int32(0), Int32(0), Int32(0)
            for sequence in cutlass.range(work.first, work.last + 1, unroll=1):
                start, stop, _ = self.schedule.part(work, sequence, work.lengths[sequence])
                count = self.count(start, stop)
                cute.arch.mbarrier_wait(storage.q_full.data_ptr(), taken & 1)
                for i in cutlass.range(count + 1, unroll=1):
                    if i < count:
                        self.score(storage, base, used, (tiles + i) & 1)
                        used = used + self.slabs
                    if i == count - 1:
                        self.commit(storage.q_free.data_ptr())
                    if i > 0:
                        cute.arch.mbarrier_wait(storage.weighed.data_ptr(), (tiles + i - 1) & 1)
                        after_sync()
                        self.sum_values(storage, base, used, i > 1)
                        self.commit(storage.summed.data_ptr())
                        used = used + 2 * self.blocks
                taken, tiles = taken + 1, tiles + count

    @cute.jit
    def score(self, storage, base, first, buffer):
        """Queries times the nine slabs of a tile, each of which comes free."""
        latent, rotary = self.score_products(storage)
        sums = [
            pair_accumulator(latent[0], base, column + KEYS * buffer)
            for column in (SCORES, self.rotary_scores)
        ]
        for slab in range_constexpr(self.slabs):
            last = slab == self.slabs - 1
            mma, queries, keys = rotary if last else latent
            scores, begun = sums[last], 0 if last and self.rotary_scores != SCORES else slab
            slot = self.arrived(storage, first + slab)
            for step in range_constexpr(STEPS):
                mma.set(tcgen05.Field.ACCUMULATE, begun + step > 0)
                cute.gemm(
                    mma, scores, queries[None, None, step, slab], keys[None, None, step, slot],
                    scores,
                )  # fmt: skip
            self.commit(storage.free.data_ptr() + slot)
        self.commit(storage.scored.data_ptr() + buffer)

    @cute.jit
    def sum_values(self, storage, base, first, add):
        """Weights times the slabs of values of a tile, each of which comes free."""
        mma, weights, values = self.value_product(storage)
        width, steps = self.block_columns, cute.size(weights, mode=[2]) // 2
        for i in range_constexpr(2 * self.blocks):
            other, block = i // self.blocks, i % self.blocks
            slot, out = (
                self.arrived(storage, first + i),
                pair_accumulator(mma, base, OUTPUT + width * block, self.value_tile),
            )
            for step in range_constexpr(steps):
                mma.set(tcgen05.Field.ACCUMULATE, True if other + step else add)
                cute.gemm(
                    mma, out, weights[None, None, steps * other + step],
                    values[None, None, step, slot], out,
                )  # fmt: skip
            self.commit(storage.free.data_ptr() + slot)

    def score_products(self, storage):
        """MMA, queries and keys of latent slabs, and those of the rotary one."""
        mma = pair_mma(self.dtype, False)
        queries = row_operand(mma, storage.q, self.dtype, self.slabs)
        both = mma, queries, half_operand(mma, storage.keys, self.dtype, self.slots)
        return both, both

    def value_product(self, storage):
        """MMA, weights [., ., step] of 128 keys, and slabs of values."""
        mma = pair_mma(self.dtype, True)
        weights = cute.group_modes(row_operand(mma, storage.weights, self.dtype, 2), 2, 4)
        return mma, weights, half_operand(mma, storage.keys, self.dtype, self.slots)

    @cute.jit
    def arrived(self, storage, number):
        """The slot of a slab that both CTAs have loaded."""
        slot = number % self.slots
        cute.arch.mbarrier_wait(storage.full.data_ptr() + slot, number // self.slots & 1)
        return slot

    # ---- the warps of softmax --------------------------------------------------------------
    @cute.jit
    def attend(self, storage, base, work, scale_log2, outputs, slots):
        """A row, and 64 keys of each tile, per thread; then half of the row's output."""
        tiles = Int32(0)
        thread = cute.arch.thread_idx()[0]
        first, other = work.block * ROWS, thread // ROWS
        place = first + thread % ROWS
        for sequence in cutlass.range(work.first, work.last + 1, unroll=1):
            length = work.lengths[sequence]
            start, stop, whole = self.schedule.part(work, sequence, length)
            count = self.count(start, stop)
            # What lies behind the part's end in its last tile is another worker's.
            row = begin(work, first, place, length, stop * KEYS)
            for i in cutlass.range(count, unroll=1):
                number, tile = tiles + i, start + 2 * i + other
                buffer = number & 1
                cute.arch.mbarrier_wait(storage.scored.data_ptr() + buffer, number // 2 & 1)
                after_sync()
                self.weigh(storage, base, row, tile, buffer, i > 0, number, scale_log2)
                stored()
                before_sync()
                cute.arch.mbarrier_arrive(storage.weighed.data_ptr(), 0)
            tiles = tiles + count
            cute.arch.mbarrier_wait(storage.summed.data_ptr(), (tiles - 1) & 1)
            after_sync()
            row.total[0] = row.total[0] + self.exchanged(storage, row.total[0], 2)
            if whole:
                self.send(base, row, work, place, outputs, sequence)
            else:
                self.put(base, row, slots, work.slot if start > 0 else work.slot + 2)

    @cute.jit
    def exchanged(self, storage, value, region):
        """What the thread with the same row gives for ``value``.

        Maxima take two regions in turn: who writes one has passed the barrier of the other, which
        all come to after they have read this one.
        """
        thread = cute.arch.thread_idx()[0]
        values = cute.make_tensor(
            storage.exchange.data_ptr() + THREADS * region, cute.make_layout(THREADS)
        )
        values[thread] = value
        cute.arch.barrier(barrier_id=EXCHANGE, number_of_threads=THREADS)
        return values[thread ^ ROWS]

    @cute.jit
    def weigh(self, storage, base, row, tile, buffer, later, number, scale_log2):
        """Scores of a tile to weights in shared memory."""
        score = self.load_scores(base, buffer)
        if (tile + 1) * KEYS > row.least:
            hide(score, row, tile, self.box)
        top = highest(score)
        top = cute.arch.fmax(top, self.exchanged(storage, top, buffer))
        shrink = exponentials(score, row, top, self.lazy, scale_log2, self.boost)
        if later:
            # The output and the weights of the tile before are complete, and read.
            cute.arch.mbarrier_wait(storage.summed.data_ptr(), (number - 1) & 1)
            after_sync()
            if cute.arch.vote_any_sync(shrink != Float32(1.0)):
                rescale(base, OUTPUT, LATENT // 2, shrink)
        self.store_weights(storage, score)

    @cute.jit
    def load_scores(self, base, buffer):
        """A row's scores of this thread's keys."""
        return load_lane(columns(base, SCORES + KEYS * buffer, KEYS))

    @cute.jit
    def store_weights(self, storage, score):
        """A thread's 64 weights, as the row of an operand that they are."""
        target = self.weight_row(storage)
        weights = cute.make_rmem_tensor(KEYS, target.element_type)
        vector = 128 // target.element_type.width
        weights.store(score.load().to(target.element_type))
        for i in range_constexpr(KEYS // vector):
            cute.autovec_copy(
                cute.local_tile(weights, (vector,), (i,)), cute.local_tile(target, (vector,), (i,))
            )
        cute.arch.fence_proxy("async.shared", space="cta")

    def weight_row(self, storage):
        """Where this thread's 64 weights go."""
        thread = cute.arch.thread_idx()[0]
        slabs = shared(storage.weights, slab_layout(self.dtype, ROWS, 2))
        return slabs[thread % ROWS, None, thread // ROWS]

    # ---- results ---------------------------------------------------------------------------
    def chunks(self, i):
        """A chunk's column of tensor memory, and its place in the row of an output."""
        other, width = cute.arch.thread_idx()[0] // ROWS, self.block_columns // CHUNK
        return OUTPUT + CHUNK * i, i // width * (2 * width) + other * width + i % width

    @cute.jit
    def send(self, base, row, work, place, outputs, sequence):
        """The output of a whole sequence, and its LSE."""
        o, lse, unit, empty = outputs
        inverse, there = inverse_total(row), place < work.heads * work.queries
        for i in cutlass.range(LATENT // 2 // CHUNK, unroll=1):
            column, chunk = self.chunks(i)
            values = load_lane(columns(base, column, CHUNK))
            if there:
                store_chunk(values, inverse, o[place, None, sequence], chunk, self.dtype)
        if there & (cute.arch.thread_idx()[0] < ROWS):
            store_lse(row, work, place, lse, unit, empty, sequence)

    @cute.jit
    def put(self, base, row, slots, slot):
        """A part in fp32, and its LSE to base 2."""
        partial, partial_lse = slots
        thread, inverse = cute.arch.thread_idx()[0], inverse_total(row)
        for i in cutlass.range(LATENT // 2 // CHUNK, unroll=1):
            column, chunk = self.chunks(i)
            values = load_lane(columns(base, column, CHUNK))
            store_chunk(values, inverse, partial[slot, thread % ROWS, None], chunk, Float32)
        if thread < ROWS:
            partial_lse[slot, thread] = log_sum(row)
