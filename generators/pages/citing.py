"""Writes how to cite the project, from what its citation file says."""

from __future__ import annotations

import yaml

from generators.model.site import Site
from generators.write.text import fence
from mla_var3.knowledge.evidence import Link

_FILE = "CITATION.cff"


def bibtex(site: Site, _link: Link) -> str:
    """The entry of a bibliography."""
    said = yaml.safe_load((site.root / _FILE).read_text(encoding="utf-8"))
    authors = " and ".join(f"{{{author['name']}}}" for author in said["authors"])
    fields = {
        "title": f"{{{said['title']}}}",
        "author": authors,
        "version": said["version"],
        "date": said["date-released"],
        "url": said["repository-code"],
    }
    lines = [f"  {name:<7} = {{{value}}}," for name, value in fields.items()]
    return fence("\n".join(["@software{hypermla,", *lines, "}"]), "bibtex")
