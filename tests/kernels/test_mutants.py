"""Every wrong kernel is noticed by check; edits that change nothing, and no edit, are not."""

from __future__ import annotations

import pytest

from mla_var3 import languages
from mla_var3.paths import repo_root
from mla_var3.runtime import registry

from .mutants import Mutant, loaded, mutate, noticed, read

ENTRIES = read()
#: Versions of which check runs every small problem on a CPU; faults in the PTX of the others are
#: seeded in tests/emulator.
VERSIONS = [v for v in registry.versions() if languages.find(v.language).cpu_builds is None]
MUTANTS = [m for m in ENTRIES if m.argument is None]
EQUIVALENT = [m for m in ENTRIES if m.argument is not None]


@pytest.mark.slow
@pytest.mark.sampled(25)
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_check_notices(mutant: Mutant, tmp_path):
    with loaded(mutant.version, tmp_path, mutant) as plan_class:
        found = noticed(plan_class)
    assert mutant.by in found, f"check says {found or 'nothing'}"


@pytest.mark.slow
@pytest.mark.sampled(9)
@pytest.mark.parametrize("mutant", EQUIVALENT, ids=str)
def test_check_accepts_what_changes_no_result(mutant: Mutant, tmp_path):
    with loaded(mutant.version, tmp_path, mutant) as plan_class:
        assert noticed(plan_class) == {}, mutant.argument


#: Copies of the cheapest design to check: what is noticed of a copy is in its edit.
COPIED = [v for v in VERSIONS if v.design == "flash_attention"]


@pytest.mark.exhaustive  # The same is seen of a copy whose edit changes no result.
@pytest.mark.parametrize("version", COPIED, ids=lambda v: v.name)
def test_check_accepts_the_unchanged_copy(version, tmp_path):
    with loaded(version, tmp_path) as plan_class:
        assert plan_class.__module__.startswith("copy_of_")
        assert noticed(plan_class) == {}


#: What the next version's author reads.
HOW = (
    "{} has no mutants. Add one entry for each thing that its source does anew to "
    "tests/kernels/mutants.toml: an edit that makes the kernel wrong, which check has to notice "
    "(CONTRIBUTING.md, section Mutants)."
)


@pytest.mark.parametrize("version", VERSIONS, ids=lambda v: v.name)
def test_every_version_has_mutants(version):
    assert version.key in {m.version.key for m in MUTANTS}, HOW.format(version.key)


def test_contributing_says_how_mutants_are_added():
    assert "\n## Mutants\n" in (repo_root() / "CONTRIBUTING.md").read_text()


@pytest.mark.parametrize("text", ["", "a b", "a a"])
def test_an_edit_that_does_not_match_once_is_an_error(text):
    with pytest.raises(ValueError, match="needs exactly 1"):
        mutate(text, "a" if text != "a b" else "c", "d")
