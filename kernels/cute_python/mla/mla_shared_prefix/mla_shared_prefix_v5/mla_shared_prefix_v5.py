"""Shared prefix v5: own tokens by the kernel of flash_mla v12, with lazy rescaling.

A producer warp of theirs can ask L2 for the keys and values that the prefix begins with, while DRAM
is idle; that does not pay (``ahead``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, const_expr

from mla_var3.errors import TilingError
from mla_var3.kernel.cute_python.kit.l2_kernel import L2PieceKernel
from mla_var3.kernel.cute_python.kit.latent_tiling import PairTiling
from mla_var3.kernel.cute_python.kit.merging_plan import MergingPlan, WholeStepTiling
from mla_var3.kernel.cute_python.kit.piece_epilogue import L2PartPieceEpilogue
from mla_var3.kernel.cute_python.kit.queries import SlabQueries
from mla_var3.kernel.cute_python.kit.rings import Free
from mla_var3.kernel.cute_python.kit.softmax import LN_2
from mla_var3.kernel.cute_python.kit.warpgroups import THREADS
from mla_var3.runtime import KernelPlan, Tiling
from mla_var3.runtime.cute_kernel import CuteKernel, CuteTiling
from mla_var3.workloads import option

if TYPE_CHECKING:
    import torch

#: How far a maximum of the own tokens may lag by default, in units of log2.
LAZY = 8.0


@dataclass(frozen=True, kw_only=True)
class AheadTiling(PairTiling):
    """That of flash_mla, and how much of the prefix is asked for ahead."""

    ahead: int = option(0, "tokens of the prefix that are fetched into L2 meanwhile", minimum=0)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        if self.splits > 1 and isinstance(plan, Plan) and plan.whole:
            raise TilingError(f"splits={self.splits}: beside a whole prefix no CTA waits for one")


@dataclass(frozen=True, kw_only=True)
class Plan(MergingPlan):
    """Launches of v5."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {
        "latent": AheadTiling,
        "decompressed": WholeStepTiling,
        "combine": CuteTiling,
    }

    # ---- tilings ---------------------------------------------------------------------------
    def latent_tiling(self) -> AheadTiling:
        plain = super().latent_tiling()
        fields = {field.name: getattr(plain, field.name) for field in dataclasses.fields(plain)}
        return AheadTiling(**fields | {"lazy": LAZY})

    # ---- kernels ---------------------------------------------------------------------------
    def latent(self, *inputs: torch.Tensor) -> CuteKernel:
        if not self.whole:
            return super().latent(*inputs)
        _, q, qpe, z, kpe, key, value, *_ = inputs
        return self.bind(
            AheadOwnTokens.attention,
            lambda x: AheadOwnTokens(self.causal, x),
            {"q_latent": q, "qpe": qpe, "z": z, "kpe": kpe, "key": key, "value": value},
            self.own_outputs(q),
            (self.scale / LN_2,),
            self.own_part(),
            "latent",
        )


class OwnEpilogue(L2PartPieceEpilogue):
    """Without splits nothing is exchanged, and takes no shared memory."""

    def fields(self):
        """No further fields of shared memory."""
        return {}


@dataclass
class AheadQueries(SlabQueries):
    """Queries slab by slab; once on their way, the warp that loads none asks for the prefix.

    Attributes:
        ahead: Tokens of the prefix to fetch into L2, of each group.
    """

    ahead: int

    @cute.jit
    def load(self, storage, q_loads, block, batch, parity, group: cutlass.Constexpr):
        """An item's queries, and its share of the prefix."""
        SlabQueries.load(self, storage, q_loads, block, batch, parity, group)
        if const_expr(group == Free.ODD_RIGHT and self.ahead > 0):
            self.fetch_ahead(q_loads, block, batch)

    @cute.jit
    def fetch_ahead(self, q_loads, block, batch):
        """An item's share of the last tokens of the prefix, which it begins with, into L2."""
        key, value = self.prefix
        groups, tokens, heads, width = key.shape
        _, blocks, _, sequences = q_loads.sources[0].shape
        share = cute.ceil_div(cutlass.min(self.ahead, tokens) * groups, blocks * sequences)
        first = (batch * blocks + block) * share
        with cute.arch.elect_one():
            for i in cutlass.range(first, first + share, unroll=1):
                token = tokens - 1 - i // groups
                if token >= 0:
                    for x in (key, value):
                        fetch_into_l2(
                            x, (i % groups, token, 0, 0), heads * width * x.element_type.width // 8
                        )


class AheadOwnTokens(L2PieceKernel):
    """The kernel of flash_mla v12 without splits, which lets the next launch begin beside it."""

    epilogue_type = OwnEpilogue

    def __init__(self, causal: bool, tiling: AheadTiling):
        super().__init__(causal, tiling)
        self.queries = AheadQueries(tiling.ahead)

    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        qpe: cute.Tensor,
        z: cute.Tensor,
        kpe: cute.Tensor,
        key: cute.Tensor,
        value: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        scale_log2: Float32,
        stream: cuda.CUstream,
    ):
        """Launch.

        Args:
            q: [b,h,s,512].
            qpe: [b,h,s,64].
            z: [b,t,512].
            kpe: [b,t,64].
            key: Of the prefix [groups,n,h,128].
            value: Likewise.
            o: [b,h,s,512].
            lse: [b,h,s].
            scale_log2: Softmax scale over ln 2.
            stream: Where to launch.
        """
        q_loads, kv_loads, outputs = self.prepare(q, qpe, z, kpe, o, lse)
        self.attention(q_loads, kv_loads, (), (*outputs, key, value), scale_log2).launch(
            **self.schedule.launch(q, o),
            block=(THREADS, 1, 1),
            stream=stream,
            min_blocks_per_mp=1,
        )

    def begin(self, outputs):
        """The next launch may begin; the prefix stands behind the outputs."""
        cute.arch.griddepcontrol_launch_dependents()
        self.queries.prefix = outputs[3:]


def fetch_into_l2(x, at, count):
    """Ask for ``count`` bytes of ``x`` from ``at`` on."""
    cute.arch.inline_ptx(
        "cp.async.bulk.prefetch.L2.global [{$r0}], {$r1};",
        read_only_args=[Int64(cute.domain_offset(at, x).iterator.toint()), Int32(count)],
    )
