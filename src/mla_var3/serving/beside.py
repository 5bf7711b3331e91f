"""Compares our dense decode with FlashMLA's: ``python -m mla_var3.serving.beside [MODULE]``.

The module is what a server imports as FlashMLA. It needs a GPU and torch, and no server.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import torch

from mla_var3 import front
from mla_var3.errors import CallError
from mla_var3.serving import flashmla
from mla_var3.serving.kinds import LATENT, ROPE

#: How far two outputs may lie apart that are each within half of it of fp32, relative to the norm,
#: and two LSEs.
ERROR, LSE_ERROR = 1.2e-2, 6e-3
#: Heads and query tokens of the calls, and the keys of their sequences in pages of 64.
CALLS, LENGTHS, PAGE = ((8, 1), (16, 1), (16, 2), (128, 1), (128, 2)), (1, 64, 700, 4096), 64
#: The model's: heads of 128 and a rotary part.
SCALE = (128 + ROPE) ** -0.5


def main(argv: Sequence[str] | None = None, device: str = "cuda") -> int:
    """Make each call by both; returns 0 if all agree, else 1.

    Raises:
        CallError: The module cannot be imported.
    """
    name = [*(sys.argv[1:] if argv is None else argv), "flash_mla"][0]
    try:
        theirs = importlib.import_module(name)
    except ImportError as error:
        raise CallError(f"{name} cannot be imported: {error}") from error
    worst = False
    for heads, queries in CALLS:
        given = _problem(heads, queries, torch.device(device))
        (want, sums), (out, lse) = (_decoded(module, *given) for module in (theirs, flashmla))
        apart = float((out.float() - want.float()).norm() / want.float().norm())
        sums_apart = float((lse - sums).abs().max())
        agrees = apart <= ERROR and sums_apart <= LSE_ERROR
        worst |= not agrees
        print(
            f"{heads} heads, {queries} query tokens: output {apart:.1e} of {ERROR:.1e}, "
            f"LSE {sums_apart:.1e} of {LSE_ERROR:.1e}: {'agrees' if agrees else 'DIFFERS'}"
        )
    return int(worst)


def _problem(heads: int, queries: int, device: torch.device) -> tuple[torch.Tensor, ...]:
    """Queries, a cache whose pages lie in a random order, page table and lengths."""
    torch.manual_seed(0)
    counts = [-(-length // PAGE) for length in LENGTHS]
    order = torch.randperm(sum(counts)).int()
    table = torch.zeros(len(LENGTHS), max(counts), dtype=torch.int32)
    for row, pages in zip(table, order.split(counts), strict=True):
        row[: len(pages)] = pages
    q = torch.randn(len(LENGTHS), queries, heads, LATENT + ROPE).bfloat16()
    cache = torch.randn(sum(counts), PAGE, 1, LATENT + ROPE).bfloat16()
    lengths = torch.tensor(LENGTHS, dtype=torch.int32).clamp(min=queries)
    return tuple(x.to(device) for x in (q, cache, table, lengths))


def _decoded(
    module: Any, q: torch.Tensor, cache: torch.Tensor, table: torch.Tensor, lengths: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and LSE by a module's calls, in the order that older releases want too."""
    schedule = module.get_mla_metadata(lengths, q.shape[1] * q.shape[2], 1)
    found: tuple[torch.Tensor, torch.Tensor] = module.flash_mla_with_kvcache(
        q, cache, table, lengths, LATENT, *schedule, softmax_scale=SCALE, causal=True
    )
    return found


if __name__ == "__main__":
    front.run("mla_var3.serving.beside:main")
