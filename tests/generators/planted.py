"""A small checkout as the generators see it."""

from __future__ import annotations

from dataclasses import replace

from generators.mla import regimes
from generators.model.run import Run
from generators.model.site import Site
from generators.pages import (
    catalogue,
    devices,
    failed,
    handwritten,
    learning_paths,
    records,
    results,
)
from generators.write.page import Page
from mla_var3 import devices as device_files
from tests.knowledge.trees import Tree

#: Families that need no kernels of the checkout.
SMALL = (catalogue, failed, regimes, devices, records, learning_paths, handwritten)


def small_site(tree: Tree) -> Site:
    """A planted checkout as the generators see it; it has records, but no kernels."""
    found = tree.catalogue()
    runs = tuple(Run(name, item, found.is_stale(item)) for name, item in found.records.items())
    site = Site(tree.root, found, (), runs, device_files.all_devices())
    # Records lead to the pages of where they ran, which are not made here.
    addresses = dict(results.places(site))
    for family in SMALL:
        addresses.update(family.places(site))
    # Knowledge names devlogs and kernels, whose pages other families make.
    addresses["kernels/cutile/mla/flash_mla/devlog.md"] = "index.md"
    return replace(site, addresses=addresses)


def small_pages(site: Site) -> list[Page]:
    """All pages of a planted checkout."""
    return [page for family in SMALL for page in family.pages(site)]
