"""Unpack what ``nox -s bundle`` packed, on a GPU host without a network.

    python3 unpack.py [FOLDER]      FOLDER: where to, ./hypermla by default

Needs this script, bundle.json and the parts in one folder, and a Python with torch. Makes a virtual
environment that sees the host's torch, installs the toolchain from the bundle, and leaves env.sh.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import Any

EXIT_BAD_INPUT = 2
#: What each field of the manifest has to match, and bounds on what a bundle holds, in bytes.
FIELDS = {"python": r"3\.[0-9]{1,2}", "commit": r"[0-9a-f]{40}"}
REQUIREMENT = r"[A-Za-z0-9][A-Za-z0-9._\[\],=<>!~; '\"()-]*"
PART = {"name": r"part-[0-9]{3,6}", "sha256": r"[0-9a-f]{64}"}
MOST_MANIFEST, MOST_UNPACKED, CHUNK = 4 << 20, 64 << 30, 1 << 20
ENVIRONMENT = """\
export PATH={root}/venv/bin:"$PATH"
export HYPERMLA_COMMIT={commit} HYPERMLA_CACHE_DIR={root}/cache
cd {root}/project
"""


class Fault(Exception):
    """What stops the unpacking, in one sentence."""


def described(here: Path) -> dict[str, Any]:
    """The manifest, for a Python that is this one."""
    path = here / "bundle.json"
    try:
        about = json.loads(b"".join(content(path, MOST_MANIFEST)))
    except (OSError, ValueError, RecursionError) as error:
        raise Fault(f"{path} is not the manifest of a bundle: {worded(error)}") from error
    if wrong := fault_of(about):
        raise Fault(f"{path} is not the manifest of a bundle: {wrong}")
    if about["python"] != (this := ".".join(map(str, sys.version_info[:2]))):
        raise Fault(
            f"the bundle is for Python {about['python']} and this is {this}: run it with "
            f"python{about['python']}, or bundle with --python={this}"
        )
    if importlib.util.find_spec("torch") is None:
        raise Fault("torch is absent: install the build that fits this host's driver first")
    return about


def fault_of(about: Any) -> str:
    """What is wrong with a manifest's fields; its text reaches a shell and pip."""
    if not isinstance(about, dict):
        return "it is not a table"
    for name, pattern in FIELDS.items():
        if not matches(pattern, about.get(name)):
            return f"{name!r} is {about.get(name)!r:.60}"
    wanted, parts = about.get("requirements"), about.get("parts")
    if not isinstance(wanted, list) or not all(matches(REQUIREMENT, x) for x in wanted):
        return f"'requirements' is {wanted!r:.60}"
    if not isinstance(parts, list) or not parts or not all(map(is_part, parts)):
        return f"'parts' is {parts!r:.60}"
    return ""


def matches(pattern: str, value: Any) -> bool:
    """Whether a value is a text of that form."""
    return isinstance(value, str) and bool(re.fullmatch(pattern, value))


def is_part(part: Any) -> bool:
    """Whether a value describes a part."""
    if not isinstance(part, dict) or type(part.get("bytes")) is not int:
        return False
    return all(matches(pattern, part.get(name)) for name, pattern in PART.items())


def content(path: Path, most: int) -> Any:
    """Pieces of a regular file of at most that size; a pipe or a device is refused."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise OSError("it is not a file")
        if about.st_size > most:
            raise OSError(f"it has {about.st_size} bytes, over {most}")
        yield from iter(lambda: file.read(CHUNK), b"")


def worded(error: BaseException) -> str:
    """What an error says, on one line."""
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(said.split())[:200] or type(error).__name__


def join(here: Path, parts: list[dict[str, Any]], whole: Any) -> None:
    """Write all parts to one file, each held against its digest."""
    for part in parts:
        digest = hashlib.sha256()
        try:
            for piece in content(here / part["name"], part["bytes"]):
                digest.update(piece)
                whole.write(piece)
        except OSError as error:
            raise Fault(f"{part['name']} cannot be read: {worded(error)}") from error
        if digest.hexdigest() != part["sha256"]:
            raise Fault(f"{part['name']} is not what was packed; copy it again")


def extract(here: Path, about: dict[str, Any], folder: Path) -> None:
    """The bundle's files, then the project's."""
    with tempfile.TemporaryFile(dir=folder) as whole:
        join(here, about["parts"], whole)
        whole.seek(0)
        with tarfile.open(fileobj=whole, mode="r:") as tar:
            unpack(tar, folder)
    with tarfile.open(folder / "project.tar.gz", mode="r:gz") as tar:
        unpack(tar, folder / "project")
    (folder / "project.tar.gz").unlink()
    (folder / "cache").mkdir(exist_ok=True)


def unpack(tar: tarfile.TarFile, folder: Path) -> None:
    """Extract an archive, as long as what it unpacks to is not absurd."""
    left = MOST_UNPACKED
    for member in tar:
        left -= member.size
        if left < 0:
            raise Fault(f"an archive unpacks to more than {MOST_UNPACKED >> 30} GiB")
        tar.extract(member, folder, filter="data")


def install(about: dict[str, Any], root: Path) -> None:
    """Make the environment: the host's torch, the bundle's wheels, the project's sources."""
    call(
        sys.executable, "-m", "venv", "--system-site-packages", "--without-pip", str(root / "venv")
    )
    python, pips = str(root / "venv/bin/python"), sorted((root / "wheels").glob("pip-*.whl"))
    if len(pips) != 1:
        raise Fault(f"the bundle has {len(pips)} wheels of pip, and needs one")
    call(
        python, f"{pips[0]}/pip", "install", "--quiet", "--no-index", "--disable-pip-version-check",
        f"--find-links={root / 'wheels'}", "--", *about["requirements"],
    )  # fmt: skip
    [packages] = (root / "venv/lib").glob("python*/site-packages")
    # The host's torch may itself lie in an environment, which a new one does not see.
    torch = Path(str(importlib.util.find_spec("torch").origin)).parents[1]
    (packages / "hypermla.pth").write_text(f"{root / 'project/src'}\n{torch}\n", "utf-8")
    text = ENVIRONMENT.format(root=shlex.quote(str(root)), commit=about["commit"])
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
        # The folder stands in PATH and in a .pth file, which have a separator each.
        if {":", "\n", "\r"} & set(str(root)):
            raise Fault("a folder with a colon or a line break in its name cannot be in PATH")
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
    except Fault as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except (OSError, EOFError, ValueError, KeyError, tarfile.TarError, zlib.error) as error:
        print(f"error: the bundle cannot be unpacked: {worded(error)}", file=sys.stderr)
        return EXIT_BAD_INPUT
    source = shlex.quote(f"{root}/env.sh")
    print(f"ready: source {source} && python -m mla_var3.kernel mla_var6_plus v4")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
