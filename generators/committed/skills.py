"""Writes the agent skills ``skills/<name>/SKILL.md``, where ``npx skills add`` looks for them.

Run by ``python -m generators.committed.skills`` from the templates of ``generators.pages.machine``;
a test fails where a file is out of date.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from generators.model.site import Site
from generators.pages.machine import committed_skill, skill_names
from mla_var3 import front
from mla_var3.paths import repo_root, write_atomic

FOLDER = "skills"


def files(site: Site) -> dict[str, str]:
    """Each file by its path from the top of the checkout."""
    return {f"{FOLDER}/{name}/SKILL.md": committed_skill(site, name) for name in skill_names()}


def outdated(root: Path, wanted: dict[str, str]) -> list[str]:
    """Files that are missing, other than wanted, or of no skill, by path."""
    there = {path.relative_to(root).as_posix() for path in (root / FOLDER).glob("*/*")}
    changed = {
        name for name, text in wanted.items()
        if name not in there or (root / name).read_text(encoding="utf-8") != text
    }  # fmt: skip
    return sorted(changed | there - wanted.keys())


def main() -> int:
    """Write the skills of this checkout; returns the exit code."""
    from generators.families import load

    root = repo_root()
    wanted = files(load())
    for name in outdated(root, wanted):
        if name in wanted:
            write_atomic(root / name, wanted[name])
        else:
            shutil.rmtree((root / name).parent)
        print(f"{'wrote' if name in wanted else 'removed'} {name}")
    return 0


if __name__ == "__main__":
    front.run("generators.committed.skills:main")
