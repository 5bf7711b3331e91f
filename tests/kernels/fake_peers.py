"""Stand-ins for libraries that need a GPU: their calls' arguments, computed with torch.

Each follows the library's documented call, with its layouts and its asserts, and knows nothing of
the adapter.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
import torch

from mla_var3.runtime.execution import Execution
from mla_var3.runtime.library_kernel import LibraryKernel


@contextmanager
def standing_in(*modules: ModuleType) -> Iterator[None]:
    """These modules (all stand-ins by default) are imported, and called on the CPU."""
    real = LibraryKernel.execute

    def execute(kernel: LibraryKernel) -> Execution:
        if kernel._on_cpu:
            return real(kernel)
        kernel.launch()
        return Execution(kernel.function_name)

    with pytest.MonkeyPatch.context() as patch:
        everything = (FlashMla().module, *flashinfer(), flash_attention_3(), tokenspeed())
        for made in modules or everything:
            patch.setitem(sys.modules, made.__name__, made)
        patch.setattr(LibraryKernel, "execute", execute)
        yield


def module(name: str, **functions: Any) -> ModuleType:
    """A module with these functions."""
    made = ModuleType(name)
    vars(made).update(functions)
    return made


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """One sequence: q [s,h,d], k [t,1,d], v [t,1,e] to o [s,h,e] and the natural LSE [h,s]."""
    scores = torch.einsum("shd,td->hst", q.double(), k[:, 0].double()) * scale
    if causal:
        s, t = scores.shape[-2:]
        unseen = torch.ones(s, t, dtype=torch.bool).triu(t - s + 1)
        scores = scores.masked_fill(unseen, -math.inf)
    weights = scores.softmax(-1)
    o = torch.einsum("hst,te->she", weights, v[:, 0].double())
    return o.to(q.dtype), scores.logsumexp(-1).float()


class FlashMla:
    """FlashMLA's dense decode; counts how often a schedule is made."""

    def __init__(self) -> None:
        self.schedules = 0
        self.module = module(
            "flash_mla", get_mla_metadata=self.metadata, flash_mla_with_kvcache=self.decode
        )

    def metadata(self, cache_seqlens: torch.Tensor, rows: int, kv_heads: int) -> tuple[str, None]:
        """Of so many query rows per head of the cache."""
        assert (cache_seqlens.dtype, kv_heads) == (torch.int32, 1)
        assert rows > 0
        self.schedules += 1
        return "schedule", None

    def decode(
        self, q: torch.Tensor, k_cache: torch.Tensor, block_table: torch.Tensor,
        cache_seqlens: torch.Tensor, head_dim_v: int, tile_scheduler_metadata: str,
        num_splits: None, softmax_scale: float, causal: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        """Q [b,s,h,576], pages [n,64,1,576] to o [b,s,h,512] and the natural LSE [b,h,s]."""
        assert all(x.is_contiguous() for x in (q, k_cache))
        assert (*k_cache.shape[1:], head_dim_v) == (64, 1, 576, 512)
        assert block_table.dtype == cache_seqlens.dtype == torch.int32
        assert (tile_scheduler_metadata, num_splits) == ("schedule", None)
        each = []
        for row, pages, length in zip(q, block_table, cache_seqlens, strict=True):
            k = k_cache[pages.long()].flatten(0, 1)[: int(length)]
            each.append(attend(row, k, k[..., :512], softmax_scale, causal))
        o, lse = zip(*each, strict=True)
        return torch.stack(o), torch.stack(lse)


class FlashInferWrapper:
    """FlashInfer's wrapper: planned by index pointers, then run on separate caches."""

    plans = 0

    def __init__(self, workspace: torch.Tensor, backend: str) -> None:
        assert (workspace.dtype, backend) == (torch.int8, "auto")

    def plan(
        self, qo_indptr: torch.Tensor, kv_indptr: torch.Tensor, kv_indices: torch.Tensor,
        kv_len_arr: torch.Tensor, num_heads: int, head_dim_ckv: int, head_dim_kpe: int,
        page_size: int, causal: bool, sm_scale: float, q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
    ) -> None:  # fmt: skip
        """One entry of the pointers per sequence, and one past the last."""
        given = (qo_indptr, kv_indptr, kv_indices, kv_len_arr)
        assert all(x.dtype == torch.int32 for x in given)
        assert q_data_type == kv_data_type
        self.given, self.shape = given, (num_heads, head_dim_ckv, head_dim_kpe)
        self.page_size, self.causal, self.scale = page_size, causal, sm_scale
        type(self).plans += 1

    def run(
        self, q_nope: torch.Tensor, q_pe: torch.Tensor, ckv_cache: torch.Tensor,
        kpe_cache: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        """Q [rows, h, k] and [rows, h, p], caches [pages, page, k] and [pages, page, p]."""
        assert (*q_nope.shape[1:], q_pe.shape[-1]) == self.shape
        assert ckv_cache.shape[1] == kpe_cache.shape[1] == self.page_size
        rows, starts, pages, lengths = self.given
        each = []
        for i, length in enumerate(lengths.tolist()):
            own = pages[starts[i] : starts[i + 1]].long()
            latents, positions = (
                x[own].flatten(0, 1)[:length, None] for x in (ckv_cache, kpe_cache)
            )
            q = torch.cat([x[rows[i] : rows[i + 1]] for x in (q_nope, q_pe)], -1)
            k = torch.cat([latents, positions], -1)
            each.append(attend(q, k, latents, self.scale, self.causal)[0])
        return torch.cat(each)


def flashinfer() -> tuple[ModuleType, ModuleType]:
    """FlashInfer, and the part of it that is asked for."""
    part = module("flashinfer.mla", BatchMLAPagedAttentionWrapper=FlashInferWrapper)
    return module("flashinfer", mla=part, __path__=[]), part


def flash_attention_3() -> ModuleType:
    """FlashAttention-3's module, by the parameters of its two calls."""

    def flash_attn_func(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float | None = None,
        causal: bool = False,
    ) -> torch.Tensor:  # fmt: skip
        """Q [b,s,h,d], k and v [b,t,h,d] to o [b,s,h,d]."""
        assert all(x.is_contiguous() for x in (q, k, v))
        scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
        heads = [
            torch.stack([
                attend(row[:, h : h + 1], key[:, h : h + 1], value[:, h : h + 1], scale, causal)[0]
                for h in range(q.shape[2])
            ], 1)[:, :, 0]
            for row, key, value in zip(q, k, v, strict=True)
        ]  # fmt: skip
        return torch.stack(heads)

    def flash_attn_with_kvcache(
        q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, k: None = None,
        v: None = None, qv: torch.Tensor | None = None, *, cache_seqlens: int,
        softmax_scale: float, causal: bool, return_softmax_lse: bool,
    ) -> tuple[torch.Tensor, torch.Tensor, None, None]:  # fmt: skip
        """Q [b,s,h,p] and qv [b,s,h,k] over caches [b,t,1,p] and [b,t,1,k]."""
        assert k is v is None
        assert qv is not None
        assert return_softmax_lse
        assert k_cache.stride(-1) == v_cache.stride(-1) == 1
        assert (*k_cache.shape[:3], cache_seqlens) == (*v_cache.shape[:3], k_cache.shape[1])
        each = [
            attend(torch.cat([row, latent], -1), torch.cat([key, value], -1), value, softmax_scale,
                   causal)
            for row, latent, key, value in zip(q, qv, k_cache, v_cache, strict=True)
        ]  # fmt: skip
        o, lse = zip(*each, strict=True)
        return torch.stack(o), torch.stack(lse), None, None

    return module(
        "flash_attn_interface",
        flash_attn_func=flash_attn_func,
        flash_attn_with_kvcache=flash_attn_with_kvcache,
    )


def tokenspeed() -> ModuleType:
    """TokenSpeed-MLA, by the parameters and the asserts of its decode."""

    def tokenspeed_mla_decode(
        query: torch.Tensor, kv_cache: torch.Tensor, workspace_buffer: torch.Tensor,
        kv_lora_rank: int, qk_rope_head_dim: int, block_tables: torch.Tensor,
        seq_lens: torch.Tensor, max_seq_len: int, softmax_scale: float,
        output_scale: float = 1.0, out: torch.Tensor | None = None, is_var_seq: bool = True,
        causal_mask: bool = True,
    ) -> torch.Tensor:  # fmt: skip
        """Q [b,s,h,576], pages [n,64,576] to o [b,s,h,512]."""
        assert query.shape[-1] == kv_lora_rank + qk_rope_head_dim == kv_cache.shape[-1]
        assert kv_cache.dtype == query.dtype
        assert workspace_buffer.dtype == torch.int8
        b, s, h, _ = query.shape
        assert 128 % kv_cache.shape[1] == 0
        splits = min(max(1, 132 // b // (2 * s)), 32)
        if splits > 1:
            assert workspace_buffer.numel() >= b * h * s * splits * (kv_lora_rank + 1) * 4
        assert max_seq_len == int(seq_lens.max())
        assert is_var_seq or len(set(seq_lens.tolist())) == 1
        assert output_scale == 1
        assert out is not None
        assert out.shape == (b, s, h, kv_lora_rank)
        for row, pages, length, into in zip(query, block_tables, seq_lens, out, strict=True):
            k = kv_cache[pages.long()].flatten(0, 1)[: int(length), None]
            into.copy_(attend(row, k, k[..., :kv_lora_rank], softmax_scale, causal_mask)[0])
        return out

    return module("tokenspeed_mla", tokenspeed_mla_decode=tokenspeed_mla_decode)
