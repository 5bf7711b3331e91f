"""Arithmetic, comparison and mathematics of cuTile, one cell per group of operations."""

import cuda.tile as ct
import torch

torch.set_default_device("cuda")
stream = torch.cuda.current_stream()


# %% add sub mul negative
@ct.kernel
def ring(x, y, out):
    a, b = ct.load(x, (0,), (4,)), ct.load(y, (0,), (4,))
    ct.store(out, (0,), ct.sub(ct.mul(a, b), ct.negative(ct.add(a, 1))))


x, y, out = torch.arange(4.0), torch.full((4,), 3.0), torch.empty(4)
ct.launch(stream, (1,), ring, (x, y, out))
assert torch.equal(out, x * y + x + 1)


# %% truediv floordiv mod divmod cdiv
@ct.kernel
def divided(x, exact, floors, rest, up):
    tile = ct.load(x, (0,), (4,))
    whole, left = ct.divmod(tile, 4)
    ct.store(exact, (0,), ct.truediv(tile, 4))
    ct.store(floors, (0,), ct.minimum(whole, ct.floordiv(tile, 4)))
    ct.store(rest, (0,), ct.maximum(left, ct.mod(tile, 4)))
    ct.store(up, (0,), ct.cdiv(tile, 4))


x = torch.tensor([-5, -4, 6, 7], dtype=torch.int32)
exact, *others = torch.empty(4), *(torch.empty(4, dtype=torch.int32) for _ in range(3))
ct.launch(stream, (1,), divided, (x, exact, *others))
assert torch.equal(exact, x / 4)
assert [o.tolist() for o in others] == [[-2, -1, 1, 1], [3, 0, 2, 3], [-1, -1, 2, 2]]


# %% bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_lshift bitwise_rshift
@ct.kernel
def bits(x, out):
    tile = ct.load(x, (0,), (4,))
    low = ct.bitwise_and(tile, 3)
    high = ct.bitwise_lshift(ct.bitwise_rshift(tile, 2), 2)
    ct.store(out, (0,), ct.bitwise_not(ct.bitwise_xor(ct.bitwise_or(low, high), 1)))


x, out = torch.tensor([0, 5, -7, 100]), torch.empty(4, dtype=torch.int64)
ct.launch(stream, (1,), bits, (x, out))
assert torch.equal(out, ~(x ^ 1))


# %% equal not_equal less less_equal greater greater_equal where isnan
@ct.kernel
def clean(x, out):
    tile = ct.load(x, (0,), (4,))
    tile = ct.where(ct.isnan(tile), 0, tile)
    inside = ct.greater_equal(tile, -1) & ct.less_equal(tile, 1)
    same = ct.equal(tile, 5) | ct.not_equal(tile, tile) | ct.less(tile, -9) | ct.greater(tile, 9)
    ct.store(out, (0,), ct.where(inside | same, tile, 2))


x, out = torch.tensor([float("nan"), 0.5, 3.0, 5.0]), torch.empty(4)
ct.launch(stream, (1,), clean, (x, out))
assert out.tolist() == [0.0, 0.5, 2.0, 5.0]


# %% minimum maximum abs floor ceil
@ct.kernel
def clamp(x, out):
    tile = ct.minimum(ct.maximum(ct.load(x, (0,), (4,)), -2), 2)
    ct.store(out, (0,), ct.abs(tile) + ct.ceil(tile) - ct.floor(tile))


x, out = torch.tensor([-7.0, -0.5, 1.0, 9.0]), torch.empty(4)
ct.launch(stream, (1,), clamp, (x, out))
assert out.tolist() == [2.0, 1.5, 1.0, 2.0]


# %% exp exp2 log log2 sqrt rsqrt pow
@ct.kernel
def powers(x, out):
    tile = ct.load(x, (0,), (4,))
    tile = ct.log(ct.exp(tile)) + ct.log2(ct.exp2(tile))  # 2 x
    ct.store(out, (0,), ct.pow(ct.sqrt(tile), 2) * ct.rsqrt(tile))


x, out = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.empty(4)
ct.launch(stream, (1,), powers, (x, out))
assert torch.allclose(out, (2 * x).sqrt())


# %% sin cos tan sinh cosh tanh atan2
@ct.kernel
def angles(x, out, hyperbolic):
    tile = ct.load(x, (0,), (4,))
    ct.store(out, (0,), ct.atan2(ct.sin(tile), ct.cos(tile)) * ct.tan(tile))
    ct.store(hyperbolic, (0,), ct.sinh(tile) - ct.cosh(tile) * ct.tanh(tile))


x, out, zero = torch.tensor([0.1, 0.5, 1.0, 1.5]), torch.empty(4), torch.empty(4)
ct.launch(stream, (1,), angles, (x, out, zero))
assert torch.allclose(out, x * x.tan(), rtol=1e-4)
assert torch.allclose(zero, torch.zeros(4), atol=1e-5)
