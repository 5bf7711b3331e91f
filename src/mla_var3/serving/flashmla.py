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
from mla_var3.serving.kinds import KEYS, LATENT, ROPE

__all__ = [
    "FlashMLASchedMeta",
    "flash_mla_sparse_fwd",
    "flash_mla_with_kvcache",
    "get_mla_metadata",
]


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
        whole: Length of lists that count to their end, and as many of it as there are lists.
    """

    lengths: torch.Tensor | None = None
    rows: int | None = None
    tile_scheduler_metadata: torch.Tensor | None = None
    num_splits: torch.Tensor | None = None
    made_for: tuple[int, int] | None = None
    whole: tuple[int, torch.Tensor] | None = None

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
        q: [b, s, h, 576], or 512 over a cache of 584 bytes per token.
        k_cache: [pages, page, heads of the cache, 576]; in fp8 [pages, page, 1, 656] in bytes or
            e4m3: 512 values, four scales in fp32, 64 rotary values in bfloat16; or with ``indices``
            [pages, page, 1, 584]: rows of 448 values and 64 rotary values in bfloat16, and past
            the rows of a page eight bytes per token, seven of them scales in ue8m0.
        block_table: Pages of each sequence in order, [b, n] in int32; what lies past a sequence's
            end is not read.
        cache_seqlens: Keys of each sequence, [b] in int32.
        head_dim_v: 512.
        tile_scheduler_metadata: By ``get_mla_metadata``, of the same lengths.
        num_splits: By ``get_mla_metadata``.
        softmax_scale: One over the root of the width of q unless given.
        causal: Bottom-right aligned mask.
        is_fp8_kvcache: Whether the cache is in fp8, as it must be with ``indices``.
        indices: Tokens of each query token's list, [b, s, k] in int32; -1 where there is none.
        attn_sink: A logit per head that takes weight and gives no value, [h] in fp32.
        extra_k_cache: A second cache in the form of the first, with pages of a size of its own.
        extra_indices_in_kvcache: Its tokens of each query token's list, which are attended to too.
        topk_length: How many of each sequence's lists count, [b] in int32.
        extra_topk_length: The same of the second cache's lists.

    Returns:
        o [b, s, h, 512], and the natural LSE [b, h, s]: 0 and +inf for rows that see no key.

    Raises:
        CallError: An argument does not fit; says which, and what does.
    """
    checks.require(
        (extra_k_cache is None) == (extra_indices_in_kvcache is None),
        "extra_k_cache and extra_indices_in_kvcache come together",
    )
    if indices is not None:
        checks.require(
            head_dim_v == LATENT, f"head_dim_v={head_dim_v}: {LATENT} is what this decode has"
        )
        checks.sparse(q, indices, attn_sink, causal, is_fp8_kvcache)
        found = _sparse(
            q, _Listed("", k_cache, indices, topk_length, q),
            None if extra_k_cache is None or extra_indices_in_kvcache is None else
            _Listed("extra_", extra_k_cache, extra_indices_in_kvcache, extra_topk_length, q),
            tile_scheduler_metadata, softmax_scale,
        )  # fmt: skip
        return _with_sink(*found, attn_sink)
    checks.require(
        attn_sink is None and extra_k_cache is None and topk_length is None,
        "attn_sink, extra_k_cache and topk_length need indices",
    )
    if block_table is None or cache_seqlens is None:
        raise CallError("dense decode needs block_table and cache_seqlens")
    if is_fp8_kvcache:
        return _dense_fp8(
            q, k_cache, block_table, cache_seqlens, tile_scheduler_metadata, softmax_scale, causal,
            head_dim_v,
        )  # fmt: skip
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


class _Listed:
    """A cache in fp8, each query token's list of its tokens, and how many of each list count."""

    def __init__(
        self,
        prefix: str,
        cache: torch.Tensor,
        indices: torch.Tensor,
        counts: torch.Tensor | None,
        q: torch.Tensor,
    ) -> None:
        suffix = "_in_kvcache" if prefix else ""
        self.cache = checks.fp8_cache(f"{prefix}k_cache", cache, q)
        checks.token_lists(
            f"{prefix}indices{suffix}", indices, f"{prefix}topk_length", counts, self.cache, q
        )
        b, s, k = indices.shape
        if not k or not len(self.cache):
            indices, k = torch.full_like(indices[..., :1] if k else q[..., 0, :1], -1,
                                         dtype=torch.int32), 1  # fmt: skip
        if not len(self.cache):
            self.cache = self.cache.new_zeros(1, *self.cache.shape[1:])
        self.lists = indices.reshape(b * s, k)
        self._given = None if counts is None else counts.clamp(0, k).repeat_interleave(s)

    @property
    def all_count(self) -> bool:
        """Whether nobody said how many of the lists count."""
        return self._given is None

    def counts(self, schedule: FlashMLASchedMeta | torch.Tensor) -> torch.Tensor:
        """How many of each list count; where all do, made once per schedule."""
        if self._given is not None:
            return self._given
        n, k = self.lists.shape
        if isinstance(schedule, torch.Tensor):
            return self.lists.new_full((n,), k)
        if schedule.whole is None or schedule.whole[0] != k or len(schedule.whole[1]) != n:
            schedule.whole = k, self.lists.new_full((n,), k)
        return schedule.whole[1]


def _sparse(
    q: torch.Tensor,
    first: _Listed,
    second: _Listed | None,
    schedule: FlashMLASchedMeta | torch.Tensor,
    scale: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sparse decode; a list of tokens counts as a sequence with one query."""
    tokens, counts = "584" if q.shape[-1] == LATENT else "656", first.counts(schedule)
    if second is None:
        return _over_lists(q, tokens, first, first, (counts, counts), schedule, scale)
    # Lists of the second cache begin past the last tile of the first's.
    more = second.lists.shape[1] if second.all_count else second.counts(schedule)
    lengths = (counts + (KEYS - 1)) // KEYS * KEYS + more
    form = f"{tokens}-second"
    return _over_lists(q, form, first, second, (counts, lengths), schedule, scale)


def _over_lists(
    q: torch.Tensor,
    form: str,
    first: _Listed,
    second: _Listed,
    counts: tuple[torch.Tensor, torch.Tensor],
    schedule: FlashMLASchedMeta | torch.Tensor,
    scale: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of query tokens over lists of a form, of which so many count."""
    (b, s, h, width), (firsts, lengths) = q.shape, counts
    cuts = schedule if isinstance(schedule, torch.Tensor) else schedule.of(lengths, h, alone=True)
    queries = q.reshape(b * s, 1, h, width)
    o = q.new_empty(b * s, 1, h, LATENT)
    lse = q.new_empty(b * s, h, 1, dtype=torch.float32)
    scale = width**-0.5 if scale is None else scale
    operators.list_decode(
        queries[..., :LATENT], _rotary(queries), first.cache, second.cache, first.lists,
        second.lists, firsts, lengths, cuts, o, lse.unsqueeze(-1), scale, math.inf, form,
    )  # fmt: skip
    return o.view(b, s, h, LATENT), lse.view(b, s, h).transpose(1, 2)


def _rotary(q: torch.Tensor) -> torch.Tensor:
    """Rotary queries; where they are values too, any, since zeros stand for their keys."""
    return q[..., LATENT:] if q.shape[-1] > LATENT else q[..., :ROPE]


def _with_sink(
    o: torch.Tensor, lse: torch.Tensor, sink: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The output with a logit per head that takes weight; o [b, s, h, 512], lse [b, h, s]."""
    if sink is not None:
        # exp(lse) / (exp(lse) + exp(sink)); where no token is, the output is 0 anyway.
        share = torch.sigmoid(lse - sink[None, :, None]).nan_to_num(0.0)
        o = (o * share.transpose(1, 2)[..., None]).to(o.dtype)
    return o, lse


def _dense_fp8(
    q: torch.Tensor,
    cache: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    schedule: FlashMLASchedMeta | torch.Tensor,
    scale: float | None,
    causal: bool,
    width: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Dense decode from a cache in fp8: the pages of a sequence are each query token's list."""
    checks.require(width == LATENT, f"head_dim_v={width}: {LATENT} is what this decode has")
    checks.queries(q)
    checks.require(q.shape[-1] > LATENT, "dense decode in fp8 takes queries that are 576 wide")
    rows = checks.fp8_cache("k_cache", cache, q)
    checks.pages(q, table, lengths, cache.shape[0], cache.shape[1])
    s = q.shape[1]
    counts = lengths.repeat_interleave(s)
    if causal:
        later = torch.arange(s - 1, -1, -1, dtype=torch.int32, device=q.device)
        counts = (counts - later.repeat(len(lengths))).clamp_(min=0)
    listed = _Pages(rows, table.contiguous())
    return _over_lists(q, "656-table", listed, listed, (counts, counts), schedule, scale)


class _Pages(_Listed):
    """A cache in fp8 and pages of sequences, in place of lists."""

    def __init__(self, cache: torch.Tensor, table: torch.Tensor) -> None:
        self.cache, self.lists = cache, table


def flash_mla_sparse_fwd(
    q: torch.Tensor,
    kv: torch.Tensor,
    indices: torch.Tensor,
    sm_scale: float,
    d_v: int = 512,
    attn_sink: torch.Tensor | None = None,
    topk_length: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Attention of query tokens over lists of rows in bfloat16.

    Args:
        q: [n, h, 576 or 512].
        kv: [tokens, 1, as wide].
        indices: Tokens of each list, [n, 1, k] in int32; one that ``kv`` has not counts as none.
        sm_scale: Softmax scale.
        d_v: 512.
        attn_sink: A logit per head that takes weight and gives no value, [h] in fp32.
        topk_length: How many of each list count, [n] in int32.

    Returns:
        o [n, h, 512], each row's highest score [n, h] and its natural LSE [n, h]: 0, -inf and +inf
        for rows without a token.

    Raises:
        CallError: An argument does not fit; says which, and what does.
    """
    checks.prefill(q, kv, indices, d_v, attn_sink, topk_length)
    (n, h, width), k = q.shape, indices.shape[-1]
    queries, lists = q.unsqueeze(1), indices.reshape(n, k)
    rows = kv.view(len(kv), width).view(torch.uint8).unsqueeze(0)
    if not len(kv) or not k:
        rows, lists = rows.new_zeros(1, 1, 2 * width), lists.new_full((n, 1), -1)
    o = q.new_empty(n, 1, h, LATENT)
    lse, top = (q.new_empty(n, h, dtype=torch.float32) for _ in range(2))
    operators.list_prefill(
        queries[..., :LATENT], _rotary(queries), rows, lists, topk_length, attn_sink, o, lse, top,
        sm_scale,
    )  # fmt: skip
    return o.squeeze(1), top, lse
