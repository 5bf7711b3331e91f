"""Says on a pattern's page which versions use or show it, and else what its evidence is from."""

from __future__ import annotations

from collections.abc import Mapping

from generators.model.site import Site
from generators.write.source import repo_name
from generators.write.text import cell
from mla_var3.knowledge.evidence import Link
from mla_var3.knowledge.schema import (
    CompiledEvidence,
    ExternalEvidence,
    FrontMatter,
    ObservationEvidence,
    SeededEvidence,
    TestedEvidence,
)

BASIS_MEANING = {
    "source-semantics": "follows from what the source says, whatever runs it",
    "measured": "timed on a GPU",
    "static": "seen in what the compiler made",
    "external": "published by others",
    "single-observation": "seen once: treat it as a hint",
}


def section(site: Site, meta: FrontMatter, link: Link) -> str:
    """Versions that use or show a pattern; where none does, what its evidence is from.

    Args:
        site: All inputs.
        meta: The pattern.
        link: Addresses as seen from its page.
    """
    verb = "Left out or undone by" if meta.kind == "optimization" else "Shown by"
    lines = []
    for text, keys in (("Used by", meta.used_by), (verb, meta.violated_by)):
        if keys:
            found = ", ".join(_version(site, key, link) for key in keys)
            lines.append(f"- {text} {found}")
    return "\n".join(lines) or _unused(site, meta, link)


#: What evidence that names no version is of.
_SHOWS: Mapping[type, str] = {
    CompiledEvidence: "kernels compiled to show it",
    SeededEvidence: "bugs planted on purpose",
    TestedEvidence: "a test that runs with every change",
    ExternalEvidence: "what others published",
    ObservationEvidence: "a measurement from before records were kept",
}


def _unused(site: Site, meta: FrontMatter, link: Link) -> str:
    """That no version has it, and what shows it instead."""
    verb = "using it" if meta.kind == "optimization" else "having this fault"
    names = [
        name
        for item in meta.evidence
        for field in ("record", "before", "after")
        if (name := getattr(item, field, None))
    ]
    kernels = [site.catalogue.record(name).kernel for name in names]
    of = dict.fromkeys(
        _version(site, f"{kernel.design}@{kernel.language} {kernel.version}", link)
        for kernel in kernels
    )
    shown = [f"records of {', '.join(of)}"] if of else []
    shown += dict.fromkeys(_SHOWS[type(item)] for item in meta.evidence if type(item) in _SHOWS)
    rests = ", ".join(shown) or f"{meta.basis}: {BASIS_MEANING[meta.basis]}"
    return f"No kernel version is listed as {verb}. The evidence above: {rests}."


def _version(site: Site, key: str, link: Link) -> str:
    found = site.catalogue.version(key)
    for version in site.versions:
        if found is not None and found == site.catalogue.version(version.key):
            return f"[{cell(key)}]({link(repo_name(version.path))})"
    return f"{cell(key)} (no such version any more)"
