"""Times by the emulator's clock: the arithmetic, the committed table, and what it is worth."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from generators.committed import estimates as written
from mla_var3.app import estimates
from mla_var3.app.estimates import Case, Compared, Stage, correlation, cycles_of
from mla_var3.errors import EmulatorError, KnowledgeError
from mla_var3.paths import repo_root

CASE = Case(
    design="d", versions=("v0",), record="r", problem="p", small={"b": 1}, axis="t",
    sizes=(100, 200), sms=4, copies=32,
)  # fmt: skip
PLAN = SimpleNamespace(t=1000)


@pytest.mark.parametrize(
    ("blocks", "waves", "flops"),
    [(4, 1, 2000 * 32 * 5 / 132), (2, 1, 1000 * 5), (5, 2, 400 * 5)],
    ids=["persistent", "64 blocks", "160 blocks"],
)
def test_cycles_of_a_block_are_a_line_through_both_launches(blocks, waves, flops):
    """A launch of 1000 and 2000 FLOPs in all takes 10 cycles, and 2 per FLOP of a block."""
    cycles = tuple(10 + 2 * total / blocks for total in (1000, 2000))
    stage = Stage(name="s", blocks=blocks, cycles=cycles, flops=(1000, 2000))
    assert cycles_of(stage, CASE, PLAN, 132) == pytest.approx(waves * (10 + 2 * flops))


def test_a_stage_without_products_takes_what_its_small_launch_takes():
    stage = Stage(name="s", blocks=4, cycles=(7, 9), flops=(0, 0))
    assert cycles_of(stage, CASE, PLAN, 132) == 9


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([(1, 2), (2, 3), (3, 9)], 1),
        ([(1, 9), (2, 3), (3, 2)], -1),
        ([(1, 1), (1, 2), (2, 3)], 0.866),
    ],
)
def test_ranks_correlate(pairs, expected):
    assert correlation(pairs) == pytest.approx(expected, abs=1e-3)


def everything() -> list[Compared]:
    return estimates.compared(estimates.read(repo_root() / estimates.TARGET), estimates.cases())


def test_every_listed_version_is_in_the_table():
    listed = [(case.design, version) for case in estimates.cases() for version in case.versions]
    assert [(one.design, one.version) for one in everything()] == listed


def test_the_clock_orders_versions_as_a_gpu_does():
    found = [one for one in everything() if one.measured is not None]
    shares = [(one.bound / one.estimated, one.bound / one.measured) for one in found]
    assert len(found) >= 20
    assert correlation(shares) >= 0.8
    assert all(one.bound <= one.measured for one in found)


def test_the_page_says_what_the_table_holds():
    words = written.text(everything())
    old = (repo_root() / written.PAGE).read_text(encoding="utf-8")
    assert written.page(old, words) == old, "run python -m generators.committed.estimates"


def test_a_page_without_a_place_is_refused():
    with pytest.raises(KnowledgeError, match="between which a table stands"):
        written.page("", "words")


def test_a_table_that_cannot_be_read_ends_in_a_sentence(tmp_path):
    (tmp_path / "t.json").write_text("{")
    with pytest.raises(EmulatorError, match="Invalid JSON"):
        estimates.read(tmp_path / "t.json")
