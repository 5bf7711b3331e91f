"""Runs that nobody made, on a site that has them alone."""

from __future__ import annotations

import itertools
from dataclasses import replace

from generators.model.run import Run
from generators.model.site import Site
from generators.pages import records, results
from mla_var3 import evidence
from mla_var3.devices import all_devices
from tests.factories import device, duration, passed, record

GPU = "nvidia-h200-sxm"
SIZES = {"b": 8, "h": 128, "s": 4, "t": 4096, "dtype": "bf16", "causal": False, "n": None}


def timed(version: str, median: float, run: str = "aaaa", stale: bool = False, **changes) -> Run:
    """A run on a GPU."""
    outcome = passed(total=duration(median))
    fields = {"mode": "event", "target": GPU, "problem": SIZES, "slug": f"x{median:g}", "run": run}
    fields |= changes
    known = fields["target"] in {found.key for found in all_devices()}
    fields.setdefault("device", device(fields["target"]) if known else None)
    made = record(version=version, **{"outcome": outcome, **fields})
    return Run(evidence.address(made), made, stale)


def at(design: str, version: str, s: int, median: float, stale: bool = False, **sizes) -> Run:
    """A run of a design at so many query tokens; other sizes are those of the analysis."""
    problem = {**SIZES, "b": 32, "s": s, **sizes}
    slug = "-".join(f"{name}{size}" for name, size in problem.items()) + f"-{median:g}"
    return timed(version, median, stale=stale, design=design, problem=problem, slug=slug)


def on(site: Site, *runs: Run) -> Site:
    """The site with these runs alone."""
    made = replace(site, runs=runs, earlier=())
    places = {**site.addresses, **records.places(made), **results.places(made)}
    return replace(made, addresses=places)


def rows(text: str, heading: str) -> list[list[str]]:
    """Cells of the first table under a heading."""
    lines = itertools.dropwhile(
        lambda line: not line.startswith("|"), text[text.index(heading) :].splitlines()
    )
    table = list(itertools.takewhile(lambda line: line.startswith("|"), lines))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]
