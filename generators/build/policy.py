"""mkdocs hook for content security: drops HTML not on an allow-list, moves inline scripts to files.

The HTML of each page passes an allow-list before the theme takes it; the theme's own scripts, which
stand in its pages, are moved to files, so that a policy that allows none in a page can be set
(``docs/overrides/main.html``); and directives that run code while the site is built are refused
outside the pages of the API.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import BaseLoader, Environment
from mkdocs.exceptions import BuildError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from mla_var3.knowledge.sanitizing import sanitized

#: Pages that generators fill with directives of mkdocstrings.
API = "reference/api/"
#: The theme's scripts that stand in pages, and what of them differs between pages.
_PARTIALS = "partials/javascripts/"
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_BASE = re.compile(r'"\{\{[^{}]*\bbase_url\b[^{}]*\}\}"')
#: Anchors of lines of code, which mkdocs does not see.
_LINE = re.compile(r'id="(__span-[A-Za-z_][\w.-]*-\d+)"')
#: Script files by name, as the templates of this build ask for them.
_files: dict[str, str] = {}


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Let no page but those of the API hold a directive.

    Raises:
        BuildError: One does.
    """
    if ":::" in markdown and not page.file.src_uri.startswith(API):
        raise BuildError(
            f"{page.file.src_uri} holds ':::', a directive that runs code while the site is built; "
            "knowledge lint names the line"
        )
    return markdown


@event_priority(-100)  # After all that adds to it.
def on_page_content(html: str, page: Page, **_: Any) -> str:
    """What of a page's HTML is on the allow-list; mkdocs learns of the lines that have anchors."""
    page.present_anchor_ids = (page.present_anchor_ids or set()) | set(_LINE.findall(html))
    return html if html == getattr(page, "clean", None) else sanitized(html)


def on_env(env: Environment, config: Any, files: Files) -> Environment:
    """Read the theme's scripts from files of the site."""
    assert env.loader is not None
    _files.clear()
    env.loader = _Outside(env.loader)
    for folder in config.theme.dirs:
        for file in Path(folder, _PARTIALS).glob("*.html"):
            env.get_template(_PARTIALS + file.name)
    for name, script in _files.items():
        files.append(File.generated(config, name, content=script))
    return env


class _Outside(BaseLoader):
    """Templates of the theme with their scripts moved to files."""

    def __init__(self, inner: BaseLoader) -> None:
        self.inner = inner

    def get_source(
        self, environment: Environment, template: str
    ) -> tuple[str, str | None, Callable[[], bool] | None]:
        source, path, is_fresh = self.inner.get_source(environment, template)
        if template.startswith(_PARTIALS):
            source = _SCRIPT.sub(_moved, source)
        return source, path, is_fresh


def _moved(found: re.Match[str]) -> str:
    """A script as the address of its file; the way to the top of the site goes along."""
    script = _BASE.sub("document.currentScript.dataset.base", found[1])
    if "{{" in script or "{%" in script:
        raise BuildError("a script of the theme holds what differs between pages; see policy.py")
    name = f"assets/js/theme-{hashlib.sha256(script.encode()).hexdigest()[:12]}.js"
    _files[name] = script
    return f'<script src="{{{{ "{name}" | url }}}}" data-base="{{{{ base_url }}}}"></script>'
