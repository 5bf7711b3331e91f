"""Command lines of ``check``, ``compare`` and ``bench``: parse arguments and call the modules.

``checking``, ``comparing`` and ``benching`` do the work; ``adopting`` does for adopted files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import tyro

from mla_var3 import arguments, front
from mla_var3.app import adopting
from mla_var3.app.naming import asked_language, language_note
from mla_var3.arguments import named
from mla_var3.errors import UsageError
from mla_var3.runtime import registry

PROG = "python -m mla_var3.app.commands"


def check(
    design: Annotated[tyro.conf.Positional[str | None], named("[DESIGN]")] = None,
    version: Annotated[tyro.conf.Positional[str | None], named("[VERSION]")] = None,
    lang: str | None = None,
    mutants: int | None = None,
    compiles: int | None = None,
    anew: bool = False,
) -> int:
    """Check a version, all versions of a design, everything, or an adopted file.

    Args:
        design: Design to check, or an adopted file; all designs by default.
        version: Version to check; all of the design by default.
        lang: Language, where a design exists in several.
        mutants: Check so many wrong kernels of each version, derived from its sources, and fail
            unless each is found; 0 takes all that there are.
        compiles: Of these, compile so many by themselves, where one compile does not serve several;
            all by default.
        anew: Run again what an earlier check found right, too, though its sources, this package,
            what is installed and the problem are the same.

    Returns:
        0 when all are right, 1 when any is wrong.
    """
    if design is not None and adopting.is_file(design):
        if version is not None:
            raise UsageError(f"a file has no versions, and {version!r} is given")
        return adopting.check(design)
    from rich.console import Console

    from mla_var3.app import checking

    console = Console(soft_wrap=True, highlight=False)
    asked = asked_language(design or "", lang)
    versions = registry.select(design, version, asked)
    if design is not None and (note := language_note(versions[0], asked)) is not None:
        console.print(f"· {note}", markup=False)
    for name, value in {"mutants": mutants, "compiles": compiles}.items():
        if value is not None and value < 0:
            raise UsageError(f"--{name}={value} is below 0")
    if mutants is not None:
        from mla_var3.app import mutating

        return mutating.check(versions, console, mutants, compiles)
    if compiles is not None:
        raise UsageError("--compiles is for wrong kernels: say --mutants, too")
    return checking.check(versions, console, anew=anew)


def compare(
    design: Annotated[tyro.conf.Positional[str], named("DESIGN")],
    first: Annotated[tyro.conf.Positional[str], named("V1")],
    second: Annotated[tyro.conf.Positional[str | None], named("[V2]")] = None,
    lang: str | None = None,
    verbose: bool = False,
) -> int:
    """Say which of two versions wins, from their records; times compare within one run.

    Args:
        design: The design; or an adopted file, compared with another one.
        first: The version to compare from; v1@LANGUAGE takes it in another language, DESIGN/v1
            another design's.
        second: The version to compare to, likewise.
        lang: Language, where the design exists in several.
        verbose: Print every figure of every record that both have.
    """
    from rich.console import Console

    console = Console(highlight=False)
    if adopting.is_file(design):
        if second is not None:
            raise UsageError(f"two files are compared, and {second!r} is a third argument")
        for part in adopting.compare(design, first):
            console.print(part)
        return 0
    if second is None:
        raise UsageError(f"V2 must be given: {design} {first} is compared with another version")
    from mla_var3.app import comparing

    versions = comparing.pair(design, first, second, asked_language(design, lang))
    shown = comparing.comparison_tables if verbose else comparing.summary
    for part in shown(*versions):
        console.print(part)
    if not verbose:
        console.print("Every figure of every record: --verbose")
    return 0


def bench(argv: Sequence[str]) -> int:
    """Run every version of a workload on one problem: times on a GPU, static facts elsewhere."""
    from mla_var3.app import benching

    return benching.bench(argv, f"{PROG} bench", bench.__doc__)


COMMANDS: dict[str, Callable[..., int]] = {
    "check": check,
    "compare": compare,
    "bench": bench,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that ``argv`` (the process's by default) names; returns the exit code."""
    command, rest, prog = arguments.choose(COMMANDS, sys.argv[1:] if argv is None else argv, PROG)
    # The flags of bench come from the axes of a workload, not from its signature.
    return bench(rest) if command is bench else arguments.parse(command, rest, prog) or 0


if __name__ == "__main__":
    front.run("mla_var3.app.commands:main")
