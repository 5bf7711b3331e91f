"""CUTLASS's example `mla_decode_fp8`, run in place by a plan of ours.

The same with fp8 operands: what halved bytes change in stages, scales and the order of warps.

The kernel is NVIDIA's and lies in the fetched tree (`nox -s examples -- fetch`). Here are the
problem, the tilings and the launch.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from mla_var3.errors import PlanError
from mla_var3.examples.driving import Fetched, device_function
from mla_var3.runtime import KernelPlan, RuntimeObject
from mla_var3.runtime.cute_kernel import CuteKernel, CuteTiling, Dynamic, require_one_of
from mla_var3.runtime.execution import Argued
from mla_var3.workloads import option
from mla_var3.workloads.mla import LatentProblem

if TYPE_CHECKING:
    import torch

example = Fetched(
    "cute/blackwell/kernel/attention/mla/mla_decode_fp8.py",
    "778afee01263408b61ff0133cbfdd677f155ae97",
)
STAGE = "attention"
SOURCE = "mla_decode_fp8.py"
#: What is found in the example itself, and is no fault of how it is driven.
FOUND = (
    Argued(
        "race",
        SOURCE,
        2563,
        "the exchange of row maxima has one barrier per tile, so a warp may overwrite a maximum "
        "that another has yet to read; not seen on hardware",
    ),
    Argued("global-race", SOURCE, 3054, "two threads store the same LSE"),
)
#: Query heads that a pair of blocks takes, and query tokens that the example is made for.
HEADS, MOST_TOKENS = 128, 4
#: Keys per step.
TILE_T = 128


@dataclass(frozen=True, kw_only=True)
class Tiling(CuteTiling):
    """What the example leaves open; its tiles are fixed, and one split needs no second kernel."""

    page: int = option(128, "keys per page of the cache: 32, 64 or 128")
    # A row that keeps its maximum is rescaled all the same, by a factor made from the maximum that
    # it does not take. The example leaves out its own comparison there.
    threshold: int = option(
        0, "growth of a row's maximum, in powers of two, that needs no rescale; wrong above 0"
    )

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_one_of((32, 64, 128), page=self.page)


@dataclass(frozen=True, kw_only=True)
class Plan(LatentProblem, KernelPlan):
    """Problem and launch. The example's LSE is the logarithm to base 2."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {STAGE: Tiling}
    dtypes: ClassVar[Mapping[str, str]] = {"fp8": "float8_e4m3fn"}

    dtype: str = option("fp8", "element type of inputs and outputs: fp8")

    def validate(self) -> None:
        super().validate()
        sizes = 2 <= self.h <= HEADS and self.s <= MOST_TOKENS
        if (self.k, self.p) != (512, 64) or not sizes:
            raise PlanError(
                f"k={self.k}, p={self.p}, h={self.h}, s={self.s}: the example takes k=512, p=64, "
                f"h from 2 to {HEADS} and s up to {MOST_TOKENS}"
            )
        if self.causal and self.s > 1:
            raise PlanError(f"causal with s={self.s}: the example has no mask")
        if self.t % TILE_T:
            raise PlanError(f"t={self.t} is not a multiple of {TILE_T}: the cache comes in pages")

    def reference_fn(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        found = super().reference_fn(*inputs)
        return found | {"lse": found["lse"] / math.log(2)}

    def check_plans(self) -> list[Self]:
        sizes = (
            *((2, 128, 1, 256), (1, 128, 4, 128), (1, 64, 2, 384)),
            *((1, 16, 1, 128), (1, 100, 2, 128), (2, 2, 3, 128)),
        )
        return [dataclasses.replace(self, b=b, h=h, s=s, t=t, causal=False) for b, h, s, t in sizes]

    def shrunk(self) -> Self:
        return dataclasses.replace(self, b=1, h=min(self.h, HEADS), s=1, t=TILE_T)

    def default_tiling(self, stage: str) -> Tiling:
        return Tiling()

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        return {STAGE: [Tiling()]}

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        q, qpe, z, kpe = inputs
        o = self.empty(self.b, self.s, self.h, self.k, device=q.device)
        lse = self.empty(self.b, self.s, self.h, device=q.device, fp32=True)
        tensors = (*(Dynamic(x.permute(1, 3, 2, 0), (0,)) for x in (q, qpe)), z, kpe)
        # Heads at launch only, as in the example: from static ones the rows of the pair's second
        # CTA are folded onto those of the first. Its scheduler takes tokens and sequences from o.
        outputs = (
            Dynamic(o.permute(2, 3, 1, 0), (0, 2, 3)),
            Dynamic(lse.permute(2, 1, 0), (0, 1, 2)),
        )
        return CuteKernel(
            device_function("split_kv_kernel"),
            lambda tiling: example.driven(
                Kernel(tiling), *self.arguments(tiling.page, tensors, outputs)
            ),
            input_tensors={"q": q, "qpe": qpe, "z": z, "kpe": kpe},
            output_tensors={"o": o.transpose(1, 2), "lse": lse.transpose(1, 2)},
            tiling=self.tiling(STAGE),
            autotune_configs=self._autotune_configs()[STAGE],
            algorithmic_flops_bytes_fn=self._algorithmic_flops_bytes,
            argued=FOUND,
            _name=STAGE,
        )

    def arguments(
        self,
        page: int,
        tensors: tuple[torch.Tensor, ...],
        outputs: tuple[Dynamic | torch.Tensor, ...],
    ) -> tuple[object, ...]:
        """What the host half takes: the cache in pages of which each sequence owns a row."""
        import torch

        q, qpe, z, kpe = tensors
        caches = (x.reshape(-1, page, x.shape[-1]).permute(1, 2, 0) for x in (z, kpe))
        pages = self.t // page
        table = torch.arange(self.b * pages, dtype=torch.int32, device=z.device)
        lengths = torch.full((self.b,), self.t, dtype=torch.int32, device=z.device)
        return (q, qpe, *caches, table.view(self.b, pages).T, *outputs, lengths, self.scale)


class Kernel:
    """Host half: the example's, with one split and a tiling of ours."""

    def __init__(self, tiling: Tiling) -> None:
        self.page, self.threshold = tiling.page, float(tiling.threshold)

    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        qpe: cute.Tensor,
        z: cute.Tensor,
        kpe: cute.Tensor,
        table: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        lengths: cute.Tensor,
        scale: cutlass.Float32,
        stream: cuda.CUstream,
    ):
        """Launch q [h,k,s,b], qpe [h,p,s,b] over pages z [page,k,*] and kpe [page,p,*]."""
        # Not persistent, so that the number of clusters that fit (1) is not asked for; no split.
        attention = example.BlackwellMultiHeadLatentAttentionForwardFP8(
            cutlass.Float32, cutlass.Float32, (128, TILE_T), (128, 256), 1, self.page,
            self.threshold, False, False, False,
        )  # fmt: skip
        attention(
            q, qpe, z, kpe, table, o, lse, None, cutlass.Int32(1), lengths, None, scale,
            cutlass.Float32(1.0), stream,
        )  # fmt: skip
