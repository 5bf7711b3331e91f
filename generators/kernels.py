"""Kernels: an index, a page per workload, per design and per version."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from generators import analyses, climb, devlogs, diff, ladder, problems, schedule, tiles, verdicts
from generators.compiled import facts_tables
from generators.devlogs import Story
from generators.page import Page
from generators.problems import Problem
from generators.source import annotated, repo_name, tabs
from generators.text import cell, code, docstring, fold, meta, sections, table
from generators.verdicts import Verdict, together
from mla_var3.knowledge.evidence import Link
from mla_var3.languages import languages
from mla_var3.records import Correctness, Failed, Record, Skipped
from mla_var3.runtime import registry, tiling_text
from mla_var3.runtime.registry import Version
from mla_var3.workloads import Workload, workloads

if TYPE_CHECKING:
    from generators.site import Run, Site


def workload_page(layer: str) -> str:
    """Path of a workload's page."""
    return f"kernels/{layer}/index.md"


def design_page(version: Version) -> str:
    """Path of the page of a version's design."""
    return f"kernels/{version.layer}/{version.language}/{version.design}/index.md"


def version_page(version: Version) -> str:
    """Path of a version's page."""
    return design_page(version).replace("index.md", f"{version.version}.md")


def language_title(language: str) -> str:
    """A language in prose."""
    found = languages().get(language)
    return found.title if found else language


def compiled_for(version: Version) -> tuple[str, ...]:
    """The archs that a version's language compiles for when nobody asks for one."""
    found = languages().get(version.language)
    return found.archs if found else ()


def next_version(versions: list[Version]) -> str:
    """What the next version of a design will be called."""
    return f"v{int(versions[-1].version.removeprefix('v')) + 1}"


def places(site: Site) -> Mapping[str, str]:
    """Workloads, sources and devlogs; an entry of a devlog stands on its version's page."""
    found = {"kernels": "kernels/index.md"}
    for layer in site.layers():
        found[f"kernels#{layer}"] = workload_page(layer)
    for design, versions in site.designs().items():
        page = design_page(versions[0])
        found[repo_name(versions[0].path.parents[1])] = page
        home = versions[0].path.parents[1]
        shared = [file for file in _shared_files(versions) if home in file.parents]
        found |= {repo_name(file): page for file in shared}
        for version in versions:
            found[repo_name(version.path.parent)] = version_page(version)
            found |= {repo_name(file): version_page(version) for file in _own_files(version)}
        if devlog := site.catalogue.devlogs.get(design):
            found[devlog.name] = page
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
    """Index, then each workload with its designs and their versions."""
    found = [_index(site)]
    for layer, designs in site.layers().items():
        found.append(_workload(site, layer, designs))
        for versions in designs:
            found.append(_design(site, versions))
            for before, version, after in zip(
                [None, *versions], versions, [*versions[1:], None], strict=False
            ):
                found.append(_version(site, version, before, after))
    return found


def _purpose(versions: list[Version]) -> str:
    return docstring(versions[0].path.parents[1] / "__init__.py")


def _version_link(version: Version, link: Link) -> str:
    return f"[{version.version}]({link(repo_name(version.path))})"


def design_link(version: Version, link: Link) -> str:
    """The design of a version, linked to its page."""
    return f"[{cell(version.design_key)}]({link(repo_name(version.path.parents[1]))})"


def run_version(site: Site, run: Run, link: Link) -> str:
    """The version of a run, linked to its page where it still exists."""
    version = site.version_of(run)
    if version is None:
        return cell(run.record.kernel.name)
    return f"[{cell(version.key)}]({link(repo_name(version.path))})"


def _index(site: Site) -> Page:
    path = "kernels/index.md"
    link = site.link(path)
    parts = [
        f"## {problems.layer_title(layer)}\n\n{_summary(layer)} "
        f"[More on it]({link(f'kernels#{layer}')}).\n\n{_designs(site, designs, link)}"
        for layer, designs in site.layers().items()
    ]
    return Page(
        path,
        sections(
            meta(description="Every kernel design and version, with what it shows"),
            "# Kernels",
            "A design is one way to compute a workload, a version one step of its history: each "
            "teaches one thing, and says what was predicted, what came of it, and which record "
            "proves it.",
            *parts,
            "Run any of them, without a GPU: `nox -s profile -- DESIGN VERSION`. How to add one "
            f"stands under [contributing]({link('CONTRIBUTING.md')}).",
        ),
        nav=("Kernels",),
    )


def _summary(layer: str) -> str:
    workload = workloads().get(layer)
    return cell(workload.summary) if workload else ""


def _designs(site: Site, designs: list[list[Version]], link: Link) -> str:
    """The designs of one workload, by language."""
    ordered = sorted(designs, key=lambda versions: languages_in_order(versions[0]))
    rows = [
        [
            cell(language_title(versions[0].language)),
            design_link(versions[0], link),
            cell(_purpose(versions)),
            _version_link(versions[-1], link),
            str(sum(len(site.runs_of(version)) for version in versions)),
        ]
        for versions in ordered
    ]
    return table(["Language", "Design", "What it is", "Latest", "Records"], rows)


def languages_in_order(version: Version) -> tuple[str, str]:
    """Sort key: by language, the one that a bare name stands for first, then by design."""
    first = "" if version.language == registry.PREFERRED else language_title(version.language)
    return first, version.design


def what_times_cover(designs: Iterable[list[Version]], link: Link) -> str:
    """One sentence for wherever times of several designs of a workload stand side by side."""
    covered: dict[str, list[str]] = {}
    for versions in designs:
        covers = versions[0].plan_class().covers
        covered.setdefault(covers, []).append(design_link(versions[0], link))
    if len(covered) < 2:
        return "".join(f"A time covers {cell(what)}." for what in covered)
    parts = [f"{cell(what)} ({', '.join(found)})" for what, found in covered.items()]
    return f"Times of designs cover different work: {'; '.join(parts)}."


def _workload(site: Site, layer: str, designs: list[list[Version]]) -> Page:
    path, title = workload_page(layer), problems.layer_title(layer)
    link, analysis = site.link(path), analyses.find(layer)
    return Page(
        path,
        sections(
            meta(title=title, description=f"{title}: axes, regimes and designs"),
            f"# {cell(title)}",
            _summary(layer),
            "## Designs",
            _designs(site, designs, link),
            "## The ladder",
            ladder.section(site, designs, link, title=f"Time of every version, {title}")
            or "No version was timed yet.",
            what_times_cover(designs, link),
            analysis.workload(site, link) if analysis else "",
            _axes(workloads()[layer]) if layer in workloads() else "",
        ),
        nav=("Kernels", title),
    )


def _axes(workload: Workload) -> str:
    """The axes and regimes of a workload."""
    axes = [[code(name), cell(meaning)] for name, meaning in workload.axes.items()]
    regimes = [[code(regime.name), cell(regime.meaning)] for regime in workload.regimes]
    return sections(
        "## Axes",
        "Each is a flag of every design; a design may have more of its own.",
        table(["Axis", "Meaning"], axes),
        "## Regimes" if regimes else "",
        table(["Regime", "Problems"], regimes),
    )


def _nav(version: Version, *rest: str) -> tuple[str, ...]:
    """Place in the navigation: by workload, then by language."""
    layer, language = problems.layer_title(version.layer), language_title(version.language)
    return ("Kernels", layer, language, version.design, *rest)


def _design(site: Site, versions: list[Version]) -> Page:
    first, path = versions[0], design_page(versions[0])
    link, analysis = site.link(path), analyses.find(first.layer)
    devlog = site.catalogue.devlogs.get(first.design_key)
    folder = repo_name(first.path.parents[1])
    overview = devlogs.introduction(devlog, site.catalogue, link) if devlog else ""
    files = _shared_files(versions)
    runs = [run for version in versions for run in site.runs_of(version)]
    return Page(
        path,
        sections(
            meta(title=first.design_key, description=_purpose(versions)),
            f"# {cell(first.design_key)}",
            cell(_purpose(versions)),
            f"Computes [{cell(problems.layer_title(first.layer))}]({link(f'kernels#{first.layer}')}"
            f"), in {cell(language_title(first.language))}.",
            "## The ladder",
            _ladder(site, versions, link),
            climb.figure(site, versions),
            "## Versions",
            _timeline(site, versions, link),
            analysis.design(site, versions, link) if analysis else "",
            "## About the design" if overview else "",
            overview,
            "## Shared stage helpers { data-search-exclude }" if files else "",
            tabs({file.name: annotated(file, repo_name(file), runs) for file in files})
            if files
            else "",
        ),
        source=devlog.name if devlog else f"{folder}/__init__.py",
        nav=_nav(first),
    )


def _ladder(site: Site, versions: list[Version], link: Link) -> str:
    shown = ladder.section(
        site, [versions], link, title=f"Time of every version of {versions[0].design_key}",
        every=True,
    )  # fmt: skip
    return shown or "No version of this design was timed yet."


def _timeline(site: Site, versions: list[Version], link: Link) -> str:
    devlog = site.catalogue.devlogs.get(versions[0].design_key)
    entries = {entry.version: entry for entry in devlog.entries} if devlog else {}
    archs = compiled_for(versions[0])
    rows = []
    for version in versions:
        entry = entries.get(version.version)
        verdict = ("negative: " if entry.negative else "") + cell(entry.verdict) if entry else ""
        runs = site.runs_of(version)
        rows.append(
            [
                _version_link(version, link),
                (f"**{verdict}**<br>" if verdict else "") + cell(docstring(version.path)),
                *(_compiled(runs, arch) for arch in archs),
            ]
        )
    compiled = [f"{arch}: registers, spills" for arch in archs]
    return sections(
        table(["Version", "Verdict, and what it shows", *compiled], rows),
        "Registers and spill instructions are the largest over all stages and problems compiled."
        if archs
        else "",
        _gained(site, versions, link),
    )


def _gained(site: Site, versions: list[Version], link: Link) -> str:
    """What each step of the history gained: a row per problem, a column per step."""
    steps = {new.version: verdicts.of(site, new, old).steps for old, new in pairwise(versions)}
    compared = [step.run.record for found in steps.values() for step in found]
    if not compared:
        return ""
    varying = problems.varying_shared(compared)
    several = len({record.target for record in compared}) > 1
    said: dict[tuple[str, Problem, str], dict[str, str]] = {}
    for version, found in steps.items():
        for step in found:
            run, at = step.run, _at(step.run, varying, several)
            key = (run.record.target, problems.problem_of(run.record), at)
            said.setdefault(key, {})[version] = problems.record_link(run, link, step.said)
    rows = [
        [key[-1], *(shown.get(version, "") for version in steps)]
        for key, shown in sorted(said.items(), key=lambda item: (item[0][0], item[0][1].order))
    ]
    head = ["At", *(f"{new.version} against {old.version}" for old, new in pairwise(versions))]
    return sections(
        "### What each step gained",
        f"Times of one run against each other. {_conditions(compared, varying, several)}",
        table(head, rows),
    )


def _at(run: Run, varying: list[str], several: bool) -> str:
    where = [problems.target_name(run.record.target)] if several else []
    at = problems.sizes(run.record, varying)
    return cell(", ".join(filter(None, [*where, at]))) or "all"


def _conditions(compared: list[Record], varying: list[str], several: bool) -> str:
    """What all comparisons have in common."""
    shared = problems.compared(compared[0].kernel.layer, compared[0].problem)
    common = problems.sizes(compared[0], [name for name in shared if name not in varying])
    where = "" if several else f" on {problems.target_name(compared[0].target)}"
    return cell(f"All{where} at {common}." if common else "")


def _compiled(runs: list[Run], arch: str) -> str:
    found = [run for run in runs if run.record.target == f"static/{arch}" and run.outcome]
    values = []
    for metric in ("registers", "spill_instructions"):
        worst = [value for run in found if (value := problems.worst(run, metric)) is not None]
        if worst:
            values.append(f"{max(worst):g}")
    stale = " (stale)" if values and all(run.stale for run in found) else ""
    return ", ".join(values) + stale


def _version(site: Site, version: Version, before: Version | None, after: Version | None) -> Page:
    path = version_page(version)
    link, runs = site.link(path), site.runs_of(version)
    devlog = site.catalogue.devlogs.get(version.design_key)
    story = devlogs.entry(devlog, version.version, site.catalogue, link) if devlog else None
    found = verdicts.of(site, version, before)
    sources = _own_files(version)
    neighbors = [other for other in (before, after) if other is not None]
    return Page(
        path,
        sections(
            meta(title=version.key, description=docstring(version.path)),
            f"# {cell(version.key)}",
            ladder.idea(version),
            _card(site, version, found, story, neighbors, link),
            f"## Against {before.version}, problem by problem" if found.steps and before else "",
            verdicts.chips(found.steps),
            _chips_note(found),
            "## The story { #devlog }",
            _story(story),
            _pictured(
                "One launch over time",
                schedule.section(site, version, found.largest.run if found.largest else None, link),
            ),
            f"## What changed in the code since {before.version} {{ data-search-exclude }}"
            if before
            else "",
            diff.section(site, before, version, story, link) if before else "",
            _pictured("Its tiles on each arch", tiles.section(site, version, link)),
            "## Facts",
            _facts(site, version, before, link),
            "## Source { data-search-exclude }",
            _source_note(runs),
            tabs({file.name: annotated(file, repo_name(file), runs) for file in sources}),
        ),
        source=repo_name(version.path),
        nav=_nav(version, version.version),
    )


def _pictured(title: str, picture: str) -> str:
    return f"## {title}\n\n{picture}" if picture else ""


#: Sections of an entry that the verdict card sums up, with what the card calls them.
_SUMMED = {"Changed": "What changed", "Why": "Why", "Predicted": "Predicted"}


def _card(
    site: Site, version: Version, found: Verdict, story: Story | None, neighbors: list[Version],
    link: Link,
) -> str:  # fmt: skip
    """Verdict first: how it went, in one sentence, then why, and what to read next."""
    parts = {name: story.lead(title) for name, title in _SUMMED.items()} if story else {}
    parts["Measured"] = f"{found.headline}." if found.headline else _unmeasured(site, version)
    if story:
        parts["Learnt"] = story.lead("Insights")
    listed = "\n".join(f"-   **{name}**\n\n    {text}\n" for name, text in parts.items() if text)
    verdict = [f"**{story.verdict}**" if story else "", found.badge]
    return sections(
        f'<div class="verdict verdict--{found.word.split()[0]}" markdown="1">',
        " ".join(reversed([text for text in verdict if text])),
        _fastest_there(site, version, found, link),
        f'<div class="verdict__parts" markdown="1">\n\n{listed}\n</div>',
        _identity(version, link),
        "Read next: " + " · ".join([
            *(f"[{cell(other.key)}]({link(repo_name(other.path))})" for other in neighbors),
            f"[all of {cell(version.design_key)}]({link(repo_name(version.path.parents[1]))})",
            *_named_patterns(site, version, link),
        ]) + "\n{ data-search-exclude }",
        "</div>",
    )  # fmt: skip


def _unmeasured(site: Site, version: Version) -> str:
    timed = [run for run in site.runs_of(version) if run.is_timed]
    if not timed:
        return "Not timed yet."
    first = problems.fastest(timed)[0]
    return f"{problems.duration(first.total)} at {cell(site.problem_text(first))}."


def _fastest_there(site: Site, version: Version, found: Verdict, link: Link) -> str:
    """How far the version is from the fastest of its run, where the verdict was read."""
    runs = [run for run in site.runs_of(version) if run.is_timed]
    step = found.largest
    mine = step.run if step else next(iter(problems.fastest(runs)), None)
    if mine is None or mine.record.run is None:
        return ""
    same = [run for run in site.runs if run.is_timed and together(run) == together(mine)]
    best = min(same, key=lambda run: run.total.median_us)
    at = cell(str(problems.problem_of(mine.record)))
    if best is mine:
        return f"The fastest of its run at {at}: {problems.duration(mine.total)}."
    behind = problems.ratio(best.total.median_us, mine.total.median_us)
    return (
        f"At {at} it is {behind} than {run_version(site, best, link)}, the fastest of that run "
        f"({problems.duration(mine.total)} against {problems.duration(best.total)})."
    )


def _chips_note(found: Verdict) -> str:
    if not found.steps or found.before is None:
        return ""
    return (
        f"Change in time against {found.before.version}, each in one run; a minus is faster. Less "
        f"than {verdicts.NOISE:.0%} either way counts as no change."
    )


def _story(story: Story | None) -> str:
    if story is None:
        return "The devlog has no entry for this version yet."
    return sections(*(f"### {title}\n\n{text}" for title, text in story.parts.items() if text))


def _facts(site: Site, version: Version, before: Version | None, link: Link) -> str:
    """Everything measured and compiled, each folded under a line that sums it up."""
    runs = site.runs_of(version)
    timed = sum(run.is_timed for run in runs)
    compiled = [f"{arch} {text}" for arch in compiled_for(version) if (text := _sum(runs, arch))]
    checks = [check for run in runs if (check := checked(run)) is not None]
    passed = sum(check.status == "passed" for check in checks)
    return sections(
        fold("Times", f"{timed} records" if timed else "none yet", _results(site, runs, link)),
        fold("Static facts", "; ".join(compiled) or "none", _static(site, version, before, link)),
        fold("Correctness", f"{passed} of {len(checks)} records passed",
              _checks(site, runs, link)),
        fold("Runs that did not pass", "", _failures(site, runs, link)),
        fold("Patterns", "which it applies or shows", _patterns(site, version, link)),
    )  # fmt: skip


def _sum(runs: list[Run], arch: str) -> str:
    """Registers and spills of an arch in a few words."""
    found = _compiled(runs, arch).partition(" (")[0].split(", ")
    if len(found) != 2:
        return ""
    spills = "no spills" if found[1] == "0" else f"{found[1]} spill instructions"
    return f"{found[0]} registers, {spills}"


def _identity(version: Version, link: Link) -> str:
    run = f"nox -s profile -- {version.key}"
    made = f"Check, compile and predict it without a GPU: `{run}`."
    return (
        f"Design {design_link(version, link)}, workload "
        f"[{cell(problems.layer_title(version.layer))}]({link(f'kernels#{version.layer}')}), "
        f"language {cell(language_title(version.language))}. "
        + (made if compiled_for(version) else f"Check it: `nox -s check -- {version.key}`.")
    )


def _where_run(site: Site, run: Run) -> list[str]:
    return [
        cell(problems.target_name(run.record.target)),
        cell(site.problem_text(run)),
    ]


def _static(site: Site, version: Version, before: Version | None, link: Link) -> str:
    runs = site.runs_of(version)
    earlier = site.runs_of(before) if before else []
    tables = facts_tables(runs, version, earlier, before, link)
    if not tables:
        if not compiled_for(version):
            return f"{cell(language_title(version.language))} compiles nothing."
        return _none("compiled")
    compiled = [run.record for run in runs if run.record.mode == "static"]
    common = problems.sizes(compiled[0], problems.constant(compiled)) if compiled else ""
    changes = " Where the version before differs, its figure stands first." if before else ""
    return sections(
        cell(f"At {common}.{changes}" if common else changes.strip()),
        *(f"**{cell(name)}**\n\n{shown}" for name, shown in tables.items()),
    )


def _none(what: str) -> str:
    return f"No record of this version was {what} yet."


def _results(site: Site, runs: list[Run], link: Link) -> str:
    timed = [run for run in runs if run.is_timed]
    rows = []
    for run in timed:
        total = run.total
        rows.append(
            [
                *_where_run(site, run),
                cell(run.record.mode),
                problems.duration(total),
                f"{problems.amount('total_us', total.min_us)} to "
                f"{problems.amount('total_us', total.max_us)}, {total.samples} samples",
                problems.rate(run, "flops"),
                problems.rate(run, "bytes"),
                problems.fraction(run),
                problems.record_link(run, link),
            ]
        )
    head = [
        "Device", "Problem", "Mode", "Median", "Range", "Arithmetic", problems.LEAST_BYTES,
        problems.OF_BOUND, "Record",
    ]  # fmt: skip
    return sections(
        table(head, rows) or _none("timed"),
        problems.RATES if rows else "",
        _stages(site, timed, link),
    )


def _stages(site: Site, timed: list[Run], link: Link) -> str:
    rows = []
    for run in timed:
        assert run.outcome is not None
        for stage in run.outcome.stages:
            if stage.duration is None:
                continue
            time = stage.duration.median_us
            rows.append(
                [
                    *_where_run(site, run),
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
    return f"**Stages**\n\n{shown}" if shown else ""


def _checks(site: Site, runs: list[Run], link: Link) -> str:
    """Checked runs by target and reference; those that failed one by one."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if (found := checked(run)) is not None:
            groups.setdefault((run.record.target, found.against), []).append(run)
    rows, failed = [], []
    for (target, against), group in groups.items():
        checks = [checked(run) for run in group]
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
            [
                *_where_run(site, run),
                cell(check.message or check.status),
                problems.record_link(run, link),
            ]
            for run, check in zip(group, checks, strict=True)
            if check is not None and check.status == "failed"
        ]
    head = ["Where", "Against", "Records", "Problems", "Largest relative error", "Allowed"]
    if not rows:
        return ""
    return sections(
        table(head, rows),
        table(["Where", "Problem", "What failed", "Record"], failed),
    )


def checked(run: Run) -> Correctness | None:
    """What a run found when it compared outputs; None where it did not."""
    outcome = run.record.outcome
    return None if isinstance(outcome, Skipped) else outcome.correctness


def why_not(run: Run) -> tuple[str, str, str]:
    """Stage, status and sentence of a run that did not end well; empty for one that did."""
    match run.record.outcome:
        case Failed(error=error, stage=stage):
            return stage or "", "failed", error
        case Skipped(reason=reason):
            return "", "skipped", reason
    return "", "", ""


def _failures(site: Site, runs: list[Run], link: Link) -> str:
    rows = [
        [*_where_run(site, run), cell(stage), status, cell(said), problems.record_link(run, link)]
        for run in runs
        for stage, status, said in [why_not(run)]
        if said
    ]
    return table(["Where", "Problem", "Stage", "Outcome", "Why", "Record"], rows)


def _patterns(site: Site, version: Version, link: Link) -> str:
    applied, shown = (
        "\n".join(f"- {text}" for text in found) for found in _pattern_links(site, version, link)
    )
    return sections(
        "Applies:" if applied else "No pattern of the catalogue names this version as applying it.",
        applied,
        "Shows or leaves out:" if shown else "",
        shown,
    )


def _pattern_links(site: Site, version: Version, link: Link) -> tuple[list[str], list[str]]:
    """Patterns that a version applies, and those that it shows or leaves out."""
    applied, shown = [], []
    for page in site.catalogue.patterns:
        entry = f"[{cell(page.pattern.title)}]({link(page.name)})"
        if _is_named(site, page.pattern.used_by, version):
            applied.append(entry)
        if _is_named(site, page.pattern.violated_by, version):
            shown.append(entry)
    return applied, shown


def _named_patterns(site: Site, version: Version, link: Link) -> list[str]:
    """The first pattern that a version applies, and the first that it shows."""
    return [text for found in _pattern_links(site, version, link) for text in found[:1]]


def _is_named(site: Site, keys: Iterable[str], version: Version) -> bool:
    own = site.catalogue.version(version.key)
    return own is not None and own in map(site.catalogue.version, keys)


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
