from __future__ import annotations

import pytest
from factories import correctness, costs_as, duration, passed, record, stage, static_facts

from mla_var3 import evidence
from mla_var3.languages.cute.facts import CuteFacts
from mla_var3.profiling.report import NOTHING
from mla_var3.profiling.summary import render
from tests.evidence.making import timed_record


@pytest.fixture(autouse=True)
def cost(monkeypatch):
    """A cost model that is easily followed."""
    costs_as(monkeypatch)


def compiled(arch: str, **facts) -> evidence.Record:
    outcome = passed(stages=[
        stage("a", static=static_facts(arch, **facts)), stage("b", static=static_facts(arch)),
    ])  # fmt: skip
    return record(outcome=outcome, target=f"static/{arch}")


def line(text: str, start: str) -> list[str]:
    found = next(line for line in text.splitlines() if line.startswith(f"| {start} |"))
    return [cell.strip() for cell in found.strip("|").split("|")]


def test_one_line_per_target_has_the_worst_of_its_stages():
    worse = compiled("sm_120", registers=255, spill_loads=7, spill_stores=2, stack_bytes=64)
    text = render([compiled("sm_90"), worse])
    assert line(text, "sm&#95;90")[1:4] == ["168", "none", "HGMMA"]
    assert line(text, "sm&#95;120")[1:3] == ["255", "9"]
    assert "- **Limited by**: register spills: 255 registers" in text
    assert "on sm&#95;120" in text


def test_multiplications_that_wait_for_each_other_are_what_limits():
    facts = CuteFacts(
        kernel="b",
        arch="sm_90",
        threads_per_block=384,
        wgmma=72,
        wgmma_waits=72,
        wgmma_serialized=True,
    )
    stages = [stage("a"), stage("b", static=facts)]
    text = render([record(outcome=passed(stages=stages))])
    assert "- **Limited by**: serialized wgmma: the assembler waits 72 times for 72" in text


def test_the_verdict_comes_first():
    right = render([compiled("sm_90")])
    assert right.startswith("**flash&#95;mla v0**: **right**")
    assert ": relative error 1.0e-03 of 4e-03 allowed" in right
    small = evidence.CheckedCase(problem={"b": 2, "t": None})
    other = render([record(outcome=passed(correctness=correctness(cases=[small])))])
    assert "**right** at b=2" in other.splitlines()[0]
    case = evidence.CheckedCase(problem={})
    wrong = passed(correctness=correctness("failed", message="o is wrong", cases=[case]))
    said = render([record(outcome=wrong)]).splitlines()[0]
    assert "**wrong**, relative error not finite" in said
    assert "o is wrong" in said
    failed = render([record(outcome=evidence.Failed(error="out of memory"))]).splitlines()[0]
    assert failed.endswith("failed on static/sm&#95;90: out of memory.")
    assert "not checked" in render([record(outcome=passed(correctness=None))])


def test_times_and_steps_are_shown_where_there_are_any():
    timed = record(outcome=passed(total=duration(1234.5), stages=[stage("a")]))
    text = render([timed], ["do this; measured gain: 2x faster"])
    assert "1,234.5" in line(text, "sm&#95;90")
    assert "1. do this; measured gain: 2x faster" in text
    assert "**Try next** (gain not measured where none stands)" in text
    assert "Try next" not in render([timed])


def test_what_is_known_takes_the_place_of_what_only_a_compile_says():
    text = render([compiled("sm_90", spill_loads=9)], known=[("Measured", "1 us")])
    assert "- **Measured**: 1 us" in text
    assert "Limited by" not in text


def test_where_nothing_was_found_it_says_so():
    assert f"**Try next**\n\n{NOTHING}" in render([compiled("sm_90")], [])


def test_targets_that_took_another_size_say_so():
    sizes = {"b": 1, "n": 0}, {"b": 1, "n": 64}
    found = [record(problem=problem) for problem in sizes]
    text = render(found)
    assert "At b=1:" in text
    assert line(text, "sm&#95;90 n=0")
    assert line(text, "sm&#95;90 n=64")


def test_a_screen_has_room_for_three_targets_and_steps():
    found = [compiled(arch) for arch in ("sm_90", "sm_100", "sm_120")]
    known = [(f"fact {number}", "said") for number in range(5)]
    lines = render(found, ["one", "two", "three"], known).splitlines()
    assert len([text for text in lines if text]) <= 17


def test_a_target_that_was_skipped_says_why():
    skipped = record(outcome=evidence.Skipped(reason="needs sm_90"), target="static/sm_120")
    assert "skipped: needs sm&#95;90" in render([compiled("sm_90"), skipped])


def test_an_axis_that_targets_differ_in_is_told_as_help_tells_it():
    problem = {"b": 1, "h": 16, "s": 1, "t": 64, "p": 64, "d": 128, "k": 512, "dtype": "bf16",
               "causal": False}  # fmt: skip
    kernel = {"design": "mla_var6_plus", "version": "v4", "language": "cutile-dsl",
              "package": "cutile", "layer": "mla"}  # fmt: skip
    made = [timed_record(problem={**problem, "n": n}, slug=f"n{n}", kernel=kernel) for n in (0, 32)]
    assert "(n: newest tokens kept decompressed, 0 to t):" in render(made)
    assert "n: newest" not in render(made[:1])
