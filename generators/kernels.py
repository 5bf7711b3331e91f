"""Kernels: an index, a page a design, a page a version."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from generators import devlogs, problems
from generators.compiled import facts_table
from generators.page import Page
from generators.source import annotated, repo_name, tabs, version_diff
from generators.text import cell, docstring, meta, sections, table
from mla_var3 import devices, mla
from mla_var3.knowledge import regimes
from mla_var3.knowledge.evidence import Link
from mla_var3.profiling.report import correctness_text, tiling_text
from mla_var3.records import Failed
from mla_var3.registry import Version

if TYPE_CHECKING:
    from generators.site import Run, Site

#: Archs whose default devices show the regime of a design.
ARCHS = ("sm_90", "sm_100", "sm_120")
#: Context length at which it is shown.
CONTEXT = 4096
#: Kernel of the cost analysis that stands for all designs of a problem.
_ANALYSED: dict[type, regimes.Kernel] = {
    mla.LatentPlan: "flash_mla",
    mla.DecompressedPlan: "flash_attention",
    mla.MixedPlan: "mla_var6_plus",
}


def design_page(design: str) -> str:
    """Path of a design's page."""
    return f"kernels/{design}/index.md"


def version_page(version: Version) -> str:
    """Path of a version's page."""
    return f"kernels/{version.design}/{version.version}.md"


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
    rows = []
    for design, versions in site.designs().items():
        latest = versions[-1]
        rows.append(
            [
                f"[{cell(design)}]({link(repo_name(versions[0].path.parents[1]))})",
                cell(_purpose(versions)),
                cell(latest.language),
                f"[{latest.version}]({link(repo_name(latest.path))})",
                _where(design, versions, devices.default_for_arch("sm_90").key),
                str(len(site.runs_of(design))),
            ]
        )
    head = ["Design", "What it is", "Language", "Latest", "To use at", "Records"]
    shape = regimes.Shape()
    note = (
        f"“To use at” is computed by the [cost analysis]({link('knowledge/regimes.md')}) for "
        f"{devices.default_for_arch('sm_90').name}, b={shape.b}, h={shape.h}, t={CONTEXT}: the "
        "query counts s of its table at which the design's problem is the one to solve. Split "
        "designs of the same problem share the entry; they differ when blocks are few."
    )
    return Page(
        path,
        sections(
            meta(description="Every kernel design and version, with what it shows"),
            "# Kernels",
            "A design is one way to compute attention, a version one step of its history: each "
            "teaches one thing, and says what was predicted, what came of it, and which record "
            "proves it.",
            table(head, rows),
            note,
            "Run any of them, without a GPU: `nox -s profile -- DESIGN VERSION`. How to add one "
            f"stands under [contributing]({link('CONTRIBUTING.md')}).",
        ),
        nav=("Kernels",),
    )


def analysed(versions: list[Version]) -> regimes.Kernel | None:
    """Kernel of the cost analysis with the problem of a design's base version."""
    plan = versions[0].plan_class()
    return next((name for kind, name in _ANALYSED.items() if issubclass(plan, kind)), None)


def _where(design: str, versions: list[Version], device: str) -> str:
    kernel = analysed(versions)
    if kernel is None:
        return ""
    ceilings, shape = regimes.ceilings_of(device), regimes.Shape()
    cells = (regimes.cell(shape, s, CONTEXT, ceilings) for s in regimes.S_VALUES)
    wins = [str(found.s) for found in cells if found.winner == kernel]
    return f"s = {', '.join(wins)}" if wins else "no s of the table"


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
            _regime(design, versions, link),
            "## Versions",
            _timeline(site, versions, link),
            "Registers and spill instructions are the largest over all stages and problems "
            "compiled. Ratios of time compare records of one run only.",
            "## Shared stage helpers { data-search-exclude }" if files else "",
            tabs({file.name: annotated(file, repo_name(file), runs) for file in files})
            if files
            else "",
        ),
        source=devlog.name if devlog else f"{folder}/__init__.py",
        nav=("Kernels", design),
    )


def _regime(design: str, versions: list[Version], link: Link) -> str:
    if analysed(versions) is None:
        return "The cost analysis does not cover this design."
    rows = [
        [f"[{cell(device.name)}]({link(f'knowledge/devices/{device.key}.toml')})",
         _where(design, versions, device.key)]
        for device in (devices.default_for_arch(arch) for arch in ARCHS)
    ]  # fmt: skip
    shape = regimes.Shape()
    return sections(
        f"Query tokens at which the cost model prefers this design's problem, for b={shape.b}, "
        f"h={shape.h}, t={CONTEXT} (other sizes: [regimes]({link('knowledge/regimes.md')})):",
        table(["Device", "To use at"], rows),
    )


def _timeline(site: Site, versions: list[Version], link: Link) -> str:
    devlog = site.catalogue.devlogs.get(versions[0].design)
    entries = {entry.version: entry for entry in devlog.entries} if devlog else {}
    rows, before = [], None
    for version in versions:
        entry = entries.get(version.version)
        verdict = (
            ("**negative:** " if entry.negative else "") + cell(entry.verdict) if entry else ""
        )
        runs = site.runs_of(version.design, version.version)
        rows.append(
            [
                f"[{version.version}]({link(repo_name(version.path))})",
                (f"**{verdict}**<br>" if verdict else "") + cell(docstring(version.path)),
                _gain(site, before, version, link) if before else "",
                *(_compiled(runs, arch) for arch in ARCHS),
            ]
        )
        before = version
    compiled = [f"{arch}: registers, spills" for arch in ARCHS]
    head = ["Version", "Verdict, and what it shows", "Time before over after", *compiled]
    return table(head, rows)


def _compiled(runs: list[Run], arch: str) -> str:
    found = [run for run in runs if run.record.target == f"static/{arch}" and run.outcome]
    values = []
    for metric in ("registers", "spill_instructions"):
        worst = [value for run in found if (value := problems.worst(run, metric)) is not None]
        if worst:
            values.append(f"{max(worst):g}")
    stale = " (stale)" if values and all(run.stale for run in found) else ""
    return ", ".join(values) + stale


def _gain(site: Site, before: Version, after: Version, link: Link) -> str:
    """Ratios of total time against the version before, each from one run."""
    old = {
        (run.record.run, run.record.target, run.record.mode, problems.problem_of(run.record)): run
        for run in site.runs_of(before.design, before.version)
        if run.is_timed and run.record.run
    }
    found = []
    for run in site.runs_of(after.design, after.version):
        record = run.record
        other = old.get((record.run, record.target, record.mode, problems.problem_of(record)))
        if other is None or not run.is_timed:
            continue
        ratio = _total_us(other) / _total_us(run)
        text = problems.record_link(run, link, f"{ratio:.2f}x")
        found.append(f"{text} {cell(problems.target_name(record.target))}, "
                     f"{cell(str(problems.problem_of(record)))}")  # fmt: skip
    return "<br>".join(found)


def _total_us(run: Run) -> float:
    assert run.outcome is not None
    assert run.outcome.total is not None
    return run.outcome.total.median_us


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
    shown = facts_table(runs, version, earlier, before, link)
    if not shown:
        return _none("compiled")
    compiled = [run.record for run in runs if run.record.mode == "static"]
    same = [name for name in problems.SIZES if name not in problems.varying(compiled)]
    common = problems.sizes(compiled[0], same) if compiled else ""
    changes = " Where the version before differs, its figure stands first." if before else ""
    return sections(f"At {common}.{changes}" if common else changes.strip(), shown)


def _none(what: str) -> str:
    return f"No record of this version was {what} yet."


def _results(runs: list[Run], link: Link) -> str:
    timed = [run for run in runs if run.is_timed]
    rows = []
    for run in timed:
        assert run.outcome is not None
        total = run.outcome.total
        assert total is not None
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
        "Device", "Problem", "Mode", "Median", "Range", "Arithmetic", "DRAM traffic",
        "Of the roofline", "Peers in the same run", "Record",
    ]  # fmt: skip
    return sections(table(head, rows) or _none("timed"), _stages(timed, link))


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
        "Device", "Problem", "Stage", "Tiling", "Grid", "Median", "Arithmetic", "DRAM traffic",
        "Record",
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
        errors = [case.max_relative_error for check in made for case in check.cases]
        rows.append(
            [
                cell(problems.target_name(target)),
                cell(against),
                f"{sum(check.status == 'passed' for check in made)} of {len(made)} passed",
                str(len(errors)),
                f"{max(errors):.1e}" if errors else "",
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
