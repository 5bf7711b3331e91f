"""Small kernels that the compile tests share; line numbers of some are asserted by marker."""

import cuda.tile as ct
import torch

ConstInt = ct.Constant[int]
ConstFloat = ct.Constant[float]
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def copy(source, target, TILE: ConstInt):
    index = ct.bid(0)
    ct.store(target, (index,), ct.load(source, (index,), (TILE,)))  # copied


@ct.kernel
def matmul(a, b, c, TM: ConstInt, TN: ConstInt, TK: ConstInt):
    row, col = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.num_tiles(a, 1, (TM, TK))):
        left = ct.load(a, (row, k), (TM, TK), padding_mode=ZERO)
        right = ct.load(b, (k, col), (TK, TN), padding_mode=ZERO)
        acc = ct.mma(left, right, acc)  # multiplied
    ct.store(c, (row, col), acc.astype(c.dtype))


@ct.kernel
def latent(q, qpe, z, kpe, o, SCALE: ConstFloat, TM: ConstInt, TN: ConstInt):
    """Latent attention, one KV tile used as K and V: q [b,h,512], z [b,t,512], kpe [b,t,64]."""
    batch, group = ct.bid(0), ct.bid(1)
    query = ct.load(q, (batch, group, 0), (1, TM, 512), padding_mode=ZERO).reshape((TM, 512))
    query_pe = ct.load(qpe, (batch, group, 0), (1, TM, 64), padding_mode=ZERO).reshape((TM, 64))
    acc = ct.zeros((TM, 512), ct.float32)
    top = ct.full((TM, 1), -1e30, ct.float32)
    total = ct.zeros((TM, 1), ct.float32)
    for j in range(ct.num_tiles(z, 1, (1, TN, 512))):
        keys = ct.load(z, (batch, j, 0), (1, TN, 512), padding_mode=ZERO).reshape((TN, 512))
        keys_pe = ct.load(kpe, (batch, j, 0), (1, TN, 64), padding_mode=ZERO).reshape((TN, 64))
        score = ct.mma(query, keys.transpose(), ct.zeros((TM, TN), ct.float32))
        score = ct.mma(query_pe, keys_pe.transpose(), score) * SCALE
        new_top = ct.maximum(top, ct.max(score, 1, keepdims=True))
        weight = ct.exp2(score - new_top)
        rescale = ct.exp2(top - new_top)
        total = total * rescale + ct.sum(weight, 1, keepdims=True)
        acc = ct.mma(weight.astype(z.dtype), keys, acc * rescale)
        top = new_top
    ct.store(o, (batch, group, 0), (acc / total).astype(o.dtype).reshape((1, TM, 512)))


@ct.kernel
def refused(a):
    ct.store(a, (0,), ct.load(a, (0,), (3,)))  # 3 is no power of two


def meta(*shape, dtype=torch.bfloat16):
    return torch.empty(*shape, dtype=dtype, device="meta")


def copy_args():
    return (meta(4096), meta(4096), 512)


def matmul_args(tm=64, tn=64, tk=64, dtype=torch.bfloat16, size=256):
    return (*(meta(size, size, dtype=dtype) for _ in range(3)), tm, tn, tk)


def latent_args(tm=64, tn=64):
    q, qpe, z, kpe = meta(4, 128, 512), meta(4, 128, 64), meta(4, 4096, 512), meta(4, 4096, 64)
    return (q, qpe, z, kpe, meta(4, 128, 512), 0.1, tm, tn)
