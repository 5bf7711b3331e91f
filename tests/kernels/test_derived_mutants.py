"""Wrong kernels derived from the sources: each is recorded with the problem that shows it.

``nox -s check -- D V --mutants=N`` finds and records them; here a few are shown again, each by a
compile of its own, whichever way it was judged. Of CuTe versions a drawn part was judged.
"""

from __future__ import annotations

import functools
import random

import pytest

from mla_var3 import languages
from mla_var3.app import checking, mutating
from mla_var3.languages.cutile.mutants import Deriver
from mla_var3.runtime import registry, unreached
from tests.kernels.wrong import Wrong, verdict

#: How many mutants of all CuTe versions were judged at least: all would take hours.
JUDGED = 365
#: Deriving takes half a minute, which is left to the tests: every process collects them.
KERNELS = [v for v in registry.versions() if languages.find(v.language).archs]
COMPILED = [v for v in KERNELS if languages.find(v.language).cpu_builds is not None]
INTERPRETED = [v for v in KERNELS if v not in COMPILED]
RECORDED = [v for v in KERNELS if mutating.known(v)]
#: Chance that is always the same.
SEED = 7


@functools.cache
def every(version: registry.Version) -> list[mutating.Wrong]:
    """All mutants of a version."""
    return list(mutating.derived(version))


@pytest.mark.parametrize("version", INTERPRETED, ids=lambda v: v.name)
def test_every_derived_mutant_is_recorded_or_argued(version: registry.Version) -> None:
    left = [one.edit for one in mutating.missed(version, mutating.known(version))]
    assert not left, f"run check -- {version.key} --mutants=0: {left[:3]} and {len(left)} more"


@pytest.mark.parametrize("version", RECORDED, ids=lambda v: v.name)
def test_what_no_problem_shows_is_argued(version: registry.Version) -> None:
    recorded = (edits.items() for edits in mutating.known(version).values())
    open_ = {edit for edits in recorded for edit, slug in edits if slug is None}
    assert open_ <= unreached.same(version).keys()


def test_of_compiled_versions_so_many_are_judged() -> None:
    judged = [e for v in COMPILED for edits in mutating.known(v).values() for e in edits]
    assert len(judged) >= JUDGED


@pytest.mark.slow
@pytest.mark.parametrize("version", RECORDED, ids=lambda v: v.name)
def test_nothing_else_is_recorded(version: registry.Version) -> None:
    derived = {(one.place, one.edit) for one in (*every(version), *mutating.passed_on(version))}
    known = mutating.known(version)
    assert {(place, edit) for place, edits in known.items() for edit in edits} <= derived


def test_arguments_are_of_edits_that_exist() -> None:
    edits = {one.edit for version in KERNELS for one in every(version)}
    assert {edit for version in KERNELS for edit in unreached.same(version)} <= edits


@pytest.mark.slow
@pytest.mark.sampled(17)
@pytest.mark.parametrize("version", RECORDED, ids=lambda v: f"{v.qualified}-{v.version}")
def test_a_recorded_mutant_is_found_again(version: registry.Version) -> None:
    """By the problem that is recorded for it, or by any, where none has such a one any more."""
    known = mutating.known(version)
    recorded = [w for w in every(version) if _is_shown(known.get(w.place, {}).get(w.edit))]
    there = {case.plan.slug() for case in checking.cases_of(version)}
    quick = [w for w in recorded if known[w.place][w.edit] in there]
    one = random.Random(SEED).choice(quick or recorded)
    source, shown = one.file.read_text("utf-8"), known[one.place][one.edit]
    file = f"kernels/{one.place}"
    wrong = Wrong(version.qualified, version.version, file, source, one.text, one.edit, shown or "")
    assert verdict(wrong, 240.0)


def _is_shown(said: str | None) -> bool:
    return said not in (None, mutating.SAME_CODE)


def test_mutants_of_every_kind_are_derived() -> None:
    kinds = {one.edit.split(": ")[1] for version in INTERPRETED for one in every(version)}
    assert kinds == {
        "index 0", "index modulo 2", "index modulo 3", "dropped product", "late loop", "loop of 1",
        "loop of 3", "edge", "dropped operand",
    }  # fmt: skip


def test_a_sample_is_the_same_whatever_else_there_is() -> None:
    mutants = next(found for version in COMPILED if (found := every(version)))
    few, more = mutating.sample(mutants, 5), mutating.sample(reversed(mutants), 9)
    assert few == more[:5]
    assert len(more) == 9
    assert mutating.sample(mutants, 0) == mutants


def test_edits_that_read_alike_are_told_apart() -> None:
    source = "@ct.kernel\ndef f(a):\n    return (a + 1) < (a + 1)\n"
    edits = [one.edit for one in Deriver(source).mutants()]
    assert len(set(edits)) == len(edits) == 3
    assert edits[-1] == "f: dropped operand: a + 1 -> (a) #2"
