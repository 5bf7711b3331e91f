"""``python -m generators OUT`` writes the site's pages as plain Markdown to a folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import tyro

from generators.page import write_folder
from generators.site import all_pages, load
from mla_var3.errors import EXIT_BAD_INPUT, HyperMlaError


def write(out: tyro.conf.Positional[Path]) -> None:
    """Write every page, record and linked file.

    Args:
        out: Folder to write to; files in it that are no pages stay.
    """
    print(f"wrote {write_folder(all_pages(load()), out)} files to {out}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    try:
        tyro.cli(write, prog="python -m generators", args=argv)
    except HyperMlaError as error:
        print(error, file=sys.stderr)
        return EXIT_BAD_INPUT
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
