"""Drop-in for FlashMLA's decode calls, on our kernels for a paged KV cache.

A server that imports ``flash_mla`` takes these instead after one line::

    import sys, mla_var3.serving.flashmla; sys.modules["flash_mla"] = mla_var3.serving.flashmla
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from mla_var3.errors import CallError
from mla_var3.serving import checks, operators
from mla_var3.serving.kinds import LATENT

__all__ = ["FlashMLASchedMeta", "flash_mla_with_kvcache", "get_mla_metadata"]


@dataclass
class FlashMLASchedMeta:
    """The schedule of a decoding step; the first call that is given one makes it.

    So a captured step holds the making of it, and stays right when lengths change. A server that
    keeps one over many steps copies each step's into it instead, outside of the capture.

    Attributes:
        lengths: Keys of each sequence, where they were given beforehand.
        rows: Query heads times query tokens per head of the cache, likewise.
        tile_scheduler_metadata: Where each part of the work begins and ends, [parts, 8] in int32.
        num_splits: Not needed; there since servers keep a buffer of it.
        made_for: Sequences and rows that it was made for.
    """

    lengths: torch.Tensor | None = None
    rows: int | None = None
    tile_scheduler_metadata: torch.Tensor | None = None
    num_splits: torch.Tensor | None = None
    made_for: tuple[int, int] | None = None

    def of(self, lengths: torch.Tensor, rows: int, alone: bool = False) -> torch.Tensor:
        """The schedule, made now if it was not.

        Raises:
            CallError: It was made for other sizes.
        """
        if self.made_for is None:
            self.tile_scheduler_metadata = operators.even_schedule(lengths, rows, alone)
            self.made_for = len(lengths), rows
        if self.made_for != (len(lengths), rows):
            raise CallError(
                "the schedule was made for {} sequences of {} rows, and the call has {} of {}; "
                "take a new one from get_mla_metadata()".format(*self.made_for, len(lengths), rows)
            )
        assert self.tile_scheduler_metadata is not None
        return self.tile_scheduler_metadata

    def copy_(self, other: FlashMLASchedMeta) -> FlashMLASchedMeta:
        """Take over another step's schedule, into the memory of this one's."""
        if other.lengths is None or other.rows is None:
            raise CallError("only what get_mla_metadata() made of lengths can be copied")
        made = other.of(other.lengths, other.rows)
        if self.tile_scheduler_metadata is None:
            self.tile_scheduler_metadata = made.clone()
        else:
            self.tile_scheduler_metadata.copy_(made)
        self.made_for = other.made_for
        return self


def get_mla_metadata(
    cache_seqlens: torch.Tensor | None = None,
    num_q_tokens_per_head_k: int | None = None,
    *_: Any,
    **__: Any,
) -> tuple[FlashMLASchedMeta, torch.Tensor | None]:
    """The schedule of a decoding step, which is made on the device without waiting for it.

    Args:
        cache_seqlens: Keys of each sequence, [b] in int32.
        num_q_tokens_per_head_k: Query heads times query tokens per head of the cache.

    Returns:
        What ``flash_mla_with_kvcache`` takes as its schedule, and as ``num_splits``.

    Raises:
        CallError: The lengths are no vector of int32.
    """
    if cache_seqlens is None or num_q_tokens_per_head_k is None:
        return FlashMLASchedMeta(), None
    checks.lengths(cache_seqlens)
    made = FlashMLASchedMeta(cache_seqlens, num_q_tokens_per_head_k)
    return made, cache_seqlens.new_zeros(len(cache_seqlens) + 1)


def flash_mla_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    block_table: torch.Tensor | None,
    cache_seqlens: torch.Tensor | None,
    head_dim_v: int,
    tile_scheduler_metadata: FlashMLASchedMeta | torch.Tensor,
    num_splits: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    is_fp8_kvcache: bool = False,
    indices: torch.Tensor | None = None,
    attn_sink: torch.Tensor | None = None,
    extra_k_cache: torch.Tensor | None = None,
    extra_indices_in_kvcache: torch.Tensor | None = None,
    topk_length: torch.Tensor | None = None,
    extra_topk_length: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Decode over pages, or with ``indices`` over lists of tokens of a cache in fp8.

    Args:
        q: [b, s, h, 576].
        k_cache: [pages, page, heads of the cache, 576]; with ``indices`` [pages, page, 1, 656] in
            bytes or e4m3: 512 values, four scales in fp32, 64 rotary values in bfloat16.
        block_table: Pages of each sequence in order, [b, n] in int32; what lies past a sequence's
            end is not read.
        cache_seqlens: Keys of each sequence, [b] in int32.
        head_dim_v: 512.
        tile_scheduler_metadata: By ``get_mla_metadata``, of the same lengths.
        num_splits: By ``get_mla_metadata``.
        softmax_scale: One over the root of the width of q unless given.
        causal: Bottom-right aligned mask.
        is_fp8_kvcache: Whether the cache is in fp8, as it is with ``indices`` alone.
        indices: Tokens of each query token's list, [b, s, k] in int32; -1 where there is none.
        attn_sink: A logit per head that takes weight and gives no value, [h] in fp32.
        extra_k_cache: Must be None: a second cache is not taken yet.
        extra_indices_in_kvcache: Likewise.
        topk_length: How many of each sequence's lists count, [b] in int32.
        extra_topk_length: Must be None.

    Returns:
        o [b, s, h, 512], and the natural LSE [b, h, s]: 0 and +inf for rows that see no key.

    Raises:
        CallError: An argument does not fit; says which, and what does.
    """
    if extra_k_cache is not None or extra_indices_in_kvcache is not None:
        raise CallError("extra_k_cache is not served; put its tokens into k_cache")
    if indices is not None:
        return _sparse(
            q, k_cache, indices, topk_length, attn_sink, tile_scheduler_metadata, softmax_scale,
            causal, is_fp8_kvcache, head_dim_v,
        )  # fmt: skip
    if is_fp8_kvcache:
        raise CallError("a cache in fp8 needs indices; dense decode takes 16 bits alone")
    if block_table is None or cache_seqlens is None:
        raise CallError("dense decode needs block_table and cache_seqlens")
    checks.decode(q, k_cache, block_table, cache_seqlens, head_dim_v)
    b, s, h, width = q.shape
    shared = k_cache.shape[2]
    given, rows = tile_scheduler_metadata, s * h // shared
    cuts = given if isinstance(given, torch.Tensor) else given.of(cache_seqlens, rows)
    scale = width**-0.5 if softmax_scale is None else softmax_scale
    o = q.new_empty(b, s, h, LATENT)
    lse = q.new_empty(b, h, s, dtype=torch.float32)
    # Query heads that share one of the cache are a decode of their own over its pages.
    parts = zip(q.chunk(shared, 2), o.chunk(shared, 2), lse.chunk(shared, 1), strict=True)
    for j, (queries, out, sums) in enumerate(parts):
        keys = k_cache[:, :, j]
        _decode(queries, out, sums, keys, block_table, cache_seqlens, cuts, scale, causal)
    return o, lse


def _decode(
    q: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    cache: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    cuts: torch.Tensor,
    scale: float,
    causal: bool,
) -> None:
    """Decode of the query heads that share one head of the cache; writes ``o`` and ``lse``."""
    s, h = q.shape[1:3]
    in_order = s == 1 or q.stride(1) == h * q.stride(2)  # rows of all tokens, one step apart
    rows = q if in_order else q.contiguous()
    out = o if s == 1 or o.stride(1) == h * o.stride(2) else torch.empty_like(rows[..., :LATENT])
    operators.paged_decode(
        rows[..., :LATENT], rows[..., LATENT:], cache[..., :LATENT], cache[..., LATENT:],
        table, lengths, cuts, out, lse, scale, causal, False, math.inf,
    )  # fmt: skip
    if out is not o:
        o.copy_(out)


def _sparse(
    q: torch.Tensor,
    cache: torch.Tensor,
    indices: torch.Tensor,
    counts: torch.Tensor | None,
    sink: torch.Tensor | None,
    schedule: FlashMLASchedMeta | torch.Tensor,
    scale: float | None,
    causal: bool,
    fp8: bool,
    head_dim_v: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sparse decode; a list of tokens counts as a sequence with one query."""
    checks.sparse(q, cache, indices, counts, sink, causal, fp8, head_dim_v)
    b, s, h, width = q.shape
    k = indices.shape[-1]
    lengths = indices.new_full((b,), k) if counts is None else counts
    lengths = lengths.repeat_interleave(s)
    cuts = schedule if isinstance(schedule, torch.Tensor) else schedule.of(lengths, h, alone=True)
    queries = q.reshape(b * s, 1, h, width)
    o = q.new_empty(b * s, 1, h, LATENT)
    lse = q.new_empty(b * s, h, 1, dtype=torch.float32)
    operators.sparse_decode(
        queries[..., :LATENT], queries[..., LATENT:], cache.squeeze(2).view(torch.uint8),
        indices.reshape(b * s, k), lengths, cuts, o, lse,
        width**-0.5 if scale is None else scale, math.inf,
    )  # fmt: skip
    o, lse = o.view(b, s, h, LATENT), lse.view(b, s, h).transpose(1, 2)
    if sink is not None:
        # exp(lse) / (exp(lse) + exp(sink)); where no token is, the output is 0 anyway.
        share = torch.sigmoid(lse - sink[None, :, None])
        o = (o * share.transpose(1, 2)[..., None]).to(q.dtype)
    return o, lse
