"""Supplies MLA's variables for the templates of agent skills: figures of the regime analysis."""

from __future__ import annotations

from typing import Any

from generators.mla.regimes import calculator_spec
from generators.model.site import Site
from mla_var3 import devices
from mla_var3.knowledge.evidence import Link
from mla_var3.workloads.mla import regimes


def context(site: Site, link: Link) -> dict[str, Any]:
    """Figures of the analysis."""
    return {
        "figure": regimes.figure,
        "keys": [device.key for device in regimes.usable_devices()],
        "power": regimes.power_us(regimes.ceilings_of(devices.default_for_arch("sm_90").key)),
        "spec": calculator_spec(),
    }
