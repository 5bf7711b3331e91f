from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3 import languages
from mla_var3.profiling.ncu_rep import Advice, Profiled
from mla_var3.profiling.verbose import ranked, render
from tests.profiling import reports

advice = st.builds(
    Advice, rule=st.sampled_from("ABC"), section=st.just("S"), title=st.just(""),
    message=st.just("m"), kind=st.sampled_from(["optimization", "warning", "ok"]),
    speedup=st.none() | st.floats(0, 100),
)  # fmt: skip


@given(st.lists(advice))
def test_what_the_language_can_act_on_comes_first_then_by_estimate(said):
    found = ranked(said, {"A": "do this"})
    assert len(found) == sum(x.kind == "optimization" for x in said)
    keys = [(x.advice.rule != "A", -(x.advice.speedup or 0.0)) for x in found]
    assert keys == sorted(keys)


@pytest.mark.parametrize(
    ("key", "first"),
    [("cute-dsl", "Low Utilization** (95.6 % of one unit)"),
     ("cutile-dsl", "IssueSlotUtilization** (91.7 % of one unit)")],
)  # fmt: skip
def test_the_report_of_an_h200_in_each_language(key, first):
    language, launch = languages.find(key), reports.gemm()
    text = render("d v1", language.title, {"main": launch}, language.levers)
    assert text.startswith("# d v1: what Nsight Compute recommends\n")
    act, below = text.split(f"### Out of reach of {language.title}")
    assert f"### To act on in {language.title}\n\n1. **{first}" in act
    assert f"In this language: {language.levers['LaunchConfiguration']}" in act
    assert "**Low Compression Rate** (3.2 % of the time)" in below


def test_a_library_has_no_levers():
    text = render("d v1", "Library", {"main": reports.gemm()}, languages.find("library").levers)
    assert "### To act on" not in text
    assert "### Out of reach of Library\n\n1. **Low Utilization" in text


def test_where_the_time_went():
    text = render("d v1", "CuTe DSL", {"main": reports.gemm()}, {})
    hot = text.partition("### Hot lines")[2].splitlines()[4]
    assert "| `hopper_gemm_v1.py:130` | 26.2% | `long_scoreboard` |" in hot
    assert "| `HGMMA` | 2,048 | 4.4% |" in text
    assert "Sampling interval is larger" in text.partition("### Notes on this measurement")[2]


def test_a_launch_of_which_nothing_is_known():
    text = render("d v1", "CuTe DSL", {"main": Profiled("k", ())}, {})
    assert text.splitlines()[-3:] == ["## main", "", "Launched as `k`."]
