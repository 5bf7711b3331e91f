from __future__ import annotations

import pytest

from generators import families as engine
from generators.model.site import Site
from generators.pages import glossary
from generators.write.page import Page
from tests.knowledge.trees import Tree, plant


@pytest.hookimpl(tryfirst=True)  # Before -m chooses.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Making all pages takes a minute: what reads them all belongs to `nox -s exhaustive`."""
    for item in items:
        if "pages" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.exhaustive)


@pytest.fixture(scope="session")
def site() -> Site:
    """This checkout."""
    return engine.load()


@pytest.fixture(scope="session")
def pages(site: Site) -> list[Page]:
    """All pages of this checkout."""
    return engine.all_pages(site)


@pytest.fixture
def tree(tmp_path) -> Tree:
    tree = plant(tmp_path)
    tree.write("CONTRIBUTING.md", "# Contributing\n\nText.\n")
    for page in ("serving", "serving/call", "serving/sparse", "serving/times"):
        tree.write(f"docs/{page}.md", "# Serving\n\nText.\n")
    tree.write(f"{glossary.FOLDER}/mla.md", "---\nterm: MLA\ngroup: The problem\n---\n\nA kind.\n")
    for page in ("knowledge", "metrics", "checks"):
        tree.write(f"docs/contributing/{page}.md", f"# {page}\n\nText.\n")
    return tree
