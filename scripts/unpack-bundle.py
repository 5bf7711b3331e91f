"""Unpack what ``nox -s bundle`` packed, on a GPU host without a network.

    python3 unpack.py [FOLDER]      FOLDER: where to, ./hypermla by default

Needs this script, bundle.json and the parts in one folder, and a Python with torch. Makes a virtual
environment that sees the host's torch, installs the toolchain from the bundle, and leaves env.sh.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

EXIT_BAD_INPUT = 2
ENVIRONMENT = """\
export PATH={root}/venv/bin:$PATH
export HYPERMLA_COMMIT={commit} HYPERMLA_CACHE_DIR={root}/cache
cd {root}/project
"""


class Fault(Exception):
    """What stops the unpacking, in one sentence."""


def described(here: Path) -> dict[str, Any]:
    """The manifest, for a Python that is this one."""
    try:
        about = json.loads((here / "bundle.json").read_text("utf-8"))
        wanted = about["python"], about["commit"], about["requirements"], about["parts"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Fault(f"{here / 'bundle.json'} is not the manifest of a bundle: {error}") from error
    if wanted[0] != (this := ".".join(map(str, sys.version_info[:2]))):
        raise Fault(
            f"the bundle is for Python {wanted[0]} and this is {this}: run it with "
            f"python{wanted[0]}, or bundle with --python={this}"
        )
    if importlib.util.find_spec("torch") is None:
        raise Fault("torch is absent: install the build that fits this host's driver first")
    return about


def join(here: Path, parts: list[dict[str, Any]], whole: Any) -> None:
    """Write all parts to one file, each held against its digest."""
    for part in parts:
        try:
            content = (here / part["name"]).read_bytes()
        except OSError as error:
            raise Fault(f"{part['name']} cannot be read: {error.strerror}") from error
        if hashlib.sha256(content).hexdigest() != part["sha256"]:
            raise Fault(f"{part['name']} is not what was packed; copy it again")
        whole.write(content)


def extract(here: Path, about: dict[str, Any], folder: Path) -> None:
    """The bundle's files, then the project's."""
    with tempfile.TemporaryFile(dir=folder) as whole:
        join(here, about["parts"], whole)
        whole.seek(0)
        with tarfile.open(fileobj=whole) as tar:
            tar.extractall(folder, filter="data")
    with tarfile.open(folder / "project.tar.gz") as tar:
        tar.extractall(folder / "project", filter="data")
    (folder / "project.tar.gz").unlink()
    (folder / "cache").mkdir(exist_ok=True)


def install(about: dict[str, Any], root: Path) -> None:
    """Make the environment: the host's torch, the bundle's wheels, the project's sources."""
    call(
        sys.executable, "-m", "venv", "--system-site-packages", "--without-pip", str(root / "venv")
    )
    python, [pip] = str(root / "venv/bin/python"), (root / "wheels").glob("pip-*.whl")
    call(
        python, f"{pip}/pip", "install", "--quiet", "--no-index", "--disable-pip-version-check",
        f"--find-links={root / 'wheels'}", *about["requirements"],
    )  # fmt: skip
    [packages] = (root / "venv/lib").glob("python*/site-packages")
    # The host's torch may itself lie in an environment, which a new one does not see.
    torch = Path(str(importlib.util.find_spec("torch").origin)).parents[1]
    (packages / "hypermla.pth").write_text(f"{root / 'project/src'}\n{torch}\n", "utf-8")
    text = ENVIRONMENT.format(root=root, commit=about["commit"])
    (root / "env.sh").write_text(text, "utf-8")


def call(*command: str) -> None:
    """Run a program; its last line is the sentence where it fails."""
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no word"]
        raise Fault(f"{Path(command[0]).name} ended with code {done.returncode}: {said[-1]}")


def main(arguments: list[str]) -> int:
    """Unpack to the folder that the arguments name; nothing is left of an unpacking that failed."""
    here, root = Path(__file__).resolve().parent, Path(*arguments[:1] or ["hypermla"]).resolve()
    try:
        if len(arguments) > 1 or arguments[:1] in (["--help"], ["-h"]):
            raise Fault("usage: python3 unpack.py [FOLDER]")
        about = described(here)
        if root.exists():
            raise Fault(f"{root} exists already")
        root.mkdir(parents=True)
        try:
            extract(here, about, root)
            install(about, root)
        except BaseException:
            shutil.rmtree(root)
            raise
    except (Fault, OSError, tarfile.TarError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    print(f"ready: source {root}/env.sh && python -m mla_var3.kernel mla_var6_plus v4")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
