"""Kernel of latent attention for tensor memory: 128 rows per CTA, half of the output's columns.

An output of 128 x 512 in fp32 would take all of tensor memory, and leave no column for scores. So
two CTAs take the same rows and keys: both make all scores, and each accumulates 256 columns.
Six warps have three roles. One loads slabs of keys into a ring, one multiplies, and four turn
scores into weights, a row per thread. Values are slabs that the scores have read, so they stay in
the ring until both products are done; the others are given back at once.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, range_constexpr
from cutlass.cute.nvgpu import tcgen05

from mla_var3.kernel.cute_python.kit.pages import PageLoads
from mla_var3.kernel.cute_python.kit.slabs import (
    HALF,
    KEYS,
    ROPE_SLAB,
    ROWS,
    SLAB,
    SLABS,
)
from mla_var3.kernel.cute_python.kit.tall_products import (
    STEPS,
    TALL,
    accumulator,
    query_operand,
    score_mma,
    shared,
    slab_layout,
    slab_operand,
    value_mma,
    weight_operand,
)
from mla_var3.kernel.cute_python.kit.tall_schedule import HalvesSchedule
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
    store_lane,
    stored,
)

#: Slabs of keys that shared memory holds beside 128 queries: one more than a tile has.
SLOTS = 10
#: Slabs of a tile that are no values of this CTA, which come first: rotary part, and other half.
OTHERS, OWN = 5, 4
#: Columns of tensor memory: the output, scores, and weights, two per column.
OUTPUT, SCORES, WEIGHTS = 0, 256, 320


class TallKernel(TensorKernel):
    """128 rows of a CTA, whose queries leave shared memory for ten slabs."""

    schedule_type = HalvesSchedule
    rows, slots = TALL, SLOTS

    def barriers(self):
        return TensorKernel.barriers(self) | {
            "scored": (1, 1), "weighed": (1, TALL), "summed": (1, 1)
        }  # fmt: skip

    # ---- the warp that loads ---------------------------------------------------------------
    @cute.jit
    def load(self, storage, q_tensors, kv_tensors, work):
        """Queries of each sequence, and tile by tile the slabs of its keys, values last."""
        half = self.schedule.half()
        ring = shared(storage.keys, slab_layout(self.dtype, KEYS, self.slots))
        others, own = [
            PageLoads(self.moved(kv_tensors, side), ring, work.table, self.box, 1, 0)
            for side in (1 - half, half)
        ]
        entries, taken, loaded = own.entries(), Int32(0), Int32(0)
        for sequence in cutlass.range(work.first, work.last + 1, unroll=1):
            length = work.lengths[sequence]
            start, stop, _ = self.schedule.part(work, sequence, length)
            self.load_queries(storage, q_tensors, work.block, sequence, (taken & 1) ^ 1)
            for tile in cutlass.range(start, stop, unroll=1):
                self.look_up(own, entries, sequence, length, tile)
                for i in range_constexpr(SLABS):
                    slabs = own if i >= OTHERS else others
                    slab = ROPE_SLAB if i == 0 else (i - 1) % OWN
                    self.load_slab(storage, slabs, slab, entries, tile, length, loaded + i)
                loaded = loaded + SLABS
            taken = taken + 1
        self.drain(storage, loaded, taken)

    def moved(self, kv_tensors, side):
        """Tensors of which the first columns are those of one half of the output."""
        atom, latent, rope_atom, rope = kv_tensors
        return atom, cute.domain_offset((0, HALF * side, 0), latent), rope_atom, rope

    # ---- the warp that multiplies ----------------------------------------------------------
    @cute.jit
    def multiply(self, storage, base, work):
        """Scores of each tile, and its weights times its values."""
        taken, tiles = Int32(0), Int32(0)
        for sequence in cutlass.range(work.first, work.last + 1, unroll=1):
            start, stop, _ = self.schedule.part(work, sequence, work.lengths[sequence])
            cute.arch.mbarrier_wait(storage.q_full.data_ptr(), taken & 1)
            for tile in cutlass.range(start, stop, unroll=1):
                done = tiles + tile - start
                self.score(storage, base, done * SLABS)
                self.commit(storage.scored.data_ptr())
                if tile == stop - 1:
                    self.commit(storage.q_free.data_ptr())
                cute.arch.mbarrier_wait(storage.weighed.data_ptr(), done & 1)
                after_sync()
                self.sum_values(storage, base, done * SLABS + OTHERS, tile > start)
            self.commit(storage.summed.data_ptr())
            taken, tiles = taken + 1, tiles + stop - start

    @cute.jit
    def score(self, storage, base, first):
        """Queries times the nine slabs of a tile; those that are no values come free."""
        mma, half = score_mma(self.dtype), self.schedule.half()
        queries = query_operand(mma, storage.q, self.dtype, SLABS)
        keys = slab_operand(mma, storage.keys, self.dtype, self.slots)
        scores = accumulator(mma, base, SCORES)
        for i in range_constexpr(SLABS):
            slot, phase = (first + i) % self.slots, (first + i) // self.slots & 1
            cute.arch.mbarrier_wait(storage.full.data_ptr() + slot, phase)
            # Query slabs lie in order; slabs of keys come with this CTA's values last.
            slab = ROPE_SLAB if i == 0 else (i - 1 + OWN * (1 - half)) % ROPE_SLAB
            for step in range_constexpr(STEPS):
                mma.set(tcgen05.Field.ACCUMULATE, i + step > 0)
                cute.gemm(
                    mma, scores, queries[None, None, step, slab], keys[None, None, step, slot],
                    scores,
                )  # fmt: skip
            if i < OTHERS:
                self.commit(storage.free.data_ptr() + slot)

    @cute.jit
    def sum_values(self, storage, base, first, add):
        """Weights times the four slabs of values of a tile, each of which comes free."""
        mma = value_mma(self.dtype)
        weights = weight_operand(mma, base, WEIGHTS, self.dtype)
        values = slab_operand(mma, storage.keys, self.dtype, self.slots)
        for i in range_constexpr(OWN):
            slot, out = (first + i) % self.slots, accumulator(mma, base, OUTPUT + SLAB * i)
            for step in range_constexpr(STEPS):
                mma.set(tcgen05.Field.ACCUMULATE, True if step else add)
                cute.gemm(mma, out, weights[None, None, step], values[None, None, step, slot], out)
            self.commit(storage.free.data_ptr() + slot)

    # ---- the warps of softmax --------------------------------------------------------------
    @cute.jit
    def attend(self, storage, base, work, scale_log2, outputs, slots):
        """One row per thread: its weights tile by tile, and its half of the output."""
        taken, tiles = Int32(0), Int32(0)
        for sequence in cutlass.range(work.first, work.last + 1, unroll=1):
            length = work.lengths[sequence]
            start, stop, whole = self.schedule.part(work, sequence, length)
            first = work.block * TALL
            row = begin(work, first, first + cute.arch.thread_idx()[0], length, length)
            for tile in cutlass.range(start, stop, unroll=1):
                cute.arch.mbarrier_wait(storage.scored.data_ptr(), (tiles + tile - start) & 1)
                after_sync()
                self.weigh(base, row, tile, tile > start, scale_log2)
                stored()
                before_sync()
                cute.arch.mbarrier_arrive(storage.weighed.data_ptr())
            cute.arch.mbarrier_wait(storage.summed.data_ptr(), taken & 1)
            after_sync()
            if whole:
                self.send(base, row, work, outputs, sequence)
            else:
                self.put(base, row, slots, work.slot if start > 0 else work.slot + TALL // ROWS)
            taken, tiles = taken + 1, tiles + stop - start

    @cute.jit
    def weigh(self, base, row, tile, later, scale_log2):
        """Scores of a tile to weights in tensor memory."""
        score = load_lane(columns(base, SCORES, KEYS))
        if (tile + 1) * KEYS > row.least:
            hide(score, row, tile, self.box)
        shrink = exponentials(score, row, highest(score), self.lazy, scale_log2)
        if later & cute.arch.vote_any_sync(shrink != Float32(1.0)):
            rescale(base, OUTPUT, HALF, shrink)
        weights = cute.make_rmem_tensor(KEYS, self.dtype)
        weights.store(score.load().to(self.dtype))
        store_lane(cute.recast_tensor(weights, Float32), columns(base, WEIGHTS, KEYS // 2))

    # ---- results ---------------------------------------------------------------------------
    @cute.jit
    def send(self, base, row, work, outputs, sequence):
        """The output of a whole sequence; the CTA of the first half stores the LSE."""
        o, lse, unit, empty = outputs
        place, half = work.block * TALL + cute.arch.thread_idx()[0], self.schedule.half()
        inverse, there = inverse_total(row), place < work.heads * work.queries
        for i in cutlass.range(HALF // CHUNK, unroll=1):
            values = load_lane(columns(base, OUTPUT + CHUNK * i, CHUNK))
            if there:
                column = half * (HALF // CHUNK) + i
                store_chunk(values, inverse, o[place, None, sequence], column, self.dtype)
        if there & (half == 0):
            store_lse(row, work, place, lse, unit, empty, sequence)

    @cute.jit
    def put(self, base, row, slots, slot):
        """A part in fp32, and its LSE to base 2; a tile of 128 rows fills two slots of 64."""
        partial, partial_lse = slots
        thread, half = cute.arch.thread_idx()[0], self.schedule.half()
        inverse, slot, place = inverse_total(row), slot + thread // ROWS, thread % ROWS
        for i in cutlass.range(HALF // CHUNK, unroll=1):
            values = load_lane(columns(base, OUTPUT + CHUNK * i, CHUNK))
            column = half * (HALF // CHUNK) + i
            store_chunk(values, inverse, partial[slot, place, None], column, Float32)
        if half == 0:
            partial_lse[slot, place] = log_sum(row)
