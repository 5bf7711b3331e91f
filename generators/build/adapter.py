"""Script that mkdocs-gen-files runs in a build: hands all generated pages to mkdocs.

Pages keep the path of the file to edit; the navigation is written as SUMMARY.md for
mkdocs-literate-nav.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import mkdocs_gen_files
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import InclusionLevel

# The plugin runs this file as a script, from wherever mkdocs was started.
sys.path.insert(0, str(Path(__file__).parents[2]))

from generators.build import assets
from generators.build.navigation import summary
from generators.families import all_pages, load
from mla_var3.errors import HyperMlaError


def main() -> None:
    """Write everything into the build that is going on."""
    try:
        site = load()
        # `mkdocs serve` has threads, which a fork would leave in whatever state they are.
        workers = (os.cpu_count() or 1) if threading.active_count() == 1 else 1
        pages = all_pages(site, workers)
        files = list(assets.site_files(site.root))
    except HyperMlaError as error:
        raise PluginError(str(error)) from error
    for page in pages:
        _write(page.path, page.data)
        if page.path.endswith(".md"):
            # Edit paths count from docs/, where the hand-written pages are.
            mkdocs_gen_files.set_edit_path(page.path, f"../{page.source}" if page.source else None)
    for path, file in files:
        _write(path, file.read_bytes())
    _write("SUMMARY.md", summary(pages).encode())
    # The navigation is read from it; it is no page itself.
    nav = mkdocs_gen_files.FilesEditor.current().files.get_file_from_path("SUMMARY.md")
    assert nav is not None
    nav.inclusion = InclusionLevel.EXCLUDED


def _write(path: str, content: bytes) -> None:
    with mkdocs_gen_files.open(path, "wb") as file:
        file.write(content)


main()
