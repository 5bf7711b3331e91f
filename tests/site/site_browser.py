"""The built site and tabs on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Where the site is served: a sub-path, as the build was told.
BASE = "https://hypermla.test/docs/"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Built:
    """The site, once a test session, for all its processes.

    Attributes:
        tree: Copy of the checkout with records of every kind.
        online: The site for a server.
        offline: The site for a file system.
    """

    tree: Path
    online: Path
    offline: Path


@dataclass
class Tab:
    """A browser tab on the site, and what went wrong in it.

    Attributes:
        page: The tab.
        errors: Console errors and exceptions.
        foreign: Requests to other hosts.
        missing: Requests for files that the site does not have.
    """

    page: Any
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def open(self, path: str, *, quiet: bool = True) -> None:
        """Open a page of the site, its path ending with a slash, and wait until it is quiet."""
        self.page.goto(path if ":" in path else BASE + path)
        if quiet:
            self.page.wait_for_load_state("networkidle")

    def check(self) -> None:
        """Fail for whatever went wrong so far."""
        assert not self.foreign, f"asked other hosts: {self.foreign}"
        assert not self.missing, f"missing: {self.missing}"
        assert not self.errors, f"console: {self.errors}"


OpenTab = Callable[..., Tab]
