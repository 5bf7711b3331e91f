"""Values in one line: all of a small tile, figures and a window of a large one."""

from __future__ import annotations

import pytest
import torch

from mla_var3.interpreter.arrays import Pointer, View
from mla_var3.interpreter.launch_report import DiagnosticLog
from mla_var3.interpreter.memory import Memory
from mla_var3.interpreter.show import WINDOW, brief, figures, window


def test_numbers_are_written_as_they_are() -> None:
    assert [brief(x) for x in (3, True, 0.5)] == ["3", "True", "0.5"]
    assert brief(torch.tensor([1.0, 0.25, 1e-7])) == "[1, 0.25, 1e-07]"
    assert brief(torch.tensor([[1, 2], [3, 4]])) == "[[1, 2], [3, 4]]"
    assert brief(torch.tensor(7)) == "7"


def test_pointers_and_views_are_named() -> None:
    x = Memory(DiagnosticLog(), True).add_arrays([("x", torch.zeros(4, 6))])[0]
    pointer = Pointer(x, 0, 4)
    assert brief(pointer) == "<pointer into x>"
    assert brief(View(pointer, (2, 3), (6, 1), torch.float32)) == (
        "<array x, shape (2, 3), strides (6, 1)>"
    )


@pytest.mark.parametrize("shape", [(WINDOW, WINDOW), (WINDOW * WINDOW,), (WINDOW * WINDOW + 1,)])
def test_a_large_tile_is_shown_by_its_first_elements(shape: tuple[int, ...]) -> None:
    tile = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    text = brief(tile)
    if tile.numel() <= WINDOW * WINDOW:
        assert text.count(",") == tile.numel() - 1
        assert text.endswith("]")
    else:
        assert text == f"<{figures(tile)}; first: [{', '.join(str(i) for i in range(WINDOW))}]>"
    assert window(tile).shape == tuple(min(n, WINDOW) for n in shape)
