"""Installed skills lead back to the checkout, wherever they lie."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mla_var3.app import skills
from mla_var3.errors import UsageError
from mla_var3.paths import repo_root


def _targets(path: Path) -> list[str]:
    return re.findall(r"\]\(((?![a-z]+:)[^)#\s]+)", path.read_text())


def test_skills_are_installed_with_links_that_resolve(tmp_path, capsys):
    assert skills.main(["install", str(tmp_path)]) == 0
    wrote = capsys.readouterr().out.splitlines()
    assert len(wrote) == len(skills.sources()) > 8
    for source in skills.sources():
        path = tmp_path / source.parent.name / skills.FILE
        assert path.read_text().splitlines()[:3] == source.read_text().splitlines()[:3]
        assert all(Path(target).exists() for target in _targets(path))


def test_inside_the_checkout_links_stay_relative(tmp_path, monkeypatch):
    (tmp_path / "skills" / "one").mkdir(parents=True)
    (tmp_path / "skills" / "one" / skills.FILE).write_text("[x](../../docs/x.md)")
    monkeypatch.setenv("HYPERMLA_ROOT", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert skills.main(["install"]) == 0
    text = (tmp_path / skills.DEFAULT / "one" / skills.FILE).read_text()
    assert text == "[x](../../../docs/x.md)"


def test_list_says_when_to_take_each(capsys):
    assert skills.main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        source.parent.name for source in skills.sources()
    ]
    assert all("Use " in line for line in lines)


def test_without_a_checkout_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("HYPERMLA_ROOT", str(tmp_path))
    with pytest.raises(UsageError, match="come with a checkout"):
        skills.main(["list"])
    assert repo_root() == tmp_path
