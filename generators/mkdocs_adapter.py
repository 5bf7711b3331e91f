"""Hands the pages to mkdocs: a hook, and the only module that knows what mkdocs calls a file.

Pages keep the path of the file to edit; the navigation is written as SUMMARY.md for
mkdocs-literate-nav. Nothing is written to a disk on the way.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files, InclusionLevel, file_sort_key

from generators import assets, glossary
from generators.navigation import summary
from generators.site import all_pages, load
from generators.terms import Linker
from mla_var3.errors import HyperMlaError

#: What finds the terms that a page of the build that is going on uses.
_terms: list[Linker] = []


@event_priority(100)  # The plugins see the pages.
def on_files(files: Files, config: Any) -> Files:
    """Add everything to the build that is going on; a page takes the place of its source."""
    try:
        made = {file.src_uri: file for file in _files(config)}
    except HyperMlaError as error:
        raise PluginError(str(error)) from error
    theirs = {file.src_uri: file for file in files}
    return Files(sorted((theirs | made).values(), key=file_sort_key))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Say which terms a page uses; in whichever process renders it."""
    if page.content is not None:  # It is rendered; mkdocs asks again for the text alone.
        return markdown
    return glossary.explained(page.file.src_uri, markdown, _terms[0])


def _files(config: Any) -> Iterator[File]:
    site = load()
    # `mkdocs serve` has threads, which a fork would leave in whatever state they are.
    workers = (os.cpu_count() or 1) if threading.active_count() == 1 else 1
    pages = all_pages(site, workers)
    _terms[:] = [glossary.linker(site)]
    for page in pages:
        file = _file(config, page.path, page.content)
        # Edit paths count from docs/, where the hand-written pages are.
        file.edit_uri = f"../{page.source}" if page.source else None
        yield file
    for path, asset in assets.site_files(site.root):
        yield _file(config, path, asset)
    # The navigation is read from it; it is no page itself.
    yield _file(config, "SUMMARY.md", summary(pages), InclusionLevel.EXCLUDED)


def _file(
    config: Any,
    path: str,
    content: str | bytes | Path,
    inclusion: InclusionLevel = InclusionLevel.UNDEFINED,
) -> File:
    if isinstance(content, Path):
        return File.generated(config, path, abs_src_path=str(content), inclusion=inclusion)
    return File.generated(config, path, content=content, inclusion=inclusion)
