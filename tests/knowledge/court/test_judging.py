"""The court: names hidden, constant answers, and what the gates hold."""

import functools
import json
import random
import string
from types import SimpleNamespace

import pytest

from mla_var3.errors import KnowledgeError
from mla_var3.knowledge import history, load_all, losses
from mla_var3.knowledge.backtest import Backtest, Case
from mla_var3.knowledge.court import cases, judging, observing
from mla_var3.knowledge.court.cases import Edit, Kernel, Past, Seeded, Stranger
from mla_var3.knowledge.court.judging import Verdict, score
from mla_var3.runtime import costs
from mla_var3.workloads import Cost

SEEDED, GOODS = cases.seeded()
TABLE = observing.load()


@functools.cache
def catalogue():
    return load_all()


@functools.cache
def gains():
    return history.gains(catalogue())


def test_every_kernel_of_the_lists_was_observed():
    wanted = {observing.key(k) for k in (*GOODS, *(case.slow for case in SEEDED))}
    assert wanted == TABLE.keys()


def test_the_lists_are_long_and_over_both_languages():
    assert len(SEEDED) >= 60
    assert len(GOODS) >= 60
    assert len(cases.strangers()) >= 60
    languages = [TABLE[observing.key(case.slow)].language for case in SEEDED]
    assert min(languages.count(name) for name in ("cutile-dsl", "cute-dsl")) >= 15


def test_every_remedy_is_a_page():
    known = {page.pattern.id for page in catalogue().patterns}
    every = (*SEEDED, *cases.strangers(), *cases.past())
    named = {page for case in every for page in case.remedies}
    assert named <= known


@pytest.mark.parametrize("case", SEEDED, ids=lambda case: case.id)
def test_names_tell_the_advice_nothing(case):
    chance = random.Random(case.id)
    names = {}

    def hidden(name):
        if name not in names:
            names[name] = "".join(chance.choices(string.ascii_lowercase, k=8))
        return names[name]

    seen = TABLE[observing.key(case.slow)]
    plain = judging.advised(seen, catalogue(), gains())
    if all("." not in stage.name for stage in seen.stages):
        assert judging.advised(seen, catalogue(), gains(), hidden) == plain


@pytest.mark.parametrize("held_out", [False, True])
def test_the_right_page_comes_first_for_seeded_slow_downs(held_out):
    found = score(judging.try_seeded(SEEDED, TABLE, catalogue(), gains(), held_out=held_out))
    assert found.first >= 0.75 - 0.1 * held_out
    assert found.top >= 0.9 - 0.1 * held_out
    assert found.constant_first < found.first / 2
    assert found.constant_top < found.top / 2


def test_strangers_are_told_their_cause():
    found = score(judging.try_strangers(cases.strangers(), catalogue(), gains()))
    assert found.first >= 0.6
    assert found.top >= 0.8
    assert found.constant_first < found.first / 2
    assert found.constant_top < found.top / 2


def test_strangers_come_from_many_places():
    origins = {case.package.partition(" ")[0] for case in cases.strangers() if case.launch}
    assert origins == {
        "tilegym", "flashinfer-python", "quack-kernels", "cutile-python", "sglang", "flash-attn-4",
        "triton-lang/kernels", "fla-core", "gemlite", "liger-kernel",
    }  # fmt: skip
    languages = {judging.seen_of(case).language for case in cases.strangers()}
    assert languages == {"cute-dsl", "cutile-dsl", "triton"}


def test_good_kernels_are_left_in_peace():
    verdicts = judging.try_good(GOODS, TABLE, catalogue(), gains())
    assert sum(verdict.place != 1 for verdict in verdicts) <= 0.05 * len(verdicts)


def verdict(remedies, *advised):
    return Verdict("case", "design", tuple(remedies), tuple((page,) for page in advised))


def test_the_place_is_that_of_the_first_right_page():
    assert verdict(["b", "c"], "a", "c", "b").place == 2
    assert verdict(["b"]).place is None
    assert verdict([]).place == 1
    assert verdict([], "a").place is None
    assert Verdict("case", "design", ("b",), (("a", "b"),)).place == 1


def test_the_best_constant_answer_is_scored_beside():
    verdicts = [verdict(["a"], "a"), verdict(["a"], "b"), verdict(["b"], "b"), verdict([], "a")]
    found = score(verdicts)
    assert (found.cases, found.first, found.top) == (4, 0.5, 0.5)
    assert found.constant_first == 0.5
    assert found.constant_top == 0.75  # Silence is an answer of its own.
    assert score([]).first == 0


def test_an_edit_changes_what_it_names_alone():
    good = Kernel(design="d", version="v1", problem={"b": 1, "s": 2}, tiling={"x": {"m": 1}})
    edit = Edit(problem={"s": 3}, tiling={"x": {"n": 2}})
    slow = Seeded(id="i", good=good, edit=edit, remedies=("a",), why="w").slow
    assert (slow.version, slow.problem) == ("v1", {"b": 1, "s": 3})
    assert slow.tiling == {"x": {"m": 1, "n": 2}}


def test_a_stranger_without_its_example_is_refused():
    case = Stranger(id="x", example="nowhere", layer="gemm", remedies=(), why="w")
    with pytest.raises(KnowledgeError, match="no example nowhere"):
        judging.seen_of(case)


def test_a_package_that_was_not_compiled_is_refused(tmp_path):
    case = next(case for case in cases.strangers() if case.launch)
    with pytest.raises(KnowledgeError, match=f"no compile of {case.package}"):
        judging.seen_of(case, tmp_path)


def test_a_list_that_names_a_case_twice_is_refused(tmp_path):
    (tmp_path / "knowledge/court").mkdir(parents=True)
    text = '[[case]]\nid = "x"\nexample = "e"\nlayer = "gemm"\nremedies = []\nwhy = "w"\n'
    (tmp_path / cases.STRANGERS).write_text(text * 2)
    with pytest.raises(KnowledgeError, match="names x twice"):
        cases.strangers(tmp_path)
    with pytest.raises(KnowledgeError, match="cannot be read"):
        cases.seeded(tmp_path)


def past(before, after):
    return Past(id="x", before=before, after=after, remedies=("o16-split-kv",), why="w")


def test_a_version_that_another_design_beat_is_advised_what_that_does():
    case = next(case for case in cases.past() if case.id == "flash-mla-few-heads-to-split-kv")
    for held_out in (False, True):
        (found,) = judging.try_past([case], catalogue(), gains(), held_out=held_out)
        assert (found.design, found.place) == ("flash_mla", 1)


def test_a_transition_that_gained_nothing_or_in_two_runs_is_refused():
    case = next(case for case in cases.past() if case.id == "flash-mla-few-heads-to-split-kv")
    other = next(case for case in cases.past() if case.id == "flash-mla-in-cutile-to-the-cute-dsl")
    for before, after in ((case.after, case.before), (case.before, other.after)):
        with pytest.raises(KnowledgeError, match=r"no gain of 1.1x within one run"):
            judging.try_past([past(before, after)], catalogue(), gains())


def test_rows_that_leave_a_warpgroups_product_empty_are_seen_in_its_shape():
    design = "flash_mla@cute-dsl"
    seen = next(s for name, s in TABLE.items() if json.loads(name)["design"] == design)
    work = Cost(flops=10**13, bytes=1)

    def loss(h, stages=seen.stages):
        problem = {**seen.problem, "h": h, "s": 1}
        record = judging.record_of(seen.model_copy(update={"problem": problem, "stages": stages}))
        stage = record.outcome.stages[0]
        with costs.given(costs.Given({stage.name: work}, None)):
            return losses.thin(record, stage)

    assert loss(16) == pytest.approx(4)
    assert loss(64) is None
    thin = next(s for name, s in TABLE.items() if json.loads(name)["design"] == "thin_mla")
    assert loss(16, thin.stages) is None  # Its rows are the columns of the product.


def test_promises_are_compared_with_what_was_measured():
    step = SimpleNamespace(gain=2.0)
    told = [Case(step, (), (), promised=gain) for gain in (3.0, None, 1.0)]
    assert judging.promises(Backtest(tuple(told), ())) == [0.5, 1.5]
