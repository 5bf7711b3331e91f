"""Command ``codes``: reports which kernel versions an edit makes compile to other machine code.

``results/fingerprints`` holds what each version compiles to, at cases that show every value of its
compile-time switches. ``check`` compiles them again and compares; ``write`` updates the tables.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import tyro

from mla_var3 import arguments, front, languages
from mla_var3.app import building, settling
from mla_var3.arguments import named
from mla_var3.errors import RecordError, UnknownNameError, UsageError
from mla_var3.evidence import revisions
from mla_var3.paths import relative
from mla_var3.runtime import registry
from mla_var3.runtime.registry import Version
from mla_var3.workloads import observing

PROG = "python -m mla_var3.app.codes"
EXIT_CHANGED = 1

Design = Annotated[tyro.conf.Positional[str | None], named("[DESIGN]")]
Number = Annotated[tyro.conf.Positional[str | None], named("[VERSION]")]


def _known_arch(arch: str | None) -> None:
    """Raise where no language compiles for an arch."""
    known = sorted({one for language in languages.languages().values() for one in language.archs})
    if arch is not None and arch not in known:
        raise UnknownNameError("arch", arch, known)


def _say(text: str) -> None:
    print(text, flush=True)


def _asked(design: str | None, version: str | None) -> list[Version]:
    """The versions asked for but those that cannot be compiled here, of which it says why."""
    found = []
    for each in registry.select(design, version):
        if (reason := building.cannot_compile(each)) is not None:
            _say(f"passed over {each.key}: {reason}")
        else:
            found.append(each)
    return found


def check(
    design: Design = None,
    version: Number = None,
    arch: str | None = None,
    one_in: int = 1,
) -> int:
    """Compile versions as the tables have them, and say which compile to something else now.

    Args:
        design: Design to compile; all by default.
        version: Version; all of the design by default.
        arch: Only the cases of this arch.
        one_in: Of a version whose sources the table has, compile one case in this many, others
            each day; all of its cases come round in as many days.

    Returns:
        0 when all compile to the same machine code and launches, else 1.
    """
    _known_arch(arch)
    if one_in < 1:
        raise UsageError(f"--one_in={one_in}: at least 1 is needed")
    turn = datetime.datetime.now(datetime.UTC).toordinal()
    compared = [
        building.compare(each, _say, arch, one_in=one_in, turn=turn)
        for each in _asked(design, version)
    ]
    for one in compared:
        _tell(one)
    wrong, unknown = _wrong(compared), [one for one in compared if one.kept is None]
    cases = sum(len(one.compiled) for one in compared)
    if compared and not cases:
        raise UsageError("no version of these has a case there, so that nothing was compared")
    print(
        f"{len(compared)} versions, {cases} cases: {wrong} with other machine code or launches, "
        f"{len(unknown)} not in the table"
    )
    return EXIT_CHANGED if wrong or unknown else 0


def write(
    design: Design = None,
    version: Number = None,
    arch: str | None = None,
    changed: str | None = None,
    launches_stand: bool = False,
) -> int:
    """Compile versions and keep what they compile to in the tables.

    A version that compiles to something else than the table has is refused, unless ``--changed``
    says why; its records then are of other code, and new ones come with the change.

    Args:
        design: Design to compile; all by default.
        version: Version; all of the design by default.
        arch: Only the cases of this arch; for a version that is new, those to add.
        changed: Why the machine code of these versions is another now.
        launches_stand: With ``--changed``: what is compiled now is what a GPU launched all along,
            and only compiles without one were of other code. Records of launches stay fresh.

    Returns:
        0 when the tables are those of today's sources, else 1.
    """
    _known_arch(arch)
    if arch is not None and changed is not None:
        raise UsageError("--changed declares other code on all archs: leave --arch out")
    if launches_stand and changed is None:
        raise UsageError("--launches-stand says of which change launches are free: add --changed")
    refused = 0
    for each in _asked(design, version):
        one = building.compare(each, _say, arch, new=True)
        _tell(one)
        if one.changes and changed is None:
            refused += 1
        elif not one.compiled:
            refused += 1
            print(f"{each.key}: no case compiles, so that there is nothing to keep")
        else:
            print(f"wrote {building.keep(one, changed, launches_stand=launches_stand)}")
    if refused:
        print(
            f"{refused} versions were not written: mend them, or declare the change with "
            '--changed="why", and measure them again'
        )
    return EXIT_CHANGED if refused else 0


def records(design: Design = None, version: Number = None) -> int:
    """Compile the sources that records were made from, out of git, and keep what they compile to.

    Args:
        design: Design; all by default.
        version: Version; all of the design by default.

    Raises:
        RecordError: The repository does not have a source, or a version is not in its table.
    """
    versions = _asked(design, version)
    states = {each: building.old_states(each) for each in versions}
    for each, found in states.items():
        if found and each.version not in building.table_of(each).versions:
            raise RecordError(f"{each.key} is not in the table: run `nox -s codes -- write` first")
    flat = [(each, state) for each, found in states.items() for state in found]
    _say(f"{len(flat)} old states of sources, {sum(len(s.cases) for _, s in flat)} cases")
    made = building.rebuilt([state for _, state in flat])
    for each in versions:
        mine = [(s, made[i]) for i, (v, s) in enumerate(flat) if v == each and i in made]
        for _, compiled in mine:
            for one in compiled:
                if one.error is not None:
                    print(f"{each.key} of old {building.words_of(one.case)}: {one.error}")
        if mine:
            print(f"wrote {building.keep_old(each, mine, _say)}")
    return 0


def workloads(changed: str | None = None) -> int:
    """Run each problem's code on its check problems, and hold what it gives against the table.

    Args:
        changed: Why inputs, reference or tolerance are others now; writes a new revision.

    Returns:
        0 when all give what the table has, else 1.
    """
    path = revisions.path_of()
    table = revisions.read(path)
    found, sources = dict(table.problems), dict(table.sources)
    wrong = 0
    for problem in settling.problems():
        name, observed = observing.name_of(problem), observing.observe(problem)
        known = found.get(name, ())
        if known and known[-1].like(observed):
            print(f"same {name}: {len(observed)} check problems")
            sources[name] = revisions.sources_of(name)
            continue
        if known and changed is None:
            wrong += 1
            print(f"CHANGED {name}: {'; '.join(_differing(known[-1], observed))}")
            continue
        why = changed if known else None
        found[name] = (*known, revisions.revision(observed, why))
        sources[name] = revisions.sources_of(name)
        print(f"new revision of {name}: {found[name][-1].id}")
    made = revisions.Table(
        sources=dict(sorted(sources.items())), problems=dict(sorted(found.items()))
    )
    if made != table:
        revisions.write(made, path)
        print(f"wrote {relative(path)}")
    return EXIT_CHANGED if wrong else 0


def _differing(known: revisions.Revision, observed: Sequence[revisions.Observed]) -> list[str]:
    """What differs between a revision and what was observed, at the first problem where it does."""
    for old, new in zip(known.observed, observed, strict=False):
        if not old.like(new):
            return list(old.differences(new))
    return [f"{len(known.observed)} -> {len(observed)} check problems"]


def _wrong(compared: Sequence[building.Comparison]) -> int:
    return sum(bool(one.changes) for one in compared)


def _tell(one: building.Comparison) -> None:
    name = one.version.key
    if one.kept is not None and not one.compiled:
        print(f"{name}: no case there")
        return
    if one.kept is None:
        print(f"{name}: not in the table; {len(one.compiled)} cases compiled")
    for said in one.changes:
        print(f"CHANGED {name} {said}")
    if one.kept is not None and not one.changes:
        print(f"same {name}: {len(one.compiled)} cases")


COMMANDS: dict[str, Callable[..., int]] = {
    "check": check,
    "write": write,
    "records": records,
    "workloads": workloads,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that ``argv`` (the process's by default) names; returns the exit code."""
    command, rest, prog = arguments.choose(COMMANDS, sys.argv[1:] if argv is None else argv, PROG)
    return int(arguments.parse(command, rest, prog) or 0)


if __name__ == "__main__":
    front.run("mla_var3.app.codes:main")
