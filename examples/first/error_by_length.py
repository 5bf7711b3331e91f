"""How an attention kernel's error changes with the number of keys, by what it keeps in 16 bits."""

import sys

import torch

LATENT, ROPE, HEADS, TILE = 512, 64, 4, 64
LENGTHS = (1024, 4096, 16384, 65536)
#: What a kernel keeps between tiles: the output that is added up, and the row's sum.
KEPT = {
    "both in fp32": (torch.float32, torch.float32),
    "output in fp16": (torch.float16, torch.float32),
    "output in bf16": (torch.bfloat16, torch.float32),
    "row sum in bf16": (torch.float32, torch.bfloat16),
}


def error(keys, output_type, sum_type):
    """The relative error of an online softmax over random keys, against fp64."""
    made = torch.Generator().manual_seed(keys)
    q = torch.randn(HEADS, LATENT + ROPE, generator=made).bfloat16().float()
    k = torch.randn(keys, LATENT + ROPE, generator=made).bfloat16().float()
    scores, values = q @ k.T * 192**-0.5, k[:, :LATENT]
    reference = torch.softmax(scores.double(), -1) @ values.double()
    top = torch.full((HEADS, 1), -1e30)
    total = torch.zeros(HEADS, 1, dtype=sum_type)
    output = torch.zeros(HEADS, LATENT, dtype=output_type)
    for start in range(0, keys, TILE):
        tile = scores[:, start : start + TILE]
        higher = torch.maximum(top, tile.amax(1, keepdim=True))
        rescale, weights = torch.exp(top - higher), torch.exp(tile - higher)
        total = (total.float() * rescale + weights.sum(1, keepdim=True)).to(sum_type)
        product = weights.bfloat16().float() @ values[start : start + TILE]
        output = (output.float() * rescale + product).to(output_type)
        top = higher
    result = (output.float() / total.float()).bfloat16().double()
    return float((result - reference).norm() / reference.norm())


if __name__ == "__main__":
    lengths = [int(x) for x in sys.argv[1:]] or LENGTHS
    print("kept between tiles", *(f"{n:,} keys" for n in lengths), sep=" | ")
    for name, types in KEPT.items():
        print(name, *(f"{error(n, *types):.1e}" for n in lengths), sep=" | ")
