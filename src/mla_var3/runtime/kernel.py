"""Base classes ``Kernel``, one launch, and ``RuntimeObject``, a kernel or a composition of several.

Plans return them; profiling calls, times and tunes them by stage.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from mla_var3.errors import TilingError
from mla_var3.runtime import execution
from mla_var3.runtime.execution import Execution
from mla_var3.runtime.tiling import Tiling
from mla_var3.workloads import Cost

if TYPE_CHECKING:
    import torch

#: Grid limits of CUDA (CUDA Programming Guide, compute capabilities table), x then y and z.
GRID_LIMITS = (2**31 - 1, 65535, 65535)


class RuntimeObject(ABC):
    """A kernel, pipeline or set of concurrent kernels bound to its tensors.

    Calling it runs it where its tensors are: CUDA tensors are launched on the current stream, CPU
    tensors are executed as the kernels' language can.
    """

    name: str

    @abstractmethod
    def __call__(self) -> dict[str, torch.Tensor]:
        """Run once and return the output tensors by name."""

    @abstractmethod
    def stages(self) -> list[tuple[str, Kernel]]:
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


class Kernel(RuntimeObject):
    """One launch, in some language.

    Args:
        input_tensors: Tensors read, by name.
        output_tensors: Tensors written, by name.
        tiling: Tiling used until another is set.
        autotune_configs: Tilings worth timing.
        algorithmic_flops_bytes_fn: Cost of the launch for a tiling.
        _name: Stage name; the kernel function's name unless given.
    """

    #: Key of the language (see ``mla_var3.languages``).
    language: ClassVar[str]

    def __init__(
        self,
        *,
        input_tensors: Mapping[str, torch.Tensor],
        output_tensors: Mapping[str, torch.Tensor],
        tiling: Any,
        autotune_configs: Sequence[Any],
        algorithmic_flops_bytes_fn: Callable[[Any], Cost],
        _name: str | None = None,
    ) -> None:
        self.input_tensors = dict(input_tensors)
        self._output_tensors = dict(output_tensors)
        self.tiling = tiling
        self.autotune_configs = list(autotune_configs)
        self.algorithmic_flops_bytes_fn = algorithmic_flops_bytes_fn
        self.name = _name or self.function_name

    # -- what a language writes ---------------------------------------------------------------
    @property
    @abstractmethod
    def function_name(self) -> str:
        """Name of the kernel function."""

    @abstractmethod
    def launch_grid(self) -> tuple[int, ...]:
        """Blocks per axis under the current tiling; empty where a library chooses them."""

    @abstractmethod
    def launch(self) -> None:
        """Launch on the current stream; the tensors are on a GPU."""

    @abstractmethod
    def execute(self) -> Execution:
        """Run on the CPU; the tensors are there.

        Raises:
            NotExecutableError: The language cannot run this kernel without a GPU.
        """

    # -- shared by all ------------------------------------------------------------------------
    def grid(self) -> tuple[int, ...]:
        """The launch grid; TilingError when CUDA could not launch it."""
        grid = tuple(int(extent) for extent in self.launch_grid())
        for axis, (extent, limit) in enumerate(zip(grid, GRID_LIMITS, strict=False)):
            if not 1 <= extent <= limit:
                raise TilingError(
                    f"{self.name}: grid {grid} has {extent} blocks on axis {axis}, "
                    f"allowed are 1 to {limit}"
                )
        return grid

    @property
    def output_tensors(self) -> Mapping[str, torch.Tensor]:
        return self._output_tensors

    @property
    def cost(self) -> Cost:
        return self.algorithmic_flops_bytes_fn(self.tiling)

    @property
    def device(self) -> torch.device:
        """Device of the output tensors."""
        return next(iter(self._output_tensors.values())).device

    def stages(self) -> list[tuple[str, Kernel]]:
        return [(self.name, self)]

    def __call__(self) -> dict[str, torch.Tensor]:
        if self.device.type == "cuda":
            self.launch()
        elif self.device.type == "cpu":
            execution.note(self.execute())
        else:
            raise TilingError(f"{self.name}: its tensors are on {self.device}, which cannot run")
        return dict(self._output_tensors)
