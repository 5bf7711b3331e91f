"""Making tiles and changing their shape and type in cuTile, one cell per operation."""

import cuda.tile as ct
import torch

torch.set_default_device("cuda")
stream = torch.cuda.current_stream()


# %% arange full zeros ones astile
@ct.kernel
def made(out):
    tile = ct.arange(4, dtype=ct.int32, start=1, step=2)  # 1, 3, 5, 7
    tile += ct.full((4,), 10, ct.int32) + ct.zeros((4,), ct.int32) + ct.ones((4,), ct.int32)
    ct.store(out, (0,), tile + ct.astile((1, 0, 0, 0), dtype=ct.int32))


out = torch.empty(4, dtype=torch.int32)
ct.launch(stream, (1,), made, (out,))
assert out.tolist() == [13, 14, 16, 18]


# %% reshape permute transpose Tile.reshape Tile.permute Tile.transpose
@ct.kernel
def turned(x, out):
    tile = ct.load(x, (0, 0), (4, 8))
    same = ct.transpose(ct.permute(tile, (1, 0)))
    ct.store(out, (0, 0), ct.reshape(same, (2, 16)).reshape((4, 8)).transpose())


x, out = torch.arange(32.0).reshape(4, 8), torch.empty(8, 4)
ct.launch(stream, (1,), turned, (x, out))
assert torch.equal(out, x.T)


# %% expand_dims broadcast_to Tile.__getitem__
@ct.kernel
def outer(x, out):
    tile = ct.load(x, (0,), (4,))
    rows = ct.broadcast_to(ct.expand_dims(tile, 1), (4, 4))
    ct.store(out, (0, 0), rows * tile[None, :])


x, out = torch.arange(4.0), torch.empty(4, 4)
ct.launch(stream, (1,), outer, (x, out))
assert torch.equal(out, torch.outer(x, x))


# %% cat extract insert Tile.extract Tile.insert
@ct.kernel
def halves(x, out):
    tile = ct.load(x, (0,), (8,))
    low, high = ct.extract(tile, (0,), (4,)), tile.extract((1,), (4,))
    swapped = ct.cat((high, low), 0)
    ct.store(out, (0,), ct.insert(swapped, (0,), ct.zeros((2,), x.dtype)))


x, out = torch.arange(8), torch.empty(8, dtype=torch.int64)
ct.launch(stream, (1,), halves, (x, out))
assert out.tolist() == [0, 0, 6, 7, 0, 1, 2, 3]


# %% astype bitcast Tile.astype RoundingMode
@ct.kernel
def cast(x, out, bits):
    tile = ct.load(x, (0,), (4,))
    ct.store(out, (0,), tile.astype(ct.bfloat16, rounding_mode=ct.RoundingMode.RN))
    ct.store(bits, (0,), ct.bitcast(ct.astype(tile, ct.float32), ct.int32))


x = torch.tensor([1.0, 1.00390625, -2.0, 0.0])
out, bits = torch.empty(4, dtype=torch.bfloat16), torch.empty(4, dtype=torch.int32)
ct.launch(stream, (1,), cast, (x, out, bits))
assert out.tolist() == [1.0, 1.0, -2.0, 0.0]  # To nearest, ties to even.
assert torch.equal(bits, x.view(torch.int32))


# %% astype
@ct.kernel
def narrow(x, out, scaled):
    tile = ct.load(x, (0,), (4,))
    ct.store(out, (0,), ct.astype(tile, ct.float8_e4m3fn))  # Saturates at 448: silently wrong.
    scale = ct.max(ct.where(tile < 0, -tile, tile)) / 448
    ct.store(scaled, (0,), (tile / scale).astype(ct.float8_e4m3fn).astype(ct.float32) * scale)


x = torch.tensor([500.0, -1e6, 3.0, 448.0])
out, scaled = torch.empty(4, dtype=torch.float8_e4m3fn), torch.empty(4)
ct.launch(stream, (1,), narrow, (x, out, scaled))
assert out.float().tolist() == [448, -448, 3, 448]
assert abs(scaled[1] + 1e6) < 1  # With its scale the largest fits; the smallest are lost then.


# %% pack_to_bytes unpack_from_bytes
@ct.kernel
def bytewise(x, out):
    data = ct.pack_to_bytes(ct.load(x, (0,), (4,)))  # 16 bytes
    ct.store(out, (0,), ct.unpack_from_bytes(data, ct.int64))


x, out = torch.arange(4, dtype=torch.int32), torch.empty(2, dtype=torch.int64)
ct.launch(stream, (1,), bytewise, (x, out))
assert torch.equal(out, x.view(torch.int64))


# %% Tile.item Tile.dtype Tile.shape Tile.ndim
@ct.kernel
def counted(x, n, out):
    last = ct.load(n, (0,), (1,)).item()  # A tile of one element as a scalar: a loop bound.
    total = ct.zeros((1,), x.dtype)
    for i in range(last):
        total += ct.load(x, (i,), (1,))
    ct.static_assert(total.ndim == 1 and total.shape == (1,) and total.dtype == x.dtype)
    ct.store(out, (0,), total)


x, n, out = torch.arange(8.0), torch.tensor([4], dtype=torch.int32), torch.empty(1)
ct.launch(stream, (1,), counted, (x, n, out))
assert out.item() == 6
