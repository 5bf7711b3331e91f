"""Security scan of a built site: fails where a page runs anything but the theme's scripts.

The page for missing addresses holds no text of ours: what it runs and allows, any page may.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Annotated

import tyro

from mla_var3 import arguments, front, inputs
from mla_var3.errors import KnowledgeError

#: The page that holds the theme alone.
BARE = "404.html"

_SCHEME = re.compile(r"[\s\x00-\x20]*(javascript|vbscript|data:text)", re.IGNORECASE)
_EMBEDDING = {"iframe", "object", "embed", "applet", "base", "foreignobject", "animate", "set"}
#: What differs between pages of one theme: the way to the top of the site.
_WAY = re.compile(r"^(?!//)[^:]*?(?=assets/)")
_BASE, _DATA = "data-base", "application/json"


def faults(folder: Path) -> Iterator[str]:
    """One sentence for each page of a built site that could run what is not the theme's.

    Args:
        folder: The site.

    Raises:
        KnowledgeError: It is no built site: the page for missing addresses is not there.
    """
    if not (folder / BARE).is_file():
        raise KnowledgeError(f"{folder} is not a built site: it has no {BARE}")
    bare = read(inputs.read_text(folder / BARE))
    for page in sorted(folder.rglob("*.html")):
        found = read(inputs.read_text(page))
        said = [*(f"a script: {x[:60]!r}" for x in found.scripts if x not in bare.scripts)]
        if found.policy != bare.policy:
            said.append(f"another policy: {found.policy[:60]!r}")
        for what in [*said, *found.active]:
            yield f"{page.relative_to(folder)} holds {what}"


def read(text: str) -> Read:
    """What a page could run."""
    found = Read()
    found.feed(text)
    found.close()
    return found


class Read(HTMLParser):
    """What a page could run.

    Attributes:
        policy: The policy that stands before everything else.
        scripts: Each script: its attributes and its text, but for data, which does not run.
        active: Event handlers, addresses that run, and frames.
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.policy = ""
        self.scripts: list[str] = []
        self.active: list[str] = []
        self._open: str | None = None
        self._seen = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "script":
            own = given.get("type") == _DATA and "src" not in given
            same = sorted((n, _WAY.sub("", v)) for n, v in given.items() if n != _BASE)
            self._open = None if own else "".join(f" {name}={value!r}" for name, value in same)
            if self._open is not None:
                self.scripts.append(self._open)
        elif given.get("http-equiv", "").lower() == "content-security-policy" and not self._seen:
            self.policy = given.get("content", "")
        self._seen |= tag not in ("html", "head")
        self.active += self._dangers(tag, given)

    def handle_endtag(self, tag: str) -> None:
        self._open = None

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self.scripts[-1] += f">{data}"

    def _dangers(self, tag: str, given: dict[str, str]) -> Iterator[str]:
        if tag in _EMBEDDING:
            yield f"an element <{tag}>"
        for name, value in given.items():
            if name.startswith("on"):
                yield f"an event handler in <{tag}>"
            if _SCHEME.match(value) and name not in ("content", "title", "aria-label", "alt"):
                yield f"an address that runs in <{tag}>"


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
