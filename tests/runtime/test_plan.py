from __future__ import annotations

import re

import pytest

from mla_var3.devices import Machine
from mla_var3.errors import PlanError, TilingError
from mla_var3.runtime import KernelPlan, registry
from mla_var3.runtime.ct_kernel import CutileTiling, require_power_of_two
from mla_var3.workloads import Cost

from .toys import ToyPlan, ToyTiling

VERSIONS = registry.versions()
PEAKS = (694.0, 4270.0)
MACHINE = Machine("nvidia-h200-sxm", *PEAKS, 132)


def test_cost_adds():
    assert Cost(1, 2) + Cost(30, 40) == Cost(31, 42)


@pytest.mark.parametrize(
    ("hints", "message"),
    [
        ({"num_ctas": 3}, "num_ctas=3 is not a power of two"),
        ({"num_ctas": 0}, "num_ctas=0 is below 1"),
        ({"num_ctas": 32}, "num_ctas=32 exceeds 16"),
        ({"num_worker_warps": 2}, "num_worker_warps=2 is below 4"),
        ({"num_worker_warps": 6}, "num_worker_warps=6 is not a power of two"),
        ({"num_worker_warps": 16}, "num_worker_warps=16 is not 4 or 8"),
        ({"occupancy": 33}, "occupancy=33 exceeds 32"),
        ({"occupancy": -1}, "occupancy=-1 is below 1"),
        ({"tile": 12}, "tile=12 is not a power of two"),
        ({"tile": 1024}, "tile=1024 exceeds 8*size = 320"),
    ],
)
def test_a_tiling_is_refused_with_its_arithmetic(hints, message):
    with pytest.raises(TilingError, match=re.escape(message)):
        ToyTiling(**hints).validate(ToyPlan())


@pytest.mark.parametrize("value", [0, -4, 3, 6, 100])
def test_tile_extents_are_powers_of_two(value):
    with pytest.raises(TilingError, match=f"tile_x={value} is not"):
        require_power_of_two(tile_y=8, tile_x=value)


def test_hints_are_those_that_are_set():
    assert CutileTiling().hints() == {}
    assert CutileTiling(occupancy=2, num_worker_warps=8).hints() == {
        "occupancy": 2,
        "num_worker_warps": 8,
    }


def test_the_users_tiling_wins_and_is_validated():
    assert ToyPlan().tiling("toy") == ToyTiling()
    chosen = ToyPlan(tilings={"toy": ToyTiling(tile=8)})
    assert chosen.tiling("toy").tile == 8
    with pytest.raises(TilingError):
        ToyPlan(tilings={"toy": ToyTiling(tile=9)}).tiling("toy")


def test_sizes_below_their_minimum_and_other_types_are_refused():
    with pytest.raises(PlanError, match="size=0 is below 1"):
        ToyPlan(size=0).validate()
    with pytest.raises(PlanError, match="extra=-1 is below 0"):
        ToyPlan(extra=-1).validate()
    with pytest.raises(PlanError, match=r"dtype='fp8' is not one of bf16, fp16 .*float16"):
        ToyPlan(dtype="fp8").validate()  # type: ignore[arg-type]


@pytest.mark.parametrize(("given", "kept"), [("bfloat16", "bf16"), ("float16", "fp16")])
def test_torchs_names_of_dtypes_are_taken(given, kept):
    assert ToyPlan(dtype=given) == ToyPlan(dtype=kept)


@pytest.mark.parametrize("sms", [1, 132, 170])
def test_grids_are_sized_for_the_device_that_a_plan_was_resolved_for(sms):
    plan = registry.find("gemm", "v1").plan_class()().resolve(Machine("any", *PEAKS, sms))
    [(_, kernel)] = plan.plan(*plan.prepare_inputs("meta")).stages()
    assert kernel.grid() == (sms,)


def test_hidden_fields_are_no_part_of_the_problem():
    assert ToyPlan().problem() == {"dtype": "bf16", "size": 40, "wrong": False, "extra": None}
    assert ToyPlan(factor=9.0).slug() == ToyPlan().slug() == "size40-bf16"
    assert ToyPlan(wrong=True, extra=0, dtype="fp16").slug() == "size40-extra0-fp16-wrong"
    assert set(ToyPlan.benchmark_kernel_argparse()) == set(ToyPlan().problem())


def test_a_plan_without_its_methods_cannot_be_made():
    with pytest.raises(TypeError, match="abstract"):
        KernelPlan()  # type: ignore[abstract]


def test_an_open_size_is_resolved_before_planning():
    assert ToyPlan().resolve(MACHINE).extra == 7
    assert ToyPlan(extra=3).resolve(MACHINE).extra == 3
    assert KernelPlan.resolve(ToyPlan(), MACHINE).extra is None


def made_small(plan):
    """A problem made small, or the first small one that is taken where a library takes few."""
    small = plan.resolve(MACHINE).shrunk()
    return small if small.is_valid() else plan.check_plans()[0].resolve(MACHINE)


@pytest.mark.parametrize("version", VERSIONS, ids=lambda v: v.name)
class TestEveryVersion:
    def test_plan_empty_has_the_structure_without_memory(self, version):
        small = made_small(version.plan_class()())
        real, empty = small.plan(*small.prepare_inputs("cpu")), small.plan_empty(*PEAKS)
        assert [path for path, _ in real.stages()] == [path for path, _ in empty.stages()]
        empty = version.plan_class()().plan_empty(*PEAKS)
        for _, kernel in empty.stages():
            tensors = [
                *kernel.input_tensors.values(),
                *kernel.output_tensors.values(),
            ]
            assert {x.device.type for x in tensors} == {"meta"}
            assert len(kernel.grid()) in (0, 1, 2, 3)
        assert empty.flops > 10**10
        assert set(empty.tilings()) == {path for path, _ in empty.stages()}

    def test_all_its_tilings_pass_validate(self, version):
        plan = version.plan_class()()
        configs = plan._autotune_configs()
        assert set(configs) == set(plan.tiling_types)
        for stage, tiling_type in plan.tiling_types.items():
            assert configs[stage] or version.language == "library"
            for tiling in [plan.default_tiling(stage), *configs[stage]]:
                assert type(tiling) is tiling_type
                tiling.validate(plan)

    def test_its_stages_are_those_it_declares_tilings_for(self, version):
        plan = version.plan_class()()
        stages = plan.plan_empty(*PEAKS).stages()
        names = [kernel.name for _, kernel in stages]
        assert names == [name for name in plan.tiling_types if name in names]

    def test_its_small_problems_are_small_and_valid(self, version):
        plan = version.plan_class()()
        for small in [*plan.check_plans(), made_small(plan)]:
            small.validate()
            assert type(small) is type(plan)
            assert small._algorithmic_flops_bytes().flops < 2e9

    def test_shrinking_keeps_what_is_small(self, version):
        plan = version.plan_class()().resolve(MACHINE).shrunk()
        assert plan.shrunk() == plan

    def test_slugs_are_file_names(self, version):
        for plan in version.plan_class()().check_plans():
            assert re.fullmatch(r"[a-z0-9_-]+", plan.slug())
