"""Says which terms a page uses: a hook of mkdocs, in whichever process renders the page."""

from __future__ import annotations

from typing import Any

from generators.pages import glossary


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Add the lines that the Markdown extension ``generators.write.term_links`` reads."""
    if page.content is not None:  # It is rendered; mkdocs asks again for the text alone.
        return markdown
    return glossary.explained(page.file.src_uri, markdown, glossary.in_use[0])
