"""Compares back ends of MLA at each number of query tokens, or times one version, into a CSV.

``python tests/benchmark/bench_mla.py [flags of nox -s bench]`` times the designs of every language
and the libraries that are installed (FlashMLA, FlashInfer, cuDNN, Triton, torch) in one run per
problem; ``bench_mla.py DESIGN [VERSION] [flags of the version]`` that version alone.
"""

import sys

from bench_table import BENCH, KERNEL, main


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The names in front, and the flags."""
    flags = next((i for i, text in enumerate(arguments) if text.startswith("-")), len(arguments))
    return arguments[:flags], arguments[flags:]


if __name__ == "__main__":
    names, flags = split(sys.argv[1:])
    command = [*KERNEL, *names] if names else [*BENCH, "--peers"]
    sys.exit(main("_".join(names) or "backends", command, flags))
