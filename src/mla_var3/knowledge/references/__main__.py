"""Command line ``python -m mla_var3.knowledge.references``: checks or writes the references."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import tyro

from mla_var3 import arguments, front
from mla_var3.arguments import named
from mla_var3.errors import UnknownNameError
from mla_var3.knowledge.references import holding
from mla_var3.knowledge.references.model import Reference, load_all
from mla_var3.paths import relative, repo_root

_Keys = Annotated[tyro.conf.Positional[tuple[str, ...]], named("[REFERENCE ...]")]


def check(keys: _Keys = ()) -> int:
    """Hold the references to the installed packages; 1 where one is not complete.

    Args:
        keys: References, such as cutile; all by default.
    """
    faults = 0
    for reference in _chosen(keys):
        now = holding.read(reference, repo_root(), observe=False)
        found = list(holding.faults(reference, now))
        faults += len(found)
        print(*found, sep="\n", end="\n" * bool(found))
        print(
            f"{reference.head.title}: {len(now.names)} names of {now.package} {now.version}, "
            f"{len(found)} faults"
        )
    return int(faults > 0)


def write(keys: _Keys = ()) -> int:
    """Write what the installed packages say of their names, for words of ours to follow.

    Args:
        keys: References, such as cutile; all by default.
    """
    for reference in _chosen(keys):
        print(f"wrote {relative(holding.write(reference, repo_root()), repo_root())}")
    return 0


def cutlass() -> int:
    """Convert CUTLASS's C++ documents to third_party/cutlass-docs; 1 where a file was lost."""
    from mla_var3.knowledge.references import cutlass_docs

    report = cutlass_docs.convert(repo_root(), print)
    print(report)
    for line in report.lost[:5]:
        print(f"lost: {line}")
    print(f"wrote {cutlass_docs.FOLDER}/index.md and {cutlass_docs.REPORT} beside it")
    return int(bool(report.lost))


def _chosen(keys: Sequence[str]) -> list[Reference]:
    found = {reference.key: reference for reference in load_all(repo_root())}
    for key in keys:
        if key not in found:
            raise UnknownNameError("reference", key, list(found))
    return [found[key] for key in keys or found]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that ``argv`` (the process's by default) names; returns the exit code."""
    command, rest, prog = arguments.choose(
        {"check": check, "write": write, "cutlass": cutlass},
        sys.argv[1:] if argv is None else argv,
        "python -m mla_var3.knowledge.references",
    )
    return arguments.parse(command, rest, prog) or 0


if __name__ == "__main__":
    front.run("mla_var3.knowledge.references.__main__:main")
