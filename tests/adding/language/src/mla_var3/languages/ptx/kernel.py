"""One launch of a PTX text, bound to its tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from mla_var3.errors import NotExecutableError
from mla_var3.runtime.execution import Diagnostic, Execution
from mla_var3.runtime.kernel import Kernel
from mla_var3.runtime.tiling import Tiling
from mla_var3.workloads import Cost

if TYPE_CHECKING:
    import torch

#: Threads per block.
BLOCK = 128


class PtxKernel(Kernel):
    """A kernel whose parameters are its tensors, then integers.

    Args:
        text: The PTX; its one entry has the stage's name.
        scalars: What follows the tensors among the parameters.
        threads: How many threads are launched, in blocks of ``BLOCK``.
        input_tensors: Tensors read, by name, in the order of the parameters.
        output_tensors: Tensors written, likewise; they come after those read.
        cost_fn: Work of the launch.
        _name: Name of the entry and of the stage.
    """

    language: ClassVar[str] = "ptx"

    def __init__(
        self,
        text: str,
        scalars: Sequence[int],
        threads: int,
        *,
        input_tensors: Mapping[str, torch.Tensor],
        output_tensors: Mapping[str, torch.Tensor],
        cost_fn: Callable[[Any], Cost],
        _name: str,
    ) -> None:
        self.text, self.scalars, self.threads = text, tuple(scalars), threads
        super().__init__(
            input_tensors=input_tensors,
            output_tensors=output_tensors,
            tiling=Tiling(),
            autotune_configs=[Tiling()],
            algorithmic_flops_bytes_fn=cost_fn,
            _name=_name,
        )

    @property
    def function_name(self) -> str:
        return self.name

    def launch_grid(self) -> tuple[int, ...]:
        return (-(-self.threads // BLOCK),)

    def launch(self) -> None:
        raise NotExecutableError(f"{self.name}: nothing launches PTX on a GPU here")

    def execute(self) -> Execution:
        import torch

        from mla_var3.emulator import launch

        tensors = [*self.input_tensors.values(), *self._output_tensors.values()]
        arrays = [tensor.view(torch.int16).numpy() for tensor in tensors]
        ran = launch(self.text, [*arrays, *self.scalars], self.grid(), BLOCK)
        found = (
            Diagnostic(d.kind, "error", d.at.file or "ptx", d.at.line or d.at.pc, d.message)
            for d in ran.diagnostics
        )
        return Execution(self.name, diagnostics=tuple(found))
