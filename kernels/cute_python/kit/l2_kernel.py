"""Latent attention kernels whose split-KV partials merge through L2; clusters share keys."""

from __future__ import annotations

import cuda.bindings.driver as cuda
import cutlass.cute as cute
from cutlass import Float32

from mla_var3.kernel.cute_python.kit.epilogue import L2Epilogue
from mla_var3.kernel.cute_python.kit.latent_kernel import LatentKernel
from mla_var3.kernel.cute_python.kit.piece_epilogue import L2PieceEpilogue
from mla_var3.kernel.cute_python.kit.queries import SlabQueries
from mla_var3.kernel.cute_python.kit.schedule import Schedule


class L2Kernel(LatentKernel):
    """Whole halves go through L2."""

    schedule_type = Schedule
    epilogue_type = L2Epilogue

    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        qpe: cute.Tensor,
        z: cute.Tensor,
        kpe: cute.Tensor,
        exchange: cute.Tensor,
        signals: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        scale_log2: Float32,
        stream: cuda.CUstream,
    ):
        """Launch on q [b,h,s,512], qpe [b,h,s,64], z [b,t,512], kpe [b,t,64]; see ``l2``."""
        self.launch(q, qpe, z, kpe, (exchange, signals), o, lse, scale_log2, stream)


class L2PieceKernel(L2Kernel):
    """Pieces go through L2, relayed by producer warps, and queries come slab by slab."""

    epilogue_type = L2PieceEpilogue
    queries = SlabQueries()
    prefetch = True
    relaxed = True
