"""MLA decode in cuTile: pages, lengths of any size, keys split over blocks, parts merged."""

import cuda.tile as ct
import torch

LATENT, ROTARY, PAGE, HEADS, SPLITS, COLUMNS = 512, 64, 64, 64, 4, 32
SCALE = (128 + ROTARY) ** -0.5  # Of the key before absorption: not of 576.
Int = ct.Constant[int]


@ct.kernel(num_worker_warps=8)
def attend(q, cache, table, lengths, outs, lses, scale: float,
           HEADS: Int, PAGE: Int, LATENT: Int, ROTARY: Int, SPLITS: Int):  # fmt: skip
    """A block per sequence, 64 heads and part of the keys."""
    b, group, part = ct.bid(0), ct.bid(1), ct.bid(2)
    at, zero = LATENT // ROTARY, ct.PaddingMode.ZERO  # The rotary part is tile 8 of 64 columns.
    query = ct.load(q, (b, group, 0), (1, HEADS, LATENT), padding_mode=zero)
    turned = ct.load(q, (b, group, at), (1, HEADS, ROTARY), padding_mode=zero)
    query, turned = query.reshape((HEADS, LATENT)), turned.reshape((HEADS, ROTARY))
    best = ct.full((HEADS, 1), -1e30, ct.float32)
    total = ct.zeros((HEADS, 1), ct.float32)
    acc = ct.zeros((HEADS, LATENT), ct.float32)
    length = ct.load(lengths, (b,), (1,)).item()  # Known at run time: no compile per length.
    tiles = ct.cdiv(length, PAGE)
    each = ct.cdiv(tiles, SPLITS)
    for tile in range(part * each, min((part + 1) * each, tiles)):
        page = ct.load(table, (b, tile), (1, 1)).item()  # A run-time scalar is an index.
        rows = ct.load(cache, (page, 0, 0), (1, PAGE, LATENT)).reshape((PAGE, LATENT))
        rotary = ct.load(cache, (page, 0, at), (1, PAGE, ROTARY)).reshape((PAGE, ROTARY))
        score = ct.mma(query, rows.transpose(), ct.zeros((HEADS, PAGE), ct.float32))
        score = ct.mma(turned, rotary.transpose(), score) * scale
        key = (tile * PAGE + ct.arange(PAGE, dtype=ct.int32)).reshape((1, PAGE))
        score = ct.where(key < length, score, -float("inf"))  # The last tile may be partial.
        new = ct.maximum(best, ct.max(score, axis=1, keepdims=True))
        weight, shrink = ct.exp(score - new), ct.exp(best - new)
        total = total * shrink + ct.sum(weight, axis=1, keepdims=True)
        acc = ct.mma(weight.astype(ct.bfloat16), rows, acc * shrink)  # Values: the same rows.
        best = new
    out = acc / ct.where(total > 0.0, total, 1.0)  # A part may have no keys: its weight is 0.
    ct.store(outs, (part, b, group, 0), out.reshape((1, 1, HEADS, LATENT)))
    ct.store(lses, (part, b, group), (best + ct.log(total)).reshape((1, 1, HEADS)))


@ct.kernel
def combine(outs, lses, out, HEADS: Int, SPLITS: Int, COLUMNS: Int):
    """Parts are merged by e^(LSE - largest LSE); a block has some columns."""
    b, group, place = ct.bid(0), ct.bid(1), ct.bid(2)
    lse = ct.load(lses, (0, b, group), (SPLITS, 1, HEADS)).reshape((SPLITS, HEADS, 1))
    weight = ct.exp(lse - ct.max(lse, axis=0, keepdims=True))
    weight = weight / ct.sum(weight, axis=0, keepdims=True)
    parts = ct.load(outs, (0, b, group, place), (SPLITS, 1, HEADS, COLUMNS))
    merged = ct.sum(weight * parts.reshape((SPLITS, HEADS, COLUMNS)), axis=0)
    ct.store(out, (b, group, place), merged.astype(out.dtype).reshape((1, HEADS, COLUMNS)))


def decode(q, cache, table, lengths):
    """Of q [b, h, 576], cache [pages, 64, 576], table [b, n] and lengths [b]: [b, h, 512]."""
    b, h, _ = q.shape
    stream, groups, new = torch.cuda.current_stream(), ct.cdiv(h, HEADS), q.new_empty
    outs, lses = (new(SPLITS, b, h, *x, dtype=torch.float32) for x in ((LATENT,), ()))
    sizes, out = (SCALE, HEADS, PAGE, LATENT, ROTARY, SPLITS), new(b, h, LATENT)
    arguments = (q, cache, table, lengths, outs, lses, *sizes)
    ct.launch(stream, (b, groups, SPLITS), attend, arguments)
    merge = (outs, lses, out, HEADS, SPLITS, COLUMNS)
    ct.launch(stream, (b, groups, LATENT // COLUMNS), combine, merge)
    return out


q = torch.randn(2, 128, LATENT + ROTARY).bfloat16().cuda()
cache = torch.randn(16, PAGE, LATENT + ROTARY).bfloat16().cuda()
table = torch.randperm(16).int().reshape(2, 8).cuda()  # Pages in any order.
lengths = torch.tensor([450, 70]).int().cuda()  # 8 tiles, the last one of 2 keys; 2 tiles.
out = decode(q, cache, table, lengths).float()
for i, length in enumerate(lengths.tolist()):
    rows = cache[table[i].long()].reshape(-1, LATENT + ROTARY)[:length].float()
    wanted = torch.softmax(q[i].float() @ rows.T * SCALE, -1) @ rows[:, :LATENT]
    error = ((out[i] - wanted).norm() / wanted.norm()).item()
    print(f"right: {error < 5e-3}, relative error {error:.1e}")
