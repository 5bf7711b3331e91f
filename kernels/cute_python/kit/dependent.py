"""Kernels of a shared prefix as programmatic dependent launches (PDL), each begun early.

The own tokens come first. The prefix is a dependent launch that does not wait: a block of its own
for each piece, so that pieces go to whichever SM is free. The combine is one too: its blocks take
SMs that come free, load Wv, and only then wait. The last block of the prefix ends after the own
tokens, so that what waits for the prefix waits for both.
"""

from __future__ import annotations

from typing import Any

import cutlass.cute as cute
from cutlass import Float32, const_expr
from cutlass.utils import SmemAllocator

from mla_var3.kernel.cute_python.kit.combine import Combine
from mla_var3.kernel.cute_python.kit.head_items import GROUPS, Shape
from mla_var3.kernel.cute_python.kit.head_loads import WARPS
from mla_var3.kernel.cute_python.kit.latent_kernel import LatentKernel
from mla_var3.kernel.cute_python.kit.rope_kernel import RopeKernel


class OwnTokens(LatentKernel):
    """The kernel of flash_mla, which lets the next launch begin beside it."""

    def begin(self, outputs):
        """The next launch may begin."""
        cute.arch.griddepcontrol_launch_dependents()


class Dependent:
    """A kernel on its operands, launched so that it may begin before the launch before it ends."""

    def __init__(self, kernel: Any):
        self.kernel = kernel

    def launch(self, **options: Any) -> None:
        self.kernel.launch(use_pdl=True, **options)


class Pieces(RopeKernel):
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
