"""``CtKernel``: one cuTile kernel launch, bound to its tensors and tiling; runs on GPU or CPU."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import cuda.tile as ct

from mla_var3.runtime.execution import Diagnostic, Execution, Severity, block_order
from mla_var3.runtime.kernel import Kernel
from mla_var3.workloads import Cost

if TYPE_CHECKING:
    import torch

    from mla_var3.interpreter import LaunchReport, launch_report

#: Kernel parameters that are compile-time constants.
ConstInt = ct.Constant[int]
ConstBool = ct.Constant[bool]
ConstFloat = ct.Constant[float]

#: 1 / ln 2, so that exp(x) = exp2(x * INV_LOG_2).
INV_LOG_2 = 1.0 / math.log(2)


@functools.lru_cache(maxsize=256)
def _with_hints(kernel_fn: ct.kernel, hints: tuple[tuple[str, int], ...]) -> ct.kernel:
    # replace_hints gives a kernel with an empty JIT cache; without this memo each call recompiles.
    return kernel_fn.replace_hints(**dict(hints)) if hints else kernel_fn


class CtKernel(Kernel):
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

    language: ClassVar[str] = "cutile-dsl"

    def __init__(
        self,
        kernel_fn: ct.kernel,
        grid_fn: Callable[[Any], tuple[int, ...]],
        args_fn: Callable[[Any], tuple[Any, ...]],
        input_tensors: Mapping[str, torch.Tensor],
        output_tensors: Mapping[str, torch.Tensor],
        tiling: Any,
        autotune_configs: Sequence[Any],
        algorithmic_flops_bytes_fn: Callable[[Any], Cost],
        *,
        _name: str | None = None,
    ) -> None:
        self.kernel_fn = kernel_fn
        self.grid_fn = grid_fn
        self.args_fn = args_fn
        super().__init__(
            input_tensors=input_tensors,
            output_tensors=output_tensors,
            tiling=tiling,
            autotune_configs=autotune_configs,
            algorithmic_flops_bytes_fn=algorithmic_flops_bytes_fn,
            _name=_name,
        )

    @property
    def function_name(self) -> str:
        return str(self.kernel_fn._pyfunc.__name__)

    @property
    def kernel(self) -> ct.kernel:
        """The kernel with the tiling's compiler hints."""
        return _with_hints(self.kernel_fn, tuple(sorted(self.tiling.hints().items())))

    def launch_grid(self) -> tuple[int, ...]:
        return self.grid_fn(self.tiling)

    def args(self) -> tuple[Any, ...]:
        """The kernel's arguments under the current tiling."""
        return self.args_fn(self.tiling)

    def launch(self) -> None:
        import torch

        ct.launch(torch.cuda.current_stream(), self.grid(), self.kernel, self.args())

    def execute(self) -> Execution:
        from mla_var3 import interpreter

        order = block_order()
        with interpreter.using(**({} if order is None else {"order": order})) as options:
            report = interpreter.launch(self.grid(), self.kernel, self.args())
        return _execution(report, str(options.order))


#: Warnings that kernels here have to be free of, at sizes that no problem of a check has too.
REFUSED = frozenset({"narrow-index"})


def _severity(found: launch_report.Diagnostic) -> Severity:
    return "error" if found.kind in REFUSED else found.severity


def _execution(report: LaunchReport, order: str) -> Execution:
    return Execution(
        report.kernel,
        report.mma_flops,
        report.bytes_loaded,
        report.bytes_stored,
        tuple(
            Diagnostic(d.kind, _severity(d), d.file, d.line, d.message) for d in report.diagnostics
        ),
        order,
        {(kind, f"{place} ({report.kernel})"): way for (kind, place), way in report.facts.items()},
    )
