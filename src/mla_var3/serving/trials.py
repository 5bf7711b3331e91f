"""Calls of a server over each form of a cache, and how far from right they are, for ``check``.

Pages of 16-bit values are what versions are checked on; these kernels no version is. Values of each
group of a token are of a magnitude of their own, large and small, and queries of its inverse, so
that scores stay near 1 and a scale that is misread shows. Tokens that no list names are NaN.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch

from mla_var3.runtime.check import OutputError, compare
from mla_var3.serving import flashinfer, flashmla, forms, kinds, launching, operators
from mla_var3.workloads.mla.sparse import SparseLatentProblem, behind

#: log2 of the magnitudes of groups of 128 values; forms with a second cache have the inverse.
MAGNITUDES = (9, -10, 11, -8)
#: Those of groups of 64.
NARROW_MAGNITUDES = (9, -10, -8, 11, 10, -12, 8, 0)
#: Sequences, query tokens, and heads.
B, S, H = 3, 2, 16
#: Pages and tokens of a page of both caches, and the places of lists of their tokens.
FIRST, SECOND = (14, 6, 200), (3, 61, 40)
#: Lists of rows, rows, places of a list, and of few lists, which are cut into parts.
LISTS, ROWS, PLACES, MANY_PLACES = 3, 100, 200, 800
#: Heads that are rows of the products, and parts of a sequence: a merge counts eight warps of each,
#: and a GPU of 132 SMs makes so many of some 65,000 tokens. Here each has two tiles.
MANY_HEADS, PARTS = 64, 132
#: The form whose caches lie behind 2 GiB.
FAR_FORM = "656"
#: Keys of sequences that a wrapper is planned for, and of a page.
PLANNED, PAGE = (0, 1, 700), 64

Outputs = Mapping[str, torch.Tensor]


def names() -> list[str]:
    """The calls there are."""
    return [*_calls()]


def run(name: str, device: str = "cpu") -> list[OutputError]:
    """Make a call, and compare its outputs with what torch computes.

    Args:
        name: One of ``names``.
        device: ``cpu`` runs the kernels in the emulator.

    Raises:
        ToolchainError: In the emulator, a race or an access out of bounds.
    """
    torch.manual_seed(0)
    found, expected, magnitudes = _calls()[name](torch.device(device))
    by = torch.tensor(magnitudes).exp2().repeat_interleave(kinds.LATENT // len(magnitudes))
    usual = SparseLatentProblem()
    return [
        compare("o", found["o"].cpu() / by, expected["o"] / by, usual.tolerance("o")),
        *(
            compare(key, found[key].cpu(), expected[key], usual.tolerance("lse"))
            for key in ("lse", "top")
            if key in expected
        ),
    ]


_Call = Callable[[torch.device], tuple[Outputs, Outputs, tuple[int, ...]]]


def _calls() -> dict[str, _Call]:
    found: dict[str, _Call] = {}
    for form in kinds.FORMS:
        found[f"lists of {form} bytes"] = functools.partial(_listed, form)
    for form in kinds.ROW_FORMS:
        found[f"lists of {form}"] = functools.partial(_prefill, form)
    return found | {
        "a long list without a token": _without_tokens,
        f"a sequence in {PARTS} parts": _in_parts,
        "pages that are planned for": _planned,
    }


def _in_parts(device: torch.device) -> tuple[Outputs, Outputs, tuple[int, ...]]:
    """More parts than a schedule makes of so few keys, and the LSE to base 2."""
    plan = importlib.import_module(launching.COMPILER).Plan
    tiles, width = 2 * PARTS, kinds.LATENT + kinds.ROPE
    rows = type(plan.schedule)(begin=0, split=0, pair=0, join=0, each=0).rows([tiles], PARTS)
    cuts = torch.zeros(kinds.schedule_rows(MANY_HEADS, PARTS), kinds.COLUMNS, dtype=torch.int32)
    cuts[: len(rows), : len(rows[0])] = torch.tensor(rows)
    q, keys = torch.randn(MANY_HEADS, width), torch.randn(tiles * PAGE - 1, width)
    q, keys = q.bfloat16(), keys.bfloat16()
    pages = torch.cat([keys, keys[:1]]).unflatten(0, (-1, PAGE))
    found = {
        "o": torch.empty(1, 1, MANY_HEADS, kinds.LATENT, dtype=q.dtype, device=device),
        "lse": torch.empty(1, MANY_HEADS, 1, device=device),
    }
    latent, rope = slice(kinds.LATENT), slice(kinds.LATENT, None)
    operators.paged_decode(
        *(x.contiguous().to(device) for x in (
            q[None, None, :, latent], q[None, None, :, rope], pages[..., latent], pages[..., rope],
            torch.arange(len(pages), dtype=torch.int32)[None],
            torch.tensor([len(keys)], dtype=torch.int32), cuts,
        )),
        found["o"], found["lse"], width**-0.5, False, True, -torch.inf,
    )  # fmt: skip
    o, sums, _ = _attended(q, keys, width**-0.5)
    return found, {"o": o[None, None], "lse": sums[None, :, None] / kinds.LN_2}, (0,)


def _planned(device: torch.device) -> tuple[Outputs, Outputs, tuple[int, ...]]:
    """By FlashInfer's wrapper, which tells the LSE to base 2: of no key minus infinity."""
    width, lengths = kinds.LATENT + kinds.ROPE, torch.tensor(PLANNED, dtype=torch.int32)
    starts = torch.tensor([0, *(-(-n // PAGE) for n in PLANNED)]).cumsum(0).int()
    named = torch.randperm(int(starts[-1])).int() + 1
    q = torch.randn(len(PLANNED) * S, H, width).bfloat16()
    pages = torch.randn(len(named) + 1, PAGE, width).bfloat16()
    pages[0] = torch.nan  # Nobody's.
    latent, rope = slice(kinds.LATENT), slice(kinds.LATENT, None)
    q_nope, q_pe, ckv, kpe = (
        x[..., which].contiguous().to(device) for x in (q, pages) for which in (latent, rope)
    )
    wrapper = flashinfer.BatchMLAPagedAttentionWrapper(torch.empty(0, device=device))
    wrapper.plan(
        torch.arange(len(PLANNED) + 1) * S, starts, named, lengths, H, kinds.LATENT, kinds.ROPE,
        PAGE, True, width**-0.5, q.dtype, q.dtype,
    )  # fmt: skip
    o, lse = wrapper.run(q_nope, q_pe, ckv, kpe, return_lse=True)
    rows = []
    for i, count in enumerate(PLANNED):
        own = pages[named[starts[i] : starts[i + 1]].long()].flatten(0, 1)
        for j in range(S):
            seen = own[: max(count - (S - 1 - j), 0)]
            rows.append(_attended(q[i * S + j], seen, width**-0.5)[:2])
            if not len(seen):
                rows[-1] = rows[-1][0], -rows[-1][1]
    expected = [torch.stack(each) for each in zip(*rows, strict=True)]
    return {"o": o, "lse": lse}, {"o": expected[0], "lse": expected[1] / kinds.LN_2}, (0,)


def _without_tokens(device: torch.device) -> tuple[Outputs, Outputs, tuple[int, ...]]:
    """Parts of it are merged, and none has anything."""
    width = kinds.LATENT + kinds.ROPE
    q, (cache, _) = torch.randn(1, 1, H, width).bfloat16(), _cache("656", width, *FIRST[:2])
    o, lse = flashmla.flash_mla_with_kvcache(
        q.to(device), cache.to(device), None, None, kinds.LATENT, flashmla.get_mla_metadata()[0],
        is_fp8_kvcache=True,
        indices=torch.full((1, 1, MANY_PLACES), -1, dtype=torch.int32, device=device),
    )  # fmt: skip
    expected = {"o": torch.zeros(o.shape), "lse": torch.full(lse.shape, torch.inf)}
    return {"o": o, "lse": lse}, expected, (0,)


def _magnitudes(form: str) -> tuple[int, ...]:
    usual = MAGNITUDES if form.startswith("656") else NARROW_MAGNITUDES
    return tuple(-x for x in usual) if form.endswith("second") else usual


def _by_magnitude(form: str, width: int, sign: int) -> torch.Tensor:
    """Factors on the values of a token, or with the other sign on those of queries."""
    magnitudes = _magnitudes(form)
    factors = (sign * torch.tensor(magnitudes).float()).exp2()
    by = factors.repeat_interleave(kinds.LATENT // len(magnitudes))
    return torch.cat([by, torch.ones(width - kinds.LATENT)])


def _listed(form: str, device: torch.device) -> tuple[Outputs, Outputs, tuple[int, ...]]:
    width = kinds.LATENT if form.startswith("584") else kinds.LATENT + kinds.ROPE
    q = (torch.randn(B, S, H, width) * _by_magnitude(form, width, -1)).bfloat16()
    caches = [_cache(form, width, *sizes[:2]) for sizes in (FIRST, SECOND)]
    if form.endswith("table"):
        return _paged(form, q, *caches[0], device)
    given: dict[str, Any] = {}
    taken = []
    for prefix, sizes, (cache, keys) in zip(("", "extra_"), (FIRST, SECOND), caches, strict=True):
        if prefix and not form.endswith("second"):
            continue
        places = sizes[2]
        indices = torch.randint(1, len(keys), (B, S, places), dtype=torch.int32)
        # Of no token; the first cache's is below what the second holds.
        indices[0, 0, places // 2 : places // 2 + 2] = torch.tensor([-1, len(keys)])
        counts = (places - 3, places // 3, 0) if not prefix else (places, 0, places - 1)
        _forget(form, cache, indices)
        named = indices
        if form == FAR_FORM:
            cache, before = behind(cache)
            named = torch.where(indices < 0, indices, indices + before)
        suffix = "_in_kvcache" if prefix else ""
        given |= {
            f"{prefix}k_cache": cache,
            f"{prefix}indices{suffix}": named,
            f"{prefix}topk_length": torch.tensor(counts, dtype=torch.int32),
        }
        taken.append((keys, indices, counts))
    o, lse = flashmla.flash_mla_with_kvcache(
        q.to(device), block_table=None, cache_seqlens=None, head_dim_v=kinds.LATENT,
        tile_scheduler_metadata=flashmla.get_mla_metadata()[0], is_fp8_kvcache=True,
        **{name: tensor.to(device) for name, tensor in given.items()},
    )  # fmt: skip
    expected: dict[str, list[torch.Tensor]] = {"o": [], "lse": []}
    for i in range(B):
        for j in range(S):
            listed = [(keys, x[i, j, : counts[i]]) for keys, x, counts in taken]
            seen = torch.cat([keys[_tokens(x, len(keys))] for keys, x in listed])
            own, sums, _ = _attended(q[i, j], seen, width**-0.5)
            expected["o"].append(own)
            expected["lse"].append(sums)
    return (
        {"o": o, "lse": lse},
        {
            "o": torch.stack(expected["o"]).view(o.shape),
            "lse": torch.stack(expected["lse"]).view(B, S, H).transpose(1, 2),
        },
        _magnitudes(form),
    )


def _cache(form: str, width: int, pages: int, page: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A cache, and its tokens as they are read from it."""
    tokens = torch.randn(pages * page, width) * _by_magnitude(form, width, 1)
    cache = forms.packed(form, tokens, page)
    return cache, forms.unpacked(form, forms.rows_of(form, cache)).flatten(0, 1)


def _tokens(indices: torch.Tensor, count: int) -> torch.Tensor:
    """The places of a list that name one of so many tokens; others count as absent."""
    return indices[(indices >= 0) & (indices < count)].long()


def _forget(form: str, cache: torch.Tensor, indices: torch.Tensor) -> None:
    """Make values of tokens that no list names NaN."""
    pages, page = cache.shape[:2]
    named = torch.zeros(pages * page, dtype=torch.bool)
    named[_tokens(indices, len(named))] = True
    forms.rows_of(form, cache)[~named.view(pages, page)] = 0x7F


def _paged(
    form: str, q: torch.Tensor, cache: torch.Tensor, keys: torch.Tensor, device: torch.device
) -> tuple[Outputs, Outputs, tuple[int, ...]]:
    """A dense call over pages in fp8, of which one is of no sequence; causal."""
    pages, page = cache.shape[:2]
    order = torch.randperm(pages - 1).int() + 1
    table = torch.stack([order, order.flip(0), order])
    lengths = (page * (pages - 1) - 1, page + 1, S)
    cache[0] = 0x7F
    o, lse = flashmla.flash_mla_with_kvcache(
        q.to(device), cache.to(device), table.to(device),
        torch.tensor(lengths, dtype=torch.int32, device=device), kinds.LATENT,
        flashmla.get_mla_metadata()[0], is_fp8_kvcache=True, causal=True,
    )  # fmt: skip
    expected = (
        torch.empty(o.shape, dtype=torch.float64),
        torch.empty(lse.shape, dtype=torch.float64),
    )
    for i in range(B):
        own = keys.unflatten(0, (pages, page))[table[i].long()].flatten(0, 1)
        for j in range(S):
            seen = own[: lengths[i] - (S - 1 - j)]
            expected[0][i, j], expected[1][i, :, j], _ = _attended(
                q[i, j], seen, q.shape[-1] ** -0.5
            )
    return {"o": o, "lse": lse}, dict(zip(("o", "lse"), expected, strict=True)), _magnitudes(form)


def _prefill(form: str, device: torch.device) -> tuple[Outputs, Outputs, tuple[int, ...]]:
    width, cut = int(form.removeprefix("rows")[:3]), form.endswith("parts")
    n, places = (1, MANY_PLACES) if cut else (LISTS, PLACES)
    kv = (torch.randn(ROWS, width) * _by_magnitude("584", width, 1)).bfloat16()
    q = (torch.randn(n, H, width) * _by_magnitude("584", width, -1)).bfloat16()
    indices = torch.randint(1, ROWS, (n, 1, places), dtype=torch.int32)
    indices[0, 0, :2] = torch.tensor([-1, ROWS])
    counts, sink = torch.tensor([places - 1, 0, 70][:n], dtype=torch.int32), torch.randn(H)
    kv[0] = torch.nan  # No list names it.
    scale = width**-0.5
    o, top, lse = flashmla.flash_mla_sparse_fwd(
        q.to(device), kv[:, None].to(device), indices.to(device), scale,
        attn_sink=sink.to(device), topk_length=counts.to(device),
    )  # fmt: skip
    rows = []
    for i, count in enumerate(counts.tolist()):
        listed = indices[i, 0, :count]
        seen = kv[_tokens(listed, ROWS)].float()
        own, sums, highest = _attended(q[i], seen, scale)
        share = torch.sigmoid(sums - sink).nan_to_num(0.0) * (sums < torch.inf)
        rows.append((own * share[:, None], sums, highest))
    expected = (torch.stack(each) for each in zip(*rows, strict=True))
    return (
        {"o": o, "lse": lse, "top": top},
        dict(zip(("o", "lse", "top"), expected, strict=True)),
        NARROW_MAGNITUDES,
    )


def _attended(
    q: torch.Tensor, keys: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of queries [h, w] over keys [t, w]: o [h, 512], LSE [h] and highest score [h] in fp64."""
    if not len(keys):
        none = torch.full((len(q),), torch.inf, dtype=torch.float64)
        return torch.zeros(len(q), kinds.LATENT, dtype=torch.float64), none, -none
    scores = q.double() @ keys.double().T * scale
    o = scores.softmax(-1) @ keys[:, : kinds.LATENT].double()
    return o, scores.logsumexp(-1), scores.amax(-1)
