"""What every runnable thing has in common, whether one kernel or a tree of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from mla_var3.runtime.plan import Cost, Tiling

if TYPE_CHECKING:
    from mla_var3.runtime.ct_kernel import CtKernel


class RuntimeObject(ABC):
    """A kernel, pipeline or set of concurrent kernels bound to its tensors.

    Calling it runs it where its tensors are: CUDA tensors are launched on the current stream,
    CPU tensors are interpreted.
    """

    name: str

    @abstractmethod
    def __call__(self) -> dict[str, torch.Tensor]:
        """Run once and return the output tensors by name."""

    @abstractmethod
    def stages(self) -> list[tuple[str, CtKernel]]:
        """All kernels in launch order with their dotted path, the root's own name left out."""

    @property
    @abstractmethod
    def output_tensors(self) -> Mapping[str, torch.Tensor]:
        """The tensors that hold the result, by name."""

    @property
    @abstractmethod
    def cost(self) -> Cost:
        """Algorithmic FLOPs and bytes of all stages together."""

    @property
    def flops(self) -> int:
        """Algorithmic FLOPs of all stages together."""
        return self.cost.flops

    @property
    def bytes(self) -> int:
        """Algorithmic DRAM bytes of all stages together."""
        return self.cost.bytes

    def tilings(self) -> dict[str, Tiling]:
        """Tiling of each stage by its path."""
        return {path: stage.tiling for path, stage in self.stages()}
