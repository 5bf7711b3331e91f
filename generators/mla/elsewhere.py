"""Says which decode kernels there are for cards without times here: by their compiles."""

from __future__ import annotations

from collections.abc import Iterable

from generators.mla.same_work import time_of
from generators.model import compare, fits
from generators.model.choice import alike
from generators.model.columns import language_title
from generators.model.run import Run
from generators.model.site import Site
from generators.pages.kernels import design_link, run_version
from generators.write.figures import record_link
from generators.write.text import cell, table
from mla_var3.evidence.model import STATIC
from mla_var3.knowledge.evidence import Link
from mla_var3.runtime.registry import Version
from mla_var3.workloads.mla import WORKLOAD

#: Chips that are asked for, and a card of each.
CHIPS = {"sm_100": "B200", "sm_120": "RTX 5090"}


def text(site: Site, link: Link) -> str:
    """A row per design of latent decode that compiles for one of the chips."""
    suits = alike(site, WORKLOAD.key)
    rows = []
    for versions in sorted(site.designs().values(), key=lambda own: own[0].language):
        known = {chip: _compiled(site, versions, chip) for chip in CHIPS}
        if any(suits(run) for runs in known.values() for run in runs):
            rows.append(
                [
                    design_link(versions[0], link),
                    cell(language_title(versions[0].language)),
                    _dtypes(run for runs in known.values() for run in runs),
                    *(_best(site, runs, chip, link) for chip, runs in known.items()),
                ]
            )
    head = ["Kernel", "Language", "Dtype", *(f"{name} ({chip})" for chip, name in CHIPS.items())]
    return table(head, rows)


def _compiled(site: Site, versions: list[Version], chip: str) -> list[Run]:
    """Records of versions that compile for a chip, a decode of the fewest query tokens each."""
    compiled = fits.of(site, versions, chip).compiled
    found = []
    for version in compiled:
        runs = [
            run
            for run in site.runs_of(version)
            if run.record.target == f"{STATIC}{chip}" and run.outcome
        ]
        found.append(min(runs, key=lambda run: int(run.record.problem.get("s") or 1)))
    return found


def _dtypes(runs: Iterable[Run]) -> str:
    return ", ".join(sorted({str(run.record.problem.get("dtype")) for run in runs}))


def _best(site: Site, runs: list[Run], chip: str, link: Link) -> str:
    """The version that spills least, newest first, with its record, and whether it was timed."""
    if not runs:
        return "none"
    best = min(reversed(runs), key=lambda run: compare.worst(run, "spill_instructions") or 0)
    spills = compare.worst(best, "spill_instructions") or 0
    said = f"{spills:,.0f} spill instructions" if spills else "no spills"
    version, cards = site.version_of(best), {d.key for d in site.devices if d.sm == chip}
    runs = site.timed_of(version) if version else []
    timed = min((run for run in runs if run.record.target in cards), key=_time, default=None)
    told = time_of(timed, link) if timed else "not timed"
    return f"{run_version(site, best, link)}: {record_link(best, link, said)}; {told}"


def _time(run: Run) -> float:
    return run.total.median_us
