"""Hostile texts in every kind of content and in every field, on the site that is built of them.

Lint refuses each of these files; here nobody asked it. A page that the generators refuse is none.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import site_records
import site_tree
from hostile_tree import PAGES, TABLES, Planted
from site_browser import BASE, FLAGS, serving

from generators.build import scan
from mla_var3.knowledge.checks.hostile import ActiveContent
from mla_var3.knowledge.linting import lint
from mla_var3.knowledge.pages import load_all

#: It opens some 700 pages twice, which takes minutes.
pytestmark = [pytest.mark.browser, pytest.mark.exhaustive]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    tree = tmp_path_factory.mktemp("planted") / "tree"
    tree.mkdir()
    site_tree.fetch_assets()
    site_tree.copy(tree)
    site_tree.thin_examples(tree, shown=8)
    site_records.write_all(tree / "results")
    found = Planted(tree)
    found.records()
    found.sources()
    return found


@pytest.fixture(scope="module")
def site(planted: Planted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile") / "site"
    site_tree.build(planted.root, folder, strict=False, HYPERMLA_SITE_URL=BASE)
    return folder


def addresses(site: Path) -> Iterator[str]:
    for page in sorted(site.rglob("index.html")):
        yield f"{page.parent.relative_to(site).as_posix()}/".removeprefix("./")


def ran(browser: Any, site: Path, every: int = 1, **context: Any) -> list[str]:
    """Pages on which a text ran, or a link to one that would; of so many one."""
    tab = browser.new_context(**context).new_page()
    tab.on("dialog", lambda dialog: dialog.dismiss())
    found = []
    for address in [*addresses(site)][::every]:
        tab.goto(BASE + address, wait_until="load")
        tab.evaluate("""() => document.querySelectorAll("article a").forEach(one => {
            if (/^[^a-z]*(java|data|vb)/i.test(one.getAttribute("href")))
                one.dispatchEvent(new MouseEvent("click", {bubbles: true, cancelable: true}));
        })""")
        if tab.evaluate("() => Boolean(window.ran)"):
            found.append(address)
    return found


def test_every_kind_of_content_holds_some(planted: Planted) -> None:
    held = {kind.removesuffix(" body") for kind, number in planted.fields.items() if number}
    assert held == {*TABLES, *PAGES, "records", "sources"}
    assert sum(planted.fields.values()) > 500


def test_lint_names_every_file(planted: Planted) -> None:
    found = {finding.file for finding in lint(load_all(planted.root), [ActiveContent()])}
    # Of suites, what others' tests print is shown as words.
    assert sorted(planted.files - found) == ["results/conformance/tilegym.json"]


def test_nothing_runs(site: Path, running_playwright: Any) -> None:
    assert list(scan.faults(site)) == []
    with serving(site) as flag:
        browser = running_playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=[*FLAGS, flag]
        )
        assert ran(browser, site, bypass_csp=True) == []  # By the allow-list alone.
        assert ran(browser, site, every=10) == []
        browser.close()
