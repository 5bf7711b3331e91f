"""Command ``skills``: lists the agent skills of the checkout, and installs them for an agent.

``python -m generators.committed.skills`` writes the skills themselves.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import frontmatter
import tyro

from mla_var3 import arguments, front, inputs
from mla_var3.arguments import named
from mla_var3.errors import UsageError
from mla_var3.paths import relative, repo_root, write_atomic

PROG = "python -m mla_var3.app.skills"
FILE = "SKILL.md"
#: Where most agents look, below the folder they work in; others link to it.
DEFAULT = Path(".agents", "skills")
#: How a skill of the checkout names a file of it.
_LINK = re.compile(r"\]\(\.\./\.\./([^)\s]+)\)")


def sources() -> list[Path]:
    """The skills of the checkout, by name.

    Raises:
        UsageError: There is no checkout.
    """
    folder = repo_root() / "skills"
    found = sorted(folder.glob(f"*/{FILE}"))
    if not found:
        raise UsageError(f"{folder} holds no skills: they come with a checkout, not with a wheel")
    return found


def install(target: Annotated[tyro.conf.Positional[Path], named("[DIR]")] = DEFAULT) -> None:
    """Copy the skills to DIR/<name>/SKILL.md, their links turned to this checkout.

    Args:
        target: Folder in which an agent looks for skills.
    """
    for source in sources():
        path = target / source.parent.name / FILE
        write_atomic(path, _turned(inputs.read_text(source), path))
        print(f"wrote {relative(path)}")


def _turned(text: str, path: Path) -> str:
    """A skill whose links lead from ``path`` to the checkout: by full path from outside of it."""
    root, folder = repo_root().resolve(), path.parent.resolve()
    base = os.path.relpath(root, folder) if folder.is_relative_to(root) else str(root)
    return _LINK.sub(lambda found: f"]({base}/{found[1]})", text)


def show() -> None:
    """Name each skill and say when an agent should take it."""
    for source in sources():
        meta = frontmatter.loads(inputs.read_text(source)).metadata
        print(f"{meta['name']}: {meta['description']}")


COMMANDS = {"install": install, "list": show}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that ``argv`` (the process's by default) names; returns the exit code."""
    command, rest, prog = arguments.choose(COMMANDS, sys.argv[1:] if argv is None else argv, PROG)
    arguments.parse(command, rest, prog)
    return 0


if __name__ == "__main__":
    front.run("mla_var3.app.skills:main")
