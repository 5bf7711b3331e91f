"""What the records say of a version: comparisons within a run, time beside bound, its limit."""

from __future__ import annotations

import re

import pytest

from mla_var3 import evidence
from mla_var3.app import winner
from mla_var3.evidence.compare import versus
from mla_var3.knowledge import standing
from mla_var3.runtime import registry
from tests.evidence.making import duration, stage, timed

H200 = "nvidia-h200-sxm"
ASKED = {"b": 64, "h": 128, "s": 1, "t": 4096, "dtype": "bf16", "causal": False}


def timed_at(us, design="flash_mla", version="v2", *, run="r1", language="cutile-dsl", **problem):
    sizes = {**ASKED, "p": 64, "k": 512, **problem}
    package = {"library": "library", "cute-dsl": "cute_python"}.get(language, "cutile")
    from tests.evidence.making import timed_record

    return timed_record(
        us, outcome=timed(us, stages=[stage("a", duration=duration(us * 0.9))]), run=run,
        problem=sizes, slug="-".join(f"{k}{v}" for k, v in sizes.items()),
        kernel={"design": design, "version": version, "language": language, "package": package,
                "layer": "mla"},
    )  # fmt: skip


class Index:
    """An index of these records only."""

    def __init__(self, *records: evidence.Record) -> None:
        self.records = records


def facts(*records, asked=ASKED, made=()):
    version = registry.find("flash_mla", "v2")
    return dict(standing.facts(standing.of(version, asked, Index(*records), made)))


def test_what_was_never_timed_says_so():
    assert facts() == {"Measured": "never; no record states a time of it."}
    assert facts(timed_at(10.0, version="v1"))["Measured"].startswith("never")


def test_versions_compare_within_one_run_only():
    said = facts(timed_at(100.0), timed_at(200.0, version="v1", run="r2"))
    assert said["Against v1"] == "no common run."
    said = facts(timed_at(100.0), timed_at(200.0, version="v1"))
    assert said["Against v1"].startswith("2x faster at b=64")
    assert H200 not in said["Against v1"]  # The line above names it.


def test_many_problems_are_told_by_their_verdict_counts_and_span():
    pairs = [(timed_at(100.0, s=s), timed_at(100.0 * gain, version="v1", s=s))
             for s, gain in ((1, 0.5), (2, 2.0), (4, 3.0))]  # fmt: skip
    said = facts(*(record for pair in pairs for record in pair))["Against v1"]
    assert said.startswith("up to 3x faster at 2, 2x slower at 1 of 3 problems")


def test_report_and_comparison_give_one_verdict():
    """Slower at one problem of four is slower, though the median of the four is as fast."""
    ours = [timed_at(106.0 if s == 1 else 100.0, s=s) for s in (1, 2, 4, 8)]
    before = [timed_at(100.0, version="v1", s=s) for s in (1, 2, 4, 8)]
    said, whole = facts(*ours, *before)["Against v1"], versus(before, ours)
    assert whole.word == "slower"
    assert said == f"{whole.told}."
    assert said == "up to 1.06x slower at 1 of 4 problems."
    verdict = winner.duel(("v1", "v2"), whole, ()).verdict
    assert verdict.startswith("v1 wins")
    assert whole.counted in verdict


def test_equal_at_every_problem_is_as_fast():
    pairs = [(timed_at(100.0, s=s), timed_at(101.0, version="v1", s=s)) for s in (1, 2)]
    said = facts(*(record for pair in pairs for record in pair))["Against v1"]
    assert said == "as fast at all 2 problems."


def test_the_best_is_the_fastest_of_ours_in_that_run():
    others = [
        timed_at(50.0, version="v9", language="cute-dsl"),
        timed_at(10.0, "deepseek_flash_mla", "v0", language="library"),
        timed_at(5.0, version="v1", run="r2"),
        timed_at(4.0, "mla_shared_prefix", "v0", shared=3072),
    ]
    said = facts(timed_at(100.0), *others)
    assert said["Against the best"].startswith("2x slower than flash_mla@cute-dsl v9 (50.0 us")
    assert said["Against FlashMLA"].startswith("10x slower at b=64")
    assert facts(timed_at(100.0))["Against the best"].startswith("it is the fastest version of its")


def test_against_a_library_it_says_what_work_is_compared():
    peer = timed_at(100.0, "deepseek_flash_mla", "v0", language="library")
    assert "covers" not in facts(timed_at(50.0), peer)["Against FlashMLA"]
    version = registry.find("mla_shared_prefix", "v0")
    spared = timed_at(50.0, "mla_shared_prefix", "v0", shared=3072)
    found = standing.of(version, ASKED, Index(spared, peer))
    said = dict(standing.facts(found))["Against FlashMLA"]
    assert said.startswith("2x faster at b=64")
    assert said.endswith(f"mla_shared_prefix v0 covers {version.plan_class().covers}.")


def test_where_no_run_timed_the_library_the_best_of_ours_speaks():
    best = {"version": "v9", "language": "cute-dsl"}
    said = facts(
        timed_at(100.0), timed_at(50.0, **best), timed_at(50.0, run="r3", **best),
        timed_at(75.0, "deepseek_flash_mla", "v0", language="library", run="r3"),
    )["Against FlashMLA"]  # fmt: skip
    assert said.startswith("no common run; flash_mla@cute-dsl v9 is 1.5x faster at b=64")


def test_the_nearest_problem_speaks_for_the_asked_one():
    near, far = timed_at(100.0, b=32), timed_at(900.0, b=1)
    said = facts(near, far)["Measured"]
    assert said.startswith("100.0 us at b=32")
    assert "the nearest that was timed" in said
    exact = facts(near, timed_at(150.0, run="r2"))["Measured"]
    assert exact.startswith("150.0 us at b=64")
    assert "nearest" not in exact


def test_what_the_run_itself_timed_speaks_first():
    made = timed_at(170.0, run="now", b=32)
    assert facts(timed_at(150.0), made=[made])["Measured"].startswith("170.0 us at b=32")


def test_a_time_stands_beside_its_bound_and_its_device():
    said = facts(timed_at(200.0))
    assert "on NVIDIA H200 SXM" in said["Measured"]
    assert "times the problem's bound" in said["Measured"]
    assert said["Limited there"].startswith("stage a: ")


@pytest.mark.parametrize("n", [0, 4096])
def test_work_beyond_the_bound_says_what_it_takes_at_least(n):
    problem = {**ASKED, "s": 16, "p": 64, "d": 128, "k": 512, "n": n}
    record = timed_at(20000.0, design="mla_var6_plus", version="v4", **problem)
    version = registry.find("mla_var6_plus@cutile-dsl", "v4")
    said = dict(standing.facts(standing.of(version, problem, Index(record))))
    assert re.search(r"its own way takes at least [\d,.]+ us by \w+", said["Measured"])
    assert "its own way" not in facts(timed_at(200.0))["Measured"]


@pytest.mark.parametrize(("s", "told"), [(1, False), (64, True)])
def test_a_bound_that_a_sister_design_beats_says_so(s, told):
    said = facts(timed_at(20000.0, s=s), asked={**ASKED, "s": s})["Measured"]
    assert ("a design that keeps another cache may take" in said) is told


@pytest.mark.slow
def test_every_design_says_something():
    """No design's facts raise, whatever its records state."""
    index = evidence.Index()
    for versions in registry.designs().values():
        version = versions[-1]
        found = standing.of(version, version.plan_class()().problem(), index)
        said = dict(standing.facts(found))
        assert said["Measured"]
        assert set(said) == {"Measured"} or {"Against the best", "Limited there"} <= set(said)
