"""Wrong kernels derived from the sources: each is recorded with the problem that shows it.

``nox -s check -- D V --mutants`` finds and records them; here a few are shown again.
"""

from __future__ import annotations

import random

import pytest

from mla_var3.app import mutating
from mla_var3.languages.cutile.mutants import Deriver
from mla_var3.runtime import registry, unreached
from tests.kernels.wrong import Wrong, verdict

#: Versions of which not all mutants were judged: ``check --mutants`` goes on where it stopped.
NOT_YET = {
    "flash_mla_split_kv v1",
    "mla_shared_prefix v0",
    "mla_var6_plus v0",
    "mla_var6_plus v2",
    "mla_var6_plus v3",
    "mla_var6_plus v4",
}
DERIVED = [v for v in registry.versions() if next(mutating.derived(v), None) is not None]
VERSIONS = [v for v in DERIVED if v.key not in NOT_YET]
#: Chance that is always the same.
SEED = 7


@pytest.mark.parametrize("version", VERSIONS, ids=lambda v: v.name)
def test_every_derived_mutant_is_recorded_or_argued(version: registry.Version) -> None:
    left = [one.edit for one in mutating.missed(version, mutating.known(version))]
    assert not left, f"run check -- {version.key} --mutants: {left[:3]} and {len(left)} in all"


@pytest.mark.parametrize("version", VERSIONS, ids=lambda v: v.name)
def test_nothing_else_is_recorded(version: registry.Version) -> None:
    derived = {(one.place, one.edit) for one in mutating.derived(version)}
    known = mutating.known(version)
    assert {(place, edit) for place, edits in known.items() for edit in edits} <= derived


def test_arguments_are_of_edits_that_exist() -> None:
    edits = {one.edit for version in DERIVED for one in mutating.derived(version)}
    assert {edit for version in DERIVED for edit in unreached.same(version)} <= edits


def some() -> list[Wrong]:
    """One of each version."""
    found = []
    for version in VERSIONS:
        known = mutating.known(version)
        every = [w for w in mutating.derived(version) if w.edit in known.get(w.place, {})]
        one = random.Random(SEED).choice(every)
        file = f"kernels/{one.place}"
        source = one.file.read_text("utf-8")
        found.append(Wrong(version.qualified, version.version, file, source, one.text, one.edit))
    return found


@pytest.mark.sampled(6)
@pytest.mark.parametrize("wrong", some(), ids=lambda w: f"{w.design}-{w.version}")
def test_a_recorded_mutant_is_found_again(wrong: Wrong) -> None:
    assert verdict(wrong, 240.0)


def test_mutants_of_every_kind_are_derived() -> None:
    kinds = {one.edit.split(": ")[1] for version in DERIVED for one in mutating.derived(version)}
    assert kinds == {
        "index 0", "index modulo 2", "index modulo 3", "dropped product", "late loop", "loop of 1",
        "loop of 3", "edge", "dropped operand",
    }  # fmt: skip


def test_edits_that_read_alike_are_told_apart() -> None:
    source = "@ct.kernel\ndef f(a):\n    return (a + 1) < (a + 1)\n"
    edits = [one.edit for one in Deriver(source).mutants()]
    assert len(set(edits)) == len(edits) == 3
    assert edits[-1] == "f: dropped operand: a + 1 -> (a) #2"
