"""Compiles kernel versions and compares the result with their committed tables of fingerprints.

``codes`` prints the comparison and has ``keep`` update the tables; ``settling`` keeps trials.
"""

from __future__ import annotations

import datetime
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mla_var3 import devices, evidence, languages
from mla_var3.errors import HyperMlaError, NotExecutableError, ToolchainError
from mla_var3.evidence import builds, fingerprint
from mla_var3.evidence.builds import CALL, Build, Case, Compiled, Table
from mla_var3.evidence.fingerprint import Fingerprint, differences
from mla_var3.evidence.sources import changed
from mla_var3.languages import coverage, fingerprints, rebuilding
from mla_var3.languages.rebuilding import State
from mla_var3.paths import relative
from mla_var3.runtime.registry import Version
from mla_var3.versions import number_of
from mla_var3.workloads.observing import name_of, problem_of

Say = Callable[[str], None]
#: How often, and at most how many cases with other code are compiled again, to see if it varies.
TRIES, FEW = 5, 2


@dataclass(frozen=True)
class Comparison:
    """A version's sources of today against the build that the table has for it.

    Attributes:
        version: The version.
        kept: What the table has; None for a version that it does not know.
        compiled: What the sources compile to now.
        changes: What differs, a sentence per case and stage.
    """

    version: Version
    kept: builds.Version | None
    compiled: tuple[Compiled, ...]
    changes: tuple[str, ...] = ()


def table_of(version: Version) -> Table:
    """The table of the version's design."""
    return builds.read(builds.path_of(version.package, version.layer, version.design))


def cannot_compile(version: Version) -> str | None:
    """Why a version cannot be compiled here: its kernels are somebody's, and not fetched."""
    arch = next(iter(languages.find(version.language).archs), None)
    if arch is None:
        return None
    case = Case(device=devices.default_for_arch(arch).key, problem={}, tilings=())
    try:
        for _, kernel in fingerprints.bound(version, case).stages():
            languages.find(kernel.language).switches(kernel)
    except NotExecutableError as error:
        return str(error)
    return None


def compare(
    version: Version,
    say: Say,
    arch: str | None = None,
    *,
    new: bool = False,
    one_in: int = 1,
    turn: int = 0,
) -> Comparison:
    """What a version compiles to now, against its table.

    Args:
        version: The version.
        say: Told of each compile.
        arch: Only its cases of this arch.
        new: Whether cases are added: what records ran, and switches that the table leaves out.
        one_in: One case in this many alone is compiled where the sources are those of the table.
        turn: Which one, modulo ``one_in``.
    """
    kept = table_of(version).versions.get(version.version)
    known = kept.today.compiled if kept is not None else ()
    known = tuple(one for one in known if arch in (None, arch_of(one.case)))
    cases = [one.case for one in known if one.error is None]
    if kept is not None and cases and not kept.differing():
        step = min(one_in, len(cases))
        cases = cases[turn % step :: step]
    if new:
        cases += chosen(version, arch, cases)
    say(f"compiling {version.key}: {len(cases)} cases")
    before = {one.case.key: one for one in known}
    made = compiled(version, cases, say)
    if new:
        made = _settled(version, made, before, say)
    changes = [
        f"{words_of(one.case)}: {said}"
        for one in made
        if (old := before.get(one.case.key)) is not None
        for said in changes_of(old, one)
    ]
    if (
        kept is not None
        and arch is None
        and kept.defaults not in (None, _defaults_of(version, kept))
    ):
        changes.append("default tilings of its cases' problems")
    # A version that is new need not compile for every arch.
    held = (one for one in made if one.error is None or one.case.key in before)
    return Comparison(version, kept, tuple(held), tuple(changes))


def _settled(
    version: Version, made: Sequence[Compiled], before: Mapping[str, Compiled], say: Say
) -> list[Compiled]:
    """The cases; where nothing differs as the table has them, and with both codes where both occur.

    ptxas makes one of two codes of the same PTX of a kernel or two, from run to run.
    """
    found = {one.case.key: _known(before.get(one.case.key), one) for one in made}
    for _ in range(TRIES):
        other = [
            one.case
            for key, one in found.items()
            if (old := before.get(key)) is not None and _is_other_code(old, one)
        ]
        if not 0 < len(other) <= FEW:
            break
        say(f"compiling {version.key} again: {len(other)} cases with other code")
        with tempfile.TemporaryDirectory() as empty:
            again = fingerprints.compiled(version, other, cache_dir=Path(empty))
        for one in again:
            old = before[one.case.key]
            if not changes_of(old, one):
                found[one.case.key] = _with_both(old, found[one.case.key])
    return list(found.values())


def _known(old: Compiled | None, new: Compiled) -> Compiled:
    return new if old is None or old.error or changes_of(old, new) else old


def _is_other_code(old: Compiled, new: Compiled) -> bool:
    """Whether machine code alone differs."""
    said = changes_of(old, new)
    return bool(said) and new.error is None and all(one.startswith("code of ") for one in said)


def _with_both(old: Compiled, new: Compiled) -> Compiled:
    """A case as the table has it, with the codes that its stages came out as too."""
    stages = {
        name: one.model_copy(
            update={"also": tuple(sorted((one.codes | new.stages[name].codes) - {one.code}))}
        )
        for name, one in old.stages.items()
    }
    return old.model_copy(update={"stages": stages})


def compiled(version: Version, cases: Sequence[Case], say: Say) -> list[Compiled]:
    """What a version's cases compile to; its call, where it calls a library."""
    texts = [file.read_text(encoding="utf-8") for file in version.source_files()]
    if (call := languages.find(version.language).call(texts)) is not None:
        return [called(call)]
    return fingerprints.compiled(version, cases, progress=lambda text: say(f"  {text}"))


def defaults(version: Version, cases: Iterable[Case]) -> str:
    """Digest of the tilings that a version launches the problems of cases with by default."""
    problems = {(case.device, json.dumps(case.problem, sort_keys=True)): case for case in cases}
    return fingerprint.digest(
        f"{device} {problem} {_default(version, case)}"
        for (device, problem), case in sorted(problems.items())
    )


def _defaults_of(version: Version, kept: builds.Version) -> str:
    return defaults(version, [one.case for one in kept.today.compiled])


def _default(version: Version, case: Case) -> str:
    if case == CALL:
        return ""
    try:
        stages = fingerprints.bound(version, case.model_copy(update={"tilings": ()})).stages()
    except HyperMlaError as error:
        return str(error)
    return json.dumps([kernel.tiling.values() for _, kernel in stages], sort_keys=True)


def called(call: str) -> Compiled:
    """The only case of a version that calls a library."""
    return Compiled(case=CALL, stages={fingerprint.CALL: Fingerprint(code=call)})


def changes_of(old: Compiled, new: Compiled) -> list[str]:
    """How what a case compiles to has changed."""
    if new.error is not None and old.error is None:
        return [f"it does not compile any more: {new.error}"]
    return differences(list(old.stages.values()), list(new.stages.values()), list(new.stages))


def arch_of(case: Case) -> str:
    """The arch that a case is compiled for."""
    return "any" if case == CALL else fingerprints.device_of(case).sm


def words_of(case: Case) -> str:
    """A case in words: its arch, what its problem sets, and its tilings."""
    problem = " ".join(f"{k}={v}" for k, v in case.problem.items() if v is not None)
    tilings = "; ".join(" ".join(f"{k}={v}" for k, v in one.items()) for one in case.tilings)
    return f"{arch_of(case)} {problem} [{tilings}]"


def chosen(version: Version, arch: str | None, known: Sequence[Case]) -> list[Case]:
    """Cases of a version that the table does not have, on every arch asked for.

    They are what records of the version ran, so that no edit changes the code of one unseen, and
    what else it takes to show every switch.
    """
    archs = languages.find(version.language).archs if arch is None else (arch,)
    problems = [case.problem for case in _measured(version)]
    there = {case.key for case in known}
    ran = [case for case in _ran(version) if case.key not in there and arch_of(case) in archs]
    found = list({case.key: case for case in ran}.values())
    for each in archs:
        mine = [case for case in (*known, *found) if arch_of(case) == each]
        if known and not mine:
            continue  # It compiles for other archs alone
        found += coverage.cases(version, devices.default_for_arch(each).key, problems, mine)
    return found


def _ran(version: Version) -> Iterator[Case]:
    """What records of today's build ran."""
    kept = table_of(version).versions.get(version.version)
    for record in _records(version):
        if (case := evidence.states.case_of(record)) is None:
            continue
        build = kept.build_of(record.kernel.sources, record.time) if kept else None
        if (kept and build == kept.today) or not changed(record.kernel.sources):
            yield case


def _records(version: Version) -> Iterable[evidence.Record]:
    return evidence.find(language=version.language, design=version.design, version=version.version)


def _measured(version: Version) -> list[Case]:
    """Problems that the version has records of and takes today, each once."""
    found: dict[str, Case] = {}
    for record in _records(version):
        if isinstance(record.outcome, evidence.Passed):
            case = Case(device="static/sm_90", problem=record.problem, tilings=())
            found.setdefault(case.key, case)
    return [case for case in found.values() if _is_taken(version, case)]


def _is_taken(version: Version, case: Case) -> bool:
    try:
        version.plan_of(case.problem)
    except HyperMlaError:
        return False
    return True


def keep(
    one: Comparison,
    why: str | None = None,
    root: Path | None = None,
    *,
    launches_stand: bool = False,
) -> str:
    """Write what a version compiles to now into its table; returns the table's path.

    Args:
        one: The comparison.
        why: Why its machine code is another now, where it is.
        root: Folder of the table; that of the committed ones by default.
        launches_stand: Whether a GPU has always launched what is compiled now, so that records
            made on one stand, and static ones alone are of other code.

    Raises:
        ToolchainError: The table was made by other tools.
    """
    version = one.version
    state = builds.state_digest(version.sources())
    old = one.kept.builds if one.kept is not None else ()
    if one.changes:
        # What ran until now is of the old build, even of the same sources.
        now = datetime.datetime.now(datetime.UTC)
        if launches_stand:
            old = tuple(_as_launched(each, old[0], one.compiled) for each in old)
        builds_ = (Build(sources=(state,), compiled=one.compiled, why=why, since=now), *old)
    elif old:
        builds_ = (_extended(old[0], [state], one.compiled), *_without(old[1:], state))
    else:
        builds_ = (Build(sources=(state,), compiled=one.compiled),)
    return _written(version, builds_, root)


def _as_launched(build: Build, before: Build, now: Sequence[Compiled]) -> Build:
    """An old build, with what is compiled now wherever a device launched that.

    It did under the version's last build, and under an older one where that was the same. What
    differed there already stays as it is.
    """
    launched = [one for one in now if not one.case.device.startswith(evidence.STATIC)]
    if build is before:
        return _extended(build, [], launched)
    same = [
        one
        for one in launched
        if (last := before.find(one.case)) is not None
        and (its := build.find(one.case)) is not None
        and not changes_of(last, its)
    ]
    return _extended(build, [], same)


def _without(found: Sequence[Build], state: str) -> list[Build]:
    """Builds that have sources left besides a state, which now belongs to another."""
    kept = (
        one.model_copy(update={"sources": tuple(s for s in one.sources if s != state)})
        for one in found
    )
    return [one for one in kept if one.sources]


def _extended(build: Build, states: Sequence[str], more: Sequence[Compiled]) -> Build:
    """A build that further states compile to, at further cases."""
    merged = {one.case.key: one for one in (*build.compiled, *more)}
    return build.model_copy(
        update={
            "sources": tuple(dict.fromkeys([*build.sources, *states])),
            "compiled": tuple(merged.values()),
        }
    )


def _written(version: Version, found: Sequence[Build], root: Path | None = None) -> str:
    path = builds.path_of(version.package, version.layer, version.design, root)
    table, tools = builds.read(path), fingerprints.toolchain(version)
    if table.toolchain not in ({}, tools):
        raise ToolchainError(
            f"{relative(path)} was compiled by {_tools(table.toolchain)}, and {_tools(tools)} is "
            "installed"
        )
    mine = builds.Version(
        problem=name_of(problem_of(version.plan_class())),
        defaults=defaults(version, [one.case for one in found[0].compiled]),
        files=builds.files_of(version.source_files(), version.sources()),
        builds=tuple(found),
    )
    versions = {**table.versions, version.version: mine}
    ordered = {name: versions[name] for name in sorted(versions, key=number_of)}
    builds.write(Table(schema_version=1, toolchain=tools, versions=ordered), path)
    return relative(path)


def _tools(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in versions.items())


def old_states(version: Version) -> list[State]:
    """Sources that records of a version were made from and that the table does not know."""
    known = table_of(version).versions.get(version.version)
    found: dict[str, tuple[Mapping[str, str], dict[str, Case]]] = {}
    for record in _records(version):
        sources = record.kernel.sources
        if not sources or (known and _is_built(known.build_of(sources, record.time))):
            continue
        _, cases = found.setdefault(builds.state_digest(sources), (sources, {}))
        if (case := evidence.states.case_of(record)) is not None:
            cases.setdefault(case.key, case)
    design = version.qualified
    return [
        State(design, version.version, sources, tuple(cases.values()))
        for sources, cases in found.values()
    ]


def _is_built(build: Build | None) -> bool:
    """Whether a build has what its sources compile to; what failed is tried again."""
    return build is not None and not any(one.error for one in build.compiled)


def keep_old(version: Version, states: Sequence[tuple[State, Sequence[Compiled]]], say: Say) -> str:
    """Write what old sources compile to into the table, beside what today's do at the same cases.

    Args:
        version: The version, whose sources of today the table knows.
        states: Its states with what they compile to.
        say: Told of each compile.
    """
    kept = table_of(version).versions[version.version]
    have = {one.case.key for one in kept.today.compiled}
    cases = {one.case.key: one.case for _, made in states for one in made}
    more = [case for key, case in cases.items() if key not in have]
    say(f"compiling {version.key} as it is today: {len(more)} cases of records")
    today = _extended(kept.today, [], compiled(version, more, say) if more else [])
    others = list(kept.builds[1:])
    for state, made in states:
        digest = builds.state_digest(state.sources)
        others = _without(others, digest)
        if made and all(_is_same(today, one) for one in made):
            today = _extended(today, [digest], [])
        else:
            others.append(Build(sources=(digest,), compiled=tuple(made)))
    return _written(version, [today, *others])


def _is_same(today: Build, one: Compiled) -> bool:
    found = today.find(one.case)
    if found is None or found.error is not None or one.error is not None:
        return False
    return not changes_of(one, found)


def rebuilt(states: Sequence[State]) -> dict[int, tuple[Compiled, ...]]:
    """What states of versions compile to, by their place: calls as they say, others compiled."""
    found: dict[int, tuple[Compiled, ...]] = {}
    rest: list[int] = []
    for place, state in enumerate(states):
        language = languages.find(state.design.partition("@")[2])
        texts = [rebuilding.text_of(blob) for blob in state.sources.values()]
        call = language.call(texts)
        if call is not None:
            found[place] = (called(call),)
        elif state.cases:
            rest.append(place)
    for place, made in rebuilding.rebuilt([states[each] for each in rest]):
        found[rest[place]] = made
    return found
