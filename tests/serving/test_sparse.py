"""FlashMLA's call with lists of tokens: results, sinks, refusals."""

from __future__ import annotations

import math

import pytest
import torch

from mla_var3.errors import CallError
from mla_var3.serving import flashmla

from .stand_in import LATENT, WIDTH, packed, unpacked, vector, wanted

B, S, H, K, PAGES = 2, 2, 64, 7, 3


def arguments():
    """A call's, whose lists have places without tokens."""
    torch.manual_seed(0)
    cache = packed(torch.randn(PAGES * 64, WIDTH)).view(PAGES, 64, 1, -1)
    indices = torch.randint(0, PAGES * 64, (B, S, K), dtype=torch.int32)
    indices[0, 0, 3], indices[1, 1] = -1, -1
    return {
        "q": torch.randn(B, S, H, WIDTH).bfloat16(),
        "k_cache": cache,
        "block_table": None,
        "cache_seqlens": None,
        "head_dim_v": LATENT,
        "tile_scheduler_metadata": flashmla.get_mla_metadata()[0],
        "is_fp8_kvcache": True,
        "indices": indices,
    }


@pytest.mark.parametrize("sink", [False, True])
@pytest.mark.parametrize("counts", [None, (5, 0)])
def test_results(by_reference, sink, counts):
    given = arguments()
    logits = torch.randn(H) if sink else None
    o, lse = flashmla.flash_mla_with_kvcache(
        **given, attn_sink=logits, topk_length=vector(*counts) if counts else None
    )
    assert (o.shape, lse.shape) == ((B, S, H, LATENT), (B, H, S))
    assert [kind.name for kind in by_reference] == ["schedule", "lists"]
    for i in range(B):
        for j in range(S):
            tokens = given["indices"][i, j, : counts[i] if counts else K]
            keys = unpacked(given["k_cache"].flatten(0, 2)[tokens[tokens >= 0].long()])
            q = given["q"][i, j][None]
            expected, sums = wanted(q, keys, keys[:, :LATENT], WIDTH**-0.5, False)
            if sink:
                expected = expected * torch.sigmoid(sums[0] - logits).nan_to_num(0.0)[:, None]
            sums = sums.masked_fill(sums == -math.inf, math.inf)
            assert torch.allclose(o[i, j].double(), expected[0], rtol=1e-2, atol=2e-2)
            assert torch.allclose(lse[i, :, j].double(), sums[0], atol=1e-3)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"is_fp8_kvcache": False}, "indices need a cache in fp8"),
        ({"causal": True}, "a list names the tokens"),
        ({"k_cache": torch.zeros(3, 64, 1, 576)}, "must be .pages, page, 1, 656. in bytes"),
        ({"q": torch.zeros(2, 2, 64, 512).bfloat16()}, "584. in bytes for queries that are 512"),
        ({"indices": torch.zeros(2, 2, 7)}, "indices must be int32, and is float32"),
        ({"indices": torch.zeros(2, 1, 7, dtype=torch.int32)}, "has lists for .2, 1., and q is"),
        ({"q": torch.zeros(2, 2, 64, 576).half()}, "q must be bfloat16, and is float16"),
        ({"attn_sink": torch.zeros(3)}, "attn_sink must be 64 values in float32"),
        ({"extra_k_cache": torch.zeros(1)}, "come together"),
        ({"head_dim_v": 576}, "head_dim_v=576: 512 is what"),
    ],
)
def test_bad_input_gets_one_sentence(by_reference, changed, said):
    with pytest.raises(CallError, match=said):
        flashmla.flash_mla_with_kvcache(**{**arguments(), **changed})
    assert by_reference == []


def test_in_debug_mode_tokens_are_looked_at(by_reference, monkeypatch):
    given = arguments()
    given["indices"][1, 0, 2] = PAGES * 64
    flashmla.flash_mla_with_kvcache(**given)  # counts as none
    monkeypatch.setenv("MLA_VAR3_DEBUG", "1")
    with pytest.raises(CallError, match="indices names token 192 of 192; -1 stands for none"):
        flashmla.flash_mla_with_kvcache(**given)


def test_a_sink_without_bounds_leaves_nothing(by_reference):
    """Of a list without tokens too, whose LSE is infinite as well."""
    given = {**arguments(), "attn_sink": torch.full((H,), math.inf)}
    o, _ = flashmla.flash_mla_with_kvcache(**given)
    assert not o.any()
