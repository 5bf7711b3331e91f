"""What a compiled kernel is handed: tensors that begin where it was built for."""

from __future__ import annotations

import torch

from mla_var3.serving import launching


def begins_at(offset, *shape, dtype=torch.float32):
    """Ones that begin some elements past a multiple of 16 bytes."""
    size = torch.Size(shape).numel()
    return torch.ones(size + offset, dtype=dtype)[offset:].view(shape)


def kernel(lengths, lse):
    """Refuses what a library would refuse, and writes each length plus one."""
    assert all(x.data_ptr() % launching.ALIGNMENT == 0 for x in (lengths, lse))
    lse.copy_(lengths + 1)


def test_slices_are_copied_and_results_come_back():
    lengths, lse = begins_at(1, 3, dtype=torch.int32), begins_at(2, 3)
    launching.run(kernel, (lengths, lse), [lse])
    assert lse.tolist() == [2, 2, 2]
    assert lengths.tolist() == [1, 1, 1]


def test_a_view_of_an_output_comes_back_too():
    whole = torch.zeros(2, 3)
    part = whole[:, 1:2]
    launching.run(kernel, (torch.tensor([[4], [6]]).int(), part), [part])
    assert whole.tolist() == [[0, 5, 0], [0, 7, 0]]


def test_what_begins_right_is_handed_on():
    seen = []
    lengths, cache = begins_at(0, 3, dtype=torch.int32), begins_at(1, 3, dtype=torch.bfloat16)
    launching.run(lambda *given: seen.extend(given), (lengths, cache, 1.0), [])
    assert seen[0] is lengths
    assert seen[1] is cache  # checks refuses it, with its name
    assert seen[2] == 1.0
