"""Lists the families of pages in the site's order, loads ``Site``, and makes all pages."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from generators.mla import analysis as mla_analysis
from generators.mla import regimes
from generators.model.run import Run
from generators.model.site import Analysis, Site, is_inside
from generators.pages import (
    api,
    beside,
    campaigns,
    catalogue,
    devices,
    diagnosis,
    failed,
    findings,
    glossary,
    handwritten,
    home,
    hopper,
    kernels,
    learning_paths,
    lessons,
    machine,
    records,
    reference,
    results,
    seeded_bugs,
    stories,
    suites,
    version_pages,
)
from generators.write.page import Page, unique
from mla_var3 import blobs, evidence, knowledge
from mla_var3 import devices as device_files
from mla_var3.errors import HyperMlaError, KnowledgeError
from mla_var3.evidence import Record
from mla_var3.forked import FORKS, end_with_parent
from mla_var3.runtime import registry


class Family(Protocol):
    """A module of pages."""

    def places(self, site: Site) -> Mapping[str, str]:
        """Page of each file of the checkout that the family shows, maybe with ``#anchor``.

        Keys are paths from the top of the checkout; with ``#anchor`` for a part of a file.
        """

    def pages(self, site: Site) -> list[Page]:
        """The family's pages, in the order of the navigation."""


#: A new family is a module with ``places`` and ``pages``; its place here is that in the navigation.
FAMILIES: tuple[Family, ...] = (
    home,
    stories,
    lessons,
    hopper,
    kernels,
    failed,
    version_pages,
    diagnosis,
    catalogue,
    regimes,
    devices,
    results,
    records,
    beside,
    suites,
    seeded_bugs,
    findings,
    campaigns,
    learning_paths,
    glossary,
    reference,
    api,
    handwritten,
    machine,
)

#: Workloads with pages of their own, by key.
ANALYSES: Mapping[str, Analysis] = {"mla": mla_analysis}

#: Families that take as long as all others together, about alike.
LONGEST: tuple[Family, ...] = (version_pages, kernels)


#: Folders and files that become pages, or parts of pages.
PUBLISHED = (
    "campaigns", "docs", "examples", "generators", "kernels", "knowledge", "results", "src",
    "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "mkdocs.yml", "noxfile.py",
)  # fmt: skip


def refuse_links_out(root: Path) -> None:
    """Raise KnowledgeError for something published that is a link out of the checkout."""
    for top in PUBLISHED:
        for path in (root / top, *_below(root / top)):
            if path.is_symlink() and not is_inside(path, root):
                name = path.relative_to(root)
                raise KnowledgeError(f"{name} is a link that leads out of the checkout")


def _below(top: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(top):
        yield from (Path(folder, name) for name in (*folders, *files))


def load(root: Path | None = None) -> Site:
    """Read sources, knowledge, records and devices.

    Args:
        root: Top of the checkout; this one's by default.

    Raises:
        KnowledgeError: There is no knowledge folder.
        RecordError: A record is not sound.
        DeviceFigureError: A device file is not sound.
    """
    with blobs.unchanging():
        return _loaded(root)


def _loaded(root: Path | None) -> Site:
    # `mkdocs serve` loads again in the same process after a file changed.
    registry.clear_caches()
    device_files.model.all_devices.cache_clear()
    catalogue = knowledge.load_all(root, is_stale=_once_each(evidence.is_stale))
    refuse_links_out(catalogue.root)
    for path in catalogue.record_files():
        evidence.read(path)  # The index passes over what is not sound; a site does not.
    runs = (Run(name, item, catalogue.is_stale(item)) for name, item in catalogue.records.items())
    standing = {id(record) for record in catalogue.records.values()}
    earlier = (
        Run(evidence.address(item), item, catalogue.is_stale(item))
        for item in catalogue.index.records
        if item.is_timed and id(item) not in standing
    )
    site = Site(
        catalogue.root,
        catalogue,
        registry.versions(),
        tuple(runs),
        device_files.all_devices(),
        analyses=ANALYSES,
        earlier=tuple(earlier),
    )
    addresses: dict[str, str] = {}
    for family in FAMILIES:
        addresses.update(family.places(site))
    return replace(site, addresses=addresses)


def _once_each(tells: Callable[[Record], bool]) -> Callable[[Record], bool]:
    """A function of records that is asked once of each, while the site lives."""
    known: dict[int, tuple[Record, bool]] = {}  # A record is kept, so that its id stays its own.

    def once(record: Record) -> bool:
        if id(record) not in known:
            known[id(record)] = record, tells(record)
        return known[id(record)][1]

    return once


def all_pages(site: Site, workers: int = 1) -> list[Page]:
    """Every page, record and copied file.

    Args:
        site: What generators read.
        workers: Processes that share the families; only a program of one thread may ask for
            several, since they are forked.

    Raises:
        HyperMlaError: A page cannot be made; the message says why.
    """
    with blobs.unchanging():
        made = _shared_out(site, workers) if workers > 1 else [f.pages(site) for f in FAMILIES]
    pages = [page for found in made for page in found]
    for page in pages:
        words = isinstance(page.content, str) and page.path.endswith(".md")
        if words and page.listed and not page.nav:
            raise KnowledgeError(f"{page.path} has no place in the navigation")
    pages += machine.digests(pages)
    pages += records.contents(site)
    pages += [Page(f"files/{name}.txt", site.root / name) for name in sorted(site.copied)]
    return unique(pages)


# -- families side by side -------------------------------------------------------------------------

#: What forked processes make pages of: they find it in their memory, and need no copy of it.
_forked: list[Site] = []


def _shared_out(site: Site, workers: int) -> list[list[Page]]:
    """The pages of each family, made in so many processes."""
    _forked[:] = [site]
    # What takes longest comes first, so that all processes end at about the same time.
    order = sorted(range(len(FAMILIES)), key=lambda i: FAMILIES[i] not in LONGEST)
    try:
        with ProcessPoolExecutor(workers, mp_context=FORKS, initializer=end_with_parent) as pool:
            found = dict(zip(order, pool.map(_family, order), strict=True))
    finally:
        _forked.clear()
    made = [found[index] for index in sorted(found)]
    for _, copied, error in made:
        if error is not None:
            raise KnowledgeError(error)
        site.copied.update(copied)
    return [pages for pages, *_ in made]


def _family(index: int) -> tuple[list[Page], set[str], str | None]:
    """Pages of a family, the files that they link to, and why it cannot be made."""
    (site,) = _forked
    try:
        return FAMILIES[index].pages(site), site.copied, None
    except HyperMlaError as error:  # Not every class of errors survives the way between processes.
        return [], set(), str(error)
