"""MLA decode of FlashInfer and TokenSpeed for tensor memory, on small caches, against torch."""

import math
import sys

import torch

torch.manual_seed(0)
LATENT, ROPE, SCALE = 512, 64, 1 / math.sqrt(192)
FP8 = torch.float8_e4m3fn


def decode(function, dtype, b=1, q=1, h=128, page=64, keys=(200,), mask=False, **more):
    """Holds ``function`` against softmax over the pages of each sequence."""
    pages = -(-max(keys) // page)
    # Values of fp8 are read as they are; so that weights stay near each other scores are small.
    query = torch.randn(b, q, h, LATENT + ROPE, device="cuda").to(dtype)
    cache = torch.randn(b * pages, page, LATENT + ROPE, device="cuda").to(dtype)
    table = torch.arange(b * pages, dtype=torch.int32, device="cuda").flip(0).view(b, pages)
    out = function(
        query=query,
        kv_cache=cache,
        workspace_buffer=torch.zeros(1 << 24, dtype=torch.int8, device="cuda"),
        kv_lora_rank=LATENT,
        qk_rope_head_dim=ROPE,
        block_tables=table,
        seq_lens=torch.tensor(keys, dtype=torch.int32, device="cuda"),
        max_seq_len=max(keys),
        softmax_scale=SCALE,
        output_scale=1.0,
        **more,
    )
    for i, n in enumerate(keys):
        own = cache[table[i].long()].flatten(0, 1)[:n].float()
        scores = torch.einsum("qhd,kd->qhk", query[i].float(), own) * SCALE
        if mask:
            late = torch.arange(n)[None, :] > torch.arange(q)[:, None] + n - q
            scores = scores.masked_fill(late[:, None], -math.inf)
        wanted = scores.softmax(-1) @ own[:, :LATENT]
        error = (out[i].float() - wanted).norm() / wanted.norm()
        assert error < (0.06 if dtype == FP8 else 0.01), f"relative error {error:.3g}"


def flashinfer(dtype, implementation, **more):
    from flashinfer.cute_dsl.attention import cute_dsl_mla_decode

    how = {"cute_dsl_impl": implementation, "is_var_seq": True, "enable_pdl": False}
    decode(cute_dsl_mla_decode, dtype, **how, **more)


def modular():
    flashinfer(torch.bfloat16, "modular", keys=(200, 70), b=2)


def monolithic():
    flashinfer(torch.float16, "monolithic", keys=(200, 70), b=2)


def modular_fp8():
    flashinfer(FP8, "modular")


def monolithic_fp8():
    flashinfer(FP8, "monolithic")


def tokenspeed():
    from tokenspeed_mla.mla_decode import tokenspeed_mla_decode

    decode(tokenspeed_mla_decode, torch.bfloat16, keys=(200, 70), b=2, q=2, h=64, mask=True)


def tokenspeed_fp8():
    from tokenspeed_mla.mla_decode import tokenspeed_mla_decode

    decode(tokenspeed_mla_decode, FP8)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
