"""Creates output folders of profiling runs, one per run, so that none overwrites another."""

from __future__ import annotations

import contextlib
import datetime
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

from mla_var3 import paths
from mla_var3.runtime.registry import Version

PROFILES = "profiles"


@contextlib.contextmanager
def new_folder(
    version: Version, mode: str, slug: str, out_dir: Path | str | None = None
) -> Iterator[Path]:
    """``<out>/profiles/<mode>/<kernel>/<params>/<timestamp>/``; removed again if left empty.

    Args:
        version: The kernel, as its path below ``kernels/``.
        mode: The mode.
        slug: The problem.
        out_dir: The folder for bulk artefacts; ``out/`` by default.
    """
    base = Path(out_dir or paths.out_dir()) / PROFILES / mode / version.folder / slug
    folder = _make(base, datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ"))
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _make(base: Path, stamp: str) -> Path:
    for number in itertools.count(1):
        folder = base / (stamp if number == 1 else f"{stamp}-{number}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder
    raise AssertionError


def files(folder: Path) -> list[Path]:
    """All files of a run's folder, sorted."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def below_out(found: Iterable[Path], out_dir: Path | str | None = None) -> list[str]:
    """Artefacts as a record names them: from the top of the folder for bulk artefacts."""
    return [paths.relative(file, Path(out_dir or paths.out_dir())) for file in found]
