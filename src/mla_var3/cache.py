"""On-disk cache of compiled kernels: the key digests everything that shapes the compile.

Not diskcache 5.6.3, which was tried: its SQLite index may not lie on a folder that several machines
share, it executes pickles of whoever wrote the folder (a bundle brings one), reads an entry that is
linked to /dev/zero until memory is full, and hands out a file with a flipped bit.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import socket
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import platformdirs

from mla_var3 import inputs
from mla_var3.errors import InputError, ToolchainError
from mla_var3.paths import out_dir

CACHE_VARIABLE = "HYPERMLA_CACHE_DIR"

#: Bytes the cache may hold; the entries that were not used for longest go first.
MAX_BYTES = 2 << 30

_MANIFEST = "manifest.json"


def default_dir() -> Path:
    """``$HYPERMLA_CACHE_DIR``, else the user's cache folder for ``hypermla``.

    Where the home folder cannot be written, it is ``out/cache`` in the checkout.
    """
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen)
    usual = Path(platformdirs.user_cache_dir("hypermla"))
    return usual if _is_writable(usual) else out_dir() / "cache"


def _is_writable(folder: Path) -> bool:
    """Whether a folder can be written or made."""
    nearest = next(place for place in (folder, *folder.parents) if place.exists())
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)


def key_of(content: Mapping[str, object]) -> str:
    """Digest of a JSON-ready mapping; equal mappings have equal keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class Cache:
    """A folder of entries, each a folder of compressed files with a manifest of their digests.

    An entry is written beside its place and moved there whole, so readers never see half of one
    and several processes may share the folder. An entry that does not match its manifest is
    removed and counts as absent.

    Args:
        folder: Where the entries are; :func:`default_dir` unless given.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = (folder or default_dir()) / "static"

    def _place(self, key: str) -> Path:
        return self.folder / key[:2] / key

    def get(self, key: str) -> dict[str, bytes] | None:
        """Files of an entry by name; None when there is no sound one."""
        place = self._place(key)
        if not place.exists():
            return None
        try:
            manifest = inputs.read_json(place / _MANIFEST)
            files = {name: inputs.read_bytes(place / Path(name).name) for name in manifest}
            if all(_digest(files[name]) == digest for name, digest in manifest.items()):
                os.utime(place)
                return {name: _unpacked(content) for name, content in files.items()}
        except (InputError, OSError, ValueError, AttributeError, TypeError, zlib.error):
            pass
        self.discard(key)
        return None

    def put(self, key: str, files: Mapping[str, bytes]) -> None:
        """Store an entry, unless another process has stored it meanwhile.

        Raises:
            ToolchainError: The folder cannot be written.
        """
        place = self._place(key)
        with self.scratch() as scratch:
            staged = scratch / "entry"
            staged.mkdir()
            packed = {name: zlib.compress(content) for name, content in files.items()}
            for name, content in packed.items():
                (staged / name).write_bytes(content)
            manifest = {name: _digest(content) for name, content in packed.items()}
            (staged / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                staged.replace(place)
            except OSError:
                # A folder is only ever moved onto an absent one; the other's is as good.
                if not place.exists():
                    raise

    def discard(self, key: str) -> None:
        """Remove an entry, if there is one."""
        shutil.rmtree(self._place(key), ignore_errors=True)

    def trim(self, max_bytes: int = MAX_BYTES) -> int:
        """Remove the entries unused for longest until the rest fits; returns how many."""
        entries = []
        for place in self.folder.glob("??/*"):
            # Another process may remove an entry while it is looked at.
            with contextlib.suppress(OSError):
                size = sum(file.stat().st_size for file in place.iterdir())
                entries.append((place.stat().st_mtime, place.name, size))
        removed, held = 0, sum(size for _, _, size in entries)
        for _, key, size in sorted(entries):
            if held <= max_bytes:
                break
            self.discard(key)
            removed, held = removed + 1, held - size
        return removed

    def sweep(self) -> list[Path]:
        """Remove working folders of processes of this machine that are gone; returns which."""
        gone = []
        for folder in self.folder.glob(f"{_work()}*"):
            pid = folder.name.removeprefix(_work()).partition("-")[0]
            if pid.isdigit() and not _runs(int(pid)):
                shutil.rmtree(folder, ignore_errors=True)
                gone.append(folder)
        return gone

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A working folder inside the cache's file system, removed at the end whatever happens.

        Raises:
            ToolchainError: It cannot be made, or what is written there finds no room.
        """
        with _explained(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            self.sweep()
            folder = Path(tempfile.mkdtemp(prefix=f"{_work()}{os.getpid()}-", dir=self.folder))
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)


def _work() -> str:
    """How working folders of this machine start; others may share the cache, with other pids."""
    return f".work-{socket.gethostname()}-"


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # It is somebody else's.
        return True
    return True


@contextlib.contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ToolchainError(
            f"the compile cache {folder} cannot be written ({error.strerror}); "
            f"set {CACHE_VARIABLE} to a folder that can"
        ) from error


def _unpacked(content: bytes) -> bytes:
    """What was compressed; no more of it than a file may have."""
    unpacker = zlib.decompressobj()
    out = unpacker.decompress(content, inputs.MAX_BYTES)
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise ValueError("it is too large, or cut")
    return out


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
