"""``LibraryKernel``: one call of a library, bound to its tensors, that runs as a kernel does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

from mla_var3.errors import NotExecutableError
from mla_var3.runtime.execution import Execution
from mla_var3.runtime.kernel import Kernel
from mla_var3.runtime.tiling import Tiling
from mla_var3.workloads import Cost

if TYPE_CHECKING:
    import torch


class LibraryKernel(Kernel):
    """One call that writes its outputs in place, or gives those that the library allocates.

    Args:
        call: The call; takes nothing, writes the output tensors or returns others in their place,
            by name, so that no copy is timed.
        function_name: What tables call it, such as ``scaled_dot_product_attention``.
        input_tensors: Tensors read, by name.
        output_tensors: Tensors written, by name; their device is where the call runs.
        cost: Work of the call.
        on_cpu: Whether the library runs on a CPU; or the context in which it does.
        _name: Stage name; ``function_name`` unless given.
    """

    language: ClassVar[str] = "library"

    def __init__(
        self,
        call: Callable[[], Mapping[str, torch.Tensor] | None],
        function_name: str,
        input_tensors: Mapping[str, torch.Tensor],
        output_tensors: Mapping[str, torch.Tensor],
        cost: Cost,
        *,
        on_cpu: bool | Callable[[], AbstractContextManager[Any]],
        _name: str | None = None,
    ) -> None:
        self._call = call
        self._function_name = function_name
        self._on_cpu = on_cpu
        super().__init__(
            input_tensors=input_tensors,
            output_tensors=output_tensors,
            tiling=Tiling(),
            autotune_configs=(),
            algorithmic_flops_bytes_fn=lambda _: cost,
            _name=_name,
        )

    @property
    def function_name(self) -> str:
        return self._function_name

    def launch_grid(self) -> tuple[int, ...]:
        return ()

    def launch(self) -> None:
        self._output_tensors.update(self._call() or {})

    def execute(self) -> Execution:
        if not self._on_cpu:
            raise NotExecutableError(f"{self.name} has no CPU path: it needs a GPU")
        with nullcontext() if self._on_cpu is True else self._on_cpu():
            self.launch()
        return Execution(self.function_name)
