"""Triton kernels of the base version, attention and merge; imported only where Triton is.

All LSEs are natural logarithms.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def attend(
    q, qpe, z, kpe, o, lse, scale, rows, s, t, piece,
    K: tl.constexpr, P: tl.constexpr, CAUSAL: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Grid (tiles of rows, pieces of keys, sequences); a row is a query token of a head.

    ``WIDE`` multiplies in fp32, for the interpreter: numpy has no bf16, and casts to it cut off.
    """
    split, sequence = tl.program_id(1), tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    k, p, inside = tl.arange(0, K), tl.arange(0, P), row < rows
    place = sequence * rows + row
    queries = tl.load(q + place[:, None] * K + k[None, :], mask=inside[:, None], other=0.0)
    rotary = tl.load(qpe + place[:, None] * P + p[None, :], mask=inside[:, None], other=0.0)
    if WIDE:
        queries, rotary = queries.to(tl.float32), rotary.to(tl.float32)
    limit = row % s + (t - s + 1) if CAUSAL else row * 0 + t  # first key that a row does not see
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, K), tl.float32)
    last = tl.minimum((split + 1) * piece, t)
    for first in range(split * piece, last, KEYS):
        key = first + tl.arange(0, KEYS)
        at, there = sequence * t + key, key < last
        latent = tl.load(z + at[:, None] * K + k[None, :], mask=there[:, None], other=0.0)
        turned = tl.load(kpe + at[:, None] * P + p[None, :], mask=there[:, None], other=0.0)
        if WIDE:
            latent, turned = latent.to(tl.float32), turned.to(tl.float32)
        score = tl.dot(queries, tl.trans(latent))
        score = tl.dot(rotary, tl.trans(turned), score) * (scale * LOG2_E)
        seen = there[None, :] & (key[None, :] < limit[:, None])
        score = tl.where(seen, score, float("-inf"))
        raised = tl.maximum(top, tl.max(score, 1))
        level = tl.where(raised == float("-inf"), 0.0, raised)  # no key seen so far
        shrink, weight = tl.exp2(top - level), tl.exp2(score - level[:, None])
        total = total * shrink + tl.sum(weight, 1)
        acc = tl.dot(weight.to(latent.dtype), latent, acc * shrink[:, None])
        top = raised
    empty = total == 0.0
    total = tl.where(empty, 1.0, total)
    place = (sequence * tl.num_programs(1) + split) * rows + row
    tl.store(
        o + place[:, None] * K + k[None, :],
        (acc / total[:, None]).to(o.dtype.element_ty),
        mask=inside[:, None],
    )
    sums = tl.where(empty, float("-inf"), (top + tl.log2(total)) * LN_2)
    tl.store(lse + place, sums, mask=inside)


@triton.jit
def merge(parts, part_lse, o, lse, rows, K: tl.constexpr, SPLITS: tl.constexpr):
    """Grid (rows, sequences): the pieces of one row, weighted by their LSE."""
    row, sequence = tl.program_id(0), tl.program_id(1).to(tl.int64)
    k, first = tl.arange(0, K), sequence * SPLITS * rows + row
    top = tl.load(part_lse + first)
    for split in range(1, SPLITS):
        top = tl.maximum(top, tl.load(part_lse + first + split * rows))
    level = tl.where(top == float("-inf"), 0.0, top)
    total, acc = level * 0.0, tl.zeros((K,), tl.float32)
    for split in range(SPLITS):
        at = first + split * rows
        weight = tl.exp2((tl.load(part_lse + at) - level) * LOG2_E)
        total += weight
        acc += weight * tl.load(parts + at * K + k)
    empty = total == 0.0
    total = tl.where(empty, 1.0, total)
    place = sequence * rows + row
    tl.store(o + place * K + k, (acc / total).to(o.dtype.element_ty))
    tl.store(lse + place, tl.where(empty, float("-inf"), level + tl.log2(total) * LN_2))


def _config(keys: int, warps: int, stages: int) -> triton.Config:
    return triton.Config({"KEYS": keys}, num_warps=warps, num_stages=stages)


#: What Triton's own tuner times on a GPU; KEYS divides ``PIECE`` of the host half.
CONFIGS = [_config(64, 8, 2), _config(32, 8, 2), _config(32, 8, 3)]

#: As called on a GPU: with Triton's own tuner.
tuned = triton.autotune(CONFIGS, key=["rows", "t", "piece"])(attend)
