"""What the source of a CuTe kernel says of its launch and its accumulators."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.languages import Tile, find
from mla_var3.runtime import registry
from tests.languages.cute.conftest import needs_dsl

pytestmark = needs_dsl
LANGUAGE = find("cute-dsl")


def kernels(design: str, version: str, tiling: dict[str, object] | None = None, **sizes: object):
    """The kernels of a plan by stage, some fields of each tiling set."""
    plan = registry.find(design, version, "cute-dsl").plan_class()(**sizes)
    made = dict(plan.plan_empty(plan.target.tflops, plan.target.gbps).stages())
    for kernel in made.values():
        known = {name: x for name, x in (tiling or {}).items() if name in kernel.tiling.values()}
        kernel.tiling = type(kernel.tiling)(**{**kernel.tiling.values(), **known})
    return list(made.values())


extents = st.integers(1, 20).map(lambda steps: 64 * steps)


@settings(max_examples=20, deadline=None)
@given(m=extents, n=extents)
def test_a_grid_is_the_arithmetic_of_the_host_function(m, n):
    (kernel,) = kernels("hopper_gemm", "v2", m=m, n=n, k=128)
    assert LANGUAGE.grid(kernel) == (-(-n // 256), -(-m // 128), 1)


@settings(max_examples=20, deadline=None)
@given(m=extents, blocks=st.integers(1, 40))
def test_persistent_ctas_are_at_most_the_tiles(m, blocks):
    (kernel,) = kernels("hopper_gemm", "v3", {"blocks": blocks}, m=m, n=256, k=128)
    assert LANGUAGE.grid(kernel) == (min(blocks, -(-m // 128)), 1, 1)


def test_a_launch_in_another_method_is_found_through_views_of_the_tensors():
    (kernel,) = kernels("hopper_attention", "v1", b=2, h=4, s=300, t=512)
    assert LANGUAGE.grid(kernel) == (2 * 4 * 3, 1, 1)


def test_each_kernel_of_a_pipeline_has_its_own_grid():
    attention, merge = kernels("flash_mla", "v5", b=1, h=128, s=2, t=32768, parts=8)
    assert LANGUAGE.grid(merge) == (256, 1, 1)
    assert LANGUAGE.grid(attention)[0] > 1


def test_what_takes_a_layout_is_not_told():
    combine = kernels("mla_shared_prefix", "v0", b=2, h=16, s=4, t=512, shared=256)[-1]
    assert LANGUAGE.grid(combine) == ()
    assert LANGUAGE.tiles(combine, registry.find("gemm", "v0").path, {}) == ()


@pytest.mark.parametrize(
    ("design", "version", "wanted"),
    [
        ("hopper_gemm", "v1", (Tile("acc", 64, 256, True, 128),)),
        ("hopper_gemm", "v4", (Tile("acc", 128, 256, True, 256),)),
        ("hopper_attention", "v0",
         (Tile("out", 64, 128, True, 128), Tile("score", 64, 96, True, 128))),
        ("mla_shared_prefix", "v2",
         (Tile("out", 64, 256, True, 128), Tile("score", 64, 96, True, 128))),
    ],
)  # fmt: skip
def test_accumulators_are_those_of_the_tiling(design, version, wanted):
    first = kernels(design, version, {"keys": 96, "stages": 2})[0]
    shown = {
        tile.name: tile for tile in LANGUAGE.tiles(first, registry.find("gemm", "v0").path, {})
    }
    assert tuple(shown.values()) == wanted
