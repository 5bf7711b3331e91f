"""Plans of the CuTe DSL kernels: what they choose, launch and refuse."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch

from mla_var3.devices import default_for_arch
from mla_var3.errors import PlanError, TilingError
from mla_var3.runtime import KernelPipeline, KernelPlan, registry
from mla_var3.runtime.check import check_plan, compare
from mla_var3.runtime.memory import poison_outputs

pytest.importorskip("cutlass", reason="needs nvidia-cutlass-dsl")

FLASH_MLA = ("flash_mla", *(f"flash_mla_v{i}" for i in range(1, 13)))
#: Versions whose CTAs exchange through L2.
EXCHANGING = ("flash_mla_v10", "flash_mla_v11", "flash_mla_v12")
HOPPER_GEMM = ("hopper_gemm", *(f"hopper_gemm_v{i}" for i in range(1, 5)))
HOPPER_ATTENTION = ("hopper_attention", *(f"hopper_attention_v{i}" for i in range(1, 4)))
SHARED_PREFIX = ("mla_shared_prefix", *(f"mla_shared_prefix_v{i}" for i in range(1, 6)))
#: Versions whose blocks of the prefix add the own tokens.
MERGING = SHARED_PREFIX[4:]
THIN_MLA = ("thin_mla", "thin_mla_v1", "thin_mla_v2", "thin_mla_v3")
#: Versions of thin_mla whose parts meet through L2, and those of them that count who is there.
THIN_MEETING, THIN_COUNTING = THIN_MLA[1:], THIN_MLA[1:3]
FLASH_ATTENTION = ("flash_attention", "flash_attention_v1")
#: MLA kernels whose plans share two tests.
SLABS = (*FLASH_MLA, *THIN_MLA, *FLASH_ATTENTION, "mla_var6_plus")
MIXES = ("mla_var6_plus", "mla_var6_plus_v1")


def plan_class(name: str) -> type[KernelPlan]:
    design = re.sub(r"_v\d+$", "", name)
    version = name.removeprefix(design + "_") if name != design else "v0"
    return registry.find(design, version, "cute-dsl").plan_class()


def stage_of(plan: KernelPlan | type[KernelPlan]) -> str:
    """The stage that a version is about: its first."""
    return next(iter(plan.tiling_types))


def planned(plan: KernelPlan):
    plan.validate()
    return plan.plan(*plan.prepare_inputs("meta"))


def refuses(plan: KernelPlan, stage: str, said: str, **fields: object) -> None:
    """The stage's default tiling, with other fields, ends with what is said."""
    tiling = dataclasses.replace(plan.default_tiling(stage), **fields)
    with pytest.raises(TilingError, match=said):
        tiling.validate(plan)


@pytest.mark.parametrize("name", [*FLASH_MLA, *THIN_MLA])
def test_flash_mla_writes_what_the_problem_asks_for(name):
    plan = plan_class(name)(b=2, h=16, s=3, t=100, causal=True)
    outputs = planned(plan).output_tensors
    assert outputs["o"].shape == (2, 16, 3, 512)
    assert outputs["lse"].shape == (2, 16, 3)


@pytest.mark.parametrize("name", HOPPER_GEMM)
def test_hopper_gemm_writes_c(name):
    runtime_object = planned(plan_class(name)(m=100, n=72, k=40))
    assert runtime_object.output_tensors["c"].shape == (100, 72)
    assert runtime_object.function_name == "gemm"


@pytest.mark.parametrize("name", [*SLABS, *HOPPER_GEMM, *HOPPER_ATTENTION])
def test_tilings_worth_timing_are_legal(name):
    plan = plan_class(name)()
    for configs in plan._autotune_configs().values():
        assert configs
        for tiling in configs:
            tiling.validate(plan)


@pytest.mark.parametrize("name", [*SLABS, *HOPPER_GEMM, *HOPPER_ATTENTION])
def test_problems_of_check_are_accepted(name):
    plans = plan_class(name)().check_plans()
    assert len(plans) >= 5
    for plan in plans:
        planned(plan)


def test_no_slab_past_the_columns_is_stored():
    # Along an extent of one slab, the coordinate of every slab is 0.
    result = check_plan(plan_class("hopper_gemm")(m=3, n=64, k=8))
    assert result.ok, result.explain()


@pytest.mark.parametrize(
    ("sizes", "splits", "share", "blocks"),
    [
        ({"b": 32, "h": 128, "s": 1}, 2, 1, 132),
        ({"b": 32, "h": 128, "s": 4}, 1, 2, 128),
        ({"b": 32, "h": 128, "s": 16}, 1, 2, 128),
        ({"b": 128, "h": 16, "s": 1}, 1, 1, 132),
    ],
)
def test_v4_chooses_what_ctas_share_by_the_row_tiles(sizes, splits, share, blocks):
    tiling = plan_class("flash_mla_v4")(t=4096, **sizes).default_tiling("attention")
    assert (tiling.splits, tiling.share, tiling.blocks) == (splits, share, blocks)


def test_v4_refuses_splits_that_do_not_run_at_once():
    plan = plan_class("flash_mla_v4")(b=64, h=128, s=1)
    refuses(plan, "attention", "splits=2 and share=1 take 256 CTAs at once", splits=2, share=1)


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ({"b": 1, "h": 128, "t": 32768}, 33),
        ({"b": 4, "h": 128, "t": 32768}, 8),
        ({"b": 32, "h": 128, "t": 4096}, 1),
        ({"b": 1, "h": 16, "t": 64}, 1),
    ],
)
def test_v5_fills_the_sms_with_parts(sizes, parts):
    plan = plan_class("flash_mla_v5")(s=1, **sizes)
    assert plan.part_count == parts
    assert isinstance(planned(plan), KernelPipeline) is (parts > 1)


@pytest.mark.parametrize(
    ("sizes", "splits", "share", "blocks"),
    [
        ({"b": 32, "h": 128, "s": 1, "t": 4096}, 2, 1, 132),
        ({"b": 33, "h": 128, "s": 1, "t": 4096}, 2, 1, 132),
        ({"b": 32, "h": 128, "s": 4, "t": 4096}, 1, 2, 128),
    ],
)
def test_v7_keeps_to_pairs_by_default(sizes, splits, share, blocks):
    tiling = plan_class("flash_mla_v7")(**sizes).default_tiling("attention")
    assert (tiling.splits, tiling.share, tiling.blocks) == (splits, share, blocks)


@pytest.mark.parametrize(
    ("said", "fields"),
    [
        (r"splits\*share = 2\*4 exceeds 4 CTAs", {"splits": 2, "share": 4}),
        ("blocks=130 is not a positive multiple of 4", {"splits": 1, "share": 4, "blocks": 130}),
        ("splits=2 and share=2 take 256 CTAs at once", {"splits": 2, "share": 2}),
    ],
)
def test_v7_refuses_clusters_that_do_not_run_at_once(said, fields):
    refuses(plan_class("flash_mla_v7")(b=64, h=128, s=1), "attention", said, **fields)


@pytest.mark.parametrize("name", EXCHANGING)
@pytest.mark.parametrize(
    ("sizes", "splits", "share", "parts"),
    [
        ({"b": 32, "h": 128, "s": 1, "t": 4096}, 2, 2, 1),
        ({"b": 4, "h": 128, "s": 1, "t": 32768}, 2, 2, 8),
        ({"b": 1, "h": 128, "s": 1, "t": 32768}, 2, 2, 33),
        ({"b": 33, "h": 128, "s": 1, "t": 4096}, 2, 2, 1),
        ({"b": 22, "h": 192, "s": 1, "t": 4096}, 2, 1, 1),
        ({"b": 32, "h": 64, "s": 1, "t": 4096}, 2, 1, 2),
        ({"b": 32, "h": 128, "s": 4, "t": 4096}, 1, 2, 1),
    ],
)
def test_v10_splits_and_shares_where_all_ctas_run_at_once(name, sizes, splits, share, parts):
    plan = plan_class(name)(**sizes)
    tiling = plan.default_tiling("attention")
    assert (tiling.splits, tiling.share, plan.part_count) == (splits, share, parts)


@pytest.mark.parametrize("name", EXCHANGING)
def test_v10_has_a_place_for_every_cta_that_splits(name):
    plan = plan_class(name)(b=3, h=64 * 3, s=1, t=4096, parts=2)
    exchange, signals = plan.exchanged("cpu").values()
    assert exchange.shape == (plan.blocks(2, 2), 64 * 256 + 2 * 64)
    assert not signals.any()
    assert plan_class(name)(b=64, h=128, s=1).exchanged("cpu")["exchange"].shape[0] == 1


@pytest.mark.parametrize("name", EXCHANGING)
def test_v10_refuses_ctas_that_would_wait_for_those_that_do_not_run(name):
    said = "splits=2 and share=2 take 256 CTAs at once, more than the 132 of blocks and SMs"
    fields = {"splits": 2, "share": 2, "blocks": 256}
    refuses(plan_class(name)(b=64, h=128, s=1), "attention", said, **fields)


@pytest.mark.exhaustive  # Six minutes, most of them the emulator's.
@pytest.mark.parametrize(
    ("name", "sizes", "tiling"),
    [
        ("flash_mla_v7", {"s": 1, "t": 300}, {"splits": 2, "share": 2}),
        ("flash_mla_v8", {"s": 1, "t": 300}, {"splits": 2, "share": 2}),
        ("flash_mla_v11", {"s": 1, "t": 300}, {"splits": 2, "share": 2}),
        (
            "flash_mla_v8",
            {"s": 3, "t": 200, "causal": True},
            {"splits": 1, "share": 4, "blocks": 4},
        ),
    ],
)
def test_four_ctas_that_share_and_split_are_right(name, sizes, tiling):
    plan = plan_class(name)(b=1, h=128, parts=1, **sizes)
    chosen = dataclasses.replace(plan.default_tiling("attention"), **tiling)
    result = check_plan(dataclasses.replace(plan, tilings={"attention": chosen}))
    assert result.ok, result.explain()


@pytest.mark.parametrize(
    ("sizes", "columns", "splits", "parts"),
    [
        ({"b": 32, "h": 16, "t": 4096}, 16, 2, 2),
        ({"b": 32, "h": 8, "t": 4096}, 8, 2, 2),
        ({"b": 16, "h": 32, "t": 4096}, 32, 2, 4),
        ({"b": 20, "h": 16, "t": 4096}, 16, 2, 3),
        ({"b": 1, "h": 16, "t": 32768}, 16, 2, 66),
        ({"b": 1, "h": 16, "t": 256}, 16, 2, 1),  # a CTA has a tile per warpgroup at least
        ({"b": 200, "h": 16, "t": 4096}, 16, 1, 1),
        ({"b": 1, "h": 128, "t": 65536}, 32, 2, 16),  # four row tiles
    ],
)
def test_thin_mla_pads_rows_to_columns_and_fills_the_sms(sizes, columns, splits, parts):
    v0 = plan_class("thin_mla")(s=1, **sizes)
    tiling = v0.default_tiling("attention")
    assert (tiling.columns, tiling.splits, v0.part_count) == (columns, splits, parts)
    assert isinstance(planned(v0), KernelPipeline) is (parts > 1)
    for name in THIN_COUNTING:
        plan = plan_class(name)(s=1, **sizes)
        tiling = plan.default_tiling(name)
        assert (tiling.columns, tiling.splits, tiling.parts) == (columns, splits, parts)
        assert not isinstance(planned(plan), KernelPipeline)


@pytest.mark.parametrize(
    ("sizes", "columns", "parts"),
    [
        ({"b": 32, "h": 16, "t": 4096}, 16, 4),
        ({"b": 16, "h": 32, "t": 4096}, 32, 8),
        ({"b": 20, "h": 16, "t": 4096}, 16, 6),
        ({"b": 1, "h": 16, "t": 32768}, 16, 132),
        ({"b": 1, "h": 16, "t": 256}, 16, 2),  # a CTA has a tile per warpgroup at least
        ({"b": 200, "h": 16, "t": 4096}, 16, 1),
        ({"b": 1, "h": 128, "t": 65536}, 32, 33),  # four row tiles
    ],
)
def test_thin_mla_v3_fills_the_sms_with_parts(sizes, columns, parts):
    plan = plan_class("thin_mla_v3")(s=1, **sizes)
    tiling = plan.default_tiling("attention")
    assert (tiling.columns, tiling.parts) == (columns, parts)
    assert not isinstance(planned(plan), KernelPipeline)


@pytest.mark.parametrize(
    ("name", "field", "said"),
    [
        ("thin_mla", {"columns": 64}, "columns=64 is not one of 8, 16, 32"),
        ("thin_mla", {"splits": 3}, "splits=3 is not one of 1, 2, 4, 8"),
        ("thin_mla_v1", {"splits": 4}, "splits=4 is not one of 1, 2"),
        ("thin_mla_v2", {"ring": 17}, "ring=17 is below 18"),
        ("thin_mla_v3", {"early": False}, "ahead=True needs early=True"),
        (
            "thin_mla_v2",
            {"columns": 16, "ring": 26},
            r"ring 212992 \+ rest 25600 = 238592 bytes of shared memory exceed 232448",
        ),
    ],
)
def test_thin_mla_refuses_what_its_registers_and_blocks_do_not_allow(name, field, said):
    refuses(plan_class(name)(), name, said, **field)


@pytest.mark.parametrize(("columns", "ring"), [(8, 26), (16, 25), (32, 22)])
def test_thin_mla_v2_fills_shared_memory_with_its_ring(columns, ring):
    plan = plan_class("thin_mla_v2")(b=32, h=columns, s=1, t=4096)
    tiling = plan.default_tiling("attention")
    assert (tiling.columns, tiling.ring) == (columns, ring)


@pytest.mark.parametrize(("name", "most"), [*((x, 2) for x in THIN_COUNTING), ("thin_mla_v3", 4)])
def test_thin_mla_refuses_ctas_that_wait_for_others_without_a_place(name, most):
    plan = plan_class(name)(b=32, h=16, s=1, t=4096)
    ctas = 128 // most * (most + 1)
    said = f"{most + 1} parts = {ctas} CTAs wait for each other, and 132 run at once"
    refuses(plan, stage_of(plan), said, parts=most + 1)
    dataclasses.replace(plan.default_tiling(name), parts=most).validate(plan)


@pytest.mark.parametrize("sizes", [{"b": 32, "h": 16}, {"b": 1, "h": 16}, {"b": 2, "h": 128}])
def test_thin_mla_v3_has_a_place_for_all_that_any_tiling_exchanges(sizes):
    plan = plan_class("thin_mla_v3")(s=1, t=32768, **sizes)
    scratch = plan.scratch("cpu")
    assert all((x == -1).all() for x in scratch.values())
    for tiling in plan._autotune_configs()["attention"]:
        ctas, units = plan.tiles_of(tiling.columns) * tiling.parts, tiling.columns // 8 * 8
        assert ctas * units <= scratch["partial"].shape[0]
        assert ctas * min(tiling.parts, units // 2) <= scratch["partial_lse"].shape[0]
        assert tiling.columns <= scratch["partial_lse"].shape[1]


@pytest.mark.parametrize("name", THIN_COUNTING)
def test_thin_mla_has_room_for_all_that_any_tiling_exchanges(name):
    plan = plan_class(name)(b=32, h=16, s=1, t=4096)
    scratch = plan.scratch("meta")
    for tiling in plan._autotune_configs()[stage_of(plan)]:
        ctas = plan.tiles_of(tiling.columns) * tiling.splits * tiling.parts
        units = ctas * (8 // tiling.splits) * (tiling.columns // 8)
        assert units <= scratch["partial"].shape[0]
        assert ctas <= scratch["arrived"].shape[0]


def ragged(name: str, **fields: int) -> KernelPlan:
    """Rows that fill no tile, tiles that start inside a head, CTAs without a key."""
    kind = plan_class(name)
    parts = {} if name in THIN_MEETING else {"parts": fields.pop("parts")}
    stage = stage_of(kind)
    tilings = {stage: kind.tiling_types[stage](**fields)}
    return kind(b=2, h=7, s=5, t=131, causal=True, tilings=tilings, **parts)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "columns", "splits", "parts"),
    [
        ("thin_mla", 8, 1, 1),
        ("thin_mla", 8, 8, 1),
        ("thin_mla", 16, 2, 3),
        ("thin_mla", 32, 4, 1),
        ("thin_mla_v1", 8, 1, 5),
        ("thin_mla_v1", 16, 2, 3),
        ("thin_mla_v1", 32, 2, 1),
        ("thin_mla_v2", 8, 1, 5),
        ("thin_mla_v2", 16, 2, 3),
        ("thin_mla_v2", 32, 2, 1),
        ("thin_mla_v3", 8, None, 5),
        ("thin_mla_v3", 16, None, 3),
        ("thin_mla_v3", 32, None, 2),
    ],
)
def test_thin_mla_is_right_where_everything_is_ragged(name, columns, splits, parts):
    clusters = {} if splits is None else {"splits": splits}
    result = check_plan(ragged(name, columns=columns, parts=parts, **clusters))
    assert result.ok, result.explain()


@pytest.mark.parametrize(
    ("columns", "ring"),
    [
        (16, 19),
        (8, 26),
        (16, 18),
        (16, 25),
        (32, 22),
    ],
)
@pytest.mark.exhaustive  # The shared problems of v2 pass its ring once.
def test_thin_mla_v2_is_right_when_its_ring_has_gone_round(columns, ring):
    kind = plan_class("thin_mla_v2")
    tiling = kind.tiling_types["attention"](columns=columns, splits=1, ring=ring)
    result = check_plan(kind(b=1, h=5, s=1, t=550, tilings={"attention": tiling}))
    assert result.ok, result.explain()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("columns", "parts", "broken"),
    [
        (16, 4, False),
        (8, 11, False),  # more parts than units, and than are asked for at once
        (16, 2, True),
    ],
)
def test_thin_mla_v3_leaves_its_places_empty(columns, parts, broken):
    kind = plan_class("thin_mla_v3")
    tiling = kind.tiling_types["attention"](columns=columns, parts=parts)
    plan = kind(b=1, h=7, s=1, t=300, tilings={"attention": tiling})
    inputs = plan.prepare_inputs("cpu")
    if broken:  # words of every output are NaNs, and none waits for another value
        inputs[2].view(torch.int16)[0, 7, :] = -1
    kernel = plan.plan(*inputs)
    reference = plan.reference_fn(*inputs)
    for _ in range(2):
        poison_outputs(kernel)
        outputs = kernel()
        for place in ("partial", "partial_lse"):
            assert (kernel.input_tensors[place] == -1).all()
        for output, expected in reference.items():
            if broken:
                assert outputs[output].isnan().all()
            else:
                assert compare(output, outputs[output], expected, plan.tolerance(output)).ok


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", THIN_COUNTING)
def test_thin_mla_leaves_its_counters_as_the_next_launch_needs_them(name):
    plan = ragged(name, columns=16, splits=2, parts=2)
    inputs = plan.prepare_inputs("cpu")
    kernel = plan.plan(*inputs)
    reference = plan.reference_fn(*inputs)
    for _ in range(2):
        poison_outputs(kernel)
        kernel.input_tensors["partial"].fill_(float("nan"))
        outputs = kernel()
        assert kernel.input_tensors["arrived"].bitwise_and(2**31 - 1).count_nonzero() == 0
        for name, expected in reference.items():
            assert compare(name, outputs[name], expected, plan.tolerance(name)).ok


@pytest.mark.parametrize("name", HOPPER_ATTENTION)
def test_hopper_attention_writes_o(name):
    runtime_object = planned(plan_class(name)(b=2, h=3, s=100, t=120, d=64, causal=True))
    assert runtime_object.output_tensors["o"].shape == (2, 3, 100, 64)
    assert runtime_object.function_name == "attention"


def test_hopper_attention_is_right_where_everything_is_ragged():
    # One row past the first tile, a last tile of keys that is partly masked, persistent CTAs.
    kind = plan_class("hopper_attention_v3")
    (stage, tiling), *_ = kind.tiling_types.items()
    small = tiling(keys=32, stages=2, blocks=1)
    plan = kind(b=1, h=2, s=65, t=70, d=64, causal=True, tilings={stage: small})
    result = check_plan(plan)
    assert result.ok, result.explain()


@pytest.mark.parametrize("name", HOPPER_ATTENTION)
def test_head_dimensions_that_are_not_whole_slabs_are_refused(name):
    with pytest.raises(PlanError, match="d=96 is not 64 or 128"):
        plan_class(name)(d=96).validate()


def test_steps_whose_scores_would_spill_are_refused():
    plan = plan_class("hopper_attention_v3")()
    refuses(plan, "attention", "keys=144 exceeds 128", keys=144)


def test_steps_that_exceed_shared_memory_are_refused():
    plan = plan_class("hopper_attention_v3")()
    refuses(plan, "attention", "shared memory exceed", keys=128, stages=4)


@pytest.mark.parametrize("name", SHARED_PREFIX)
def test_shared_prefix_has_a_launch_for_each_part_with_tokens(name):
    for prefix, parts in (
        (0, ["latent"]),
        (64, ["decompressed", "latent"]),
        (100, ["decompressed"]),
    ):
        plan = plan_class(name)(b=4, h=16, s=2, t=100, shared=100, prefix=prefix)
        runtime_object = planned(plan)
        names = sorted(path.split(".")[-1] for path, _ in runtime_object.stages())
        one_launch = name.endswith("_v2") and len(parts) == 2
        assert names == sorted(["combine", *(["attention"] if one_launch else parts)])
        assert runtime_object.output_tensors["o"].shape == (4, 16, 2, 128)


def test_few_rows_share_out_the_keys():
    kind = plan_class("mla_shared_prefix")
    few, many = (kind(b=32, h=128, s=s, prefix=3072) for s in (1, 4))
    assert few.default_tiling("decompressed").apart
    assert not many.default_tiling("decompressed").apart
    assert (few.tile_s, many.tile_s, many.row_tiles) == (1, 4, 2)


@pytest.mark.parametrize(
    ("sizes", "blocks", "pieces"),
    [
        ({"s": 1}, 64, 1),  # beside the prefix, a block per tile of own tokens
        ({"s": 2}, 66, 1),
        ({"s": 4}, 128, 1),  # before it, all SMs but those that make no whole sequence
        ({"s": 16}, 128, 1),
        ({"h": 16, "s": 1}, 32, 8),  # few heads: more pieces, until each SM has one
        ({"h": 16, "s": 1, "prefix": 64}, 32, 1),  # but no more than there are steps
    ],
)
def test_v3_gives_each_sm_a_piece_of_the_prefix(sizes, blocks, pieces):
    sizes = {"b": 32, "h": 128, "t": 4096, "shared": 3072, "prefix": 3072} | sizes
    plan = plan_class("mla_shared_prefix_v3")(**sizes)
    latent, decompressed = map(plan.default_tiling, ("latent", "decompressed"))
    assert (latent.blocks, plan.splits(decompressed)) == (blocks, pieces)


@pytest.mark.parametrize(("prefix", "beside"), [(100, False), (64, True)])
def test_a_prefix_of_v3_begins_early_only_beside_own_tokens(prefix, beside):
    plan = plan_class("mla_shared_prefix_v3")(b=4, h=16, s=2, t=100, shared=100, prefix=prefix)
    stages = dict(planned(plan).stages())
    assert stages["decompressed"].host()[0].second is beside


@pytest.mark.parametrize("name", MERGING)
@pytest.mark.parametrize(
    ("sizes", "stages"),
    [
        ({"s": 1}, 2),  # two heads per block, all of them beside the own tokens
        ({"s": 4}, 2),
        ({"s": 16}, 2),
        ({"s": 1, "h": 127}, 3),  # a head without another
        ({"s": 1, "h": 16}, 3),  # too few blocks
        ({"s": 1, "groups": 4}, 3),  # more blocks than SMs, which would wait in turns
        ({"s": 4, "prefix": 0}, 2),  # latent tokens and a combine
        ({"s": 4, "prefix_splits": 2}, 3),
        ({"s": 1, "h": 16, "prefix_splits": 1}, 2),  # as asked for
    ],
)
def test_a_whole_prefix_needs_no_combine(name, sizes, stages):
    sizes = {"b": 32, "h": 128, "t": 4096, "shared": 3072, "prefix": 3072} | sizes
    names = [path.split(".")[-1] for path, _ in planned(plan_class(name)(**sizes)).stages()]
    assert len(names) == stages
    assert ("combine" in names) is (stages == 3 or sizes["prefix"] == 0)


@pytest.mark.parametrize("name", MERGING)
def test_a_step_of_a_whole_prefix_is_whole_slabs_in_two_places(name):
    few, many = (plan_class(name)(b=32, h=128, s=s, prefix=3072) for s in (1, 4))
    refuses(many, "decompressed", "keys=112 is not a positive multiple of 64", keys=112)
    refuses(few, "decompressed", "stages=2: a warpgroup needs two places, so 4", stages=2)


def test_a_prefix_of_v5_is_fetched_ahead_only_if_asked():
    plan = plan_class("mla_shared_prefix_v5")(b=32, h=128, s=4, t=4096, shared=3072, prefix=3072)
    tiling = plan.default_tiling("latent")
    assert (tiling.ahead, tiling.lazy, tiling.splits) == (0, 8.0, 1)
    said = "beside a whole prefix no CTA waits for one"
    refuses(plan, "latent", said, splits=2, share=1, blocks=512)


@pytest.mark.parametrize("name", SHARED_PREFIX)
def test_own_tokens_are_split_only_where_a_cluster_has_one_item(name):
    plan = plan_class(name)(b=3, h=128, s=1, t=300, shared=200, prefix=130)
    if "latent" in plan.tiling_types:
        said = "splits=2 and share=1 take 12 CTAs at once, more than the 2 of blocks"
        refuses(plan, "latent", said, splits=2, share=1, blocks=2)


@pytest.mark.slow
def test_tokens_fetched_ahead_change_nothing():
    kind = plan_class("mla_shared_prefix_v5")
    plan = kind(b=3, h=1, s=30, t=200, shared=130, prefix=129, prefix_splits=1)
    tiling = dataclasses.replace(plan.default_tiling("latent"), ahead=100)
    result = check_plan(dataclasses.replace(plan, tilings={"latent": tiling}))
    assert result.ok, result.explain()


@pytest.mark.slow
@pytest.mark.sampled(4)  # v5 is run above.
@pytest.mark.parametrize("name", MERGING)
@pytest.mark.parametrize(
    "sizes",
    [
        {"b": 3, "h": 1, "s": 30, "t": 200, "shared": 130, "prefix": 129, "causal": True},
        {"b": 4, "groups": 2, "h": 2, "s": 3, "t": 120, "shared": 75, "prefix": 75},
    ],
)
def test_a_whole_prefix_is_right(name, sizes):
    result = check_plan(plan_class(name)(prefix_splits=1, **sizes))
    assert result.ok, result.explain()


@pytest.mark.parametrize(("h", "blocks"), [(128, 128), (64, 128), (16, 128), (200, 200)])
def test_a_combine_of_v3_has_as_many_blocks_per_head_as_run_at_once(h, blocks):
    plan = plan_class("mla_shared_prefix_v3")(b=2, h=h, s=2, t=100, shared=64, prefix=64)
    assert dict(planned(plan).stages())["combine"].host()[0].sms == blocks


def test_a_ring_with_an_odd_number_of_places_has_no_fixed_readers():
    plan = plan_class("mla_shared_prefix")(b=32, h=128, s=1, prefix=3072)
    refuses(plan, "decompressed", "stages=3 is odd", stages=3)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SHARED_PREFIX)
def test_shared_prefix_is_right_in_groups(name):
    plan = plan_class(name)(b=4, groups=2, h=2, s=3, t=120, shared=75, prefix=75, prefix_splits=2)
    result = check_plan(plan)
    assert result.ok, result.explain()


@pytest.mark.parametrize("name", [*FLASH_MLA, *THIN_MLA])
def test_other_widths_are_refused(name):
    with pytest.raises(PlanError, match="k=256 and p=64"):
        plan_class(name)(k=256).validate()


@pytest.mark.parametrize("name", FLASH_MLA[1:])
def test_a_maximum_may_not_lag_beyond_fp16(name):
    plan = plan_class(name)()
    refuses(plan, stage_of(plan), r"lazy=16\.0 exceeds 15", lazy=16.0)
    refuses(plan, stage_of(plan), "lazy=nan is below 0", lazy=float("nan"))


@pytest.mark.parametrize("name", HOPPER_GEMM)
def test_c_whose_rows_start_off_16_bytes_is_refused(name):
    with pytest.raises(PlanError, match="n=5 is not a multiple of 8"):
        plan_class(name)(n=5).validate()


@pytest.mark.parametrize("name", HOPPER_GEMM[1:])
def test_a_ring_that_exceeds_shared_memory_is_refused(name):
    plan = plan_class(name)()
    refuses(plan, stage_of(plan), "shared memory exceed", stages=6)


def right(name: str, sizes: dict[str, object], **tiling: int) -> None:
    kind = plan_class(name)
    (stage, make), *_ = kind.tiling_types.items()
    result = check_plan(kind(**sizes, tilings={stage: make(**tiling)}))
    assert result.ok, result.explain()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", FLASH_ATTENTION)
@pytest.mark.parametrize(
    ("sizes", "tiling"),
    [
        # One row past the first tile under a mask; persistent CTAs over several heads and groups.
        ({"b": 1, "h": 2, "s": 65, "t": 70, "d": 64, "causal": True}, {"keys": 32, "stages": 3}),
        ({"b": 2, "h": 2, "s": 3, "t": 150, "dtype": "fp16"}, {"keys": 64, "blocks": 1}),
    ],
)
def test_flash_attention_is_right_where_everything_is_ragged(name, sizes, tiling):
    right(name, sizes, **tiling)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("sizes", "tiling"),
    [
        # A last step of the second warpgroup alone, rows that see no key, one key, all four warps.
        ({"b": 1, "h": 3, "s": 17, "t": 100, "d": 64}, {"keys": 32, "stages": 4, "blocks": 2}),
        ({"b": 1, "h": 2, "s": 40, "t": 33, "causal": True}, {"keys": 16, "stages": 2}),
        ({"b": 2, "h": 1, "s": 1, "t": 1}, {"keys": 64, "stages": 2}),
        ({"b": 1, "h": 2, "s": 64, "t": 130, "causal": True}, {"keys": 64, "stages": 4}),
    ],
)
def test_both_warpgroups_on_the_same_rows_are_right(sizes, tiling):
    right("flash_attention_v1", sizes, **tiling)


@pytest.mark.parametrize(
    ("sizes", "blocks"),
    [
        ({"b": 32, "h": 128, "s": 1}, 128),
        ({"b": 32, "h": 128, "s": 64}, 128),
        ({"b": 2, "h": 16, "s": 1}, 32),
        ({"b": 1, "h": 133, "s": 1}, 67),
        ({"b": 32, "h": 128, "s": 65}, 132),
    ],
)
def test_no_more_blocks_stay_than_save_a_turn(sizes, blocks):
    tiling = plan_class("flash_attention_v1")(**sizes).default_tiling("attention")
    assert tiling.blocks == blocks


def test_rows_of_one_tile_are_shared_and_others_are_not():
    kernels = [planned(plan_class("flash_attention_v1")(h=2, s=s, t=64)) for s in (64, 65)]
    hosts = [type(kernel.host()[0]).__name__ for kernel in kernels]
    assert hosts == ["Kernel", "RopeKernel"]


@pytest.mark.parametrize(
    ("said", "fields"),
    [
        ("stages=3 is odd", {"stages": 3}),
        ("keys=96 exceeds 64: queries", {"keys": 96, "stages": 2}),
        ("keys=40", {"keys": 40}),
        ("shared memory", {"stages": 6}),
    ],
)
def test_rings_that_do_not_fit_shared_rows_are_refused(said, fields):
    refuses(plan_class("flash_attention_v1")(s=64), "attention", said, **fields)


@pytest.mark.parametrize("name", FLASH_ATTENTION)
def test_flash_attention_refuses_what_is_not_whole_slabs(name):
    with pytest.raises(PlanError, match=r"d=256 and p=64: .* d=64 or 128 and p=64"):
        plan_class(name)(d=256).validate()
    refuses(plan_class(name)(s=65), "attention", "shared memory", stages=3)


@pytest.mark.parametrize(
    ("n", "stages"),
    [
        (0, ["old", "combine"]),
        (30, ["old", "newest", "combine"]),
        (100, ["newest"]),
    ],
)
@pytest.mark.parametrize("name", MIXES)
def test_a_mix_launches_the_parts_that_have_tokens(name, n, stages):
    mix = planned(plan_class(name)(b=2, h=16, s=3, t=100, n=n))
    assert [path for path, _ in mix.stages()] == stages
    assert mix.output_tensors["o"].shape == (2, 16, 3, 128)
    assert mix.output_tensors["lse"].shape == (2, 16, 3)


@pytest.mark.parametrize(("name", "first"), list(zip(MIXES, (39, 36), strict=True)))
def test_an_h200_is_asked_for_one_end_of_a_mix(name, first):
    kind, machine = plan_class(name), default_for_arch("sm_90").machine("bf16")
    chosen = {s: kind(b=32, h=128, s=s, t=4096).resolve(machine).n for s in range(1, 129)}
    assert set(chosen.values()) == {0, 4096}
    assert [s for s, n in chosen.items() if n] == list(range(first, 129))


@pytest.mark.parametrize(("s", "blocks"), [(1, 132), (4, 128), (24, 132), (39, 132), (64, 128)])
def test_old_tokens_of_a_mix_idle_no_more_sms_than_a_few(s, blocks):
    plan = plan_class("mla_var6_plus_v1")(b=32, h=128, s=s, t=4096, n=0)
    assert plan.default_tiling("old").blocks == blocks


def test_an_n_that_is_asked_for_is_kept():
    machine = default_for_arch("sm_90").machine("bf16")
    assert plan_class("mla_var6_plus")(t=100, n=30).resolve(machine).n == 30


@pytest.mark.parametrize(("n", "masked"), [(1, True), (3, True), (4, False), (60, False)])
def test_the_mask_reaches_the_old_tokens_where_queries_outnumber_the_new(n, masked):
    plan = plan_class("mla_var6_plus")(b=1, h=16, s=5, t=100, n=n, causal=True)
    assert plan.old.causal is masked
    assert sum(part.cost.flops for part in planned(plan).children) == (
        plan._algorithmic_flops_bytes().flops
    )


def test_tilings_of_a_mix_are_those_of_its_parts():
    plan = plan_class("mla_var6_plus")(b=64, h=128, s=1, n=0)
    refuses(plan, "old", "splits=2 and share=2 take 256 CTAs", splits=2, share=2)
    refuses(plan, "newest", "shared memory", stages=3)
    plan = plan_class("mla_var6_plus_v1")(b=64, h=128, s=1, n=0)
    refuses(plan, "newest", "stages=3 is odd", stages=3)


def test_a_mix_of_other_widths_is_refused():
    with pytest.raises(PlanError, match="d=128, k=256 and p=64: this design is built for d=128"):
        plan_class("mla_var6_plus")(k=256).validate()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "sizes",
    [
        {"b": 2, "s": 3, "t": 100, "n": 30},  # rows of kpe lie apart by sequence
        {"b": 2, "s": 3, "t": 70, "n": 0, "dtype": "fp16"},
        {"b": 2, "s": 5, "t": 70, "n": 2, "causal": True},  # the mask reaches the old tokens
        {"b": 1, "s": 5, "t": 3, "n": 2, "causal": True},  # rows that see no key
    ],
)
@pytest.mark.parametrize("name", MIXES)
def test_a_mix_is_right_at_any_n(name, sizes):
    result = check_plan(plan_class(name)(h=2, **sizes))
    assert result.ok, result.explain()
