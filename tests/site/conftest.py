from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib
import pytest
import site_records
import site_tree
from filelock import FileLock
from site_browser import BASE, FLAGS, Built, OpenTab, Tab, one_font, serving


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
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for all processes of the run: those of pytest-xdist have one each below it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if base.name.startswith("popen-") else base) / "site"
    folder.mkdir(exist_ok=True)
    return folder


def once(folder: Path, make: Callable[[Path], object]) -> Path:
    """``folder`` as ``make`` fills it, in the first process that asks."""
    with FileLock(folder.with_suffix(".lock")):
        if not (done := folder.with_suffix(".done")).exists():
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            done.touch()
    return folder


def plant(tree: Path) -> None:
    """A copy of the checkout with records of every kind, and few examples."""
    tree.mkdir()
    site_tree.fetch_assets()
    site_tree.copy(tree)
    site_tree.thin_examples(tree)
    site_records.write_all(tree / "results")


@pytest.fixture(scope="session")
def built(shared: Path) -> Built:
    tree = once(shared / "tree", plant)
    return Built(
        tree,
        once(shared / "online", lambda to: site_tree.build(tree, to, HYPERMLA_SITE_URL=BASE)),
    )


@pytest.fixture(scope="session")
def offline(shared: Path, built: Built) -> Path:
    """The site for a file system."""
    return once(
        shared / "offline",
        lambda to: site_tree.build(built.tree, to, config="mkdocs-offline.yml"),
    )


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

    def make() -> Tab:
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        contexts.append(context)
        return Tab(context.new_page())

    yield make
    for context in contexts:
        context.close()
