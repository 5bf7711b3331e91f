"""One rule names a kernel: by the run beside the library, on every page alike."""

from __future__ import annotations

from dataclasses import replace

import pytest

from generators.mla import advisor
from generators.model import choice, compare
from generators.pages import results
from tests.generators.mla.test_design_choice import latent
from tests.generators.runs import on


def test_the_run_beside_the_library_decides_over_a_shorter_time(site):
    """v1 is faster alone in a later run; beside the library v0 was the fastest of its run."""
    beside = [latent("flash_mla v0", 40.0, run="a"), latent("deepseek_flash_mla v0", 50.0, run="a")]
    later = [latent("flash_mla v1", 35.0, run="b"), latent("flash_mla v2", 60.0, run="b")]
    made = on(site, *beside, *later)
    ours = compare.fastest([beside[0], *later])
    assert choice.chosen(made, ours).run.record.kernel.version == "v0"
    alone = replace(made, runs=tuple(later), earlier=())
    assert choice.chosen(alone, compare.fastest(later)).run.record.kernel.version == "v1"


def test_a_library_that_no_candidate_was_timed_beside_decides_nothing(site):
    made = on(site, latent("flash_mla v0", 40.0, run="a"), latent("flash_mla v1", 30.0, run="b"),
              latent("deepseek_flash_mla v0", 50.0, run="c"))  # fmt: skip
    mine = compare.fastest(run for run in made.runs if run.record.kernel.design == "flash_mla")
    assert choice.chosen(made, mine).run.record.kernel.version == "v1"


@pytest.mark.slow
def test_results_and_the_advisor_name_one_kernel(site):
    """At each problem whose champion a cache of the advisor holds."""
    told = {
        (answer["device"], *(answer[axis] for axis in (*advisor.AXES, *advisor.CONDITIONS)),
         answer["cache"]): answer["newest"]
        for answer in advisor.answers(site)
    }  # fmt: skip
    kernels = advisor.kernels_by_design(site)
    seen = 0
    for run in results.champions(site):
        record = run.record
        if record.kernel.design not in kernels or record.mode != "event":
            continue
        conditions = advisor._conditions(record.problem)
        key = (record.target, *(record.problem.get(axis) for axis in advisor.AXES),
               *conditions.values(), advisor.held_by(run, kernels))  # fmt: skip
        if key in told and record.problem.get("dtype") == "bf16":
            seen += 1
            assert told[key] == site.version_of(run).key, key
    assert seen > 60
