"""Symptoms lead to patterns by their triggers, ranked by what was seen on an arch."""

from __future__ import annotations

import re

import pytest

from mla_var3 import knowledge
from mla_var3.knowledge import metrics, symptoms
from mla_var3.knowledge.history import Gain
from mla_var3.knowledge.pages import Catalogue
from mla_var3.knowledge.schema import PairEvidence, RecordEvidence
from mla_var3.knowledge.symptoms import SYMPTOMS


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return knowledge.load_all()


def test_every_symptom_is_told_by_metrics_that_exist_and_has_a_remedy(catalogue):
    for symptom in SYMPTOMS:
        assert symptom.metrics
        assert set(symptom.metrics) <= set(metrics.catalogue())
        assert symptom.remedies(catalogue), symptom.key
    assert len({symptom.key for symptom in SYMPTOMS}) == len(SYMPTOMS)


def test_a_metric_leads_to_its_symptom():
    assert [s.key for s in symptoms.find(["spill_instructions"])] == ["register-spills"]
    assert symptoms.find(["since"]) == []


def test_every_arch_has_a_remedy_for_spills_that_holds_there(catalogue):
    spills = next(s for s in SYMPTOMS if s.key == "register-spills")
    for arch in ("sm_90", "sm_100", "sm_120"):
        assert arch in symptoms.archs()
        found = symptoms.ranked(spills.remedies(catalogue), arch, catalogue, {})
        assert found
        assert all(arch in page.pattern.archs for page in found)


def test_what_was_seen_to_help_on_an_arch_comes_first(catalogue):
    spills = next(s for s in SYMPTOMS if s.key == "register-spills").remedies(catalogue)
    found = symptoms.ranked(spills, "sm_90", catalogue, {})
    seen = [bool(symptoms.pairs_on(page, "sm_90", catalogue)) for page in found]
    assert seen == sorted(seen, reverse=True)
    last = [page for page in found if not symptoms.pairs_on(page, "sm_90", catalogue)][-1]
    raised = symptoms.ranked(
        spills, "sm_90", catalogue, {last.pattern.id: [Gain(9.0, {}, ("", "", "", ""))]}
    )
    assert raised.index(last) == sum(seen)


def test_a_pair_says_what_it_moved(catalogue):
    page = catalogue.page("cutile-worker-warps-hint")
    pair = symptoms.pairs_on(page, "sm_90", catalogue)[0]
    said = symptoms.change(pair, ["spill_instructions"], catalogue)
    assert said.endswith(" to 0 instructions")


def test_the_page_for_sm_120_shows_the_tile_that_spills_and_the_one_that_does_not(catalogue):
    page = catalogue.page("o17-rows-that-fit-registers")
    found = symptoms.records_on(page, "sm_120", catalogue)
    said = [symptoms.shown(item, ["spill_instructions"], catalogue) for item in found]
    assert [text.partition(" ")[0] for text in said] == ["1,218", "0"]
    assert said[1].endswith("16 rows by 64 keys, the same source")
    assert symptoms.records_on(page, "sm_90", catalogue) == []


def test_a_number_without_a_unit_says_what_it_counts(catalogue):
    page = next(one for one in catalogue.patterns if one.pattern.id == "o16-split-kv")
    single = [item for item in page.pattern.evidence if isinstance(item, RecordEvidence)]
    assert re.fullmatch(r"waves 0\.\d+, .*", symptoms.shown(single[0], ["waves"], catalogue))
    whole = [item for item in page.pattern.evidence if isinstance(item, PairEvidence)]
    (longest,) = (item for item in whole if "/b1-" in item.after)
    assert re.fullmatch(r"\d\dx faster", symptoms.change(longest, [], catalogue))


def test_factors_are_those_of_steps_and_of_the_page_s_own_evidence_on_the_arch(catalogue):
    page = catalogue.page("o16-split-kv")
    own = symptoms.factors(page, "sm_90", catalogue, {})
    assert own == sorted(own)
    assert own[-1] > 20 > 1.2 > own[0] > 1
    step = {page.pattern.id: [Gain(99.0, {}, ("", "", "", ""))]}
    assert symptoms.factors(page, "sm_90", catalogue, step) == [*own, 99.0]
    assert symptoms.factors(page, "sm_120", catalogue, {}) == []


def test_a_case_names_a_remedy_of_its_symptom(catalogue):
    for symptom in SYMPTOMS:
        known = {page.pattern.id for page in symptom.remedies(catalogue)}
        assert {name for _, name in symptom.cases} <= known, symptom.key
