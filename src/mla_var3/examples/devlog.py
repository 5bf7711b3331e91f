"""Writes the devlog text of a design imported from a CUTLASS example, from the example's facts."""

from __future__ import annotations

from mla_var3.examples.catalog import Entry
from mla_var3.examples.model import PATTERN_TITLES, Example


def text(design: str, entry: Entry, example: Example) -> str:
    """A devlog with overview, source, performance, patterns extracted and insights.

    Args:
        design: Name of the design.
        entry: The example.
        example: Its facts.
    """
    goal = (example.goal or example.title).rstrip(".")
    parts = (
        f"---\ntitle: {design}\n---",
        f"{goal}: NVIDIA's kernel, driven in place by a plan of ours, so that it is a row of "
        "every table. Nothing of it is copied: `nox -s examples -- fetch` brings the source.",
        f"Source: [{entry.path}]({example.address()}), {example.length} lines, for "
        f"{example.arch}; `nox -s examples -- show {entry.name}` prints the annotated reading.",
        "{{ evidence }}",
        "### v0: the example as it is",
        "#### What changed",
        "First version. Inputs, reference and cost are the workload's, the tilings the "
        "example's own options.",
        "Patterns extracted from the source, with their lines there:",
        _patterns(example),
        "#### Why",
        "A kernel that NVIDIA publishes to teach is the first thing to stand beside ours: the "
        "same problem, the same tables.",
        "#### Predicted",
        "It compiles as the example does by itself, to the registers, shared memory and "
        f"instruction mix that `nox -s examples -- show {entry.name}` prints, where tile and "
        "element types are those that the example defaults to.",
        "#### Falsified by",
        "Other registers, other shared memory or another instruction mix in the static record "
        "than in the example's facts, at the same tile.",
        "#### Measured",
        "{{ measured }}",
        "#### Insights",
        "- What the plan needs of the example is its host class, its tile and its argument "
        "layouts; all views are made by torch, without a copy.",
        "#### Next",
        "Clone it, change one thing, and compare.",
    )
    return "\n\n".join(parts) + "\n"


def _patterns(example: Example) -> str:
    return "\n".join(
        f"- {PATTERN_TITLES[found.pattern]}: "
        + ", ".join(f"[line {line}]({example.address(line)})" for line in found.lines[:3])
        for found in example.checklist
        if found.lines
    )
