"""The court: names hidden, constant answers, and what the gates hold."""

import functools
import random
import string

import pytest

from mla_var3.errors import KnowledgeError
from mla_var3.knowledge import history, load_all
from mla_var3.knowledge.court import cases, judging, observing
from mla_var3.knowledge.court.cases import Edit, Kernel, Seeded, Stranger
from mla_var3.knowledge.court.judging import Verdict, score

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
    named = {page for case in (*SEEDED, *cases.strangers()) for page in case.remedies}
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
    assert origins == {"tilegym", "flashinfer-python", "quack-kernels"}
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
