"""What the search index keeps of a page."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from generators.build import searching

PAGE = """<h1 id="top">Spills<a class="headerlink" href="#top">¶</a></h1>
<p>Values that do not <em>fit</em> &amp; go.</p>
<svg><text>drawn</text></svg>
<table><tr><td>LDL</td><td>STL</td><td>LDL</td></tr></table>
<h2 id="why">Why<a class="headerlink" href="#why">¶</a></h2>
<ul><li>One.</li><li>Two.</li></ul><pre><code>ct.load(x)</code></pre>
<h3>No anchor</h3><p>Hidden.</p>"""


def test_prose_stands_apart_from_tables_and_code():
    page, section = searching.documents(PAGE, "a/b/", "Spills", ["register spill"], {})
    assert page == {
        "location": "a/b/",
        "title": "Spills",
        "weight": 1.0,
        "told": 1.0,
        "prose": "Values that do not fit & go.",
        "rest": "LDL STL",
        "names": ["register spill"],
    }
    assert (section["location"], section["title"], section["page"]) == (
        "a/b/#why",
        "Why",
        "Spills register spill",
    )
    assert (section["prose"], section["rest"]) == ("One. Two.", "ct.load(x)")


def test_short_notes_are_one_document():
    (page,) = searching.documents(PAGE, "learning/examples/x/", "X", [], {})
    assert "One. Two." in page["prose"]
    assert page["weight"] < 1


@pytest.mark.parametrize("offline", [False, True])
def test_the_theme_s_index_is_empty_where_pages_would_fetch_it(tmp_path, offline):
    (tmp_path / "search").mkdir()
    theirs = tmp_path / "search" / "search_index.json"
    theirs.write_text('{"config": {"lang": ["en"]}, "docs": [1]}')
    plugins = {"material/offline": object()} if offline else {}
    config = SimpleNamespace(site_dir=str(tmp_path), plugins=plugins)
    page = SimpleNamespace(meta={}, url="a/b/", title="Spills")
    titled = SimpleNamespace(meta={"title": "flash_mla v3"}, url="d/", title="v3")
    hidden = SimpleNamespace(meta={"search": {"exclude": True}}, url="c/", title="C")
    searching.on_pre_build(config)
    searching.on_page_content(PAGE, titled, config, None)
    assert searching._found[0]["title"] == "flash_mla v3"  # A hit says of which kernel.
    searching._found.clear()
    assert searching.on_page_content(PAGE, page, config, None) == PAGE
    searching.on_page_content(PAGE, hidden, config, None)
    searching.on_post_build(config)
    assert page.meta["search"] == {"exclude": True}
    index = json.loads(theirs.read_text())
    assert index["config"] == {"lang": ["en"]}
    found = tmp_path / "search" / "documents.json"
    docs = index["docs"] if offline else json.loads(found.read_text())
    alike, *docs = docs
    assert ["gemm", "matmul", "mma", "multiply", "product"] in alike["alike"]
    assert [doc["location"] for doc in docs] == ["a/b/", "a/b/#why"]
    assert (index["docs"] == []) is not offline
    assert found.exists() is not offline


def test_names_for_a_section_that_is_not_there_warn(caplog):
    """A strict build fails then: nobody would ever find the section by them."""
    meta = {"sections": {"why": ["reason"], "wy": ["typo"]}}
    page = SimpleNamespace(meta=meta, url="a/b/", title="A")
    searching.on_page_content(PAGE, page, SimpleNamespace(), None)
    searching._found.clear()
    assert [record.getMessage() for record in caplog.records] == [
        "a/b/: names for #wy, which is no section of it"
    ]


def test_sections_that_list_what_is_elsewhere_weigh_less():
    page = '<h1>O1</h1><h2 id="v">Versions</h2><p>All.</p><h2 id="m">Mechanism</h2><p>How.</p>'
    _, listed, told = searching.documents(page, "catalogue/optimizations/o1/", "O1", [], {})
    assert listed["weight"] == searching.LISTED * told["weight"]


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ("devices/nvidia-b200/", "glossary/fence/"),
        ("reference/api/emulator/", "emulator/"),
        ("kernels/mla/cute-dsl/thin_mla/v3/", "kernels/mla/cute-dsl/thin_mla/"),
        ("learning/examples/x/", "learn/lessons/1/"),
        ("", "scope/"),
    ],
)
def test_listings_count_less_for_a_sentence_than_pages_that_teach(less, more):
    found = [next(searching.documents(PAGE, url, "T", [], {}))["told"] for url in (less, more)]
    assert found[0] < found[1]


def test_a_section_that_lists_counts_less_for_a_sentence_too():
    _, listed = searching.documents('<h1>A</h1><h2 id="v">Versions</h2>', "a/", "A", [], {})
    assert listed["told"] == searching.LISTED


def test_words_of_a_section_lead_to_it_and_a_long_page_says_so():
    long = PAGE.replace("One.", "One. " + "word " * searching.LONG)
    names = {"why": ["the reason"]}
    page, section = searching.documents(long, "a/b/", "Spills", ["register spill"], names)
    assert page["long"] is True
    assert section["names"] == ["the reason"]
    short = next(searching.documents(PAGE, "a/b/", "Spills", [], {}))
    assert "long" not in short


def test_what_stands_below_a_heading_of_the_top_belongs_to_the_page():
    top = PAGE.replace('<h2 id="why">', '<h2 id="why" class="on-top">')
    (page,) = searching.documents(top, "a/b/", "Spills", [], {})
    assert page["answers"] is True
    assert "One. Two." in page["prose"]
