"""Times one version of any MLA design at each number of query tokens, into a CSV.

``python tests/benchmark/bench_mla.py DESIGN [VERSION] [flags of the version]``.
"""

import sys

from bench_table import KERNEL, main


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The names in front, and the flags."""
    flags = next((i for i, text in enumerate(arguments) if text.startswith("-")), len(arguments))
    return arguments[:flags], arguments[flags:]


if __name__ == "__main__":
    names, flags = split(sys.argv[1:])
    sys.exit(main("_".join(names) or "mla", [*KERNEL, *names], flags))
