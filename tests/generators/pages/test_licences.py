"""License, origins and packages on the scope page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from generators.pages import handwritten, licences
from mla_var3.errors import KnowledgeError
from tests.generators.checking import ROOT


def test_every_design_and_no_other_has_an_origin(site):
    named = set(licences.origins()["designs"])
    assert named == {versions[0].qualified for versions in site.designs().values()}


def test_a_design_without_an_origin_is_an_error(site, monkeypatch):
    monkeypatch.setattr(licences, "origins", lambda: {"designs": {}})
    with pytest.raises(KnowledgeError, match="no entry of"):
        licences.designs(site, site.link("scope.md"))


def test_designs_that_run_anothers_code_say_so():
    known = licences.origins()["designs"]
    for name, said in known.items():
        foreign = name.startswith("cutlass_") or name.endswith("@library")
        assert bool(said.get("code")) == (foreign and name != "triton_mla@library"), name


def test_no_kernel_bears_anothers_notice():
    found = [
        str(file)
        for file in (ROOT / "kernels").rglob("*.py")
        if re.search(r"copyright|SPDX-|all rights reserved", file.read_text(), re.IGNORECASE)
    ]
    assert found == []


def test_packages_are_those_of_the_project_with_a_license(site):
    declared = (ROOT / "pyproject.toml").read_text()
    for name in licences.origins()["packages"]:
        assert f'"{name}' in declared
        assert "none stated" not in licences.stated(name)
    assert licences.stated("no-such-package").startswith("not installed")


def test_the_scope_page_has_both_tables(site):
    [text] = [str(page.content) for page in handwritten.pages(site) if page.path == "scope.md"]
    assert "{ #license }" in text
    assert "| Idea from |" in text
    assert "| Needed for |" in text


def _code(file: Path) -> list[str]:
    """Lines that are more than a bracket, without comments and imports."""
    lines = (line.partition("#")[0].strip() for line in file.read_text().splitlines())
    return [x for x in lines if len(x) > 12 and not x.startswith(("import ", "from ", '"""'))]


def _threes(file: Path) -> set[tuple[str, ...]]:
    lines = _code(file)
    return set(zip(lines, lines[1:], lines[2:], strict=False))


def test_no_three_lines_are_those_of_an_example_of_cutlass():
    examples = ROOT / "third_party/cutlass/examples"
    if not examples.is_dir():
        pytest.skip("CUTLASS's examples are not fetched")
    theirs = set().union(*(_threes(file) for file in examples.rglob("*.py")))
    ours = set().union(*(_threes(file) for file in (ROOT / "kernels").rglob("*.py")))
    parameter = re.compile(r"\w+: cute\.Tensor,|def __call__\(")
    same = {three for three in ours & theirs if not all(parameter.fullmatch(x) for x in three)}
    assert len(theirs) > 10_000
    assert same == set()
