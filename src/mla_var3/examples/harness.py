"""Compiles a CUTLASS example without a GPU: runs it on the CPU up to its first launch.

The example makes its tensors and calls the compiler by itself. Stand-ins answer what it asks of a
GPU: tensors stay on the CPU and are called CUDA ones when the DSL takes them, the device has
constant properties, and large tensors have no memory, since only shapes matter. The first launch
ends the run. All this happens in a process of its own (``mla_var3.forked``).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mla_var3.emulator import ffi
from mla_var3.languages.cute import hardware
from mla_var3.languages.cute.compile import without_binary

#: What devices of an arch answer: capability, SMs (``knowledge/devices`` has the sources).
DEVICES = {
    "sm_80": ((8, 0), 108),
    "sm_90": ((9, 0), 132),
    "sm_100": ((10, 0), 148),
    "sm_103": ((10, 3), 148),
    "sm_120": ((12, 0), 170),
}

#: kDLCUDA of DLPack, and where a DLTensor holds its device type.
_DL_CUDA, _DEVICE_TYPE = 2, 8

#: Elements up to which a tensor is real.
SMALL = 4096

#: What the addresses of tensors are multiples of on a GPU.
ALIGNMENT = 512

_RANDOM = {"randn", "rand", "randint", "randn_like", "rand_like", "normal", "bernoulli"}
_RANDOM_IN_PLACE = {"normal_", "uniform_", "random_", "bernoulli_", "exponential_"}


class Launched(BaseException):
    """The example launches: all that it compiles before is compiled."""


@dataclass(frozen=True)
class Module:
    """One compiled host function of an example."""

    ptx: str
    cubin: bytes
    ir: str


def compile_example(path: Path, root: Path, arch: str, target: str, folder: Path) -> list[Module]:
    """Run an example up to its first launch; to be called in a process of its own.

    Args:
        path: The example.
        root: Folder that its imports start from.
        arch: Such as ``sm_90``.
        target: What is compiled for, such as ``sm_90a``.
        folder: Where the compiler may write.

    Returns:
        What it compiled.

    Raises:
        BaseException: Whatever stops the example before anything is compiled.
    """
    folder.mkdir()
    os.chdir(folder)
    sys.argv = [str(path)]
    sys.path[:0] = [str(path.parent), str(root)]
    capability, multiprocessors = DEVICES[arch]
    made = _listen(target, folder)
    _stand_in_torch(capability, multiprocessors)
    _stand_in_device(multiprocessors)
    with _without_data(), contextlib.suppress(Launched):
        try:
            runpy.run_path(str(path), run_name="__main__")
        except BaseException:
            if not made:
                raise
    found = (_module(one) for one in made)
    return [module for module in found if module is not None]


def _module(compiled: Any) -> Module | None:
    ptx, cubin = compiled.__ptx__, compiled.__cubin__
    if not ptx or not cubin or ".entry" not in ptx:
        return None
    return Module(ptx.rstrip("\0"), cubin, without_binary(str(compiled.ir_module)))


def _listen(target: str, folder: Path) -> list[Any]:
    """Have the DSL keep what it compiles, and stop at the first launch."""
    from cutlass.base_dsl import jit_executor
    from cutlass.cutlass_dsl import CuTeDSL, cuda_jit_executor

    settings = CuTeDSL._get_dsl().envar
    settings.arch, settings.dump_dir = target, str(folder)
    settings.keep_ptx = settings.keep_cubin = settings.lineinfo = True
    settings.disable_file_caching = True
    made: list[Any] = []
    cls: Any = jit_executor.JitCompiledFunction
    original = cls.__init__

    def remember(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        made.append(self)

    def launched(*_args: Any, **_kwargs: Any) -> None:
        raise Launched

    cls.__init__ = remember
    launching: Any = cuda_jit_executor.CudaDialectJitCompiledFunction
    for kind in (cls, launching):
        kind.__call__ = kind.run_compiled_program = launched
    return made


def _without_data() -> Any:
    """A mode of torch in which tensors beyond a few elements have a shape and no memory.

    Small ones stay real, since examples read sizes and offsets from them.
    """
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._pytree import tree_flatten, tree_map

    creations = {
        getattr(torch, name)
        for name in ("empty", "zeros", "ones", "full", "arange", "tensor", "empty_strided", "eye")
    }

    def plain(value: Any) -> Any:
        return _cpu(value)

    def shapeless(value: Any) -> Any:
        return value.to("meta") if isinstance(value, torch.Tensor) else value

    class WithoutData(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
        ) -> Any:
            name = getattr(func, "__name__", "")
            args, kwargs = tree_map(plain, tuple(args)), tree_map(plain, kwargs or {})
            if name == "cuda" or name in _RANDOM_IN_PLACE:
                return args[0]
            if name in _RANDOM:
                func, args, kwargs = _as_zeros(name, args, kwargs)
            if func in creations:
                return _created(func, args, kwargs)
            tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
            if any(x.is_meta for x in tensors):
                if name in ("cpu", "contiguous_"):
                    return args[0]
                args, kwargs = tree_map(shapeless, args), tree_map(shapeless, kwargs)
                if name == "to":
                    args = tuple("meta" if isinstance(x, str) else x for x in args)
                if "device" in kwargs:
                    kwargs["device"] = "meta"
            return func(*args, **kwargs)

    return WithoutData()


def _created(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """A new tensor, without memory unless it is small."""
    import torch

    if func is torch.tensor:
        return func(*args, **kwargs)
    sketch = func(*args, **{**kwargs, "device": "meta"})
    return sketch if sketch.numel() > SMALL else func(*args, **kwargs)


def _as_zeros(name: str, args: Any, kwargs: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """The call that makes zeros in place of random numbers."""
    import torch

    for key in ("generator", "low", "high", "mean", "std"):
        kwargs.pop(key, None)
    if name.endswith("_like") or name == "bernoulli":
        return torch.zeros_like, args[:1], kwargs
    shape = kwargs.pop("size", None)
    if name == "randint":
        shape = next(x for x in (*args, shape) if isinstance(x, list | tuple))
        kwargs.setdefault("dtype", torch.int64)
    elif name == "normal":
        shape = shape or args[-1]
    elif shape is None:
        shape = args[0] if args and isinstance(args[0], list | tuple) else args
    return torch.zeros, (tuple(shape),), kwargs


def _cpu(value: Any) -> Any:
    import torch

    if isinstance(value, torch.device | str) and str(value).split(":")[0] == "cuda":
        return "cpu"
    return value


def _stand_in_torch(capability: tuple[int, int], multiprocessors: int) -> None:
    """Answers of ``torch.cuda``, and CPU tensors that the DSL takes for CUDA ones."""
    import torch
    from cutlass.cute import runtime

    torch.set_num_threads(1)
    stream = SimpleNamespace(
        cuda_stream=0,
        synchronize=_nothing,
        wait_stream=_nothing,
        wait_event=_nothing,
        record_event=_nothing,
    )
    event = SimpleNamespace(record=_nothing, synchronize=_nothing, elapsed_time=lambda _end: 1.0)
    properties = SimpleNamespace(
        name="stand-in",
        major=capability[0],
        minor=capability[1],
        multi_processor_count=multiprocessors,
        total_memory=80 << 30,
        L2_cache_size=50 << 20,
        shared_memory_per_multiprocessor=228 << 10,
    )
    answers: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": _nothing,
        "synchronize": _nothing,
        "init": _nothing,
        "empty_cache": _nothing,
        "manual_seed": _nothing,
        "manual_seed_all": _nothing,
        "current_stream": lambda *_: stream,
        "default_stream": lambda *_: stream,
        "Stream": lambda *_, **__: stream,
        "ExternalStream": lambda *_, **__: stream,
        "Event": lambda *_, **__: event,
        "stream": lambda *_: contextlib.nullcontext(),
        "device": lambda *_: contextlib.nullcontext(),
        "get_device_capability": lambda *_: capability,
        "get_device_properties": lambda *_: properties,
        "get_device_name": lambda *_: "stand-in",
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, partial(answer))  # torch.compile wants no function twice.
    tensors: Any = runtime._Tensor
    original = tensors.__init__

    def init(self: Any, tensor: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(tensor, torch.Tensor):  # Nothing is launched, so its values do not matter.
            with torch._C.DisableTorchFunction():
                tensor = _untouched(tensor)
        if kwargs.get("enable_tvm_ffi"):
            original(self, ffi.gpu_view(tensor, _nothing), *args, **kwargs)
            return
        original(self, tensor, *args, **kwargs)
        _call_cuda(self._dlpack_data)

    tensors.__init__ = init


def _untouched(sketch: Any) -> Any:
    """A tensor of the same shape, aligned as a GPU's are; the system gives it no memory."""
    import torch

    extents = zip(sketch.shape, sketch.stride(), strict=True)
    elements = max(1, 1 + sum((size - 1) * stride for size, stride in extents))
    room = torch.empty(elements * sketch.element_size() + ALIGNMENT, dtype=torch.uint8)
    start = -room.data_ptr() % ALIGNMENT
    bytes_of = room[start : start + elements * sketch.element_size()]
    return bytes_of.view(sketch.dtype).as_strided(sketch.shape, sketch.stride())


def _call_cuda(capsule: Any) -> None:
    """Write into a DLPack capsule that its memory is a GPU's."""
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    name = api.PyCapsule_GetName(capsule)
    if name == b"dltensor":
        place = api.PyCapsule_GetPointer(capsule, name) + _DEVICE_TYPE
        ctypes.c_int32.from_address(place).value = _DL_CUDA


def _stand_in_device(multiprocessors: int) -> None:
    """Answers of the driver and of what the DSL asks it; conversions and timing do nothing."""
    import cuda.bindings.driver as driver
    import cutlass.cute.testing as testing
    import cutlass.torch as cutlass_torch

    success = driver.CUresult.CUDA_SUCCESS
    for name in dir(driver):
        if name.startswith("cu") and callable(getattr(driver, name)):
            setattr(driver, name, lambda *_a, **_k: (success, 0))
    driver.cuDeviceGetCount = lambda: (success, 1)
    driver.cuDriverGetVersion = lambda: (success, 13_000)
    hardware.stand_in(lambda: multiprocessors)
    testing.convert = _nothing
    cutlass_torch.convert_cute_tensor = lambda _source, target, *_a, **_k: target


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    """Stand for a call whose effect is not wanted."""
