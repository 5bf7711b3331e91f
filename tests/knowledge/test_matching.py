from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.knowledge import match, next_steps, steps
from mla_var3.knowledge.history import Gain
from mla_var3.knowledge.matching import OPTIMISM, WORTH, Match, NextStep, most
from mla_var3.knowledge.schema import Condition, Trigger
from mla_var3.knowledge.triggers import Fired
from mla_var3.runtime import costs
from mla_var3.workloads import Cost

from .trees import ANTI, H200, PAGE, PROTOCOL, failed_record, make_record, timed_record


def ids(record, tree):
    return [m.page.pattern.id for m in match(record, tree.catalogue())]


def test_the_values_that_fired_are_told(tree):
    found = {m.page.pattern.id: m for m in match(make_record("v0"), tree.catalogue())}
    (fired,) = found["o1-group"].fired
    assert str(fired) == (
        "spill_instructions = 3 instructions in stage main (spill_instructions > 0)"
    )
    assert found["o1-group"].gain is None
    assert found["o1-group"].known_violation
    assert list(found) == ["o1-group", "a1-spill"]


def test_conditions_under_with_narrow_a_trigger(tree):
    def fired(**changes):
        record = make_record("v0", static={"spill_loads": 0, "spill_stores": 0, **changes["s"]},
                             tiling=changes.get("t"))  # fmt: skip
        return "o1-group" in ids(record, tree)

    assert fired(s={"registers": 255})
    assert not fired(s={"registers": 254})
    assert not fired(s={"registers": 255}, t={"num_worker_warps": 8})


def test_with_looks_at_the_same_stage(tree):
    record = make_record("v0", static={"registers": 255, "spill_loads": 0, "spill_stores": 0},
                         tiling={"num_worker_warps": 8})  # fmt: skip
    first = record.outcome.stages[0]
    other = first.model_copy(
        update={
            "name": "tail",
            "tiling": {},
            "static": first.static.model_copy(update={"registers": 20}),
        }
    )
    two = record.model_copy(
        update={"outcome": record.outcome.model_copy(update={"stages": [first, other]})}
    )
    assert "o1-group" not in ids(two, tree)


def test_with_may_look_at_the_whole_run(tree):
    tree.replace(PAGE, "{metric: num_worker_warps, comparison: \"<\", value: 8}",
                 "{metric: query_tokens, comparison: \"==\", value: 16}")  # fmt: skip
    record = make_record("v0", static={"registers": 255, "spill_loads": 0, "spill_stores": 0})
    assert "o1-group" in ids(record, tree)


def test_a_run_level_trigger_with_a_stage_level_condition(tree):
    tree.replace(ANTI, 'metric: mma_path, comparison: "==", value: HMMA',
                 'metric: query_tokens, comparison: ">=", value: 16, '
                 'with: [{metric: registers, comparison: ">", value: 199}]')  # fmt: skip
    assert "a1-spill" in ids(make_record("v0"), tree)
    assert "a1-spill" not in ids(make_record("v1"), tree)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, True),
        ({"target": "static/sm_90a"}, True),
        ({"target": "static/sm_100"}, False),
        ({"target": "cpu"}, True),
        ({"problem": {"s": 1}}, True),
        ({"problem": {"s": 128}}, False),
        ({"problem": {"s": None}}, True),
    ],
)
def test_pages_about_other_archs_and_regimes_are_left_out(tree, changes, found):
    assert ("o1-group" in ids(make_record("v0", **changes), tree)) is found


def test_pages_of_other_languages_are_left_out(tree):
    text = tree.read(ANTI).replace("scope: shared", "scope: cute-dsl").replace("a1-", "cute-")
    tree.write("knowledge/languages/cute-dsl/anti-patterns/cute-spill.md", text)
    assert "cute-spill" not in ids(make_record("v0"), tree)


def test_a_page_that_names_no_regime_of_the_workload_holds_in_all(tree):
    record = make_record("v0", problem={"m": 4096, "n": 4096, "k": 64})
    kernel = record.kernel.model_copy(update={"layer": "gemm", "design": "gemm"})
    assert "o1-group" in ids(record.model_copy(update={"kernel": kernel}), tree)


@pytest.mark.parametrize("used_by", ["[]", "[flash_mla v1]", "[flash_mla@library v1]"])
def test_who_uses_a_page_decides_nothing(tree, used_by):
    tree.replace(PAGE, "used_by: [flash_mla v1]", f"used_by: {used_by}")
    assert "o1-group" in ids(make_record("v1", static={"spill_loads": 9}), tree)


def test_a_failed_run_fires_what_its_problem_fires(tree):
    assert ids(failed_record("v0"), tree) == []


def test_next_steps_are_lines(tree):
    lines = next_steps(make_record("v0"), root=tree.root)
    assert lines[0] == (
        f"Group heads ({PAGE}): "
        "spill_instructions = 3 instructions in stage main (spill_instructions > 0); "
        "gain not measured"
    )
    assert len(next_steps(make_record("v0"), top=1, root=tree.root)) == 1
    assert next_steps(make_record("v0"), root=tree.root / "nowhere") == []


def test_next_steps_of_several_records_name_the_target(tree):
    made = [make_record("v0"), make_record("v0", target="static/sm_100")]
    found = steps(made, tree.catalogue())
    assert [s.id for s in found] == ["o1-group", "a1-spill"]
    assert found[0].because.endswith("on sm_90")
    assert steps([], tree.catalogue()) == []


def test_the_best_record_of_a_page_counts(tree):
    open_end = make_record("v0", target="static/sm_90")
    near_its_bound = near(0.6)
    by_id = {s.id: s for s in steps([near_its_bound, open_end], tree.catalogue())}
    assert by_id["o1-group"].because.endswith("on sm_90")


def at_bound(fraction):
    """Times of a stage whose FLOPs would take ``fraction`` of them at the H200's bound."""
    us = costs.bound(make_record("v0", target="nvidia-h200-sxm", mode="disabled", device=H200,
                                    )).time_us / fraction  # fmt: skip
    duration = {"median_us": us, "min_us": us, "max_us": us, "samples": 1}
    return {
        "total": duration,
        "protocol": PROTOCOL,
        "stage": {"duration": duration},
    }


@pytest.fixture(autouse=True)
def work(cost):
    cost[""] = Cost(10**12, 10**9)


def near(fraction, **changes):
    times = at_bound(fraction)
    stage = times.pop("stage") | changes
    return timed_record("v0", outcome=times, stage=stage)


GAINS = {"o1-group": [Gain(3.0, {}, ("cutile-dsl", "mla", "other", "v0"))]}


def test_what_the_bound_leaves_limits_the_gain(tree):
    found = match(near(0.8), tree.catalogue(), GAINS)
    assert {m.page.pattern.id: m.measured for m in found} == {"o1-group": (3.0,), "a1-spill": ()}
    assert [m.gain for m in found] == [1.0] * len(
        found
    )  # 1.25 at most, and like cases promise more.
    assert match(near(0.95), tree.catalogue()) == []


def test_less_work_is_worth_more_than_the_bound_leaves(tree):
    tree.replace(PAGE, "affects:\n  registers: down", "affects:\n  flops: down")
    (found,) = match(near(0.95), tree.catalogue(), GAINS)
    assert found.gain == pytest.approx(3.0 / OPTIMISM)


@given(st.floats(0.05, 1.0), st.floats(0.05, 1.0))
def test_a_stage_brings_at_most_its_share(fraction, share):
    record = near(fraction)
    whole = record.outcome.total.median_us / share
    names = ("median_us", "min_us", "max_us")
    total = record.outcome.total.model_copy(update=dict.fromkeys(names, whole))
    slower = record.model_copy(
        update={"outcome": record.outcome.model_copy(update={"total": total})}
    )
    assert most(slower, "main") == pytest.approx(1 / (1 - share + share * fraction), rel=1e-6)
    assert most(slower, "main") <= 1 / (1 - share) if share < 1 else True


def test_pages_that_say_the_same_of_one_value_are_one_advice(tree):
    tree.replace(ANTI, 'metric: mma_path, comparison: "==", value: HMMA',
                 'metric: spill_instructions, comparison: ">", value: 2')  # fmt: skip
    (found,) = match(make_record("v0"), tree.catalogue())
    assert [page.pattern.id for page in (found.page, *found.also)] == ["o1-group", "a1-spill"]
    assert next_steps(make_record("v0"), root=tree.root)[0].endswith("see also a1-spill")


def test_a_gain_below_what_runs_differ_by_is_not_worth_a_word():
    assert WORTH > 1.07


def test_this_repositorys_pages_load_without_a_root():
    assert isinstance(next_steps(make_record("v0")), list)


@pytest.mark.parametrize(
    ("comparison", "value", "other", "holds"),
    [
        ("<", 1, 2, True), ("<", 2, 2, False), ("<=", 2, 2, True), ("==", 2, 2, True),
        ("!=", 2, 2, False), (">=", 2, 2, True), (">", 3, 2, True), (">", "a", 2, False),
        ("==", "a", "a", True), ("!=", "a", "b", True), ("<", "a", "b", False),
        ("==", True, True, True), ("!=", False, True, True),
    ],
)  # fmt: skip
def test_comparisons(comparison, value, other, holds):
    condition = Condition(metric="x", comparison=comparison, value=other)
    assert condition.holds(value) is holds


@given(st.integers(), st.integers())
def test_of_the_comparisons_one_order_holds(value, other):
    def holds(comparison):
        return Condition(metric="x", comparison=comparison, value=other).holds(value)

    assert [holds("<"), holds("=="), holds(">")].count(True) == 1
    assert holds("<=") is (holds("<") or holds("=="))
    assert holds(">=") is (holds(">") or holds("=="))
    assert holds("!=") is not holds("==")


def test_triggers_are_shown_with_their_conditions():
    inner = Condition(metric="b", comparison="==", value=True)
    trigger = Trigger(metric="a", comparison=">", value=1, with_=(inner,))
    assert str(trigger) == "a > 1 and b == true"


def test_a_step_says_what_it_was_measured_to_gain():
    step = NextStep("o1", "Do it", "o1.md", "x > 1", 2.0, "x = 2", ("o2",), (3.0, 1.25, 2.0))
    assert str(step) == "Do it (o1.md): x > 1; measured gain 1.25x to 3x; see also o2"
    assert str(replace(step, measured=(2.0,), also=())).endswith("x > 1; measured gain 2x")
    assert str(replace(step, measured=(), also=())) == "Do it (o1.md): x > 1; gain not measured"
    assert step.brief == "Do it (o1): x = 2; measured gain 1.25x to 3x"
    wrong = replace(step, page="knowledge/anti-patterns/a1.md", measured=())
    assert wrong.brief == "Undo: Do it (o1): x = 2"


@given(st.floats(1.1, 50), st.floats(1.0, 60), st.booleans())
def test_what_to_expect_is_an_interval_within_what_is_left(gain, left, by_facts):
    fired = Fired(
        Trigger(metric="registers", comparison=">", value=1), None, None, gain if by_facts else None
    )
    low, high = Match(None, (fired,), min(gain, left), (), left).expected
    assert 1 <= low <= high
    assert high <= max(1.0, left)
    assert low <= max(1.0, gain)


@pytest.mark.parametrize(
    ("expected", "told"),
    [
        ((1.0, 1.8), "expected gain up to 1.8x; "),
        ((1.3, 2.0), "expected gain 1.3x to 2x; "),
        (None, ""),
    ],
)
def test_a_step_tells_what_to_expect(expected, told):
    step = NextStep("id", "Title", "page.md", "because", 2.0, expected=expected)
    assert str(step) == f"Title (page.md): because; {told}gain not measured"
