"""mkdocs hook for speed: renders and writes pages in several processes.

mkdocs turns one page after the other into HTML and puts one after the other into the theme, which
is most of a build. Here forked processes take pages from one list until none is left, and this one
repeats their warnings, so that a warning still fails the strict build. mkdocs has no hook in place
of its loops: the functions that they call on each page are replaced while a build goes on.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from logging.handlers import QueueHandler
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, cast

from jinja2 import Environment
from mkdocs.commands import build
from mkdocs.exceptions import BuildError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

from mla_var3.forked import FORKS, end_with_parent
from mla_var3.knowledge.sanitizing import sanitized

#: What is set of a page, but for links, which hold files.
_SET = ("content", "clean", "toc", "_title_from_render", "present_anchor_ids")
#: mkdocstrings keeps what such a page defines in the process that renders it.
_DEFINES = re.compile(r"^::: ", re.MULTILINE)


#: What a process made of a page: which one, its attributes, and the anchors that it links to by the
#: path of their file. Pickle does not find classes of a hook.
Rendered = tuple[int, dict[str, Any], dict[str, dict[str, str]]]
#: What is done with a page of a list; what it returns is pickled.
Work = Callable[[int], Any]

#: Whether this is a build and not `mkdocs serve`, whose threads a fork would leave in any state.
_command = [""]
#: The navigation of the build that is going on.
_nav: list[Navigation] = []
_build_page = build._build_page


def on_startup(command: str, dirty: bool) -> None:
    """Remember what mkdocs does; a build ends before its garbage is worth the search for it."""
    _command[:] = [command]
    if command == "build":
        gc.disable()


@event_priority(-100)  # The navigation is as it will be, which titles and links depend on.
def on_nav(nav: Navigation, config: Any, files: Files) -> Navigation:
    """Render all pages of the navigation.

    Raises:
        BuildError: A page cannot be rendered, or a process died.
    """
    _nav[:] = [nav]
    if _others():
        _render_all(nav.pages, config, files)
    return nav


@event_priority(-100)  # Links between pages are as they will be.
def on_env(env: Environment, config: Any, files: Files) -> Environment:
    """Put all pages into the theme and write them, and all other files.

    Raises:
        BuildError: A page cannot be made, or a process died.
    """
    if _others():
        found = files.documentation_pages()
        pages = [file.page for file in found if file.page is not None]
        others = [file for file in files if _is_copied(file)]

        def write(index: int) -> None:
            if index < len(pages):
                with _named(pages[index].file):
                    _build_page(pages[index], config, found, _nav[0], env)
            else:
                with _named(others[index - len(pages)]) as file:
                    file.copy_file()

        _make([], range(len(pages) + len(others)), write)
        build._build_page = _is_made
        files.copy_static_files = _is_made  # type: ignore[method-assign]
    return env


@event_priority(-100)  # What follows is the end of most programs.
def on_post_build(config: Any) -> None:
    """Leave mkdocs as it was, for a program that goes on."""
    build._build_page = _build_page
    if _command == ["build"]:
        gc.freeze()  # What the build made is searched no more, not at the end of Python either.
    gc.enable()


def on_build_error(error: Exception) -> None:
    """Leave mkdocs as it was where a build fails."""
    on_post_build(None)


def _is_copied(file: File) -> bool:
    return not file.is_documentation_page() and file.inclusion.is_included()


def _others() -> int:
    """Processes beside this one."""
    return (os.cpu_count() or 1) - 1 if _command == ["build"] else 0


def _render_all(pages: Sequence[Page], config: Any, files: Files) -> None:
    own: list[int] = []
    shared: list[int] = []
    for index, page in enumerate(pages):
        (own if _DEFINES.search(page.file.content_string) else shared).append(index)

    def render(index: int) -> Rendered:
        with _named(pages[index].file):
            _render(pages[index], config, files)
        return _rendered(index, pages[index])

    for index, values, links in _make(own, shared, render):
        vars(pages[index]).update(values)
        pages[index].links_to_anchors = {
            files.src_uris[path]: anchors for path, anchors in links.items()
        }
    for page in pages:
        page.render = _is_made  # type: ignore[method-assign]


@contextlib.contextmanager
def _named(file: File) -> Iterator[File]:
    try:
        yield file
    except Exception as error:
        raise BuildError(f"{file.src_uri} cannot be made: {error}") from error


def _is_made(*_: Any, **__: Any) -> None:
    """Takes the place of a step of mkdocs that is done already."""


def _render(page: Page, config: Any, files: Files) -> None:
    """Turn a page into HTML, by the steps that mkdocs takes."""
    page = config.plugins.on_pre_page(page, config=config, files=files)
    page.read_source(config)
    page.markdown = config.plugins.on_page_markdown(
        page.markdown, page=page, config=config, files=files
    )
    page.render(config, files)
    # What stays as it is until the policy sees it needs no second look there.
    page.content = page.clean = sanitized(page.content or "")  # type: ignore[attr-defined]


def _rendered(index: int, page: Page) -> Rendered:
    links = {file.src_uri: anchors for file, anchors in (page.links_to_anchors or {}).items()}
    return index, {name: getattr(page, name) for name in _SET}, links


# -- in several processes --------------------------------------------------------------------------


def _make(own: Sequence[int], shared: Sequence[int], work: Work) -> list[Any]:
    """Do the work on each page.

    Args:
        own: Pages that this process works on.
        shared: Pages that any process works on.
        work: What to do; a BuildError ends it.

    Returns:
        What the work of the other processes returned.
    """
    taken = FORKS.Value("i", 0)
    helpers = [_start(shared, taken, work) for _ in range(_others())]
    for index in itertools.chain(own, _take(shared, taken)):
        work(index)
    return [made for helper in helpers for made in _receive(helper)]


def _take(shared: Sequence[int], taken: Any) -> Iterator[int]:
    """Pages of the list that no other process has taken yet."""
    while True:
        with taken.get_lock():
            place = taken.value
            taken.value += 1
        if place >= len(shared):
            return
        yield shared[place]


def _start(shared: Sequence[int], taken: Any, work: Work) -> Connection:
    """A process that works on pages and sends what it made when none is left."""
    here, there = FORKS.Pipe(duplex=False)
    process = FORKS.Process(target=_help, args=(there, shared, taken, work), daemon=True)
    process.start()
    there.close()
    return here


def _help(there: Connection, shared: Sequence[int], taken: Any, work: Work) -> None:
    end_with_parent()
    said: SimpleQueue[logging.LogRecord] = SimpleQueue()
    logging.getLogger("mkdocs").handlers[:] = [QueueHandler(said)]
    made: list[Any] = []
    failed = None
    try:
        made += map(work, _take(shared, taken))
    except BuildError as error:
        failed = str(error)
    there.send((made, [said.get() for _ in range(said.qsize())], failed))


def _receive(helper: Connection) -> list[Any]:
    """Take what a process made, and say what it said."""
    try:
        made, said, failed = helper.recv()
    except EOFError:
        raise BuildError("a process that renders pages died; is there enough memory?") from None
    for record in said:
        logging.getLogger(record.name).handle(record)
    if failed is not None:
        raise BuildError(failed)
    return cast(list[Any], made)
