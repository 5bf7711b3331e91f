"""Pairs of CTAs over latents in e4m3 and rotary parts in 16 bits: fewer bytes, products in fp8.

A slab is 128 bytes wide: 128 latents, or a rotary part of 64 elements of 16 bits. So a row has five
slabs where it had nine, and TMA, which moves bytes, takes latents by twos as elements of 16 bits.
Scores are sums of products in fp8, and of one in 16 bits with an accumulator of its own: PTX keeps
the order of products into one accumulator only where they are of one shape. Weights are made as
large as e4m3 has room for before they are rounded to it, so that small ones do not vanish.
"""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import Float8E4M3FN, range_constexpr
from cutlass.cute.nvgpu import tcgen05

from mla_var3.kernel.cute_python.kit.pair_kernel import SCORES, PairKernel
from mla_var3.kernel.cute_python.kit.pair_products import half_operand, pair_mma, row_operand
from mla_var3.kernel.cute_python.kit.slabs import KEYS, LATENT, ROWS
from mla_var3.kernel.cute_python.kit.tall_products import shared
from mla_var3.kernel.cute_python.kit.tensor_memory import columns, load_lane

#: Slabs that shared memory holds beside queries and weights.
SLOTS = 22
#: Latents of a slab, and slabs of a row: the latent ones, then the rotary one.
WIDTH = 128
SLABS = LATENT // WIDTH + 1
#: What products make and sum over: scores of a slab, and 128 columns per CTA of a slab of values.
SCORE_TILE, VALUE_TILE = (2 * ROWS, 2 * KEYS, WIDTH), (2 * ROWS, 2 * WIDTH, KEYS)
#: Columns of two tiles of sums of rotary parts, behind those of the scores.
ROTARY_SCORES = 384
#: Largest weight (log2) that the range of e4m3 has room for.
HIGHEST = 8.0


class Fp8PairKernel(PairKernel):
    """Latents, their queries and weights in e4m3."""

    slots, slabs = SLOTS, SLABS
    blocks, value_tile = LATENT // 2 // WIDTH, VALUE_TILE

    rotary_scores = ROTARY_SCORES

    @property
    def boost(self):
        """What a lagging maximum leaves of the range."""
        return HIGHEST - self.lazy

    def fields(self, dtype):
        align = cute.struct.Align
        weights = cute.struct.MemRange[Float8E4M3FN, 2 * ROWS * KEYS]
        return super().fields(dtype) | {"weights": align[weights, 1024]}

    @cute.jit
    def load_scores(self, base, buffer):
        """What latents and rotary parts give, added."""
        score = load_lane(columns(base, SCORES + KEYS * buffer, KEYS))
        rotary = load_lane(columns(base, ROTARY_SCORES + KEYS * buffer, KEYS))
        for i in range_constexpr(KEYS):
            score[i] = score[i] + rotary[i]
        return score

    def score_products(self, storage):
        """Latent slabs in fp8; the rotary one in 16 bits, as ``PairKernel`` has all of them."""
        mma = pair_mma(Float8E4M3FN, False, SCORE_TILE)
        queries = row_operand(mma, storage.q, Float8E4M3FN, SLABS, SCORE_TILE)
        keys = half_operand(mma, storage.keys, Float8E4M3FN, SLOTS, SCORE_TILE)
        return (mma, queries, keys), super().score_products(storage)[1]

    def value_product(self, storage):
        """Weights of 128 keys as one slab, values of 64 keys and 128 columns per CTA."""
        mma = pair_mma(Float8E4M3FN, True, VALUE_TILE)
        whole = (*VALUE_TILE[:2], 2 * KEYS)
        weights = row_operand(mma, storage.weights, Float8E4M3FN, 1, whole)
        values = half_operand(mma, storage.keys, Float8E4M3FN, SLOTS, VALUE_TILE)
        return mma, cute.group_modes(weights, 2, 4), values

    def weight_row(self, storage):
        thread = cute.arch.thread_idx()[0]
        atom = tcgen05.make_smem_layout_atom(tcgen05.SmemLayoutAtomKind.K_SW128, Float8E4M3FN)
        rows = shared(storage.weights, cute.tile_to_shape(atom, (ROWS, 2 * KEYS), order=(0, 1)))
        return cute.local_tile(rows[thread % ROWS, None], (KEYS,), (thread // ROWS,))
