"""Footprint of a memory access: the flat offsets it touches, as strided or scattered elements.

Loads, stores and atomics read and write by it, and the race check marks elements by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


class Strided:
    """Elements at ``offset + sum(i * stride)``, as the elements of a tile lie in memory."""

    __slots__ = ("offset", "shape", "strides")

    def __init__(self, offset: int, shape: Sequence[int], strides: Sequence[int]) -> None:
        self.offset, self.shape, self.strides = offset, tuple(shape), tuple(strides)

    def of(self, flat: torch.Tensor) -> torch.Tensor:
        """Returns these elements of a flat tensor, as a view."""
        return flat.as_strided(self.shape, self.strides, self.offset)

    def put(self, flat: torch.Tensor, value: Any) -> None:
        """Sets these elements of a flat tensor to a tensor or a number."""
        view = flat.as_strided(self.shape, self.strides, self.offset)
        if isinstance(value, torch.Tensor):
            view.copy_(value)
        else:
            view.fill_(value)

    def scaled(self, factor: int) -> Strided:
        """Returns the footprint in units ``factor`` times smaller."""
        return Strided(
            self.offset * factor,
            (*self.shape, factor),
            (*(s * factor for s in self.strides), 1),
        )

    def offsets(self) -> torch.Tensor:
        """Returns the flat offset of each element."""
        out = torch.tensor(self.offset)
        for axis, (n, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            steps = torch.arange(n) * stride
            out = out + steps.reshape([-1] + [1] * (len(self.shape) - axis - 1))
        return out


class Scattered:
    """Elements at a one-dimensional tensor of offsets, as a gather or scatter touches them."""

    __slots__ = ("index",)

    def __init__(self, index: torch.Tensor) -> None:
        self.index = index

    def of(self, flat: torch.Tensor) -> torch.Tensor:
        """Returns a copy of these elements of a flat tensor."""
        return flat[self.index]

    def put(self, flat: torch.Tensor, value: Any) -> None:
        """Sets these elements of a flat tensor to a tensor or a number."""
        flat[self.index] = value

    def scaled(self, factor: int) -> Scattered:
        """Returns the footprint in units ``factor`` times smaller."""
        return Scattered((self.index[:, None] * factor + torch.arange(factor)).flatten())

    def offsets(self) -> torch.Tensor:
        """Returns the flat offset of each element."""
        return self.index


Footprint = Strided | Scattered
