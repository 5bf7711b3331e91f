"""No page of a built site runs anything but the theme's code.

The page for missing addresses holds no text of ours, so what it runs is what every page may run.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import tyro

from mla_var3 import arguments, front, inputs
from mla_var3.errors import KnowledgeError

#: The page that holds the theme alone.
BARE = "404.html"

_SCRIPT = re.compile(r"<script\b([^>]*)>(.*?)</script", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(r"<([a-z][\w-]*)((?:\"[^\"]*\"|'[^']*'|[^'\">])*)>", re.IGNORECASE)
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_HANDLER = re.compile(r"[\s/\"']on[a-z]+\s*=", re.IGNORECASE)
_SCHEME = re.compile(r"=\s*[\"']?[\s\x00-\x20]*(javascript|vbscript|data:text)", re.IGNORECASE)
_EMBEDDING = {"iframe", "object", "embed", "applet", "base"}
#: What differs between pages of one theme: the way to the top of the site.
_WAY = re.compile(r'(?<=new URL\(")[./]*(?="|,)|(?<=src=")[./]*')


def faults(folder: Path) -> Iterator[str]:
    """One sentence for each page of a built site that could run what is not the theme's.

    Args:
        folder: The site.

    Raises:
        KnowledgeError: It is no built site: the page for missing addresses is not there.
    """
    if not (folder / BARE).is_file():
        raise KnowledgeError(f"{folder} is not a built site: it has no {BARE}")
    allowed = set(scripts(inputs.read_text(folder / BARE)))
    for page in sorted(folder.rglob("*.html")):
        text = inputs.read_text(page)
        found = [script for script in scripts(text) if script not in allowed]
        for what in [*(f"a script: {script[:60]!r}" for script in found), *active(text)]:
            yield f"{page.relative_to(folder)} holds {what}"


def scripts(text: str) -> Iterator[str]:
    """Each script of a page as it would run on the top page; data in a script does not run."""
    for attributes, body in _SCRIPT.findall(text):
        if "application/json" not in attributes:
            yield _WAY.sub("", f"{attributes}>{body}")


def active(text: str) -> Iterator[str]:
    """Event handlers, addresses that run, and frames in a page."""
    for name, attributes in _TAG.findall(_SCRIPT.sub("", text)):
        if name.lower() in _EMBEDDING:
            yield f"an element <{name}>"
        if _HANDLER.search(_QUOTED.sub('""', attributes)):
            yield f"an event handler in <{name}>"
        if _SCHEME.search(attributes):
            yield f"an address that runs in <{name}>"


def scan(folder: Annotated[tyro.conf.Positional[Path], arguments.named("FOLDER")]) -> int:
    """Look for what a page should not run; 1 when there is any.

    Args:
        folder: The built site.
    """
    found = list(faults(folder))
    for fault in found:
        print(fault)
    pages = sum(1 for _ in folder.rglob("*.html"))
    print(f"{pages} pages: " + (f"{len(found)} faults" if found else "nothing runs but the theme"))
    return int(bool(found))


def main(argv: Sequence[str] | None = None) -> int:
    """Scan the folder that ``argv`` (the process's by default) names; returns the exit code."""
    given = sys.argv[1:] if argv is None else argv
    return int(arguments.parse(scan, given, "python -m generators.build.scan"))


if __name__ == "__main__":
    front.run("generators.build.scan:main")
