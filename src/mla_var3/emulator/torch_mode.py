"""Scripts written for a GPU, on the CPU: ``.cuda()`` is the identity, streams do nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from mla_var3.emulator.host import replaced

#: What addresses of allocations on a GPU are multiples of.
ALIGNMENT = 512


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as a GPU would have allocated it; itself where it lies well, or is no plain one."""
    storage = tensor.untyped_storage()
    count = storage.nbytes()
    plain = type(tensor) is torch.Tensor and not tensor.requires_grad and not tensor.is_meta
    if not plain or not count or storage.data_ptr() % ALIGNMENT == 0:
        return tensor
    with torch._C.DisableTorchFunction():
        room = np.empty(count + ALIGNMENT, np.uint8)
        start = -room.ctypes.data % ALIGNMENT
        # From numpy, so that the storage ends where the tensor's does.
        place = torch.from_numpy(room[start : start + count]).untyped_storage()
        place.copy_(storage, non_blocking=False)
        at = (tensor.storage_offset(), tensor.shape, tensor.stride())
        return torch.empty(0, dtype=tensor.dtype).set_(place, *at)


def _is_cuda(value: Any) -> bool:
    return isinstance(value, (str, torch.device)) and str(value).startswith("cuda")


#: Functions whose gradients a CPU sums in half precision, and a GPU in single.
WIDENED = (torch.nn.functional.layer_norm,)
HALVES = (torch.float16, torch.bfloat16)


def _wide(value: Any) -> Any:
    half = isinstance(value, torch.Tensor) and value.dtype in HALVES
    return value.float() if half else value


class OnCpu(TorchFunctionMode):
    """Every tensor that would be on a GPU is on the CPU; ``own`` is told of each."""

    def __init__(self, own: Callable[[torch.Tensor], None]) -> None:
        super().__init__()
        self.own = own

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        moved = _is_cuda(kwargs.get("device")) or any(_is_cuda(a) for a in args)
        if _is_cuda(kwargs.get("device")):
            kwargs["device"] = "cpu"
        kwargs.pop("pin_memory", None)
        if name in ("cuda", "pin_memory"):
            moved, out = True, args[0]
        elif name == "__get__" and getattr(func, "__self__", None) is torch.Tensor.is_cuda:
            return True
        elif func in WIDENED:
            wide = func(*map(_wide, args), **{k: _wide(v) for k, v in kwargs.items()})
            out = wide.to(args[0].dtype)
        else:
            out = func(*("cpu" if _is_cuda(a) else a for a in args), **kwargs)
        if moved and isinstance(out, torch.Tensor):
            out = aligned(out)
            self.own(out)
        return out


class _Stream:
    """A stream that has always finished."""

    cuda_stream = 0
    device = torch.device("cpu")

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def synchronize(self) -> None:
        """Nothing is in flight."""

    def wait_stream(self, _: Any) -> None:
        """Nothing is in flight."""

    def wait_event(self, _: Any) -> None:
        """Nothing is in flight."""


class _Event(_Stream):
    cuda_event = 1  # A handle, as if made; no launch waits for it.

    def record(self, *_: Any) -> None:
        """Nothing to record."""

    def elapsed_time(self, _: Any) -> float:
        """A time that means nothing, in milliseconds."""
        return 1.0


@contextlib.contextmanager
def cuda_on_cpu(
    own: Callable[[torch.Tensor], None], capability: tuple[int, int], multiprocessors: int
) -> Iterator[None]:
    """``torch.cuda`` as scripts use it, for a device that is emulated."""
    properties = SimpleNamespace(
        multi_processor_count=multiprocessors,
        major=capability[0],
        minor=capability[1],
        name="emulated",
        total_memory=1 << 33,
        L2_cache_size=50 << 20,
        shared_memory_per_block_optin=232448,
    )
    stream = _Stream()
    values: dict[str, Any] = {
        "is_available": lambda: True,
        "current_stream": lambda *_: stream,
        "default_stream": lambda *_: stream,
        "Stream": _Stream,
        "Event": _Event,
        "synchronize": lambda *_: None,
        "get_device_capability": lambda *_: capability,
        "get_device_properties": lambda *_: properties,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda *_: None,
        "empty_cache": lambda: None,
        "stream": lambda *_: contextlib.nullcontext(),
        "get_device_name": lambda *_: "emulated",
        "manual_seed": lambda _: None,
        "manual_seed_all": lambda _: None,
    }
    with contextlib.ExitStack() as stack:
        for name, value in values.items():
            stack.enter_context(replaced(torch.cuda, name, value))
        stack.enter_context(OnCpu(own))
        yield
