"""MLA's sections and figures for pages of every workload: binds them to the ``Analysis`` interface.

``generators.model.site`` declares the interface; the modules beside this one make the sections.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from generators.mla import (
    by_language,
    covered,
    design_choice,
    figure,
    peers,
    roofline,
    skills,
    turning,
)  # fmt: skip
from generators.mla import calls as server_calls
from generators.model.site import Site
from mla_var3.knowledge.evidence import Link

#: What names of sizes stand for on every page.
SYMBOLS = (
    "b batch, h query heads, s query tokens per sequence, t context length, d head dimension, p "
    "rotary part, k latent dimension"
)
#: Pictures and computed sentences that texts and terms name.
FIGURES: Mapping[str, Callable[[Site], str]] = {
    "mla-figure": figure.figure,
    "roofline": lambda site: roofline.picture(),
    "mla-turning": lambda site: turning.text(),
}

#: Sentences and tables of records that texts and terms name.
SENTENCES: Mapping[str, Callable[[Site, Link], str]] = covered.SENTENCES

home = design_choice.home
guides = covered.guides
workload = design_choice.workload
design = design_choice.design
calls = server_calls.calls
skill_context = skills.context


def results(link: Link) -> str:
    """Where these kernels are compared with those of other libraries."""
    return (
        f"[{peers.TITLE}]({link(design_choice.OTHERS)}): every problem that one run timed on both "
        "sides, also where we are slower."
    )


def languages(link: Link) -> str:
    """Where the fastest of each language stand in one run."""
    address = f"{link(design_choice.OTHERS)}#{by_language.ANCHOR}"
    return f"[The fastest of each language beside FlashMLA]({address}), in one run."
