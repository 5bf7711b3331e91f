"""A device's page begins with what nobody measured there, and each command is one that is there."""

from __future__ import annotations

import re

import pytest

from generators.pages import devices, wanting
from mla_var3.campaign import contributing
from mla_var3.devices import load
from mla_var3.paths import repo_root
from tests.generators.planted import small_site


@pytest.fixture
def site(tree):
    return small_site(tree)


def test_a_card_without_records_begins_with_what_is_wanted(site):
    pages = {page.path: page.content for page in devices.pages(site)}
    text = pages["devices/nvidia-b300.md"]
    assert text.index(f"## {wanting.HEADING}") < text.index("## Rates")
    assert "Nothing was timed on this card here" in text
    assert wanting.HEADING not in pages["devices/amd-mi300x.md"]


def test_the_standard_set_comes_first_and_is_named_whole(site):
    first, *rest = wanting.wants(site, load("nvidia-b300"))
    assert all(str(one) in first.what for one in contributing.standard().problems)
    assert first.command.startswith("nox -s contribute")
    assert any("measure-ceilings" in want.command for want in rest)


def test_the_serving_grid_is_asked_for_where_its_kernels_run(site):
    asked = {
        key: any("--set=serving" in want.command for want in wanting.wants(site, load(key)))
        for key in ("nvidia-h20", "nvidia-b300")
    }
    assert asked == {"nvidia-h20": True, "nvidia-b300": False}


def test_scripts_and_sessions_of_the_commands_are_there(site):
    sessions = (repo_root() / "src/mla_var3/app/sessions.py").read_text(encoding="utf-8")
    for want in wanting.wants(site, load("nvidia-h20")):
        if found := re.match(r"nox -s (\w+)", want.command):
            assert f'"{found[1]}"' in sessions
        else:
            assert (repo_root() / want.command.split()[1]).is_file()
