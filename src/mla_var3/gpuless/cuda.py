"""Lets a program that asks torch for a GPU run on the CPU, unchanged.

Inside ``cpu_for_cuda()`` tensors that are asked for on "cuda" are made on the CPU, say that they
are on "cuda:0", and what a program asks of ``torch.cuda`` (streams, events, properties) answers
without a driver. Nothing here knows what runs the program's kernels.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

from mla_var3.errors import InterpreterError

_CPU = torch.device("cpu")
_CUDA = torch.device("cuda", 0)


@dataclass(frozen=True)
class Device:
    """The GPU that a program believes in.

    Attributes:
        capability: Its compute capability.
        multiprocessors: Its streaming multiprocessors; persistent kernels launch as many blocks.
        memory: Its memory in bytes.
        name: Its name.
    """

    capability: tuple[int, int] = (10, 0)
    multiprocessors: int = 16
    memory: int = 64 * 2**30
    name: str = "CPU in place of a GPU"


class _Properties:
    """What ``torch.cuda.get_device_properties`` returns."""

    def __init__(self, device: Device) -> None:
        self.name = device.name
        self.major, self.minor = device.capability
        self.multi_processor_count = device.multiprocessors
        self.total_memory = device.memory
        self.warp_size = 32
        self.L2_cache_size = 1 << 20
        self.shared_memory_per_block_optin = 227 * 1024
        self.max_threads_per_multi_processor = 2048


class _Stream:
    """A stream on which everything has already happened."""

    cuda_stream = 0
    device = _CUDA

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Stream)

    def __hash__(self) -> int:
        return 0

    def _done(self, *_: Any, **__: Any) -> None:
        return None

    synchronize = wait_stream = wait_event = record_event = _done

    def query(self) -> bool:
        """Tells that all work is done."""
        return True


class _Event:
    """An event, with the time of this machine's clock."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._at = 0.0

    def record(self, *_: Any) -> None:
        """Takes the time."""
        self._at = time.perf_counter()

    def elapsed_time(self, end: _Event) -> float:
        """Returns the milliseconds to another event, never 0, which programs divide by."""
        return max((end._at - self._at) * 1e3, 1e-6)

    def _done(self, *_: Any) -> None:
        return None

    synchronize = wait = _done

    def query(self) -> bool:
        """Tells that all work is done."""
        return True


class _Generator(torch.Generator):
    """A generator of random numbers on the CPU, whatever device is asked for."""

    def __new__(cls, device: Any = None) -> _Generator:
        return super().__new__(cls, "cpu")  # type: ignore[call-arg]


def _no_graphs(*_: Any, **__: Any) -> Any:
    raise InterpreterError("CUDA graphs cannot be captured where there is no GPU")


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _seeded(seed: int) -> None:
    # Not torch.manual_seed, which seeds what it takes for a GPU through here.
    torch.default_generator.manual_seed(int(seed))


def _answers(device: Device) -> dict[str, Any]:
    """Returns what replaces the attributes of ``torch.cuda``."""
    nothing = ("synchronize", "empty_cache", "reset_peak_memory_stats", "_sleep", "set_device")
    zero = ("current_device", "memory_allocated", "max_memory_allocated", "memory_reserved")
    return {
        **dict.fromkeys(nothing, _nothing),
        **dict.fromkeys((*zero, "max_memory_reserved"), lambda *_, **__: 0),
        **dict.fromkeys(("Stream", "ExternalStream"), _Stream),
        **dict.fromkeys(("current_stream", "default_stream"), lambda *_, **__: _Stream()),
        **dict.fromkeys(("device", "stream"), lambda *_, **__: contextlib.nullcontext()),
        **dict.fromkeys(("graph", "CUDAGraph"), _no_graphs),
        **dict.fromkeys(("manual_seed", "manual_seed_all"), _seeded),
        "get_rng_state": lambda *_, **__: torch.get_rng_state(),
        "set_rng_state": lambda state, *_, **__: torch.set_rng_state(state),
        "Event": _Event,
        "device_count": lambda: 1,
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "is_bf16_supported": lambda *_, **__: True,
        "is_current_stream_capturing": lambda: False,
        "get_device_capability": lambda *_, **__: device.capability,
        "get_device_name": lambda *_, **__: device.name,
        "get_device_properties": lambda *_, **__: _Properties(device),
        "mem_get_info": lambda *_, **__: (device.memory, device.memory),
        "memory_stats": lambda *_, **__: {},
    }


def _is_cuda(value: Any) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and value.split(":")[0] == "cuda"


def _asks_for_cpu(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    return any(
        str(value) == "cpu"
        for value in (*args, kwargs.get("device"))
        if isinstance(value, str | torch.device)
    )


_Call = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


def _to(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``x.to("cpu")`` is a copy on a GPU: what a kernel writes later must not show in it."""
    wants_copy = _asks_for_cpu(args[1:], kwargs)
    out = func(*(_moved(a) for a in args), **_moved_kwargs(kwargs))
    return out.clone() if wants_copy and out is args[0] else out


_SPECIAL: dict[Any, _Call] = {
    torch.Tensor.is_cuda.__get__: lambda *_: True,  # type: ignore[attr-defined]
    torch.Tensor.is_cpu.__get__: lambda *_: False,  # type: ignore[attr-defined]
    torch.Tensor.device.__get__: lambda *_: _CUDA,
    torch.Tensor.get_device: lambda *_: 0,
    torch.Tensor.record_stream: _nothing,
    torch.Tensor.cuda: lambda _, args, __: args[0],
    torch.Tensor.pin_memory: lambda _, args, __: args[0],
    torch.Tensor.cpu: lambda _, args, __: args[0].clone(),
    torch.Tensor.to: _to,
}


def _moved(value: Any) -> Any:
    return _CPU if _is_cuda(value) else value


def _moved_kwargs(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    moved = {key: _moved(v) if key == "device" else v for key, v in kwargs.items()}
    moved.pop("pin_memory", None)
    return moved


class _OnCpu(TorchFunctionMode):
    """Sends every call of torch to the CPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        special = _SPECIAL.get(func)
        if special is not None:
            return special(func, args, kwargs)
        moved = [_CPU if isinstance(a, torch.device) and a.type == "cuda" else a for a in args]
        return func(*moved, **_moved_kwargs(kwargs))


def on_the_cpu() -> contextlib.AbstractContextManager[Any]:
    """Returns a context in which tensors say where they are, for what runs the kernels."""
    return torch._C.DisableTorchFunction()


@contextlib.contextmanager
def cpu_for_cuda(device: Device | None = None) -> Iterator[None]:
    """Runs the ``with`` block as if there were a GPU.

    Args:
        device: What the program is told about it.
    """
    device = device or Device()
    with contextlib.ExitStack() as stack:
        for name, answer in _answers(device).items():
            stack.enter_context(mock.patch.object(torch.cuda, name, answer, create=True))
        for name in ("range_push", "range_pop", "mark"):
            stack.enter_context(mock.patch.object(torch.cuda.nvtx, name, _nothing))
        stack.enter_context(mock.patch.object(torch, "Generator", _Generator))
        stack.enter_context(mock.patch.object(torch, "set_default_device", _nothing))
        stack.enter_context(_OnCpu())
        yield
