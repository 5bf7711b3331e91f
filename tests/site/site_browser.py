"""The built site, a server of it, and tabs on it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

#: Where the site is served: a sub-path, as the build was told.
BASE = "http://hypermla.test/docs/"
HOST, PREFIX = urlsplit(BASE).netloc, urlsplit(BASE).path
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Copy buttons need what browsers call a secure origin.
    f"--unsafely-treat-insecure-origin-as-secure=http://{HOST}",
]


class _Files(SimpleHTTPRequestHandler):
    """The site below its sub-path, with its own page for what is missing."""

    protocol_version = "HTTP/1.1"

    def translate_path(self, path: str) -> str:
        below = path.removeprefix(PREFIX) if path.startswith(PREFIX) else "nothing-is-here"
        return super().translate_path(f"/{below}")

    def end_headers(self) -> None:
        # One visit of every page then loads what they share once.
        self.send_header("Cache-Control", "max-age=3600")
        super().end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        body = (Path(self.directory) / "404.html").read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: tabs collect what went wrong."""


@contextmanager
def serving(site: Path) -> Iterator[str]:
    """Serve a site; gives the browser's flag that leads to it, and nowhere else."""
    handler = partial(_Files, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"--host-resolver-rules=MAP {HOST}:80 127.0.0.1:{server.server_port}, MAP * ~NOTFOUND"
        server.shutdown()


#: Widths that every page is tried at: a phone, a tablet, a laptop, a large screen.
WIDTHS = (390, 768, 1440, 1920)

#: How far the page is wider than its window, once scripts had a second to place what they place.
OVERFLOW = """() => new Promise(done => {
    const until = performance.now() + 1000;
    const look = () => {
        const over = document.documentElement.scrollWidth - innerWidth;
        if (over <= 0 || performance.now() > until) done(Math.max(over, 0));
        else requestAnimationFrame(look);
    };
    look();
})"""

#: Characters of a page; formulas have fonts of their own.
CHARACTERS = """() => {
    const found = new Set();
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        if (texts.currentNode.parentElement.closest(".katex, script, style")) continue;
        for (const character of texts.currentNode.data) found.add(character);
    }
    return [...found].join("");
}"""

#: Font families of whatever a page shows, formulas aside.
FAMILIES = """() => [...new Set(
    [...document.querySelectorAll("body :not(.katex, .katex *)")]
        .filter(element => element.checkVisibility())
        .map(element => getComputedStyle(element).fontFamily)
)]"""

FONTCONFIG = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{folder}</dir><cachedir>{folder}/cache</cachedir></fontconfig>
"""


def one_font(folder: Path, font: Path) -> dict[str, str]:
    """Environment of a program that sees one font instead of those of this machine.

    Chromium ends when it finds none at all.

    Args:
        folder: An empty folder to keep it in.
        font: The font.
    """
    shutil.copy(font, folder)
    config = folder / "fonts.conf"
    config.write_text(FONTCONFIG.format(folder=folder))
    return {"FONTCONFIG_FILE": str(config)}


#: Fonts are there, and scripts that wait for the page have had their turn.
DRAWN = """document.fonts.ready.then(
    () => new Promise(done => requestAnimationFrame(() => setTimeout(done)))
)"""


@dataclass
class Built:
    """The site, once a test session, for all its processes.

    Attributes:
        tree: Copy of the checkout with records of every kind.
        online: The site for a server.
    """

    tree: Path
    online: Path


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

    def __post_init__(self) -> None:
        self.page.on("request", self._asked)
        self.page.on("response", self._answered)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._said)

    def _asked(self, request: Any) -> None:
        parts = urlsplit(request.url)
        if parts.netloc != HOST and parts.scheme not in ("file", "data", "blob"):
            self.foreign.append(request.url)

    def _answered(self, response: Any) -> None:
        if response.status >= 400:
            self.missing.append(response.url)

    def _said(self, line: Any) -> None:
        if line.type == "error":
            self.errors.append(line.text)

    def open(self, path: str) -> None:
        """Open a page of the site, its path ending with a slash, and wait until it is drawn."""
        self.page.goto(path if ":" in path else BASE + path)
        self.page.evaluate(DRAWN)

    def search(self, words: str) -> list[str]:
        """Addresses of the hits that the theme lists for what is typed into its field."""
        # At once: typed key by key, the first list on the page would be that of the first letters.
        self.page.click(".md-search__input", force=True)
        self.page.fill(".md-search__input", words, force=True)
        # The theme looks at the field when a key is let go.
        self.page.keyboard.press("End")
        self.page.wait_for_selector(".md-search-result__item a")
        found: list[str] = self.page.eval_on_selector_all(
            ".md-search-result__item > .md-search-result__link",
            "links => links.map(link => link.href)",
        )
        return found

    def overflows(self, widths: Iterable[int]) -> dict[int, int]:
        """By how much the page is wider than a window of each of the widths, where it is."""
        found = {}
        for width in widths:
            self.page.set_viewport_size({"width": width, "height": 844})
            found[width] = self.page.evaluate(OVERFLOW)
        return {width: over for width, over in found.items() if over}

    def foreign_glyphs(self, characters: Iterable[str]) -> str:
        """Those of the characters that the page shows in a font of the machine, not of the site."""
        listed = sorted(characters)
        self.page.evaluate(
            """characters => document.body.replaceChildren(
                ...["text", "code"].flatMap(kind => characters.map(character => {
                    const shown = document.createElement("p");
                    shown.style.fontFamily = `var(--md-${kind}-font-family)`;
                    shown.textContent = character;
                    return shown;
                })))""",
            listed,
        )
        self.page.evaluate(DRAWN)
        tools = self.page.context.new_cdp_session(self.page)
        tools.send("DOM.enable")
        tools.send("CSS.enable")
        root = tools.send("DOM.getDocument")["root"]["nodeId"]
        query = {"nodeId": root, "selector": "body > p"}
        nodes = tools.send("DOM.querySelectorAll", query)["nodeIds"]
        assert len(nodes) == 2 * len(listed)
        foreign = set()
        for character, node in zip(listed * 2, nodes, strict=True):
            fonts = tools.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]
            if not all(font["isCustomFont"] for font in fonts):
                foreign.add(character)
        return "".join(sorted(foreign))

    def check(self) -> None:
        """Fail for whatever went wrong so far."""
        assert not self.foreign, f"asked other hosts: {self.foreign}"
        assert not self.missing, f"missing: {self.missing}"
        assert not self.errors, f"console: {self.errors}"


OpenTab = Callable[..., Tab]
