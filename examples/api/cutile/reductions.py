"""Reductions, scans and matrix products of cuTile, one cell per group of operations."""

import cuda.tile as ct
import torch

torch.set_default_device("cuda")
stream = torch.cuda.current_stream()


# %% sum prod max min
@ct.kernel
def rows(x, sums, products, spread):
    tile = ct.load(x, (0, 0), (2, 4))
    ct.store(sums, (0,), ct.sum(tile, axis=1))
    ct.store(products, (0,), ct.prod(tile, 1))
    ct.store(spread, (0,), ct.max(tile, 1) - ct.min(tile, 1))


x = torch.arange(1.0, 9.0).reshape(2, 4)
sums, products, spread = (torch.empty(2) for _ in range(3))
ct.launch(stream, (1,), rows, (x, sums, products, spread))
assert [t.tolist() for t in (sums, products, spread)] == [[10, 26], [24, 1680], [3, 3]]


# %% argmax argmin
@ct.kernel
def places(x, top, low):
    tile = ct.load(x, (0, 0), (2, 4))
    ct.store(top, (0,), ct.argmax(tile, axis=1))
    ct.store(low, (0,), ct.argmin(tile, axis=1))


x = torch.tensor([[3.0, 9.0, 9.0, 1.0], [0.0, -1.0, 2.0, 5.0]])
top, low = (torch.empty(2, dtype=torch.int32) for _ in range(2))
ct.launch(stream, (1,), places, (x, top, low))
assert (top.tolist(), low.tolist()) == ([1, 3], [3, 1])  # Of equal ones, the first.


# %% reduce
def merged(mean, size, other_mean, other_size):
    total = size + other_size
    return (mean * size + other_mean * other_size) / total, total


@ct.kernel
def mean(x, out):
    tile = ct.load(x, (0,), (8,))
    average, _ = ct.reduce((tile, ct.ones((8,), ct.float32)), 0, merged, (0.0, 1e-9))
    ct.store(out, (0,), average.reshape((1,)))


x, out = torch.arange(8.0), torch.empty(1)
ct.launch(stream, (1,), mean, (x, out))
assert torch.allclose(out, x.mean())


# %% cumsum cumprod scan
@ct.kernel
def prefixes(x, sums, products, maxima):
    tile = ct.load(x, (0,), (4,))
    ct.store(sums, (0,), ct.cumsum(tile, 0, reverse=True))
    ct.store(products, (0,), ct.cumprod(tile, 0))
    ct.store(maxima, (0,), ct.scan(tile, 0, lambda a, b: ct.maximum(a, b), -1e9))


x = torch.tensor([2.0, 1.0, 4.0, 3.0])
sums, products, maxima = (torch.empty(4) for _ in range(3))
ct.launch(stream, (1,), prefixes, (x, sums, products, maxima))
assert sums.tolist() == [10, 8, 7, 3]
assert products.tolist() == [2, 2, 8, 24]
assert maxima.tolist() == [2, 2, 4, 4]


# %% mma matmul
@ct.kernel
def scores(q, keys, out):  # Keys lie as [tokens, width], as queries do: transpose them.
    query, tile = ct.load(q, (0, 0), (16, 64)), ct.load(keys, (0, 0), (32, 64))
    score = ct.mma(query, tile.transpose(), ct.zeros((16, 32), ct.float32))
    ct.store(out, (0, 0), score)


q, keys, out = torch.randn(16, 64).bfloat16(), torch.randn(32, 64).bfloat16(), torch.empty(16, 32)
ct.launch(stream, (1,), scores, (q, keys, out))
assert torch.allclose(out, q.float() @ keys.float().T, rtol=1e-3, atol=1e-3)


@ct.kernel
def product(a, b, c, K: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((16, 16), ct.float32)
    for k in range(K // 16):
        left = ct.load(a, (i, k), (16, 16))
        right = ct.load(b, (k, j), (16, 16))
        acc = ct.mma(left, right, acc)  # ct.matmul(left, right) starts from zero.
    ct.store(c, (i, j), acc)


a, b, c = torch.randn(32, 64).half(), torch.randn(64, 32).half(), torch.empty(32, 32)
ct.launch(stream, (2, 2), product, (a, b, c, 64))
assert torch.allclose(c, a.float() @ b.float(), rtol=1e-3, atol=1e-3)


# %% mma_scaled
@ct.kernel
def scaled(out):
    a, b = (ct.ones((16, 64), ct.float8_e4m3fn), ct.ones((64, 16), ct.float8_e4m3fn))
    twos = ct.full((16, 2), 2.0, ct.float8_e8m0fnu)  # A scale for 32 elements of K.
    acc = ct.mma_scaled(a, twos, b, twos.transpose(), ct.zeros((16, 16), ct.float32))
    ct.store(out, (0, 0), acc)


out = torch.empty(16, 16)
ct.launch(stream, (1,), scaled, (out,))
assert (out == 64 * 4).all()
