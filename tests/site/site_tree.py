"""A copy of the checkout to build the site from."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: What of the checkout a build needs; everything that pages may link to is below them.
PARTS = (
    "kernels", "knowledge", "results", "generators", "docs", "src", "examples", "scripts", "tests",
    "third_party",
)  # fmt: skip


def copy(target: Path) -> None:
    """Copy what a build needs."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", ".hypothesis")
    for name in PARTS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, symlinks=True, ignore=ignored)
    for file in ROOT.glob("*"):
        if file.is_file() and not file.name.startswith("."):
            shutil.copy(file, target)


def thin_examples(tree: Path, shown: int = 20) -> None:
    """Leave the examples that other pages name, and the ``shown`` with the longest words.

    Pages of examples are alike, and would be half of what a walk of the site visits.
    """
    folder = tree / "knowledge/examples"
    files = (file for top in ("knowledge", "docs") for file in (tree / top).rglob("*"))
    pages = [file for file in files if file.suffix in (".md", ".toml")]
    named = "\n".join(file.read_text() for file in pages if file.parent != folder)
    examples = sorted(folder.glob("*.toml"), key=_longest_word)
    for file in examples[:-shown]:
        if file.stem not in named:
            file.unlink()


def _longest_word(file: Path) -> int:
    return max(map(len, file.read_text().split()))


def build(
    tree: Path, site: Path, config: str = "mkdocs.yml", strict: bool = True, **env: str
) -> str:
    """Build; returns what mkdocs printed, and fails the test when it fails."""
    command = [sys.executable, "-m", "mkdocs", "build", "-f", config, "-d", str(site)]
    command += ["--strict"] * strict
    done = subprocess.run(
        command,
        cwd=tree,
        env={
            **os.environ,
            "HYPERMLA_ROOT": str(tree),
            "NO_MKDOCS_2_WARNING": "1",
            "DISABLE_MKDOCS_2_WARNING": "true",
            **env,
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def fetch_assets() -> None:
    """Fetch the browser libraries that the checkout does not have yet, into the checkout."""
    done = subprocess.run(
        [sys.executable, "-m", "generators.build.assets"],
        cwd=ROOT,
        env={**os.environ, "HYPERMLA_ROOT": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
