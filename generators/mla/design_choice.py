"""Tables for choosing an MLA design: the cost model's choice beside the fastest measured one.

They stand on the home, workload and design pages; see ``generators.mla.analysis``.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from generators.mla import peers, turning
from generators.model import compare
from generators.model.choice import chosen
from generators.model.compare import Best
from generators.model.run import Run
from generators.model.site import Site
from generators.pages.kernels import design_link, run_version, what_times_cover
from generators.write import figures
from generators.write.source import repo_name
from generators.write.text import cell, fold, sections, table, us
from mla_var3 import devices
from mla_var3.evidence.compare import NOISE
from mla_var3.knowledge.evidence import Link
from mla_var3.knowledge.markdown import slug
from mla_var3.roofline import predict
from mla_var3.roofline.prediction import Side
from mla_var3.runtime.registry import Version
from mla_var3.workloads import mla
from mla_var3.workloads.mla import WORKLOAD, regimes

#: The cost analysis.
SOURCE = "knowledge/workloads/mla.md"
#: Context length at which designs are compared.
CONTEXT = 4096
#: Archs whose default devices show the regime of a design.
ARCHS = ("sm_90", "sm_100", "sm_120")
#: From what its formulas follow.
COSTS = "knowledge/workloads/mla-costs.md"
#: Where kernels are compared with other libraries'.
OTHERS = f"{SOURCE}#{slug(peers.TITLE)}"
#: Kernel of the cost analysis that stands for all designs of a problem.
_ANALYSED: Mapping[type, regimes.Kernel] = {
    mla.LatentProblem: "flash_mla",
    mla.MixedProblem: "mla_var6_plus",
    mla.DecompressedProblem: "flash_attention",
}


def analysed(versions: list[Version]) -> regimes.Kernel | None:
    """Kernel of the cost analysis with the problem of a design's base version."""
    plan = versions[0].plan_class()
    return next((name for kind, name in _ANALYSED.items() if issubclass(plan, kind)), None)


def _designs(site: Site) -> list[list[Version]]:
    """The designs of MLA in the language in which the analysis compares them."""
    return [
        versions
        for versions in site.layers().get(WORKLOAD.key, [])
        if versions[0].design_key == versions[0].design
    ]


def _kernel_link(site: Site, kernel: str, link: Link) -> str:
    """The design that the analysis calls ``kernel``, linked to its page."""
    for versions in _designs(site):
        if versions[0].design == kernel:
            return design_link(versions[0], link)
    return cell(kernel)


@dataclass(frozen=True)
class Choice:
    """One query count.

    Attributes:
        model: What the cost model says.
        bound_us: Bound of the problem in microseconds, the least over all designs.
        bounds: Rate that binds each kernel of the analysis.
        runs: What was timed there, fastest first.
        own: What to use of each design's versions, by language and design.
        first: What to use of all.
        best: What to use, by how much of the cache is decompressed beforehand: nothing
            (``flash_mla``), the newest tokens (``mla_var6_plus``) or all (``flash_attention``).
    """

    model: regimes.Cell
    bound_us: float
    bounds: Mapping[regimes.Kernel, Side]
    runs: tuple[Run, ...]
    best: Mapping[regimes.Kernel, Best]
    own: Mapping[tuple[str, str], Best]
    first: Run | None

    @property
    def s(self) -> int:
        """Query tokens."""
        return self.model.s

    @property
    def fastest(self) -> regimes.Kernel | None:
        """The kernel of the analysis that was measured fastest; None where none was."""
        return min(self.best, key=lambda kernel: self.best[kernel].us, default=None)


@dataclass(frozen=True)
class Comparison:
    """Designs on one device at one context length, over the query tokens.

    Attributes:
        device: The device.
        shape: Sizes; the batch is that of the records where there are any.
        choices: By query tokens.
        decompressing_us: Microseconds of decompressing all keys and values, as a reference time.
    """

    device: devices.Device
    shape: regimes.Shape
    choices: tuple[Choice, ...]
    decompressing_us: float

    @property
    def measured(self) -> list[Choice]:
        """The query counts at which anything was timed."""
        return [choice for choice in self.choices if choice.runs]

    def preferred_at(self, kernel: regimes.Kernel | None) -> list[int]:
        """Query counts at which the model prefers a kernel of the analysis."""
        return [choice.s for choice in self.choices if choice.model.winner == kernel]

    def fastest_at(self, design: Version) -> list[int]:
        """Query counts at which a version of a design was measured fastest of all."""
        return [c.s for c in self.measured if c.first and _is_of(c.first, design)]

    def best_versions(self, design: Version) -> dict[str, list[int]]:
        """Version of a design to use at each query count at which it was timed, by version."""
        found: dict[str, list[int]] = {}
        for choice in self.measured:
            if own := choice.own.get((design.language, design.design)):
                found.setdefault(own.run.record.kernel.version, []).append(choice.s)
        return found


def _by_design(runs: Iterable[Run]) -> dict[tuple[str, str], list[Run]]:
    found: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        found.setdefault((run.record.kernel.language, run.record.kernel.design), []).append(run)
    return found


def _is_of(run: Run, version: Version) -> bool:
    """Whether a run is of the design of a version, in its language."""
    kernel = run.record.kernel
    return (kernel.language, kernel.design) == (version.language, version.design)


def comparison(site: Site, device: devices.Device, heads: int = regimes.Shape().h) -> Comparison:
    """Cost model and records of a device side by side, at ``CONTEXT`` keys and unmasked.

    The batch is the one that was timed at most query counts, of equals the largest; without
    records that of the analysis.
    """
    kernels = kernels_by_design(site)
    timed = [run for run in _comparable(site, device) if _size(run, "h") == heads]
    batch = _batch(timed)
    shape = regimes.Shape(h=heads) if batch is None else regimes.Shape(b=batch, h=heads)
    runs: dict[int, list[Run]] = {}
    for run in compare.fastest(run for run in timed if _size(run, "b") == batch):
        runs.setdefault(queries(run), []).append(run)
    ceilings = device.ceilings(regimes.DTYPE)

    def choice(s: int) -> Choice:
        times = {k: regimes.prediction(k, shape, s, CONTEXT, ceilings) for k in regimes.KERNELS}
        mine = runs.get(s, [])
        groups = {k: [run for run in mine if held_by(run, kernels) == k] for k in times}
        return Choice(
            regimes.cell(shape, s, CONTEXT, ceilings),
            regimes.bound_us(shape, s, CONTEXT, device.bound(regimes.DTYPE)),
            {kernel: found.bound for kernel, found in times.items()},
            tuple(mine),
            {kernel: chosen(site, group) for kernel, group in groups.items() if group},
            {key: chosen(site, group) for key, group in _by_design(mine).items()},
            chosen(site, mine).run if mine else None,
        )

    attention = regimes.cost("flash_attention", shape, 1, CONTEXT).flops
    decompressing = regimes.decompressing_flops(shape, 1, CONTEXT) - attention
    return Comparison(
        device,
        shape,
        tuple(map(choice, sorted({*regimes.S_VALUES, *runs}))),
        predict(decompressing, 0, ceilings).time_us,
    )


def kernels_by_design(site: Site) -> dict[str, regimes.Kernel]:
    """Kernel of the analysis that stands for each design."""
    return {
        versions[0].design: kernel
        for versions in _designs(site)
        if (kernel := analysed(versions)) is not None
    }


def held_by(run: Run, kernels: Mapping[str, regimes.Kernel]) -> regimes.Kernel:
    """The kernel of the analysis whose cache a run had: the mixed design has any of the three."""
    kernel, n = kernels[run.record.kernel.design], run.record.problem.get("n")
    if kernel != "mla_var6_plus" or n is None:
        return kernel
    ends: Mapping[object, regimes.Kernel] = {0: "flash_mla", CONTEXT: "flash_attention"}
    return ends.get(n, kernel)


def queries(run: Run) -> int:
    """Query tokens of a run."""
    return _size(run, "s")


def _size(run: Run, name: str) -> int:
    return int(run.record.problem.get(name) or 0)


def _comparable(site: Site, device: devices.Device) -> list[Run]:
    """Runs at the sizes of the analysis, whatever their batch, heads and queries."""
    kernels = kernels_by_design(site)
    return [
        run
        for run in site.runs
        if run.record.target == device.key
        and run.record.kernel.layer == WORKLOAD.key
        and run.record.kernel.design in kernels
        and _is_plain(run)
    ]


def _is_plain(run: Run) -> bool:
    """Whether a run read a contiguous cache of equal lengths without a mask."""
    problem, sizes = run.record.problem, regimes.Shape()
    wanted = {"t": CONTEXT, "dtype": regimes.DTYPE}
    own = {name: getattr(sizes, name) for name in ("d", "k", "p")}
    return (
        run.is_timed
        and not any(problem.get(name) for name in ("causal", "page", "lengths"))
        and all(problem.get(name) == value for name, value in wanted.items())
        and all(problem.get(name, value) in (None, value) for name, value in own.items())
        and all(_size(run, name) > 0 for name in ("b", "h", "s"))
    )


def _heads(site: Site, versions: list[Version], device: devices.Device) -> int:
    """Heads that a design was timed with most; those of the analysis where as many are."""
    usual = regimes.Shape().h
    own = [_size(run, "h") for run in _comparable(site, device) if _is_of(run, versions[0])]
    most = statistics.multimode(own)
    return usual if usual in most or not most else most[0]


def _batch(timed: Iterable[Run]) -> int | None:
    counts: dict[int, set[int]] = {}
    for run in timed:
        counts.setdefault(_size(run, "b"), set()).add(queries(run))
    return max(counts, key=lambda b: (len(counts[b]), b), default=None)


# -- the home page -------------------------------------------------------------------------------


def home(site: Site, link: Link) -> str:
    """Which design to use at which query count, for the home page."""
    found = comparison(site, devices.default_for_arch("sm_90"))
    spec = f"[{cell(found.device.name)}]({link(f'knowledge/devices/{found.device.key}.toml')})"
    shown = [kernel for kernel in _CACHES if any(kernel in c.best for c in found.choices)]
    head = [
        "s",
        *(_CACHES[k] for k in shown),
        "Model prefers",
        "Bound",
        "Reference time",
    ]
    runs = [choice.best[k].run for choice in found.measured for k in shown if k in choice.best]
    regimes_page = f"[regime analysis]({link(SOURCE)})"
    measured = sections(
        "It depends on s, the query tokens of a sequence (1 when decoding, a few in speculative "
        f"decoding, many in prefill), and on what the cache holds. On {spec}, for "
        f"{found.shape.b} sequences, {found.shape.h} heads and {CONTEXT} keys in "
        f"{regimes.DTYPE}, {'the fastest measured' if runs else 'where nothing is measured yet'}:",
        table(head, [_row(site, choice, shown, link) for choice in found.choices]),
        _decompress_first(found),
        "**Bound** is the least that the FLOPs and bytes of any of these designs take at the "
        "largest rates stated or measured for the device, with perfect overlap and whatever the "
        "cache holds: no kernel of theirs can beat it. **Reference time** is the work of the "
        "preferred design at "
        f"{figures.reference_rates(found.device.ceilings(regimes.DTYPE))}, which a better "
        "kernel can beat. **Model prefers** names the design whose reference time is least. n "
        "counts the newest tokens that are kept decompressed. Where several versions were timed "
        "together, the newest such run decides, with what was timed after it. "
        f"The {regimes_page} derives the preference; its own table is for {regimes.Shape().b} "
        "sequences.",
        " ".join(filter(None, [_conditions(found), what_times_cover(_designs(site), link)])),
    )
    return sections(
        peers.lead(site, link(OTHERS)),
        f"{cell(NAMES)} {turning.short(link)} Other sizes and devices: "
        f"[the advisor]({link(SOURCE)}).",
        fold(
            "By the cost model",
            "what it prefers of our designs at the s tried: what to read, not who is faster",
            "\n".join(_reasons(site, found, link)),
        ),
        fold("At each s", "the fastest, by what the cache holds, with its record", measured),
    )


#: Three names that readers take for one another.
NAMES = (
    "flash_mla is our design in cuTile, flash_mla@cute-dsl is ours in the CuTe DSL, and FlashMLA "
    "is DeepSeek's library, which both are measured against."
)

#: What the caller's cache holds, by the kernel of the analysis that reads it.
_CACHES: Mapping[regimes.Kernel, str] = {
    "flash_mla": "Use, from a latent cache",
    "mla_var6_plus": "Newest n tokens decompressed already",
    "flash_attention": "All K and V decompressed already",
}


def _row(site: Site, choice: Choice, shown: list[regimes.Kernel], link: Link) -> list[str]:
    model = choice.model
    n = f", n={model.n}" if model.winner == "mla_var6_plus" else ""
    return [
        f"{choice.s}",
        *(_use(site, choice, kernel, link) for kernel in shown),
        f"{_kernel_link(site, model.winner, link)}{n}",
        us(choice.bound_us),
        us(model.time_us[model.winner]),
    ]


def _use(site: Site, choice: Choice, kernel: regimes.Kernel, link: Link) -> str:
    found, n = choice.best.get(kernel), choice.model.n
    if found is None:
        mixes = kernel != "mla_var6_plus" or 0 < n < CONTEXT
        return "not measured" if mixes else f"the best n is {n}"
    time = figures.record_link(found.run, link, figures.duration(found.run.total))
    held = found.run.record.problem.get("n")
    kept = f", n={held}" if held else ""
    rival = f", tied with {run_version(site, found.rival, link)}" if found.rival else ""
    return (
        f"**{run_version(site, found.run, link)}**{kept}: {time}{rival}"
        f"{_outdated(site, found, link)}"
    )


def _outdated(site: Site, found: Best, link: Link) -> str:
    """A faster record of sources that have changed since, which does not decide."""
    if found.outdated is None:
        return ""
    time = figures.record_link(found.outdated, link, figures.duration(found.outdated.total))
    return f"; faster before its sources changed: {run_version(site, found.outdated, link)}, {time}"


def _decompress_first(found: Comparison) -> str:
    """Where decompressing everything and attending to it can beat the best latent kernel."""
    pays = [
        choice.s
        for choice in found.measured
        if {"flash_mla", "flash_attention"} <= choice.best.keys()
        and choice.best["flash_attention"].us + found.decompressing_us < choice.best["flash_mla"].us
    ]
    if not pays:
        return ""
    return (
        "Decompressing all keys and values of a latent cache first takes "
        f"{us(found.decompressing_us)} more by the reference time, which can pay at "
        f"{_span(pays, found)} only."
    )


def _reasons(site: Site, found: Comparison, link: Link) -> Iterator[str]:
    """Why the model prefers each design, with the query counts at which it does."""
    for kernel in _CACHES:
        wins = [choice for choice in found.choices if choice.model.winner == kernel]
        if not wins:
            continue
        reasons: dict[regimes.Kernel, str] = {
            "flash_mla": "stay latent. The cache is the least to read, and all heads share each "
            f"load; {_binding(wins, kernel, found)}.",
            "mla_var6_plus": f"mix. In a latent kernel {_binding(wins, 'flash_mla', found)}, in a "
            f"decompressed one {_binding(wins, 'flash_attention', found)}: with the newest n "
            "tokens decompressed the two balance.",
            "flash_attention": "decompress. It takes the fewest FLOPs; "
            f"{_binding(wins, kernel, found)}.",
        }
        behind = [c.s for c in wins if kernel in c.best and c.fastest != kernel]
        why = ""
        if behind:
            latest = site.designs()[kernel][-1]
            devlog = link(f"{repo_name(latest.path)}#devlog")
            where = "" if len(behind) == len(wins) else f" at {_span(behind, found)}"
            why = f" Measured, it is behind{where} so far: [why]({devlog})."
        span = _span([choice.s for choice in wins], found)
        yield f"- **{span}**: {_kernel_link(site, kernel, link)}, {reasons[kernel]}{why}"


def _binding(choices: list[Choice], kernel: regimes.Kernel, found: Comparison) -> str:
    """What binds a kernel at some query counts."""
    words = {
        "compute": "arithmetic binds",
        "memory": "memory traffic binds",
        "power": "the board's power binds",
    }
    bound = {
        text: counts
        for side, text in words.items()
        if (counts := [c.s for c in choices if c.bounds[kernel] == side])
    }
    if len(bound) == 1:
        return next(iter(bound))
    ordered = sorted(bound.items(), key=lambda item: item[1])
    return " and ".join(f"{text} at {_span(counts, found)}" for text, counts in ordered)


def _span(counts: list[int], found: Comparison) -> str:
    """Query counts, those in a row by their ends."""
    between = [c.s for c in found.choices if counts[0] <= c.s <= counts[-1]]
    if len(counts) > 2 and counts == between:
        return f"s = {counts[0]} to {counts[-1]}"
    return f"s = {', '.join(map(str, counts))}"


_TIED = f"Tied are two whose medians differ by less than {NOISE:.1%}."


def _conditions(found: Comparison) -> str:
    shown = [[b.run.record.run for b in choice.best.values()] for choice in found.measured]
    rivals = any(b.rival for choice in found.measured for b in choice.best.values())
    one_run = shown and all(len(set(runs)) == 1 and runs[0] for runs in shown)
    return " ".join(
        filter(
            None,
            [
                "The times of a row are of one run." if one_run else "",
                _TIED if rivals else "",
            ],
        )
    )


# -- sections of other pages ----------------------------------------------------------------------


def workload(site: Site, link: Link) -> str:
    """What the model prefers and what was measured fastest, by design."""
    found = comparison(site, devices.default_for_arch("sm_90"))
    rows = [
        [
            design_link(versions[0], link),
            _best_versions(versions, found, link),
            _preferred(versions, found),
            _fastest(versions[0], found),
        ]
        for versions in _designs(site)
    ]
    counts = ", ".join(str(choice.s) for choice in found.measured)
    return sections(
        "## Which design to use",
        table(["Design", "Fastest", "Model prefers at", "Measured fastest at"], rows),
        "“Fastest” is the version of the design with the shortest time on record, of those "
        "within noise of it the newest. “Model prefers at” names the query counts s at which the "
        f"design's problem is the one to solve by the [cost analysis]({link(SOURCE)}); split "
        "designs of the same problem share the entry. “Measured fastest at” names those at which "
        "one of its versions is the fastest of all. All three are about "
        f"{cell(found.device.name)}, b={found.shape.b}, h={found.shape.h}, t={CONTEXT}; "
        + (f"measured were s = {counts}." if counts else "nothing is measured there yet."),
    )


def design(site: Site, versions: list[Version], link: Link) -> str:
    """Where a design is the one to use, by device."""
    if analysed(versions) is None:
        return ""
    usual = [devices.default_for_arch(arch) for arch in ARCHS]
    heads = _heads(site, versions, usual[0])
    compared = [comparison(site, device, heads) for device in usual]
    rows = [
        [
            f"[{cell(found.device.name)}]({link(f'knowledge/devices/{found.device.key}.toml')})",
            f"{found.shape.b}",
            _preferred(versions, found),
            _fastest(versions[0], found),
            _best_versions(versions, found, link),
        ]
        for found in compared
    ]
    return sections(
        "## Regime",
        f"Query tokens s at which the cost model prefers this design's problem, and at which the "
        f"records have it fastest of all designs, for b sequences, h={heads}, t={CONTEXT}, one "
        f"contiguous cache of equal lengths (other sizes: [regimes]({link(SOURCE)})):",
        table(["Device", "b", "Model prefers at", "Measured fastest at", "Fastest version"], rows),
    )


def _best_versions(versions: list[Version], found: Comparison, link: Link) -> str:
    """Fastest version of a design, with the query counts where that is not always the same."""
    best_of = found.best_versions(versions[0])
    links = [
        (f"[{v.version}]({link(repo_name(v.path))})", best_of[v.version])
        for v in versions
        if v.version in best_of
    ]
    everywhere = len(links) == 1
    shown = (text if everywhere else f"{text} at s = {', '.join(map(str, counts))}"
             for text, counts in links)  # fmt: skip
    return "; ".join([*shown, *_outdated_versions(versions, found)]) or "not measured"


def _outdated_versions(versions: list[Version], found: Comparison) -> Iterator[str]:
    """Versions that were faster before their sources changed, with the query counts."""
    counts: dict[str, list[int]] = {}
    for choice in found.measured:
        own = choice.own.get((versions[0].language, versions[0].design))
        if own and (stale := own.outdated) is not None:
            counts.setdefault(stale.record.kernel.version, []).append(choice.s)
    for version, at in counts.items():
        yield f"{version} by stale records at s = {', '.join(map(str, at))}"


def _preferred(versions: list[Version], found: Comparison) -> str:
    kernel = analysed(versions)
    if kernel is None:
        return ""
    counts = found.preferred_at(kernel)
    return f"s = {', '.join(map(str, counts))}" if counts else "no s of the table"


def _fastest(design: Version, found: Comparison) -> str:
    if not any(_is_of(run, design) for choice in found.measured for run in choice.runs):
        return "not measured"
    counts = found.fastest_at(design)
    return f"s = {', '.join(map(str, counts))}" if counts else f"never fastest at h={found.shape.h}"
