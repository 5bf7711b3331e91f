"""``CuteKernel``: one CuTe kernel launch, bound to its tensors and tiling; runs on GPU or CPU."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from mla_var3.errors import TilingError
from mla_var3.languages.cute import signature
from mla_var3.languages.cute.configuration import Configuration
from mla_var3.runtime.execution import Argued, Execution
from mla_var3.runtime.kernel import Kernel
from mla_var3.workloads import Cost

if TYPE_CHECKING:
    import torch

    from mla_var3.loader import Library


class CuteKernel(Kernel):
    """One launch of a device kernel, by the two levels of the CuTe DSL.

    The device function runs on the GPU. The host function makes layouts, copy atoms and the launch
    from its arguments; it takes the CUDA stream last, in a parameter named ``stream``.

    Args:
        kernel_fn: The device function, as ``@cute.kernel`` left it; a method as ``Class.method``.
        launch_fn: For a tiling, the host function (``@cute.jit``, or an object whose ``__call__``
            is one) and its arguments without the stream: tensors, numbers, constants. A tensor is
            compiled for its very shape unless ``signature.Dynamic`` says which axes vary.
        input_tensors: Tensors read, by name.
        output_tensors: Tensors written, by name.
        tiling: Tiling used until another is set.
        autotune_configs: Tilings worth timing.
        algorithmic_flops_bytes_fn: Cost of the launch for a tiling.
        grid_fn: Blocks per axis for a tiling, where the host function's launch can be told without
            compiling it; none by default.
        argued: Findings in a source that is not ours, which are no errors of the design.
        _name: Stage name; the device function's name unless given.
    """

    language: ClassVar[str] = "cute-dsl"

    def __init__(
        self,
        kernel_fn: Callable[..., Any],
        launch_fn: Callable[[Any], tuple[Any, tuple[Any, ...]]],
        input_tensors: Mapping[str, torch.Tensor],
        output_tensors: Mapping[str, torch.Tensor],
        tiling: Any,
        autotune_configs: Sequence[Any],
        algorithmic_flops_bytes_fn: Callable[[Any], Cost],
        *,
        grid_fn: Callable[[Any], tuple[int, ...]] | None = None,
        argued: Sequence[Argued] = (),
        _name: str | None = None,
    ) -> None:
        self.kernel_fn = kernel_fn
        self.argued = tuple(argued)
        self.launch_fn = launch_fn
        self.grid_fn = grid_fn
        self._library: Library | None = None
        self._launches: dict[Any, Callable[[], None]] = {}
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
        return str(self.kernel_fn.__name__)

    def host(self) -> tuple[Any, tuple[Any, ...]]:
        """The host function and its arguments under the current tiling."""
        return self.launch_fn(self.tiling)

    def launch_grid(self) -> tuple[int, ...]:
        return self.grid_fn(self.tiling) if self.grid_fn is not None else ()

    def use(self, library: Library) -> None:
        """Launch from an exported library from now on, without a compiler.

        Args:
            library: Made by ``languages.cute.export`` of this kernel's tilings.
        """
        self._library = library
        self._launches.clear()

    def launch(self) -> None:
        if self.tiling not in self._launches:
            self._launches[self.tiling] = self._bound()
        self._launches[self.tiling]()

    def _bound(self) -> Callable[[], None]:
        """What launches under the current tiling: from the library in use, or one made here."""
        import torch

        host, arguments = self.host()
        wanted = self.tiling.values()
        library = self._library
        if library is None:
            major, minor = torch.cuda.get_device_capability(self.device)
            one = Configuration(wanted, host, arguments)
            library = _exported_here(self.name, one, f"sm_{major}{minor}")
        for kernel in library.kernels:
            if kernel.tiling == wanted:
                return kernel.bind(*signature.runtime_values(arguments))
        for tiling, reason in library.failures:
            if tiling == wanted:
                raise TilingError(f"{self.name}: this tiling was not exported: {reason}")
        raise TilingError(f"{self.name}: {library.name} holds no such tiling: {wanted}")

    def execute(self) -> Execution:
        from mla_var3.languages.cute import emulation

        host, arguments = self.host()
        outputs = tuple(self.output_tensors.values())
        return emulation.execute(self.name, host, arguments, outputs, self.argued)


#: Libraries made by this process, by kernel, tiling and what they were compiled from: a server that
#: launches one kernel on many batches makes it once.
_MADE: dict[tuple[str, str, str], Library] = {}


def _exported_here(name: str, one: Configuration, arch: str) -> Library:
    """One tiling as a library of its own, made by the compiler of this machine."""
    from mla_var3.languages.cute.compile import HostJob, identity

    known = identity(HostJob(one.host, one.arguments, arch))
    if known is None:
        return _export(name, one, arch)
    key = (name, repr(one.tiling), known)
    if key not in _MADE:
        _MADE[key] = _export(name, one, arch)
    return _MADE[key]


def _export(name: str, one: Configuration, arch: str) -> Library:
    from mla_var3.languages.cute.export import export
    from mla_var3.loader import Library

    # The library stays loaded when its file is gone.
    with tempfile.TemporaryDirectory() as folder:
        export(name, [one], arch, Path(folder), workers=1)
        return Library(Path(folder))
