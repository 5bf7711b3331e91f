"""Publishes a campaign: copies what its page on the site shows to the committed ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from mla_var3 import paths
from mla_var3.campaign import soundness
from mla_var3.campaign.workspace import PLANS, README, SETTINGS, VERSIONS, Workspace
from mla_var3.errors import UsageError
from mla_var3.paths import write_atomic

#: What the page of a campaign shows.
PUBLISHED = (README, "memory", PLANS, VERSIONS, "auto.md", "auto.json")


def publish(found: Workspace, folder: Path | None = None) -> Path:
    """Copy what a page of the site shows of a campaign to the committed ones; returns the folder.

    Args:
        found: The campaign.
        folder: Folder of the committed ones; the checkout's by default.

    Raises:
        InputError: A text, a plan or an entry is not sound.
        UsageError: Its baseline did not go through the gates.
    """
    found.require_sourced()
    soundness.require(found)
    entries = found.memory.entries(masked=True)
    if not any(entry.origin == "start" for entry in entries):
        raise UsageError(f"{found.root.name} has no baseline yet, so there is nothing to show")
    target = (folder or paths.repo_root() / "campaigns") / found.root.name
    part = target.with_name(f".{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    for name in PUBLISHED:
        source = found.root / name
        if source.is_dir():
            shutil.copytree(source, part / name,
                            ignore=shutil.ignore_patterns("__pycache__", ".lock"))  # fmt: skip
        elif source.is_file():
            part.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, part / name)
    settings = found.settings
    if settings.source is not None:  # As seen from the checkout, since others have it elsewhere.
        seen = Path(paths.relative(Path(settings.source), paths.repo_root()))
        shown = seen.name if seen.is_absolute() else seen.as_posix()
        settings = settings.model_copy(update={"source": shown})
    write_atomic(part / SETTINGS, json.dumps(settings.model_dump(mode="json"), indent=1) + "\n")
    shutil.rmtree(target, ignore_errors=True)
    part.replace(target)
    return target
