"""MLA problems: inputs, references and cost models that all versions of a design share.

Symbols (DeepSeek-V3: arXiv 2412.19437, section 2.1.1, and its published configuration): b batch,
h query heads, s query tokens a sequence, t context length, d head dimension without position part,
p rotary part, k latent dimension, w bytes an element. The softmax scale is ``1/sqrt(d+p)``; LSE is
the natural logarithm of the sum of exponentials, in fp32. Causal is bottom-right aligned: query i
of s sees keys ``0 .. t-s+i``. A row that sees no key has O = 0 and LSE = -inf.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch

from mla_var3.errors import PlanError
from mla_var3.runtime.plan import Cost, DTypeName, KernelPlan, Tiling, option

#: Largest b, h, s or t a plan accepts: above it element offsets overflow 32 bits in no useful case.
MAX_EXTENT = 1 << 24
#: Largest number of elements in one tensor; TMA and int64 strides go further, no device does.
MAX_ELEMENTS = 1 << 40
SEED = 20260101


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

    Counting that part once a head, as the usual formula w*b*h*(s+t)*(2d+p) does, gave a floor that
    the kernels beat on an H200: the second head finds it in L2. ``pairs`` is ``seen_pairs`` where
    a mask hides some, else s*t.
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
    """The n in 0, multiple, .. t that minimises the roofline time of ``mixed_cost``.

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
        w: Bytes an element.
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


def attention_reference(scores: torch.Tensor, *, causal: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax weights and LSE of scaled scores.

    Args:
        scores: ``[b, h, s, t]``, already scaled.
        causal: Bottom-right aligned causal mask.

    Returns:
        Weights ``[b, h, s, t]`` (zero rows where no key is seen) and LSE ``[b, h, s]``.
    """
    s, t = scores.shape[-2:]
    if causal:
        query = torch.arange(s, device=scores.device)[:, None]
        key = torch.arange(t, device=scores.device)[None, :]
        scores = scores.masked_fill(key > query + (t - s), -math.inf)
    lse = torch.logsumexp(scores, dim=-1)
    weights = torch.exp(scores - lse.nan_to_num(neginf=0.0)[..., None])
    return weights, lse


Reference = Callable[..., dict[str, torch.Tensor]]


def by_sequence(shared: int = 0) -> Callable[[Reference], Reference]:
    """Run a plan's reference one sequence at a time and stack what it gives.

    Only one sequence's fp32 copies then take memory, so that the largest problems that fit a GPU
    can be checked there.

    Args:
        shared: How many of the last inputs have no batch dimension.
    """

    def decorate(reference: Reference) -> Reference:
        @functools.wraps(reference)
        def run(plan: KernelPlan, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
            split = len(inputs) - shared
            parts = [
                reference(plan, *(x[i : i + 1] for x in inputs[:split]), *inputs[split:])
                for i in range(inputs[0].shape[0])
            ]
            return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

        return run

    return decorate


@dataclass(frozen=True, kw_only=True)
class AttentionPlan(KernelPlan):
    """Sizes that all attention designs share."""

    b: int = option(64, "batch: sequences", minimum=1)
    h: int = option(128, "query heads (128; 16 to 64 after tensor parallelism)", minimum=1)
    s: int = option(1, "query tokens a sequence (1 decode, up to 127 speculative)", minimum=1)
    t: int = option(4096, "context length: keys a sequence", minimum=1)
    p: int = option(64, "rotary position dimension", minimum=16)
    causal: bool = option(False, "bottom-right aligned causal mask")
    #: Factor on the last of the random queries, and so on its scores, which else are near 1.
    spread: float = dataclasses.field(default=1.0, metadata={"hidden": True})

    @property
    def d_qk(self) -> int:
        """Query-key dimension that sets the softmax scale, d + p (not k + p: see absorption)."""
        return self.head_dim + self.p

    @property
    def head_dim(self) -> int:
        """d, the head dimension without the position part."""
        return 128

    def pairs(self, first: int = 0, last: int | None = None) -> int:
        """Query-key pairs of one head that the mask leaves, for keys first .. last-1."""
        return seen_pairs(self.s, self.t, self.causal, first, last)

    @property
    def scale(self) -> float:
        """Softmax scale ``1/sqrt(d+p)``."""
        return 1.0 / math.sqrt(self.d_qk)

    def split_counts(self) -> dict[str, Any]:
        """Into how many pieces the user wants keys cut, by field."""
        found = {n: v for n, v in self.problem().items() if n.endswith("splits")}
        return {name: value for name, value in found.items() if isinstance(value, int)}

    def validate(self) -> None:
        super().validate()
        for name, count in self.split_counts().items():
            if count > self.t:
                raise PlanError(f"{name}={count} exceeds t={self.t}: some pieces would have no key")
        for name in ("b", "h", "s", "t"):
            if getattr(self, name) > MAX_EXTENT:
                raise PlanError(f"{name}={getattr(self, name)} exceeds {MAX_EXTENT}")
        for name in ("p", "d", "k"):
            value = getattr(self, name, None)
            if value is not None and (value & (value - 1) or value > 512):
                raise PlanError(f"{name}={value} is not a power of two from 16 to 512")
        largest = self.b * self.h * max(self.s, self.t) * 512
        if largest > MAX_ELEMENTS:
            raise PlanError(
                f"b*h*max(s,t)*512 = {self.b}*{self.h}*{max(self.s, self.t)}*512 = {largest} "
                f"elements, more than {MAX_ELEMENTS}"
            )

    def check_plans(self) -> list[Self]:
        """Decode, speculative and prefill; ragged t; both masks, head counts and dtypes."""
        rows: list[tuple[int, int, int, int, bool, DTypeName, float]] = [
            # b, h, s, t, causal, dtype, spread
            (2, 16, 1, 200, False, "bf16", 1.0),
            (1, 128, 1, 77, True, "fp16", 1.0),
            (2, 16, 2, 130, True, "bf16", 48.0),  # exp overflows unless each row's maximum goes off
            (1, 16, 5, 256, False, "fp16", 1.0),
            (1, 16, 5, 67, True, "bf16", 1.0),
            (1, 2, 5, 2112, False, "bf16", 1.0),  # rounding in the running sums adds up
            (1, 16, 16, 193, True, "fp16", 1.0),
            (1, 20, 130, 150, True, "bf16", 1.0),  # heads that fill no whole group of 16
            (1, 16, 5, 3, True, "bf16", 1.0),  # rows that see no key
        ]
        return [
            dataclasses.replace(self, b=b, h=h, s=s, t=t, causal=causal, dtype=dtype, spread=spread)
            for b, h, s, t, causal, dtype, spread in rows
        ]

    def shrunk(self) -> Self:
        """The same problem small enough to interpret in about a second; t stays ragged.

        Prefill (s of 128 and more) stays prefill, with fewer heads, and s = t stays so.
        """
        heads, queries = (2, 200) if self.s >= 128 else (16, 16)
        t = min(self.t, 200)
        splits = {name: min(count, t) for name, count in self.split_counts().items()}
        return dataclasses.replace(
            self, b=1, h=min(self.h, heads), s=min(self.s, queries), t=t, **splits
        )

    def _random(
        self, device: str | torch.device, *shapes: tuple[int, ...]
    ) -> tuple[torch.Tensor, ...]:
        if torch.device(device).type == "meta":
            return tuple(torch.empty(x, dtype=self.torch_dtype, device="meta") for x in shapes)
        generator = torch.Generator(device=device).manual_seed(SEED)
        return tuple(
            torch.randn(x, dtype=torch.float32, device=device, generator=generator).to(
                self.torch_dtype
            )
            for x in shapes
        )

    def _spread(self, *queries: torch.Tensor) -> tuple[torch.Tensor, ...]:
        for x in queries:
            x[:, :, -1] *= self.spread  # [b, h, s, *]
        return queries


def _heads_first(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2)  # [b, t, h, d] -> [b, h, t, d]


@dataclass(frozen=True, kw_only=True)
class LatentPlan(AttentionPlan):
    """Absorbed attention over the latent cache (flash_mla and its split form).

    Inputs: q ``[b,h,s,k]``, qpe ``[b,h,s,p]``, z ``[b,t,k]``, kpe ``[b,t,p]``.
    Outputs: o ``[b,h,s,k]`` in the plan's dtype, lse ``[b,h,s]`` in fp32.
    """

    k: int = option(512, "latent (compressed) dimension", minimum=16)

    def prepare_inputs(self, device: str | torch.device = "cpu") -> tuple[torch.Tensor, ...]:
        b, h, s, t, k, p = self.b, self.h, self.s, self.t, self.k, self.p
        q, qpe, z, kpe = self._random(device, (b, h, s, k), (b, h, s, p), (b, t, k), (b, t, p))
        # Absorbed queries have about 1/sqrt(d) of the latent norm each; this keeps scores near 1.
        return *self._spread(q * (self.d_qk / (k + p)) ** 0.5, qpe), z, kpe

    @by_sequence()
    def reference_fn(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        q, qpe, z, kpe = (x.float() for x in inputs)
        scores = torch.einsum("bhsk,btk->bhst", q, z) + torch.einsum("bhsp,btp->bhst", qpe, kpe)
        weights, lse = attention_reference(scores * self.scale, causal=self.causal)
        return {"o": torch.einsum("bhst,btk->bhsk", weights, z), "lse": lse}

    def empty_outputs(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Uninitialised o and lse."""
        o = torch.empty(self.b, self.h, self.s, self.k, dtype=self.torch_dtype, device=device)
        return o, torch.empty(self.b, self.h, self.s, dtype=torch.float32, device=device)

    def _algorithmic_flops_bytes(self, tiling: Tiling | None = None) -> Cost:
        return flash_mla_cost(
            self.b, self.h, self.s, self.t, self.k, self.p, self.element_bytes, self.pairs()
        )


@dataclass(frozen=True, kw_only=True)
class DecompressedPlan(AttentionPlan):
    """Multi-head attention over decompressed keys and values (flash_attention).

    Inputs: q ``[b,h,s,d]``, qpe ``[b,h,s,p]``, key ``[b,t,h,d]``, value ``[b,t,h,d]``,
    kpe ``[b,t,p]``. Outputs: o ``[b,h,s,d]``, lse ``[b,h,s]`` in fp32.
    """

    d: int = option(128, "head dimension without the position part", minimum=16)

    @property
    def head_dim(self) -> int:
        return self.d

    def prepare_inputs(self, device: str | torch.device = "cpu") -> tuple[torch.Tensor, ...]:
        b, h, s, t, d, p = self.b, self.h, self.s, self.t, self.d, self.p
        q, qpe, *rest = self._random(
            device, (b, h, s, d), (b, h, s, p), (b, t, h, d), (b, t, h, d), (b, t, p)
        )
        return *self._spread(q, qpe), *rest

    @by_sequence()
    def reference_fn(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        q, qpe, key, value, kpe = (x.float() for x in inputs)
        scores = torch.einsum("bhsd,bhtd->bhst", q, _heads_first(key))
        scores = scores + torch.einsum("bhsp,btp->bhst", qpe, kpe)
        weights, lse = attention_reference(scores * self.scale, causal=self.causal)
        return {"o": torch.einsum("bhst,bhtd->bhsd", weights, _heads_first(value)), "lse": lse}

    def empty_outputs(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Uninitialised o and lse."""
        o = torch.empty(self.b, self.h, self.s, self.d, dtype=self.torch_dtype, device=device)
        return o, torch.empty(self.b, self.h, self.s, dtype=torch.float32, device=device)

    def _algorithmic_flops_bytes(self, tiling: Tiling | None = None) -> Cost:
        return flash_attention_cost(
            self.b, self.h, self.s, self.t, self.d, self.p, self.element_bytes, self.pairs()
        )


@dataclass(frozen=True, kw_only=True)
class MixedPlan(AttentionPlan):
    """MLA-var6+: old tokens in the latent space, the n newest decompressed, then one combine.

    Inputs: q ``[b,h,s,d]``, q_latent ``[b,h,s,k]``, qpe ``[b,h,s,p]``, z ``[b,o,k]``,
    kpe ``[b,t,p]``, key ``[b,n,h,d]``, value ``[b,n,h,d]``, wv ``[h,k,d]``, with o = t - n.
    Outputs: o ``[b,h,s,d]``, lse ``[b,h,s]`` in fp32. When n = 0 (or n = t) the tensors of the
    missing part have one token that no query sees, since an array cannot be empty.
    """

    s: int = option(16, "query tokens a sequence (1 decode, up to 127 speculative)", minimum=1)
    d: int = option(128, "head dimension without the position part", minimum=16)
    k: int = option(512, "latent (compressed) dimension", minimum=16)
    n: int | None = option(
        None, "newest tokens kept decompressed, 0 to t; by default the cost model's best", minimum=0
    )

    @property
    def head_dim(self) -> int:
        return self.d

    @property
    def new_tokens(self) -> int:
        """n; PlanError when it is still open."""
        if self.n is None:
            raise PlanError("n is open: call resolve(peak_tflops, peak_gbps) or pass --n")
        return self.n

    @property
    def old_tokens(self) -> int:
        """The latent tokens, o = t - n."""
        return self.t - self.new_tokens

    def validate(self) -> None:
        super().validate()
        if self.n is not None and self.n > self.t:
            raise PlanError(f"n={self.n} exceeds t={self.t}")

    def resolve(self, peak_tflops: float, peak_gbps: float) -> Self:
        if self.n is not None:
            return self
        n = best_new_tokens(
            self.b, self.h, self.s, self.t, self.d, self.k, self.p, self.element_bytes,
            peak_tflops, peak_gbps,
        )  # fmt: skip
        return dataclasses.replace(self, n=n)

    def prepare_inputs(self, device: str | torch.device = "cpu") -> tuple[torch.Tensor, ...]:
        b, h, s, t, d, k, p = self.b, self.h, self.s, self.t, self.d, self.k, self.p
        old, new = max(self.old_tokens, 1), max(self.new_tokens, 1)
        q, q_latent, qpe, z, kpe, key, value, wv = self._random(
            device, (b, h, s, d), (b, h, s, k), (b, h, s, p), (b, old, k), (b, t, p),
            (b, new, h, d), (b, new, h, d), (h, k, d),
        )  # fmt: skip
        q_latent = q_latent * (self.d_qk / (k + p)) ** 0.5
        return *self._spread(q, q_latent, qpe), z, kpe, key, value, wv * k**-0.5

    @by_sequence(shared=1)
    def reference_fn(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        q, q_latent, qpe, z, kpe, key, value, wv = (x.float() for x in inputs)
        old, new = self.old_tokens, self.new_tokens
        z, key, value = z[:, :old], key[:, :new], value[:, :new]
        scores = torch.cat(
            [
                torch.einsum("bhsk,btk->bhst", q_latent, z),
                torch.einsum("bhsd,bhtd->bhst", q, _heads_first(key)),
            ],
            dim=-1,
        ) + torch.einsum("bhsp,btp->bhst", qpe, kpe)
        weights, lse = attention_reference(scores * self.scale, causal=self.causal)
        latent = torch.einsum("bhst,btk->bhsk", weights[..., :old], z)
        o = torch.einsum("bhsk,hkd->bhsd", latent, wv)
        o = o + torch.einsum("bhst,bhtd->bhsd", weights[..., old:], _heads_first(value))
        return {"o": o, "lse": lse}

    def shrunk(self) -> Self:
        small = dataclasses.replace(self, n=None) if self.n is not None else self
        small = super(MixedPlan, small).shrunk()
        return dataclasses.replace(small, n=round(small.t * self.new_tokens / self.t))

    def check_plans(self) -> list[Self]:
        fractions = (0.5, 0.0, 1.0, 0.3, 0.7, 0.1, 0.6, 0.1, 0.5)
        return [
            dataclasses.replace(plan, n=round(plan.t * fraction))
            for plan, fraction in zip(super().check_plans(), fractions, strict=True)
        ]

    def _algorithmic_flops_bytes(self, tiling: Tiling | None = None) -> Cost:
        return mixed_cost(
            self.b, self.h, self.s, self.t, self.new_tokens, self.d, self.k, self.p,
            self.element_bytes, (self.pairs(last=self.old_tokens), self.pairs(self.old_tokens)),
        )  # fmt: skip
