"""Files by git's ids of their content."""

from __future__ import annotations

import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.blobs import blob_id, blob_of, once_per_content


@given(st.binary(max_size=200))
def test_the_id_is_the_one_git_gives(content):
    done = subprocess.run(
        ["git", "hash-object", "--stdin"], input=content, capture_output=True, check=True
    )
    assert blob_id(content) == done.stdout.decode().strip()


def test_a_file_is_read_anew_when_it_changed(tmp_path):
    file = tmp_path / "a"
    for content in (b"one", b"and two"):
        file.write_bytes(content)
        assert blob_of(file) == blob_id(content)


def test_what_is_not_a_file_has_none(tmp_path):
    assert blob_of(tmp_path) is None
    assert blob_of(tmp_path / "gone") is None


def test_work_is_done_once_per_time_and_size(tmp_path):
    seen = []
    work = once_per_content(lambda file: seen.append(file.read_text()))
    file = tmp_path / "a"
    file.write_text("one")
    work(file)
    work(file)
    os.utime(file, ns=(0, 0))
    work(file)
    file.write_text("three")
    work(file)
    assert seen == ["one", "one", "three"]
    with pytest.raises(FileNotFoundError):
        work(tmp_path / "gone")
