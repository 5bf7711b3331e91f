"""Workload ``attention``: inputs, reference and cost of multi-head attention without RoPE part."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mla_var3.errors import PlanError
from mla_var3.workloads.base import (
    KEYS_PER_QUERY,
    USUAL_TILE,
    Cost,
    Problem,
    Regime,
    Workload,
    axis_metric,
    option,
)
from mla_var3.workloads.mla import unseen
from mla_var3.workloads.mla.costs import seen_pairs
from mla_var3.workloads.mla.problems import BOTTOM, BOTTOM_KEY, INEXACT, LEVEL, TINY, far, held

if TYPE_CHECKING:
    import torch

MAX_EXTENT = 1 << 24


#: Lengths of problems made for ``check``.
TOKENS = (1, 3, 17, 64, 65, 130, 200, 333, 1100, 5000)


@dataclass(frozen=True, kw_only=True)
class AttentionProblem(Problem):
    """Softmax attention.

    Inputs: q ``[b,h,s,d]``, k ``[b,h,t,d]``, v ``[b,h,t,d]``. Output: o ``[b,h,s,d]``.
    """

    covers: ClassVar[str] = "softmax attention over keys and values in DRAM"

    b: int = option(4, "batch: sequences", tries=(1, 2, 3, 9, 33), near=1, minimum=1)
    h: int = option(16, "heads", tries=(1, 2, 3, 5, 17, 33), near=1, minimum=1)
    s: int = option(4096, "query tokens per sequence", tries=TOKENS, near=1, minimum=1)
    t: int = option(4096, "context length: keys per sequence", tries=TOKENS, near=1, minimum=1)
    d: int = option(128, "head dimension", tries=(64, 128), minimum=16)
    causal: bool = option(False, "bottom-right aligned causal mask")
    #: Factor on the last of the random queries, and so on its scores, which else are near 1.
    spread: float = dataclasses.field(
        default=1.0, metadata={"hidden": True, "tries": (1.0, 1.0, 1.0, 12.0, 48.0)}
    )
    #: Added to each score of the last query: exp of it is 0 or infinite. At the bottom every other
    #: head is at the top instead.
    shift: float = dataclasses.field(
        default=0.0, metadata={"hidden": True, "tries": (0.0, 0.0, 0.0, 0.0, 830.0, BOTTOM)}
    )
    #: Factor on values, which then are all negative, as far as their type holds it; 0 for usual
    #: ones.
    level: float = dataclasses.field(default=0.0, metadata={"hidden": True})
    #: Whether keys that a query does not see would have far higher scores, 0 or 1.
    unseen: int = dataclasses.field(default=0, metadata={"hidden": True, "checked": 1})

    def validate(self) -> None:
        super().validate()
        for name in ("b", "h", "s", "t"):
            if getattr(self, name) > MAX_EXTENT:
                raise PlanError(f"{name}={getattr(self, name)} exceeds {MAX_EXTENT}")
        if self.d % 8 or self.d > 256:
            raise PlanError(f"d={self.d} is not a multiple of 8 from 16 to 256")
        if self.causal and self.s > self.t:
            raise PlanError(f"s={self.s} exceeds t={self.t}: with the mask some queries see no key")

    def edges(self) -> list[Self]:
        """Many heads, whose last tile of keys lacks a single one; tiles that end with the mask.

        Or one query is behind them, or tiles of queries end with tiles of keys. Values are large in
        the first, and tiny in the second. Or tiles of rows, and pairs of them, are so many that a
        product with 1 / their number in fp32 gets heads wrong.
        """
        short, square, behind = 2 * USUAL_TILE - 1, 4 * USUAL_TILE, 2 * USUAL_TILE + 1
        rows = 2 * INEXACT * USUAL_TILE - 1
        return [
            dataclasses.replace(self, b=1, h=19, s=1, t=short, level=LEVEL),
            dataclasses.replace(self, b=1, h=2, s=130, t=square, causal=True, level=TINY),
            dataclasses.replace(self, b=1, h=2, s=behind, t=square, causal=True),
            dataclasses.replace(self, b=1, h=2, s=behind - 1, t=square, causal=True),
            dataclasses.replace(self, b=1, h=2, s=rows, t=17, causal=False),
        ]

    def vast(self) -> list[Self]:
        """A prefill of more rows than the second axis of a grid has blocks."""
        return [dataclasses.replace(self, b=1, h=128, s=1024, t=1024)]

    def prepare_inputs(self, device: str | torch.device = "cpu") -> tuple[torch.Tensor, ...]:
        b, h, s, t, d = self.b, self.h, self.s, self.t, self.d
        q, k, v = self.random(device, (b, h, s, d), (b, h, t, d), (b, h, t, d))
        if not q.is_meta:
            q[:, :, -1] *= 0.0 if self.shift == BOTTOM else self.spread
        if self.shift and not q.is_meta:
            key = BOTTOM_KEY if self.shift == BOTTOM else 1.0
            k[..., 0] = key
            q[:, :, -1, 0] = self.shift * math.sqrt(d) / key
            if self.shift == BOTTOM:
                q[:, 1::2, -1, 0] *= -1.0
        if self.unseen and self.causal and not q.is_meta:
            unseen.ask(q, 1 / math.sqrt(d))
            unseen.behind(k, s)
        if self.level and not v.is_meta:
            v = -held(self.level, self.dtype) * v.abs()
        return q, k, v

    def reference_fn(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        import torch

        q, k, v = (x.float() for x in inputs)
        rows = zip(q, k, v, strict=True)
        return {"o": torch.stack([self._attend(*row) for row in rows])}

    def _attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """One sequence, so that only its scores take memory: ``[h,s,d]``."""
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.d)  # [h, s, t]
        if self.causal:
            seen = scores.new_ones(self.s, self.t).tril(self.t - self.s).bool()
            scores = scores.masked_fill(~seen, -math.inf)
        return scores.softmax(-1) @ v

    def extreme(self) -> str:
        if self.shift:
            return far(self.shift)
        return f"scores spread {self.spread:g}-fold" if self.spread != 1.0 else ""

    def empty_output(self, device: torch.device) -> torch.Tensor:
        """Uninitialized o."""
        return self.empty(self.b, self.h, self.s, self.d, device=device)

    def _algorithmic_flops_bytes(self, tiling: Any = None) -> Cost:
        heads = self.b * self.h
        elements = 2 * heads * (self.s + self.t) * self.d
        pairs = seen_pairs(self.s, self.t, self.causal)
        return Cost(4 * heads * pairs * self.d, self.element_bytes * elements)

    def steps(self) -> int:
        return self.b * self.h * -(-self.s // USUAL_TILE) * -(-self.t // USUAL_TILE)

    def check_plans(self) -> list[Self]:
        """One query, ragged lengths, both masks, both dtypes."""
        rows = [
            # b, h, s, t, d, causal, dtype
            (2, 4, 1, 200, 128, False, "bf16"),
            (1, 2, 67, 67, 64, True, "fp16"),
            (1, 2, 130, 200, 128, True, "bf16"),
            (2, 1, 5, 256, 64, False, "fp16"),
            (1, 3, 200, 130, 128, False, "bf16"),
        ]
        return [
            dataclasses.replace(self, b=b, h=h, s=s, t=t, d=d, causal=causal, dtype=dtype)
            for b, h, s, t, d, causal, dtype in rows
        ]

    def shrunk(self) -> Self:
        """One sequence, two heads, at most 200 tokens."""
        return dataclasses.replace(
            self, b=1, h=min(self.h, 2), s=min(self.s, 200), t=min(self.t, 200)
        )


WORKLOAD = Workload(
    key="attention",
    title="Attention",
    summary="Softmax attention with keys and values of one head dimension.",
    problem=AttentionProblem,
    sweep="s",
    outputs=lambda p: p["b"] * p["h"] * p["s"] * p["d"],
    scores=lambda p: p["b"] * p["h"] * seen_pairs(p["s"], p["t"], bool(p.get("causal"))),
    repeats=lambda _problem: {"b": False, "h": False, "t": True},
    compared=("b", "h", "s", "t", "d", "dtype", "causal"),
    regimes=(
        Regime("decode", "one query token", lambda p: p["s"] < 2),
        Regime("speculative", "2 to 127 query tokens", lambda p: p["s"] < 128),
        Regime("prefill", "128 query tokens and more", lambda p: p["s"] >= 128),
    ),
    metrics=(
        axis_metric("batch", "b", "Sequences in the batch."),
        axis_metric("heads", "h", "Query heads."),
        axis_metric("query_tokens", "s", "Query tokens per sequence: 1 when decoding."),
        axis_metric("context_tokens", "t", "Keys per sequence."),
        axis_metric("head_dim", "d", "Head dimension without the position part."),
        axis_metric("causal", "causal", "Whether the mask is causal.", "flag"),
        KEYS_PER_QUERY,
    ),
)
