"""Makes the data of the site's kernel advisor: fastest measured version by device and problem.

``docs/assets/js/calculator.js`` finds the nearest of these to a reader's sizes; the home page shows
the same answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from generators.mla.design_choice import CONTEXT, NAMES, held_by, kernels_by_design
from generators.model import compare, problems
from generators.model.choice import chosen, each_version, kernel_of
from generators.model.compare import Best, alike
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
#: Words of the link to what few sequences ask for.
FEW = "Splitting the keys"
SPLITTING = "knowledge/optimizations/o16-split-kv.md"
#: How a latent cache lies in memory, by tokens of a page; of decompressed ones one way is timed.
#: Pages of fewer tokens are measured too, and are not what one chooses (docs/serving/step.md).
PAGES: Mapping[str, str] = {"64": "pages of 64 tokens", "0": "contiguous cache"}
#: How the lengths of sequences relate.
LENGTHS: Mapping[str, str] = {
    "equal": "equal lengths",
    "ragged": "ragged lengths, t/2 to 3t/2",
    "one": "one sequence of ten times the others' length",
}
#: Which keys a query sees; of one query token it sees all.
MASKS: Mapping[str, str] = {"causal": "causal mask, bottom-right", "none": "no mask"}
#: Axes over which the nearest record is sought.
AXES = ("b", "h", "s", "t")
#: How far a record is from a reader's sizes: factors of two in each product of axes, weighted. Rows
#: (heads times query tokens) decide what limits a kernel and keys (sequences times length) how much
#: each multiprocessor has to do; b=8 t=32768 is nearer to b=64 t=4096 than to b=8 t=4096. Query
#: tokens count once more, since they share a causal mask, and a little so does length, since long
#: sequences are split. ``tests/generators/mla/test_advisor.py`` holds that the nearest record, so
#: chosen, foretells the share of the bound that each record reached.
NEAR: tuple[tuple[tuple[str, ...], float], ...] = (
    (("h", "s"), 1.0), (("b", "t"), 1.0), (("s",), 0.5), (("t",), 0.25),
)  # fmt: skip
#: How far another mask is: while queries are few they see nearly all keys.
MASKED = 0.5
#: What else must agree, as the form asks for it.
CONDITIONS = ("page", "lengths", "mask")
#: So many of a problem are listed, fastest first.
LISTED = 3
#: Sequences of the problem to begin with.
_BATCH = 32


def measured(site: Site) -> dict[str, Any]:
    """Answers, the rates behind bounds, and the devices on which each language runs."""
    found = list(answers(site))
    return {
        **nearness(),
        "caches": CACHES,
        "pages": PAGES,
        "lengths": LENGTHS,
        "masks": MASKS,
        "names": dict(WORKLOAD.peers),
        "naming": NAMES,
        "peer": next(iter(WORKLOAD.peers.values())),
        "answers": found,
        "start": _start(found),
        "bounds": {device.key: rates for device in site.devices if (rates := _bound(device))},
        "few": FEW,
        "sms": {device.key: sms for device in site.devices if (sms := _sms(device))},
        "archs": {device.key: device.sm for device in site.devices if device.sm},
        "runs": {device.key: _languages(device.sm) for device in site.devices},
    }


def nearness() -> dict[str, Any]:
    """By what the nearest record is found."""
    near = [{"axes": list(axes), "weight": weight} for axes, weight in NEAR]
    return {"axes": list(AXES), "near": near, "masked": MASKED}


def distance(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """How far apart two problems are, as the page reckons it."""
    far = sum(
        weight * abs(math.log2(math.prod(one[a] for a in axes) / math.prod(other[a] for a in axes)))
        for axes, weight in NEAR
    )
    unlike = one["mask"] != other["mask"] and min(one["s"], other["s"]) > 1
    return far + MASKED * unlike


def _start(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The problem to begin with: measured beside the peer, with most sequences, then most rows."""
    latent = [answer for answer in found if answer["cache"] == "flash_mla"]
    best = max(
        latent or found,
        key=lambda a: (_beside(a), a["s"] == 1, not a["found"][0]["stale"], a["h"],
                       -abs(a["b"] - _BATCH), -abs(a["t"] - CONTEXT), a["lengths"] == "equal",
                       a["page"]),
        default=None,
    )  # fmt: skip
    return {name: best[name] for name in ("device", "cache", *AXES, *CONDITIONS)} if best else {}


def _beside(answer: Mapping[str, Any]) -> bool:
    """Whether the peer was in the run of an answer."""
    peer = answer["peer"]
    return peer is not None and peer["run"] == answer["found"][0]["run"]


def answers(site: Site) -> Iterable[dict[str, Any]]:
    """The fastest at each problem, by device and cache."""
    groups: dict[tuple[str, regimes.Kernel, tuple[tuple[str, Scalar], ...]], list[Run]] = {}
    kernels = kernels_by_design(site)
    for run in compare.fastest(site.runs):
        record = run.record
        sizes = {name: record.problem.get(name) for name in AXES}
        if (
            record.kernel.layer != WORKLOAD.key
            or record.mode != "event"
            or record.kernel.design not in kernels
            or record.problem.get("dtype") != regimes.DTYPE
            or None in sizes.values()
        ):
            continue
        conditions = _conditions(record.problem)
        if str(conditions["page"]) not in PAGES:
            continue
        cache = held_by(run, kernels)
        sizes |= conditions
        groups.setdefault((record.target, cache, tuple(sizes.items())), []).append(run)
    earlier: dict[regimes.Kernel, list[Run]] = {}
    for run in site.earlier:
        if run.record.kernel.design in kernels:
            earlier.setdefault(held_by(run, kernels), []).append(run)
    for (target, cache, axes), runs in groups.items():
        mine = earlier.get(cache, [])
        first = chosen(site, runs)
        ranked = _ranked(first.run, runs, mine)
        yield {
            "device": target,
            "cache": cache,
            **dict(axes),
            "found": [_found(site, run, ranked[0]) for run in ranked],
            "newest": _key_of(site, first.run),
            "outdated": _outdated(site, first),
            "peer": _peer(site, ranked[0]),
        }


def problems_answered(found: Iterable[Mapping[str, Any]]) -> list[str]:
    """Sizes of answers, as results name them: by these the search finds the advisor."""
    sizes = sorted({tuple(answer[axis] for axis in AXES) for answer in found})
    return [" ".join(f"{a}={n}" for a, n in zip(AXES, found, strict=True)) for found in sizes]


def _conditions(problem: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Pages, lengths and mask of a problem; a query alone sees all keys, masked or not."""
    masked = problem.get("causal") and problem["s"] != 1
    return {
        "page": problem.get("page") or 0,
        "lengths": problem.get("lengths") or "equal",
        "mask": "causal" if masked else "none",
    }


def _peer(site: Site, first: Run) -> dict[str, Any] | None:
    """The library that all compare with: in the run of the answer, else in another at its problem.

    Its time in another run is told beside the answer's, and never compared with it.
    """
    design, name = next(iter(WORKLOAD.peers.items()))
    wanted, problem = first.record, problems.problem_of(first.record)
    timed = compare.fastest(
        run
        for run in (*site.runs, *site.earlier)
        if run.record.kernel.design == design
        and (run.record.target, run.record.mode) == (wanted.target, wanted.mode)
        and problems.problem_of(run.record) == problem
    )
    if not timed:
        return None
    run = min(timed, key=lambda run: (run.record.run != wanted.run, run.stale, run.total.median_us))
    return {**_found(site, run, first), "name": name}


def _outdated(site: Site, first: Best) -> dict[str, Any] | None:
    """What was faster beyond noise before its sources changed."""
    stale = first.outdated
    return None if stale is None else _found(site, stale, stale)


def _together(run: Run, runs: Iterable[Run]) -> list[Run]:
    """Those of runs whose times compare with one's, fastest first, each version once."""
    wanted = problems.together(run)
    return each_version(one for one in runs if problems.together(one) == wanted)


def _ranked(first: Run, runs: list[Run], earlier: Iterable[Run]) -> list[Run]:
    """The fastest of the run that the one to use is of, and that one, fastest first."""
    # Times of different runs are not compared.
    same = _together(first, [*runs, *earlier]) if first.record.run else compare.fastest(runs)
    others = [run for run in same if kernel_of(run) != kernel_of(first)]
    return compare.fastest([first, *others[: LISTED - 1]])


def _found(site: Site, run: Run, fastest: Run) -> dict[str, Any]:
    n = run.record.problem.get("n")
    return {
        "version": _key_of(site, run),
        "language": run.record.kernel.language,
        "us": run.total.median_us,
        "share": costs.fraction(run.record),
        "run": run.record.run,
        "stale": run.stale,
        "tied": run.stale == fastest.stale and alike(run, fastest),
        "n": n or 0,
    }


def _key_of(site: Site, run: Run) -> str:
    version = site.version_of(run)
    return version.key if version else run.record.kernel.name


def pages(site: Site, known: Mapping[str, Any], link: Link) -> str:
    """Links to all that answers name, which the advisor takes its addresses from."""
    named = {found["version"] for answer in known["answers"] for found in _named(answer)}
    links = [
        f"[{cell(version.key)}]({link(repo_name(version.path))})"
        for version in site.versions
        if version.key in named
    ]
    if (site.root / SPLITTING).is_file():
        links.append(f"[{FEW}]({link(SPLITTING)})")
    return f'<div class="advice-pages" hidden markdown="1">\n\n{" ".join(links)}\n\n</div>'


def _named(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    return answer["found"] + [one for one in (answer["outdated"], answer["peer"]) if one]


def _bound(device: Any) -> dict[str, Any] | None:
    try:
        rates = device.bound(regimes.DTYPE)
    except (DeviceFigureError, UnknownNameError):
        return None
    return {"tflops": rates.tflops, "gbps": rates.gbps, "power": regimes.power_us(rates)}


def _sms(device: Any) -> int | None:
    try:
        return int(device.sm_count)
    except (DeviceFigureError, UnknownNameError):
        return None


def _languages(sm: str | None) -> list[str]:
    """Languages whose kernels run on an arch."""
    return [key for key, language in languages().items() if sm in language.archs]
