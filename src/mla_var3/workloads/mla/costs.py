"""Cost models of MLA designs: FLOPs and DRAM bytes from sizes alone.

Symbols (DeepSeek-V3: arXiv 2412.19437, section 2.1.1, and its published configuration): b batch,
h query heads, s query tokens per sequence, t context length, d head dimension without position
part, p rotary part, k latent dimension, w bytes per element.
"""

from __future__ import annotations

from mla_var3.workloads.base import Cost


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
    peak_tflops: float,
    peak_gbps: float,
    multiple: int = 64,
) -> int:
    """The n in 0, multiple, .. t that minimizes the roofline time of ``mixed_cost``.

    FLOPs fall linearly with n (by 4bhs(k-d) a token) and bytes rise linearly (by w(2bhd - bk) a
    token), so max(flops/peak, bytes/peak) is convex in n: its minimum lies where the two meet, or
    at an end.

    Args:
        b: Batch.
        h: Query heads.
        s: Query tokens.
        t: Context length.
        d: Head dimension.
        k: Latent dimension.
        p: Rotary dimension.
        w: Bytes per element.
        peak_tflops: Tensor ceiling in TFLOP/s.
        peak_gbps: DRAM ceiling in GB/s.
        multiple: Granularity of n (a tile of keys).

    Returns:
        n, between 0 and t.
    """

    def seconds(n: int) -> float:
        cost = mixed_cost(b, h, s, t, n, d, k, p, w)
        return max(cost.flops / (peak_tflops * 1e12), cost.bytes / (peak_gbps * 1e9))

    at_zero, at_end = mixed_cost(b, h, s, t, 0, d, k, p, w), mixed_cost(b, h, s, t, t, d, k, p, w)
    compute_0, compute_t = (c.flops / (peak_tflops * 1e12) for c in (at_zero, at_end))
    memory_0, memory_t = (c.bytes / (peak_gbps * 1e9) for c in (at_zero, at_end))
    candidates = {0, t}
    slope = (memory_t - memory_0) - (compute_t - compute_0)
    if slope > 0 and compute_0 > memory_0:
        crossing = t * (compute_0 - memory_0) / slope
        low = int(crossing // multiple) * multiple
        candidates |= {n for n in (low, low + multiple) if 0 <= n <= t}
    return min(sorted(candidates), key=seconds)


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
    peak_tflops: float,
    peak_gbps: float,
    groups: int = 1,
) -> int:
    """How many of the shared tokens to decompress: all of them where that is faster, else none.

    Each part is a launch of its own, so that their times add up; a launch's time is linear in its
    tokens but for its queries. Arguments as in ``best_new_tokens``, ``shared`` tokens common to
    each of ``groups`` groups. The product with Wv is left out: every choice below t needs it.
    """

    def seconds(cost: Cost) -> float:
        return max(cost.flops / (peak_tflops * 1e12), cost.bytes / (peak_gbps * 1e9))

    latent = seconds(flash_mla_cost(b, h, s, t, k, p, w))
    own = seconds(flash_mla_cost(b, h, s, t - shared, k, p, w)) if shared < t else 0.0
    return shared if own + seconds(prefix_cost(b, h, s, shared, d, p, w, groups)) < latent else 0
