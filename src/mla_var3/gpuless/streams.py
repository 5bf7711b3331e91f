"""Fake CUDA streams, events and graphs: they run work at once, and graphs replay it.

A graph's capture is the exception: work asked for inside it runs when the graph is replayed, and
its effects on memory at capture are undone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

DEVICE = torch.device("cuda", 0)


class Stream:
    """A stream on which everything has already happened."""

    cuda_stream = stream_id = priority = 0
    device_index, device_type = 0, 1
    device = DEVICE

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream)

    def __hash__(self) -> int:
        return 0

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def _done(self, *_: Any, **__: Any) -> None:
        return None

    synchronize = wait_stream = wait_event = _done

    def record_event(self, event: Event | None = None) -> Event:
        """Returns the event, or a new one."""
        return event or Event()

    def query(self) -> bool:
        """Tells that all work is done."""
        return True


class Event:
    """An event; no time is measured, and none is 0, which programs divide by."""

    cuda_event = 1  # A handle, as if made; no launch waits for it.
    device = DEVICE

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def elapsed_time(self, end: Event) -> float:
        """Returns a number of milliseconds that means nothing."""
        return 1.0

    def _done(self, *_: Any) -> None:
        return None

    record = synchronize = wait = _done

    def query(self) -> bool:
        """Tells that all work is done."""
        return True


_capturing: Graph | None = None


def capturing() -> bool:
    """Whether a graph is being captured."""
    return _capturing is not None


def submit(work: Callable[[], None]) -> None:
    """Do a piece of work of a stream: now, or whenever the graph is replayed that captures it."""
    if _capturing is None:
        work()
    else:
        _capturing.steps.append(work)


def call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Call what makes tensors; a graph that captures it writes its results where they lie now."""
    if _capturing is None:
        return function(*arguments)
    return _capturing.call(function, arguments)


class Graph:
    """A CUDA graph: work that is captured once and done at each replay."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.steps: list[Callable[[], None]] = []
        self._before: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}

    def capture_begin(self, *_: Any, **__: Any) -> None:
        """Captures what follows."""
        global _capturing
        if _capturing is not None:
            raise RuntimeError("a graph is being captured already")
        self.reset()
        _capturing = self

    def capture_end(self) -> None:
        """Ends the capture; memory is as it was when it began."""
        global _capturing
        _capturing = None
        with torch._C.DisableTorchFunction():
            for storage, old in self._before.values():
                storage.copy_(old, non_blocking=False)
        self._before = {}

    def replay(self) -> None:
        """Does all that was captured."""
        with torch.no_grad():
            for step in self.steps:
                step()

    def reset(self) -> None:
        """Forgets what was captured."""
        self.steps, self._before = [], {}

    def pool(self) -> tuple[int, int]:
        """Returns a handle of its memory, which is memory like any other here."""
        return (0, 0)

    def call(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Calls a function, to learn what its results are, and again at each replay."""
        for tensor in tensors(arguments):
            self._keep(tensor)
        out = function(*arguments)
        results = list(tensors([out]))

        def again() -> None:
            for old, new in zip(results, tensors([function(*arguments)]), strict=True):
                if old.data_ptr() != new.data_ptr():
                    old.copy_(new)

        if results:
            self.steps.append(again)
        return out

    def _keep(self, tensor: torch.Tensor) -> None:
        with torch._C.DisableTorchFunction():
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in self._before:
                self._before[storage.data_ptr()] = (storage, storage.clone())


def tensors(values: Iterable[Any]) -> Iterable[torch.Tensor]:
    """Tensors among values, also inside lists, tuples and dicts."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors(value)
        elif isinstance(value, dict):
            yield from tensors(value.values())


class Capture:
    """``torch.cuda.graph(...)``: what the block asks for becomes the graph's."""

    def __init__(self, cuda_graph: Graph, *_: Any, **__: Any) -> None:
        self.graph = cuda_graph

    def __enter__(self) -> None:
        self.graph.capture_begin()

    def __exit__(self, *_: object) -> None:
        self.graph.capture_end()
