"""The table of joules follows the records and the device file."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from generators.pages import devices as pages
from generators.pages import energy
from mla_var3 import devices
from tests.generators import runs

H200 = devices.load("nvidia-h200-sxm")


def link(path: str) -> str:
    return path


def test_every_window_has_a_row_and_the_verdict_is_theirs(site):
    found = energy.rows(site, H200)
    assert len(found) > 9
    shown = energy.section(site, H200, link)
    assert len(runs.rows(shown, "## Joules")) == len(found)
    assert f"{len(found)} records on the {H200.name}" in shown
    for row in found:
        power = H200.ceilings().power
        work = power.work(row.window.flops, row.window.bytes, row.window.clock)
        assert row.joules == pytest.approx(power.static * row.window.us / 1e6 + work)
        assert f"| {row.off:+.0%} |" in shown


def test_the_fastest_of_each_work_is_held_to_its_reference(site):
    best = energy._fastest_each(energy.rows(site, H200))
    assert len({(row.window.flops, row.window.bytes) for row in best}) == len(best)
    held = [row.slower for row in best if row.known.bound == "power"]
    assert held
    assert min(held) > 0.8


def test_it_follows_the_records(site):
    before = energy.section(site, H200, link)
    doubled = tuple(_with_twice_the_joules(run) for run in site.runs)
    assert energy.section(replace(site, runs=doubled), H200, link) != before


def test_without_joules_there_is_no_section(site):
    assert energy.section(site, devices.load("nvidia-b200"), link) == ""
    assert energy.section(replace(site, runs=()), H200, link) == ""
    assert energy.section(site, devices.load("amd-mi308x"), link) == ""


def test_a_device_begins_with_its_figures_and_leads_to_the_fit(site):
    found = {page.path: str(page.content) for page in pages.pages(site)}
    text = found[f"devices/{H200.key}.md"]
    heads = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert heads[:3] == ["Rates", "Kernels that run on it", "Figures in use"]
    assert f"({H200.key}-joules.md)" in text
    assert "## Joules" in found[f"devices/{H200.key}-joules.md"]
    assert "devices/nvidia-b200-joules.md" not in found


def _with_twice_the_joules(run):
    spent = run.outcome.energy if run.outcome else None
    if spent is None:
        return run
    energy = spent.model_copy(update={"joules": 2 * spent.joules})
    outcome = run.outcome.model_copy(update={"energy": energy})
    return replace(run, record=run.record.model_copy(update={"outcome": outcome}))
