from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3 import paths
from mla_var3.paths import write_atomic

CONTENT = st.one_of(st.text(), st.binary())


def as_bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


@given(before=st.none() | CONTENT, after=CONTENT)
def test_writes_exactly_the_content_and_nothing_beside_it(tmp_path_factory, before, after):
    path = tmp_path_factory.mktemp("w") / "new" / "folder" / "file.json"
    if before is not None:
        write_atomic(path, before)
    write_atomic(path, after)
    assert path.read_bytes() == as_bytes(after)
    assert os.listdir(path.parent) == ["file.json"]


@pytest.mark.parametrize("step", ["fsync", "chmod", "replace"])
@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()]
)
@pytest.mark.parametrize("exists", [True, False])
def test_a_write_that_fails_leaves_the_old_content(tmp_path, monkeypatch, step, error, exists):
    path = tmp_path / "file.json"
    if exists:
        path.write_text("old")

    def fail(*_args):
        raise error

    monkeypatch.setattr(paths.os, step, fail)
    with pytest.raises(type(error)):
        write_atomic(path, "new")
    assert os.listdir(tmp_path) == (["file.json"] if exists else [])
    assert not exists or path.read_text() == "old"


def test_files_are_readable_by_all(tmp_path):
    write_atomic(tmp_path / "x", b"1")
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o644


def test_everything_lies_below_the_override(monkeypatch, tmp_path):
    monkeypatch.setenv("HYPERMLA_ROOT", str(tmp_path))
    assert paths.repo_root() == tmp_path
    assert paths.results_dir() == tmp_path / "results"
    assert paths.out_dir() == tmp_path / "out"


def test_the_checkout_is_found_without_the_override(monkeypatch):
    monkeypatch.delenv("HYPERMLA_ROOT", raising=False)
    assert (paths.repo_root() / "pyproject.toml").is_file()
    assert paths.kernels_dir() == (paths.repo_root() / "kernels").resolve()


def test_an_installed_package_works_in_the_current_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("HYPERMLA_ROOT", raising=False)
    monkeypatch.chdir(tmp_path)
    installed = tmp_path / "lib" / "site-packages" / "mla_var3" / "runtime" / "paths.py"
    monkeypatch.setattr(paths, "__file__", str(installed))
    assert paths.repo_root() == Path.cwd()
