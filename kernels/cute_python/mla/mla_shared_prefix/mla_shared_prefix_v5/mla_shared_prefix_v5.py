"""Shared prefix v5: own tokens by flash_mla v12, whose maxima may lag.

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
from cutlass import Float32, Int32, Int64, const_expr, range_constexpr
from cutlass.cute.nvgpu import cpasync
from cutlass.utils import SmemAllocator

from mla_var3.errors import TilingError
from mla_var3.kernel.cute_python.kit.slabs import ROWS, SLAB, SLABS, as_keys, as_rows, slab_layout
from mla_var3.kernel.cute_python.kit.softmax import LN_2
from mla_var3.kernel.cute_python.mla.flash_mla.flash_mla_v5.flash_mla_v5 import FlashMlaV5Tiling
from mla_var3.kernel.cute_python.mla.flash_mla.flash_mla_v12.flash_mla_v12 import (
    CONSUMER_REGISTERS,
    CONSUMERS,
    PRODUCER_REGISTERS,
    THREADS,
    FlashMlaV12,
    Free,
)
from mla_var3.kernel.cute_python.mla.mla_shared_prefix.mla_shared_prefix_v4.mla_shared_prefix_v4 import (  # noqa: E501
    Plan as PlanOfV4,
)
from mla_var3.kernel.cute_python.mla.mla_shared_prefix.mla_shared_prefix_v4.mla_shared_prefix_v4 import (  # noqa: E501
    WholeStepTiling,
)
from mla_var3.runtime import KernelPlan, Tiling
from mla_var3.runtime.cute_kernel import CuteKernel, CuteTiling
from mla_var3.workloads import option

if TYPE_CHECKING:
    import torch

#: How far a maximum of the own tokens may lag by default, in units of log2.
LAZY = 8.0


@dataclass(frozen=True, kw_only=True)
class AheadTiling(FlashMlaV5Tiling):
    """That of flash_mla, and how much of the prefix is asked for ahead."""

    ahead: int = option(0, "tokens of the prefix that are fetched into L2 meanwhile", minimum=0)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        if self.splits > 1 and isinstance(plan, Plan) and plan.whole:
            raise TilingError(f"splits={self.splits}: beside a whole prefix no CTA waits for one")


@dataclass(frozen=True, kw_only=True)
class Plan(PlanOfV4):
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
            AheadOwnTokens.own_tokens,
            lambda x: AheadOwnTokens(
                self.causal, x.lazy, share=x.share, blocks=x.blocks, ahead=x.ahead
            ),
            {"q_latent": q, "qpe": qpe, "z": z, "kpe": kpe, "key": key, "value": value},
            self.own_outputs(q),
            (self.scale / LN_2,),
            self.own_part(),
            "latent",
        )


class AheadOwnTokens(FlashMlaV12):
    """flash_mla v12 without splits, which lets the next launch begin beside it.

    Args:
        causal: Whether a mask is aligned at the bottom right.
        lazy: How far a maximum may lag.
        share: Row tiles of a cluster.
        blocks: CTAs that stay.
        ahead: Tokens of the prefix to fetch into L2, of each group.
    """

    def __init__(self, causal: bool, lazy: float, *, share: int, blocks: int, ahead: int):
        super().__init__(causal, lazy, 1, share, blocks)
        self.ahead = ahead

    # ---- host half -------------------------------------------------------------------------
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
        dtype = self.dtype = q.element_type

        @cute.struct
        class Storage:
            q_full: cute.struct.MemRange[cutlass.Int64, SLABS]
            full: cute.struct.MemRange[cutlass.Int64, 2 * SLABS]
            free: cute.struct.MemRange[cutlass.Int64, len(Free)]
            maxima: cute.struct.MemRange[Float32, 2 * ROWS]
            sums: cute.struct.MemRange[Float32, 2 * ROWS]
            q: cute.struct.Align[cute.struct.MemRange[dtype, SLABS * SLAB * SLAB], 1024]
            kv: cute.struct.Align[cute.struct.MemRange[dtype, 2 * SLABS * SLAB * SLAB], 1024]
            weights: cute.struct.Align[cute.struct.MemRange[dtype, SLAB * SLAB], 1024]

        self.storage = Storage
        slab = cute.slice_(slab_layout(dtype, 1), (None, None, 0))
        load = cpasync.CopyBulkTensorTileG2SOp()
        load_q, load_qpe = [
            cpasync.make_tiled_tma_atom(load, as_rows(x), slab, (SLAB, SLAB)) for x in (q, qpe)
        ]
        if const_expr(self.share > 1):
            load = cpasync.CopyBulkTensorTileG2SMulticastOp()
        load_z, load_kpe = [
            cpasync.make_tiled_tma_atom(
                load, as_keys(x), slab, (SLAB, SLAB), num_multicast=self.share
            )
            for x in (z, kpe)
        ]
        store = cpasync.CopyBulkTensorTileS2GOp()
        store_o = cpasync.make_tiled_tma_atom(store, as_rows(o), slab, (SLAB, SLAB))
        items = cute.ceil_div(q.shape[1] * q.shape[2], ROWS * self.share) * o.shape[0]
        loads = (*load_q, *load_qpe, *load_z, *load_kpe)
        self.own_tokens(*loads, *store_o, lse, (key, value), scale_log2).launch(
            grid=(cutlass.min(self.blocks // self.share, items) * self.share, 1, 1),
            cluster=(self.share, 1, 1),
            block=(THREADS, 1, 1),
            stream=stream,
            min_blocks_per_mp=1,
        )

    # ---- device half -----------------------------------------------------------------------
    @cute.kernel
    def own_tokens(
        self,
        load_q: cute.CopyAtom,
        q: cute.Tensor,
        load_qpe: cute.CopyAtom,
        qpe: cute.Tensor,
        load_z: cute.CopyAtom,
        z: cute.Tensor,
        load_kpe: cute.CopyAtom,
        kpe: cute.Tensor,
        store_o: cute.CopyAtom,
        o: cute.Tensor,
        lse: cute.Tensor,
        prefix: tuple,
        scale_log2: Float32,
    ):
        """Grid (blocks)."""
        cute.arch.griddepcontrol_launch_dependents()
        self.prefix = prefix
        warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        storage = SmemAllocator().allocate(self.storage)
        if warp_index == CONSUMERS // 32:
            for load in (load_q, load_qpe, load_z, load_kpe):
                cpasync.prefetch_descriptor(load)
        self.init_barriers(storage, warp_index)

        work = (o.shape[0], lse.shape[2], z.shape[0], z.shape[2], o.shape[2] // z.shape[2])
        if warp_index >= CONSUMERS // 32:
            cute.arch.setmaxregister_decrease(PRODUCER_REGISTERS)
            q_tensors, kv_tensors = (load_q, q, load_qpe, qpe), (load_z, z, load_kpe, kpe)
            for group in range_constexpr(4):
                if warp_index == CONSUMERS // 32 + group:
                    self.produce(storage, q_tensors, kv_tensors, work, group)
        else:
            cute.arch.setmaxregister_increase(CONSUMER_REGISTERS)
            outputs = (store_o, o, lse)
            for side in range_constexpr(2):
                if warp_index // 4 == side:
                    self.consume(storage, work, scale_log2, outputs, lse, side)
        self.cluster_sync()  # neither leaves while the other may still write to it

    @cute.jit
    def load_queries(self, storage, q_loads, block, batch, parity, group: cutlass.Constexpr):
        """As in v12; once they are on their way, the warp that loads none asks for the prefix."""
        FlashMlaV12.load_queries(self, storage, q_loads, block, batch, parity, group)
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


def fetch_into_l2(x, at, count):
    """Ask for ``count`` bytes of ``x`` from ``at`` on."""
    cute.arch.inline_ptx(
        "cp.async.bulk.prefetch.L2.global [{$r0}], {$r1};",
        read_only_args=[Int64(cute.domain_offset(at, x).iterator.toint()), Int32(count)],
    )
