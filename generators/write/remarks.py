"""Finds devlog sentences that link an identifier of a changed line (``code:NAME``).

The diff shows such a sentence before that line, and its link leads there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from markdown_it import MarkdownIt

from mla_var3.errors import KnowledgeError
from mla_var3.knowledge import changes
from mla_var3.knowledge.changes import Comparison, Place
from mla_var3.knowledge.markdown import CODE_LINK

_LINK = re.compile(r"\[([^\[\]]*)\]\(([^\s()]*)(?: \"[^\"]*\")?\)")
#: A full stop between two sentences, not one of an abbreviation.
_END = re.compile(r"(?<=[a-z0-9)`%\]]\.) (?=[A-Z`\[])")
_BLOCKS = re.compile(r"\n\n|\n(?=- )")
_ANCHOR = "code-"


@dataclass(frozen=True)
class Remark:
    """A sentence about a line.

    Attributes:
        section: The section of the entry that it stands in.
        html: The sentence, its links unwrapped.
        anchor: Where its link leads; empty where an earlier remark has the same.
    """

    section: str
    html: str
    anchor: str


def anchored(text: str) -> str:
    """An entry whose links to code lead to the lines on the page of its version."""
    return CODE_LINK.sub(rf"[\1](#{_ANCHOR}\2)", text)


def sentences(text: str) -> list[str]:
    """The sentences of a Markdown text, bullets and paragraphs apart."""
    blocks = (block.removeprefix("- ").strip() for block in _BLOCKS.split(text))
    return [sentence for block in blocks for sentence in _END.split(block) if sentence]


def remarks(parts: Mapping[str, str], compared: Comparison) -> dict[Place, list[Remark]]:
    """What an entry says about changed lines, by the line.

    Args:
        parts: Rendered text of each section of the entry, ``anchored`` before.
        compared: What changed.

    Raises:
        KnowledgeError: A link names what no changed line holds.
    """
    found: dict[Place, list[Remark]] = {}
    seen: set[str] = set()
    for section, text in parts.items():
        for sentence in sentences(re.sub(r' "[^"\n]*"\)', ")", text)):
            for name in _named(sentence):
                line = changes.place_of(name, compared)
                if line is None:
                    raise KnowledgeError(f"no line changed in {compared.after} holds {name!r}")
                made = Remark(section, _plain(sentence), "" if name in seen else _ANCHOR + name)
                found.setdefault(line.place, []).append(made)
                seen.add(name)
    return found


def _named(sentence: str) -> list[str]:
    marks = (target for _, target in _LINK.findall(sentence))
    prefix = f"#{_ANCHOR}"
    return [mark.removeprefix(prefix) for mark in marks if mark.startswith(prefix)]


def _plain(sentence: str) -> str:
    """A sentence as HTML without links."""
    return str(MarkdownIt("commonmark", {"html": False}).renderInline(_LINK.sub(r"\1", sentence)))
