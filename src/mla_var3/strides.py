"""Strides as a kernel is compiled for them and called with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def strides_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """Strides in elements; a contiguous tensor's by its shape.

    torch leaves an axis of one element any stride, which would be no multiple of what it is for
    more elements.
    """
    shaped = tensor.new_empty(tensor.shape, device="meta") if tensor.is_contiguous() else tensor
    return shaped.stride()
