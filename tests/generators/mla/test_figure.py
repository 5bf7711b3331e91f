"""The figure of MLA's forms follows the cost functions, the device and the records."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from generators.mla import figure
from generators.mla.figure import FORMS, first_sizes, work
from generators.write.page import Page
from mla_var3.workloads import mla
from mla_var3.workloads.mla import regimes
from tests.generators import runs
from tests.generators.checking import see


def test_times_are_work_over_rates():
    latent = work(FORMS[0], **first_sizes())
    rates = regimes.ceilings_of(figure.DEVICE)
    cost = mla.flash_mla_cost(32, 128, 16, 4096, 512, 64, 2)
    assert latent.flops == cost.flops
    assert latent.compute_us == pytest.approx(cost.flops / rates.tflops / 1e6)
    assert latent.memory_us == pytest.approx(cost.bytes / rates.gbps / 1e3)


def test_expressions_are_those_of_the_cost_functions():
    sizes = {"b": 3, "h": 16, "s": 5, "t": 700, "n": 64}
    for form in FORMS:
        expressions = figure.formulas()[form.key]
        found = work(form, **sizes)
        for part in ("flops", "bytes"):
            assert re.fullmatch(r"[\d*+\-\s bhstn]+", expressions[part])
            assert eval(expressions[part], {}, dict(sizes)) == getattr(found, part)


def test_nothing_shared_or_decompressed_is_latent():
    sizes = first_sizes() | {"n": 0}
    latent, mixed = work(FORMS[0], **sizes), work(FORMS[2], **sizes)
    assert mixed.flops == latent.flops


def test_marks_are_the_records(site):
    made = runs.on(
        site,
        runs.at("flash_mla", "v0", 1, 99.5, t=4096),
        runs.at("flash_mla", "v1", 1, 88.25, t=4096),
        runs.at("flash_mla", "v1", 4, 188.0, t=8192),
    )
    drawn = figure.figure(made)
    seen = see(Page("a.md", drawn))
    assert seen.scripts == []
    assert "flash_mla v1, s=1: 88.2 us" in drawn
    assert drawn.count("<circle") == 1  # the fastest, at the sizes that are shown
    assert len(figure.points(made)) == 2
    changed = runs.on(site, runs.at("flash_mla", "v1", 1, 77.0, t=4096))
    assert figure.figure(changed) != drawn


def test_the_figure_follows_the_device(site, monkeypatch):
    before = figure.message(first_sizes())
    ceilings = regimes.ceilings_of(figure.DEVICE)
    monkeypatch.setattr(
        regimes, "ceilings_of", lambda key: replace(ceilings, gbps=ceilings.gbps * 40, power=None)
    )
    after = figure.message(first_sizes())
    assert after != before
    assert "the decompressed form" in after


@pytest.mark.slow
def test_the_figure_says_what_it_shows(site):
    drawn = figure.figure(site)
    data = re.search(r'data-spec="([^"]*)"', drawn)
    spec = json.loads(data.group(1).replace("&quot;", '"'))
    assert set(spec["formulas"]) == {form.key for form in FORMS}
    assert 'role="img"' in drawn
    assert figure.message(first_sizes()) in drawn


@pytest.mark.slow
def test_joules_are_those_of_the_device(site, monkeypatch):
    rates = regimes.ceilings_of(figure.DEVICE)
    assert rates.power is not None
    drawn = figure.figure(site)
    found = work(FORMS[0], **first_sizes())
    joules = rates.power.joules(found.flops, found.bytes, found.time_us)
    assert f'<dd data-field="power">{figure._us(found.power_us)}</dd>' in drawn
    assert f'<dd data-field="joules">{figure._joules(joules)}</dd>' in drawn
    assert drawn.count('data-field="joules"') == len(FORMS)

    monkeypatch.setattr(regimes, "ceilings_of", lambda key: replace(rates, power=None))
    without = figure.figure(site)
    assert "joules" not in without.replace("Joules are left out", "")
