"""Commands over the machine code of every version: does an edit change what old ones compile to?

``results/fingerprints`` holds what each version compiles to, at cases that show every value of its
compile-time switches. ``check`` compiles them again and compares; ``write`` keeps the answer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from mla_var3 import arguments, devices, evidence, front, languages
from mla_var3.arguments import named
from mla_var3.errors import HyperMlaError, ToolchainError
from mla_var3.evidence import builds
from mla_var3.evidence.builds import Build, Case, Compiled
from mla_var3.evidence.fingerprint import differences
from mla_var3.languages import coverage, fingerprints
from mla_var3.paths import relative
from mla_var3.runtime import registry
from mla_var3.runtime.registry import Version

PROG = "python -m mla_var3.app.codes"
EXIT_CHANGED = 1

Design = Annotated[tyro.conf.Positional[str | None], named("[DESIGN]")]
Number = Annotated[tyro.conf.Positional[str | None], named("[VERSION]")]


@dataclass(frozen=True)
class Comparison:
    """A version's sources of today against the build that the table has for it.

    Attributes:
        version: The version.
        kept: What the table has; None for a version that it does not know.
        compiled: What the sources compile to now.
        changes: What differs, one sentence each.
        failures: Cases that do not compile any more, and why.
    """

    version: Version
    kept: builds.Version | None
    compiled: tuple[Compiled, ...]
    changes: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether every case compiles to what the table has."""
        return not self.changes and not self.failures


def check(design: Design = None, version: Number = None, arch: str | None = None) -> int:
    """Compile versions as the table has them, and say which compile to something else now.

    Args:
        design: Design to compile; all by default.
        version: Version; all of the design by default.
        arch: Only the cases of this arch.

    Returns:
        0 when all compile to the same machine code and launches, else 1.
    """
    compared = [_compare(each, arch) for each in _asked(design, version)]
    for one in compared:
        _tell(one)
    unknown = [one for one in compared if one.kept is None]
    wrong = [one for one in compared if not one.same]
    cases = sum(len(one.compiled) for one in compared)
    print(
        f"{len(compared)} versions, {cases} cases: {len(wrong)} with other machine code or "
        f"launches, {len(unknown)} not in the table"
    )
    return EXIT_CHANGED if wrong or unknown else 0


def write(
    design: Design = None,
    version: Number = None,
    arch: str | None = None,
    changed: str | None = None,
) -> int:
    """Compile versions and keep what they compile to in the table.

    A version that compiles to something else than the table has is refused, unless ``--changed``
    says why; its records then are of other code, and new ones come with the change.

    Args:
        design: Design to compile; all by default.
        version: Version; all of the design by default.
        arch: Add cases of this arch (default: the language's, for a version that is new).
        changed: Why the machine code of these versions is another now.

    Returns:
        0 when the table is that of today's sources, else 1.
    """
    refused = 0
    for each in _asked(design, version):
        one = _compare(each, arch, new=True)
        _tell(one)
        if one.failures or (one.changes and changed is None):
            refused += 1
            continue
        _keep(one, changed)
    if refused:
        print(
            f"{refused} versions were not written: mend them, or declare the change with "
            '--changed="why", and measure them again'
        )
    return EXIT_CHANGED if refused else 0


def _asked(design: str | None, version: str | None) -> list[Version]:
    """The versions asked for that are compiled here at all."""
    asked = registry.select(design, version)
    return [each for each in asked if languages.find(each.language).archs]


def _table(version: Version) -> builds.Table:
    return builds.read(builds.path_of(version.package, version.layer, version.design))


def _compare(version: Version, arch: str | None, *, new: bool = False) -> Comparison:
    """What a version compiles to now, against its table.

    Args:
        version: The version.
        arch: Only its cases of this arch.
        new: Whether cases are chosen where the table has none.
    """
    kept = _table(version).versions.get(version.version)
    known = kept.today.compiled if kept is not None else ()
    known = tuple(one for one in known if arch in (None, _arch(one.case)))
    cases = [one.case for one in known]
    if new and not cases:
        cases = _chosen(version, arch)
    print(f"compiling {version.key}: {len(cases)} cases", flush=True)
    made = fingerprints.compiled(version, cases, progress=_told)
    changes, failures = [], []
    before = {one.case.key: one for one in known}
    for case, one in zip(cases, made, strict=True):
        old = before.get(case.key)
        if isinstance(one, str):
            # A version that is new need not compile for every arch.
            failures += [f"{_named(case)}: {one}"] if old is not None else []
        elif old is not None:
            changes += [f"{_named(case)}: {each}" for each in _differences(old, one)]
    compiled = tuple(one for one in made if not isinstance(one, str))
    return Comparison(version, kept, compiled, tuple(changes), tuple(failures))


def _told(text: str) -> None:
    print(f"  {text}", flush=True)


def _differences(old: Compiled, new: Compiled) -> list[str]:
    return differences(list(old.stages.values()), list(new.stages.values()), list(new.stages))


def _arch(case: Case) -> str:
    return devices.find(case.device).sm


def _named(case: Case) -> str:
    """A case in words: its arch, what its problem has set, and its tilings."""
    problem = " ".join(f"{k}={v}" for k, v in case.problem.items() if v is not None)
    tilings = "; ".join(" ".join(f"{k}={v}" for k, v in one.items()) for one in case.tilings)
    return f"{_arch(case)} {problem} [{tilings}]"


def _chosen(version: Version, arch: str | None) -> list[Case]:
    """Cases of a version that the table does not have: every switch, on every arch asked for."""
    archs = languages.find(version.language).archs if arch is None else (arch,)
    problems = _measured(version)
    found: list[Case] = []
    for each in archs:
        key = devices.default_for_arch(each).key
        found += coverage.cases(version, key, problems)
    return found


def _measured(version: Version) -> list[dict[str, evidence.Scalar]]:
    """Problems that the version has records of, each once."""
    found = evidence.find(language=version.language, design=version.design, version=version.version)
    problems: list[dict[str, evidence.Scalar]] = []
    for record in found:
        passed = isinstance(record.outcome, evidence.Passed)
        if passed and record.problem not in problems and _taken(version, record.problem):
            problems.append(record.problem)
    return problems


def _taken(version: Version, problem: dict[str, evidence.Scalar]) -> bool:
    try:
        version.plan_of(problem)
    except HyperMlaError:
        return False
    return True


def _keep(one: Comparison, changed: str | None) -> None:
    """Write what a version compiles to now into its table."""
    version = one.version
    path = builds.path_of(version.package, version.layer, version.design)
    table = builds.read(path)
    tools = fingerprints.toolchain(version)
    if table.toolchain not in ({}, tools):
        raise ToolchainError(
            f"{relative(path)} was compiled by {table.toolchain}, and {tools} is installed"
        )
    versions = table.versions | {version.version: _version(one, changed)}
    order = sorted(versions, key=lambda name: int(name[1:]))
    made = builds.Table(toolchain=tools, versions={name: versions[name] for name in order})
    builds.write(made, path)
    print(f"wrote {relative(path)}")


def _version(one: Comparison, changed: str | None) -> builds.Version:
    sources = one.version.sources()
    state = builds.state_digest(sources)
    old = one.kept.builds if one.kept is not None else ()
    if one.changes:
        today, rest = Build(sources=(state,), compiled=one.compiled, why=changed), old
    else:
        known, rest = (old[0], old[1:]) if old else (Build(sources=()), ())
        fresh = {each.case.key for each in one.compiled}
        today = known.model_copy(
            update={
                "sources": tuple(dict.fromkeys([*known.sources, state])),
                "compiled": (
                    *(each for each in known.compiled if each.case.key not in fresh),
                    *one.compiled,
                ),
            }
        )
    return builds.Version(
        files=builds.files_of(one.version.source_files(), sources), builds=(today, *rest)
    )


def _tell(one: Comparison) -> None:
    name = one.version.key
    if one.kept is None:
        print(f"{name}: not in the table; {len(one.compiled)} cases compiled")
    for said in (*one.failures, *one.changes):
        print(f"CHANGED {name} {said}")
    if one.kept is not None and one.same:
        print(f"same {name}: {len(one.compiled)} cases")


COMMANDS: dict[str, Callable[..., int]] = {"check": check, "write": write}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that ``argv`` (the process's by default) names; returns the exit code."""
    command, rest, prog = arguments.choose(COMMANDS, sys.argv[1:] if argv is None else argv, PROG)
    return int(arguments.parse(command, rest, prog) or 0)


if __name__ == "__main__":
    front.run("mla_var3.app.codes:main")
