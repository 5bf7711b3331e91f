from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import pytest
import site_records
import site_tree
from filelock import FileLock
from site_browser import BASE, FLAGS, SMALL_INDEX, Built, OpenTab, Tab, one_font, serving


def missing_browser() -> str | None:
    """Why browser tests cannot run here."""
    if importlib.util.find_spec("playwright") is None:
        return "needs playwright (the dev extra), which is not installed"
    if shutil.which("chromium") is None:
        return "needs Chromium, which is not on the search path"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if reason := missing_browser():
        for item in items:
            if item.get_closest_marker("browser"):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, worker_id: str = "master") -> Built:
    base = tmp_path_factory.getbasetemp()
    # Processes of pytest-xdist have a folder each below one of the session.
    shared = (base.parent if base.name.startswith("popen-") else base) / "site"
    found = Built(shared / "tree", shared / "online", shared / "offline")
    shared.mkdir(exist_ok=True)
    with FileLock(shared / "lock"):
        if not (shared / "done").exists():
            shutil.rmtree(found.tree, ignore_errors=True)
            found.tree.mkdir()
            site_tree.fetch_assets()
            site_tree.copy(found.tree)
            site_tree.thin_examples(found.tree)
            site_records.write_all(found.tree / "results")
            site_tree.build(found.tree, found.online, HYPERMLA_SITE_URL=BASE)
            site_tree.build(found.tree, found.offline, config="mkdocs-offline.yml")
            (shared / "done").touch()
    return found


@pytest.fixture(scope="session")
def browser(
    built: Built, running_playwright: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """Chromium on the served site, with one font beside those of the site."""
    # It comes with matplotlib and has most characters but Chinese: what the site's fonts lack
    # shows up as its glyphs.
    wide = Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf"
    fonts = one_font(tmp_path_factory.mktemp("fonts"), wide)
    with serving(built.online) as flag:
        launched = running_playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=[*FLAGS, flag],
            env={**os.environ, **fonts},
        )
        yield launched
        launched.close()


@pytest.fixture
def open_tab(browser: Any) -> Iterator[OpenTab]:
    """Makes tabs on the served site, every other host cut off."""
    contexts = []

    def make(*, search: bool = True) -> Tab:
        context = browser.new_context(
            viewport={"width": 1440, "height": 900},
            extra_http_headers={} if search else SMALL_INDEX,
        )
        contexts.append(context)
        return Tab(context.new_page())

    yield make
    for context in contexts:
        context.close()
