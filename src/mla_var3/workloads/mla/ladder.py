"""Scores that jump in the middle of the keys, by as much as some kernel takes for little.

A maximum may lag behind, weights are kept in formats that hold so much, and parts of a row are
added as long as they are not too far apart. Each such limit is a power of two, so that queries jump
by just less than these.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from mla_var3.workloads.base import USUAL_TILE

if TYPE_CHECKING:
    import torch

#: By how much (log2) scores of queries jump, in turn, and by how much less than that. Of the first
#: fp16 just holds the weight, and of the second it does not, by however much a maximum may lag.
RUNGS = (16, 16.5, 8, 140, 9, 124, 15, 7, 12, 20, 31, 64, 100, 4, 127, 110, 10, 2, 6)
LESS = 2.0**-13
#: Where one key alone is above all others, and where that is the first.
HIGHEST, FALLING = 2, 3
#: By how much the first key is above: what all others weigh, each near the least that a format
#: holds, is a good part of a long sum, and between two numbers of that format.
FALLS = (12.4, 9.3, 16.4, 10.6, 14.7, 18.2, 7.5, 13.6)
#: Rotary dimensions of a jump: numbers of 16 bits that together are as exact as one in fp32.
FIRST, TERMS, BITS = 2, 3, 9


def ramp(length: int) -> torch.Tensor:
    """From 0 to 1."""
    import torch

    return torch.linspace(0.0, 1.0, length)


def second_half(length: int, jumps: int = 1) -> torch.Tensor:
    """Which keys are above the jump: from the first tile on that begins behind the middle.

    Args:
        length: How many keys there are.
        jumps: 1 for all of these; 2 for the first of the next tile alone: what all others weigh
            then counts after a small jump too; 3 for the first of all keys alone.
    """
    import torch

    if jumps == FALLING:
        return torch.arange(length) == 0
    half = -(-(length // 2) // USUAL_TILE) * USUAL_TILE
    half = half if half < length else length // 2
    if jumps == 1:
        return torch.arange(length) >= half
    return torch.arange(length) == (half + USUAL_TILE if half + USUAL_TILE < length else half)


def climb(
    queries: torch.Tensor, scale: float, first: int = FIRST, skip: int = 0, jumps: int = 1
) -> None:
    """Make queries [..., rows, p] those that jump, the rows by one rung after the other.

    Args:
        queries: Rotary parts, elsewhere 0.
        scale: The softmax scale.
        first: The first of the dimensions that make the jump.
        skip: How many rungs are skipped.
        jumps: As ``second_half`` takes it.
    """
    all_rungs = FALLS if jumps == FALLING else RUNGS
    rungs = itertools.islice(itertools.cycle(all_rungs), skip, None)
    for row, rung in zip(range(queries.shape[-2]), rungs, strict=False):
        left = (rung - LESS) * math.log(2.0) / scale
        for term in range(TERMS):
            queries[..., row, first + term] = left * 2.0 ** (BITS * term)
            left -= float(queries[..., row, first + term].flatten()[0]) / 2.0 ** (BITS * term)


def steps(keys: torch.Tensor, above: torch.Tensor | bool, first: int = FIRST) -> None:
    """Give keys [..., p] what makes queries jump: those ``above`` [...], and no others."""
    for term in range(TERMS):
        keys[..., first + term] = 1.0 * above / 2.0 ** (BITS * term)
