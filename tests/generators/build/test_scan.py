from __future__ import annotations

from pathlib import Path

import pytest

from generators.build import scan
from mla_var3.errors import KnowledgeError

THEME = (
    '<script src="{}assets/bundle.js"></script><script src="assets/t.js" data-base="{}"></script>'
)


@pytest.fixture
def site(tmp_path) -> Path:
    (tmp_path / "404.html").write_text(THEME.format("/", "/") + "<p>not found")
    (tmp_path / "a").mkdir()
    return tmp_path


def page(site: Path, text: str) -> list[str]:
    (site / "a" / "index.html").write_text(THEME.format("../", "..") + text)
    return list(scan.faults(site))


@pytest.mark.parametrize(
    "text",
    [
        "<p>on = 1 &lt;script&gt;alert(1)&lt;/script&gt;</p>",
        '<meta name="description" content="depends on= nothing"><a href="../b/#on">b</a>',
        '<script type="application/json">{"a": 1}</script>',
        "<code>javascript:alert(1)</code>",
    ],
)
def test_text_that_runs_nothing_is_fine(site, text, capsys):
    assert page(site, text) == []
    assert scan.main([str(site)]) == 0
    assert "2 pages: nothing runs but the theme" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<script>alert(1)</script>", "a script: '>alert(1)'"),
        ('<ScRiPt src="//x/y.js"></script>', "a script: "),
        ("<img src=x onerror=alert(1)>", "an event handler in <img>"),
        ('<img/src="x"onerror="alert(1)">', "an event handler in <img>"),
        ('<a href="javascript:alert(1)">', "an address that runs in <a>"),
        ("<a href=' JavaScript:alert(1)'>", "an address that runs in <a>"),
        ('<iframe srcdoc="x">', "an element <iframe>"),
        ('<script data-x="application/json">alert(1)</script>', "a script: "),
        ('<script type="application/json" src="x.js"></script>', "a script: "),
        ('<p title=">" onclick="x()">', "an event handler in <p>"),
    ],
)
def test_what_would_run_is_found(site, text, said, capsys):
    (fault,) = page(site, text)
    assert fault.startswith(f"a/index.html holds {said}")
    assert scan.main([str(site)]) == 1
    assert "2 pages: 1 faults" in capsys.readouterr().out


def test_a_folder_that_is_no_site_is_refused(tmp_path):
    with pytest.raises(KnowledgeError, match=r"not a built site: it has no 404\.html"):
        list(scan.faults(tmp_path))
