"""Checks arguments of serving calls: refuses each fault by one sentence, without reading the GPU.

Only ``contents``, for debugging, reads GPU memory.
"""

from __future__ import annotations

import os

import torch

from mla_var3.errors import CallError
from mla_var3.serving.kinds import LATENT, MODEL1, MODEL1_ROW, ROPE, SPARSE_ROW, box_of

#: Set to 1, calls also look at lengths and tables, for which they wait for the GPU.
DEBUG = "MLA_VAR3_DEBUG"
DTYPES = (torch.bfloat16, torch.float16)
#: Bytes that rows and pages begin at multiples of.
ALIGNMENT = 16


def require(holds: bool, sentence: str) -> None:
    """Raise CallError with the sentence unless it holds."""
    if not holds:
        raise CallError(sentence)


def lengths(given: torch.Tensor) -> None:
    """Lengths of sequences: a vector of int32."""
    integers("cache_seqlens", given, 1)


def integers(name: str, given: torch.Tensor, axes: int) -> None:
    """A tensor of int32 whose last axis is dense."""
    require(given.dtype == torch.int32, f"{name} must be int32, and is {_name(given.dtype)}")
    require(given.ndim == axes, f"{name} must have {axes} axes, and has {given.ndim}")
    dense = given.shape[-1] <= 1 or given.stride(-1) == 1
    require(dense, f"{name} must be dense along its last axis, and has stride {given.stride(-1)}")


def decode(
    q: torch.Tensor, cache: torch.Tensor, table: torch.Tensor, seqlens: torch.Tensor, width: int
) -> None:
    """The arguments of FlashMLA's dense decode."""
    for name, x in (("q", q), ("k_cache", cache)):
        require(x.ndim == 4, f"{name} must have 4 axes, and has {x.ndim}")
        rows(name, x, LATENT + ROPE)
    require(width == LATENT, f"head_dim_v={width}: {LATENT} is what this decode has")
    h, shared = q.shape[2], cache.shape[2]
    require(h % max(shared, 1) == 0, f"{h} query heads do not divide among {shared} of the cache")
    together(q, {"k_cache": cache})
    require(cache.dtype == q.dtype, f"k_cache is {_name(cache.dtype)}, and q is {_name(q.dtype)}")
    pages(q, table, seqlens, cache.shape[0], cache.shape[1])
    box_of(cache.shape[1], 1, table.shape[1] == 1)


def pages(
    q: torch.Tensor, table: torch.Tensor, seqlens: torch.Tensor, count: int, page: int
) -> None:
    """Lengths and pages of sequences."""
    lengths(seqlens)
    integers("block_table", table, 2)
    together(q, {"block_table": table, "cache_seqlens": seqlens})
    batches(q.shape[0], {"block_table": table, "cache_seqlens": seqlens})
    if os.environ.get(DEBUG) == "1":
        contents(table, seqlens, count, page)


def sparse(
    q: torch.Tensor, indices: torch.Tensor, sink: torch.Tensor | None, causal: bool, fp8: bool
) -> None:
    """What FlashMLA's sparse decode takes beside its caches."""
    require(fp8, "indices need a cache in fp8: is_fp8_kvcache=True")
    require(not causal, "causal=True: a list names the tokens that its query sees")
    queries(q)
    if sink is not None:
        logits(sink, q)


def queries(q: torch.Tensor) -> None:
    """Queries over a cache in fp8."""
    require(q.ndim == 4, f"q must have 4 axes, and has {q.ndim}")
    width = LATENT if q.shape[-1] == LATENT else LATENT + ROPE
    rows("q", q, width)
    require(q.dtype == torch.bfloat16, f"q must be bfloat16, and is {_name(q.dtype)}")


def logits(sink: torch.Tensor, q: torch.Tensor) -> None:
    """A logit per head that takes weight."""
    h = q.shape[-2]
    fits = sink.dtype == torch.float32 and sink.shape == (h,)
    require(fits, f"attn_sink must be {h} values in float32")
    together(q, {"attn_sink": sink})


def fp8_cache(name: str, cache: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """A cache in fp8 as rows of bytes [pages, page, width], by the width of the queries."""
    model1 = q.shape[-1] == LATENT
    token = MODEL1 if model1 else SPARSE_ROW
    fits = cache.ndim == 4 and cache.shape[2:] == (1, token) and cache.element_size() == 1
    require(fits, f"{name} must be [pages, page, 1, {token}] in bytes for queries that are "
            f"{q.shape[-1]} wide, and is a {_name(cache.dtype)} {tuple(cache.shape)}")  # fmt: skip
    together(q, {name: cache})
    steps = (cache.stride(0), ALIGNMENT if model1 else cache.stride(1))
    require(
        cache.stride(-1) == 1 and all(step % ALIGNMENT == 0 for step in steps),
        f"each {'page' if model1 else 'token'} of {name} must begin at a multiple of "
        f"{ALIGNMENT} bytes",
    )
    found = cache.squeeze(2).view(torch.uint8)
    if not model1:
        return found
    pages, page = cache.shape[:2]
    require(page == 1 or cache.stride(1) == MODEL1, f"pages of {name} must be dense")
    # Rows of a page lie in its first part, and their scales past all of them.
    return found.as_strided((pages, page, MODEL1_ROW), (cache.stride(0), MODEL1_ROW, 1))


def token_lists(
    name: str,
    indices: torch.Tensor,
    count: str,
    counts: torch.Tensor | None,
    cache: torch.Tensor,
    q: torch.Tensor,
) -> None:
    """Lists of tokens of a cache, and how many of each count."""
    integers(name, indices, 3)
    require(
        indices.shape[:2] == q.shape[:2],
        f"{name} has lists for {tuple(indices.shape[:2])}, and q is {tuple(q.shape[:2])}",
    )
    together(q, {name: indices})
    if counts is not None:
        integers(count, counts, 1)
        batches(q.shape[0], {count: counts})
        together(q, {count: counts})
    if os.environ.get(DEBUG) == "1":
        named(name, indices, cache.shape[0] * cache.shape[1])


def named(name: str, indices: torch.Tensor, tokens: int) -> None:
    """Tokens that the cache has, or -1; waits for the GPU."""
    wrong = indices[(indices < -1) | (indices >= tokens)]
    require(
        not len(wrong),
        f"{name} names token {int(wrong[0]) if len(wrong) else 0} of {tokens}; -1 stands for none",
    )


def prefill(
    q: torch.Tensor,
    kv: torch.Tensor,
    indices: torch.Tensor,
    width: int,
    sink: torch.Tensor | None,
    counts: torch.Tensor | None,
) -> None:
    """The arguments of ``flash_mla_sparse_fwd``."""
    require(width == LATENT, f"d_v={width}: {LATENT} is what there is")
    require(q.ndim == 3, f"q must have 3 axes, and has {q.ndim}")
    require(q.shape[-1] in (LATENT, LATENT + ROPE), f"q must be 512 or 576 wide, not {q.shape[-1]}")
    rows("q", q, q.shape[-1])
    fits = kv.ndim == 3 and kv.shape[1:] == (1, q.shape[-1])
    require(fits, f"kv must be [tokens, 1, {q.shape[-1]}], and is {tuple(kv.shape)}")
    rows("kv", kv, q.shape[-1])
    for name, x in (("q", q), ("kv", kv)):
        require(x.dtype == torch.bfloat16, f"{name} must be bfloat16, and is {_name(x.dtype)}")
    integers("indices", indices, 3)
    require(
        indices.shape[:2] == (len(q), 1),
        f"indices must be [{len(q)}, 1, topk], and is {tuple(indices.shape)}",
    )
    together(q, {"kv": kv, "indices": indices})
    if counts is not None:
        integers("topk_length", counts, 1)
        batches(len(q), {"topk_length": counts})
        together(q, {"topk_length": counts})
    if sink is not None:
        logits(sink, q)


def rows(name: str, x: torch.Tensor, width: int) -> None:
    """A tensor whose rows of 16-bit values TMA can load."""
    require(x.dtype in DTYPES, f"{name} must be bfloat16 or float16, and is {_name(x.dtype)}")
    require(x.shape[-1] == width, f"{name} must be {width} wide, and is {x.shape[-1]}")
    require(x.stride(-1) == 1, f"{name} must be dense along its last axis")
    unit = ALIGNMENT // x.element_size()
    steps = [step for step, n in zip(x.stride()[:-1], x.shape[:-1], strict=True) if n > 1]
    # While a compiler looks on, tensors are nowhere.
    somewhere = not (torch.compiler.is_compiling() or x.is_meta)
    aligned = x.data_ptr() % ALIGNMENT == 0 if somewhere else True
    require(
        aligned and all(step % unit == 0 for step in steps),
        f"each row of {name} must begin at a multiple of {ALIGNMENT} bytes",
    )


def together(q: torch.Tensor, others: dict[str, torch.Tensor]) -> None:
    """All on the device of q."""
    for name, x in others.items():
        require(x.device == q.device, f"{name} is on {x.device}, and q is on {q.device}")


def batches(b: int, given: dict[str, torch.Tensor]) -> None:
    """As many rows as there are sequences."""
    for name, x in given.items():
        require(x.shape[0] == b, f"{name} is for {x.shape[0]} sequences, and q has {b}")


def contents(table: torch.Tensor, seqlens: torch.Tensor, pages: int, page: int) -> None:
    """Lengths that the table holds, and pages that the cache has; waits for the GPU."""
    longest, shortest = int(seqlens.max()), int(seqlens.min())
    room = table.shape[1] * page
    require(shortest >= 0, f"cache_seqlens has {shortest}, and a length is at least 0")
    require(longest <= room, f"cache_seqlens has {longest}, and block_table has pages for {room}")
    place = torch.arange(table.shape[1], device=table.device) * page
    used = table[place[None] < seqlens[:, None]]
    wrong = used[(used < 0) | (used >= pages)]
    require(
        not len(wrong), f"block_table names page {int(wrong[0]) if len(wrong) else 0} of {pages}"
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
