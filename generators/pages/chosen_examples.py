"""Lists the examples of CUTLASS that show one thing, the shortest first, for questions by topic."""

from __future__ import annotations

from generators.model.site import Site
from generators.pages.learning_paths import example_source
from generators.write.text import cell, code, table
from mla_var3.knowledge.evidence import Link

#: What the path of an example about scaled blocks has in it.
_SCALED = ("blockscale", "block_scale", "nvfp4")
#: Files that only measure or choose among others.
_BESIDE = ("bench", "dispatch")


def scaled(site: Site, link: Link) -> str:
    """Examples of products whose operands have a scale per block of values."""
    found = sorted(
        (example.length, name, example)
        for name, example in site.learning.examples.items()
        if any(part in example.path for part in _SCALED)
        and not any(part in example.path for part in _BESIDE)
    )
    rows = [
        [
            f"[{cell(example.title)}]({link(example_source(name))})",
            code(example.arch),
            f"{example.length:,}",
            cell(example.goal),
        ]
        for _, name, example in found
    ]
    return table(["Example", "Card", "Lines", "What it teaches"], rows, right=["Lines"])
