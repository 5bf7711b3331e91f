"""Tables of a reference: which instruction an operation becomes, from compiles that are kept."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from generators.write.text import cell, table
from mla_var3.evidence.facts import StaticFacts
from mla_var3.knowledge import cited_kernels
from mla_var3.knowledge.evidence import Link

#: What multiplies and adds where no tensor core does.
_ON_CUDA_CORES = ("FFMA", "FMUL", "FMUL2", "FADD", "DFMA", "DMUL", "DADD")


def of_list(name: str, root: Path, link: Link) -> str:
    """A row per problem of a list of compiles, a column per target.

    Args:
        name: The list, below ``knowledge/compiles``.
        root: Top of the checkout.
        link: Links from the page.

    Raises:
        KnowledgeError: The list was not compiled.
        UnknownNameError: There is no such list.
    """
    listed, found = cited_kernels.listed(name, root), cited_kernels.table(name, root)
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for key, case in listed.cases.items():
        facts = found.facts(key)
        row = tuple(str(value) for value in case.problem.values())
        rows.setdefault(row, {})[facts.arch] = instructions(facts)
    archs = list(dict.fromkeys(arch for row in rows.values() for arch in row))
    fields = next(iter(listed.cases.values())).problem
    head = [*(cell(field.capitalize()) for field in fields), *map(cell, archs)]
    body = [
        [*map(cell, row), *(cell(seen.get(arch, "")) for arch in archs)]
        for row, seen in rows.items()
    ]
    tools = _tools(seen.facts for seen in found.compiles)
    source = link(f"{cited_kernels.LISTS}/{name}.toml")
    facts_at = link(f"{cited_kernels.TABLES}/{name}.json")
    said = (
        f"{cell(listed.title)}, compiled by {cell(tools)} ([cases]({source}), [facts]({facts_at}))"
    )
    return f"{said}:\n\n{table(head, body)}"


def instructions(facts: StaticFacts) -> str:
    """The instructions that multiply: the tensor cores', or what stands in their place."""
    if facts.error is not None:
        return facts.error
    named = ", ".join(facts.mma_instructions or ())
    if named:
        return named
    used = [name for name in _ON_CUDA_CORES if name in facts.instruction_mix]
    spilled = f", {facts.stack_bytes} bytes of stack" if facts.stack_bytes else ""
    return f"no tensor core: {' and '.join(used) or facts.mma_path}{spilled}"


def _tools(facts: Iterable[StaticFacts]) -> str:
    """The front end and the compiler; the facts name the other tools too."""
    pairs = dict(pair for found in facts for pair in list(found.toolchain.items())[:2])
    return " and ".join(f"{name} {version}" for name, version in pairs.items() if version)
