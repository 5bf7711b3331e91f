"""Makes the kernel pages: an index, a page per workload and a page per design.

``version_pages`` makes those of the versions.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

from generators.draw import climb
from generators.model import compare, fits, problems, targets
from generators.model.columns import design_title, language_title
from generators.model.problems import Problem
from generators.model.run import Run
from generators.model.site import Site
from generators.pages import feeding, ladder, namesakes, tried
from generators.write import devlogs, figures, verdicts
from generators.write.page import Page
from generators.write.source import annotated, repo_name, tabs
from generators.write.text import cell, code, docstring, fold, meta, sections, table
from mla_var3.evidence import Record
from mla_var3.evidence.model import STATIC
from mla_var3.knowledge.evidence import Link
from mla_var3.languages import languages
from mla_var3.runtime import registry
from mla_var3.runtime.registry import Version
from mla_var3.workloads import Workload, workloads

#: By which the page of what failed is named.
FAILED = "generators/pages/failed.py"


def workload_page(layer: str) -> str:
    """Path of a workload's page."""
    return f"kernels/{layer}/index.md"


def design_page(version: Version) -> str:
    """Path of the page of a version's design."""
    return f"kernels/{version.layer}/{version.language}/{version.design}/index.md"


def version_page(version: Version) -> str:
    """Path of a version's page."""
    return design_page(version).replace("index.md", f"{version.version}.md")


def compiled_for(version: Version) -> tuple[str, ...]:
    """The archs that a version's language compiles for when nobody asks for one."""
    found = languages().get(version.language)
    return found.archs if found else ()


def also_typed(version: Version) -> str:
    """What commands call a design that people call otherwise."""
    typed, title = version.design_key, design_title(version)
    return "" if title == typed else f"Commands call it {code(typed)}."


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
            found |= {repo_name(file): version_page(version) for file in own_files(version)}
        if devlog := site.catalogue.devlogs.get(design):
            found[devlog.name] = page
            pages = {version.version: version_page(version) for version in versions}
            found |= devlogs.places(devlog, pages)
    return found


def own_files(version: Version) -> list[Path]:
    """The version's module and those of its stages; of packages only those with code."""
    files = sorted(version.path.parent.glob("*.py"), key=lambda file: (file != version.path, file))
    return [file for file in files if file.stem != "__init__" or _has_code(file)]


def _has_code(file: Path) -> bool:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return len(tree.body) > (ast.get_docstring(tree) is not None)


def _shared_files(versions: Iterable[Version]) -> list[Path]:
    """Files of a design that are no version's own: stage helpers, the package's docstring."""
    own = {file for version in versions for file in own_files(version)}
    used = {file for version in versions for file in version.source_files()}
    return sorted(file for file in used - own if file.stem != "__init__" or _has_code(file))


def pages(site: Site) -> list[Page]:
    """Index, then each workload with its designs; their versions are a family of their own."""
    found = [_index(site)]
    for layer, designs in site.layers().items():
        found.append(_workload(site, layer, designs))
        found += [_design(site, versions) for versions in designs]
    return found


def _purpose(versions: list[Version]) -> str:
    return docstring(versions[0].path.parents[1] / "__init__.py")


def _version_link(version: Version, link: Link) -> str:
    return f"[{version.version}]({link(repo_name(version.path))})"


def diff_of(before: Version) -> str:
    """The section with the changed lines alone, on the page of the version after this one."""
    return f"#what-changed-in-the-code-since-{before.version}"


def _diff_link(before: Version | None, version: Version, link: Link) -> str:
    """The way to what changed since the version before; nothing for the first."""
    return f" [diff]({link(repo_name(version.path))}{diff_of(before)})" if before else ""


def design_link(version: Version, link: Link) -> str:
    """The design of a version, linked to its page."""
    return f"[{cell(design_title(version))}]({link(repo_name(version.path.parents[1]))})"


def run_version(site: Site, run: Run, link: Link) -> str:
    """The version of a run, linked to its page where it still exists."""
    version = site.version_of(run)
    if version is None:
        return cell(run.record.kernel.name)
    called = f"{design_title(version)} {version.version}"
    return f"[{cell(called)}]({link(repo_name(version.path))})"


#: Anchor of what a listed kernel has passed, and what readers ask who look for it.
PASSED = "passed"
ASKED = (
    "which tests has a kernel passed", "sign off a kernel for production", "acceptance tests",
    "how are kernels checked before they are listed", "is a listed kernel correct",
    "correctness checks of a version", "what do the checks not cover", "kernel quality",
    "production readiness of a kernel", "quality assurance", "how was a kernel tested",
    "was a kernel validated", "test coverage of the kernels", "certify a kernel",
)  # fmt: skip


def _index(site: Site) -> Page:
    path = "kernels/index.md"
    link = site.link(path)
    parts = [
        f"## {figures.layer_title(layer)}\n\n{_summary(layer)} "
        f"[More on it]({link(f'kernels#{layer}')}).\n\n{_designs(site, designs, link)}"
        for layer, designs in site.layers().items()
    ]
    return Page(
        path,
        sections(
            meta(
                description="Every kernel design and version, with what it shows",
                sections={PASSED: list(ASKED)},
            ),
            "# Kernels",
            "A design is one way to compute a workload, a version one step of its history: each "
            "teaches one thing, and says what was predicted, what came of it, and which record "
            f"proves it. What did not pay, over all designs: [what failed]({link(FAILED)}).",
            _where_to(link),
            *parts,
            passed(link),
            f"How to add one stands under [contributing]({link('CONTRIBUTING.md')}).",
        ),
        nav=("Kernels",),
    )


def _where_to(link: Link) -> str:
    """The next click by what a reader wants of a kernel; the table of all is for the rest."""
    which, simplest = link("generators/mla/decode.py"), link("docs/learn/simplest-kernel.md")
    rows = [
        ["the fastest decode on an H100 or H200",
         f"[which decode kernel]({which}), with FlashMLA's times beside"],
        ["one in vLLM or SGLang", f"[the calls of a server]({link('docs/serving.md')})"],
        ["one to read first", f"[the simplest, line by line]({simplest}), in both languages"],
        ["one for an A100, a B200 or an RTX 5090",
         f"[which GPU runs what]({link('docs/scope.md#which-gpu-do-i-need')})"],
        ["to run one, without a GPU", "`nox -s check -- flash_mla v2`, then `nox -s profile -- "
         "flash_mla v2` for registers, spills and the bound"],
        ["yours checked and compared", f"[bring your own]({link('docs/adopt.md')})"],
    ]  # fmt: skip
    return table(["You want", "Go to"], rows)


def passed(link: Link) -> str:
    """What a listed kernel has passed, and what that does not cover."""
    right = link("docs/messages/wrong-numbers.md#how-large-an-error-is-right")
    rows = [
        ["`check` on a CPU",
         "every element against a reference in fp32 at small problems: ragged sizes, one and "
         "several blocks, both masks, rows without a key, lengths that differ, pages in another "
         f"order; relative error at most 4e-3 in bf16 ([tolerance]({right}))",
         "large sizes; speed; bits of the chip where they differ from the rules of PTX"],
        ["the same run",
         "races, missing waits and fences, deadlocks, reads of what nobody wrote, outputs that "
         "nobody stores, other orders of blocks",
         f"what [no problem reached]({link('docs/messages/not-reached.md')}): a finding, unless "
         "it is argued why it cannot matter"],
        ["compile for each arch", "it fits registers, shared memory and threads of that card; "
         "spills are counted", "that it runs there"],
        ["on the GPU, before a time",
         "the outputs of the launch that is timed, against the reference: *Right* on the version's "
         "page, with the record", "cards without records: sm_100 and sm_120 never ran here"],
        ["tests of FlashMLA and FlashInfer",
         "through [the calls of servers]"
         f"({link('docs/cute-dsl.md#other-libraries-tests-on-our-kernel')}), for the kernel that "
         "these launch", "other versions; a whole server with a model"],
        ["wrong kernels made on purpose",
         f"how many `check` notices: [derived]({link('docs/contributing/mutants.md')}), "
         f"[seeded]({link('docs/emulator-trust.md#seeded-bugs')})",
         "of many CuTe DSL versions most are not judged yet; the page counts them"],
    ]  # fmt: skip
    return sections(
        f"## What a listed kernel has passed {{ #{PASSED} }}",
        "**Each version here was compared with a reference in fp32 before it was listed, and again "
        "on the card before it was timed.** Listed is not the same as released for your server:",
        table(["Check", "What it covers", "What it does not"], rows),
        "Before production add: your shapes and lengths through the call that you serve, a day of "
        "your traffic beside the kernel in use with outputs compared, and the answers of the "
        "model. A version marked as negative was "
        "right too, only slower. Where the record is: the row *Right* of a version's page.",
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
            ", ".join(_gpus(sm, link) for sm in fits.archs(site, versions)),
            str(sum(len(site.runs_of(version)) for version in versions)),
        ]
        for versions in ordered
    ]
    return table(["Language", "Design", "What it is", "Latest", "Compiles for", "Records"], rows)


def _gpus(sm: str, link: Link) -> str:
    """An arch, linked to what compiles for it."""
    return f"[{sm}]({link(f'results/{STATIC}{sm}')})"


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
    path, title = workload_page(layer), figures.layer_title(layer)
    link, analysis = site.link(path), site.analyses.get(layer)
    return Page(
        path,
        sections(
            meta(title=title, description=f"{title}: axes, regimes and designs"),
            f"# {cell(title)}",
            _summary(layer),
            "## Designs",
            _designs(site, designs, link),
            "## The ladder",
            ladder.section(
                site, designs, link, title=f"Time of every version, {title}", folded=True
            )
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


def titles(version: Version, *rest: str) -> tuple[str, ...]:
    """Place in the navigation: by workload, then by language."""
    layer, language = figures.layer_title(version.layer), language_title(version.language)
    return ("Kernels", layer, language, version.design, *rest)


#: Files of the kit that a line names.
_NAMED = 6


def _design(site: Site, versions: list[Version]) -> Page:
    first, path = versions[0], design_page(versions[0])
    link, analysis = site.link(path), site.analyses.get(first.layer)
    devlog = site.catalogue.devlogs.get(first.design_key)
    folder = repo_name(first.path.parents[1])
    overview = devlogs.introduction(devlog, site.catalogue, link) if devlog else ""
    about, _, cited = overview.partition(f"\n{devlogs.SOURCES}\n")
    files = _shared_files(versions)
    runs = [run for version in versions for run in site.runs_of(version)]
    failed = tried.section(site, versions, link)
    found_by = [*(tried.FOUND_BY if failed else ()), *devlogs.found_by(devlog)]
    names = {"found_by": found_by} if found_by else {}
    return Page(
        path,
        sections(
            meta(title=design_title(first), description=_purpose(versions), **names),
            f"# {cell(design_title(first))}",
            cell(_purpose(versions)),
            also_typed(first),
            namesakes.which(site, versions, link),
            f"Computes [{cell(figures.layer_title(first.layer))}]({link(f'kernels#{first.layer}')}"
            f"), in {cell(language_title(first.language))}."
            + (" [What was tried and failed](#tried-and-failed)." if failed else "")
            + f" [License and origin]({link('docs/scope.md')}#license).",
            feeding.section(site, versions, link),
            "## What it is" if about else "",
            about,
            "## The ladder",
            _ladder(site, versions, link),
            climb.figure(site, versions),
            "## Versions",
            _timeline(site, versions, link),
            failed,
            analysis.design(site, versions, link) if analysis else "",
            devlogs.SOURCES if cited else "",
            cited,
            "## Shared stage helpers { data-search-exclude }" if files else "",
            fold(
                "Read them here",
                f"{len(files)} files: {', '.join(f.name for f in files[:_NAMED])}"
                + (", ..." if len(files) > _NAMED else ""),
                tabs({file.name: annotated(file, repo_name(file), runs) for file in files})
                if files
                else "",
            ),
        ),
        source=devlog.name if devlog else f"{folder}/__init__.py",
        nav=titles(first),
    )


def _ladder(site: Site, versions: list[Version], link: Link) -> str:
    shown = ladder.section(
        site, [versions], link, title=f"Time of every version of {design_title(versions[0])}",
        every=True,
    )  # fmt: skip
    return shown or "No version of this design was timed yet."


def _timeline(site: Site, versions: list[Version], link: Link) -> str:
    devlog = site.catalogue.devlogs.get(versions[0].design_key)
    entries = {entry.version: entry for entry in devlog.entries} if devlog else {}
    archs = compiled_for(versions[0])
    rows = []
    for before, version in zip([None, *versions], versions, strict=False):
        entry = entries.get(version.version)
        verdict = ("negative: " if entry.negative else "") + cell(entry.verdict) if entry else ""
        runs = site.runs_of(version)
        none = "" if any(registers_and_spills(runs, arch) for arch in archs) else "no record"
        rows.append(
            [
                _version_link(version, link) + _diff_link(before, version, link),
                (f"**{verdict}**<br>" if verdict else "") + cell(docstring(version.path)),
                *(registers_and_spills(runs, arch) or none for arch in archs),
            ]
        )
    compiled = [f"{arch}: registers, spills" for arch in archs]
    return sections(
        "*diff* leads to only what changed in the code since the version before."
        if len(versions) > 1
        else "",
        table(["Version", "Verdict, and what it shows", *compiled], rows),
        "Registers and spill instructions are the largest over all stages and problems compiled. "
        "A cell is empty where no record has that arch: not compiled, or not for it."
        if archs
        else "",
        _gained(site, versions, link),
    )


def _gained(site: Site, versions: list[Version], link: Link) -> str:
    """What each step of the history gained: a row per problem, a column per step."""
    steps = {new.version: compare.of(site, new, old).steps for old, new in pairwise(versions)}
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
            said.setdefault(key, {})[version] = figures.record_link(run, link, verdicts.gain(step))
    rows = [
        [key[-1], *(shown.get(version, "") for version in steps)]
        for key, shown in sorted(said.items(), key=lambda item: (item[0][0], item[0][1].order))
    ]
    head = ["At", *(f"{new.version} against {old.version}" for old, new in pairwise(versions))]
    told = f"Times of one run against each other. {_conditions(compared, varying, several)}"
    gained = sections(told, table(head, rows))
    return fold("What each step gained", f"at {len(rows)} problems", gained)


def _at(run: Run, varying: list[str], several: bool) -> str:
    where = [targets.target_name(run.record.target)] if several else []
    at = problems.sizes(run.record, varying)
    return cell(", ".join(filter(None, [*where, at]))) or "all"


def _conditions(compared: list[Record], varying: list[str], several: bool) -> str:
    """What all comparisons have in common."""
    shared = problems.compared(compared[0].kernel.layer, compared[0].problem)
    common = problems.sizes(compared[0], [name for name in shared if name not in varying])
    where = "" if several else f" on {targets.target_name(compared[0].target)}"
    return cell(f"All{where} at {common}." if common else "")


def registers_and_spills(runs: list[Run], arch: str) -> str:
    """The most registers and spill instructions on an arch; empty where nothing was compiled."""
    found = [run for run in runs if run.record.target == f"static/{arch}" and run.outcome]
    values = []
    for metric in ("registers", "spill_instructions"):
        worst = [value for run in found if (value := compare.worst(run, metric)) is not None]
        if worst:
            values.append(f"{max(worst):g}")
    stale = " (stale)" if values and all(run.stale for run in found) else ""
    return ", ".join(values) + stale
