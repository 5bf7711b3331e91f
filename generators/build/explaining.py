"""mkdocs hook: appends to a page's Markdown a line for each glossary term that the page uses.

The Markdown extension ``term_links`` turns these lines into links at the first use of each term.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from generators.model import terms
from generators.pages import glossary
from generators.write.term_links import Linker


@functools.cache
def _linker(root: Path) -> Linker:
    return glossary.linker(terms.load(root))


def on_pre_build(config: Any) -> None:
    """Forget the terms of the build before this one, which `mkdocs serve` made."""
    _linker.cache_clear()


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Add the lines that the Markdown extension ``generators.write.term_links`` reads."""
    if page.content is not None:  # It is rendered; mkdocs asks again for the text alone.
        return markdown
    known = _linker(Path(config.config_file_path).parent)
    return glossary.explained(page.file.src_uri, markdown, known)
