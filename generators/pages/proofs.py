"""Says on a version's page what its records prove: where it ran, how right, compiled to what."""

from __future__ import annotations

import re
from collections.abc import Iterator

from generators.model import compare, targets
from generators.model.run import Run
from generators.model.site import Site
from generators.pages.kernels import compiled_for
from generators.write import figures
from generators.write.devlogs import Story
from generators.write.text import cell
from mla_var3.emulator import seeded
from mla_var3.evidence import CPU, Correctness, Skipped
from mla_var3.evidence.model import STATIC
from mla_var3.knowledge.evidence import Link
from mla_var3.languages import languages
from mla_var3.runtime.registry import Version

#: What stands in a table where an arch has no compile.
NO_RECORD = "no static record"
#: A time or a share in prose.
_QUOTED = re.compile(r"\d (?:us|µs|ms|%)|\d(?:\.\d+)?x ")


# -- where it ran ----------------------------------------------------------------------------------


def on_chip(target: str) -> bool:
    """Whether records of a target come from a GPU: from no compile alone and no CPU."""
    return target != CPU and not target.startswith(STATIC)


def never_ran(site: Site, version: Version, link: Link) -> str:
    """That no GPU has run a version of the design; empty where one has."""
    designs = site.designs()[version.design_key]
    if not compiled_for(version) or any(
        on_chip(run.record.target) for one in designs for run in site.runs_of(one)
    ):
        return ""
    runner = _runner(version.language)
    said = (
        f"**Never ran on the chip.** No version of {cell(version.design_key)} has run on a GPU. "
        f"Small problems ran in the [{runner}]({link(f'docs/{runner}.md')}), which has "
        f"[limits]({link(f'docs/{runner}.md#limits')}); registers are the compiler's."
    )
    return f"{said} {_seeded(site, version, link)}".strip()


def _seeded(site: Site, version: Version, link: Link) -> str:
    """How many mistakes planted in the version, or in its design, the emulator reports."""
    if not all((site.root / path).is_file() for path in (seeded.TABLE, seeded.BUGS)):
        return ""
    subjects = seeded.read(site.root / seeded.BUGS)
    kernels = [name for name, one in subjects.items() if _is_of(one, version)]
    own = [name for name in kernels if (subjects[name].version or "").endswith(version.version)]
    wanted = own or kernels
    bugs = [
        one
        for one in seeded.table(site.root / seeded.TABLE).outcomes
        if one.kernel in wanted and one.bug != seeded.CLEAN
    ]
    if not bugs:
        return ""
    where = "this version" if own else "other versions of the design"
    return (
        f"Of {len(bugs)} mistakes planted in {where} the emulator reports "
        f"{sum(one.ok for one in bugs)}: [bug by bug]({link(str(seeded.TABLE))})."
    )


def _is_of(subject: seeded.Subject, version: Version) -> bool:
    design = (subject.version or "").partition(" ")[0]
    return design in (version.design_key, version.qualified)


def _runner(language: str) -> str:
    """What runs a language's kernels on a CPU, by the name of its page."""
    found = languages().get(language)
    return "interpreter" if found is None or found.cpu_builds is None else "emulator"


# -- whether it is right ---------------------------------------------------------------------------


def checked(run: Run) -> Correctness | None:
    """What a run found when it compared outputs; None where it did not."""
    outcome = run.record.outcome
    return None if isinstance(outcome, Skipped) else outcome.correctness


def right(site: Site, version: Version, link: Link) -> str:
    """Largest error of all records that compared outputs, with its record, and where they ran."""
    checks = [(run, check) for run in site.runs_of(version) if (check := checked(run)) is not None]
    if not checks:
        return "No record compares its results with the reference yet."
    failed = [run for run, check in checks if check.status == "failed"]
    if failed:
        listed = figures.record_link(failed[0], link, "the first")
        return f"Wrong in {len(failed)} of {len(checks)} records: {listed}."
    run, worst = max(checks, key=lambda pair: (pair[1].max_relative_error or 0) / pair[1].tolerance)
    error = figures.record_link(run, link, f"{worst.max_relative_error or 0:.1e}")
    places: dict[str, int] = {}
    for one, _ in checks:
        where = _place(one)
        places[where] = places.get(where, 0) + 1
    counted = ", ".join(f"{count} {where}" for where, count in places.items())
    own, kept = "", version.plan_class().smaller
    if kept:
        format_ = link("docs/glossary/fp8.md#what-each-format-costs")
        own = (
            " That is the kernel's own error, over the cache as it is stored. What the format "
            f"costs is not in it: [see fp8]({format_})."
        )
    return (
        f"Yes: largest relative error {'of the kernel ' if kept else ''}{error} of "
        f"{worst.tolerance:.0e} allowed, against {cell(worst.against)}.{own} Records: {counted}. "
        f"[What was checked, and what was not]({link('kernels#passed')})."
    )


def _place(run: Run) -> str:
    """Where a run computed what it compared."""
    target = run.record.target
    if on_chip(target):
        return f"on {cell(targets.target_name(target))}"
    if target == CPU:
        return "on a CPU"
    return f"in the {_runner(run.record.kernel.language)}"


# -- what it compiles to ---------------------------------------------------------------------------


def compiled(site: Site, version: Version, link: Link) -> str:
    """Registers, spills and shared memory per arch; the command where no record has them."""
    if not compiled_for(version):
        return ""
    found = list(_by_arch(site, version, link))
    return "; ".join(found) + "." if found else no_record(site, version)


def _by_arch(site: Site, version: Version, link: Link) -> Iterator[str]:
    runs = site.runs_of(version)
    for arch in compiled_for(version):
        here = [run for run in runs if run.record.target == STATIC + arch and run.outcome]
        known = [run for run in here if compare.worst(run, "registers") is not None]
        if not known:
            continue
        run = max(known, key=lambda one: compare.worst(one, "registers") or 0)
        most = {
            name: max(compare.worst(one, name) or 0 for one in known)
            for name in ("registers", "spill_instructions", "shared_bytes")
        }
        spills = most["spill_instructions"]
        said = (
            f"{most['registers']:g} registers, "
            f"{f'{spills:g} spill instructions' if spills else 'no spills'}, "
            f"{most['shared_bytes']:,.0f} bytes of shared memory"
        )
        stale = " (stale)" if all(one.stale for one in known) else ""
        at = cell(site.problem_text(run))
        yield f"{arch} at {at}: {figures.record_link(run, link, said)}{stale}"


def no_record(site: Site, version: Version) -> str:
    """That nothing says what the version compiles to, and the command that does."""
    flags = f"--prof_type=static --arch={','.join(_usual(site, version))}"
    return f"No static record; run `nox -s profile -- {version.key} {flags}`."


def _usual(site: Site, version: Version) -> list[str]:
    """The archs that other versions of the design were compiled for, else the first."""
    archs = compiled_for(version)
    had = {
        run.record.target.removeprefix(STATIC)
        for one in site.designs()[version.design_key]
        for run in site.runs_of(one)
        if run.record.is_static and run.outcome
    }
    return [arch for arch in archs if arch in had] or list(archs[:1])


# -- how long it took ------------------------------------------------------------------------------


def unmeasured(site: Site, version: Version, story: Story | None, link: Link) -> str:
    """The time of a version that no run compares; of one without a record, what is told instead."""
    timed = [run for run in site.runs_of(version) if run.is_timed]
    if timed:
        first = compare.fastest(timed)[0]
        time = figures.record_link(first, link, figures.duration(first.total))
        return f"{time} at {cell(site.problem_text(first))}."
    told = story.parts.get("Insights", "") if story else ""
    if _QUOTED.search(told):
        return "No record of a time; trials without a record are quoted below."
    return "No record of a time yet."
