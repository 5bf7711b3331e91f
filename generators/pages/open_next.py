"""Lists what the newest version of each design names as its next step."""

from __future__ import annotations

import re

from generators.model.site import Site
from generators.pages.kernels import design_link
from generators.write import devlogs
from generators.write.text import table
from mla_var3.knowledge.evidence import Link

#: The section of a devlog's entry that names it.
NEXT = "Next"
#: A figure with its source, which stands at the end of the devlog's page and not of this one.
SOURCED = re.compile(r'\[([^\]]+)\]\(#sources(?: "[^"]*")?\)')


def text(site: Site, link: Link) -> str:
    """A row per design of ours whose newest version names one."""
    rows = []
    for versions in site.designs().values():
        devlog = site.catalogue.devlogs.get(versions[0].design_key)
        newest = versions[-1]
        if devlog is None or newest.language == "library" or newest.design.startswith("cutlass_"):
            continue
        story = devlogs.entry(devlog, newest.version, site.catalogue, link)
        said = story.parts.get(NEXT, "").split("\n\n")[0] if story else ""
        if said:
            rows.append(
                [
                    f"{design_link(newest, link)} {newest.version}",
                    SOURCED.sub(r"\1", " ".join(said.split())),
                ]
            )
    return table(["Design, newest version", "What its devlog names as next"], rows)
