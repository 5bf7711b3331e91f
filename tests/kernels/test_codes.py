"""The committed tables are those of today's sources; a sample of them is compiled again."""

from __future__ import annotations

from typing import Any

import pytest

from mla_var3 import languages
from mla_var3.app import building
from mla_var3.evidence import builds, revisions
from mla_var3.languages import fingerprints
from mla_var3.runtime import registry
from mla_var3.workloads.observing import name_of, problem_of

#: Designs that others' sources compile, which are not in the repository, have nothing to hold here.
OWN = [v for v in registry.versions() if not v.design.startswith("cutlass_")]


def _table(version) -> builds.Version:
    found = building.table_of(version).versions
    assert version.version in found, f"run: nox -s codes -- write {version.key}"
    return found[version.version]


@pytest.mark.parametrize("version", OWN, ids=lambda v: f"{v.qualified}-{v.version}")
def test_the_table_is_that_of_todays_sources(version):
    found = _table(version)
    assert found.differing() == [], f"run: nox -s codes -- write {version.key}"
    names = {f"kernels/{f.relative_to(registry.kernels_dir())}" for f in version.source_files()}
    assert names == set(found.files), f"run: nox -s codes -- write {version.key}"
    assert found.problem == name_of(problem_of(version.plan_class()))
    assert [one for one in found.today.compiled if one.error is None]


def test_every_workload_has_a_revision():
    known = revisions.read(revisions.path_of()).problems
    assert {name_of(problem_of(v.plan_class())) for v in OWN} <= known.keys()


def compiled() -> list[Any]:
    """What is compiled: here a version of each language, `nox -s codes -- check` does all."""
    found = [v for v in OWN if languages.find(v.language).archs]
    first = {v.language: v for v in reversed(found)}.values()
    return [pytest.param(v, marks=() if v in first else pytest.mark.exhaustive) for v in found]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", compiled(), ids=lambda v: f"{v.qualified}-{v.version}")
def test_its_first_case_compiles_to_the_same(version):
    known = next(one for one in _table(version).today.compiled if one.error is None)
    (made,) = fingerprints.compiled(version, [known.case])
    assert building.changes_of(known, made) == []
