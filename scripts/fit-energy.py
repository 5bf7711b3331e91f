"""Fits what a FLOP and a DRAM byte cost in joules to the records of a device; prints its figures.

``python scripts/fit-energy.py [DEVICE]`` anywhere, after ``bench --peers`` measured energy there;
the output goes into ``knowledge/devices/<key>.toml``. The figures in use make reference times and
regime maps, the least of each make the bound.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence

from mla_var3 import devices, evidence
from mla_var3.errors import HyperMlaError
from mla_var3.roofline.energy import LEAST_WINDOWS, Fit, Window, fit, windows
from mla_var3.runtime import costs

MODEL = "fit of J = P t + clock^2 a FLOP + c byte"


def figures(
    found: Fit, of: Sequence[Window], device: devices.Device
) -> Iterator[dict[str, object]]:
    """The figures as the device file states them; the first of each metric is the one to use."""
    full = device.figure("boost_clock").normalised
    digest = hashlib.sha256("".join(sorted(w.record.digest() for w in of)).encode())
    made = max(window.record.time for window in of).date()
    source = (
        f"scripts/fit-energy.py over {found.windows} records with energy on {device.name}, "
        f"the newest of {made}, digest {digest.hexdigest()[:12]}"
    )
    at_full = f"{MODEL} to windows of MLA kernels back to back, at {full:g} MHz"
    lowest = found.lowest_clock * full
    least = "the least that a fit without one of the designs gives"
    least_clocked = f"{least}, at {lowest:g} MHz"
    rows = (
        ("static_power", round(found.static), "W", at_full),
        ("energy_per_flop", _three(found.joules_per_flop * 1e12), "pJ/FLOP", at_full),
        ("energy_per_flop", _three(found.least_per_flop * 1e12), "pJ/FLOP", least_clocked),
        ("energy_per_byte", _three(found.joules_per_byte * 1e12), "pJ/byte", at_full),
        ("energy_per_byte", _three(found.least_per_byte * 1e12), "pJ/byte", least),
        ("tdp", round(found.most_watts), "W", "largest mean power of a window of a second"),
    )  # fmt: skip
    for metric, value, unit, condition in rows:
        yield {
            "metric": f"measured_{metric}", "value": value, "unit": unit, "condition": condition,
            "source": source, "quoted": f"{value} {unit}", "kind": "measured",
            "evidence": "direct", "derived": True,
        }  # fmt: skip


def _three(value: float) -> float:
    return float(f"{value:.3g}")


def main(argv: Sequence[str]) -> int:
    """Print one ``[[figure]]`` per figure, and on stderr how well they fit."""
    try:
        device = devices.find(argv[0]) if argv else devices.default_for_arch("sm_90")
        of = list(windows(evidence.newest(evidence.find()), device, costs.cost))
        found = fit(of)
    except HyperMlaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if found is None:
        print(
            f"error: the {len(of)} records with energy on {device.name} do not tell static power, "
            f"FLOPs and bytes apart: at least {LEAST_WINDOWS} of different kinds are needed",
            file=sys.stderr,
        )
        return 2
    print(f"{found.windows} windows, median error {found.error:.1%}", file=sys.stderr)
    for figure in figures(found, of, device):
        print(
            "[[figure]]",
            *(f"{key} = {json.dumps(value)}" for key, value in figure.items()),
            sep="\n",
        )
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
