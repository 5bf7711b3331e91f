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
    half_operand,
    pair_accumulator,
    pair_mma,
    row_operand,
)
from mla_var3.kernel.cute_python.kit.slabs import KEYS, LATENT, ROWS, SLAB, SLABS
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

#: Slabs that shared memory holds beside queries and weights, and slabs of values of 128 keys.
SLOTS, VALUES = 16, 8
#: Columns of tensor memory: four blocks of the output, then two tiles of scores.
OUTPUT, SCORES, BLOCKS = 0, 256, 4
#: Threads of softmax of a CTA, and the barrier by which those that share rows meet.
THREADS, EXCHANGE = 128, 1


class PairKernel(TensorKernel):
    """64 rows of each CTA; the scores of a tile are made while those before become weights."""

    pair = True
    rows, slots = ROWS, SLOTS

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
                    loaded = loaded + SLABS
                if i > 0:
                    for other in range_constexpr(2):
                        where = sequence, length, tile - 2 + other
                        self.load_values(storage, values, entries, where, loaded)
                        loaded = loaded + BLOCKS
            taken = taken + 1
        self.drain(storage, loaded, taken)

    @cute.jit
    def load_keys(self, storage, loads, entries, where, number):
        """This CTA's 64 keys of a tile, all slabs of them."""
        sequence, length, tile = where
        self.look_up(loads, entries, sequence, length, tile)
        for slab in range_constexpr(SLABS):
            self.load_slab(storage, loads, slab, entries, tile, length, number + slab)

    @cute.jit
    def load_values(self, storage, loads, entries, where, number):
        """64 keys of a tile, every other slab of them."""
        sequence, length, tile = where
        self.look_up(loads, entries, sequence, length, tile)
        for block in range_constexpr(BLOCKS):
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
                        used = used + SLABS
                    if i == count - 1:
                        self.commit(storage.q_free.data_ptr())
                    if i > 0:
                        cute.arch.mbarrier_wait(storage.weighed.data_ptr(), (tiles + i - 1) & 1)
                        after_sync()
                        self.sum_values(storage, base, used, i > 1)
                        self.commit(storage.summed.data_ptr())
                        used = used + VALUES
                taken, tiles = taken + 1, tiles + count

    @cute.jit
    def score(self, storage, base, first, buffer):
        """Queries times the nine slabs of a tile, each of which comes free."""
        mma = pair_mma(self.dtype, False)
        queries = row_operand(mma, storage.q, self.dtype, SLABS)
        keys = half_operand(mma, storage.keys, self.dtype, self.slots)
        scores = pair_accumulator(mma, base, SCORES + KEYS * buffer)
        for slab in range_constexpr(SLABS):
            slot = self.arrived(storage, first + slab)
            for step in range_constexpr(STEPS):
                mma.set(tcgen05.Field.ACCUMULATE, slab + step > 0)
                cute.gemm(
                    mma, scores, queries[None, None, step, slab], keys[None, None, step, slot],
                    scores,
                )  # fmt: skip
            self.commit(storage.free.data_ptr() + slot)
        self.commit(storage.scored.data_ptr() + buffer)

    @cute.jit
    def sum_values(self, storage, base, first, add):
        """Weights times the slabs of values of a tile, each of which comes free."""
        mma = pair_mma(self.dtype, True)
        weights = row_operand(mma, storage.weights, self.dtype, 2)
        values = half_operand(mma, storage.keys, self.dtype, self.slots)
        for i in range_constexpr(VALUES):
            other, block = i // BLOCKS, i % BLOCKS
            slot, out = (
                self.arrived(storage, first + i),
                pair_accumulator(mma, base, OUTPUT + SLAB * block),
            )
            for step in range_constexpr(STEPS):
                mma.set(tcgen05.Field.ACCUMULATE, True if other + step else add)
                cute.gemm(
                    mma, out, weights[None, None, step, other], values[None, None, step, slot], out
                )
            self.commit(storage.free.data_ptr() + slot)

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
        score = load_lane(columns(base, SCORES + KEYS * buffer, KEYS))
        if (tile + 1) * KEYS > row.least:
            hide(score, row, tile, self.box)
        top = highest(score)
        top = cute.arch.fmax(top, self.exchanged(storage, top, buffer))
        shrink = exponentials(score, row, top, self.lazy, scale_log2)
        if later:
            # The output and the weights of the tile before are complete, and read.
            cute.arch.mbarrier_wait(storage.summed.data_ptr(), (number - 1) & 1)
            after_sync()
            if cute.arch.vote_any_sync(shrink != Float32(1.0)):
                rescale(base, OUTPUT, LATENT // 2, shrink)
        self.store_weights(storage, score)

    @cute.jit
    def store_weights(self, storage, score):
        """A thread's 64 weights, as the row of an operand that they are."""
        thread = cute.arch.thread_idx()[0]
        weights = cute.make_rmem_tensor(KEYS, self.dtype)
        weights.store(score.load().to(self.dtype))
        slabs = shared(storage.weights, slab_layout(self.dtype, ROWS, 2))
        target = slabs[thread % ROWS, None, thread // ROWS]
        for i in range_constexpr(KEYS // 8):
            cute.autovec_copy(
                cute.local_tile(weights, (8,), (i,)), cute.local_tile(target, (8,), (i,))
            )
        cute.arch.fence_proxy("async.shared", space="cta")

    # ---- results ---------------------------------------------------------------------------
    def chunks(self, i):
        """A chunk's column of tensor memory, and its place in the row of an output."""
        other = cute.arch.thread_idx()[0] // ROWS
        return OUTPUT + CHUNK * i, i // 2 * 4 + other * 2 + i % 2

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
