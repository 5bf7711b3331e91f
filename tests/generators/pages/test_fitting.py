"""Which versions compile for an arch: by records alone, on pages of devices, archs and kernels."""

from __future__ import annotations

import re

import pytest

from generators.model import fits
from generators.pages import devices, fitting, kernels, results
from mla_var3.evidence import Failed, Skipped
from tests.factories import correctness, passed, stage, static_facts
from tests.generators.runs import on, rows, timed

ARCH = "sm_120"
RIGHT = correctness()
WGMMA = "uses wgmma (warpgroup matrix multiplication), which needs sm_90 and not sm_120: none"


def compiled(version, spills=0, target=f"static/{ARCH}", checks=RIGHT, **changes):
    """A compile of a version."""
    facts = static_facts(target.removeprefix("static/"), spill_loads=spills, registers=100)
    outcome = passed(stages=[stage(static=facts)], correctness=checks)
    fields = {
        "design": "mla_var6_plus", "mode": "static", "target": target, "device": None,
        "outcome": outcome, **changes,
    }  # fmt: skip
    return timed(version, 1.0 + spills, run=f"r{version}{spills}", **fields)


@pytest.fixture
def versions(site):
    """The versions of the design that runs of these tests are of."""
    return site.designs()["mla_var6_plus"]


@pytest.fixture
def known(site):
    """v0 compiles, v1 spills, v2 lacks an instruction, v3 was found wrong, v4 has no record."""
    return on(
        site,
        compiled("v0"),
        compiled("v1", 7),
        compiled("v2", outcome=Skipped(reason=WGMMA)),
        compiled("v3", outcome=Failed(stage="split", error="cluster-exit at kernels/a.py:7: gone")),
    )


def named(found):
    return [version.version for version in found]


def test_records_say_which_compile(known, versions):
    fit = fits.of(known, versions, ARCH)
    assert named(fit.clean) == ["v0"]
    assert named(fit.spilling) == ["v1"]
    assert [version.version for version, _ in fit.refused] == ["v2"]
    assert [version.version for version, _ in fit.failed] == ["v3"]
    assert named(fit.unknown) == ["v4"]


def test_a_version_that_spills_at_one_problem_spills(site, versions):
    both = on(site, compiled("v0"), compiled("v0", 3))
    assert named(fits.of(both, versions, ARCH).spilling) == ["v0"]


def test_another_arch_is_another_question(known, versions):
    assert fits.of(known, versions, "sm_90").compiled == []
    assert fits.archs(known, versions) == [ARCH]


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ((), ""),
        ((1,), "v1"),
        ((0, 1), "v0, v1"),
        ((0, 1, 2, 4), "v0 to v2, v4"),
        ((0, 2), "v0, v2"),
    ],
)
def test_versions_in_a_row_are_named_by_their_ends(versions, places, said):
    assert fits.spans(versions, [versions[place] for place in places]) == said


def test_the_table_has_a_row_per_design_with_the_reason_in_few_words(known):
    text = "## x\n" + fitting.designs(known, ARCH, known.link("results/sm_120.md"))
    (row,) = rows(text, "## x")
    assert "mla" in row[0]
    assert row[1:3] == ["v0", "v1"]
    assert row[3] == "v2: uses wgmma (warpgroup matrix multiplication)<br>v3: cluster-exit"
    assert "v4" in text.partition("Without a record here")[2]


def page(found, path):
    return next(one.content for one in found if one.path == path)


def test_the_page_of_a_device_begins_with_it(known):
    text = page(devices.pages(known), "devices/nvidia-rtx-5090.md")
    assert text.index("2 versions compile for sm_120, 1 of them") < text.index("## Rates")
    assert "1 do not compile" in text
    assert "None was timed on NVIDIA GeForce RTX 5090" in text
    assert "kernels that run on RTX 5090" in text
    assert "](../results/sm_120.md)" in text


def test_a_device_on_which_a_version_ran_says_so(known):
    there = timed("v0", 9.0, design="mla_var6_plus")
    here = on(known, compiled("v0", target="static/sm_90"), there)
    text = page(devices.pages(here), "devices/nvidia-h200-sxm.md")
    assert re.search(r"\[1 of them were timed on NVIDIA H200 SXM\]\(\S+\)", text)


def test_a_device_without_a_record_says_how_to_know(known):
    text = page(devices.pages(known), "devices/nvidia-a100-80gb-sxm.md")
    assert "No record says which kernels compile for sm_80" in text
    assert "## Kernels that run on it" not in text


def test_the_page_of_an_arch_begins_with_it(known):
    text = page(results.pages(known), "results/sm_120.md")
    body = text.partition("# Compiled for")[2]
    assert body.index("2 versions compile") < body.index("Does not compile") < body.index("\n## ")
    assert "sm_120 kernels" in text


def test_checks_on_a_cpu_stand_in_for_times(known):
    text = page(devices.pages(known), "devices/nvidia-rtx-5090.md")
    assert "2 of them ran on a CPU and gave right results" in text
    unchecked = on(known, compiled("v0", checks=None), compiled("v1", checks=correctness("failed")))
    text = page(devices.pages(unchecked), "devices/nvidia-rtx-5090.md")
    assert "; 0 of them ran on a CPU" in text


def test_the_index_of_kernels_names_the_archs(known):
    assert "[sm_120](../results/sm_120.md)" in page(kernels.pages(known), "kernels/index.md")


def test_what_an_sm_has_is_that_of_the_device_files(site):
    rows = fitting.resources(site, site.link("glossary/sm.md")).splitlines()[2:]
    (hopper,) = [row for row in rows if row.startswith("| sm_90 ")]
    assert hopper.split(" | ")[1:5] == ["65,536", "255", "228 KiB", "227 KiB"]
