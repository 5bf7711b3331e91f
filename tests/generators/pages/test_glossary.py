"""The glossary has a page per term, and says where its figures come from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from generators.draw import concepts
from generators.mla import roofline
from generators.model.terms import load
from generators.pages import glossary
from generators.pages.glossary import explained, linker
from generators.write.page import Page
from generators.write.term_links import Linker, Target
from mla_var3.errors import KnowledgeError
from mla_var3.knowledge.markdown import blank, code_regions, numbers_with_unit
from tests.generators.checking import ROOT, dead_links, see


def test_the_project_s_terms(site):
    assert len(site.terms) >= 80
    assert {"mla", "lse", "tma", "hmma", "sm", "spill"} <= {term.slug for term in site.terms}
    named = {term.head.figure for term in site.terms} - {None}
    assert named == {*concepts.FIGURES, "roofline"}


def test_figures_have_sources(site):
    for term in site.terms:
        for paragraph in f"{term.definition}\n\n{term.body}".split("\n\n"):
            prose = blank(paragraph, code_regions(paragraph))
            if found := list(numbers_with_unit(paragraph, prose)):
                assert "](" in paragraph, (term.source, found)


def test_pages_lead_somewhere(site, pages):
    own = [page for page in pages if page.path.startswith("glossary/") and page.nav]
    assert len(own) == len(site.terms) + 1
    assert list(dead_links(own, pages)) == []
    split = see(next(page for page in own if page.path == "glossary/split-kv.md"))
    assert "Also called: flash-decoding" in split.text
    assert "Related" in split.text
    assert split.scripts == []


def test_words_of_a_section_lead_to_one(site):
    taught = glossary._taught(site)
    named = [term for term in site.terms if term.head.sections]
    assert named
    for term in named:
        page = glossary._page(site, term, taught)
        assert '\nsections: {"' in str(page.content)
        assert set(term.head.sections) <= see(page).anchors, term.source


def test_pictures_say_what_they_show(site):
    for drawn in (*(draw() for draw in concepts.FIGURES.values()), roofline.picture()):
        assert 'role="img"' in drawn
        assert len(drawn.partition("<figcaption>")[2]) > 60
    assert "3 waves; the last one uses 2 of 8, so 25% of it" in concepts.wave()
    assert "2 waves; the last one uses 8 of 8, so 100%" in concepts.wave(16)
    with pytest.raises(KnowledgeError, match="no picture"):
        glossary._figure(site, "nothing")


def test_the_roofline_follows_the_device(monkeypatch):
    before = roofline.picture.__wrapped__()
    ceilings = roofline.regimes.ceilings_of(roofline.DEVICE)
    changed = replace(ceilings, gbps=ceilings.gbps * 2)
    monkeypatch.setattr(roofline.regimes, "ceilings_of", lambda device: changed)
    assert roofline.picture.__wrapped__() != before


KNOWN = Linker(
    [
        Target("split-KV", "glossary/split-kv.md", "Cuts keys."),
        Target("flash-decoding", "glossary/split-kv.md", "Cuts keys."),
        Target("warp", "glossary/warp.md", "32 threads <b>."),
        Target("warp specialization", "glossary/roles.md", "Roles."),
        Target("SM", "glossary/sm.md", "A part."),
    ]
)


def links(text: str, path: str = "a/b.md") -> list[str]:
    return see(Page(path, explained(path, text, KNOWN))).links


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Warps wait. A warp waits.", ["../glossary/warp.md"]),
        ("Warp specialization of *warps*.", ["../glossary/roles.md", "../glossary/warp.md"]),
        ("split KV, then flash-decoding", ["../glossary/split-kv.md"]),
        ("All SMs; not sm or SMX", ["../glossary/sm.md"]),
        ("sm", []),
        ("warped, warp_id", []),
        ("# A warp\n\n`warp` [warp](x.md) $warp$", ["x.md"]),
        ("| warp |\n|---|\n| warp |", []),
        ("```\nwarp\n```", []),
        ("warp, specialization", ["../glossary/warp.md"]),
        ("A warp ([by hand](../glossary/warp.md))", ["../glossary/warp.md"]),
        ("Warp specialization ([by hand](../glossary/roles.md))", ["../glossary/roles.md"]),
        ("- a *b* warp, c\n- SM **d**", ["../glossary/warp.md", "../glossary/sm.md"]),
    ],
)
def test_first_uses_become_links(text, wanted):
    assert [link for link in links(text) if not link.startswith("#")] == wanted


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("glossary/warp.md", ["roles.md"]),
        ("glossary/roles.md", []),
        ("a/b.md", ["../glossary/roles.md"]),
    ],
)
def test_a_term_is_no_link_on_its_own_page(path, wanted):
    assert links("Warp specialization", path) == wanted
    assert links("warp", "glossary/warp.md") == []


def test_words_stay_in_their_order():
    text = explained("a.md", "A warp, *split KV* and an SM, then a warp again.", KNOWN)
    seen = see(Page("a.md", text))
    assert seen.text.strip() == "A warp, split KV and an SM, then a warp again."
    assert seen.links == ["glossary/warp.md", "glossary/split-kv.md", "glossary/sm.md"]
    assert seen.scripts == []


@pytest.mark.parametrize(("path", "text"), [("glossary/index.md", "warp"), ("a.md", "nothing")])
def test_pages_that_stay_as_they_are(path, text):
    assert explained(path, text, KNOWN) == text


def test_a_checkout_without_glossary(site, tmp_path):
    assert load(tmp_path) == []
    bare = replace(site, root=tmp_path)
    assert glossary.pages(bare) == []
    assert glossary.places(bare) == {}
    assert (ROOT / glossary.FOLDER).is_dir()
    assert linker(bare.terms).lines("a.md", "warp") == []


def test_a_term_names_the_shortest_example_that_shows_it(site):
    made = {page.path: str(page.content) for page in glossary.pages(site)}
    named = [term for term in site.terms if term.head.shortest]
    assert len(named) >= 12
    for term in named:
        example = site.learning.examples[term.head.shortest]
        assert f"{example.length} lines" in made[term.page]
        assert f"](../learning/examples/{term.head.shortest}.md)" in made[term.page]
        assert f'"{term.head.term} example"' in made[term.page]
    head = named[0].head.model_copy(update={"shortest": "no-such-example"})
    with pytest.raises(KnowledgeError, match="no example is called 'no-such-example'"):
        glossary._shortest(site, replace(named[0], head=head), site.link(named[0].page))
