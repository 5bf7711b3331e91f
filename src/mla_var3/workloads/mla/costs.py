"""Cost models of MLA designs: compute FLOPs and DRAM bytes from sizes alone.

Symbols (DeepSeek-V3: arXiv 2412.19437, section 2.1.1, and its published configuration): b batch,
h query heads, s query tokens per sequence, t context length, d head dimension without position
part, p rotary part, k latent dimension, w bytes per element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mla_var3.devices import Ceilings
from mla_var3.roofline.prediction import predict
from mla_var3.workloads.base import Cost

#: Times by the model that differ by less than this share count as equal.
#: A model has no noise: that of measured times is ``evidence.compare.NOISE``, another matter.
TIE = 0.01
#: Tokens by which mixes are tried: a tile of keys.
MIX = 64


def seen_pairs(s: int, t: int, causal: bool, first: int = 0, last: int | None = None) -> int:
    """Query-key pairs of one head and sequence that the mask leaves, for keys first .. last-1.

    Args:
        s: Queries.
        t: Keys of the whole context.
        causal: Bottom-right aligned: query i sees keys ``0 .. t-s+i``.
        first: First key that counts.
        last: One past the last key that counts; t by default.
    """
    width = (t if last is None else last) - first
    if not causal:
        return s * width
    # Query i sees clamp(start + i, 0, width) of these keys.
    start = t - s + 1 - first
    low, high = max(start, 0), start + s - 1
    ramp = max(min(high, width) - low + 1, 0)
    full = max(high - max(width, start - 1), 0)
    return ramp * (low + min(high, width)) // 2 + full * width


def flash_attention_cost(
    b: int, h: int, s: int, t: int, d: int, p: int, w: int, pairs: int | None = None
) -> Cost:
    """Decompressed multi-head attention; all heads share the keys' position part.

    Counting that part once per head, as the usual formula w*b*h*(s+t)*(2d+p) does, gave a floor
    that the kernels beat on an H200: the second head finds it in L2. ``pairs`` is ``seen_pairs``
    where a mask hides some, else s*t.
    """
    elements = b * h * s * (2 * d + p) + 2 * b * h * t * d + b * t * p
    return Cost(2 * b * h * (s * t if pairs is None else pairs) * (2 * d + p), w * elements)


def flash_mla_cost(
    b: int, h: int, s: int, t: int, k: int, p: int, w: int, pairs: int | None = None
) -> Cost:
    """Absorbed attention in the latent space; the latent cache is read once for all heads."""
    return Cost(
        2 * b * h * (s * t if pairs is None else pairs) * (2 * k + p),
        w * (b * h * s * (2 * k + p) + b * t * (k + p)),
    )


def paged_cost(h: int, s: int, lengths: Sequence[int], k: int, p: int, w: int, pairs: int) -> Cost:
    """``flash_mla_cost`` of sequences of these lengths; bytes follow them, and not the longest.

    The pages' numbers, four bytes per page, are left out.
    """
    elements = len(lengths) * h * s * (2 * k + p) + sum(lengths) * (k + p)
    return Cost(2 * h * pairs * (2 * k + p), w * elements)


def paged_fp8_cost(h: int, s: int, lengths: Sequence[int], k: int, p: int, pairs: int) -> Cost:
    """``paged_cost`` with latents and their queries in e4m3; rotary parts and output in 16 bits.

    FLOPs are counted as those of fp8, also the p of 2k+p that are in 16 bits.
    """
    return Cost(
        2 * h * pairs * (2 * k + p),
        len(lengths) * h * s * (3 * k + 2 * p) + sum(lengths) * (k + 2 * p),
    )


#: Values of the latent cache that share one fp32 scale where it is kept in fp8.
FP8_GROUP = 128


def fp8_row_bytes(k: int, p: int, w: int) -> int:
    """Bytes of a token: e4m3 latents, an fp32 scale per group of them, the rotary part."""
    return k + 4 * (k // FP8_GROUP) + w * p


def fp8_latent_cost(
    b: int, h: int, s: int, t: int, k: int, p: int, w: int, pairs: int | None = None
) -> Cost:
    """``flash_mla_cost`` with the latent cache in fp8; arithmetic stays in 16 bits."""
    whole = flash_mla_cost(b, h, s, t, k, p, w, pairs)
    return Cost(whole.flops, whole.bytes + b * t * (fp8_row_bytes(k, p, w) - w * (k + p)))


def sparse_cost(b: int, h: int, s: int, kept: int, k: int, p: int, w: int) -> Cost:
    """Each query token over ``kept`` tokens of its own, from a cache in fp8.

    Lists of one sequence may name the same tokens, which then are read once; that is left out.
    """
    tokens = b * s * kept
    return Cost(
        2 * h * tokens * (2 * k + p),
        w * b * h * s * (2 * k + p) + tokens * (fp8_row_bytes(k, p, w) + 4),
    )


def mixed_cost(
    b: int,
    h: int,
    s: int,
    t: int,
    n: int,
    d: int,
    k: int,
    p: int,
    w: int,
    pairs: tuple[int, int] | None = None,
) -> Cost:
    """MLA-var6+: o = t - n old tokens in the latent space, n new tokens decompressed.

    ``pairs`` is ``seen_pairs`` of the old and of the new tokens where a mask hides some.
    """
    o = t - n
    old, new = (s * o, s * n) if pairs is None else pairs
    flops = 2 * b * h * (old + new) * p + 4 * b * h * new * d + 4 * b * h * old * k
    elements = (
        b * h * s * (p + d + k)  # queries: rotary, plain, absorbed
        + b * o * k
        + b * t * p
        + 2 * b * h * n * d
        + b * h * s * (d + k)  # the two partial outputs
    )
    return Cost(flops, w * elements)


def prefix_cost(b: int, h: int, s: int, n: int, d: int, p: int, w: int, groups: int = 1) -> Cost:
    """Attention of all b*s queries of a head over n decompressed tokens that a group shares.

    Keys and values are read once per group of sequences. Rotary queries count with the own tokens.
    """
    elements = groups * n * (2 * h * d + p) + 2 * b * h * s * d
    return Cost(2 * b * h * s * n * (2 * d + p), w * elements)


def best_new_tokens(
    b: int,
    h: int,
    s: int,
    t: int,
    d: int,
    k: int,
    p: int,
    w: int,
    rates: Ceilings,
    multiple: int = MIX,
) -> int:
    """The n in 0, multiple, .. t that minimizes the roofline time of ``mixed_cost``.

    FLOPs fall linearly with n (by 4bhs(k-d) a token) and bytes rise linearly (by w(2bhd - bk) a
    token). By two rates the minimum lies where the two times meet, or at an end; the time at the
    board's power is not linear in n, so that all are tried. An end within ``TIE`` of the least is
    taken: a mix has a second kernel and a merge, which the model leaves out.

    Args:
        b: Batch.
        h: Query heads.
        s: Query tokens.
        t: Context length.
        d: Head dimension.
        k: Latent dimension.
        p: Rotary dimension.
        w: Bytes per element.
        rates: Ceilings of the device.
        multiple: Granularity of n (a tile of keys).

    Returns:
        n, between 0 and t.
    """
    import numpy as np  # Not needed to name a problem.

    tokens: Any = np.append(np.arange(0.0, t, multiple), float(t))
    us = _longest(mixed_cost(b, h, s, t, tokens, d, k, p, w), rates)
    ends = [end for end in (0, -1) if us[end] <= us.min() * (1 + TIE)]
    return int(tokens[ends[0] if ends else us.argmin()])


def _longest(cost: Cost, rates: Ceilings) -> Any:
    """Microseconds of work, or of each of an array of them: see ``roofline.predict``."""
    import numpy as np

    us = np.maximum(cost.flops / (rates.tflops * 1e6), cost.bytes / (rates.gbps * 1e3))
    return np.maximum(us, rates.power.us(cost.flops, cost.bytes)) if rates.power else us


def best_prefix_tokens(
    b: int,
    h: int,
    s: int,
    t: int,
    shared: int,
    d: int,
    k: int,
    p: int,
    w: int,
    rates: Ceilings,
    groups: int = 1,
) -> int:
    """How many of the shared tokens to decompress: all of them where that is faster, else none.

    Each part is a launch of its own, so that their times add up; a launch's time is linear in its
    tokens but for its queries. Arguments as in ``best_new_tokens``, ``shared`` tokens common to
    each of ``groups`` groups. The product with Wv is left out: every choice below t needs it.
    """

    def us(cost: Cost) -> float:
        return predict(cost.flops, cost.bytes, rates).time_us

    latent = us(flash_mla_cost(b, h, s, t, k, p, w))
    own = us(flash_mla_cost(b, h, s, t - shared, k, p, w)) if shared < t else 0.0
    return shared if own + us(prefix_cost(b, h, s, shared, d, p, w, groups)) < latent else 0
