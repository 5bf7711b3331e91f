"""Copies a kernel version's package under a new number, with a devlog entry to fill in.

The copy is unchanged, since no name inside says which version it is; only its module is renamed.
What ``unreached.toml`` names for the source it names for the copy too, which so passes ``check`` as
it is. A clone that fails leaves nothing behind. The command ``clone`` and campaigns call it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path

from mla_var3.errors import CloneError
from mla_var3.knowledge.schema import DEVLOG_SECTIONS
from mla_var3.paths import write_atomic
from mla_var3.runtime import unreached
from mla_var3.runtime.registry import Version
from mla_var3.versions import number_of

_VERSION = re.compile(r"v[1-9][0-9]*")
_ENTRY = re.compile(r"^### v(\d+)\b", re.MULTILINE)

_PROMPTS = {
    "What changed": "What {target} does that {source} does not; nothing yet, it is a copy.",
    "Why": "The profile or record of {source} that asks for the change.",
    "Predicted": "What the change should do to which metric, and the arithmetic behind it.",
    "Falsified by": "The observation that would show the prediction wrong.",
    "Measured": "{{{{ measured }}}}",
    "Insights": "What was learnt, also when the prediction failed.",
    "Next": "What the profile of {target} asks for.",
}


def clone(source: Version, target: str) -> list[Path]:
    """Copy a version under a new number.

    Args:
        source: The version to copy.
        target: The new version, ``v5``.

    Returns:
        What was written: the new package, the devlog, and ``unreached.toml`` where it names
        something for the source.

    Raises:
        CloneError: The target exists, is not a version name, or cannot be written.
        HyperMlaError: ``unreached.toml`` cannot be read.
    """
    if not _VERSION.fullmatch(target):
        raise CloneError(f"{target!r} is not a version to clone to: versions are v1, v2, and so on")
    design = source.path.parents[1]
    package = design / f"{design.name}_{target}"
    if os.path.lexists(package):
        raise CloneError(f"{package.name} exists already: {package}")
    try:
        return _write(source, target, package)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise CloneError(
            f"{package.name} cannot be written ({reason}); nothing was changed"
        ) from error


def _write(source: Version, target: str, package: Path) -> list[Path]:
    devlog, named = package.parent / "devlog.md", unreached.path_of(source)
    before = {path: _text(path) for path in (devlog, named)}
    after = {devlog: add_entry(before[devlog], source, target)}
    if (text := unreached.for_copy(source, target)) != (before[named] or ""):
        after[named] = text
    # Whatever happens before pop_all, an interrupt included, is undone in reverse order.
    with contextlib.ExitStack() as undo:
        staging = Path(tempfile.mkdtemp(prefix=f".{package.name}.", dir=package.parent))
        undo.callback(shutil.rmtree, staging, ignore_errors=True)
        unwanted = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source.path.parent, staging, ignore=unwanted, dirs_exist_ok=True)
        (staging / source.path.name).rename(staging / f"{package.name}.py")
        staging.chmod(0o755)
        staging.rename(package)
        undo.callback(shutil.rmtree, package, ignore_errors=True)
        for path, text in after.items():
            undo.callback(_restore, path, before[path])
            write_atomic(path, text)
        undo.pop_all()
    return [package, *after]


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def _restore(path: Path, before: str | None) -> None:
    if before is None:
        path.unlink(missing_ok=True)
    elif path.read_text(encoding="utf-8") != before:
        write_atomic(path, before)


def add_entry(devlog: str | None, source: Version, target: str) -> str:
    """The text of a devlog with the skeleton of the clone's entry, versions ascending.

    Args:
        devlog: The text so far; None when the design has no devlog yet.
        source: The version that is copied.
        target: The new version.

    Raises:
        CloneError: The devlog has an entry of that version.
    """
    if devlog is None:
        devlog = f"---\ntitle: {source.design}\nevidence: []\n---\n"
    words = {"source": source.version, "target": target}
    sections = [f"#### {title}\n\n{_PROMPTS[title].format(**words)}" for title in DEVLOG_SECTIONS]
    entry = "\n\n".join([f"### {target}: <verdict>", *sections])
    number = number_of(target)
    position = len(devlog)
    for heading in _ENTRY.finditer(devlog):
        if int(heading.group(1)) == number:
            raise CloneError(f"the devlog of {source.design} has an entry {target} already")
        if int(heading.group(1)) > number:
            position = heading.start()
            break
    head, tail = devlog[:position].rstrip("\n"), devlog[position:]
    return f"{head}\n\n{entry}\n" + (f"\n{tail}" if tail else "")
