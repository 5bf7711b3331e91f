"""Trial: tokens are MMA rows; consumers convert bytes in shared memory straight into operand A.

Scores are S^T = K Q^T, the output is O^T = V^T P^T. Bytes of tokens arrive by asynchronous copies
in a ring of three tiles, and no tile in fp16 is ever written. A k-step of scores takes the columns
of a lane's four bytes as its places 2q, 2q+1, 2q+8 and 2q+9, and queries are permuted to match. Of
values a transposed ldmatrix gives two bytes of two tokens, which one PRMT pairs by column. The two
warpgroups own every other tile of scores and half of the columns each, and one's products run
beside the other's softmax. At the end of a part sums and outputs are turned to rows, as merges take
them. For tokens of 656 bytes.
"""

from __future__ import annotations

import operator
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import (
    BFloat16,
    Float8E4M3FN,
    Float16,
    Float32,
    Int32,
    Int64,
    const_expr,
    range_constexpr,
)
from cutlass.cute.nvgpu import warpgroup
from cutlass.utils import hopper_helpers

from mla_var3.kernel.cute_python.kit.gather import PIECE
from mla_var3.kernel.cute_python.kit.handovers import CONSUMERS, Handover, sync
from mla_var3.kernel.cute_python.kit.list_window import ListWindowKernel
from mla_var3.kernel.cute_python.kit.products import RMEM, score_mma
from mla_var3.kernel.cute_python.kit.resident import as_bf16
from mla_var3.kernel.cute_python.kit.rings import Free
from mla_var3.kernel.cute_python.kit.slabs import (
    KEYS,
    ROPE_SLAB,
    ROWS,
    SLAB,
    SLABS,
    SlabLoads,
    operand_layout,
    shared_slabs,
    tma_parts,
)
from mla_var3.kernel.cute_python.kit.softmax import LOWEST, raised, reduced
from mla_var3.kernel.cute_python.kit.sparse import TOKENS, WARPS
from mla_var3.kernel.cute_python.kit.warpgroups import Side
from mla_var3.kernel.cute_python.kit.window import at_address, shuffled

STAGES = 3
LATENT_BYTES, ROPE_PART = KEYS * 512, KEYS * 128
STAGE = LATENT_BYTES + ROPE_PART
PSLAB = 15  # slabs of kv that weights take
BLOCKS = 4  # blocks of 64 dimensions of a warpgroup
MINE = 16  # heads of a thread
READY, FREE, OWN = 1, 3, 6  # named barriers (5 is SUMS); 8 FIRST_PIECE; of OWN: 6, 7
# words of the scratch slab
MAX, SHRINK, BY_WARP, NEED, RAISED, FILLED, SCALES16 = 0, 128, 256, 768, 776, 784, 1024


def matrices(address, turned):
    """Four 8 by 8 matrices of 16 bits."""
    t = ".trans" if turned else ""
    return cute.arch.inline_ptx(
        f"ldmatrix.sync.aligned.m8n8.x4{t}.shared.b16 "
        "{{$w0}, {$w1}, {$w2}, {$w3}}, [{$r0}];",
        write_only_types=[Int32] * 4,
        read_only_args=[address],
    )


class Looking(NamedTuple):
    """Where a producer warp looks up lists."""

    looked: cute.Tensor
    cursor: cute.Tensor


class Views(NamedTuple):
    """Views and registers of one consumer warpgroup."""

    q: cute.Tensor
    q_rope: cute.Tensor
    p: tuple
    weights: cute.Tensor
    score: cute.Tensor
    out: tuple
    row_sum: cute.Tensor
    top: cute.Tensor
    a: tuple
    floats: cute.Tensor
    ints: cute.Tensor
    scales: cute.Tensor
    kv: Int32
    thread: Int32
    warp: Int32
    lane: Int32


class TurnedKernel(ListWindowKernel):
    """Host and device half; each list of tokens counts as a sequence, with one query."""

    registers = (232, 40)

    @cute.jit
    def init_barriers(self, storage, warp_index):
        """All barriers."""
        if warp_index == 0:
            with cute.arch.elect_one():
                for i in range_constexpr(SLABS):
                    cute.arch.mbarrier_init(storage.q_full.data_ptr() + i, 1)
                for i in range_constexpr(STAGES):
                    cute.arch.mbarrier_init(storage.full.data_ptr() + i, WARPS)
                    cute.arch.mbarrier_init(storage.free.data_ptr() + i, 8)
                cute.arch.mbarrier_init(storage.free.data_ptr() + Free.Q, 8)
                self.epilogue.init(storage)
        cute.arch.mbarrier_init_fence()
        self.after_barriers()

    # ---- producers
    @cute.jit
    def gather(self, storage, q_tensors, caches, work, group):
        """One warp: a quarter of the tokens of each tile."""
        s_q = cute.recast_tensor(shared_slabs(storage.q, Float16, SLABS), BFloat16)
        q_loads = SlabLoads(*q_tensors, s_q)
        look = Looking(*(cute.make_rmem_tensor(n, Int32) for n in (2, 4)))
        self.open(look.cursor, work, work.first)
        self.look(look, work, caches, group)
        lane = cute.arch.lane_idx()
        words, now = cute.make_rmem_tensor(2, Int32), cute.make_rmem_tensor(2, Int64)
        filled = cute.make_rmem_tensor(1, Int32)
        self.find_next(look, work, caches, now, filled, group)
        taken, stage, phase = Int32(0), Int32(0), Int32(1)
        free, full = storage.free.data_ptr(), storage.full.data_ptr()
        for sequence in cutlass.range(work.first, work.last + 1, unroll=1):
            start, stop, _whole = self.schedule.part(work, sequence, work.lengths[sequence])
            self.queries.load(storage, q_loads, work.block, sequence, (taken & 1) ^ 1, group)
            for _ in cutlass.range(start, stop, unroll=1):
                cute.autovec_copy(
                    at_address(now[1] + Int64(8) * (lane // TOKENS), Int32, 2, 8), words
                )
                cute.arch.mbarrier_wait(free + stage, phase)
                self.send_tokens(storage, now[0], filled[0], stage, group)
                self.put_scales(storage, words, filled[0], stage, group)
                self.find_next(look, work, caches, now, filled, group)
                cute.arch.cp_async_wait_group(0)
                cute.arch.sync_warp()
                if lane == 0:
                    cute.arch.mbarrier_arrive(full + stage)
                wrap = stage == STAGES - 1
                stage = Int32(0) if wrap else stage + 1
                phase = phase ^ 1 if wrap else phase
            taken = taken + 1

    @cute.jit
    def find_next(self, look, work, caches, now, filled, group):
        """Where the lane's token of the next tile begins; it is on its way to L2."""
        here, row, scales = self.locate(caches, look.looked)
        now[0], now[1] = row, scales
        filled[0] = cute.arch.vote_ballot_sync(here) & ((1 << TOKENS) - 1)
        half, lines = cute.arch.lane_idx() // TOKENS, -(-self.row_bytes // 128 // 2)
        for i in range_constexpr(lines):
            at = row + Int64(cutlass.min((lines * half + i) * 128, self.row_bytes - 1))
            if here:
                cute.arch.inline_ptx("prefetch.global.L2 [{$r0}];", read_only_args=[at])
        self.look(look, work, caches, group)

    @cute.jit
    def send_tokens(self, storage, row, filled, stage, group):
        """Send for the bytes of a warp's tokens."""
        lane = cute.arch.lane_idx()
        first = Int32(storage.kv.data_ptr().toint()) + stage * STAGE
        latent = first + group * (TOKENS * 512)
        for j in range_constexpr(TOKENS):
            at = shuffled(row, j) + Int64(PIECE) * lane
            self.copy(latent + (j * 512) + ((lane ^ (j % 8)) * PIECE), at, (filled >> j) & 1)
        rope = first + LATENT_BYTES + group * (TOKENS * 128)
        for i in range_constexpr(TOKENS // 4):
            t = 4 * i + lane // 8
            at = shuffled(row, t) + Int64(self.rope_bytes) + Int64(PIECE) * (lane % 8)
            self.copy(rope + t * 128 + (((lane % 8) ^ (t & 7)) * PIECE), at, (filled >> t) & 1)
        cute.arch.cp_async_commit_group()

    def copy(self, into, at, here):
        """Sixteen bytes, or zeros."""
        cute.arch.inline_ptx(
            "cp.async.cg.shared.global [{$r0}], [{$r1}], 16, {$r2};",
            read_only_args=[into, at, here * PIECE],
        )

    def scratch(self, storage):
        """Memory beside the slabs."""
        return storage.weights.data_ptr()

    def scales_of(self, storage):
        """[2 words (four fp16 scales), token, stage]"""
        at = cute.recast_ptr(self.scratch(storage), dtype=Int32) + SCALES16
        return cute.make_tensor(at, cute.make_layout((2, KEYS, STAGES)))

    @cute.jit
    def put_scales(self, storage, words, filled, stage, group):
        """A token's scales in fp16, and which places tokens fill."""
        lane = cute.arch.lane_idx()
        here = (filled >> (lane % TOKENS)) & 1
        exact = self.exact(words)
        found = cute.make_rmem_tensor(2, Float16)
        for i in range_constexpr(2):
            found[i] = (exact[i] if here == 1 else Float32(0.0)).to(Float16)
        bits = cute.recast_tensor(found, Int32)
        self.scales_of(storage)[lane // TOKENS, group * TOKENS + lane % TOKENS, stage] = bits[0]
        ints = self.ints(storage)
        if lane == 0:
            ints[FILLED + 4 * stage + group] = filled

    def ints(self, storage):
        """It as integers."""
        return cute.make_tensor(
            cute.recast_ptr(self.scratch(storage), dtype=Int32), cute.make_layout(2048)
        )

    def floats(self, storage):
        """It as numbers."""
        return cute.make_tensor(
            cute.recast_ptr(self.scratch(storage), dtype=Float32), cute.make_layout(2048)
        )

    # ---- consumers
    def output_mma(self):
        """Output [64 columns, 64 heads]."""
        m = warpgroup.OperandMajorMode
        return hopper_helpers.make_trivial_tiled_mma(
            Float16, Float16, m.K, m.MN, Float32, (1, 1, 1), (SLAB, ROWS), RMEM
        )

    def turned(self, storage, wg, side):
        """Views and registers of one side."""
        thread = cute.arch.thread_idx()[0] % 128
        score, rope, out = score_mma(Float16, RMEM), score_mma(BFloat16, RMEM), self.output_mma()
        a, b, c = (x.get_slice(thread) for x in (score, rope, out))
        atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.MN_SW128, Float16)
        turned = cute.tile_to_shape(atom, (ROWS, KEYS), order=(0, 1))
        slabs = shared_slabs(storage.kv, Float16, 2 * SLABS)
        ps = [
            cute.make_tensor(
                cute.recast_ptr(slabs.iterator + (PSLAB + i) * SLAB * SLAB, turned.inner, Float16),
                turned.outer,
            )
            for i in range(2)
        ]
        accumulator = lambda: a.make_fragment_C(a.partition_shape_C((KEYS, ROWS)))
        return Views(
            q=a.make_fragment_B(a.partition_B(shared_slabs(storage.q, Float16, SLABS))),
            q_rope=b.make_fragment_B(b.partition_B(as_bf16(storage.q, SLABS))),
            p=tuple(c.make_fragment_B(c.partition_B(x)) for x in ps),
            weights=wg.store_thread.partition_D(slabs[None, None, PSLAB + side]),
            score=accumulator(),
            out=tuple(accumulator() for _ in range(BLOCKS)),
            row_sum=cute.make_rmem_tensor(MINE, Float32),
            top=cute.make_rmem_tensor(MINE, Float32),
            a=tuple(cute.make_rmem_tensor(operand_layout(), Float16) for _ in range(2)),
            floats=self.floats(storage),
            ints=self.ints(storage),
            scales=self.scales_of(storage),
            kv=Int32(storage.kv.data_ptr().toint()),
            thread=thread,
            warp=cute.arch.make_warp_uniform(thread // 32),
            lane=thread % 32,
        )

    @cute.jit
    def consume(self, storage, work, scale_log2, outputs, slots, side: cutlass.Constexpr):
        """One warpgroup, part after part."""
        wg = self.views(storage, scale_log2, side)
        t = self.turned(storage, wg, side)
        taken, done = Int32(0), Int32(0)
        for sequence in cutlass.range(work.first, work.last + 1, unroll=1):
            length = work.lengths[sequence]
            start, stop, whole = self.schedule.part(work, sequence, length)
            self.begin_part(t, storage, taken & 1, side)
            count = stop - start
            mine = (count + 1 - side) // 2
            if mine == 0:
                self.release(wg, Free.Q)
            for k in cutlass.range(mine, unroll=1):
                i = 2 * k + side
                self.own_tile(wg, t, storage, (i, done + i, taken & 1, k, k + 1 == mine), side)
            if (count - 1) % 2 != side:
                cute.arch.barrier(barrier_id=READY + 1 - side, number_of_threads=CONSUMERS)
                if t.ints[RAISED + 1 - side] == 1:
                    self.adopt_sums(t, 1 - side)
                self.values(wg, t, done + count - 1, 1 - side, side)
                cute.arch.barrier_arrive(barrier_id=FREE + 1 - side, number_of_threads=CONSUMERS)
            if mine > 0:
                cute.arch.barrier(barrier_id=FREE + side, number_of_threads=CONSUMERS)
            self.turn(wg, t, storage, taken & 1, side)
            self.finish(wg, storage, work, outputs, slots, sequence, (start, stop, whole), side)
            taken, done = taken + 1, done + count

    @cute.jit
    def begin_part(self, t, storage, parity, side: cutlass.Constexpr):
        """Empty sums, and queries in fp16, in the order of operand A."""
        for b in range_constexpr(BLOCKS):
            t.out[b].fill(0.0)
        t.row_sum.fill(0.0)
        if const_expr(side == 0):
            if t.thread < ROWS:
                t.floats[MAX + ROWS * parity + t.thread] = Float32(LOWEST)
        for slab in range_constexpr(SLABS):
            cute.arch.mbarrier_wait(storage.q_full.data_ptr() + slab, parity)
        flat = cute.make_tensor(storage.q.data_ptr(), cute.make_layout(SLABS * SLAB * SLAB))
        thread = cute.arch.thread_idx()[0]
        odd = (thread // 4) & 1
        for i in range_constexpr(ROPE_SLAB * SLAB * SLAB // 16 // CONSUMERS):
            place = cute.local_tile(flat, (16,), (i * CONSUMERS + thread,))
            values = cute.make_rmem_tensor(16, Float16)
            for n in range_constexpr(2):
                cute.autovec_copy(
                    cute.local_tile(place, (8,), (n,)), cute.local_tile(values, (8,), (n,))
                )
            values.store(cute.recast_tensor(values, BFloat16).load().to(Float32).to(Float16))
            words, into = cute.recast_tensor(values, Int32), cute.make_rmem_tensor(8, Int32)
            for n in range_constexpr(4):
                into[n] = words[(4 + 2 * n + 1) % 8] if odd == 1 else words[2 * n]
                into[4 + n] = words[(4 + 2 * n) % 8] if odd == 1 else words[2 * n + 1]
            back = cute.recast_tensor(into, Float16)
            for n in range_constexpr(2):
                cute.autovec_copy(
                    cute.local_tile(back, (8,), (n,)), cute.local_tile(place, (8,), (n,))
                )
        cute.arch.fence_proxy("async.shared", space="cta")
        sync(Handover.FIRST_PIECE)

    @cute.jit
    def own_tile(self, wg, t, storage, where, side: cutlass.Constexpr):
        """A tile whose scores are this side's, and the values of the tile before it."""
        i, n, parity, k, last = where
        stage = n % STAGES
        cute.arch.mbarrier_wait(storage.full.data_ptr() + stage, (n // STAGES) & 1)
        self.score_tile(t, stage)
        if last:
            self.release(wg, Free.Q)
        if k > 0:
            cute.arch.barrier(barrier_id=FREE + side, number_of_threads=CONSUMERS)
        if i > 0:
            cute.arch.barrier(barrier_id=READY + 1 - side, number_of_threads=CONSUMERS)
            if t.ints[RAISED + 1 - side] == 1:
                self.adopt_sums(t, 1 - side)
        self.weigh_tile(wg, t, stage, parity, side)
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.barrier(barrier_id=OWN + side, number_of_threads=128)
        cute.arch.barrier_arrive(barrier_id=READY + side, number_of_threads=CONSUMERS)
        if i > 0:
            self.values(wg, t, n - 1, 1 - side, side)
            cute.arch.barrier_arrive(barrier_id=FREE + 1 - side, number_of_threads=CONSUMERS)
        self.values(wg, t, n, side, side)

    # ---- scores
    @cute.jit
    def score_tile(self, t, stage):
        """S^T of a tile, converted slab by slab."""
        lane, l7, high = t.lane, t.lane % 8, t.lane // 16
        first = t.kv + stage * STAGE
        token = 16 * t.warp + 8 * ((lane // 8) & 1) + l7
        at = [first + token * 512 + (((2 * k) ^ (high ^ l7)) * PIECE) for k in range(4)]
        scales = cute.make_rmem_tensor(8, Int32)  # [4 groups, 2 rows] pairs of the same
        for r in range_constexpr(2):
            for n in range_constexpr(2):
                word = t.scales[n, 16 * t.warp + lane // 4 + 8 * r, stage]
                scales[4 * r + 2 * n] = cute.arch.prmt(word, word, 0x1010)
                scales[4 * r + 2 * n + 1] = cute.arch.prmt(word, word, 0x3232)
        raw = cute.make_rmem_tensor(8, Int32)
        self.fetch_scored(raw, at, 0)
        for j in range_constexpr(ROPE_SLAB):
            a = t.a[j % 2]
            now = cute.make_rmem_tensor(8, Int32)
            for n in range_constexpr(8):
                now[n] = raw[n]
            if const_expr(j + 1 < ROPE_SLAB):
                self.fetch_scored(raw, at, j + 1)
            if const_expr(j >= 2):
                warpgroup.wait_group(1)
            words = self.words_of(a)
            for half in range_constexpr(2):
                factors = cute.make_rmem_tensor(8, Int32)
                for n in range_constexpr(8):
                    factors[n] = scales[4 * ((n // 2) % 2) + j // 2]
                values = self.converted([now[4 * half + n] for n in range(4)], factors)
                for n in range_constexpr(8):  # [step, row, first or second pair]
                    words[8 * half + 4 * (n // 4) + (n // 2) % 2 + 2 * (n % 2)] = values[n]
            warpgroup.fence()
            mma = score_mma(Float16, RMEM)
            for step in range_constexpr(4):
                mma.set(warpgroup.Field.ACCUMULATE, j > 0 or step > 0)
                cute.gemm(mma, t.score, a[None, None, step], t.q[None, None, step, j], t.score)
            warpgroup.commit_group()
        rope = cute.make_rmem_tensor(operand_layout(), BFloat16)
        words = self.words_of(rope)
        for step in range_constexpr(4):
            place = first + LATENT_BYTES + token * 128 + (((2 * step) ^ (high ^ l7)) * PIECE)
            found = matrices(place, False)
            for n in range_constexpr(4):
                words[4 * step + n] = found[n]
        warpgroup.fence()
        mma = score_mma(BFloat16, RMEM)
        mma.set(warpgroup.Field.ACCUMULATE, True)
        for step in range_constexpr(4):
            cute.gemm(
                mma, t.score, rope[None, None, step], t.q_rope[None, None, step, ROPE_SLAB], t.score
            )
        warpgroup.commit_group()
        warpgroup.wait_group(0)

    def words_of(self, operand):
        """An operand as 32-bit words."""
        flat = cute.make_tensor(operand.iterator, cute.make_layout(32))
        return cute.recast_tensor(flat, Int32)

    @cute.jit
    def fetch_scored(self, raw, at, j: cutlass.Constexpr):
        """Bytes of 64 columns."""
        for half in range_constexpr(2):
            jj = 2 * j + half
            found = matrices(at[jj % 4] + 128 * (jj // 4), False)
            for n in range_constexpr(4):
                raw[4 * half + n] = found[n]

    def converted(self, words, factors):
        """Sixteen values by their scales."""
        raw = cute.make_rmem_tensor(4, Int32)
        for n in range(4):
            raw[n] = words[n]
        values = cute.make_rmem_tensor(16, Float16)
        values.store(
            cute.recast_tensor(raw, Float8E4M3FN).load().to(Float16)
            * cute.recast_tensor(factors, Float16).load()
        )
        return cute.recast_tensor(values, Int32)

    # ---- weights
    def places(self, c):
        """A thread's two scores of a head."""
        return 4 * (c // 2) + c % 2, 4 * (c // 2) + c % 2 + 2

    def column(self, t, c):
        """The head of a thread's c-th."""
        return 8 * (c // 2) + 2 * (t.lane % 4) + c % 2

    @cute.jit
    def weigh_tile(self, wg, t, stage, parity, side: cutlass.Constexpr):
        """Scores to weights, under a maximum that only rises by much."""
        filled = t.ints[FILLED + 4 * stage + t.warp]
        if filled != (1 << TOKENS) - 1:
            for r in range_constexpr(2):
                here = (filled >> (t.lane // 4 + 8 * r)) & 1
                for c in range_constexpr(MINE):
                    x = self.places(c)[r]
                    t.score[x] = t.score[x] if here == 1 else -Float32.inf
        over = [None] * MINE
        for c in range_constexpr(MINE):
            upper, lower = self.places(c)
            t.top[c] = cute.arch.fmax(t.score[upper], t.score[lower])
            over[c] = t.top[c] * wg.scale_log2 - t.floats[MAX + ROWS * parity + self.column(t, c)]
        worst = reduced(cute.arch.fmax, over)
        need = cute.arch.vote_any_sync(worst > self.lazy)
        if t.lane == 0:
            t.ints[NEED + 4 * side + t.warp] = Int32(1) if need else Int32(0)
        cute.arch.barrier(barrier_id=OWN + side, number_of_threads=128)
        needs = [t.ints[NEED + 4 * side + w] for w in range(4)]
        rise = needs[0] | needs[1] | needs[2] | needs[3]
        if rise == 1:
            for c in range_constexpr(MINE):
                for distance in (4, 8, 16):
                    other = cute.arch.shuffle_sync_bfly(t.top[c], distance)
                    t.top[c] = cute.arch.fmax(t.top[c], other)
                if t.lane < 4:
                    t.floats[BY_WARP + 256 * side + ROWS * t.warp + self.column(t, c)] = t.top[c]
            cute.arch.barrier(barrier_id=OWN + side, number_of_threads=128)
            for c in range_constexpr(MINE):
                at = BY_WARP + 256 * side + self.column(t, c)
                top = reduced(cute.arch.fmax, [t.floats[at + ROWS * w] for w in range(4)])
                old = t.floats[MAX + ROWS * parity + self.column(t, c)]
                new = raised(old, top * wg.scale_log2, self.lazy)
                shrink = cute.math.exp2(old - new, fastmath=True)
                t.top[c] = new
                t.row_sum[c] = t.row_sum[c] * shrink
                if (t.warp == 0) & (t.lane < 4):
                    t.floats[SHRINK + ROWS * side + self.column(t, c)] = shrink
            cute.arch.barrier(barrier_id=OWN + side, number_of_threads=128)
            if (t.warp == 0) & (t.lane < 4):
                for c in range_constexpr(MINE):
                    t.floats[MAX + ROWS * parity + self.column(t, c)] = t.top[c]
            cute.arch.barrier(barrier_id=OWN + side, number_of_threads=128)
        if t.thread == 0:
            t.ints[RAISED + side] = rise
        for c in range_constexpr(MINE):
            most = t.floats[MAX + ROWS * parity + self.column(t, c)]
            for x in self.places(c):
                weight = cute.math.exp2(t.score[x] * wg.scale_log2 - most, fastmath=True)
                t.score[x] = weight
                t.row_sum[c] = t.row_sum[c] + weight
        rounded = cute.make_rmem_tensor(t.score.layout, Float16)
        rounded.store(t.score.load().to(Float16))
        cute.copy(wg.store, wg.store_thread.retile(rounded), t.weights)

    @cute.jit
    def adopt_sums(self, t, which: cutlass.Constexpr):
        """Sums under the other side's maximum."""
        for c in range_constexpr(MINE):
            t.row_sum[c] = t.row_sum[c] * t.floats[SHRINK + ROWS * which + self.column(t, c)]

    # ---- values
    @cute.jit
    def values(self, wg, t, n, which: cutlass.Constexpr, side: cutlass.Constexpr):
        """O^T += V^T P^T of a tile."""
        stage, lane, l7 = n % STAGES, t.lane, t.lane % 8
        if t.ints[RAISED + which] == 1:
            for c in range_constexpr(MINE):
                shrink = t.floats[SHRINK + ROWS * which + self.column(t, c)]
                for b in range_constexpr(BLOCKS):
                    for x in self.places(c):
                        t.out[b][x] = t.out[b][x] * shrink
        low, high = (lane // 8) & 1, lane // 16
        at = (
            t.kv
            + stage * STAGE
            + (8 * low + l7) * 512
            + 256 * side
            + (((4 * high + t.warp) ^ l7) * PIECE)
        )
        raw = cute.make_rmem_tensor(8, Int32)
        self.fetch_valued(raw, at, 0)
        pairs = self.pairs_of(t, 0, stage, side)
        mma = self.output_mma()
        mma.set(warpgroup.Field.ACCUMULATE, True)
        for kk in range_constexpr(4):
            a = t.a[kk % 2]
            now = cute.make_rmem_tensor(8, Int32)
            for m in range_constexpr(8):
                now[m] = raw[m]
            factors = self.factors_of(pairs)
            if const_expr(kk + 1 < 4):
                self.fetch_valued(raw, at, kk + 1)
                pairs = self.pairs_of(t, kk + 1, stage, side)
            if const_expr(kk >= 2):
                warpgroup.wait_group(1)
            words = self.words_of(a)
            for bb in range_constexpr(2):
                each = cute.make_rmem_tensor(8, Int32)
                for m in range_constexpr(8):
                    each[m] = factors[bb][(m // 2) % 2]
                bytes_ = [
                    cute.arch.prmt(now[4 * bb + m], now[4 * bb + m], 0x3120) for m in range(4)
                ]
                values = self.converted(bytes_, each)
                for m in range_constexpr(8):
                    words[8 * bb + m] = values[m]
            warpgroup.fence()
            for b in range_constexpr(BLOCKS):
                cute.gemm(mma, t.out[b], a[None, None, b], t.p[which][None, None, kk], t.out[b])
            warpgroup.commit_group()
        cute.arch.sync_warp()
        if t.lane == 0:
            cute.arch.mbarrier_arrive(wg.free + stage)
        warpgroup.wait_group(0)

    @cute.jit
    def fetch_valued(self, raw, at, kk: cutlass.Constexpr):
        """Bytes of 16 tokens, as columns of four blocks."""
        for bb in range_constexpr(2):
            found = matrices(at + (8192 * kk + 128 * bb), True)
            for m in range_constexpr(4):
                raw[4 * bb + m] = found[m]

    def pairs_of(self, t, kk, stage, side):
        """Scales of two tokens, each of two groups: [first or second eight tokens][token]."""
        token = 16 * kk + 2 * (t.lane % 4)
        return [[t.scales[side, token + 8 * e + i, stage] for i in range(2)] for e in range(2)]

    def factors_of(self, words):
        """Pairs of scales of two tokens: [group of 128][first or second eight tokens]."""
        pick = (0x5410, 0x7632)
        return [
            [cute.arch.prmt(words[e][0], words[e][1], pick[g]) for e in range(2)] for g in range(2)
        ]

    # ---- results
    @cute.jit
    def turn(self, wg, t, storage, parity, side: cutlass.Constexpr):
        """Sums and outputs as rows, as those who merge take them."""
        for c in range_constexpr(MINE):
            for distance in (4, 8, 16):
                t.row_sum[c] = t.row_sum[c] + cute.arch.shuffle_sync_bfly(t.row_sum[c], distance)
            if t.lane < 4:
                t.floats[BY_WARP + 256 * side + ROWS * t.warp + self.column(t, c)] = t.row_sum[c]
        base = (
            cute.recast_ptr(storage.kv.data_ptr(), dtype=Float32)
            + (PSLAB + side) * SLAB * SLAB // 2
        )
        room = cute.make_tensor(base, cute.make_layout((32, ROWS)))
        for b in range_constexpr(BLOCKS):
            for half in range_constexpr(2):
                if t.warp // 2 == half:
                    for c in range_constexpr(MINE):
                        pair = cute.make_rmem_tensor(2, Float32)
                        pair[0], pair[1] = t.out[b][self.places(c)[0]], t.out[b][self.places(c)[1]]
                        column = 16 * (t.warp % 2) + 2 * (t.lane // 4)
                        head = self.column(t, c)
                        at = (column ^ self.twist(head)) // 2
                        cute.autovec_copy(pair, cute.local_tile(room[None, head], (2,), (at,)))
                cute.arch.barrier(barrier_id=OWN + side, number_of_threads=128)
                for j in range_constexpr(4):
                    for r in range_constexpr(2):
                        pair, head = cute.make_rmem_tensor(2, Float32), wg.row + 8 * r
                        at = ((8 * j + 2 * (t.lane % 4)) ^ self.twist(head)) // 2
                        cute.autovec_copy(cute.local_tile(room[None, head], (2,), (at,)), pair)
                        for e in range_constexpr(2):
                            wg.out[4 * (8 * b + 4 * half + j) + 2 * r + e] = pair[e]
                cute.arch.barrier(barrier_id=OWN + side, number_of_threads=128)
        sync(Handover.SUMS)
        for r in range_constexpr(2):
            head = wg.row + 8 * r
            total = reduced(operator.add, [t.floats[BY_WARP + ROWS * w + head] for w in range(8)])
            wg.row_sum[r] = total * 0.125  # of eight threads, whose sums are added up
            wg.row_max[r] = t.floats[MAX + ROWS * parity + head]

    def twist(self, head):
        """Spreads rows over banks."""
        return (head & 7) * 4

    @cute.jit
    def send(self, wg, storage, outputs, work, sequence, first, side: cutlass.Constexpr):
        """The output by way of the weights' place."""
        store_o, o, lse, lse_unit, lse_empty = outputs
        if const_expr(side == Side.LEFT):
            self.store_lse(wg, work, lse, sequence, lse_unit, lse_empty)
        slabs = shared_slabs(storage.kv, self.dtype, 2 * SLABS)
        shared, out = tma_parts(store_o, cute.recast_tensor(slabs, self.out_dtype), o)
        leader = cute.arch.make_warp_uniform(cute.arch.warp_idx()) % 4 == 0
        for j in range_constexpr(4):
            values = cute.make_tensor(wg.out.iterator + 32 * j, wg.score.layout)
            rounded = cute.make_rmem_tensor(wg.score.layout, self.out_dtype)
            rounded.store(values.load().to(self.out_dtype))
            bits = cute.recast_tensor(rounded, self.dtype)
            target = wg.store_thread.partition_D(slabs[None, None, PSLAB + side])
            cute.copy(wg.store, wg.store_thread.retile(bits), target)
            cute.arch.fence_proxy("async.shared", space="cta")
            cute.arch.barrier(barrier_id=OWN + side, number_of_threads=128)
            if leader:
                to = out[None, work.block, 4 * side + j, sequence]
                cute.copy(store_o, shared[None, PSLAB + side], to)
                cute.arch.cp_async_bulk_commit_group()
                cute.arch.cp_async_bulk_wait_group(0, read=True)
            cute.arch.barrier(barrier_id=OWN + side, number_of_threads=128)
