"""Template variables of the agent skills that only MLA has: analysis figures and time ratios."""

from __future__ import annotations

from typing import Any

from generators.mla.regimes import calculator_spec
from generators.model.site import Site
from mla_var3 import devices
from mla_var3.errors import KnowledgeError
from mla_var3.knowledge.evidence import Link, compare, ratio_text
from mla_var3.knowledge.schema import PairEvidence
from mla_var3.runtime import registry
from mla_var3.workloads.mla import regimes


def context(site: Site, link: Link) -> dict[str, Any]:
    """Figures of the analysis, and ratios of measured times."""
    return {
        "figure": regimes.figure,
        "keys": [device.key for device in regimes.usable_devices()],
        "power": regimes.power_us(regimes.ceilings_of(devices.default_for_arch("sm_90").key)),
        "measured": lambda *wanted: _measured(site, link, *wanted),
        "spec": calculator_spec(),
    }


def _measured(site: Site, link: Link, device: str, before: str, after: str, s: int) -> str:
    """The time of one version over that of another in one run, linked to the record.

    Args:
        site: The site.
        link: Address of a file of the checkout.
        device: Key of the device.
        before: Version above the line, as ``flash_mla v2``.
        after: Version below the line.
        s: Query tokens, at 32 sequences, 128 heads and 4096 keys without a mask.

    Raises:
        KnowledgeError: No record has such a time, or the two are of two runs.
    """
    wanted = {"b": 32, "h": 128, "s": s, "t": 4096, "causal": False}
    names = []
    for key in (before, after):
        design, version = key.split()
        found = [
            run.name
            for run in site.runs_of(registry.find(design, version))
            if run.is_timed
            and (run.record.target, run.record.mode) == (device, "event")
            and all(run.record.problem.get(name) == value for name, value in wanted.items())
        ]
        if len(found) != 1:
            raise KnowledgeError(f"{len(found)} records of {key} time s={s} on {device}, not one")
        names += found
    pair = PairEvidence(before=names[0], after=names[1], metric=("total_us",))
    (compared,) = compare(pair, site.catalogue)
    stale = any(site.catalogue.is_stale(site.catalogue.record(name)) for name in names)
    return f"[{ratio_text(compared.ratio)}]({link(names[1])})" + (" (stale)" if stale else "")
