"""Fake ``torch.cuda``: a program that asks for a GPU runs on the CPU, unchanged.

Inside ``cuda_on_cpu()`` tensors that are asked for on "cuda" are made on the CPU, say that they are
on "cuda:0", and what a program asks of ``torch.cuda`` (streams, events, graphs, properties) answers
without a driver. Nothing here knows what runs the program's kernels.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkProcess, ForkServerProcess, SpawnProcess
from typing import Any
from unittest import mock

import torch

from mla_var3 import forked  # noqa: F401 - A program's forks do without its threads.
from mla_var3.gpuless import streams
from mla_var3.gpuless.device import Device
from mla_var3.gpuless.tensors import OnCpu, Own

#: The release of CUDA that torch says it was built with; one that knows every arch here.
CUDA = "13.0"


class _Generator(torch.Generator):
    """A generator of random numbers on the CPU, whatever device is asked for."""

    def __new__(cls, device: Any = None) -> _Generator:
        return super().__new__(cls, "cpu")  # type: ignore[call-arg]


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _seeded(seed: int) -> None:
    # Not torch.manual_seed, which seeds what it takes for a GPU through here.
    torch.default_generator.manual_seed(int(seed))


def _always(value: Any) -> Callable[..., Any]:
    """A function of its own: torch's compiler takes no function under two names."""
    return lambda *_, **__: value


def _answers(device: Device) -> dict[str, Any]:
    """Returns what replaces the attributes of ``torch.cuda``."""
    nothing = ("synchronize", "empty_cache", "reset_peak_memory_stats", "_sleep", "set_device")
    zero = ("current_device", "memory_allocated", "max_memory_allocated", "memory_reserved")
    return {
        **{name: _always(None) for name in (*nothing, "init", "_lazy_init", "ipc_collect")},
        **{name: _always(0) for name in (*zero, "max_memory_reserved")},
        **dict.fromkeys(("Stream", "ExternalStream"), streams.Stream),
        **{name: _always(streams.Stream()) for name in ("current_stream", "default_stream")},
        **{name: _always(contextlib.nullcontext()) for name in ("device", "stream")},
        "manual_seed": _seeded,
        "manual_seed_all": lambda seed: _seeded(seed),
        "get_rng_state": lambda *_, **__: torch.get_rng_state(),
        "set_rng_state": lambda state, *_, **__: torch.set_rng_state(state),
        "Event": streams.Event,
        "CUDAGraph": streams.Graph,
        "graph": streams.Capture,
        "graph_pool_handle": lambda: (0, 0),
        "is_current_stream_capturing": streams.capturing,
        "device_count": lambda: 1,
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "is_bf16_supported": lambda *_, **__: True,
        "get_device_capability": lambda *_, **__: device.capability,
        "get_device_name": lambda *_, **__: device.name,
        "get_device_properties": lambda *_, **__: device.properties(),
        "get_arch_list": lambda: ["sm_{}{}".format(*device.capability)],
        "mem_get_info": lambda *_, **__: (device.memory, device.memory),
        "memory_stats": lambda *_, **__: {},
    }


#: Where torch dispatches what is registered for a GPU, and where it goes here.
_KEYS = {"CUDA": "CPU", "AutogradCUDA": "AutogradCPU"}


def _registering(mode: OnCpu) -> Callable[..., Any]:
    """What ``Library.impl`` becomes: operators for a GPU are the CPU's, and run under the mode."""
    original = torch.library.Library.impl
    ours: set[tuple[str, str]] = set()

    def impl(self: Any, op_name: Any, fn: Any, dispatch_key: str = "", **rest: Any) -> Any:
        key = dispatch_key or self.dispatch_key or ""
        name = (self.ns, str(op_name))
        if key in _KEYS:
            ours.add(name)
            return original(self, op_name, _under(mode, fn), _KEYS[key], **rest)
        if key == "CPU" and name in ours:
            return None  # A program that has a GPU never comes there.
        return original(self, op_name, fn, dispatch_key, **rest)

    return impl


def _under(mode: OnCpu, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that torch calls by itself, as it would be called by the program."""

    def called(*args: Any, **kwargs: Any) -> Any:
        with mode.on():
            return function(*args, **kwargs)

    return called


def on_the_cpu() -> contextlib.AbstractContextManager[Any]:
    """Returns a context in which tensors say where they are, for what runs the kernels."""
    return torch._C.DisableTorchFunction()


_Profile = torch.profiler.profile


def _profile(activities: object = None, **options: Any) -> torch.profiler.profile:
    """A profile of the CPU: of a GPU alone, torch makes none without one."""
    del activities
    return _Profile(activities=[torch.profiler.ProfilerActivity.CPU], **options)


def _uncompiled(model: Any = None, **_: Any) -> Any:
    """``torch.compile``: the function itself, since what torch would make of it is for a GPU."""
    return (lambda function: function) if model is None else model


@contextlib.contextmanager
def cuda_on_cpu(device: Device | None = None, own: Own = _nothing) -> Iterator[None]:
    """Runs the ``with`` block as if there were a GPU.

    Args:
        device: What the program is told about it.
        own: Told of each tensor whose address the program takes.
    """
    mode = OnCpu(own)
    backward = _under(mode, torch.autograd.graph._engine_run_backward)
    # Processes that a program spawns are forks, which find this too.
    start = staticmethod(ForkProcess._Popen)
    patches = [
        *((kind, "_Popen", start) for kind in (SpawnProcess, ForkServerProcess)),
        *((torch.cuda, name, answer) for name, answer in _answers(device or Device()).items()),
        *((torch.cuda.nvtx, name, _always(None)) for name in ("range_push", "range_pop", "mark")),
        (torch.version, "cuda", CUDA),
        (torch, "compile", _uncompiled),
        (torch, "Generator", _Generator),
        (torch.profiler, "profile", _profile),
        (torch.Tensor, "record_stream", _nothing),  # Takes torch's own streams only.
        (torch, "set_default_device", _always(None)),
        (torch.library.Library, "impl", _registering(mode)),
        (torch.autograd, "_engine_run_backward", backward),
        (torch.autograd.graph, "_engine_run_backward", backward),
    ]
    with contextlib.ExitStack() as stack:
        for owner, name, value in patches:
            stack.enter_context(mock.patch.object(owner, name, value, create=True))
        stack.enter_context(mode)
        yield
