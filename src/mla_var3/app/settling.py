"""Compiles and runs versions edited since their last compile, and keeps the results as trials.

Without this nobody knows whether a record of edited sources is stale. Trials lie below ``out/``,
beside the committed tables: ``records verify`` makes them, and ``codes write`` enters results into
the tables themselves.
"""

from __future__ import annotations

from collections.abc import Callable

from mla_var3.app import building
from mla_var3.errors import HyperMlaError
from mla_var3.evidence import builds, revisions
from mla_var3.paths import out_dir
from mla_var3.runtime import registry
from mla_var3.runtime.registry import Version
from mla_var3.workloads import observing
from mla_var3.workloads.base import Problem


def settle(say: Callable[[str], None]) -> None:
    """Compile every version and run every problem that were edited since they last were.

    Args:
        say: Told of each.
    """
    for version in registry.versions():
        if _is_open(version):
            _compile(version, say)
    _run_problems(say)


def problems() -> list[type[Problem]]:
    """What all versions compute, by name."""
    found = {observing.problem_of(each.plan_class()) for each in registry.versions()}
    return sorted(found, key=observing.name_of)


def _is_open(version: Version) -> bool:
    """Whether nobody has compiled a version's sources as they are today."""
    committed = building.table_of(version).versions.get(version.version)
    if committed is None or not committed.differing():
        return False
    path = builds.path_of(version.package, version.layer, version.design, out_dir())
    tried = builds.read(path).versions.get(version.version)
    return tried is None or bool(tried.differing())


def _compile(version: Version, say: Callable[[str], None]) -> None:
    say(f"{version.key} was edited since it was last compiled")
    try:
        building.keep(building.compare(version, say), root=out_dir())
    except HyperMlaError as error:
        say(f"{version.key} is not compiled: {error}")


def _run_problems(say: Callable[[str], None]) -> None:
    committed = revisions.read(revisions.path_of())
    trial = revisions.path_of(out_dir())
    tried = revisions.read(trial)
    open_ = committed.differing()
    todo = {name for name in open_ if tried.sources.get(name) != revisions.sources_of(name)}
    if not todo:
        return
    found, sources = dict(tried.problems), dict(tried.sources)
    for problem in problems():
        if (name := observing.name_of(problem)) in todo:
            say(f"{name} was edited since it was last run")
            found[name] = _with_today(committed.problems[name], problem)
            sources[name] = revisions.sources_of(name)
    revisions.write(revisions.Table(sources=sources, problems=found), trial)


def _with_today(
    known: tuple[revisions.Revision, ...], problem: type[Problem]
) -> tuple[revisions.Revision, ...]:
    """Revisions of a problem, with what it gives now where that is another."""
    observed = observing.observe(problem)
    if known[-1].like(observed):
        return known
    return (*known, revisions.revision(observed))
