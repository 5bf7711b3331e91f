"""``python -m generators OUT``: writes the site's pages as plain Markdown to a folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from generators.families import all_pages, load
from generators.write.page import write_folder
from mla_var3 import arguments, front


def write(out: Annotated[tyro.conf.Positional[Path], arguments.named("OUT")]) -> None:
    """Write every page, record and linked file.

    Args:
        out: Folder to write to; files in it that are no pages stay.
    """
    print(f"wrote {write_folder(all_pages(load()), out)} files to {out}")


def main(argv: Sequence[str] | None = None) -> int:
    """Write where ``argv`` (the process's by default) says; returns the exit code."""
    arguments.parse(write, sys.argv[1:] if argv is None else argv, "python -m generators")
    return 0


if __name__ == "__main__":
    front.run("generators.__main__:main")
