"""Git repositories that tests make."""

from __future__ import annotations

import subprocess
from pathlib import Path

#: A machine may have no identity, or sign what is committed.
IDENTITY = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=no")


def git(folder: Path, *arguments: str) -> str:
    """What git prints in a folder."""
    done = subprocess.run(
        ["git", "-C", str(folder), *IDENTITY, *arguments],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip()
