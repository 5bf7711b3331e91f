"""Shared prefix v3: each launch begins on the SMs that the one before leaves.

The own tokens come first, on as many blocks as end together with the rest. The prefix is a
dependent launch that does not wait: a block of its own for each piece, so that pieces go to
whichever SM is free. The combine is one too: its blocks take SMs that come free, load Wv, and only
then wait. The last block of the prefix ends after the own tokens, so that what waits for the prefix
waits for both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import cutlass.cute as cute
from cutlass import Float32, const_expr, range_constexpr
from cutlass.utils import SmemAllocator

from mla_var3.devices import Machine
from mla_var3.kernel.cute_python.attention.hopper_attention.common import (
    GROUPS,
    ROWS,
    WARPS,
    Shape,
)
from mla_var3.kernel.cute_python.mla.flash_mla.common import KEYS
from mla_var3.kernel.cute_python.mla.flash_mla.flash_mla_v5.flash_mla_v5 import (
    CONSUMER_REGISTERS,
    CONSUMERS,
    PRODUCER_REGISTERS,
    FlashMlaV5,
    FlashMlaV5Tiling,
)
from mla_var3.kernel.cute_python.mla.mla_shared_prefix.combine import Combine
from mla_var3.kernel.cute_python.mla.mla_shared_prefix.common import (
    ITEM_STEPS,
    LN_2,
    MAX_SPLITS,
    PrefixTiling,
    SharedPrefixPlan,
)
from mla_var3.kernel.cute_python.mla.mla_shared_prefix.prefix import Prefix
from mla_var3.runtime import KernelPipeline, RuntimeObject, Tiling
from mla_var3.runtime.cute_kernel import CuteKernel
from mla_var3.workloads import Cost

if TYPE_CHECKING:
    import torch

#: What a block per piece costs beside the steps of its keys: its rings begin empty.
PIECE_STEPS = ITEM_STEPS + 1
#: Tokens that the default moves from one part to the other: a pair of flash_mla's key tiles.
PAIR = 2 * KEYS
#: About how many numbers of tokens the default weighs.
CHOICES = 64
#: Share of the tensor rate that an SM reaches in either part with one tile of rows per head. v1's
#: parts, one NVIDIA H200, 2026-11-22, CUDA events, medians of 50: 64 rows and 1024 own tokens take
#: an SM 37.0 us (0.73), 128 times 64 rows and 3072 tokens of the prefix take 68 SMs 65.7 us (0.68).
SHARE_OF_RATE = 0.7
#: Ends that differ by less count as equal; then the parts stay side by side for longer.
TIE = 1.01


@dataclass(frozen=True, kw_only=True)
class MlaSharedPrefixV3Plan(SharedPrefixPlan):
    """Launches of v3, and how they share out the SMs."""

    def resolve(self, machine: Machine) -> Self:
        resolved = super().resolve(machine)
        if self.prefix is not None:
            return resolved
        return dataclasses.replace(resolved, prefix=resolved.balanced_prefix())

    @property
    def together(self) -> bool:
        """Whether there are both parts; while ``prefix`` is open, as if."""
        return self.prefix not in (0, self.t)

    # ---- what takes how long ---------------------------------------------------------------
    def us(self, tiles: float, tokens: int, width: int) -> float:
        """Microseconds of an SM for ``tokens`` keys of ``tiles`` tiles of 64 rows.

        Args:
            tiles: How many tiles.
            tokens: Keys that each attends.
            width: Multiplications per row and key.
        """
        rate = self.target.tflops * 1e6 * SHARE_OF_RATE / self.target.sm_count
        return 2 * ROWS * tiles * tokens * width / rate

    def dram_us(self, cost: Cost) -> float:
        """Microseconds that DRAM takes for its bytes."""
        return cost.bytes / (self.target.gbps * 1e3)

    def own_us(self, tiles: float = 1) -> float:
        """Microseconds of an SM for tiles of own tokens."""
        return self.us(tiles, self.own_tokens, 2 * self.k + self.p)

    def prefix_us(self, sms: int) -> float:
        """Microseconds of ``sms`` SMs for the prefix, or of DRAM where that takes longer."""
        tiles = self.h * self.groups * self.row_tiles / max(sms, 1)
        busy = self.us(tiles, self.prefix_tokens, 2 * self.d + self.p)
        return max(busy, self.dram_us(self.prefix_part()))

    def ends(self, blocks: int) -> float:
        """When both parts have ended, in us, if the own tokens have ``blocks`` of the SMs first."""
        sms = self.target.sm_count
        own = self.own_us(-(-self.own_items // blocks))
        left = 1 - own / self.prefix_us(sms - blocks) if blocks < sms else 1
        return own + max(left, 0) * self.prefix_us(sms)

    def duration(self) -> float:
        """Microseconds up to the combine, or of DRAM for everything, whichever is more."""
        busy = self.own_us(self.own_items / self.target.sm_count)
        if self.prefix_tokens:
            busy = self.ends(self.own_blocks())
        return max(busy, self.dram_us(self._algorithmic_flops_bytes()))

    def balanced_prefix(self) -> int:
        """The default of ``prefix``: of none, all and whole pairs of tiles, what ends first."""
        shared = self.shared_tokens
        step = -(-shared // (PAIR * CHOICES)) * PAIR or PAIR
        counts = (0, *range(step, shared, step), shared)
        plans = (dataclasses.replace(self, prefix=count) for count in counts)
        return min(plans, key=type(self).duration).prefix_tokens

    # ---- tilings ---------------------------------------------------------------------------
    @property
    def own_share(self) -> int:
        """Row tiles of a sequence that share its keys."""
        return 2 if self.h * self.s > ROWS else 1

    @property
    def own_items(self) -> int:
        """Tiles of 64 rows of all sequences, in whole clusters."""
        return -(-self.h * self.s // (ROWS * self.own_share)) * self.own_share * self.b

    def own_blocks(self) -> int:
        """The fewest blocks of the own tokens with which both parts end first, but for a tie."""
        plan = dataclasses.replace(self, machine=self.target)  # looked up once
        counts = range(2, plan.target.sm_count + 1, 2)
        ends = [plan.ends(blocks) for blocks in counts]
        return next(n for n, us in zip(counts, ends, strict=True) if us <= TIE * min(ends))

    def latent_tiling(self) -> FlashMlaV5Tiling:
        if not self.together or self.prefix is None:
            return super().latent_tiling()
        return FlashMlaV5Tiling(share=self.own_share, blocks=self.own_blocks())

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        default, sms = self.latent_tiling(), self.target.sm_count
        counts = sorted({default.blocks, sms // 4 * 2, sms // 2 * 2})
        latent: list[Tiling] = [dataclasses.replace(default, blocks=n) for n in counts]
        return super()._autotune_configs() | {"latent": latent}

    def splits(self, tiling: PrefixTiling) -> int:
        """Pieces of the prefix: what ends first when free SMs take them one by one.

        List scheduling ends no later than the mean over the SMs plus one piece (Graham, Bounds on
        multiprocessing timing anomalies, SIAM J. Appl. Math. 17, 1969).
        """
        if self.prefix_splits is not None or not self.together:
            return super().splits(tiling)
        parts = GROUPS if tiling.apart else 1
        steps = -(-self.prefix_tokens // (tiling.keys * parts))
        items = self.h * self.groups * -(-self.row_tiles * parts // GROUPS)

        def duration(splits: int) -> float:
            piece = -(-steps // splits) + PIECE_STEPS
            return (items * splits / self.target.sm_count + 1) * piece

        return min(range(1, max(min(steps, MAX_SPLITS), 1) + 1), key=duration)

    # ---- kernels ---------------------------------------------------------------------------
    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        parts, combine = self.stages(*inputs)
        return KernelPipeline(_name="mla_shared_prefix_v3", stages=[*parts, combine])

    def latent(self, *inputs: torch.Tensor) -> CuteKernel:
        return self.instead_of(
            super().latent(*inputs),
            OwnTokens.flash_mla_v5,
            lambda x: OwnTokens(self.causal, x.lazy, x.splits, x.share, x.blocks),
            (self.scale / LN_2,),
        )

    def decompressed(self, *inputs: torch.Tensor) -> CuteKernel:
        return self.instead_of(
            super().decompressed(*inputs),
            Pieces.pieces,
            lambda x: Pieces(self.shape(x), x.blocks, second=self.together),
            (self.scale / LN_2,),
        )

    def combine(self, parts: Any, wv: torch.Tensor) -> CuteKernel:
        partials = parts["o_new"].shape[0] // self.b if "o_new" in parts else 0
        # As many blocks per head as run at once: another wave would load Wv once more.
        blocks = max(self.target.sm_count // self.h, 1) * self.h
        return self.instead_of(
            super().combine(parts, wv),
            EarlyCombine.early_combine,
            lambda _: EarlyCombine(self.tile_s, "o_old" in parts, partials, blocks),
            (),
        )

    def instead_of(
        self,
        plain: CuteKernel,
        kernel_fn: Callable[..., Any],
        host_fn: Callable[[Any], Any],
        numbers: tuple[float, ...],
    ) -> CuteKernel:
        """Another kernel on the tensors of ``plain``; arguments as those of ``bind``."""
        inputs, outputs, cost = plain.input_tensors, plain.output_tensors, plain.cost
        return self.bind(kernel_fn, host_fn, inputs, outputs, numbers, cost, plain.name)


class OwnTokens(FlashMlaV5):
    """flash_mla v5, which lets the next launch begin beside it."""

    @cute.kernel
    def flash_mla_v5(
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
        scale_log2: Float32,
    ):
        """Grid (blocks)."""
        cute.arch.griddepcontrol_launch_dependents()
        warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        storage = SmemAllocator().allocate(self.storage)
        self.init_barriers(storage, warp_index)

        work = (o.shape[0], lse.shape[2], z.shape[0], z.shape[2], o.shape[2] // z.shape[2])
        if warp_index >= CONSUMERS // 32:
            cute.arch.setmaxregister_decrease(PRODUCER_REGISTERS)
            q_tensors, kv_tensors = (load_q, q, load_qpe, qpe), (load_z, z, load_kpe, kpe)
            for group in range_constexpr(4):
                if warp_index == CONSUMERS // 32 + group:
                    self.produce(storage, q_tensors, kv_tensors, work, group)
            if const_expr(self.splits > 1):
                self.cluster_sync()  # the two of merge
                self.cluster_sync()
        else:
            cute.arch.setmaxregister_increase(CONSUMER_REGISTERS)
            outputs = (store_o, o, lse)
            for side in range_constexpr(2):
                if warp_index // 4 == side:
                    self.consume(storage, work, scale_log2, outputs, side)
        self.cluster_sync()  # neither leaves while the other may still write to it


class Dependent:
    """A kernel on its operands, launched so that it may begin before the launch before it ends."""

    def __init__(self, kernel: Any):
        self.kernel = kernel

    def launch(self, **options: Any) -> None:
        self.kernel.launch(use_pdl=True, **options)


class Pieces(Prefix):
    """The prefix, beside the own tokens where it is ``second``: it needs nothing of theirs."""

    def __init__(self, shape: Shape, blocks: int | None, *, second: bool):
        super().__init__(shape, blocks)
        self.second = second

    def device(self):
        return self.beside if self.second else self.pieces

    def beside(self, *operands):
        return Dependent(self.pieces(*operands))

    @cute.kernel
    def pieces(
        self,
        q_loads: tuple,
        k_loads: tuple,
        v_load: tuple,
        o_store: tuple,
        lse: cute.Tensor,
        scale_log2: Float32,
    ):
        """Grid (blocks)."""
        cute.arch.griddepcontrol_launch_dependents()  # the combine, once all blocks have begun
        self.run(q_loads, k_loads, v_load, o_store, lse, scale_log2)
        if const_expr(self.second):
            self.outlast()

    @cute.jit
    def outlast(self):
        """The last block waits for the own tokens: the end of this launch is that of both."""
        if cute.arch.block_idx()[0] == cute.arch.grid_dim()[0] - 1:
            cute.arch.griddepcontrol_wait()


class EarlyCombine(Combine):
    """The combine as a dependent launch: Wv is on its way before the parts have ended."""

    def combine(self, *operands):
        return Dependent(self.early_combine(*operands))

    @cute.kernel
    def early_combine(
        self, own_load: tuple, prefix_load: tuple, wv_load: tuple, o_store: tuple, sums: tuple
    ):
        """Grid (heads, blocks of a head)."""
        warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        storage = SmemAllocator().allocate(self.storage)
        self.init_barriers(storage, warp_index)
        if warp_index == WARPS + GROUPS:
            if const_expr(self.own):
                self.load_wv(storage, wv_load)
        else:
            cute.arch.griddepcontrol_wait()  # all parts have ended, and what they wrote is visible
            if warp_index >= WARPS:
                self.produce(storage, own_load, prefix_load, o_store[1], warp_index - WARPS)
            else:
                self.consume(storage, o_store, sums, warp_index // 4)
