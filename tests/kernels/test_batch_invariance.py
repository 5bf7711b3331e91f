"""A sequence has the same bits in any batch, where the length of a part is fixed."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

from mla_var3.errors import PlanError, TilingError
from mla_var3.runtime.tiling import Tiling

from .attention_cases import make

pytest.importorskip("cutlass", reason="needs nvidia-cutlass-dsl")

DESIGN = ("flash_mla@cute-dsl", "v5")
Inputs = tuple[torch.Tensor, ...]


def outputs(inputs: Inputs, settle: Callable[[], None] = lambda: None, **fields) -> Inputs:
    """o and lse of some sequences."""
    plan = make(*DESIGN, b=len(inputs[0]), **fields)
    found = plan.plan(*inputs)()
    settle()
    return found["o"], found["lse"]


def same_bits(one: Inputs, other: Inputs) -> bool:
    return all(
        torch.equal(x.contiguous().view(torch.uint8), y.contiguous().view(torch.uint8))
        for x, y in zip(one, other, strict=True)
    )


@pytest.mark.parametrize(("b", "t", "parts"), [(1, 4096, 2), (32, 4096, 2), (4, 32768, 16)])
def test_parts_and_what_ctas_share_depend_on_the_length_alone(b, t, parts):
    plan = make(*DESIGN, b=b, h=128, s=1, t=t, invariant=2048)
    assert plan.part_count == parts
    assert plan.default_tiling("attention").splits == 1
    assert {x.splits for x in plan._autotune_configs()["attention"]} == {1}


def test_what_would_change_the_order_is_refused():
    with pytest.raises(PlanError, match="parts=2 and invariant=2048: give one of them"):
        make(*DESIGN, parts=2, invariant=2048).validate()
    plan = make(*DESIGN, b=1, h=16, s=1, t=256, invariant=128)
    tiling: Tiling = type(plan.default_tiling("attention"))(splits=2)
    with pytest.raises(TilingError, match="splits=2 merges in another order"):
        tiling.validate(plan)


@pytest.mark.exhaustive  # A minute, most of it the compiler's.
def test_in_the_emulator_a_neighbor_changes_no_bit():
    sizes = {"h": 16, "s": 1, "t": 200}
    both = make(*DESIGN, b=2, **sizes).prepare_inputs()
    alone = tuple(x[1:].contiguous() for x in both)
    fixed = [outputs(x, invariant=128, **sizes) for x in (both, alone)]
    assert same_bits(tuple(x[1:] for x in fixed[0]), fixed[1])
    # The test could not fail if other parts gave the same bits.
    other = outputs(alone, parts=1, **sizes)
    assert not same_bits(other, fixed[1])


@pytest.mark.gpu
def test_200_random_batches_on_a_gpu():
    draw, sizes = random.Random(0), {"h": 128, "s": 1, "t": 4096}
    b, length = 48, {"invariant": 2048}
    pool = make(*DESIGN, b=b, **sizes).prepare_inputs("cuda")
    alone = [outputs(tuple(x[i : i + 1] for x in pool), **sizes, **length) for i in range(b)]
    for _ in range(200):
        chosen = draw.sample(range(b), draw.randint(1, b))
        batch = tuple(x[chosen].contiguous() for x in pool)
        found = outputs(batch, torch.cuda.synchronize, **sizes, **length)
        for place, number in enumerate(chosen):
            assert same_bits(tuple(x[place : place + 1] for x in found), alone[number]), chosen
