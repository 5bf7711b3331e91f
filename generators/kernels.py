"""Kernels: an index, a page a design, a page a version."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from generators import comparison, devlogs, problems
from generators.comparison import Comparison, analysed, compare
from generators.compiled import facts_tables
from generators.page import Page
from generators.problems import Problem
from generators.source import annotated, repo_name, tabs, version_diff
from generators.text import cell, docstring, meta, sections, table
from mla_var3 import devices
from mla_var3.knowledge.evidence import Link
from mla_var3.profiling.report import correctness_text, tiling_text
from mla_var3.records import Failed, Record
from mla_var3.runtime.registry import Version

if TYPE_CHECKING:
    from generators.site import Run, Site

#: Archs whose default devices show the regime of a design.
ARCHS = ("sm_90", "sm_100", "sm_120")


def design_page(design: str) -> str:
    """Path of a design's page."""
    return f"kernels/{design}/index.md"


def version_page(version: Version) -> str:
    """Path of a version's page."""
    return f"kernels/{version.design}/{version.version}.md"


def next_version(versions: list[Version]) -> str:
    """What the next version of a design will be called."""
    return f"v{int(versions[-1].version.removeprefix('v')) + 1}"


def title(version: Version) -> str:
    """How a version is called: as users type it."""
    return version.key


def places(site: Site) -> Mapping[str, str]:
    """Sources and devlogs; an entry of a devlog stands on its version's page."""
    found = {"kernels": "kernels/index.md"}
    for design, versions in site.designs().items():
        folder = versions[0].path.parents[1]
        found[repo_name(folder)] = design_page(design)
        found |= {repo_name(file): design_page(design) for file in _shared_files(versions)}
        for version in versions:
            found[repo_name(version.path.parent)] = version_page(version)
            found |= {repo_name(file): version_page(version) for file in _own_files(version)}
        if devlog := site.catalogue.devlogs.get(design):
            found[devlog.name] = design_page(design)
            pages = {version.version: version_page(version) for version in versions}
            found |= devlogs.places(devlog, pages)
    return found


def _own_files(version: Version) -> list[Path]:
    """The version's module and those of its stages; of packages only those with code."""
    files = sorted(version.path.parent.glob("*.py"), key=lambda file: (file != version.path, file))
    return [file for file in files if file.stem != "__init__" or _has_code(file)]


def _has_code(file: Path) -> bool:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return len(tree.body) > (ast.get_docstring(tree) is not None)


def _shared_files(versions: Iterable[Version]) -> list[Path]:
    """Files of a design that are no version's own: stage helpers, the package's docstring."""
    own = {file for version in versions for file in _own_files(version)}
    used = {file for version in versions for file in version.source_files()}
    return sorted(file for file in used - own if file.stem != "__init__" or _has_code(file))


def pages(site: Site) -> list[Page]:
    """Index, then each design with its versions."""
    found = [_index(site)]
    for design, versions in site.designs().items():
        found.append(_design(site, design, versions))
        before = None
        for version in versions:
            found.append(_version(site, version, before))
            before = version
    return found


def _purpose(versions: list[Version]) -> str:
    return docstring(versions[0].path.parents[1] / "__init__.py")


def _index(site: Site) -> Page:
    path = "kernels/index.md"
    link = site.link(path)
    found = compare(site, devices.default_for_arch("sm_90"))
    rows = []
    for design, versions in site.designs().items():
        latest = versions[-1]
        rows.append(
            [
                comparison.design_link(site, design, link),
                cell(_purpose(versions)),
                cell(latest.language),
                _version_link(latest, link),
                _best_versions(versions, found, link),
                _preferred(versions, found),
                _fastest(design, found),
                str(len(site.runs_of(design))),
            ]
        )
    head = [
        "Design", "What it is", "Language", "Latest", "Fastest", "Model prefers at",
        "Measured fastest at", "Records",
    ]  # fmt: skip
    counts = ", ".join(str(choice.s) for choice in found.measured)
    return Page(
        path,
        sections(
            meta(description="Every kernel design and version, with what it shows"),
            "# Kernels",
            "A design is one way to compute attention, a version one step of its history: each "
            "teaches one thing, and says what was predicted, what came of it, and which record "
            "proves it.",
            table(head, rows),
            "“Fastest” is the version of the design with the shortest time on record, of those "
            "within noise of it the newest. “Model prefers at” names the query counts s "
            "at which the design's problem is the one to "
            f"solve by the [cost analysis]({link('knowledge/regimes.md')}); split designs of the "
            "same problem share the entry. “Measured fastest at” names those at which one of its "
            "versions is the fastest of all. All three are about "
            f"{found.device.name}, b={found.shape.b}, h={found.shape.h}, t={comparison.CONTEXT}; "
            + (f"measured were s = {counts}." if counts else "nothing is measured there yet."),
            comparison.what_times_cover(site, link),
            "Run any of them, without a GPU: `nox -s profile -- DESIGN VERSION`. How to add one "
            f"stands under [contributing]({link('CONTRIBUTING.md')}).",
        ),
        nav=("Kernels",),
    )


def _version_link(version: Version, link: Link) -> str:
    return f"[{version.version}]({link(repo_name(version.path))})"


def _best_versions(versions: list[Version], found: Comparison, link: Link) -> str:
    """Fastest version of a design, with the query counts where that is not always the same."""
    best = found.best_versions(versions[0].design)
    links = [(_version_link(v, link), best[v.version]) for v in versions if v.version in best]
    if len(links) == 1:
        return links[0][0]
    shown = (f"{text} at s = {', '.join(map(str, counts))}" for text, counts in links)
    return "; ".join(shown) or "not measured"


def _preferred(versions: list[Version], found: Comparison) -> str:
    kernel = analysed(versions)
    if kernel is None:
        return ""
    counts = found.preferred_at(kernel)
    return f"s = {', '.join(map(str, counts))}" if counts else "no s of the table"


def _fastest(design: str, found: Comparison) -> str:
    if not found.measured:
        return "not measured"
    counts = found.fastest_at(design)
    return f"s = {', '.join(map(str, counts))}" if counts else "no s measured"


def _design(site: Site, design: str, versions: list[Version]) -> Page:
    path = design_page(design)
    link = site.link(path)
    devlog = site.catalogue.devlogs.get(design)
    folder = repo_name(versions[0].path.parents[1])
    overview = devlogs.introduction(devlog, site.catalogue, link) if devlog else ""
    files = _shared_files(versions)
    runs = site.runs_of(design)
    return Page(
        path,
        sections(
            meta(title=design, description=_purpose(versions)),
            f"# {design}",
            _purpose(versions),
            overview,
            "## Regime",
            _regime(site, versions, link),
            "## Versions",
            _timeline(site, versions, link),
            "## Shared stage helpers { data-search-exclude }" if files else "",
            tabs({file.name: annotated(file, repo_name(file), runs) for file in files})
            if files
            else "",
        ),
        source=devlog.name if devlog else f"{folder}/__init__.py",
        nav=("Kernels", design),
    )


def _regime(site: Site, versions: list[Version], link: Link) -> str:
    if analysed(versions) is None:
        return "The cost analysis does not cover this design."
    compared = [compare(site, devices.default_for_arch(arch)) for arch in ARCHS]
    rows = [
        [
            f"[{cell(found.device.name)}]({link(f'knowledge/devices/{found.device.key}.toml')})",
            f"{found.shape.b}",
            _preferred(versions, found),
            _fastest(versions[0].design, found),
            _best_versions(versions, found, link),
        ]
        for found in compared
    ]
    return sections(
        f"Query tokens s at which the cost model prefers this design's problem, and at which the "
        f"records have it fastest of all designs, for b sequences, h={compared[0].shape.h}, "
        f"t={comparison.CONTEXT} (other sizes: [regimes]({link('knowledge/regimes.md')})):",
        table(["Device", "b", "Model prefers at", "Measured fastest at", "Fastest version"], rows),
    )


def _timeline(site: Site, versions: list[Version], link: Link) -> str:
    devlog = site.catalogue.devlogs.get(versions[0].design)
    entries = {entry.version: entry for entry in devlog.entries} if devlog else {}
    rows = []
    for version in versions:
        entry = entries.get(version.version)
        verdict = ("negative: " if entry.negative else "") + cell(entry.verdict) if entry else ""
        runs = site.runs_of(version.design, version.version)
        rows.append(
            [
                _version_link(version, link),
                (f"**{verdict}**<br>" if verdict else "") + cell(docstring(version.path)),
                *(_compiled(runs, arch) for arch in ARCHS),
            ]
        )
    compiled = [f"{arch}: registers, spills" for arch in ARCHS]
    return sections(
        table(["Version", "Verdict, and what it shows", *compiled], rows),
        "Registers and spill instructions are the largest over all stages and problems compiled.",
        _gained(site, versions, link),
    )


def _gained(site: Site, versions: list[Version], link: Link) -> str:
    """Time before over after: a row a problem, a column a step of the history."""
    steps = {new.version: _gains(site, old, new) for old, new in pairwise(versions)}
    compared = [run.record for found in steps.values() for run, _ in found]
    if not compared:
        return ""
    varying = problems.varying(compared)
    several = len({record.target for record in compared}) > 1
    ratios: dict[tuple[str, Problem, str], dict[str, str]] = {}
    for version, found in steps.items():
        for run, ratio in found:
            key = (run.record.target, problems.problem_of(run.record), _at(run, varying, several))
            ratios.setdefault(key, {})[version] = problems.record_link(run, link, f"{ratio:.2f}x")
    rows = [
        [key[-1], *(shown.get(version, "") for version in steps)]
        for key, shown in sorted(ratios.items())
    ]
    head = ["At", *(f"{old.version} over {new.version}" for old, new in pairwise(versions))]
    return sections(
        "### What each step gained",
        "Time of the version before over that of the version: more than one is a gain. "
        + _conditions(compared, varying, several),
        table(head, rows),
    )


def _at(run: Run, varying: list[str], several: bool) -> str:
    where = [problems.target_name(run.record.target)] if several else []
    return cell(", ".join(filter(None, [*where, problems.sizes(run.record, varying)])))


def _conditions(compared: list[Record], varying: list[str], several: bool) -> str:
    """What all ratios of time have in common."""
    same = [name for name in (*problems.SIZES, "causal") if name not in varying]
    where = "" if several else f" on {problems.target_name(compared[0].target)}"
    common = problems.sizes(compared[0], same)
    return cell(f"Ratios of time compare records of one run only, all{where} at {common}.")


def _compiled(runs: list[Run], arch: str) -> str:
    found = [run for run in runs if run.record.target == f"static/{arch}" and run.outcome]
    values = []
    for metric in ("registers", "spill_instructions"):
        worst = [value for run in found if (value := problems.worst(run, metric)) is not None]
        if worst:
            values.append(f"{max(worst):g}")
    stale = " (stale)" if values and all(run.stale for run in found) else ""
    return ", ".join(values) + stale


def _gains(site: Site, before: Version, after: Version) -> list[tuple[Run, float]]:
    """Runs with the ratio of total time of the version before to theirs, each within one run."""
    old = {
        (run.record.run, run.record.target, run.record.mode, problems.problem_of(run.record)): run
        for run in site.runs_of(before.design, before.version)
        if run.is_timed and run.record.run
    }
    found = []
    for run in site.runs_of(after.design, after.version):
        record = run.record
        if not run.is_timed or not record.run:
            continue
        other = old.get((record.run, record.target, record.mode, problems.problem_of(record)))
        if other is not None:
            found.append((run, other.total.median_us / run.total.median_us))
    return found


def _version(site: Site, version: Version, before: Version | None) -> Page:
    path = version_page(version)
    link = site.link(path)
    runs = site.runs_of(version.design, version.version)
    devlog = site.catalogue.devlogs.get(version.design)
    entry = devlogs.entry(devlog, version.version, site.catalogue, link) if devlog else ""
    sources = _own_files(version)
    changes = version_diff(before, version) if before else ""
    return Page(
        path,
        sections(
            meta(title=title(version), description=docstring(version.path)),
            f"# {title(version)}",
            docstring(version.path),
            _identity(version, link),
            "## Static facts",
            _static(site, version, before, link),
            "## Results",
            _results(runs, link),
            _checks(runs, link),
            _failures(runs, link),
            "## Patterns",
            _patterns(site, version, link),
            "## Devlog",
            entry or "The devlog has no entry for this version yet.",
            "## Source { data-search-exclude }",
            _source_note(runs),
            tabs({file.name: annotated(file, repo_name(file), runs) for file in sources}),
            f"## Changes since {before.version} {{ data-search-exclude }}" if before else "",
            (changes or "The sources differ in names only.") if before else "",
            "Names of the earlier version are shown as the later one has them." if changes else "",
        ),
        source=repo_name(version.path),
        nav=("Kernels", version.design, version.version),
    )


def _identity(version: Version, link: Link) -> str:
    run = f"nox -s profile -- {version.design} {version.version}"
    return (
        f"Design [{version.design}]({link(repo_name(version.path.parents[1]))}), layer "
        f"{version.layer}, language {version.language}. Check, compile and predict it without a "
        f"GPU: `{run}`."
    )


def _where_run(run: Run) -> list[str]:
    record = run.record
    return [
        cell(problems.target_name(record.target)),
        cell(problems.problem_text(record)),
    ]


def _static(site: Site, version: Version, before: Version | None, link: Link) -> str:
    runs = site.runs_of(version.design, version.version)
    earlier = site.runs_of(before.design, before.version) if before else []
    tables = facts_tables(runs, version, earlier, before, link)
    if not tables:
        return _none("compiled")
    compiled = [run.record for run in runs if run.record.mode == "static"]
    same = [name for name in problems.SIZES if name not in problems.varying(compiled)]
    common = problems.sizes(compiled[0], same) if compiled else ""
    changes = " Where the version before differs, its figure stands first." if before else ""
    return sections(
        f"At {common}.{changes}" if common else changes.strip(),
        *(f"### {cell(name)}\n\n{shown}" for name, shown in tables.items()),
    )


def _none(what: str) -> str:
    return f"No record of this version was {what} yet."


def _results(runs: list[Run], link: Link) -> str:
    timed = [run for run in runs if run.is_timed]
    rows = []
    for run in timed:
        assert run.outcome is not None
        total = run.total
        rows.append(
            [
                *_where_run(run),
                cell(run.record.mode),
                problems.duration(total),
                f"{problems.amount('total_us', total.min_us)} to "
                f"{problems.amount('total_us', total.max_us)}, {total.samples} samples",
                problems.rate(run, "flops"),
                problems.rate(run, "bytes"),
                problems.fraction(run),
                "<br>".join(f"{cell(peer.name)} {problems.duration(peer.duration)}"
                            for peer in run.outcome.peers),
                problems.record_link(run, link),
            ]
        )  # fmt: skip
    head = [
        "Device", "Problem", "Mode", "Median", "Range", "Arithmetic", problems.LEAST_BYTES,
        "Of the roofline", "Peers in the same run", "Record",
    ]  # fmt: skip
    return sections(
        table(head, rows) or _none("timed"),
        problems.RATES if rows else "",
        problems.above_ceiling(timed, link),
        _stages(timed, link),
    )


def _stages(timed: list[Run], link: Link) -> str:
    rows = []
    for run in timed:
        assert run.outcome is not None
        for stage in run.outcome.stages:
            if stage.duration is None:
                continue
            time = stage.duration.median_us
            rows.append(
                [
                    *_where_run(run),
                    cell(run.record.mode),
                    cell(stage.name),
                    cell(tiling_text(stage.tiling)),
                    " x ".join(map(str, stage.grid)),
                    problems.duration(stage.duration),
                    problems.amount("achieved_tflops", stage.flops / time / 1e6),
                    problems.amount("achieved_gbps", stage.bytes / time / 1e3),
                    problems.record_link(run, link),
                ]
            )
    head = [
        "Device", "Problem", "Mode", "Stage", "Tiling", "Grid", "Median", "Arithmetic",
        problems.LEAST_BYTES, "Record",
    ]  # fmt: skip
    shown = table(head, rows)
    return f"### Stages\n\n{shown}" if shown else ""


def _checks(runs: list[Run], link: Link) -> str:
    """Checked runs by target and reference; those that failed one by one."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if (found := run.record.outcome.correctness) is not None:
            groups.setdefault((run.record.target, found.against), []).append(run)
    rows, failed = [], []
    for (target, against), group in groups.items():
        checks = [run.record.outcome.correctness for run in group]
        made = [check for check in checks if check is not None]
        cases = [case.max_relative_error for check in made for case in check.cases]
        errors = [error for error in cases if error is not None]
        rows.append(
            [
                cell(problems.target_name(target)),
                cell(against),
                f"{sum(check.status == 'passed' for check in made)} of {len(made)} passed",
                str(len(cases)),
                f"{max(errors):.1e}" if len(errors) == len(cases) else "not finite",
                f"{max(check.tolerance for check in made):.0e}",
            ]
        )
        failed += [
            [*_where_run(run), cell(correctness_text(check)), problems.record_link(run, link)]
            for run, check in zip(group, checks, strict=True)
            if check is not None and check.status == "failed"
        ]
    head = ["Where", "Against", "Records", "Problems", "Largest relative error", "Allowed"]
    if not rows:
        return ""
    return sections(
        "### Correctness",
        table(head, rows),
        table(["Where", "Problem", "What failed", "Record"], failed),
    )


def _failures(runs: list[Run], link: Link) -> str:
    rows = [
        [*_where_run(run), cell(outcome.stage or ""), cell(outcome.error),
         problems.record_link(run, link)]
        for run in runs
        if isinstance(outcome := run.record.outcome, Failed)
    ]  # fmt: skip
    shown = table(["Where", "Problem", "Stage", "Error", "Record"], rows)
    return f"### Runs that failed\n\n{shown}" if shown else ""


def _patterns(site: Site, version: Version, link: Link) -> str:
    applied, violated = [], []
    for page in site.catalogue.patterns:
        entry = f"- [{cell(page.pattern.title)}]({link(page.name)})"
        if version.key in page.pattern.used_by:
            applied.append(entry)
        if version.key in page.pattern.violated_by:
            violated.append(entry)
    return sections(
        "Applies:" if applied else "No pattern of the catalogue names this version as applying it.",
        "\n".join(applied),
        "Shows or leaves out:" if violated else "",
        "\n".join(violated),
    )


def _source_note(runs: list[Run]) -> str:
    compiled = [run for run in runs if run.record.mode == "static"]
    if compiled and all(run.stale for run in compiled):
        return (
            "The records of compiling this version are stale, so that their remarks no longer "
            "belong to these lines; `nox -s profile` makes them anew."
        )
    if compiled:
        return "Marked lines carry what the compilers said about them, by arch."
    return ""
