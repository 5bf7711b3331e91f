"""Lists what came last: versions by their first record, patterns by their date."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

from generators.model.site import Site
from generators.pages.kernels import design_link
from generators.write import devlogs
from generators.write.source import repo_name
from generators.write.text import cell, table
from mla_var3.knowledge.evidence import Link
from mla_var3.knowledge.schema import FrontMatter

#: So many rows are shown.
SHOWN = 40


def text(site: Site, link: Link) -> str:
    """A row per version and pattern, the newest first."""
    found = sorted((*_versions(site, link), *_patterns(site, link)), reverse=True)
    rows = [[day.isoformat(), kind, what] for day, kind, what in found[:SHOWN]]
    return table(["Since", "", "What"], rows)


Row = tuple[dt.date, str, str]


def _versions(site: Site, link: Link) -> Iterator[Row]:
    for versions in site.designs().values():
        devlog = site.catalogue.devlogs.get(versions[0].design_key)
        for version in versions:
            times = [run.record.time.date() for run in site.runs_of(version)]
            times += [run.record.time.date() for run in site.timed_of(version)]
            story = devlog and devlogs.entry(devlog, version.version, site.catalogue, link)
            if times and story:
                name = f"[{version.version}]({link(repo_name(version.path))})"
                yield min(times), "kernel", f"{design_link(version, link)} {name}: {story.verdict}"


def _patterns(site: Site, link: Link) -> Iterator[Row]:
    for document in site.catalogue.patterns:
        meta = document.meta
        if isinstance(meta, FrontMatter):
            yield meta.since, meta.kind, f"[{cell(meta.title)}]({link(document.name)})"
