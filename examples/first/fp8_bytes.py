"""Bytes of an fp8 cache read as e4m3: by a view in torch, and by a bitcast in the kernel."""

import cuda.tile as ct
import torch

ROWS = 8


@ct.kernel
def read(raw, latent, scales, rotary, out, turned):
    """A row of 656 bytes by three views; out: by the bytes, by the view, and wrong."""
    row = ct.bid(0)
    tile = ct.load(raw, (row, 0), (1, 512))
    number = ct.bitcast(tile, ct.float8_e4m3fn).astype(ct.float32)  # 0x38: 1.0
    wrong = tile.astype(ct.float32)  # 0x38: 56.0
    viewed = ct.load(latent, (row, 0), (1, 512)).astype(ct.float32)
    scale = ct.sum(ct.load(scales, (row, 0), (1, 4)), 1, keepdims=True)
    last = ct.load(rotary, (row, 0), (1, 64)).astype(ct.float32)
    ct.store(out, (0, row, 0), number.reshape((1, 1, 512)))
    ct.store(out, (1, row, 0), viewed.reshape((1, 1, 512)))
    ct.store(out, (2, row, 0), wrong.reshape((1, 1, 512)))
    ct.store(turned, (row, 0), last * scale)


values = torch.full((ROWS, 512), 1.0).to(torch.float8_e4m3fn)
parts = values, torch.full((ROWS, 4), 0.5), torch.full((ROWS, 64), 3.0, dtype=torch.bfloat16)
rows = torch.cat([part.view(torch.uint8) for part in parts], dim=-1).cuda()
assert rows.shape == (ROWS, 656)
latent = rows[..., :512].view(torch.float8_e4m3fn)
scales = rows[..., 512:528].view(torch.float32)
rotary = rows[..., 528:].view(torch.bfloat16)
out, turned = torch.zeros(3, ROWS, 512).cuda(), torch.zeros(ROWS, 64).cuda()
arguments = rows[..., :512], latent, scales, rotary, out, turned
ct.launch(torch.cuda.current_stream(), (ROWS,), read, arguments)
right = (out[:2] == 1).all() and (out[2] == 56).all() and (turned == 6).all()
print("right:", bool(right))
