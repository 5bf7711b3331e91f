"""Runs the CuTe DSL's compiled host functions on the CPU and emulates the kernels they launch.

``emulate`` is the context for this. The host object needs ten runtime symbols; callbacks for them
are registered in the DSL's JIT engine, so nothing is preloaded and no C compiler is needed.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import os
import re
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol
from unittest import mock

from mla_var3.cache import Cache
from mla_var3.emulator import exported, ffi, kept
from mla_var3.emulator.children import Children, Told
from mla_var3.emulator.count import Counts
from mla_var3.emulator.diagnostics import Diagnostic
from mla_var3.emulator.dlpack import on_gpu
from mla_var3.emulator.launcher import Dim3, Launch
from mla_var3.emulator.options import Options
from mla_var3.emulator.program import Program
from mla_var3.emulator.regions import Region
from mla_var3.emulator.units.tensormap import encoded
from mla_var3.emulator.ways import Asked, Repeats
from mla_var3.errors import EmulatorError, ToolchainError
from mla_var3.gpuless import streams
from mla_var3.gpuless.device import Device, capability
from mla_var3.gpuless.ptx import parse
from mla_var3.gpuless.scripts import Ended

PINNED = "4.8.1"
#: Releases that run too, whose compiled functions are not kept on disk.
OLDER = ("4.7.0",)
POINTER, INT, UINT = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint
#: Runtime symbols of the DSL's host objects, and their argument types.
SYMBOLS: dict[str, tuple[Any, ...]] = {
    "_cudaLibraryLoadData": (POINTER, POINTER, POINTER, POINTER, UINT, POINTER, POINTER, UINT),
    "_cudaLibraryGetKernel": (POINTER, POINTER, ctypes.c_char_p),
    "_cudaGetDevice": (POINTER,),
    "_cudaDeviceGetAttribute": (POINTER, INT, INT),
    "_cuKernelGetAttribute": (POINTER, INT, POINTER, INT),
    "_cudaFuncSetAttribute": (POINTER, INT, INT),
    "_cudaKernelSetAttributeForDevice": (POINTER, INT, INT, INT),
    "_cudaLaunchKernelEx": (POINTER, POINTER, POINTER),
    "_cuTensorMapEncodeTiled": (POINTER, UINT, UINT, *(POINTER,) * 5, INT, INT, INT, INT),
    "cuda_dialect_assert_success": (INT,),
}
#: cudaLaunchConfig_t: grid, block, shared bytes, stream, attributes, their number.
CONFIG = struct.Struct("<6IQQQI4x")
ATTRIBUTE_BYTES, CLUSTER_DIMENSION, STREAM_SERIALIZATION = 72, 4, 6
FAILED = 999
#: The host function in a compiled module, by the name that an engine finds it under.
#: Kernels that are kept lowered, for emulations that launch them again.
PROGRAMS = 8
#: What the environment calls the DSL, and its experimental front.
DSLS = ("CUTE_DSL", "CUTE_EXPERIMENTAL_DSL")
_ENTRY = re.compile(r"llvm\.func @(_mlir_ciface_\w+)\(")


class Call(Protocol):
    """A launch that a runtime asks for: its shape, and its arguments as bytes."""

    @property
    def kernel(self) -> str: ...
    @property
    def grid(self) -> Dim3: ...
    @property
    def block(self) -> Dim3: ...
    @property
    def cluster(self) -> Dim3: ...
    @property
    def shared(self) -> int: ...
    @property
    def overlaps(self) -> bool: ...
    @property
    def compiled(self) -> bool: ...
    def argument(self, i: int, size: int, /) -> bytes: ...


class Emulation:
    """What the launches inside an ``emulate`` block gave.

    Attributes:
        options: How kernels are run; may be changed between launches.
        others: Further ways in which each launch is run first, on memory that is put back.
        where_quick: Ways for launches that synchronize and are soon done.
        launches: One entry per launch and way, in order; that of ``options`` is the last.
        children: What was launched by processes that the program started.
        device: The GPU that host functions see.
        ended: How a script ended which ran in it.
    """

    def __init__(self, options: Options, others: Sequence[Options] = ()) -> None:
        self.options, self.others = options, tuple(others)
        self.where_quick: tuple[Options, ...] = ()
        self.launches: list[Launch] = []
        self.children: Children | None = None
        self.launching = False
        self.repeats = Repeats()
        self.device = self.device_of("sm_90a")
        #: Whether the host asked how many multiprocessors there are: then a grid may be as large
        #: as those of the emulated device hold.
        self.counted = False
        self.failure: BaseException | None = None
        self.ended = Ended()
        self.programs: dict[tuple[str, str], Program] = {}
        #: Bytes of shared memory that the launches of a program ask for.
        self.asked: dict[tuple[str, str], int] = {}
        self.memory: dict[int, tuple[int, str, Any, bool]] = {}
        #: Applied to a PTX text before it is run; for experiments.
        self.patch: Callable[[str], str] | None = None

    def device_of(self, arch: str) -> Device:
        """The GPU that programs see."""
        count = self.options.multiprocessors
        return Device(capability(arch), count, counted=self.count_asked)

    def count_asked(self) -> int:
        """How many multiprocessors the emulated device says it has, to a host that asks."""
        self.counted = True
        return self.options.multiprocessors

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """Findings of all launches, those of the program's other processes among them."""
        here = [d for launch in self.launches for d in launch.diagnostics]
        return here + [d for told in self.elsewhere for d in told.diagnostics]

    @property
    def elsewhere(self) -> list[Told]:
        """What launches of the program's other processes came to."""
        return self.children.heard() if self.children else []

    def refusal(self) -> BaseException | None:
        """Why a launch was not run, here or in another process; told once."""
        failure, self.failure = self.failure, None
        if failure is None and self.children and not self.children.reported:
            said = self.children.refusal()
            failure, self.children.reported = EmulatorError(said) if said else None, bool(said)
        return failure

    @property
    def counts(self) -> list[Counts]:
        """Counters of each launch."""
        return [launch.counts for launch in self.launches]

    @property
    def flops(self) -> int:
        """Floating point operations of all launches."""
        return sum(c.total_flops for c in self.counts)

    def bytes(self, space: str) -> int:
        """Bytes that all launches moved in a space, such as ``global read``."""
        return sum(c.total_bytes(space) for c in self.counts)

    def own(self, tensor: Any, unwritten: bool = False) -> None:
        """Let kernels touch a tensor's memory; ``unwritten`` marks an output that holds nothing."""
        storage = tensor.untyped_storage()
        label = f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
        if storage.nbytes():
            old = self.memory.get(storage.data_ptr())
            fresh = unwritten or (old is not None and old[3])
            self.memory[storage.data_ptr()] = (storage.nbytes(), label, storage, fresh)

    def launch(self, text: str, call: Call) -> None:
        """Run a launch that a host function, or another runtime, asks for."""
        if self.patch is not None:
            text = self.patch(text)
        key = (text, call.kernel)
        if key not in self.programs:
            self.programs[key] = _program(*key)
        program = self.programs[key]
        self.asked[key] = call.shared
        block = bytearray(program.kernel.parameter_bytes)
        for i, p in enumerate(program.kernel.parameters):
            block[p.offset : p.offset + p.size] = call.argument(i, p.size)
        shape = (call.grid, call.block, call.cluster, call.shared)
        how = call.overlaps, call.compiled
        streams.submit(functools.partial(self._run, program, block, shape, *how))

    def _run(
        self,
        program: Program,
        block: bytearray,
        shape: tuple[Dim3, Dim3, Dim3, int],
        overlaps: bool,
        compiled: bool,
    ) -> None:
        """Run a launch in all ways that are asked."""
        last = self.launches[-1] if self.launches else None
        after = last if overlaps else None
        regions = [
            Region(base, n, label, fresh) for base, (n, label, _, fresh) in self.memory.items()
        ]
        asked = Asked(program, bytes(block), shape, after, self.counted)
        first, others, more = (
            [dataclasses.replace(o, compiled=compiled) for o in ways]
            for ways in ((self.options,), self.others, self.where_quick)
        )
        self.launching = True
        try:
            new = self.repeats.run(asked, regions, first[0], others, more)
        finally:
            self.launching = False
        self.launches += new
        if self.children:
            self.children.tell(new)
        if last is not None:
            last.grid_before = None  # The next one comes after this, and it takes memory.
        done = self.launches[-1]
        for line in done.printed:
            print(line, end="")
        # What one launch wrote, the next may read.
        for region in regions:
            if region.known is not None and region.known.any():
                n, label, keep, _ = self.memory[region.base]
                self.memory[region.base] = (n, label, keep, False)

    def call(self, module: str, text: str, arguments: Sequence[Any]) -> None:
        """Run a host function that the DSL compiled before; its launches come here.

        Args:
            module: The host code, in MLIR's LLVM dialect.
            text: The PTX of its kernels.
            arguments: C values of its arguments, without the stream.

        Raises:
            EmulatorError: The module has no host function, or the function fails.
        """
        entry = _ENTRY.search(module)
        if entry is None:
            raise EmulatorError("the compiled module has no host function; the DSL changed")
        engine, _ = _hosted(module, text)
        library, device, status = POINTER(), INT(), INT()
        place = ctypes.pointer(library)
        for name, cells in (
            ("cuda_init", (place, status)),
            ("cuda_load_to_device", (place, device, status)),
            (entry[1], (*arguments, POINTER(), status)),
        ):
            _invoke(engine, name, cells)
            if status.value and self.failure is None:
                raise EmulatorError(f"{name} ended with status {status.value}")


def _program(text: str, kernel: str) -> Program:
    """A kernel lowered, as for emulations before this one unless it holds memory of theirs."""
    known = _lowered(text, kernel)
    return Program(parse(text), kernel) if known.storage else known


@functools.lru_cache(maxsize=PROGRAMS)
def _lowered(text: str, kernel: str) -> Program:
    return Program(parse(text), kernel)


class _Call:
    """The arguments of one ``cudaLaunchKernelEx``."""

    compiled = False

    def __init__(self, config: int, kernel: str, arguments: int) -> None:
        gx, gy, gz, bx, by, bz, self.shared, _, attributes, n = CONFIG.unpack(
            ctypes.string_at(config, CONFIG.size)
        )
        self.kernel, self.grid, self.block = kernel, (gx, gy, gz), (bx, by, bz)
        self.arguments = ctypes.cast(arguments, ctypes.POINTER(POINTER))
        self.cluster, self.overlaps = (1, 1, 1), False
        for i in range(n if attributes else 0):
            raw = ctypes.string_at(attributes + ATTRIBUTE_BYTES * i, ATTRIBUTE_BYTES)
            kind, *size = struct.unpack_from("<I4x3I", raw)
            if kind == CLUSTER_DIMENSION:
                self.cluster = (size[0], size[1], size[2])
            elif kind == STREAM_SERIALIZATION:
                self.overlaps = bool(size[0])

    def argument(self, i: int, size: int) -> bytes:
        """Bytes of the ``i``-th kernel parameter."""
        address = self.arguments[i]
        if address is None:
            raise EmulatorError(f"the launch of {self.kernel} passes no argument {i}")
        return ctypes.string_at(address, size)


_active: Emulation | None = None


class _Runtime:
    """The runtime symbols of one JIT engine, bound to the PTX that was compiled with it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.kernels: dict[int, str] = {}
        self.callbacks = {
            name: ctypes.CFUNCTYPE(INT, *types)(self._guard(getattr(self, name.lstrip("_"))))
            for name, types in SYMBOLS.items()
        }

    @staticmethod
    def _guard(function: Callable[..., None]) -> Callable[..., int]:
        """No exception may pass through compiled code: it is kept and raised afterwards."""

        def call(*args: Any) -> int:
            try:
                function(*args)
            except BaseException as error:  # noqa: BLE001
                if _active is not None and _active.failure is None:
                    _active.failure = error
                    if _active.children:
                        _active.children.tell_refusal(error)
                return FAILED
            return 0

        return call

    def cudaLibraryLoadData(self, library: int, *_: Any) -> None:
        ctypes.cast(library, ctypes.POINTER(POINTER))[0] = id(self)

    def cudaLibraryGetKernel(self, out: int, _: int, name: bytes) -> None:
        handle = 0x500000 + 16 * len(self.kernels)
        self.kernels[handle] = name.decode()
        ctypes.cast(out, ctypes.POINTER(POINTER))[0] = handle

    def cudaGetDevice(self, out: int) -> None:
        ctypes.cast(out, ctypes.POINTER(INT))[0] = 0

    def cudaDeviceGetAttribute(self, out: int, attribute: int, _: int) -> None:
        device = _active.device if _active else Device((9, 0))
        ctypes.cast(out, ctypes.POINTER(INT))[0] = device.attribute(attribute)

    def cuKernelGetAttribute(self, out: int, *_: Any) -> None:
        ctypes.cast(out, ctypes.POINTER(INT))[0] = 0

    def cudaFuncSetAttribute(self, *_: Any) -> None:
        """Attributes change nothing here."""

    def cudaKernelSetAttributeForDevice(self, *_: Any) -> None:
        """Attributes change nothing here."""

    def cudaLaunchKernelEx(self, config: int, function: int, arguments: int) -> None:
        if _active is None:
            raise EmulatorError("a kernel is launched outside of emulate()")
        _active.launch(self.text, _Call(config, self.kernels[function], arguments))

    def cuTensorMapEncodeTiled(self, out: int, kind: int, rank: int, *rest: int) -> None:
        base, dims, strides, box, steps, interleave, swizzle, _, fill = rest
        raw = encoded(
            kind,
            base,
            _numbers(dims, "Q", rank),
            _numbers(strides, "Q", rank - 1),
            _numbers(box, "I", rank),
            _numbers(steps, "I", rank),
            (interleave, swizzle, fill),
        )
        ctypes.memmove(out, raw, len(raw))

    def cuda_dialect_assert_success(self, status: int) -> None:
        """What failed is known already, and raised after the host function."""


def _numbers(address: int, code: str, count: int) -> tuple[int, ...]:
    form = struct.Struct(f"<{count}{code}")
    return form.unpack(ctypes.string_at(address, form.size))


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


@contextlib.contextmanager
def emulating(
    options: Options | None = None,
    others: Sequence[Options] = (),
    kind: type[Emulation] = Emulation,
) -> Iterator[Emulation]:
    """Launches inside this block come here; for host code that is compiled already.

    Args:
        options: How to run.
        others: Further ways in which each launch is run first.
        kind: What becomes of a launch: it is run, unless a subclass says otherwise.

    Yields:
        The findings, counts and texts of every launch; ``Emulation.call`` runs host code.

    Raises:
        EmulatorError: A launch is not possible, or a kernel meets what is not emulated.
    """
    global _active
    if _active is not None:
        raise EmulatorError("emulate() is active already")
    _active = emulation = kind(options or Options(), others)
    try:
        yield emulation
    except Exception as error:
        if emulation.failure is not None:
            raise emulation.failure from error
        raise
    finally:
        _active = None
    if (refused := emulation.refusal()) is not None:
        raise refused


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
    if _active is None or _active.children is None or _active.launching:
        return  # Processes of a launch compile nothing.
    from cutlass.cutlass_dsl import CuTeDSL, CuteExperimentalDSL

    folder = str(_active.children.folder)
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
        self.emulator_runtime = _registered(self, _newest(children.folder))

    return init


def _engine_of(module: str) -> Any:
    """A JIT engine of host code."""
    from cutlass._mlir import execution_engine, ir

    dialects: Any = ir  # It has no types.
    with dialects.Context(), dialects.Location.unknown():
        parsed = dialects.Module.parse(module)
        return execution_engine.ExecutionEngine(parsed, opt_level=0, shared_libs=[])


@functools.lru_cache(maxsize=PROGRAMS)
def _hosted(module: str, text: str) -> tuple[Any, _Runtime]:
    """An engine of host code, made once, and what its callbacks need as long as it is there."""
    engine = _engine_of(module)
    return engine, _registered(engine, text)


def _engine_again(children: Children, module: str, text: str) -> Any:
    """A JIT engine of host code that was compiled before, with the PTX of its kernels."""
    folder = children.folder
    (folder / f"again-{len(list(folder.iterdir()))}.ptx").write_text(text, encoding="utf-8")
    return _engine_of(module)


def _registered(engine: Any, text: str) -> _Runtime:
    """The runtime symbols of an engine, whose launches run kernels of a PTX text."""
    runtime = _Runtime(text)
    symbols = dict(runtime.callbacks)
    if ffi.installed():
        engine.emulator_symbols = ffi.Symbols()  # Callbacks have to outlive the engine's calls.
        symbols |= engine.emulator_symbols.callbacks
    for name, callback in symbols.items():
        engine.raw_register_runtime(name, ctypes.cast(callback, POINTER))
    return runtime


def _invoke(engine: Any, name: str, cells: Sequence[Any]) -> None:
    """Call a function of an engine with the addresses of its arguments and of its result."""
    pointers = (POINTER * len(cells))(*map(ctypes.addressof, cells))
    ctypes.CFUNCTYPE(None, POINTER)(engine.raw_lookup(name))(pointers)


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
