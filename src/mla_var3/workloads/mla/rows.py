"""Sparse prefill: each query token attends to its own list of rows that hold 16-bit values."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mla_var3.errors import PlanError
from mla_var3.workloads.base import Cost, Tolerance, option
from mla_var3.workloads.mla.sparse import SparseLatentProblem

if TYPE_CHECKING:
    import torch

#: Queries, heads, rows of the cache, and rows per list; the problems of ``--set=sparse-prefill``.
SIZES = (
    (4096, 128, 8192, 2048),
    (4096, 128, 65536, 2048),
    (1024, 64, 32768, 2048),
    (200, 128, 16384, 512),
    (64, 128, 32768, 2048),
    (33, 128, 32768, 2048),
    (16, 64, 16384, 1024),
    (8, 64, 8192, 512),
    (4, 128, 32768, 2048),
    (1, 128, 8192, 2048),
)
#: Sinks of heads, from one to the next and over how many: 0 to 10.
SINK_STEP, SINK_PERIOD = 7, 11


def sparse_prefill_set() -> list[dict[str, Any]]:
    """The problems of the set, as fields of a plan."""
    return [{"b": 1, "s": s, "h": h, "t": t, "topk": k, "rows": True} for s, h, t, k in SIZES]


@dataclass(frozen=True, kw_only=True)
class SparseRowsProblem(SparseLatentProblem):
    """Absorbed attention of each query token over its own list of rows in bfloat16.

    Inputs as those of ``SparseLatentProblem``, but that the cache is ``[pages,page,k+p]`` in
    bfloat16. Outputs: o ``[b*s,1,h,k]``, and in fp32 LSE ``lse`` and highest scaled score ``top``
    of each row, both ``[b*s,h,1]``. As FlashMLA has it, a list without a token gives 0, plus
    infinity and minus infinity, and a sink is in the output alone.
    """

    covers: ClassVar[str] = (
        "attention up to the latent output over chosen rows in bfloat16; the caller multiplies "
        "with Wv"
    )
    smaller: ClassVar[bool] = False
    in_order: ClassVar[bool] = True
    nothing: ClassVar[float] = math.nan
    maxima: ClassVar[frozenset[str]] = frozenset({"top"})

    s: int = option(
        1024, "query tokens per sequence", tries=(1, 2, 3, 5, 16, 40), near=1, minimum=1
    )
    b: int = option(1, "batch: sequences", tries=(1, 2, 3), near=1, minimum=1)
    t: int = option(
        8192, "rows of the cache per sequence", tries=(1, 3, 65, 257, 600), near=1, minimum=1
    )
    rows: bool = option(True, "the cache holds rows in bfloat16, not bytes in fp8")
    #: As of caches in fp8; each list is a CTA's, and no problem of a whole device has it.
    distant: int = dataclasses.field(default=0, metadata={"hidden": True, "deep": (1,)})
    #: Whether each head has a sink: a logit that takes weight and gives no value.
    sunk: bool = dataclasses.field(default=False, metadata={"hidden": True, "tries": (False, True)})

    def validate(self) -> None:
        super().validate()
        if not self.rows:
            raise PlanError("rows=False: the cache holds rows in bfloat16")
        if self.dtype != "bf16":
            raise PlanError(f"dtype={self.dtype}: rows are in bf16")

    def check_plans(self) -> list[Self]:
        """Of few lists and of more than the SMs that are emulated; both head counts."""
        rows = [
            (1, 64, 3, 300, 200), (1, 128, 2, 70, 128), (2, 64, 20, 90, 70), (1, 64, 1, 5, 64),
            (1, 16, 1, 900, 900),
        ]  # fmt: skip
        return [
            dataclasses.replace(self, b=b, h=h, s=s, t=t, topk=topk, causal=False, dtype="bf16")
            for b, h, s, t, topk in rows
        ]

    def shrunk(self) -> Self:
        """Of multiples of 64 heads and places, as FlashMLA takes them."""
        return dataclasses.replace(super().shrunk(), h=64, topk=64)

    def sinks(self, device: torch.device) -> torch.Tensor:
        """Logits of the heads [h], near the LSE of short and of long lists; no two neighbors alike.

        They repeat after as many heads as divide no tile of rows.
        """
        import torch

        return (torch.arange(self.h, dtype=torch.float32) * SINK_STEP % SINK_PERIOD).to(device)

    def tolerance(self, output: str) -> Tolerance:
        return super().tolerance("lse" if output == "top" else output)

    def _stored(self, tokens: torch.Tensor) -> torch.Tensor:
        return tokens

    def reference_fn(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        import torch

        q, qpe, cache, chosen, lengths = inputs
        o = torch.zeros(q.shape, device=q.device)
        lse = torch.full((len(q), self.h, 1), math.inf, device=q.device)
        top, known = -lse, cache.flatten(0, 1)
        for i, (tokens, length) in enumerate(zip(chosen, lengths.tolist(), strict=True)):
            listed = tokens[:length].long()
            z, kpe = (
                known[listed[(listed >= 0) & (listed < len(known))]]
                .float()
                .split((self.k, self.p), -1)
            )
            if not len(z):
                continue
            scores = (q[i, 0].float() @ z.T + qpe[i, 0].float() @ kpe.T) * self.scale
            lse[i, :, 0], top[i, :, 0] = scores.logsumexp(-1), scores.amax(-1)
            o[i, 0] = scores.softmax(-1) @ z
        if self.sunk:
            o *= torch.sigmoid(lse - self.sinks(o.device)[:, None]).transpose(1, 2)[..., None]
        return {"o": o, "lse": lse, "top": top}

    def empty_outputs(  # type: ignore[override]  # one more than decode gives
        self, device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Uninitialized o, lse and top."""
        o, lse = super().empty_outputs(device)
        return o, lse, self.empty(*lse.shape, device=device, fp32=True)

    def _algorithmic_flops_bytes(self, tiling: Any = None) -> Cost:
        return rows_cost(self.b, self.h, self.s, self.t, self.topk, self.k, self.p)


def rows_cost(b: int, h: int, s: int, t: int, topk: int, k: int, p: int) -> Cost:
    """Each query token over a list of its own; rows that any list names are read once.

    Lists are drawn by chance, so that of t rows all are named but those that chance leaves out.
    """
    kept = min(t, topk)
    named = t * (1.0 - (1.0 - kept / t) ** s)
    tokens = b * s * kept
    return Cost(
        2 * h * tokens * (2 * k + p),
        2 * b * h * s * (2 * k + p) + 8 * b * h * s + 2 * round(b * named) * (k + p) + 4 * tokens,
    )
