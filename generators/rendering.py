"""Renders pages side by side: a hook of mkdocs, whose own loop then finds every page rendered.

mkdocs turns one page after the other into HTML, which is most of a build. Here forked processes
take pages from one list until none is left, and what they say is said again by this one, so that
a warning fails the strict build as ever.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
from collections.abc import Iterator, Sequence
from logging.handlers import QueueHandler
from multiprocessing import get_context
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from mkdocs.exceptions import BuildError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

#: What ``Page.render`` sets, but for links, which hold files.
_SET = ("content", "toc", "_title_from_render", "present_anchor_ids")
#: mkdocstrings keeps what such a page defines in the process that renders it.
_DEFINES = re.compile(r"^::: ", re.MULTILINE)
_fork = get_context("fork")


#: What a process made of a page: which one, its attributes, and the anchors that it links to by the
#: path of their file. Pickle does not find classes of a hook.
Rendered = tuple[int, dict[str, Any], dict[str, dict[str, str]]]

#: Whether this is a build and not `mkdocs serve`, whose threads a fork would leave in any state.
_command = [""]


def on_startup(command: str, dirty: bool) -> None:
    """Remember what mkdocs does."""
    _command[:] = [command]


@event_priority(-100)  # The navigation is as it will be, which titles and links depend on.
def on_nav(nav: Navigation, config: Any, files: Files) -> Navigation:
    """Render all pages of the navigation.

    Raises:
        BuildError: A page cannot be rendered, or a process died.
    """
    others = (os.cpu_count() or 1) - 1
    if others and _command == ["build"]:
        _render_all(nav.pages, config, files, others)
    return nav


def _render_all(pages: Sequence[Page], config: Any, files: Files, others: int) -> None:
    own: list[int] = []
    shared: list[int] = []
    for index, page in enumerate(pages):
        (own if _DEFINES.search(page.file.content_string) else shared).append(index)
    taken = _fork.Value("i", 0)
    helpers = [_start(pages, shared, taken, config, files) for _ in range(others)]
    for index in itertools.chain(own, _take(shared, taken)):
        _render(pages[index], config, files)
    for helper in helpers:
        _receive(helper, pages, files)
    for page in pages:
        page.render = _is_rendered  # type: ignore[method-assign]


def _is_rendered(config: Any, files: Files) -> None:
    """Stands for ``Page.render`` where that is done."""


def _take(shared: Sequence[int], taken: Any) -> Iterator[int]:
    """What no other process has taken yet."""
    while True:
        with taken.get_lock():
            place = taken.value
            taken.value += 1
        if place >= len(shared):
            return
        yield shared[place]


def _render(page: Page, config: Any, files: Files) -> None:
    """What mkdocs does with a page up to its HTML."""
    try:
        page = config.plugins.on_pre_page(page, config=config, files=files)
        page.read_source(config)
        page.markdown = config.plugins.on_page_markdown(
            page.markdown, page=page, config=config, files=files
        )
        page.render(config, files)
    except Exception as error:
        raise BuildError(f"{page.file.src_uri} cannot be rendered: {error}") from error


# -- in another process ----------------------------------------------------------------------------


def _start(
    pages: Sequence[Page], shared: Sequence[int], taken: Any, config: Any, files: Files
) -> Connection:
    """A process that renders pages and sends them all when none is left."""
    here, there = _fork.Pipe(duplex=False)
    process = _fork.Process(
        target=_help, args=(there, pages, shared, taken, config, files), daemon=True
    )
    process.start()
    there.close()
    return here


def _help(
    there: Connection, pages: Sequence[Page], shared: Sequence[int], taken: Any, config: Any,
    files: Files,
) -> None:  # fmt: skip
    said: SimpleQueue[logging.LogRecord] = SimpleQueue()
    logging.getLogger("mkdocs").handlers[:] = [QueueHandler(said)]
    found: list[Rendered] = []
    failed = None
    try:
        for index in _take(shared, taken):
            _render(pages[index], config, files)
            found.append(_rendered(index, pages[index]))
    except BuildError as error:
        failed = str(error)
    there.send((found, [said.get() for _ in range(said.qsize())], failed))


def _rendered(index: int, page: Page) -> Rendered:
    links = {file.src_uri: anchors for file, anchors in (page.links_to_anchors or {}).items()}
    return index, {name: getattr(page, name) for name in _SET}, links


def _receive(helper: Connection, pages: Sequence[Page], files: Files) -> None:
    """Take the pages of a process, and say what it said."""
    try:
        found, said, failed = helper.recv()
    except EOFError:
        raise BuildError("a process that renders pages died; is there enough memory?") from None
    for record in said:
        logging.getLogger(record.name).handle(record)
    if failed is not None:
        raise BuildError(failed)
    for index, values, links in found:
        vars(pages[index]).update(values)
        pages[index].links_to_anchors = {
            files.src_uris[path]: anchors for path, anchors in links.items()
        }
