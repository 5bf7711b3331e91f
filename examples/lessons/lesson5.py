"""Lesson 5: the output tile is 64 x 512. Does it fit in the registers of four warps? Of eight?"""

import cuda.tile as ct
import torch

from mla_var3.languages.cutile.compile import compile_kernel

HEADS, KEYS, DIM, TILE = 64, 4096, 512, 64


@ct.kernel
def latent(q, cache, out, ROWS: ct.Constant[int], TILE: ct.Constant[int], DIM: ct.Constant[int]):
    query = ct.load(q, (0, 0), (ROWS, DIM))
    best = ct.full((ROWS, 1), -1e30, ct.float32)
    total = ct.zeros((ROWS, 1), ct.float32)
    acc = ct.zeros((ROWS, DIM), ct.float32)
    for step in range(ct.num_tiles(cache, 0, (TILE, DIM))):
        rows = ct.load(cache, (step, 0), (TILE, DIM), padding_mode=ct.PaddingMode.ZERO)
        scores = ct.mma(query, rows.transpose(), ct.zeros((ROWS, TILE), ct.float32))
        new = ct.maximum(best, ct.max(scores, axis=1, keepdims=True))
        weights = ct.exp(scores - new)
        shrink = ct.exp(best - new)
        total = total * shrink + ct.sum(weights, axis=1, keepdims=True)
        acc = ct.mma(weights.astype(ct.bfloat16), rows, acc * shrink)
        best = new
    ct.store(out, (0, 0), acc / total)


# Shapes are all that a compiler needs: nothing is computed, and there is no GPU.
q = torch.empty(HEADS, DIM, dtype=torch.bfloat16, device="meta")
cache = torch.empty(KEYS, DIM, dtype=torch.bfloat16, device="meta")
out = torch.empty(HEADS, DIM, device="meta")

for warps in (4, 8):
    words = HEADS * DIM // (32 * warps)
    print(f"{warps} warps: the accumulator alone takes {words} registers of each thread")
    kernel = latent.replace_hints(num_worker_warps=warps)
    facts = compile_kernel(kernel, (q, cache, out, HEADS, TILE, DIM), "sm_90")
    print(
        f"  compiled for sm_90: {facts.registers} registers, {facts.stack_bytes} bytes of stack,",
        end="",
    )
    print(f" {facts.spill_loads + facts.spill_stores} spill instructions, {facts.mma_path}")
