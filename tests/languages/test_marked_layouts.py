"""The layouts that docs/messages/compiles-again.md names for tensors with dynamic extents."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
runtime = pytest.importorskip("cutlass.cute.runtime")


def shown(mark) -> str:
    """How a tensor of 3 rows of 64 prints once it is marked."""
    return str(mark(runtime.from_dlpack(torch.zeros(3, 64))))


@pytest.mark.parametrize(
    ("mark", "layout"),
    [
        (lambda x: x, "(3,64):(64,1)"),
        (lambda x: x.mark_layout_dynamic(), "(?,?):(?{i64},1)"),
        (lambda x: x.mark_compact_shape_dynamic(mode=0), "(?,64):(64,1)"),
        (lambda x: x.mark_compact_shape_dynamic(mode=1, divisibility=8), "(3,?{div=8})"),
    ],
)
def test_only_what_is_marked_is_dynamic(mark, layout: str) -> None:
    assert layout.split(":")[0] in shown(mark)
    if ":" in layout:
        assert layout in shown(mark)
