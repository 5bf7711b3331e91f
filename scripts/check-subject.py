"""Refuse a commit whose subject does not follow Conventional Commits or exceeds 72 characters.

``python scripts/check-subject.py FILE`` reads the message from a file, as git's hook commit-msg
names it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

MOST = 72
TYPES = (
    "build",
    "chore",
    "ci",
    "docs",
    "feat",
    "fix",
    "perf",
    "refactor",
    "revert",
    "style",
    "test",
)
_SUBJECT = re.compile(rf"(?:{'|'.join(TYPES)})(?:\([\w@/., -]+\))?!?: \S.*")
#: Subjects that git writes itself.
_OF_GIT = ("Merge ", "Revert ", "fixup! ", "squash! ", "amend! ")


def fault(subject: str) -> str | None:
    """What is wrong with a subject, in one sentence; None where nothing is."""
    if subject.startswith(_OF_GIT):
        return None
    if len(subject) > MOST:
        return f"the subject has {len(subject)} characters, {MOST} are allowed: {subject}"
    if not _SUBJECT.fullmatch(subject):
        return f"the subject is not 'type(scope): text', type one of {', '.join(TYPES)}: {subject}"
    return None


def main(path: Path) -> int:
    """Check the message in a file; returns the exit code."""
    said = fault(path.read_text(encoding="utf-8").partition("\n")[0])
    if said is not None:
        print(f"error: {said}", file=sys.stderr)
    return int(said is not None)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
