"""Returns a tensor's strides as kernels are compiled for them: a contiguous one's by its shape."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def strides_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """Strides in elements; a contiguous tensor's by its shape.

    torch leaves an axis of one element any stride, which would be no multiple of what it is for
    more elements. At the end it keeps its own, since a stride of 1 says which axis is contiguous:
    ``[m, k, 1]`` as a view of ``[1, m, k]`` is so along k alone.
    """
    if not tensor.is_contiguous():
        return tensor.stride()
    return _contiguous(tuple(tensor.shape), tensor.stride())


@functools.lru_cache(maxsize=4096)  # Choosing problems asks for the same tensors again and again.
def _contiguous(shape: tuple[int, ...], own: tuple[int, ...]) -> tuple[int, ...]:
    steps, step = [], 1
    for extent, mine in zip(reversed(shape), reversed(own), strict=True):
        steps.append(mine if step == 1 == extent else step)
        step *= max(extent, 1)
    return tuple(reversed(steps))
