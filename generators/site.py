"""Everything the pages are made of, read once, and the families of pages in their order."""

from __future__ import annotations

import functools
import os
import posixpath
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import Protocol

from generators import (
    catalogue,
    conformance,
    devices,
    diagnosis,
    glossary,
    handwritten,
    home,
    kernels,
    learn,
    learning,
    machine,
    mla_regimes,
    problems,
    records,
    reference,
    results,
    verdicts,
    version_pages,
)
from generators.page import Page, unique
from mla_var3 import devices as device_files
from mla_var3 import knowledge, paths
from mla_var3.errors import HyperMlaError, KnowledgeError
from mla_var3.evidence import Duration, Passed, Record
from mla_var3.examples.learning import Learning
from mla_var3.examples.learning import load as read_learning
from mla_var3.knowledge.evidence import Link
from mla_var3.knowledge.pages import Catalogue
from mla_var3.runtime import registry
from mla_var3.runtime.registry import Version


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
    learn,
    kernels,
    version_pages,
    diagnosis,
    catalogue,
    mla_regimes,
    devices,
    results,
    records,
    conformance,
    learning,
    glossary,
    reference,
    handwritten,
    machine,
)

#: Families that take as long as all others together, about alike.
LONGEST: tuple[Family, ...] = (version_pages, kernels)


@dataclass(frozen=True)
class Run:
    """A record and where it lies.

    Attributes:
        name: Path of the record from the top of the checkout.
        record: The record.
        stale: Whether the version's sources changed since it was made.
    """

    name: str
    record: Record
    stale: bool

    @property
    def outcome(self) -> Passed | None:
        """What a run that ended found; None for one that failed or was skipped."""
        return self.record.outcome if isinstance(self.record.outcome, Passed) else None

    @property
    def is_timed(self) -> bool:
        """Whether it states a time for the whole."""
        return self.outcome is not None and self.outcome.total is not None

    @property
    def total(self) -> Duration:
        """Time of the whole; only a run that is timed has one."""
        assert self.outcome is not None
        assert self.outcome.total is not None
        return self.outcome.total


@dataclass(frozen=True)
class Site:
    """What generators read.

    Attributes:
        root: Top of the checkout.
        catalogue: Knowledge, devlogs and access to records.
        versions: All kernel versions, by language, workload, design and number.
        runs: All records, by path, numbers in it by value.
        devices: All device files, by key.
        addresses: Page of each file of the checkout that has one; see ``Family.places``.
        copied: Files without a page that pages link to; they are published as they are.
    """

    root: Path
    catalogue: Catalogue
    versions: tuple[Version, ...]
    runs: tuple[Run, ...]
    devices: tuple[device_files.Device, ...]
    addresses: Mapping[str, str] = field(default_factory=dict)
    copied: set[str] = field(default_factory=set)

    @cached_property
    def companions(self) -> dict[tuple[object, ...], list[Run]]:
        """The timed runs of each run and problem: those whose times compare."""
        found: dict[tuple[object, ...], list[Run]] = {}
        for run in self.runs:
            if run.is_timed and run.record.run is not None:
                found.setdefault(verdicts.together(run), []).append(run)
        return found

    @cached_property
    def learning(self) -> Learning:
        """Learning paths and examples."""
        return read_learning(self.root)

    @cached_property
    def terms(self) -> list[glossary.Term]:
        """The terms of the glossary, by name."""
        return glossary.load(self.root)

    def designs(self) -> dict[str, list[Version]]:
        """Versions of each design in order, by the key that users type."""
        grouped: dict[str, list[Version]] = {}
        for version in self.versions:
            grouped.setdefault(version.design_key, []).append(version)
        return grouped

    def layers(self) -> dict[str, list[list[Version]]]:
        """The designs of each workload that has any, by its key; most designs first."""
        grouped: dict[str, list[list[Version]]] = {}
        for versions in self.designs().values():
            grouped.setdefault(versions[0].layer, []).append(versions)
        # The workload with most designs comes first: it is what the project is about.
        return dict(sorted(grouped.items(), key=lambda item: (-len(item[1]), item[0])))

    def runs_of(self, version: Version) -> list[Run]:
        """Records of a version."""
        return self._runs.get((version.language, version.design, version.version), [])

    @functools.cached_property
    def _runs(self) -> dict[tuple[str, str, str], list[Run]]:
        grouped: dict[tuple[str, str, str], list[Run]] = {}
        for run in self.runs:
            kernel = run.record.kernel
            grouped.setdefault((kernel.language, kernel.design, kernel.version), []).append(run)
        return grouped

    @functools.cached_property
    def open_axes(self) -> dict[tuple[str, str], list[str]]:
        """Axes that each design sets for itself; see ``problems.open_axes``."""
        return problems.open_axes(self.runs)

    def problem_text(self, run: Run) -> str:
        """The problem of a run, with what its design set for itself."""
        own = problems.own_sizes(run, self.open_axes)
        return f"{problems.problem_of(run.record)} {own}".strip()

    def version_of(self, run: Run) -> Version | None:
        """The version of a run, where it still exists."""
        kernel = run.record.kernel
        wanted = (kernel.language, kernel.design, kernel.version)
        return next((v for v in self.versions if (v.language, v.design, v.version) == wanted), None)

    def link(self, page: str) -> Link:
        """How ``page`` addresses files of the checkout.

        Args:
            page: Path of the page that holds the links.

        Returns:
            A function from a path from the top of the checkout, maybe with ``#anchor``, to the
            relative address of the page or copy that shows it.
        """
        return lambda target: relative(page, self._address(target))

    def _address(self, target: str) -> str:
        path, mark, anchor = target.partition("#")
        if target in self.addresses:
            return self.addresses[target]
        if path.rstrip("/") in self.addresses:
            return self.addresses[path.rstrip("/")].partition("#")[0] + mark + anchor
        hidden = any(part.startswith(".") for part in path.split("/"))
        if hidden or not (self.root / path).is_file() or not _inside(self.root / path, self.root):
            raise KnowledgeError(f"a page links to {path}, which is not a file of the checkout")
        self.copied.add(path)
        return f"files/{path}.txt"


#: Folders and files that become pages, or parts of pages.
PUBLISHED = (
    "docs", "examples", "generators", "kernels", "knowledge", "results", "src",
    "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "mkdocs.yml", "noxfile.py",
)  # fmt: skip


def _inside(path: Path, root: Path) -> bool:
    return path.resolve().is_relative_to(root.resolve())


def refuse_links_out(root: Path) -> None:
    """Raise KnowledgeError for something published that is a link out of the checkout."""
    for top in PUBLISHED:
        for path in (root / top, *_below(root / top)):
            if path.is_symlink() and not _inside(path, root):
                name = path.relative_to(root)
                raise KnowledgeError(f"{name} is a link that leads out of the checkout")


def _below(top: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(top):
        yield from (Path(folder, name) for name in (*folders, *files))


def relative(page: str, target: str) -> str:
    """Address of ``target`` as seen from ``page``, both below the docs root."""
    path, mark, anchor = target.partition("#")
    return posixpath.relpath(path, posixpath.dirname(page) or ".") + mark + anchor


def load(root: Path | None = None) -> Site:
    """Read sources, knowledge, records and devices.

    Args:
        root: Top of the checkout; this one's by default.

    Raises:
        KnowledgeError: There is no knowledge folder.
        RecordError: A record is not sound.
        DeviceFigureError: A device file is not sound.
    """
    # `mkdocs serve` loads again in the same process after a file changed.
    registry.clear_caches()
    device_files.model.all_devices.cache_clear()
    catalogue = knowledge.load_all(root)
    refuse_links_out(catalogue.root)
    names = (paths.relative(path, catalogue.root) for path in catalogue.record_files())
    records = {name: catalogue.record(name) for name in names}
    site = Site(
        catalogue.root,
        catalogue,
        registry.versions(),
        tuple(Run(name, item, catalogue.is_stale(item)) for name, item in records.items()),
        device_files.all_devices(),
    )
    addresses: dict[str, str] = {}
    for family in FAMILIES:
        addresses.update(family.places(site))
    return replace(site, addresses=addresses)


def all_pages(site: Site, workers: int = 1) -> list[Page]:
    """Every page, record and copied file.

    Args:
        site: What generators read.
        workers: Processes that share the families; only a program of one thread may ask for
            several, since they are forked.

    Raises:
        HyperMlaError: A page cannot be made; the message says why.
    """
    made = _shared_out(site, workers) if workers > 1 else [f.pages(site) for f in FAMILIES]
    pages = [page for found in made for page in found]
    for page in pages:
        if isinstance(page.content, str) and page.path.endswith(".md") and not page.nav:
            raise KnowledgeError(f"{page.path} has no place in the navigation")
    pages += machine.digests(pages)
    pages += [Page(records.raw(run.name), site.root / run.name) for run in site.runs]
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
        with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
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
