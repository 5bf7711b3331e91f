"""What is said of a launch's arrays once it is over: gaps in outputs, whatever else lies there."""

from __future__ import annotations

import cuda.tile as ct
import pytest
import torch

from tests.interpreter.helpers import only, run


@ct.kernel
def some(x, y, n: ct.Constant[int], first: ct.Constant[int]):
    ct.store(y, (first,), ct.full((n,), 1, dtype=y.dtype) + ct.load(x, (0,), (1,)).astype(y.dtype))


@pytest.mark.parametrize(
    ("n", "first", "gaps", "place"), [(4, 0, 12, 4), (8, 1, 8, 0), (4, 2, 12, 0), (2, 0, 14, 2)]
)
@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.float32])
def test_the_first_element_that_nothing_writes_is_named(
    dtype: torch.dtype, n: int, first: int, gaps: int, place: int
) -> None:
    """Also where another argument of single bytes makes the pieces of memory narrower."""
    for narrow in (False, True):
        room = torch.zeros(16 * 4 + 16, dtype=torch.int8)
        y = room[16:].view(dtype)[:16]
        x = room[:1] if narrow else torch.zeros(1, dtype=torch.int8)
        found = only(run(some, x, y, n, first), "never-written")
        assert found.message == (
            f"{gaps} of 16 elements of 'y' are never written; the first is y[{place}]"
        )
