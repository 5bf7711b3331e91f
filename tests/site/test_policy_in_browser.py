"""Hostile texts on pages of the site's theme: none runs, by the allow-list nor by the policy alone.

The site here is the theme, the hooks and the extensions of the real one around pages that are
nothing but hostile.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from site_browser import BASE, FLAGS, serving

from generators.build import scan
from mla_var3.knowledge.sanitizing import _Tolerant
from mla_var3.paths import repo_root
from tests.hostile_pages import DIRECTIVES, EXTENSION, INCLUDES, RAN, TEXTS

pytestmark = pytest.mark.browser
PLACE = "PLACE-OF-THE-TEXT"


def configured(folder: Path) -> Path:
    """The site's settings without the pages that generators make."""
    root = repo_root()
    config = yaml.load((root / "mkdocs.yml").read_text(), _Tolerant)
    kept = {name: config["plugins"][name] for name in ("search", "mkdocstrings", "privacy")}
    config |= {
        "plugins": kept, "docs_dir": str(folder / "docs"), "repo_url": "", "site_url": BASE,
        "hooks": [str(root / hook) for hook in config["hooks"] if "explaining" not in hook],
        "exclude_docs": "",
    }  # fmt: skip
    config["theme"]["custom_dir"] = str(root / "docs/overrides")
    config["markdown_extensions"].remove("generators.write.term_links")  # It needs a glossary.
    del config["validation"]
    shutil.copytree(root / "docs/assets", folder / "docs/assets", dirs_exist_ok=True)
    path = folder / "mkdocs.yml"
    path.write_text(yaml.safe_dump(config))
    return path


def build(folder: Path, pages: dict[str, str]) -> subprocess.CompletedProcess[str]:
    for name, text in pages.items():
        (folder / "docs").mkdir(exist_ok=True, parents=True)
        (folder / "docs" / f"{name}.md").write_text(text)
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "-f", str(configured(folder))]
    return subprocess.run(
        [*command, "-d", str(folder / "site")],
        cwd=repo_root(), capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    pages = {f"p{n}": f"# Page\n\n{text}\n" for n, text in enumerate(TEXTS.values())}
    done = build(folder, {"index": "# Home\n", "bare": f"# Bare\n\n{PLACE}\n", **pages})
    assert done.returncode == 0, done.stderr
    return folder / "site"


@contextmanager
def chromium(play: Any, site: Path, **context: Any) -> Iterator[Any]:
    with serving(site) as flag:
        browser = play.chromium.launch(
            executable_path=shutil.which("chromium"), args=[*FLAGS, flag]
        )
        yield browser.new_context(**context).new_page()
        browser.close()


def ran(tab: Any, address: str) -> bool:
    """Whether a page, or a click on what it leads to, ran a text's script."""
    said: list[object] = []
    tab.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    tab.goto(BASE + address, wait_until="load")
    tab.evaluate("""() => document.querySelectorAll("article a, article button, article input")
        .forEach(one => {
            if (one.tagName !== "A" || /^[^a-z]*(java|data|vb)/i.test(one.getAttribute("href")))
                one.dispatchEvent(new MouseEvent("click", {bubbles: true, cancelable: true}));
        })""")
    tab.wait_for_timeout(60)
    return bool(said) or bool(tab.evaluate("() => Boolean(window.ran)"))


def test_no_text_runs(site: Path, running_playwright: Any) -> None:
    assert list(scan.faults(site)) == []
    with chromium(running_playwright, site) as tab:
        found = [name for n, name in enumerate(TEXTS) if ran(tab, f"p{n}/")]
    assert found == []


def test_no_text_runs_without_the_policy(site: Path, running_playwright: Any) -> None:
    with chromium(running_playwright, site, bypass_csp=True) as tab:
        found = [name for n, name in enumerate(TEXTS) if ran(tab, f"p{n}/")]
    assert found == []


def test_no_text_runs_without_the_allow_list(site: Path, running_playwright: Any) -> None:
    page = (site / "bare/index.html").read_text()
    assert page.count(PLACE) >= 1
    for n, text in enumerate(TEXTS.values()):
        (site / f"raw{n}").mkdir()
        (site / f"raw{n}/index.html").write_text(page.replace(PLACE, text))
    with chromium(running_playwright, site) as tab:
        found = [name for n, name in enumerate(TEXTS) if ran(tab, f"raw{n}/")]
    assert found == []
    with chromium(running_playwright, site, bypass_csp=True) as tab:
        ran_there = [name for n, name in enumerate(TEXTS) if ran(tab, f"raw{n}/")]
    assert len(ran_there) > 20, "the texts themselves do nothing"


@pytest.mark.parametrize("name", DIRECTIVES)
def test_no_directive_runs_while_the_site_is_built(tmp_path: Path, name: str) -> None:
    extension = tmp_path / "extension.py"
    extension.write_text(EXTENSION)
    text = DIRECTIVES[name].replace("{file}", str(extension))
    done = build(tmp_path, {"index": "# Home\n", "page": f"# Page\n\n{text}"})
    assert done.returncode != 0
    assert "runs code while the site is built" in done.stderr
    assert not (tmp_path / RAN).exists()


def test_no_file_comes_in_while_the_site_is_built(tmp_path: Path) -> None:
    secret = tmp_path / "secret.md"
    secret.write_text("what nobody should see\n")
    texts = [text.replace("{file}", str(secret)) for text in INCLUDES.values()]
    pages = {f"p{n}": f"# Page\n\n{text}\n" for n, text in enumerate(texts)}
    done = build(tmp_path, {"index": "# Home\n", **pages})
    assert done.returncode == 0, done.stderr
    for n in range(len(texts)):
        assert "nobody should see" not in (tmp_path / f"site/p{n}/index.html").read_text()
