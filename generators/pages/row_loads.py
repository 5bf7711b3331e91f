"""Tells apart the ways in which cuTile loads rows, with what the compiler made of each."""

from __future__ import annotations

from generators.model.site import Site
from generators.write.text import cell, table
from mla_var3.knowledge import cited_kernels
from mla_var3.knowledge.evidence import Link

#: The list of compiles, one loop of latent decode in several forms.
LIST = "latent-loop"
#: A way, what it addresses, when to take it, and its compile.
WAYS = (
    ("`ct.load`, page by a scalar index", "a tile at a tile index: `(page, 0, 0)`",
     "a page is a tile, or several", "paged"),
    ("`ct.gather`", "an index per element, here `(rows[:, None], columns[None, :])`",
     "single elements, or rows where the next does not fit", "gathered"),
    ("`ct.load_advanced_indexing`", "a row number per row, and one slice of each row",
     "rows in any order: lists of tokens", "indexed"),
    ("the same on Blackwell", "the same", "the same: the hardware gathers there",
     "indexed-sm-100"),
)  # fmt: skip


def text(site: Site, link: Link) -> str:
    """A row per way."""
    del link
    found = cited_kernels.table(LIST, site.root)
    rows = []
    for way, addresses, when, case in WAYS:
        facts = found.facts(case)
        stack = f", {facts.stack_bytes} bytes of stack" if facts.stack_bytes else ""
        rows.append([
            way, addresses, when, cell(facts.arch), f"{facts.tma_loads}",
            f"{facts.async_copies}", f"{facts.instructions:,}{stack}",
        ])  # fmt: skip
    head = ["In cuTile", "What it addresses", "Take it for", "Compiled for", "TMA loads",
            "cp.async (LDGSTS)", "Instructions of the kernel"]  # fmt: skip
    return table(head, rows)
