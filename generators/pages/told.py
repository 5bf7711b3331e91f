"""Fills hand-written text with what records say: ``{{ told NAME }}`` becomes a sentence or a table.

So a page of ``docs`` can answer with figures that nobody typed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from generators.model.site import Site
from generators.pages import (
    analyses,
    attention_examples,
    chosen_examples,
    citing,
    exercises,
    fitting,
    installing,
    late_starts,
    licences,
    newest,
    open_next,
    row_loads,
    toolchains,
    wanting,
)
from mla_var3.errors import KnowledgeError
from mla_var3.knowledge.evidence import Link

_TOLD = re.compile(r"\{\{ told ([a-z0-9-]+) \}\}")


def _exercise(name: str) -> Callable[[Site, Link], str]:
    return lambda site, link: exercises.shown(site, name)


#: What every workload has; analyses add their own as ``SENTENCES``.
OWN: Mapping[str, Callable[[Site, Link], str]] = {
    "attention-examples": attention_examples.text,
    "citation": citing.bibtex,
    "examples-scaled": chosen_examples.scaled,
    "wanted": wanting.everywhere,
    "which-gpu": fitting.cards,
    "compiles-sm-100": fitting.told_of("nvidia-b200"),
    "compiles-sm-120": fitting.told_of("nvidia-rtx-5090"),
    "sm-resources": fitting.resources,
    "origins": licences.designs,
    "packages": licences.packages,
    "install": installing.command,
    "install-whole": installing.whole,
    "installed": installing.packages,
    "installed-where": installing.ran,
    "row-loads": row_loads.text,
    "toolchains": toolchains.text,
    "late-start": late_starts.text,
    "newest": newest.text,
    "next": open_next.text,
    **{f"exercise-{name.replace('_', '-')}": _exercise(name) for name in exercises.NAMES},
}


def filled(site: Site, source: str, text: str, link: Link) -> str:
    """A text with each name replaced by what it stands for.

    Args:
        site: What generators read.
        source: The text's file, for messages.
        text: The text.
        link: How its page addresses files.

    Raises:
        KnowledgeError: Nothing is called so.
    """

    def one(found: re.Match[str]) -> str:
        make = OWN.get(found[1]) or analyses.sentence(site, found[1])
        if make is None:
            raise KnowledgeError(f"{source}: nothing is told of {found[1]!r}")
        return make(site, link)

    return _TOLD.sub(one, text)
