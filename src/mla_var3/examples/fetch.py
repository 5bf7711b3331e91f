"""Fetches the pinned folders of CUTLASS from git into ``third_party/cutlass``."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from mla_var3.errors import KnowledgeError, ToolchainError
from mla_var3.examples.pin import CHECKOUT_VARIABLE, FOLDER, STAMP, Pin, Tree, load

_REGULAR = {"100644", "100755"}


def fetch(root: Path) -> Tree:
    """Fetch the pinned commit, whatever was there before.

    The new tree takes the old one's place when it is whole.

    Args:
        root: Top of the checkout of this project.

    Raises:
        ToolchainError: git is missing, or the repository cannot be reached.
        KnowledgeError: The checkout of ``CUTLASS_DIR`` lacks the pinned commit.
    """
    pin, target = load(root), root / FOLDER
    if shutil.which("git") is None:
        raise ToolchainError("fetching examples needs git, which is not installed")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".cutlass-", dir=target.parent) as temporary:
        staged = Path(temporary) / "tree"
        bring(pin, pin.folders, staged, Path(temporary) / "git")
        (staged / STAMP).write_text(f"{pin.commit}\n", encoding="utf-8")
        if target.exists():
            target.rename(Path(temporary) / "old")
        staged.rename(target)
    return Tree(pin, target)


def bring(pin: Pin, folders: Sequence[str], target: Path, scratch: Path) -> set[str]:
    """Write folders of the pinned commit; returns the paths of all files that it has.

    Args:
        pin: The pin.
        folders: Folders of the repository.
        target: Stands for the repository's top.
        scratch: Where a repository may be fetched to.

    Raises:
        ToolchainError: The repository cannot be reached.
        KnowledgeError: The checkout of ``CUTLASS_DIR`` lacks the pinned commit.
    """
    repository = _repository(pin, scratch)
    for path, content in _files(repository, pin, folders):
        file = target / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    listed = _git(repository, "ls-tree", "-r", "-z", "--name-only", pin.commit).stdout
    return {name.decode() for name in listed.split(b"\0") if name}


def _repository(pin: Pin, scratch: Path) -> Path:
    """A repository that holds the pinned commit: the user's checkout, else one fetched here."""
    if given := os.environ.get(CHECKOUT_VARIABLE):
        folder = Path(given)
        if not folder.is_dir():
            raise KnowledgeError(f"{CHECKOUT_VARIABLE}={given} is not a folder")
        if _git(folder, "cat-file", "-e", f"{pin.commit}^{{commit}}").returncode != 0:
            raise KnowledgeError(
                f"{CHECKOUT_VARIABLE}={given} lacks commit {pin.commit[:12]} of {pin.tag}; fetch "
                "that tag there, or unset the variable"
            )
        return folder
    scratch.mkdir()
    for command in (("init", "--quiet", "--bare"), ("fetch", "--quiet", "--depth=1",
                    f"{pin.address}.git", pin.commit)):  # fmt: skip
        done = _git(scratch, *command)
        if done.returncode != 0:
            said = " ".join(done.stderr.decode(errors="replace").split())[:200]
            raise ToolchainError(
                f"{pin.address} cannot be fetched ({said}); set {CHECKOUT_VARIABLE} to a checkout "
                "of CUTLASS"
            )
    return scratch


def _files(
    repository: Path, pin: Pin, folders: Sequence[str]
) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Regular files of the pinned folders with their content."""
    listing = _git(repository, "ls-tree", "-r", "-z", pin.commit, "--", *folders)
    rows = [row.split(b"\t", 1) for row in listing.stdout.split(b"\0") if row]
    kept = [
        (about.split()[2], PurePosixPath(path.decode()))
        for about, path in rows
        if about.split()[0].decode() in _REGULAR
    ]
    if not kept:
        raise KnowledgeError(f"commit {pin.commit[:12]} has none of {', '.join(folders)}")
    asked = b"".join(blob + b"\n" for blob, _ in kept)
    answer = _git(repository, "cat-file", "--batch", stdin=asked).stdout
    place = 0
    for blob, path in kept:
        end = answer.index(b"\n", place)
        head = answer[place:end].split()
        if head[0] != blob or len(head) != 3:
            raise KnowledgeError(f"the repository lacks {path} of {pin.tag}")
        size = int(head[2])
        yield path, answer[end + 1 : end + 1 + size]
        place = end + 1 + size + 1


def _git(folder: Path, *arguments: str, stdin: bytes | None = None) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["git", "-C", str(folder), *arguments], input=stdin, capture_output=True, check=False
    )
