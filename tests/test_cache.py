import errno
import hashlib
import json
import os
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3 import inputs
from mla_var3.cache import CACHE_VARIABLE, Cache, _digest, default_dir, key_of
from mla_var3.errors import ToolchainError

KEY = "ab" * 32
FILES = {"kernel.cubin": b"\x7fELF", "facts.json": b"{}"}


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5)))
def test_key_depends_on_content_alone(content):
    assert key_of(content) == key_of(dict(reversed(content.items())))
    assert key_of(content) != key_of(content | {"one more": 1})


def test_what_is_put_is_got(tmp_path):
    cache = Cache(tmp_path)
    assert cache.get(KEY) is None
    cache.put(KEY, FILES)
    assert cache.get(KEY) == FILES
    assert not list(cache.folder.glob(".work-*"))


def corrupt(place, how):
    cubin, manifest = place / "kernel.cubin", place / "manifest.json"
    if how == "content":
        cubin.write_bytes(b"\x7fELg")
    elif how == "cut":
        cubin.write_bytes(b"")
    elif how == "missing":
        cubin.unlink()
    elif how == "no manifest":
        manifest.unlink()
    elif how == "broken manifest":
        manifest.write_text("{")
    else:
        manifest.write_text(json.dumps(["kernel.cubin"]))


@pytest.mark.parametrize(
    "how", ["content", "cut", "missing", "no manifest", "broken manifest", "manifest is a list"]
)
def test_a_corrupt_entry_is_removed(tmp_path, how):
    cache = Cache(tmp_path)
    cache.put(KEY, FILES)
    place = cache.folder / KEY[:2] / KEY
    corrupt(place, how)
    assert cache.get(KEY) is None
    assert not place.exists()
    cache.put(KEY, FILES)
    assert cache.get(KEY) == FILES


@pytest.mark.parametrize("how", ["device", "elsewhere", "bomb"])
def test_an_entry_of_somebody_else_does_no_harm(tmp_path, how):
    cache = Cache(tmp_path)
    cache.put(KEY, FILES)
    place = cache.folder / KEY[:2] / KEY
    cubin, manifest = place / "kernel.cubin", place / "manifest.json"
    if how == "device":
        cubin.unlink()
        cubin.symlink_to("/dev/zero")
    elif how == "elsewhere":
        (tmp_path / "other").write_bytes(b"not of the cache")
        digest = hashlib.sha256(b"not of the cache").hexdigest()
        manifest.write_text(json.dumps({str(tmp_path / "other"): digest}))
    else:
        cubin.write_bytes(zlib.compress(b"0" * (inputs.MAX_BYTES + 1)))
        told = json.loads(manifest.read_text())
        manifest.write_text(json.dumps(told | {cubin.name: _digest(cubin.read_bytes())}))
    assert cache.get(KEY) is None
    assert not place.exists()


def test_many_writers_of_one_entry(tmp_path):
    cache = Cache(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: cache.put(KEY, FILES), range(64)))
    assert cache.get(KEY) == FILES
    assert not list(cache.folder.glob(".work-*"))


def test_scratch_is_removed_after_an_error(tmp_path):
    cache = Cache(tmp_path)
    made = []

    def interrupted():
        with cache.scratch() as folder:
            made.append(folder)
            (folder / "half").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert made
    assert not made[0].exists()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ToolchainError, match=rf"cannot be written .*{CACHE_VARIABLE}"):
        Cache(tmp_path / "file").put(KEY, FILES)


def test_work_that_finds_no_room_is_one_sentence(tmp_path):
    with (
        pytest.raises(ToolchainError, match=r"cannot be written \(No space left on device\); set"),
        Cache(tmp_path).scratch(),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert list(tmp_path.rglob(".work-*")) == []


def test_an_entry_that_cannot_be_moved_to_its_place(tmp_path):
    cache = Cache(tmp_path)
    cache.folder.mkdir()
    (cache.folder / KEY[:2]).write_text("a file where a folder must be")
    with pytest.raises(ToolchainError, match="cannot be written"):
        cache.put(KEY, FILES)
    assert not list(cache.folder.glob(".work-*"))


def test_trim_removes_what_was_unused_for_longest(tmp_path):
    cache = Cache(tmp_path)
    keys = [f"{i:02d}" * 32 for i in range(4)]
    for age, key in enumerate(keys):
        cache.put(key, {"blob": os.urandom(1000)})
        os.utime(cache.folder / key[:2] / key, (age, age))
    assert cache.get(keys[0]) is not None  # used just now
    assert cache.trim(10**6) == 0
    assert cache.trim(2500) == 2
    assert [cache.get(key) is not None for key in keys] == [True, False, False, True]


def test_files_are_compressed(tmp_path):
    cache = Cache(tmp_path)
    cache.put(KEY, {"listing": b"HGMMA " * 10_000})
    assert (cache.folder / KEY[:2] / KEY / "listing").stat().st_size < 1000
    assert cache.get(KEY) == {"listing": b"HGMMA " * 10_000}


def test_default_folder(monkeypatch, tmp_path):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    assert default_dir() == tmp_path
    monkeypatch.delenv(CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_dir() == tmp_path / "hypermla"


class TestSweeping:
    def test_what_a_killed_process_left_goes_with_the_next(self, tmp_path):
        cache = Cache(tmp_path)
        body = (
            "import os, sys\n"
            "from pathlib import Path\n"
            "from mla_var3.cache import Cache\n"
            "with Cache(Path(sys.argv[1])).scratch() as folder:\n"
            "    (folder / 'half').touch()\n"
            "    os.kill(os.getpid(), 9)\n"
        )
        killed = subprocess.run([sys.executable, "-c", body, str(tmp_path)], check=False)
        assert killed.returncode == -9
        (left,) = cache.folder.glob(".work-*")
        with cache.scratch() as mine:
            assert list(cache.folder.glob(".work-*")) == [mine]
        assert not left.exists()

    def test_those_of_running_processes_and_of_other_machines_stay(self, tmp_path):
        cache = Cache(tmp_path)
        with cache.scratch() as mine:
            elsewhere = cache.folder / ".work-another-machine-999999999-x"
            elsewhere.mkdir()
            assert cache.sweep() == []
            assert mine.is_dir()
            assert elsewhere.is_dir()


def test_without_a_home_that_can_be_written_it_is_in_the_checkout(monkeypatch, tmp_path):
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nobody")
    monkeypatch.setenv("HYPERMLA_ROOT", str(tmp_path))
    assert default_dir() == tmp_path / "out" / "cache"
