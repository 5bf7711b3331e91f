"""One cuTile kernel bound to its tensors and tiling."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cuda.tile as ct
import torch

from mla_var3.errors import TilingError
from mla_var3.runtime.kernel import RuntimeObject
from mla_var3.runtime.plan import Cost, Tiling

#: Kernel parameters that are compile-time constants.
ConstInt = ct.Constant[int]
ConstBool = ct.Constant[bool]
ConstFloat = ct.Constant[float]

#: 1 / ln 2, so that exp(x) = exp2(x * INV_LOG_2).
INV_LOG_2 = 1.0 / math.log(2)

#: Grid limits of CUDA (CUDA Programming Guide, compute capabilities table), x then y and z.
GRID_LIMITS = (2**31 - 1, 65535, 65535)


@functools.lru_cache(maxsize=256)
def _with_hints(kernel_fn: ct.kernel, hints: tuple[tuple[str, int], ...]) -> ct.kernel:
    # replace_hints gives a kernel with an empty JIT cache; without this memo each call recompiles.
    return kernel_fn.replace_hints(**dict(hints)) if hints else kernel_fn


class CtKernel(RuntimeObject):
    """One launch of a ``@ct.kernel`` function.

    Args:
        kernel_fn: The kernel, as ``@ct.kernel`` left it.
        grid_fn: Grid for a tiling.
        args_fn: Kernel arguments for a tiling (tensors, scalars, constants).
        input_tensors: Tensors read, by name.
        output_tensors: Tensors written, by name.
        tiling: Tiling used until another is set.
        autotune_configs: Tilings worth timing.
        algorithmic_flops_bytes_fn: Cost of the launch for a tiling.
        _name: Stage name; the kernel function's name unless given.
    """

    def __init__(
        self,
        kernel_fn: ct.kernel,
        grid_fn: Callable[[Any], tuple[int, ...]],
        args_fn: Callable[[Any], tuple[Any, ...]],
        input_tensors: Mapping[str, torch.Tensor],
        output_tensors: Mapping[str, torch.Tensor],
        tiling: Tiling,
        autotune_configs: Sequence[Tiling],
        algorithmic_flops_bytes_fn: Callable[[Any], Cost],
        *,
        _name: str | None = None,
    ) -> None:
        self.kernel_fn = kernel_fn
        self.grid_fn = grid_fn
        self.args_fn = args_fn
        self.input_tensors = dict(input_tensors)
        self._output_tensors = dict(output_tensors)
        self.tiling = tiling
        self.autotune_configs = list(autotune_configs)
        self.algorithmic_flops_bytes_fn = algorithmic_flops_bytes_fn
        self.name = _name or self.function_name

    @property
    def function_name(self) -> str:
        """Name of the kernel function."""
        return str(self.kernel_fn._pyfunc.__name__)

    @property
    def kernel(self) -> ct.kernel:
        """The kernel with the tiling's compiler hints."""
        return _with_hints(self.kernel_fn, tuple(sorted(self.tiling.hints().items())))

    def grid(self) -> tuple[int, ...]:
        """The launch grid; TilingError when CUDA could not launch it."""
        grid = tuple(int(g) for g in self.grid_fn(self.tiling))
        for axis, (extent, limit) in enumerate(zip(grid, GRID_LIMITS, strict=False)):
            if not 1 <= extent <= limit:
                raise TilingError(
                    f"{self.name}: grid {grid} has {extent} blocks on axis {axis}, "
                    f"allowed are 1 to {limit}"
                )
        return grid

    def args(self) -> tuple[Any, ...]:
        """The kernel's arguments under the current tiling."""
        return self.args_fn(self.tiling)

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

    def stages(self) -> list[tuple[str, CtKernel]]:
        return [(self.name, self)]

    def __call__(self) -> dict[str, torch.Tensor]:
        if self.device.type == "cuda":
            ct.launch(torch.cuda.current_stream(), self.grid(), self.kernel, self.args())
        elif self.device.type == "cpu":
            from mla_var3 import interpreter

            interpreter.launch(self.grid(), self.kernel, self.args())
        else:
            raise TilingError(f"{self.name}: its tensors are on {self.device}, which cannot run")
        return dict(self._output_tensors)
