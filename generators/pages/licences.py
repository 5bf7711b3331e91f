"""Says on pages whose code and ideas the kernels are, and under which licenses their packages."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import metadata
from typing import Any

from generators.model.columns import language_title
from generators.model.site import Site
from generators.pages.kernels import design_link
from generators.write.text import cell, code, table
from mla_var3.errors import KnowledgeError
from mla_var3.knowledge.evidence import Link
from mla_var3.paths import repo_root

#: What designs owe to others, and which packages they need.
ORIGINS = "third_party/origins.toml"


@cache
def origins() -> dict[str, Any]:
    """The file as it is."""
    return tomllib.loads((repo_root() / ORIGINS).read_text(encoding="utf-8"))


def designs(site: Site, link: Link) -> str:
    """A row per design: whose idea it names, and whose code runs.

    Raises:
        KnowledgeError: A design has no entry.
    """
    known = origins()["designs"]
    rows = []
    for versions in site.designs().values():
        first = versions[0]
        found = known.get(first.qualified)
        if found is None:
            raise KnowledgeError(f"{ORIGINS}: no entry of {first.qualified}")
        rows.append(
            [
                f"{design_link(first, link)}, {cell(language_title(first.language))}",
                cell(found.get("idea", "none named")),
                cell(found.get("code", "none: written here")),
            ]
        )
    return table(["Design", "Idea from", "Code from"], rows)


def packages(site: Site, link: Link) -> str:
    """A row per package that a kernel needs: what for, and the license that it states."""
    needed = origins()["packages"]
    rows = [[code(name), what, cell(stated(name))] for name, what in needed.items()]
    return table(["Package", "Needed for", "License, as the package states it"], rows)


def stated(name: str) -> str:
    """License in an installed package's metadata, with its version."""
    try:
        found = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return "not installed where these pages were made"
    classified = [
        line.rpartition(" :: ")[2]
        for line in found.get_all("Classifier") or []
        if line.startswith("License ::")
    ]
    [short, *_] = found.get_all("License") or [""]
    [expression, *_] = found.get_all("License-Expression") or [""]
    said = expression or (short if "\n" not in short else "")
    said = said or ", ".join(classified) or "none stated"
    said = said.replace("LicenseRef-NVIDIA-Proprietary", "NVIDIA's own (proprietary)")
    said = said.replace("Other/Proprietary License", "NVIDIA's own (proprietary)")
    return f"{said} ({found['Version']})"
