"""Blackwell MLA v2: latents in e4m3 with rotary parts in bf16, and products in fp8.

As v1, with slabs of 128 latents (``kit/pair_fp8.py``). A token takes 640 bytes of the cache, where
it took 1152.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.pair_fp8 import Fp8PairKernel
from mla_var3.kernel.cute_python.kit.tensor_fp8_plan import TensorFp8Plan


class Kernel(Fp8PairKernel):
    """Scores of a tile ahead of its values."""


@dataclass(frozen=True, kw_only=True)
class Plan(TensorFp8Plan):
    """Problem and launches."""

    tensor_kernel = Kernel
