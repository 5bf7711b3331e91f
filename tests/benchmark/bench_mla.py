"""Compares back ends of MLA at each number of query tokens, or times one version, into a CSV.

``python tests/benchmark/bench_mla.py [flags of nox -s bench]`` times the newest version of every
design and the libraries that are installed (FlashMLA, FlashInfer, cuDNN, Triton, torch) in one run
per problem; ``bench_mla.py DESIGN [VERSION] [flags of the version]`` that version alone. Where
there is no GPU each design is compiled for one arch, at one number of query tokens.
"""

import sys

from bench_table import BENCH, KERNEL, main

from mla_var3.app.launcher import has_gpu

WITHOUT_GPU = ("--arch=sm_90", "--s=1")


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The names in front, and the flags."""
    flags = next((i for i, text in enumerate(arguments) if text.startswith("-")), len(arguments))
    return arguments[:flags], arguments[flags:]


if __name__ == "__main__":
    names, flags = split(sys.argv[1:])
    if not names and not has_gpu():  # Nothing is timed: code differs little by query tokens.
        given = {flag.partition("=")[0] for flag in flags}
        flags = [*(f for f in WITHOUT_GPU if f.partition("=")[0] not in given), *flags]
    command = [*KERNEL, *names] if names else [*BENCH, "--peers", "--newest"]
    sys.exit(main("_".join(names) or "backends", command, flags))
