"""Text of tiles for prints and reports: all elements if small, else statistics and a window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

#: Elements along each axis of a window.
WINDOW = 4

Format = Callable[[Any], str]


def nested(value: Any, form: Format) -> str:
    """Returns nested lists of elements, each in a format."""
    if isinstance(value, list):
        return "[" + ", ".join(nested(item, form) for item in value) + "]"
    return form(value)


def figures(tile: torch.Tensor) -> str:
    """Returns shape, dtype, range and what is not finite of a tile."""
    text = f"{'x'.join(map(str, tile.shape))} {str(tile.dtype).removeprefix('torch.')}"
    wide = tile.double()
    finite = wide[torch.isfinite(wide)]
    if finite.numel():
        low, high, mean = (float(f) for f in (finite.min(), finite.max(), finite.mean()))
        text += f", min {low:g}, max {high:g}, mean {mean:g}"
    for name, found in (("NaN", torch.isnan(wide)), ("Inf", torch.isinf(wide))):
        if count := int(found.sum()):
            text += f", {count} {name}"
    return text


def window(tile: torch.Tensor) -> torch.Tensor:
    """Returns the first elements along each axis."""
    return tile[tuple(slice(0, WINDOW) for _ in tile.shape)]


def large(tile: torch.Tensor, form: Format, values: Any) -> str:
    """Returns figures of a tile, and its window in a format.

    Args:
        tile: The tile.
        form: How an element is written.
        values: The elements of the window, as nested lists.
    """
    return f"<{figures(tile)}; first: {nested(values, form)}>"


def brief(value: Any) -> str:
    """Returns any value of a kernel in one line."""
    if isinstance(value, torch.Tensor):
        if value.numel() <= WINDOW * WINDOW:
            return nested(value.tolist(), _general)
        return large(value, _general, window(value).tolist())
    return repr(value)


def _general(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
