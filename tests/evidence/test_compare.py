"""Which of two versions is faster: the rule, its derivation, and that everybody says the same."""

from __future__ import annotations

import dataclasses
import datetime
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generators import families
from mla_var3 import evidence
from mla_var3.evidence import compare
from mla_var3.evidence.compare import NOISE, Comparison, Versus, neighbors, versus

from .making import timed_record

TIMES = st.floats(1.0, 1e6)


@pytest.fixture(scope="module")
def site():
    return families.load()


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [(18.0, 10.0, "1.8x faster"), (10.0, 21.0, "2.1x slower"), (10.0, 10.04, "as fast"),
     (10.2, 10.0, "as fast"), (113.0, 113.4, "as fast"), (10.4, 10.0, "1.04x faster"),
     (3330.0, 100.0, "33x faster"), (1.0, 1.026, "1.03x slower"), (20.0, 10.0, "2x faster")],
)  # fmt: skip
def test_times_are_compared_as_people_say_it(before, after, said):
    assert compare.said(before, after) == said
    preposition = "as" if said == "as fast" else "than"
    assert compare.than(before, after, "v1") == f"{said} {preposition} v1"


@given(TIMES, TIMES)
def test_what_is_faster_one_way_is_slower_the_other(one, other):
    turned = {"faster": "slower", "slower": "faster", "as fast": "as fast"}
    assert compare.word(other, one) == turned[compare.word(one, other)]
    assert compare.said(one, other).endswith(compare.word(one, other))
    assert not compare.said(one, other).startswith("1x")


def test_the_rule_is_what_repetition_says():
    """Nineteen of twenty ratios moved by less from run to run; the docstring quotes the records."""
    found = compare.repeats(evidence.find())
    shares = [found[int(len(found) * share)] for share in (0.5, 0.75)]
    assert [round(share, 3) for share in shares] == [0.004, 0.009]
    assert round(sum(moved < NOISE for moved in found) / len(found), 2) == 0.95
    for figure in ("0.4 %", "0.9 %", "2.5 %", f"{len(found)} repetitions"):
        assert figure in " ".join(compare.__doc__.split())


def at(day, version, us, slug="b1", **changes):
    time = datetime.datetime(2026, 11, day, tzinfo=datetime.UTC)
    return timed_record(
        us, run=f"run{day}", time=time, slug=slug, kernel={"version": version}, **changes
    )


class TestVersus:
    def test_times_compare_within_one_run_and_the_newest_counts(self):
        v0 = [at(1, "v0", 10.0), at(2, "v0", 20.0), at(3, "v0", 30.0)]
        v1 = [at(1, "v1", 5.0), at(2, "v1", 5.0), at(4, "v1", 5.0)]
        (pair,) = versus(v0, v1).pairs
        assert (pair.before, pair.after, pair.gain) == (v0[1], v1[1], 4.0)
        assert versus(v0[2:], v1).pairs == ()

    def test_of_several_ways_the_fastest_counts(self):
        v0 = [at(1, "v0", us, f"b{us}") for us in (10.0, 20.0)]
        v1 = [at(1, "v1", us, f"b{us}") for us in (8.0, 16.0)]
        (pair,) = versus(v0, v1, lambda record: record.target).pairs
        assert pair.gain == 1.25

    def test_over_all_problems_won_and_lost(self):
        gains = {"b1": 2.0, "b2": 1.01, "b3": 0.5, "b4": 0.8, "b5": 4.0}
        v0 = [at(1, "v0", 10.0 * gain, slug) for slug, gain in gains.items()]
        v1 = [at(1, "v1", 10.0, slug) for slug in gains]
        found = versus(v0, v1)
        assert found.median == pytest.approx(1.01)
        assert (found.best.after.slug, found.worst.after.slug) == ("b5", "b3")
        assert [found.count(word) for word in ("faster", "as fast", "slower")] == [2, 1, 2]
        assert (found.word, found.directions) == ("mixed", {"faster", "slower"})
        assert found.than("v0") == "2x slower to 4x faster than v0"
        tied = ("b2", "b4"), ("b1", "b2"), ("b2",)
        wanted = "as fast as v0 to 1.2x slower", "as fast as v0 to 2x faster", "as fast as v0"
        for slugs, text in zip(tied, wanted, strict=True):
            some = [[one for one in side if one.slug in slugs] for side in (v0, v1)]
            assert versus(*some).than("v0") == text

    @pytest.mark.parametrize(
        ("gains", "whole"),
        [
            ((2.0, 1.01), "faster"),
            ((0.5, 0.99), "slower"),
            ((1.01, 0.99), "as fast"),
            ((1.5, 0.9), "mixed"),
        ],
    )
    def test_its_word_is_the_direction_of_all_that_changed(self, gains, whole):
        v0 = [at(1, "v0", 10.0 * gain, f"b{gain}") for gain in gains]
        v1 = [at(1, "v1", 10.0, f"b{gain}") for gain in gains]
        assert versus(v0, v1).word == whole

    def test_neighbors_are_versions_one_apart(self):
        found = [at(1, version, us) for version, us in (("v0", 8.0), ("v1", 4.0), ("v3", 1.0))]
        assert [pair.gain for pair in neighbors(found)] == [2.0]


# -- one word for everybody -----------------------------------------------------------------------


def the_site(pair):
    from generators.model.compare import Step, Verdict
    from generators.model.run import Run
    from generators.write import verdicts

    run = Run(evidence.address(pair.after), pair.after, False)
    step = Step(run, "here", pair, False)
    from mla_var3.runtime import registry

    kernel = pair.before.kernel
    before = registry.find(f"{kernel.design}@{kernel.language}", kernel.version)
    verdict = Verdict(before, False, (step,))
    assert verdict.word == step.word
    return step.word, verdicts.gain(step), verdicts.headline(verdict), verdicts.badge(verdict)


def test_cli_site_readme_and_report_say_the_same_of_every_pair():
    from mla_var3.app import comparing, winner
    from mla_var3.knowledge import metrics
    from mla_var3.knowledge.evidence import change_text

    pairs = list(neighbors(evidence.find()))
    assert len(pairs) >= 193
    words = set()
    for pair in pairs:
        before, after = map(compare.median_us, (pair.before, pair.after))
        words.add(pair.word)
        one, other = pair.before.kernel.version, pair.after.kernel.version
        assert comparing.against(comparing.MEASURED, before, after, True) == pair.said
        duel = winner.duel((one, other), Versus((pair,)), [(pair.before, pair.after)])
        wins = {"faster": f"{other} wins: ", "slower": f"{one} wins: "}.get(pair.word, "No clear")
        assert duel.verdict.startswith(wins)
        assert f"{other} is {compare.than(before, after, one)}" in duel.verdict
        word, gain, headline, badge = the_site(pair)
        assert (word, gain) == (pair.word, pair.said)
        assert pair.said.lower() in headline.lower()
        assert pair.said in badge
        assert change_text(metrics.metric("total_us"), pair.gain) == pair.said
    assert words == {"faster", "slower", "as fast"}


@pytest.mark.slow
def test_cli_and_site_say_the_same_of_every_version(site):
    """Over all problems: the same pairs, word and span, as the pages state them."""
    from generators.model import compare as model
    from generators.write import verdicts
    from mla_var3.app import comparing
    from mla_var3.errors import RecordError
    from mla_var3.runtime import registry

    compared = 0
    for versions in registry.designs().values():
        for before, version in itertools.pairwise(versions):
            found = model.of(site, version, before)
            if not found.steps:
                continue
            try:
                sentence = next(iter(comparing.summary(before, version)))
            except RecordError:
                pytest.fail(f"the CLI compares nothing of {version.key}")
            compared += 1
            start = {"faster": f"{version.version} wins", "slower": f"{before.version} wins"}.get(
                found.versus.word, "No clear winner"
            )
            assert sentence.startswith(start), (version.key, sentence)
            assert found.versus.than(before.version) in sentence, (version.key, sentence)
            assert f"of {len(found.steps)} problems" in sentence, (version.key, sentence)
            told = {
                "faster": [found.versus.best.said],
                "slower": [found.versus.worst.said],
                "mixed": [found.versus.best.said, found.versus.worst.said],
            }
            headline = verdicts.headline(found).lower()
            for each in told.get(found.versus.word, ["as fast as"]):
                assert each in headline, (version.key, headline)
                if not found.negative or found.words:
                    assert each in verdicts.badge(found), version.key
            assert found.word == ("negative result" if found.negative else found.versus.word)
    assert compared >= 35


def test_the_readme_reads_the_same_rule():
    from generators.committed import readme

    run = dataclasses.make_dataclass("Run", ["total", "record"])
    made = [timed_record(us, kernel={"version": v}) for us, v in ((20.0, "v0"), (10.0, "v1"))]
    runs = [run(record.outcome.total, record) for record in made]
    row = "".join(readme._row(1, runs[1], 20.0, 10.0))
    assert Comparison(*made).said in row


def test_a_share_of_a_time_reads_as_less_or_more():
    assert compare.time_text(0.955) == "4.5 % less time"
    assert compare.time_text(1.12) == "12 % more time"
    assert compare.time_text(1.0) == "equal time"
