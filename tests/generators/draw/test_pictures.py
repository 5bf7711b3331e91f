"""Pictures of versions and designs follow the records and sources that they are drawn from."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from generators.draw import charts, climb, schedule, shapes, tiles
from generators.model.run import Run
from mla_var3.languages import Tile
from mla_var3.languages.cutile import tiles as cutile
from tests.languages.cute.conftest import needs_dsl

KEY = "mla_var6_plus v4"


@pytest.fixture(scope="module")
def version(site):
    return next(version for version in site.versions if version.key == KEY)


@pytest.fixture(scope="module")
def link(site):
    return site.link("kernels/mla/cutile-dsl/mla_var6_plus/v4.md")


def tampered(site, wanted, change):
    """The site with the stages of the wanted runs changed."""

    def changed(run: Run) -> Run:
        if not run.outcome or not wanted(run):
            return run
        stages = [change(stage) for stage in run.outcome.stages]
        outcome = run.outcome.model_copy(update={"stages": stages})
        return replace(run, record=run.record.model_copy(update={"outcome": outcome}))

    return replace(site, runs=tuple(map(changed, site.runs)))


def drawings(text: str) -> list[ET.Element]:
    found = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert found
    return [ET.fromstring(one) for one in found]


def squares(panel: ET.Element, color: str) -> int:
    """How many squares of a colour a panel has."""
    style = f"fill:{color}"
    paths = [path for path in panel.iter("path") if path.get("style") == style]
    return sum((path.get("d") or "").count("z") for path in paths)


# -- tiles -----------------------------------------------------------------------------------------


def test_a_panel_has_a_square_per_register_and_per_word_that_spills(site, version):
    panels = {shown.facts.arch: shown for shown in tiles.compiled(site, version)}
    assert set(panels) == {"sm_90", "sm_100", "sm_120"}
    assert max(shown.words for shown in panels.values()) > 0
    for shown in panels.values():
        root = ET.fromstring(tiles.panel(shown))
        colors = (shapes.BLUE, shapes.PURPLE, shapes.QUIET, shapes.EDGE)
        assert sum(squares(root, color) for color in colors) == 255
        assert squares(root, shapes.EDGE) == 255 - shown.facts.registers
        assert squares(root, shapes.SLOWER) == min(shown.words, tiles.WORDS * tiles.MOST_ROWS)
        assert root.get("aria-label").endswith(shown.message)


def test_accumulators_stand_in_registers_or_in_tensor_memory(site, version):
    panels = {shown.facts.arch: shown for shown in tiles.compiled(site, version)}
    acc = next(tile for tile in panels["sm_90"].tiles if tile.name == "acc")
    assert (acc.rows, acc.columns) == (64, 512)
    assert panels["sm_90"].registers_of(acc) == 64 * 512 // (8 * 32)
    assert panels["sm_100"].registers_of(acc) == 0
    assert "columns of tensor memory" in panels["sm_100"].message


def test_tiles_follow_a_tampered_record(site, version, link):
    before = tiles.section(site, version, link)

    def worse(stage):
        if stage.static is None:
            return stage
        facts = stage.static.model_copy(
            update={"registers": 99, "spill_loads": 7777, "stack_bytes": 1000, "shared_bytes": 4321}
        )
        return stage.model_copy(update={"static": facts})

    after = tiles.section(tampered(site, lambda run: run.record.is_static, worse), version, link)
    assert after != before
    for shown in drawings(after):
        assert "99 of 255 registers" in shown.get("aria-label")
        assert "250 words of stack" in shown.get("aria-label")
        assert "Shared memory 4,321 of" in shown.get("aria-label")


@pytest.mark.parametrize(
    ("opcode", "shape"),
    [("HGMMA.64x256x16.F32.BF16", (64, 256, 16)), ("HMMA.16816.F32.BF16", (16, 8, 16)),
     ("UTCHMMA", None), ("HMMA.1688.F32", (16, 8, 8))],
)  # fmt: skip
def test_an_opcode_says_its_size(opcode, shape):
    assert tiles._shape(opcode) == shape


def test_a_source_says_its_tiles(tmp_path):
    source = tmp_path / "kernel.py"
    source.write_text(
        "def helper(acc):\n    acc = ct.mma(a, b, acc)\n    return acc\n"
        "def kernel(TILE_M, K, TILE_B, TILE_S):\n"
        "    ROWS = TILE_B * TILE_S\n"
        "    top = ct.full((ROWS, 1), -1e30, ct.float32)\n"
        "    acc = ct.zeros((TILE_M, K), ct.float32)\n"
        "    half = ct.zeros((TILE_M, K), ct.float16)\n"
        "    part = ct.zeros((ROWS, 8 * 2), ct.float32)\n"
        "    open = ct.zeros((UNKNOWN, K), ct.float32)\n"
    )
    sizes = {"tile_m": 64, "k": 512, "tile_b": 2, "tile_s": 16}
    assert cutile.tiles(source, "kernel", sizes) == (
        Tile("acc", 64, 512, True),
        Tile("part", 32, 16, False),
    )
    assert cutile.tiles(source, "another", sizes) == ()


CUTE = "flash_mla@cute-dsl v2"


@pytest.fixture(scope="module")
def cute(site):
    return next(version for version in site.versions if version.key == CUTE)


@needs_dsl
def test_accumulators_of_a_cute_kernel_stand_in_the_registers_that_it_asks_for(site, cute):
    (shown,) = tiles.compiled(site, cute)
    assert shown.facts.most_registers == 240 > shown.facts.registers
    assert [(t.name, shown.registers_of(t)) for t in shown.tiles] == [("out", 128), ("score", 32)]
    assert "240 where it computes (setmaxnreg)" in shown.message
    assert "ask for more registers than at launch" in tiles._caption([shown])
    assert not shown.is_lower_bound
    root = ET.fromstring(tiles.panel(shown))
    colors = (shapes.BLUE, shapes.PURPLE, shapes.QUIET)
    assert [squares(root, color) for color in colors] == [128, 32, 240 - 160]


@needs_dsl
def test_tiles_of_a_cute_kernel_follow_a_tampered_record(site, cute, link):
    def worse(stage):
        budgets = [{"direction": "inc", "registers": 168}]
        fields = stage.static.model_dump() | {"register_budgets": budgets, "stack_bytes": 400}
        facts = type(stage.static).model_validate(fields | {"spill_loads": 9})
        return stage.model_copy(update={"static": facts})

    own = [run.name for run in site.runs_of(cute) if run.record.is_static]
    after = tiles.section(tampered(site, lambda run: run.name in own, worse), cute, link)
    assert after != tiles.section(site, cute, link)
    assert "9 spill instructions, 100 words of stack" in after
    assert "where it computes" not in after


@needs_dsl
def test_stages_of_a_ring_stand_beside_shared_memory(site):
    version = next(version for version in site.versions if version.key == "hopper_gemm v2")
    (shown,) = tiles.compiled(site, version)
    assert "in which 4 steps of the loop fit" in shown.message
    assert "Shared memory, 4 stages" in tiles.panel(shown)


# -- schedule --------------------------------------------------------------------------------------


@needs_dsl
def test_a_schedule_takes_its_grid_from_the_plan_where_no_record_holds_one(site, cute, link):
    found = schedule.schedule(site, cute)
    assert found.from_plan
    (lane,) = found.lanes
    assert (lane.blocks, lane.us) == (64, found.run.outcome.stages[0].duration.median_us)
    text = schedule.section(site, cute, None, link)
    assert "Blocks are from the plan: the record holds no grid." in text


@needs_dsl
def test_a_grid_from_the_plan_follows_a_tampered_record(site, link):
    version = next(v for v in site.versions if v.key == "flash_mla@cute-dsl v4")
    # Static records hold a grid, which stands in where no plan tells one.
    site = replace(site, runs=tuple(run for run in site.runs if not run.record.is_static))

    def fewer(stage):
        return stage.model_copy(update={"tiling": {**stage.tiling, "blocks": 26}})

    before = schedule.schedule(site, version)
    after = schedule.schedule(tampered(site, lambda run: True, fewer), version)
    assert before.lanes[0].blocks > after.lanes[0].blocks == 26

    def other(stage):
        return stage.model_copy(update={"tiling": {"no_such": 1}})

    assert schedule.schedule(tampered(site, lambda run: True, other), version) is None


def test_a_schedule_comes_from_a_trace_where_there_is_one(site, version, link):
    found = schedule.schedule(site, version)
    assert found.run.record.mode == "nsys"
    assert found.overlap > 0
    latent, decompressed, combine = found.lanes
    assert latent.start == decompressed.start == 0
    assert decompressed.first == latent.sms
    assert combine.start == max(latent.end, decompressed.end)
    text = schedule.section(site, version, None, link)
    assert "A trace of the launch says" in text
    assert len(drawings(text)) == 2
    assert all(found.message in shown.get("aria-label") for shown in drawings(text))


def test_a_schedule_without_times_is_the_plan_s_grid(site, version, link):
    static = tuple(run for run in site.runs if run.record.is_static)
    found = schedule.schedule(replace(site, runs=static), version)
    assert not found.is_timed
    text = schedule.section(replace(site, runs=static), version, None, link)
    assert "Nothing was timed" in text
    assert schedule.section(replace(site, runs=()), version, None, link) == ""


def test_schedules_follow_a_tampered_record(site, version, link):
    before = schedule.section(site, version, None, link)

    def slower(stage):
        if stage.duration is None:
            return stage
        longer = {"median_us": 5000.0, "max_us": 5000.0}
        return stage.model_copy(update={"duration": stage.duration.model_copy(update=longer)})

    after = schedule.section(tampered(site, lambda run: True, slower), version, None, link)
    assert after != before
    assert "5,000 us" in after


def test_waves_and_their_tail():
    lane = schedule.Lane("gemm", 1024, 1, 208.0, 0, 132, 0.0)
    assert (lane.waves, lane.tail) == (8, 1024 - 7 * 132)
    assert lane.said == "gemm: 1,024 blocks on 132 SMs, 8 waves, the last one on 100, 208 us"
    assert schedule.Lane("x", 264, 2, None, 0, 132, 0.0).waves == 1


# -- the path under the roof -----------------------------------------------------------------------


def test_a_path_has_a_mark_per_version_and_follows_its_records(site):
    versions = [version for version in site.versions if version.design_key == "flash_mla"]
    found = climb.mountain(site, versions)
    marks = sum(len(path.steps) for path in found.climbs)
    before = climb.figure(site, versions)
    for shown in drawings(before):
        assert sum(1 for _ in shown.iter("circle")) == marks
        assert found.message in shown.get("aria-label")

    def halved(run: Run) -> Run:
        if not run.is_timed:
            return run
        twice = {name: 2 * getattr(run.total, name) for name in ("median_us", "min_us", "max_us")}
        total = run.total.model_copy(update=twice)
        outcome = run.outcome.model_copy(update={"total": total})
        return replace(run, record=run.record.model_copy(update={"outcome": outcome}))

    slow = replace(
        site, runs=tuple(map(halved, site.runs)), earlier=tuple(map(halved, site.earlier))
    )
    after = climb.mountain(slow, versions)
    assert climb.figure(slow, versions) != before
    for one, other in zip(found.climbs, after.climbs, strict=True):
        for (_, _, fast), (_, _, late) in zip(one.steps, other.steps, strict=True):
            assert late == pytest.approx(fast / 2)


def test_a_design_without_times_has_no_path(site):
    versions = [version for version in site.versions if version.design_key == "flash_mla"]
    assert climb.figure(replace(site, runs=()), versions) == ""


def test_values_close_to_each_other_have_no_labels_that_overlap():
    line = charts.Line("a", tuple((float(s), 1.0 + s) for s in (1, 2, 32, 33, 34, 64)), 0)
    drawn = charts.Times("Times", "s", "query tokens", (line,), ()).draw(charts.WIDE)
    labels = re.findall(r">\s*(\d+)\s*</text>", drawn)
    assert [x for x in labels if x in ("1", "2", "32", "33", "34", "64")] == ["1", "2", "32", "64"]
