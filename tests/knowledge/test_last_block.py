"""A counter of finished splits orders their parts only if it acquires and releases (O16)."""

from __future__ import annotations

import cuda.tile as ct
import pytest
import torch

from mla_var3.interpreter import launch

SPLITS = 4


@ct.kernel
def merged(parts: ct.Array, done: ct.Array, out: ct.Array, ORDERED: ct.Constant[bool]) -> None:
    ct.store(parts, (ct.bid(0),), ct.full((), 2.0, ct.float32))
    if ORDERED:
        before = ct.atomic_add(done, 0, 1, memory_order=ct.MemoryOrder.ACQ_REL)
    else:
        before = ct.atomic_add(done, 0, 1, memory_order=ct.MemoryOrder.RELAXED)
    if before.item() == SPLITS - 1:
        ct.store(out, (0,), ct.sum(ct.load(parts, (0,), (SPLITS,)), axis=0))


@pytest.mark.parametrize(("ordered", "kinds"), [(True, set()), (False, {"read-write-hazard"})])
def test_a_relaxed_counter_orders_nothing(ordered: bool, kinds: set[str]) -> None:
    done, out = torch.zeros(1, dtype=torch.int32), torch.zeros(1)
    report = launch((SPLITS,), merged, (torch.empty(SPLITS), done, out, ordered))
    assert out.item() == 2.0 * SPLITS
    assert {str(found.kind) for found in report.errors} == kinds
