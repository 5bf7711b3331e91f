"""The README's picture is that of today's records."""

from __future__ import annotations

import pytest

from generators.committed import readme
from mla_var3.errors import KnowledgeError
from tests.generators import runs
from tests.generators.checking import ROOT

SIZES = {"t": 4096, "b": 32, "h": 128}


def test_the_committed_picture_is_current(site):
    committed = (ROOT / readme.PICTURE).read_text()
    assert committed == readme.picture(site), "draw it again: python -m generators.committed.readme"
    assert readme.PICTURE in (ROOT / "README.md").read_text()


def test_a_record_s_change_redraws_it(site):
    slow = runs.at("flash_mla", "v0", 1, 3000.0, **SIZES)
    drawn = readme.picture(runs.on(site, slow, runs.at("flash_mla", "v1", 1, 100.0, **SIZES)))
    assert "30x faster" in drawn
    assert "2 versions timed in one run, from 3,000 us" in drawn
    other = readme.picture(runs.on(site, slow, runs.at("flash_mla", "v1", 1, 200.0, **SIZES)))
    assert "15x faster" in other


def test_no_record_is_one_sentence(site):
    with pytest.raises(KnowledgeError, match="no record"):
        readme.picture(runs.on(site, runs.at("flash_mla", "v0", 2, 1.0, **SIZES)))
