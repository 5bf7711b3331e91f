"""Renders an annotated CUTLASS example as Markdown, for the terminal and the site's pages."""

from __future__ import annotations

from mla_var3.examples.model import PATTERN_TITLES, CompiledKernel, Example
from mla_var3.languages.cute.facts import CuteFacts

_FIGURES = (
    ("registers", "registers per thread"), ("spill_loads", "LDL"), ("spill_stores", "STL"),
    ("shared_bytes", "bytes of shared memory per block"), ("threads_per_block", "threads"),
    ("blocks_per_cluster", "blocks per cluster"), ("wgmma", "wgmma"), ("wgmma_waits", "waits"),
    ("tcgen05_mma", "tcgen05 multiplications"), ("warp_mma", "warp-level multiplications"),
    ("tma_loads", "TMA loads"), ("tma_multicast", "of them multicast"),
    ("tma_stores", "TMA stores"), ("async_copies", "cp.async"), ("mbarriers", "mbarriers"),
    ("pipeline_stages", "pipeline stages"),
)  # fmt: skip


def reading(name: str, example: Example) -> str:
    """What to know before and while one reads an example.

    Args:
        name: Its id.
        example: Its facts and words.
    """
    parts = [
        f"# {example.title}",
        f"`{name}` · {example.category} · {example.arch} · {example.length} lines · "
        f"<{example.address()}>",
    ]
    if example.goal:
        parts.append(f"**Goal.** {example.goal}")
    if example.kernels:
        parts.append("Device functions: " + ", ".join(f"`{each}`" for each in example.kernels))
    parts += ["## What to look for", *map(_entry, _rows(example))]
    if not example.checklist:
        parts.append("Nothing of the checklist was found.")
    parts += ["## What the compiler makes of it", *_compiled(example)]
    if example.annotations:
        notes = [f"- [line {note.line}] {note.text}" for note in example.annotations]
        parts += ["## Notes", "\n".join(notes)]
    return "\n\n".join(parts) + "\n"


def _rows(example: Example) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(PATTERN_TITLES[each.pattern], each.seen, each.lines) for each in example.checklist]


def _entry(row: tuple[str, str, tuple[int, ...]]) -> str:
    title, seen, lines = row
    where = f" Lines {', '.join(map(str, lines))}." if lines else ""
    return f"- **{title}**: {seen}.{where}"


def _compiled(example: Example) -> list[str]:
    compiled = example.compiled
    if compiled is None or not compiled.kernels:
        return compiled_lines(example)
    return [f"{how(example)}:", "\n".join(f"- {line}" for line in compiled_lines(example))]


def how(example: Example) -> str:
    """For what and with which arguments an example was compiled; empty where it was not."""
    compiled = example.compiled
    if compiled is None or not compiled.kernels:
        return ""
    return (
        f"Compiled for {example.arch} by {compiled.toolchain} with the example's default arguments"
    )


def compiled_lines(example: Example) -> list[str]:
    """What compiling an example gave: a line per device function, or why there is none."""
    compiled = example.compiled
    if compiled is None:
        return ["It was not compiled yet; `nox -s examples -- index` does."]
    if not compiled.kernels:
        return [f"Not compiled ({compiled.toolchain}): {compiled.reason}."]
    return [f"`{each.kernel}`: {_all_figures(each)}" for each in compiled.kernels]


def _all_figures(kernel: CompiledKernel) -> str:
    budgets = f"setmaxnreg {', '.join(kernel.register_budgets)}" if kernel.register_budgets else ""
    return ", ".join(filter(None, [figures(kernel), budgets, kernel.occupancy]))


def figures(kernel: CompiledKernel | CuteFacts) -> str:
    """A kernel's figures that are not zero, in words."""
    told = (f"{value} {words}" for name, words in _FIGURES if (value := getattr(kernel, name)))
    return ", ".join(told)
