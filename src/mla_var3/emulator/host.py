"""Runs the CuTe DSL's compiled host functions on the CPU and emulates the kernels they launch.

``emulate`` is the context for this: inside it the DSL's engines, tensors and questions about the
device are replaced, so nothing is preloaded and no C compiler is needed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from unittest import mock

from mla_var3.cache import Cache
from mla_var3.emulator import exported, ffi, kept
from mla_var3.emulator.children import Children
from mla_var3.emulator.dlpack import on_gpu
from mla_var3.emulator.emulation import Emulation, active, emulating
from mla_var3.emulator.host_engines import engine_of, registered
from mla_var3.emulator.options import Options
from mla_var3.errors import EmulatorError, ToolchainError

PINNED = "4.8.1"
#: Releases that run too, whose compiled functions are not kept on disk.
OLDER = ("4.7.0",)
#: What the environment calls the DSL, and its experimental front.
DSLS = ("CUTE_DSL", "CUTE_EXPERIMENTAL_DSL")


def require_dsl() -> None:
    """Make sure that the pinned CuTe DSL is here.

    Raises:
        ToolchainError: It is missing, of another version, or has changed what is used of it.
    """
    try:
        found = version("nvidia-cutlass-dsl")
    except PackageNotFoundError:
        raise ToolchainError(
            f"the CuTe DSL is not installed; run: pip install nvidia-cutlass-dsl=={PINNED}"
        ) from None
    if found not in (PINNED, *OLDER):
        raise ToolchainError(f"the emulator knows the CuTe DSL {PINNED}, and {found} is installed")
    from cutlass._mlir.execution_engine import ExecutionEngine
    from cutlass.cute import runtime
    from cutlass.cutlass_dsl import cuda_jit_executor

    wanted = [
        (ExecutionEngine, "raw_register_runtime"),
        (runtime, "_Tensor"),
        (cuda_jit_executor.CudaDialectJitCompiledFunction, "num_devices"),
    ]
    for owner, name in wanted:
        if not hasattr(owner, name):
            raise ToolchainError(
                f"the CuTe DSL {found} has no {name} any more; the emulator needs it"
            )


@contextlib.contextmanager
def emulate(
    options: Options | None = None, arch: str | None = None, others: Sequence[Options] = ()
) -> Iterator[Emulation]:
    """Compile and run CuTe DSL functions on CPU tensors inside this block.

    Args:
        options: How to run.
        arch: What to compile for, such as ``sm_90a``; by default what CUTE_DSL_ARCH says, else
            sm_90a.
        others: Further schedules or memory models under which each launch is run first, on memory
            that is put back; nothing is compiled again for them.

    Yields:
        The findings, counts and texts of every launch.

    Raises:
        ToolchainError: The pinned CuTe DSL is not here.
        EmulatorError: A launch is not possible, or a kernel meets what is not emulated.
    """
    require_dsl()
    with contextlib.ExitStack() as stack:
        emulation = stack.enter_context(emulating(options, others))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="emulator-")))
        emulation.children = Children(folder)
        stack.callback(emulation.children.close)
        _patched(stack, emulation, emulation.children, arch)
        yield emulation


def _patched(
    stack: contextlib.ExitStack, emulation: Emulation, children: Children, arch: str | None
) -> None:
    """Everything of the DSL that is replaced inside the block."""
    from cutlass._mlir.execution_engine import ExecutionEngine
    from cutlass.cute import runtime
    from cutlass.cutlass_dsl import CuTeDSL, CuteExperimentalDSL, cuda_jit_executor
    from cutlass.utils.hardware_info import HardwareInfo

    arch = arch or os.environ.get("CUTE_DSL_ARCH", "sm_90a")
    emulation.device = emulation.device_of(arch)
    settings: dict[str, Any] = {
        "arch": arch,
        "keep_ptx": True,
        "lineinfo": True,
        "no_cache": True,  # So it is where PTX is kept; but there the DSL warns of it.
        "dump_dir": str(children.folder),
    }
    names = {"ARCH": arch, "KEEP": "ptx", "LINEINFO": "1", "DUMP_DIR": str(children.folder)}
    variables = {f"{dsl}_{name}": value for dsl in DSLS for name, value in names.items()}
    stack.enter_context(mock.patch.dict(os.environ, variables))
    for dsl in (CuTeDSL, CuteExperimentalDSL):
        settings_of = dsl._get_dsl().envar
        for name, setting in settings.items():
            stack.enter_context(mock.patch.object(settings_of, name, setting))
    function = cuda_jit_executor.CudaDialectJitCompiledFunction
    stack.enter_context(mock.patch.object(function, "num_devices", property(lambda _: 1)))
    stack.enter_context(
        mock.patch.object(function, "_load_cuda_library", _loader(function._load_cuda_library))
    )
    stack.enter_context(
        mock.patch.object(ExecutionEngine, "__init__", _engine(ExecutionEngine.__init__, children))
    )
    tensor = runtime._Tensor
    stack.enter_context(mock.patch.object(tensor, "__init__", _tensor(tensor.__init__, emulation)))
    if ffi.installed():
        again = exported.replacements(functools.partial(_engine_again, children), emulation.own)
        for owner, name, value in (*ffi.replacements(emulation.own), *again):
            stack.enter_context(mock.patch.object(owner, name, value))
    if version("nvidia-cutlass-dsl") == PINNED:
        for owner, name, value in kept.replacements(emulation, Cache(), children):
            stack.enter_context(mock.patch.object(owner, name, value))
    for name, method in _hardware(emulation).items():
        if name in HardwareInfo.__dict__:
            stack.enter_context(mock.patch.object(HardwareInfo, name, method))


def _in_child() -> None:
    """A forked process has the DSL leave PTX in its own folder."""
    emulation = active()
    if emulation is None or emulation.children is None or emulation.launching:
        return  # Processes of a launch compile nothing.
    from cutlass.cutlass_dsl import CuTeDSL, CuteExperimentalDSL

    folder = str(emulation.children.folder)
    for name, dsl in zip(DSLS, (CuTeDSL, CuteExperimentalDSL), strict=True):
        dsl._get_dsl().envar.dump_dir = os.environ[f"{name}_DUMP_DIR"] = folder


os.register_at_fork(after_in_child=_in_child)


def _newest(folder: Path) -> str:
    """The PTX that was just compiled: the DSL writes it right before it makes the engine.

    A function may be compiled with a folder of its own for what is dumped.
    """
    from cutlass.cutlass_dsl import CuTeDSL, CuteExperimentalDSL

    told = (dsl._get_dsl().compile_options.full_ptx_path for dsl in (CuTeDSL, CuteExperimentalDSL))
    texts = {*folder.glob("*.ptx"), *(Path(path) for path in told if path)}
    there = sorted((p for p in texts if p.is_file()), key=lambda p: p.stat().st_mtime_ns)
    return there[-1].read_text(encoding="utf-8") if there else ""


def _engine(original: Callable[..., None], children: Children) -> Callable[..., None]:
    def init(self: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        kwargs["shared_libs"] = []
        original(self, module, *args, **kwargs)
        self.emulator_runtime = registered(self, _newest(children.folder))

    return init


def _engine_again(children: Children, module: str, text: str) -> Any:
    """A JIT engine of host code that was compiled before, with the PTX of its kernels."""
    folder = children.folder
    (folder / f"again-{len(list(folder.iterdir()))}.ptx").write_text(text, encoding="utf-8")
    return engine_of(module)


def _loader(original: Callable[..., Any]) -> Callable[..., Any]:
    def load(self: Any) -> Any:
        if not hasattr(self.engine, "emulator_runtime"):
            raise EmulatorError(
                "this function was compiled outside of emulate(); call cute.compile inside "
                "the block"
            )
        return original(self)

    return load


def _tensor(original: Callable[..., None], emulation: Emulation) -> Callable[..., None]:
    """Tensors on the CPU say that they are on a GPU, and their memory becomes known."""

    def init(self: Any, tensor: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("enable_tvm_ffi"):
            original(self, ffi.gpu_view(tensor, emulation.own), *args, **kwargs)
            return
        original(self, tensor, *args, **kwargs)
        if hasattr(tensor, "untyped_storage"):
            emulation.own(tensor)
        on_gpu(self._dlpack_data)

    return init


def _hardware(emulation: Emulation) -> dict[str, Callable[..., Any]]:
    """What the DSL asks of the device."""

    def count(_: Any) -> int:
        return emulation.count_asked()

    def clusters(_: Any, cluster_size: int, stream: Any = None) -> int:
        return max(1, count(None) // cluster_size)

    return {
        "__init__": lambda self, device_id=0: None,
        "get_max_active_clusters": clusters,
        "get_device_multiprocessor_count": count,
        "get_l2_cache_size_in_bytes": lambda self: 50 << 20,
    }
