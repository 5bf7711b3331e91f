"""Knowledge base of optimization patterns: reads its pages, lints, searches and matches them."""

from mla_var3.knowledge.directives import render
from mla_var3.knowledge.evidence import render_evidence, render_measured
from mla_var3.knowledge.linting import lint
from mla_var3.knowledge.matching import Match, NextStep, match, next_steps, steps
from mla_var3.knowledge.pages import Catalogue, Document, load_all
from mla_var3.knowledge.search import Hit, query

__all__ = [
    "Catalogue",
    "Document",
    "Hit",
    "Match",
    "NextStep",
    "lint",
    "load_all",
    "match",
    "next_steps",
    "query",
    "render",
    "render_evidence",
    "render_measured",
    "steps",
]
