"""Abbreviations come from the glossary, and only to the pages that use them."""

from __future__ import annotations

import pytest

from generators import glossary
from generators.glossary import abbreviations, explained
from generators.page import Page
from tests.generators.checking import ROOT, see

TEXT = """# Glossary

## The problem

### MLA

Multi-head *latent* attention. More words.

### LDL, STL

Load and store of `local` memory ([local](#local)); in the machine code.

### Latent cache

No abbreviation.

### HMMA

The instruction of sm_80 (16x8x16), on every architecture.
"""


def test_first_sentences():
    assert abbreviations(TEXT) == {
        "MLA": "Multi-head latent attention",
        "LDL": "Load and store of local memory (local)",
        "STL": "Load and store of local memory (local)",
        "HMMA": "The instruction of sm_80 (16x8x16), on every architecture",
    }


def test_the_project_s_glossary():
    found = abbreviations((ROOT / glossary.SOURCE).read_text())
    assert {"MLA", "LSE", "TMA", "HMMA", "SM"} <= set(found)
    assert all("\n" not in text and len(text) > 5 for text in found.values())


def test_pages_explain_what_they_use():
    known = {"MLA": 'so "called" <b>', "TMA": "not used"}
    page = Page("a.md", "MLA and `MLA`, but not XMLAX.")
    found = explained(page, known)
    assert "*[TMA]" not in found.content
    html = see(found)
    assert html.text.strip() == "MLA and MLA, but not XMLAX."
    assert html.scripts == []


@pytest.mark.parametrize(
    "page",
    [
        Page("glossary.md", "MLA"),
        Page("a.md", "nothing"),
        Page("a.md", b"MLA"),
        Page("a.txt", "MLA"),
    ],
)
def test_pages_that_stay_as_they_are(page):
    assert explained(page, {"MLA": "x"}) is page


def test_a_checkout_without_glossary(site, tmp_path):
    from dataclasses import replace

    assert glossary.load(replace(site, root=tmp_path)) == {}
    assert glossary.load(site)["MLA"].startswith("Multi-head")
