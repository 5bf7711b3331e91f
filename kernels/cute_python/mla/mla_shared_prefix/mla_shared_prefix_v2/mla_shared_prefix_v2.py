"""Shared prefix v2: own tokens and prefix in one launch, on blocks of their own.

The first blocks stay with the own tokens, and each of the others takes one piece of the prefix. The
hardware was seen to hand out blocks in order (CUDA does not promise it), so both kinds begin
together, and pieces that are left go to whichever SM comes free: a queue that costs nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import cuda.bindings.driver as cuda
import cutlass.cute as cute
from cutlass import Float32, range_constexpr
from cutlass.utils import SmemAllocator

from mla_var3.errors import TilingError
from mla_var3.kernel.cute_python.kit.handovers import CONSUMERS
from mla_var3.kernel.cute_python.kit.head_tiles import ROWS
from mla_var3.kernel.cute_python.kit.latent_kernel import LatentKernel
from mla_var3.kernel.cute_python.kit.latent_tiling import MAX_LAZY, PairTiling
from mla_var3.kernel.cute_python.kit.prefix_plan import (
    LN_2,
    PrefixTiling,
    SharedPrefixPlan,
)
from mla_var3.kernel.cute_python.kit.rope_kernel import RopeKernel
from mla_var3.kernel.cute_python.kit.schedule import ClusterSchedule
from mla_var3.kernel.cute_python.kit.warpgroups import (
    CONSUMER_REGISTERS,
    PRODUCER_REGISTERS,
    THREADS,
)
from mla_var3.runtime import KernelPipeline, KernelPlan, RuntimeObject, Tiling
from mla_var3.runtime.cute_kernel import require_multiple
from mla_var3.workloads import option

if TYPE_CHECKING:
    import torch

STAGE = "attention"
WARPS = CONSUMERS // 32


@dataclass(frozen=True, kw_only=True)
class PartsTiling(PrefixTiling):
    """The prefix's steps, and the blocks of the own tokens."""

    own_blocks: int = option(64, "persistent CTAs of the own tokens", minimum=2)
    lazy: float = option(0.0, "log2 by which a row's maximum may lag behind; 0 is exact", minimum=0)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_multiple(2, own_blocks=self.own_blocks)
        if self.lazy > MAX_LAZY:
            raise TilingError(f"lazy={self.lazy} exceeds {MAX_LAZY}: fp16 weights would overflow")


@dataclass(frozen=True, kw_only=True)
class Plan(SharedPrefixPlan):
    """Launches of v2."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {
        STAGE: PartsTiling,
        **SharedPrefixPlan.tiling_types,
    }

    def default_tiling(self, stage: str) -> Tiling:
        if stage != STAGE:
            return super().default_tiling(stage)
        few = self.row_tiles == 1
        steps = {"keys": 64, "stages": 4} if few else {"keys": 112, "stages": 2}
        return PartsTiling(**steps, apart=few, own_blocks=self.own_blocks())

    def own_blocks(self) -> int:
        """One per tile of rows, or as many as there are SMs."""
        tiles = -(-self.h * self.s // ROWS) * self.b
        return max(min(tiles, self.target.sm_count) // 2 * 2, 2)

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        default = self.default_tiling(STAGE)
        sms = self.target.sm_count
        shares = sorted({default.own_blocks, sms // 4 * 2, sms // 3 * 2})
        return {
            **super()._autotune_configs(),
            STAGE: [dataclasses.replace(default, own_blocks=blocks) for blocks in shares],
        }

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        if not (self.own_tokens and self.prefix_tokens):
            parts, combine = self.stages(*inputs)
            return KernelPipeline(_name="mla_shared_prefix", stages=[*parts, combine])
        both = self.both(*inputs)
        merged = self.combine(both.output_tensors, inputs[-1])
        return KernelPipeline(_name="mla_shared_prefix", stages=[both, merged])

    def both(self, *inputs: torch.Tensor) -> RuntimeObject:
        """Own tokens and prefix."""
        q, q_latent, qpe, z, kpe, key, value, prefix_pe, _ = inputs
        return self.bind(
            BothParts.attention,
            lambda x: BothParts(
                Own(self.causal, x.lazy, x.own_blocks), OtherBlocks(self.shape(x), x.own_blocks)
            ),
            {
                "q": q, "q_latent": q_latent, "qpe": qpe, "z": z, "kpe": kpe,
                "key": key, "value": value, "prefix_pe": prefix_pe,
            },
            {**self.own_outputs(q), **self.prefix_outputs(q, self.tiling(STAGE))},
            (self.scale / LN_2,),
            self.own_part() + self.prefix_part(),
            STAGE,
        )  # fmt: skip


class OwnBlocks(ClusterSchedule):
    """Items of the own tokens, on the first blocks of a grid."""

    def items(self, work):
        """First item of this block, one past the last, and the step."""
        rows, _, _, sequences, _ = work
        first = cute.arch.block_idx()[0]
        return first, cute.ceil_div(rows, ROWS) * sequences, self.blocks


class Own(LatentKernel):
    """The kernel of flash_mla on the first blocks of a grid."""

    schedule_type = OwnBlocks

    def __init__(self, causal: bool, lazy: float, blocks: int):
        super().__init__(causal, PairTiling(lazy=lazy, blocks=blocks))
        self.blocks = blocks

    @cute.jit
    def load(self, storage, operands, warp_index):
        """A warp for each half of a tile."""
        q_loads, kv_loads, _ = operands
        for group in range_constexpr(4):
            if warp_index == group:
                self.produce(storage, q_loads, kv_loads, self.work(operands), group)

    @cute.jit
    def compute(self, storage, operands, scale_log2, number):
        """A warpgroup for each half of the output."""
        for side in range_constexpr(2):
            if number == side:
                self.consume(storage, self.work(operands), scale_log2, operands[2], (), side)

    def work(self, operands):
        """Rows, queries, keys, sequences, and parts of each."""
        _, kv_loads, outputs = operands
        return self.schedule.work(None, kv_loads[1], *outputs[1:])


class OtherBlocks(RopeKernel):
    """The prefix on the blocks after those of the own tokens."""

    def __init__(self, shape, own_blocks: int):
        super().__init__(shape)
        self.own_blocks = own_blocks

    def walk(self):
        return (
            cute.arch.block_idx()[0] - self.own_blocks,
            cute.arch.grid_dim()[0] - self.own_blocks,
        )


class BothParts:
    """Host and device half of the launch."""

    def __init__(self, own: Own, prefix: OtherBlocks):
        self.own = own
        self.prefix = prefix

    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        q_latent: cute.Tensor,
        qpe: cute.Tensor,
        z: cute.Tensor,
        kpe: cute.Tensor,
        key: cute.Tensor,
        value: cute.Tensor,
        prefix_pe: cute.Tensor,
        o_old: cute.Tensor,
        lse_old: cute.Tensor,
        o_new: cute.Tensor,
        lse_new: cute.Tensor,
        scale_log2: Float32,
        stream: cuda.CUstream,
    ):
        """Launch; shapes as those of the parts' own host halves."""
        own = self.own.prepare(q_latent, qpe, z, kpe, o_old, lse_old)
        prefix = self.prefix.prepare(
            *self.prefix.views(q, qpe, key, value, prefix_pe, o_new, lse_new)
        )
        count = self.prefix.items(self.prefix.work(prefix[3][1], prefix[2][1]))[1]
        self.attention(own, prefix, scale_log2).launch(
            grid=(self.own.blocks + count, 1, 1),
            cluster=(1, 1, 1),
            block=(THREADS, 1, 1),
            stream=stream,
            min_blocks_per_mp=1,
        )

    @cute.kernel
    def attention(self, own: tuple, prefix: tuple, scale_log2: Float32):
        """Grid (blocks of the own tokens, then one per piece of the prefix)."""
        warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        is_own = cute.arch.block_idx()[0] < self.own.blocks
        sizes = [part.storage.size_in_bytes() for part in (self.own, self.prefix)]
        memory = SmemAllocator().allocate(max(sizes), 1024)
        own_storage, prefix_storage = self.own.storage(memory), self.prefix.storage(memory)
        if is_own:
            self.own.init_barriers(own_storage, warp_index)
        else:
            self.prefix.init_barriers(prefix_storage, warp_index)
        if warp_index >= WARPS:
            cute.arch.setmaxregister_decrease(PRODUCER_REGISTERS)
            if is_own:
                self.own.load(own_storage, own, warp_index - WARPS)
            else:
                self.prefix.load(prefix_storage, prefix, warp_index - WARPS)
        else:
            cute.arch.setmaxregister_increase(CONSUMER_REGISTERS)
            if is_own:
                self.own.compute(own_storage, own, scale_log2, warp_index // 4)
            else:
                self.prefix.consume(prefix_storage, prefix, scale_log2, warp_index // 4)
