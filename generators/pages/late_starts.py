"""Tells apart the ways in which cuTile begins at a row between tiles, with each one's compile."""

from __future__ import annotations

from generators.model.site import Site
from generators.write.text import cell, table
from mla_var3.knowledge import cited_kernels
from mla_var3.knowledge.evidence import Link

#: The list of compiles, one loop of latent decode in several forms.
LIST = "late-start"
#: A way, what brings the rows, and its compile.
WAYS = (
    ("1: `Array.slice`, then `ct.load`", "a TMA load per tile, as without a start", "shifted"),
    ("2: `ct.load_advanced_indexing`", "a TMA load per row and 64 columns", "numbered"),
    ("3: `ct.gather`", "copies whose addresses and bounds threads compute", "gathered"),
    ("4: `ct.load` from the tile before, scores hidden", "a TMA load per tile; mask in each step",
     "hidden"),
)  # fmt: skip


def text(site: Site, link: Link) -> str:
    """A row per way."""
    del link
    found = cited_kernels.table(LIST, site.root)
    rows = []
    for way, brings, case in WAYS:
        facts = found.facts(case)
        stack = f", {facts.stack_bytes} bytes of stack" if facts.stack_bytes else ""
        rows.append([
            way, brings, cell(facts.arch), f"{facts.tma_loads}", f"{facts.async_copies}",
            f"{facts.instructions:,}{stack}",
        ])  # fmt: skip
    head = ["In cuTile", "What brings the rows", "Compiled for", "TMA loads",
            "cp.async (LDGSTS)", "Instructions of the kernel"]  # fmt: skip
    return table(head, rows)
