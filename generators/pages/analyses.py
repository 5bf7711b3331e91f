"""Workloads that have pages of their own: what these add to the pages that all workloads have."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Protocol, cast

from generators.model.site import Site
from generators.write import figures
from generators.write.text import cell
from mla_var3.errors import KnowledgeError
from mla_var3.knowledge.evidence import Link
from mla_var3.runtime.registry import Version

#: Module of each workload that has an analysis.
MODULES = {"mla": "generators.mla.design_choice"}


class Analysis(Protocol):
    """What a module adds; each part may be empty."""

    def home(self, site: Site, link: Link) -> str:
        """A section of the home page: which design to use."""

    def workload(self, site: Site, link: Link) -> str:
        """A section of the workload's page."""

    def design(self, site: Site, versions: list[Version], link: Link) -> str:
        """A section of a design's page."""


def advisors(link: Link) -> Iterator[str]:
    """Links to the pages where a reader asks for sizes."""
    for layer in MODULES:
        title = figures.layer_title(layer)
        with suppress(KnowledgeError):  # A checkout without the workload's text has no such page.
            yield f"[the {cell(title)} advisor]({link(f'knowledge/workloads/{layer}.md')})"


def find(layer: str) -> Analysis | None:
    """The analysis of a workload; None where there is none."""
    if layer not in MODULES:
        return None
    # Imported here, since such a module links to kernels as any other page does.
    return cast(Analysis, importlib.import_module(MODULES[layer]))
