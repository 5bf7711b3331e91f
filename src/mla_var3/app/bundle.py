"""Command ``bundle``: packs project, toolchain and compiled kernels for a GPU host without network.

The script ``unpack.py`` beside the parts unpacks them there; it needs a Python with torch and
nothing else.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from mla_var3 import arguments, evidence, front
from mla_var3.cache import Cache
from mla_var3.errors import ToolchainError, UsageError
from mla_var3.evidence.sources import git
from mla_var3.paths import out_dir, relative, repo_root

PROG = "python -m mla_var3.app.bundle"
#: Releases 2.x of the C library that wheels may be built for; the host's is this new at least.
GLIBC = range(5, 29)
#: The host brings torch, since the build must fit its driver.
HOST_BRINGS = re.compile(r"torch\b")
UNPACK, MANIFEST = "unpack.py", "bundle.json"
MIB = 1 << 20


@dataclass(frozen=True)
class Options:
    """What to pack.

    Attributes:
        python: Python of the host, such as 3.12; this one's by default.
        part_mib: Greatest size of a part in MiB.
        kernels: Whether to pack the kernels that are compiled here; where host and bundle have the
            same toolchain, the host need not compile them again.
        to: Folder to write to.
    """

    python: str = ".".join(map(str, sys.version_info[:2]))
    part_mib: Annotated[int, tyro.conf.arg(metavar="MIB")] = 60
    kernels: bool = True
    to: Path | None = None


def main(argv: Sequence[str] | None = None) -> int:
    """Pack as the arguments say; returns the exit code.

    Raises:
        UsageError: An option is out of range, the tree has changes that no commit holds, or the
            folder is taken.
        ToolchainError: A wheel cannot be had.
    """
    given = sys.argv[1:] if argv is None else argv
    options = arguments.parse(Options, given, PROG, "Pack all for a GPU host without a network.")
    if not re.fullmatch(r"3\.\d{1,2}", options.python):
        raise UsageError(f"--python={options.python}: a release such as 3.12 is needed")
    if options.part_mib < 1:
        raise UsageError(f"--part_mib={options.part_mib}: at least 1 is needed")
    folder = options.to or out_dir() / "bundle"
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"--to={relative(folder)}: the folder is not empty")
    commit = _commit()
    console = Console(soft_wrap=True, highlight=False)
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Moved to its place whole, so that a bundle is complete or not there.
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".bundle-") as made:
        with console.status("fetching wheels"):
            wheels = fetch(options.python, Path(made, "wheels"))
        console.print(f"{len(wheels)} wheels for Python {options.python}")
        parts = pack(wheels, commit, options, Path(made, "bundle"))
        if folder.exists():
            folder.rmdir()
        Path(made, "bundle").rename(folder)
    size = sum(part["bytes"] for part in parts) / MIB
    console.print(f"wrote {relative(folder)}: {len(parts)} parts, {size:.0f} MiB")
    console.print(f"on the host: python3 {UNPACK}")
    return 0


def _commit() -> str:
    state = evidence.git_state()
    if state is None:
        raise UsageError("a bundle is made from a checkout, whose commit its records state")
    if state.dirty:
        raise UsageError(
            "the checkout has changes that are not committed, and records made on the host would "
            "state the commit; commit first"
        )
    return state.commit


def requirements() -> list[str]:
    """What the project needs on a GPU host, but for what the host brings."""
    project = tomllib.loads((repo_root() / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["gpu"]]
    return [line for line in wanted if not HOST_BRINGS.match(line)]


def fetch(python: str, folder: Path) -> list[Path]:
    """Download the wheels of all requirements, and pip's own.

    Raises:
        ToolchainError: One cannot be had; says what pip said last.
    """
    tags = [f"--platform=manylinux_2_{minor}_x86_64" for minor in GLIBC]
    aliases = [f"--platform=manylinux{year}_x86_64" for year in (1, 2010, 2014)]
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
        "--only-binary=:all:", f"--python-version={python}", *tags, *aliases,
        "--constraint", str(repo_root() / "constraints.txt"), "--dest", str(folder),
        "pip", *requirements(),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "ERROR" in line] or ["unknown"]
        raise ToolchainError(f"pip cannot fetch the wheels: {said[-1]}")
    return sorted(folder.glob("*.whl"))


def pack(
    wheels: Sequence[Path], commit: str, options: Options, folder: Path
) -> list[dict[str, Any]]:
    """Write the parts, their manifest and the script that unpacks them.

    Returns:
        Name, size in bytes and digest of each part.
    """
    folder.mkdir()
    with tempfile.TemporaryFile(dir=folder.parent) as whole:
        with tarfile.open(fileobj=whole, mode="w") as tar:  # What is in it is compressed.
            for wheel in wheels:
                tar.add(wheel, f"wheels/{wheel.name}")
            with tempfile.NamedTemporaryFile(suffix=".tar.gz") as project:
                _archive(commit, Path(project.name))
                tar.add(project.name, "project.tar.gz")
            if options.kernels and (compiled := Cache().folder).is_dir():
                tar.add(compiled, "cache/static")
        whole.seek(0)
        parts = [
            _part(folder, number, piece)
            for number, piece in enumerate(iter(lambda: whole.read(options.part_mib * MIB), b""))
        ]
    about = {
        "commit": commit, "python": options.python, "requirements": requirements(), "parts": parts,
    }  # fmt: skip
    (folder / MANIFEST).write_text(json.dumps(about, indent=1) + "\n", "utf-8")
    shutil.copy(repo_root() / "scripts" / "unpack-bundle.py", folder / UNPACK)
    return parts


def _part(folder: Path, number: int, content: bytes) -> dict[str, Any]:
    path = folder / f"part-{number:03}"
    path.write_bytes(content)
    return {"name": path.name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _archive(commit: str, path: Path) -> None:
    if git("archive", "--format=tar.gz", f"--output={path}", commit) is None:
        raise ToolchainError(f"git cannot archive {commit[:12]}")


if __name__ == "__main__":
    front.run("mla_var3.app.bundle:main")
