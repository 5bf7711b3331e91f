"""Which trials are timed, and what pruning by static facts costs."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from mla_var3.campaign.cases import Case, Outcome
from mla_var3.campaign.trials import Trial, chosen, regret
from mla_var3.paths import repo_root
from tests.campaign.making import trial
from tests.evidence.making import timed_record


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


ROW = r"\| (\S+) (v\d+), (.+) \| (\d+) \| (\d+) \| ([\d.]+) % \| (\d+) % \|"


def test_six_pairs_chosen_before_they_were_timed_lose_little():
    """What the page says of each; the candidates are kept with their scores and times."""
    told = re.findall(ROW, (repo_root() / "docs/campaign.md").read_text("utf-8"))
    pairs = json.loads(Path(__file__).with_name("regret.json").read_text("utf-8"))
    assert len(pairs) == len(told) == 6
    spent = {"kept": 0.0, "all": 0.0}
    for pair, (design, version, problem, count, timed, loss, share) in zip(
        pairs, told, strict=True
    ):
        case = Case(design=pair["design"], version=version, target="sm_90")
        trials = [kept_trial(case, one) for one in pair["trials"]]
        assert (design, int(count)) == (pair["design"], len(trials))
        assert problem == " ".join(f"{name}={size}" for name, size in pair["problem"].items())
        found = regret(trials, 2)
        assert (found.kept, found.all_) == (int(timed), int(count))
        assert found.loss < 0.002
        assert f"{found.loss:.1%}" == f"{loss}%"
        mine = sum(one.us for one in chosen(trials, 2))
        whole = sum(one.us for one in trials)
        assert round(100 * mine / whole) == int(share)
        spent = {"kept": spent["kept"] + mine, "all": spent["all"] + whole}
    assert spent["kept"] / spent["all"] == pytest.approx(0.10, abs=0.005)


def kept_trial(case, told):
    case = case.model_copy(update={"tilings": told["tilings"]})
    made = Outcome(case=case, status="passed", record=timed_record())
    timed = made.model_copy(update={"record": timed_record(told["median_us"])})
    return Trial(made, told["score"], timed)


def test_no_regret_is_told_where_the_pruned_ones_were_not_timed():
    assert regret([trial(0, 1.0, 120.0), trial(1, None)], 1) is None
    assert regret([trial(0, 1.0), trial(1, 1.0)], 1) is None
