"""Says what kernels of one's own took and brought: versions, days, lines, and times beside others.

For whoever decides between writing one, taking one and staying with a library.
"""

from __future__ import annotations

from collections.abc import Iterator

from generators.mla.same_work import PEERS, time_of, unpaged
from generators.model import problems
from generators.model.columns import language_title
from generators.model.run import Run
from generators.model.site import Site
from generators.pages.kernels import design_link, run_version
from generators.write.text import cell, sections, table
from mla_var3.evidence.compare import times
from mla_var3.knowledge.evidence import Link
from mla_var3.paths import kernels_dir, relative
from mla_var3.runtime.registry import Version
from mla_var3.workloads.mla import WORKLOAD

#: torch's own attention, as a design.
_TORCH = "torch_sdpa_mla"
#: The problem that most pages quote.
_USUAL = {"b": 32, "h": 128, "s": 1, "t": 4096}
#: Heading of the lines.
_LINES = "Lines of the newest version, with its kit"
#: Fewer versions tell nothing of effort.
_FEW = 3


def table_of(site: Site, link: Link) -> str:
    """A row per design of ours with several versions."""
    rows = [_row(site, versions, link) for versions in _ours(site)]
    head = [
        "Design",
        "Language",
        "Versions",
        "Timed from",
        "to",
        "Lines of the newest version, with its kit",
    ]
    return sections(
        table(head, rows, right=["Versions", _LINES]),
        "Days are those of the first and the last record of a time. Lines are those of the files, "
        "comments with them; the kit is shared by designs of a language. Tests, emulator and "
        "pages are not in it.",
    )


def _ours(site: Site) -> Iterator[list[Version]]:
    """Designs of the workload with several versions that are no library's, most versions first."""
    for versions in sorted(site.designs().values(), key=len, reverse=True):
        first = versions[0]
        if (
            first.layer == WORKLOAD.key
            and first.design not in PEERS
            and len(versions) >= _FEW
            and any(site.timed_of(version) for version in versions)
        ):
            yield versions


def _row(site: Site, versions: list[Version], link: Link) -> list[str]:
    days = sorted(run.record.time for version in versions for run in site.timed_of(version))
    return [
        design_link(versions[0], link),
        cell(language_title(versions[0].language)),
        str(len(versions)),
        f"{days[0]:%Y-%m-%d}",
        f"{days[-1]:%Y-%m-%d}",
        f"{sum(lines(versions[-1])):,}",
    ]


def lines(version: Version) -> tuple[int, int]:
    """Lines of a version's own design, and of all else that it imports from the kernels."""
    own = kit = 0
    for file in version.source_files():
        count = file.read_text(encoding="utf-8").count("\n")
        parts = relative(file, kernels_dir()).split("/")
        if version.design in parts:
            own += count
        else:
            kit += count
    return own, kit


def torch(site: Site, link: Link) -> str:
    """How much faster the fastest of ours was than torch's own attention, in one run."""
    found = [pair for pair in _pairs(site) if _is_usual(pair[0])]
    if not found:
        return "No run timed a kernel of ours beside torch's attention."
    mine, theirs = max(found, key=lambda pair: pair[1].record.time)
    ratio = theirs.total.median_us / mine.total.median_us
    device = next(d for d in site.devices if d.key == mine.record.target)
    return (
        f"**{times(ratio)}**, at {cell(problems.problem_text(mine.record))} on an "
        f"{cell(device.name.removeprefix('NVIDIA '))}: torch's `scaled_dot_product_attention` "
        f"{time_of(theirs, link)}, {run_version(site, mine, link)} {time_of(mine, link)}, in one "
        "run. They do unlike work: torch's call reads keys and values of every head, made before "
        "the time begins, and ours the latent cache, a small part of these bytes. So most of the "
        "factor is the latent form, and not the tuning."
    )


def _pairs(site: Site) -> Iterator[tuple[Run, Run]]:
    """Our fastest and torch's time, of each run and problem that has both."""
    for (_, _, mode, _), runs in _rounds(site):
        theirs = [run for run in runs if run.record.kernel.design == _TORCH]
        ours = [
            run
            for run in runs
            if run.record.kernel.language != "library" and run.record.kernel.layer == WORKLOAD.key
        ]
        if mode == "event" and theirs and ours:
            yield min(ours, key=lambda run: run.total.median_us), theirs[0]


def _rounds(site: Site) -> Iterator[tuple[tuple[object, ...], list[Run]]]:
    """Runs of one process on one problem, whether over pages or not."""
    found: dict[tuple[object, ...], list[Run]] = {}
    for run in (*site.runs, *site.earlier):
        if run.is_timed and run.record.run is not None:
            key = run.record.run, run.record.target, run.record.mode, unpaged(run)
            found.setdefault(key, []).append(run)
    yield from found.items()


def _is_usual(run: Run) -> bool:
    return all(run.record.problem.get(name) == value for name, value in _USUAL.items())
