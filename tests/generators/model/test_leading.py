"""Which version to start from follows the records, and nothing else."""

from __future__ import annotations

import pytest

from generators.model import leading
from mla_var3.errors import KnowledgeError
from tests.generators import runs


def test_the_version_that_won_most_problems_leads(site):
    made = [
        runs.at("flash_mla", version, s, us)
        for s, times in {2: (40, 100), 3: (40, 100), 4: (100, 40)}.items()
        for version, us in zip(("v0", "v1"), times, strict=True)
    ]
    found = leading.leaders(runs.on(site, *made), "cutile-dsl")
    assert sum(one.problems for one in found) == 3
    assert leading.leader(runs.on(site, *made), "cutile-dsl").version == "v0"
    slower = [runs.at("flash_mla", "v0", s, 200) for s in (2, 3)]
    kept = [run for run in made if (run.record.kernel.version, run.record.problem["s"]) not in
            {("v0", 2), ("v0", 3)}]  # fmt: skip
    assert leading.leader(runs.on(site, *slower, *kept), "cutile-dsl").version == "v1"


def test_versions_that_cover_different_work_do_not_compete(site):
    made = [
        runs.at(design, version, 4, us)
        for design, us in (("flash_mla", 50), ("flash_attention", 10))
        for version, us in (("v0", us), ("v1", us * 2))
    ]
    found = leading.leaders(runs.on(site, *made))
    assert {one.version.key for one in found} == {"flash_mla v0", "flash_attention v0"}
    assert all((one.won, one.problems) == (1, 1) for one in found)


def test_one_version_alone_leads_nothing(site):
    alone = runs.on(site, runs.at("flash_mla", "v0", 1, 3.0))
    assert leading.leaders(alone) == []
    with pytest.raises(KnowledgeError, match="no run timed two versions in cutile-dsl"):
        leading.leader(alone, "cutile-dsl")
