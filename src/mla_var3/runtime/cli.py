"""The command line of kernels: ``python -m mla_var3.kernel D [V] [flags]``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn

from rich.console import Console
from rich.markup import escape

from mla_var3 import registry
from mla_var3.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED, HyperMlaError

USAGE = """\
usage: python -m mla_var3.kernel DESIGN [VERSION] [--field=value ...]
       python -m mla_var3.kernel DESIGN [VERSION] --help   explains every flag

designs and versions:
{listing}
"""


def listing() -> str:
    """Designs with their versions, a line each."""
    return "\n".join(
        f"  {design:<22}{' '.join(v.version for v in versions)}"
        for design, versions in registry.designs().items()
    )


def guarded(body: Callable[[], int | None]) -> NoReturn:
    """Run ``body`` and exit: 0, 2 with one sentence for an error, 130 for an interrupt."""
    stderr = Console(stderr=True, soft_wrap=True)
    try:
        code = body() or 0
    except HyperMlaError as error:
        stderr.print(f"[red]error:[/red] {escape(str(error))}")
        code = EXIT_BAD_INPUT
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        stderr.print(f"[red]error:[/red] {escape(f'{error.strerror or error}{where}')}")
        code = EXIT_BAD_INPUT
    except KeyboardInterrupt:
        stderr.print("[red]interrupted[/red]; nothing half-written is left")
        code = EXIT_INTERRUPTED
    sys.exit(code)


def split_names(argv: list[str], design: str | None) -> tuple[str | None, str | None, list[str]]:
    """Take the design (unless given) and the version off the front of ``argv``."""
    rest = list(argv)
    if design is None and rest and not rest[0].startswith("-"):
        design = rest.pop(0)
    version = rest.pop(0) if rest and not rest[0].startswith("-") else None
    return design, version, rest


def main(argv: list[str] | None = None, *, design: str | None = None) -> NoReturn:
    """Entry point of ``mla_var3.kernel`` and of each design's package.

    Args:
        argv: Arguments; the process's by default.
        design: Fixed design, for the form that names it in the module.
    """
    arguments = sys.argv[1:] if argv is None else argv

    def body() -> int:
        name, version, flags = split_names(arguments, design)
        if name is None:
            print(USAGE.format(listing=listing()))
            return 0 if flags in (["--help"], ["-h"]) else EXIT_BAD_INPUT
        found = registry.find(name, version)
        from mla_var3.runtime import launcher, options

        plan, run_options = options.parse(
            found.plan_class(), flags, prog=f"python -m mla_var3.kernel {found.key}"
        )
        return launcher.run(found, plan, run_options)

    guarded(body)
