"""Makes the data of the site's kernel advisor: fastest measured version by device and problem.

``docs/assets/js/calculator.js`` finds the nearest of these to a reader's sizes; the home page shows
the same answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from generators.mla.design_choice import CONTEXT, held_by, kernels_by_design
from generators.model import compare, problems
from generators.model.compare import Best, alike, best
from generators.model.run import Run
from generators.model.site import Site
from generators.write.source import repo_name
from generators.write.text import cell
from mla_var3.errors import DeviceFigureError, UnknownNameError
from mla_var3.evidence.model import Scalar
from mla_var3.knowledge.evidence import Link
from mla_var3.languages import languages
from mla_var3.runtime import costs
from mla_var3.workloads.mla import WORKLOAD, regimes

#: What a reader's cache holds, by the kernel of the analysis that reads it.
CACHES: Mapping[regimes.Kernel, str] = {
    "flash_mla": "latent vectors only",
    "mla_var6_plus": "latent, and the newest n decompressed",
    "flash_attention": "all keys and values decompressed",
}
#: Axes over which the nearest record is sought.
AXES = ("b", "h", "s", "t")
#: So many of a problem are listed, fastest first.
LISTED = 3
#: Sequences of the problem to begin with.
_BATCH = 32


def measured(site: Site) -> dict[str, Any]:
    """Answers, the rates behind bounds, and the devices on which each language runs."""
    found = list(answers(site))
    return {
        "axes": list(AXES),
        "caches": CACHES,
        "answers": found,
        "start": _start(found),
        "bounds": {device.key: rates for device in site.devices if (rates := _bound(device))},
        "runs": {device.key: _languages(device.sm) for device in site.devices},
    }


def _start(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The problem to begin with: measured beside the peer, with most sequences, then most rows."""
    latent = [answer for answer in found if answer["cache"] == "flash_mla"]
    best = max(
        latent or found,
        key=lambda a: (a["peer"] is not None, a["s"] == 1, not a["found"][0]["stale"], a["h"],
                       -abs(a["b"] - _BATCH), -abs(a["t"] - CONTEXT)),
        default=None,
    )  # fmt: skip
    return {name: best[name] for name in ("device", "cache", *AXES)} if best else {}


def answers(site: Site) -> Iterable[dict[str, Any]]:
    """The fastest at each problem that was timed without a mask, by device and cache."""
    groups: dict[tuple[str, regimes.Kernel, tuple[tuple[str, Scalar], ...]], list[Run]] = {}
    kernels = kernels_by_design(site)
    for run in compare.fastest(site.runs):
        record = run.record
        sizes = {name: record.problem.get(name) for name in AXES}
        if (
            record.kernel.layer != WORKLOAD.key
            or record.mode != "event"
            or record.kernel.design not in kernels
            or record.problem.get("causal")
            or record.problem.get("dtype") != regimes.DTYPE
            or None in sizes.values()
        ):
            continue
        cache = held_by(run, kernels)
        groups.setdefault((record.target, cache, tuple(sizes.items())), []).append(run)
    for (target, cache, axes), runs in groups.items():
        first = best(runs)
        yield {
            "device": target,
            "cache": cache,
            **dict(axes),
            "found": [_found(site, choice, first.run) for choice in _ranked(first.run, runs)],
            "outdated": _outdated(site, first),
            "peer": _peer(site, first.run),
        }


def _peer(site: Site, first: Run) -> dict[str, Any] | None:
    """The library that all compare with, where it was in the run."""
    design, name = next(iter(WORKLOAD.peers.items()))
    beside = site.companions.get(problems.together(first), [])
    for run in compare.fastest(beside):
        if run.record.kernel.design == design:
            return {**_found(site, run, first), "name": name}
    return None


def _outdated(site: Site, first: Best) -> dict[str, Any] | None:
    """What was faster beyond noise before its sources changed."""
    stale = first.outdated
    return None if stale is None else _found(site, stale, stale)


def _ranked(first: Run, runs: list[Run]) -> list[Run]:
    """What to use first, then the fastest of other versions."""
    kept: dict[tuple[str, ...], Run] = {_key(first): first}
    same = [run for run in runs if run.record.run and run.record.run == first.record.run]
    for run in same or runs:  # Times of different runs are not compared.
        kept.setdefault(_key(run), run)
    return list(kept.values())[:LISTED]


def _key(run: Run) -> tuple[str, ...]:
    kernel = run.record.kernel
    return kernel.language, kernel.design, kernel.version


def _found(site: Site, run: Run, fastest: Run) -> dict[str, Any]:
    version, n = site.version_of(run), run.record.problem.get("n")
    return {
        "version": version.key if version else run.record.kernel.name,
        "language": run.record.kernel.language,
        "us": run.total.median_us,
        "share": costs.fraction(run.record),
        "run": run.record.run,
        "stale": run.stale,
        "tied": run.stale == fastest.stale and alike(run, fastest),
        "n": n or 0,
    }


def pages(site: Site, known: Mapping[str, Any], link: Link) -> str:
    """Links to all that answers name, which the advisor takes its addresses from."""
    named = {found["version"] for answer in known["answers"] for found in _named(answer)}
    links = [
        f"[{cell(version.key)}]({link(repo_name(version.path))})"
        for version in site.versions
        if version.key in named
    ]
    return f'<div class="advice-pages" hidden markdown="1">\n\n{" ".join(links)}\n\n</div>'


def _named(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    return answer["found"] + [one for one in (answer["outdated"], answer["peer"]) if one]


def _bound(device: Any) -> dict[str, Any] | None:
    try:
        rates = device.bound(regimes.DTYPE)
    except (DeviceFigureError, UnknownNameError):
        return None
    return {"tflops": rates.tflops, "gbps": rates.gbps, "power": regimes.power_us(rates)}


def _languages(sm: str | None) -> list[str]:
    """Languages whose kernels run on an arch."""
    return [key for key, language in languages().items() if sm in language.archs]
