from __future__ import annotations

import dataclasses
import itertools
import math
import types
import typing
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runtime.toys import ToyPlan, ToyTiling

from mla_var3.app import options
from mla_var3.errors import PlanError, TilingError, UsageError
from mla_var3.runtime import KernelPlan, Tiling, registry
from mla_var3.workloads.mla import LENGTHS

VERSIONS = registry.versions()
MLA = [v for v in VERSIONS if v.layer == "mla"]
#: Extents that a plan accepts only as powers of two from 16 to 512.
EXTENTS = {"p", "d", "k"}


def values(name: str, hint: Any) -> st.SearchStrategy[Any]:
    """Values of a field by its type."""
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if get_origin(hint) in (typing.Union, types.UnionType):
        inner = [arg for arg in get_args(hint) if arg is not type(None)]
        return st.none() | values(name, inner[0])
    if hint is bool:
        return st.booleans()
    if name == "lengths":
        return st.sampled_from(LENGTHS)
    if hint is str:
        assert name == "dtype"
        return st.sampled_from(["bf16", "fp16", "bfloat16"])
    assert hint is int, f"no strategy for {name}: {hint}"
    return st.sampled_from([16, 32, 64, 128, 256, 512]) if name in EXTENTS else st.integers(1, 300)


def made_valid(plan_class: type[KernelPlan], drawn: dict[str, Any]) -> KernelPlan:
    """The plan with the fewest fields left open, or at their defaults, that the version takes.

    Versions have conditions of their own: a head dimension, rows that TMA can store.
    """
    hints = plan_class.benchmark_kernel_argparse()
    defaults = {field.name: field.default for field in plan_class.option_fields()}
    plain = {n: None if type(None) in get_args(h) else defaults[n] for n, h in hints.items()}
    for count in range(len(drawn) + 1):
        for names in itertools.combinations(drawn, count):
            plan = plan_class(**{**drawn, **{name: plain[name] for name in names}})
            try:
                plan.validate()
            except PlanError:
                continue
            return plan
    plan = plan_class()
    plan.validate()
    return plan


@st.composite
def plans(draw: st.DrawFn, plan_class: type[KernelPlan]) -> KernelPlan:
    """Valid plans with any of the configured tilings on any of the stages."""
    hints = plan_class.benchmark_kernel_argparse()
    plan = made_valid(plan_class, {n: draw(values(n, hint)) for n, hint in hints.items()})
    tilings: dict[str, Tiling] = {}
    for stage, tiling_type in plan.tiling_types.items():
        if not dataclasses.fields(tiling_type):
            continue  # Nothing of it can be fixed by hand, so no flag can say that it was.
        valid = []
        for tiling in [plan.default_tiling(stage), *plan._autotune_configs()[stage]]:
            try:
                tiling.validate(plan)
            except TilingError:
                continue
            valid.append(tiling)
        if chosen := draw(st.none() | st.sampled_from(valid)):
            tilings[stage] = chosen
    return dataclasses.replace(plan, tilings=tilings)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("version", VERSIONS, ids=lambda v: v.name)
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_plan_written_as_flags_is_read_back(version, data):
    plan = data.draw(plans(version.plan_class()))
    read, _ = options.parse(version.plan_class(), options.to_argv(plan))
    assert read == plan


@pytest.mark.sampled(6)
@pytest.mark.parametrize("version", VERSIONS, ids=lambda v: v.name)
def test_no_flags_give_the_defaults_and_help_explains_every_flag(version, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    plan_class = version.plan_class()
    assert options.parse(plan_class, []) == (plan_class(), options.RunOptions())
    with pytest.raises(SystemExit) as exit_:
        options.parse(plan_class, ["--help"])
    assert exit_.value.code == 0
    text = "".join(capsys.readouterr().out.replace("│", "").split())
    fields = [("", plan_class.option_fields()), ("", dataclasses.fields(options.RunOptions))]
    single = len(plan_class.tiling_types) == 1
    fields += [
        ("" if single else f"{stage}.", dataclasses.fields(tiling_type))
        for stage, tiling_type in plan_class.tiling_types.items()
    ]
    for prefix, group in fields:
        for field in group:
            assert f"--{prefix}{field.name}" in text
            assert "".join(field.metadata["help"].split()) in text


def test_a_tilings_flags_change_only_what_they_name():
    plan, _ = options.parse(ToyPlan, ["--tile=8"])
    assert plan.tilings == {"toy": ToyTiling(tile=8)}
    plan, _ = options.parse(ToyPlan, ["--num_worker_warps=8", "--size=3"])
    assert plan == ToyPlan(size=3, tilings={"toy": ToyTiling(num_worker_warps=8)})


def test_a_hint_may_be_left_to_the_compiler_though_the_default_sets_it():
    plan_class = registry.find("flash_mla", "v2").plan_class()
    assert plan_class().default_tiling("attention").num_worker_warps == 8
    with pytest.raises(TilingError, match="it would spill"):
        options.parse(plan_class, ["--num_worker_warps=None"])
    plan, _ = options.parse(plan_class, ["--num_worker_warps=None", "--tile_m=16"])
    assert plan.tilings["attention"].num_worker_warps is None


def test_stages_are_told_apart_by_their_prefix():
    plan_class = registry.find("mla_var6_plus", "v4").plan_class()
    plan, _ = options.parse(plan_class, ["--latent.tile_n=32", "--combine.tile_k=128"])
    assert set(plan.tilings) == {"latent", "combine"}
    assert plan.tilings["latent"] == dataclasses.replace(plan.default_tiling("latent"), tile_n=32)


def test_run_options():
    argv = [
        "--prof_type=event", "--check", "--no_autotune", "--retune", "--tune_max_iters=3",
        "--bench_runs=7", "--out_dir=x/y", "--device=nvidia-b200", "--arch=sm_90,sm_100",
        "--lang=cutile-dsl",
    ]  # fmt: skip
    _, found = options.parse(ToyPlan, argv)
    assert options._flag("causal", False) == ["--no_causal"]
    assert (found.prof_type, found.check, found.no_autotune, found.retune) == (
        "event", True, True, True,
    )  # fmt: skip
    assert (found.tune_max_iters, found.bench_runs) == (3, 7)
    assert (str(found.out_dir), found.device, found.arch) == ("x/y", "nvidia-b200", "sm_90,sm_100")


@pytest.mark.parametrize(
    "flag",
    [
        "--bogus=1", "--b=x", "--b=1.5", "--b", "--prof_type=none", "stray",
        "--out_dir=", "--device=", "--arch=", "--tile_m=None", "--causal=maybe",
        "--b=" + "9" * 5000, "--spread=2", "--tilings=x",
    ],
)  # fmt: skip
def test_a_malformed_flag_is_refused_in_one_sentence(flag):
    with pytest.raises(UsageError, match=r"^.*; see kernel --help$"):
        options.parse(registry.find("flash_mla").plan_class(), [flag])


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("--causl", "--causal"),
        ("--bench_run=3", "--bench_runs"),
        ("--tile_m=64", "--split.tile_m"),
    ],
)
def test_an_unknown_flag_names_the_nearest(typo, meant):
    flag = typo.partition("=")[0]
    with pytest.raises(UsageError, match=rf"^unknown flag {flag} \(did you mean {meant}\?\)"):
        options.parse(registry.find("flash_mla_split_kv").plan_class(), [typo])


@pytest.mark.sampled(5)  # Each size in turn, each version almost once.
@pytest.mark.parametrize("name", ["b", "h", "s", "t"])
@pytest.mark.parametrize("version", MLA, ids=lambda v: v.name)
def test_sizes_that_make_no_sense_are_refused(version, name):
    for value, said in ((0, "is below 1"), (-5, "is below 1"), (10**30, "exceeds 16777216")):
        with pytest.raises(PlanError, match=f"{name}={value} {said}"):
            options.parse(version.plan_class(), [f"--{name}={value}"])


@pytest.mark.parametrize("flag", ["--b=16777216", "--t=16777216 --b=32"])
def test_problems_too_large_together_are_refused_with_the_product(flag):
    argv = flag.split()
    plan_class = registry.find("flash_mla").plan_class()
    with pytest.raises(PlanError, match=r"b\*h\*max\(s,t\)\*512 = .* elements, more than") as error:
        options.parse(plan_class, argv)
    product = str(error.value).split(" = ")[1].split("*")
    assert math.prod(map(int, product)) == int(str(error.value).split(" = ")[2].split()[0])


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--tile_m=24", "tile_m=24 is not a power of two"),
        ("--tile_m=8", "tile_m=8 is below 16"),
        ("--tile_m=256 --tile_n=128", r"^tile_m\*tile_n = 256\*128 = 32768 elements exceed 16384$"),
        ("--num_worker_warps=6", "num_worker_warps=6 is not"),
    ],
)
def test_tilings_are_refused_with_their_arithmetic(flag, said):
    with pytest.raises(TilingError, match=said):
        options.parse(registry.find("flash_mla").plan_class(), flag.split())


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--split.tile_m=24", "stage split: tile_m=24 is not a power of two"),
        ("--reduce.tile_k=1024", "stage reduce: tile_k=1024 exceeds k=512"),
    ],
)
def test_with_several_stages_the_refused_one_is_named(flag, said):
    with pytest.raises(TilingError, match=f"^{said}$"):
        options.parse(registry.find("flash_mla_split_kv").plan_class(), [flag])


@pytest.mark.parametrize(
    ("key", "argv", "said"),
    [
        ("mla_var6_plus v2", ["--latent_splits=4097"], "latent_splits=4097 exceeds t=4096"),
        ("mla_var6_plus v4", ["--decompressed_splits=100000"], "decompressed_splits=100000 exceed"),
        ("flash_mla_split_kv v1", ["--splits=5", "--t=4"], "splits=5 exceeds t=4"),
    ],
)
def test_more_splits_than_keys_are_refused(key, argv, said):
    plan_class = registry.find(*key.split()).plan_class()
    with pytest.raises(PlanError, match=f"^{said}.*: some pieces would have no key$"):
        options.parse(plan_class, argv)


@pytest.mark.parametrize("name", ["bfloat16", "bf16"])
def test_element_types_have_torchs_names_and_short_ones(name):
    plan, _ = options.parse(ToyPlan, [f"--dtype={name}"])
    assert plan.dtype == "bf16"
    assert "bf16" in plan.slug()


def test_another_element_type_is_refused_with_those_there_are():
    with pytest.raises(PlanError, match=r"dtype='fp8' is not one of bf16, fp16 .*float16"):
        options.parse(ToyPlan, ["--dtype=fp8"])


def test_a_small_problem_has_as_few_splits_as_keys():
    plan, _ = options.parse(
        registry.find("mla_var6_plus", "v2").plan_class(), ["--latent_splits=300", "--n=2000"]
    )
    small = plan.shrunk()
    small.validate()
    assert (small.t, small.latent_splits, small.decompressed_splits) == (200, 200, None)


@pytest.mark.parametrize("flag", ["--bench_runs=0", "--tune_max_iters=-1"])
def test_run_options_below_their_minimum_are_refused(flag):
    with pytest.raises(UsageError, match=f"{flag} is below 1"):
        options.parse(ToyPlan, [flag])
