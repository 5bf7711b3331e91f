"""Command line of kernels: ``python -m mla_var3.kernel D [V] [flags]`` parses a plan and runs it.

``options`` parses the flags, ``launcher`` runs the plan in a profiling mode.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from mla_var3.app import adopting
from mla_var3.app.naming import asked_language, language_note, value_of
from mla_var3.arguments import HELP
from mla_var3.errors import UsageError
from mla_var3.runtime import registry

USAGE = """\
usage: python -m mla_var3.kernel DESIGN [VERSION] [--field=value ...]
       python -m mla_var3.kernel DESIGN [VERSION] --help   explains every flag

An adopted file is typed by its name: python -m mla_var3.kernel FILE.py [--size=value ...]

A design that exists in several languages is also typed DESIGN@LANGUAGE, or with --lang=LANGUAGE.

designs and versions:
{listing}
"""


def listing() -> str:
    """Designs with their versions, a line each."""
    return "\n".join(
        f"  {design:<22} {' '.join(v.version for v in versions)}"
        for design, versions in registry.designs().items()
    )


def split_names(
    argv: Sequence[str], design: str | None
) -> tuple[str | None, str | None, list[str]]:
    """Take the design (unless given) and the version off the front of ``argv``."""
    rest = list(argv)
    if design is None and rest and not rest[0].startswith("-"):
        design = rest.pop(0)
    version = rest.pop(0) if rest and not rest[0].startswith("-") else None
    return design, version, rest


def main(
    argv: Sequence[str] | None = None, *, design: str | None = None, language: str | None = None
) -> int:
    """Entry point of ``mla_var3.kernel`` and of each design's package.

    Args:
        argv: Arguments; the process's by default.
        design: Fixed design, for the form that names it in the module.
        language: Its language, likewise.

    Returns:
        The exit code.

    Raises:
        HyperMlaError: Bad input or a missing tool.
    """
    name, version, flags = split_names(sys.argv[1:] if argv is None else argv, design)
    if name is None:
        if flags[:1] and flags[0] in HELP:
            print(USAGE.format(listing=listing()))
            return 0
        raise UsageError(
            f"a design must come first: {', '.join(registry.designs())} (--help lists versions)"
        )
    if adopting.is_file(name):
        return adopting.profile(name, flags if version is None else [version, *flags])
    asked = asked_language(name, value_of("--lang", flags) or language)
    found = registry.find(name, version, asked)
    if (note := language_note(found, asked)) is not None:
        print(f"· {note}")
    from mla_var3.app import options

    plan, run_options = options.parse(
        found.plan_class(), flags, prog=f"python -m mla_var3.kernel {found.key}"
    )
    from mla_var3.app import launcher

    return launcher.run(found, plan, run_options)
