"""Fake GPU tensors for torch: they lie on the CPU and report ``cuda:0`` as their device."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from mla_var3.gpuless import scaled, streams
from mla_var3.gpuless.streams import DEVICE

#: What addresses of allocations on a GPU are multiples of.
ALIGNMENT = 512
#: Told of each tensor whose address a program takes.
Own = Callable[[torch.Tensor], None]
#: The attribute of tensors that a program has put on its GPU: moving one there again is no copy.
_MARK = "_hypermla_on_gpu"
_Call = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
_CPU = torch.device("cpu")

#: Functions whose gradients a CPU sums in half precision, and a GPU in single.
_WIDENED = (torch.nn.functional.layer_norm,)
_HALVES = (torch.float16, torch.bfloat16)
#: Functions whose result lies where something else does that torch does not know.
_SHARING = {"from_numpy", "frombuffer", "from_dlpack", "as_tensor", "asarray", "__get__"}


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as a GPU would have allocated it; itself where it lies well, or is no plain one."""
    storage = tensor.untyped_storage()
    plain = type(tensor) is torch.Tensor and not tensor.is_meta and not tensor.is_sparse
    if not plain or not storage.nbytes() or storage.data_ptr() % ALIGNMENT == 0:
        return tensor
    place = _place(storage.nbytes())
    place.copy_(storage, non_blocking=False)
    at = (tensor.storage_offset(), tensor.shape, tensor.stride())
    moved = torch.empty(0, dtype=tensor.dtype).set_(place, *at)
    if not tensor.requires_grad:
        return moved
    tensor.data = moved  # It keeps its place in the graph of gradients.
    return tensor


def _place(size: int) -> torch.UntypedStorage:
    room = np.empty(size + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    # From numpy, so that the storage ends where the tensor's does.
    return torch.from_numpy(room[start : start + size]).untyped_storage()


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


def _moved(value: Any) -> Any:
    return _CPU if _is_cuda(value) else value


def _moved_kwargs(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    moved = {key: _moved(v) if key == "device" else v for key, v in kwargs.items()}
    moved.pop("pin_memory", None)
    return moved


def _to(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``x.to("cpu")`` is a copy on a GPU: what a kernel writes later must not show in it."""
    wants_copy = _asks_for_cpu(args[1:], kwargs)
    out = func(*map(_moved, args), **_moved_kwargs(kwargs))
    return out.clone() if wants_copy and out is args[0] else out


def _wide(value: Any) -> Any:
    half = isinstance(value, torch.Tensor) and value.dtype in _HALVES
    return value.float() if half else value


def _widened(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    wide = func(*map(_wide, args), **{k: _wide(v) for k, v in kwargs.items()})
    return wide.to(args[0].dtype)


def _first(_: Any, args: tuple[Any, ...], __: dict[str, Any]) -> Any:
    return args[0]


#: What tensors say of themselves.
_ANSWERS: dict[Any, Any] = {
    torch.Tensor.is_cuda.__get__: True,  # type: ignore[attr-defined]
    torch.Tensor.is_cpu.__get__: False,  # type: ignore[attr-defined]
    torch.Tensor.device.__get__: DEVICE,
    torch.Tensor.get_device: 0,
}
_SPECIAL: dict[Any, _Call] = {
    torch.Tensor.cuda: _first,
    torch.Tensor.pin_memory: _first,
    torch.Tensor.cpu: lambda _, args, __: args[0].clone(),
    torch.Tensor.to: _to,
    torch._scaled_mm: scaled.product,
    **dict.fromkeys(_WIDENED, _widened),
}
#: What gives a program the address of a tensor.
_ADDRESSES = {torch.Tensor.data_ptr, torch.Tensor.untyped_storage, torch.Tensor.__dlpack__}


def _on_cpu(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a function of torch gives on the CPU, lying as a GPU would have allocated it."""
    asked = func is torch.Tensor.cuda or any(map(_is_cuda, (*args[1:], kwargs.get("device"))))
    if (special := _SPECIAL.get(func)) is not None:
        out = special(func, args, kwargs)
    else:
        moved = [_moved(a) if isinstance(a, torch.device) else a for a in args]
        out = func(*moved, **_moved_kwargs(kwargs))
    if asked and isinstance(out, torch.Tensor):
        here = all(out is not a for a in args) or getattr(out, _MARK, False)
        return _marked(aligned(out if here else out.clone()))
    if getattr(func, "__name__", "") not in _SHARING:
        out = _placed(out, args, kwargs)
    if any(getattr(t, _MARK, False) for t in streams.tensors((*args, *kwargs.values()))):
        for tensor in streams.tensors(out if isinstance(out, tuple | list) else (out,)):
            _marked(tensor)
    return out


def _marked(tensor: torch.Tensor) -> torch.Tensor:
    setattr(tensor, _MARK, True)
    return tensor


class OnCpu(TorchFunctionMode):
    """Sends every call of torch to the CPU.

    Args:
        own: Told of each tensor whose address a program takes.
    """

    def __init__(self, own: Own = lambda _: None) -> None:
        super().__init__()
        self.own = own

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _ADDRESSES:
            self.own(args[0])
            return func(*args, **kwargs)
        if func in _ANSWERS:
            return _ANSWERS[func]
        return streams.call(_on_cpu, (func, args, kwargs))

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Python code that torch itself calls, such as a backward function, is under it too."""
        if torch._C._len_torch_function_stack():
            yield
        else:
            with self:
                yield


def _placed(out: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Results as a GPU would have allocated them; what is a view of an argument stays one."""
    if isinstance(out, torch.Tensor):
        return out if _lies_well(out) else _fresh([out], args, kwargs)[0]
    if _is_sequence(out) and any(isinstance(o, torch.Tensor) for o in out):
        if all(_lies_well(o) for o in out if isinstance(o, torch.Tensor)):
            return out
        return type(out)(_fresh(list(out), args, kwargs))
    return out


def _is_sequence(out: Any) -> bool:
    """Lists, tuples, and what torch returns for several results, which is made like a tuple."""
    return type(out) in (list, tuple) or hasattr(type(out), "n_sequence_fields")


def _lies_well(tensor: torch.Tensor) -> bool:
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or tensor.is_meta:
        return True
    return tensor.untyped_storage().data_ptr() % ALIGNMENT == 0


def _fresh(out: list[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    given = {
        t.untyped_storage().data_ptr()
        for t in streams.tensors((*args, *kwargs.values()))
        if t.layout is torch.strided
    }
    places = [o.untyped_storage().data_ptr() if isinstance(o, torch.Tensor) else None for o in out]
    return [
        aligned(o)
        if isinstance(o, torch.Tensor) and place not in given and places.count(place) == 1
        else o
        for o, place in zip(out, places, strict=True)
    ]
