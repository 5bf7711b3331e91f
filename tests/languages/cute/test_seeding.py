"""Seeded bugs, run: the reports on knowledge pages are those that are printed today."""

import importlib.util

import pytest

from mla_var3 import knowledge
from mla_var3.emulator import seeded
from mla_var3.emulator.seeded import CLEAN
from mla_var3.errors import EmulatorError
from mla_var3.knowledge.schema import SeededEvidence
from mla_var3.languages.cute import seeding

dsl = pytest.mark.skipif(
    importlib.util.find_spec("cutlass") is None,
    reason="the CuTe DSL is not installed (extra cute)",
)


def cited() -> dict[str, list[str]]:
    """Keys of the seeded bugs that each page shows."""
    pages = {
        page.pattern.id: [e.seeded for e in page.pattern.evidence if isinstance(e, SeededEvidence)]
        for page in knowledge.load_all().patterns
    }
    return {name: keys for name, keys in pages.items() if keys}


CITED = cited()
OUTCOMES = {o.key: o for o in seeded.table().outcomes}


def run(key: str) -> seeded.Outcome:
    """Run one seeded bug now."""
    kernel, _, bug = key.partition("/")
    return seeding.examine(kernel, seeded.read()[kernel], bug)


def test_mistakes_have_pages():
    assert len(CITED) >= 9


@dsl
@pytest.mark.parametrize("page", CITED)
def test_the_report_on_a_page_is_todays(page: str):
    key = CITED[page][0]
    assert run(key) == OUTCOMES[key], f"run: nox -s conformance -- seeded --only={key}"


@dsl
@pytest.mark.benchmark
@pytest.mark.parametrize("key", [k for keys in CITED.values() for k in keys[1:]])
def test_the_other_reports_are_todays(key: str):
    assert run(key) == OUTCOMES[key], f"run: nox -s conformance -- seeded --only={key}"


def test_a_bug_that_is_not_listed_ends_in_a_sentence():
    with pytest.raises(EmulatorError, match="no seeded bug's key contains 'nothing'"):
        seeding.main(["--only=nothing"], "prog")


def test_the_committed_table_holds_listed_bugs_alone_and_every_one_was_reported():
    wanted = {f"{k}/{b}" for k, s in seeded.read().items() for b in (CLEAN, *s.bugs)}
    assert set(OUTCOMES) == wanted
    assert [key for key, o in OUTCOMES.items() if not o.ok] == []
    bugs = [o for o in OUTCOMES.values() if o.bug != CLEAN]
    assert sum("strict" in o.reported for o in bugs) >= 60
    assert sum("default" in o.reported for o in bugs) >= 55
    assert len({o.kernel for o in bugs}) >= 6


def test_bugs_for_sm_100_were_reported_and_the_kernels_are_clean():
    here = [o for o in OUTCOMES.values() if o.arch == "sm_100a"]
    bugs = [o for o in here if o.bug != CLEAN]
    assert len(bugs) >= 60
    assert len({o.kernel for o in bugs}) >= 6
    assert sum("strict" in o.reported for o in bugs) >= 58
    assert sum("default" in o.reported for o in bugs) >= 50
    clean = [o for o in here if o.bug == CLEAN]
    assert [o.key for o in clean if not o.ok] == []
