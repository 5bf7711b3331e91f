"""``Site``: what all page generators read, and how a page addresses files of the checkout.

Holds kernel versions, records, device files and the knowledge catalogue, which ``families.load``
reads once per build. Learning paths and glossary terms are read at first use.
"""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from generators.model import problems, terms
from generators.model.run import Run
from generators.model.terms import Term
from mla_var3 import devices as device_files
from mla_var3.errors import KnowledgeError
from mla_var3.evidence import KernelIdentity
from mla_var3.examples.learning import Learning
from mla_var3.examples.learning import load as read_learning
from mla_var3.knowledge.evidence import Link
from mla_var3.knowledge.pages import Catalogue
from mla_var3.runtime.registry import Version

T = TypeVar("T")


class Analysis(Protocol):
    """What a workload with pages of its own adds to the pages that all workloads have.

    Attributes:
        SYMBOLS: What names of sizes stand for.
        FIGURES: Pictures that texts and terms name.
        SENTENCES: What texts and terms take from records, by name.
    """

    SYMBOLS: str
    FIGURES: Mapping[str, Callable[[Site], str]]
    SENTENCES: Mapping[str, Callable[[Site, Link], str]]

    def home(self, site: Site, link: Link) -> str:
        """A section of the home page: which design to use."""

    def guides(self, site: Site, link: Link) -> list[str]:
        """Links to pages that choose for a reader."""

    def workload(self, site: Site, link: Link) -> str:
        """A section of the workload's page."""

    def design(self, site: Site, versions: list[Version], link: Link) -> str:
        """A section of a design's page; empty where there is none."""

    def calls(self, versions: list[Version], link: Link) -> str:
        """Sentences of a design's page: what tensors are called, and what launches it."""

    def results(self, link: Link) -> str:
        """A sentence of the page of results."""

    def languages(self, link: Link) -> str:
        """A sentence of a design's page: where its languages are compared."""

    def skill_context(self, site: Site, link: Link) -> dict[str, Any]:
        """Names that templates of skills may use."""


@dataclass(frozen=True)
class Site:
    """All inputs of the pages, read once.

    Attributes:
        root: Top of the checkout.
        catalogue: Knowledge, devlogs and access to records.
        versions: All kernel versions, by language, workload, design and number.
        runs: The newest record of each address, numbers in it by value.
        earlier: Timed records that were measured again since; they are compared, not listed.
        devices: All device files, by key.
        addresses: Page of each file of the checkout that has one; see ``Family.places``.
        copied: Files without a page that pages link to; they are published as they are.
        analyses: Workloads with pages of their own, by key.
    """

    root: Path
    catalogue: Catalogue
    versions: tuple[Version, ...]
    runs: tuple[Run, ...]
    devices: tuple[device_files.Device, ...]
    addresses: Mapping[str, str] = field(default_factory=dict)
    copied: set[str] = field(default_factory=set)
    earlier: tuple[Run, ...] = ()
    analyses: Mapping[str, Analysis] = field(default_factory=dict)

    def once(self, make: Callable[[Site], T]) -> T:
        """What a function makes of the site, made once."""
        if make not in self._made:
            self._made[make] = make(self)
        return cast(T, self._made[make])

    @cached_property
    def _made(self) -> dict[Callable[[Site], Any], Any]:
        return {}

    @cached_property
    def cards(self) -> Mapping[str, device_files.Device]:
        """Device files of each key."""
        return {device.key: device for device in self.devices}

    @cached_property
    def companions(self) -> dict[tuple[object, ...], list[Run]]:
        """The timed runs of each run and problem: those whose times compare."""
        found: dict[tuple[object, ...], list[Run]] = {}
        for run in (*self.runs, *self.earlier):
            if run.is_timed and run.record.run is not None:
                found.setdefault(problems.together(run), []).append(run)
        return found

    @cached_property
    def contests(self) -> dict[tuple[object, ...], list[list[Run]]]:
        """The same by device, mode and problem: a list of runs per run that timed any there."""
        found: dict[tuple[object, ...], list[list[Run]]] = {}
        for (_, *where), runs in self.companions.items():
            found.setdefault(tuple(where), []).append(runs)
        return found

    @cached_property
    def timed_at(self) -> dict[tuple[object, ...], list[Run]]:
        """The newest time of each version by device, mode and problem."""
        found: dict[tuple[object, ...], list[Run]] = {}
        for run in self.runs:
            if run.is_timed:
                found.setdefault(problems.together(run)[1:], []).append(run)
        return found

    @cached_property
    def learning(self) -> Learning:
        """Learning paths and examples."""
        return read_learning(self.root)

    @cached_property
    def terms(self) -> list[Term]:
        """The terms of the glossary, by name."""
        return terms.load(self.root)

    @cached_property
    def before(self) -> dict[str, list[Run]]:
        """The timed records of named runs that were measured again since, by name, newest first."""
        found: dict[str, dict[str, Run]] = {}
        for run in sorted(self.earlier, key=lambda run: run.record.time, reverse=True):
            if run.record.run is not None:
                found.setdefault(run.name, {}).setdefault(run.record.run, run)
        return {name: list(runs.values()) for name, runs in found.items()}

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

    def timed_of(self, version: Version) -> list[Run]:
        """Timed records of a version, those that were measured again among them."""
        wanted = version.language, version.design, version.version
        found = [*self.runs_of(version), *self._earlier.get(wanted, [])]
        return [run for run in found if run.is_timed]

    def runs_of(self, version: Version) -> list[Run]:
        """Records of a version."""
        return self._runs.get((version.language, version.design, version.version), [])

    @functools.cached_property
    def _runs(self) -> dict[tuple[str, str, str], list[Run]]:
        return _by_version(self.runs)

    @functools.cached_property
    def _earlier(self) -> dict[tuple[str, str, str], list[Run]]:
        return _by_version(self.earlier)

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
        return self.version_named(run.record.kernel)

    def version_named(self, kernel: KernelIdentity) -> Version | None:
        """The version that a record names, where it still exists."""
        return self._versions.get((kernel.language, kernel.design, kernel.version))

    @functools.cached_property
    def _versions(self) -> dict[tuple[str, str, str], Version]:
        return {(v.language, v.design, v.version): v for v in self.versions}

    def link(self, page: str) -> Link:
        """How ``page`` addresses files of the checkout.

        Args:
            page: Path of the page that holds the links.

        Returns:
            A function from a path from the top of the checkout, maybe with ``?query`` and
            ``#anchor``, to the relative address of the page or copy that shows it.
        """
        return lambda target: relative(page, self._address(target))

    def _address(self, target: str) -> str:
        if target in self.addresses:
            return self.addresses[target]
        path, mark, anchor = target.partition("#")
        path, asks, query = path.partition("?")  # The advisor's page takes sizes by it.
        if path.rstrip("/") in self.addresses:
            page = self.addresses[path.rstrip("/")].partition("#")[0]
            return page + asks + query + mark + anchor
        hidden = any(part.startswith(".") for part in path.split("/"))
        if hidden or not (self.root / path).is_file() or not is_inside(self.root / path, self.root):
            raise KnowledgeError(f"a page links to {path}, which is not a file of the checkout")
        self.copied.add(path)
        return f"files/{path}.txt"


def relative(page: str, target: str) -> str:
    """Address of ``target`` as seen from ``page``, both below the docs root."""
    path, mark, anchor = target.partition("#")
    return posixpath.relpath(path, posixpath.dirname(page) or ".") + mark + anchor


def is_inside(path: Path, root: Path) -> bool:
    """Whether a path, links followed, lies below ``root``."""
    return path.resolve().is_relative_to(root.resolve())


def _by_version(runs: Iterable[Run]) -> dict[tuple[str, str, str], list[Run]]:
    grouped: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        kernel = run.record.kernel
        grouped.setdefault((kernel.language, kernel.design, kernel.version), []).append(run)
    return grouped
