"""Which trials are timed, and what pruning by static facts costs."""

from __future__ import annotations

import dataclasses

import pytest

from mla_var3.campaign.trials import chosen, regret
from tests.campaign.making import trial


def test_the_default_and_the_best_by_static_facts_are_timed():
    trials = [trial(0, None), trial(1, 1.0), trial(2, 3.0), trial(3, None), trial(4, 2.0),
              trial(0, 1.0, version="v1"), trial(1, 0.5, version="v1")]  # fmt: skip
    names = [one.name for one in chosen(trials, 2)]
    assert names == ["v0 default", "v0 tile_m=2", "v0 tile_m=4", "v1 default", "v1 tile_m=1"]


def test_stages_take_turns_since_their_scores_do_not_compare():
    def of(stage, tile, score):
        one = trial(tile, score)
        case = one.compiled.case.model_copy(update={"tilings": {stage: {"tile_m": tile}}})
        return dataclasses.replace(one, compiled=one.compiled.model_copy(update={"case": case}))

    trials = [trial(0, 5.0), of("merge", 1, 9.0), of("merge", 2, 8.0), of("split", 3, 1.0)]
    assert [one.name for one in chosen(trials, 2)] == [
        "v0 default", "v0 tile_m=1", "v0 tile_m=3"]  # fmt: skip


def test_regret_is_of_those_that_would_have_been_timed():
    trials = [trial(0, 1.0, 120.0), trial(1, 2.0, 110.0), trial(2, 0.5, 105.0),
              trial(3, None, 100.0, seconds=7.0)]  # fmt: skip
    found = regret(trials, 1)
    assert found.loss == pytest.approx(0.10)
    assert found.saving == pytest.approx(0.8)
    assert (found.kept, found.all_) == (2, 4)
    assert "10.0% slower than the best of all, for 20% of the time" in str(found)


def test_no_regret_is_told_where_the_pruned_ones_were_not_timed():
    assert regret([trial(0, 1.0, 120.0), trial(1, None)], 1) is None
    assert regret([trial(0, 1.0), trial(1, 1.0)], 1) is None
