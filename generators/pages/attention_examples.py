"""Lists CUTLASS's Python examples of attention, by the chip that each is written for."""

from __future__ import annotations

from generators.model.site import Site
from generators.pages.learning_paths import example_source
from generators.write.text import cell, code, table
from mla_var3.examples.model import Example
from mla_var3.knowledge.evidence import Link

#: Chips as people call them.
CHIPS = {"sm_80": "Ampere", "sm_90": "Hopper", "sm_100": "Blackwell (B200)"}
#: A state-space layer among them, which is no attention.
OTHER = "mamba2"


def text(site: Site, link: Link) -> str:
    """A row per example with a kernel, helpers left out."""
    found = [
        (key, example)
        for key, example in site.learning.examples.items()
        if "/attention" in example.category and example.kernels and OTHER not in key
    ]
    found.sort(key=lambda item: (int(item[1].arch.removeprefix("sm_") or 0), item[1].path))
    rows = [_row(key, example, link) for key, example in found]
    return table(["For", "Example", "File below `examples/python/CuTeDSL`", "Lines"], rows)


def _row(key: str, example: Example, link: Link) -> list[str]:
    short = example.path.partition("/CuTeDSL/")[2] or example.path
    return [
        f"{CHIPS.get(example.arch, example.arch)}, {example.arch}",
        f"[{cell(example.title)}]({link(example_source(key))})",
        f"[{code(short)}]({example.address()})",
        f"{example.length:,}",
    ]
