"""Source files are named alike wherever things are installed."""

from __future__ import annotations

from pathlib import Path

import pytest

import mla_var3
from mla_var3.static.source import _roots, relative_source


def test_sources_are_named_as_the_project_names_them(tmp_path):
    package = Path(mla_var3.__file__).parent
    checkout = package.parents[1]
    assert relative_source(str(package / "kernel" / "cutile" / "x.py")) == "kernels/cutile/x.py"
    assert relative_source(str(package / "errors.py")) == "src/mla_var3/errors.py"
    assert relative_source(str(checkout / "tests" / "a.py")) == "tests/a.py"
    assert relative_source(pytest.__file__) == "pytest/__init__.py"
    assert relative_source(str(tmp_path / "elsewhere" / "k.py")) == "k.py"
    assert relative_source(str(package.parents[1] / "noxfile.py")) == "noxfile.py"
    assert relative_source("kernels/k.py") == "kernels/k.py"


def test_an_environment_inside_the_checkout_is_not_part_of_it(tmp_path, monkeypatch):
    """Facts must not depend on where the tools are installed."""
    checkout = Path(mla_var3.__file__).resolve().parents[2]
    site = checkout / ".venv" / "lib" / "site-packages"
    monkeypatch.setattr("sys.path", [str(tmp_path), str(site)])
    monkeypatch.setattr(Path, "is_dir", lambda self: True)
    relative_source.cache_clear()
    _roots.cache_clear()
    try:
        assert relative_source(str(site / "cuda" / "tile" / "_stub.py")) == "cuda/tile/_stub.py"
        assert relative_source(str(tmp_path / "mine.py")) == "mine.py"
    finally:
        relative_source.cache_clear()
        _roots.cache_clear()
