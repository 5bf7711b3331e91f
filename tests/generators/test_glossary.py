"""The glossary has a page per term, and says where its figures come from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from generators import glossary, glossary_figures
from generators.glossary import explained, linker
from generators.page import Page
from generators.terms import Linker, Target
from mla_var3.errors import KnowledgeError
from mla_var3.knowledge.markdown import blank, code_regions, numbers_with_unit
from tests.generators.checking import ROOT, dead_links, see

HEAD = "---\nterm: {term}\ngroup: The hardware\n{more}---\n\n{body}"


def plant(root, **terms):
    folder = root / glossary.FOLDER
    folder.mkdir(parents=True)
    for slug, (more, body) in terms.items():
        (folder / f"{slug}.md").write_text(HEAD.format(term=slug.upper(), more=more, body=body))


def test_a_term_is_read(tmp_path):
    plant(tmp_path, tma=("aliases: [bulk copy]\n", "It copies `boxes` ([A](b.md)).\n\nMore.\n"))
    (term,) = glossary.load(tmp_path)
    assert (term.slug, term.names, term.body) == ("tma", ["TMA", "bulk copy"], "More.")
    assert term.plain == "It copies boxes (A)."
    assert term.page == "glossary/tma.md"


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"a": ("", "Two. Sentences.")}, "one sentence"),
        ({"a": ("", "# A heading.")}, "one sentence"),
        ({"a": ("", "")}, "one sentence"),
        ({"a": ("color: red\n", "One.")}, "color"),
        ({"a": ("related: [b]\n", "One.")}, "no term 'b'"),
        ({"a": ("aliases: [x y]\n", "One."), "b": ("aliases: [X Y]\n", "One.")}, "is a name of"),
        ({"a": ("aliases: {\n", "One.")}, "not YAML"),
    ],
)
def test_what_is_no_term_is_one_sentence(tmp_path, terms, said):
    plant(tmp_path, **terms)
    with pytest.raises(KnowledgeError, match=said) as caught:
        glossary.load(tmp_path)
    assert "docs/glossary/" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_project_s_terms(site):
    assert len(site.terms) >= 80
    assert {"mla", "lse", "tma", "hmma", "sm", "spill"} <= {term.slug for term in site.terms}
    named = {term.head.figure for term in site.terms} - {None}
    assert named == set(glossary_figures.FIGURES)


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


def test_pictures_say_what_they_show():
    for draw in glossary_figures.FIGURES.values():
        drawn = draw()
        assert 'role="img"' in drawn
        assert len(drawn.partition("<figcaption>")[2]) > 60
    assert "3 waves; the last one uses 2 of 8, so 25% of it" in glossary_figures.wave()
    assert "2 waves; the last one uses 8 of 8, so 100%" in glossary_figures.wave(16)
    with pytest.raises(KnowledgeError, match="no picture"):
        glossary_figures.figure("nothing")


def test_the_roofline_follows_the_device(monkeypatch):
    before = glossary_figures.roofline.__wrapped__()
    ceilings = glossary_figures.regimes.ceilings_of(glossary_figures.DEVICE)
    changed = replace(ceilings, gbps=ceilings.gbps * 2)
    monkeypatch.setattr(glossary_figures.regimes, "ceilings_of", lambda device: changed)
    assert glossary_figures.roofline.__wrapped__() != before


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
    assert glossary.load(tmp_path) == []
    bare = replace(site, root=tmp_path)
    assert glossary.pages(bare) == []
    assert glossary.places(bare) == {}
    assert (ROOT / glossary.FOLDER).is_dir()
    assert linker(bare).lines("a.md", "warp") == []
