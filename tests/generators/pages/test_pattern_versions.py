"""A pattern's page names its versions, and else what its evidence is from."""

from __future__ import annotations

from generators.pages import pattern_versions
from generators.pages.catalogue import pattern_path


def _said(site, id_):
    meta = site.catalogue.page(id_).pattern
    return pattern_versions.section(site, meta, site.link(pattern_path(meta)))


def test_a_fault_that_no_version_has_says_what_shows_it(site):
    said = _said(site, "cute-serialized-products")
    assert said == (
        "No kernel version is listed as having this fault. The evidence above: a test that runs "
        "with every change."
    )
    assert "bugs planted on purpose" in _said(site, "cute-missing-barrier")


def test_records_in_the_evidence_lead_to_their_versions(site):
    said = _said(site, "o13-static-pruning")
    assert said.startswith(
        "No kernel version is listed as using it. The evidence above: records of ["
    )
    assert "flash_mla/v2.md)" in said


def test_without_evidence_the_basis_stands(site):
    meta = site.catalogue.page("cute-early-release").pattern.model_copy(update={"evidence": ()})
    said = pattern_versions.section(site, meta, site.link(pattern_path(meta)))
    assert said.endswith("The evidence above: static: seen in what the compiler made.")


def test_no_pattern_ends_without_a_sentence(site):
    for document in site.catalogue.patterns:
        meta = document.pattern
        said = pattern_versions.section(site, meta, site.link(pattern_path(meta)))
        assert said.startswith("- ") == bool(meta.used_by or meta.violated_by)
        assert "no such version" not in said
