"""A term of the glossary is read from its file, and what is wrong with one is one sentence."""

from __future__ import annotations

import pytest

from generators.model.terms import FOLDER, load
from mla_var3.errors import KnowledgeError

HEAD = "---\nterm: {term}\ngroup: The hardware\n{more}---\n\n{body}"


def plant(root, **terms):
    folder = root / FOLDER
    folder.mkdir(parents=True)
    for slug, (more, body) in terms.items():
        (folder / f"{slug}.md").write_text(HEAD.format(term=slug.upper(), more=more, body=body))


def test_a_term_is_read(tmp_path):
    plant(tmp_path, tma=("aliases: [bulk copy]\n", "It copies `boxes` ([A](b.md)).\n\nMore.\n"))
    (term,) = load(tmp_path)
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
        load(tmp_path)
    assert "docs/glossary/" in str(caught.value)
    assert "\n" not in str(caught.value)
