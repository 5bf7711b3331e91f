"""Command ``conformance``: starts one of the test suites by name, each implemented elsewhere.

Suites are others' tests and scripts, seeded bugs, and counts; each writes its result table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from mla_var3 import arguments, front

PROG = "python -m mla_var3.app.conformance"


def cutile_python(argv: Sequence[str], prog: str) -> int:
    """NVIDIA's own tests of cuTile, in the interpreter."""
    return _interpreter("cutile-python", argv)


def tilegym(argv: Sequence[str], prog: str) -> int:
    """TileGym's kernels, in the interpreter."""
    return _interpreter("tilegym", argv)


def cutlass_examples(argv: Sequence[str], prog: str) -> int:
    """NVIDIA's CuTe DSL examples, in the emulator."""
    from mla_var3.emulator.commands import main

    return main(["conformance", *argv])


def cutlass_options(argv: Sequence[str], prog: str) -> int:
    """Every option of some of these examples, in the emulator."""
    from mla_var3.emulator import examples

    return examples.main(argv, prog, examples.OPTIONS)


def strangers(argv: Sequence[str], prog: str) -> int:
    """Packages of PyPI that nobody here wrote, in the emulator."""
    from mla_var3.emulator.strangers import main

    return main(argv, prog)


def seeded(argv: Sequence[str], prog: str) -> int:
    """Bugs seeded into CuTe kernels, in the emulator."""
    from mla_var3.languages.cute.seeding import main

    return main(argv, prog)


def findings(argv: Sequence[str], prog: str) -> int:
    """What was found in kernels of others, run again as it is and with its remedy."""
    from mla_var3.emulator.findings import main

    return main(argv, prog)


def counts(argv: Sequence[str], prog: str) -> int:
    """What the emulator counts, held against Nsight Compute's reports of a GPU."""
    from mla_var3.app.counts import main

    return main(argv, prog)


def estimates(argv: Sequence[str], prog: str) -> int:
    """Times of our versions by the emulator's clock, to be held against records."""
    from mla_var3.app.estimates import main

    return main(argv, prog)


def peers(argv: Sequence[str], prog: str) -> int:
    """Tests of FlashMLA and FlashInfer with our kernel in place of theirs, on a GPU."""
    from mla_var3.app.peers import main

    return main(argv, prog)


def _interpreter(suite: str, argv: Sequence[str]) -> int:
    from mla_var3.interpreter.commands import main

    return main(["conformance", suite, *argv])


SUITES: dict[str, Callable[..., int]] = {
    "cutile-python": cutile_python,
    "tilegym": tilegym,
    "cutlass-examples": cutlass_examples,
    "cutlass-options": cutlass_options,
    "strangers": strangers,
    "seeded": seeded,
    "findings": findings,
    "counts": counts,
    "estimates": estimates,
    "--peers": peers,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the suite that ``argv`` (the process's by default) names; returns the exit code."""
    suite, rest, prog = arguments.choose(SUITES, sys.argv[1:] if argv is None else argv, PROG)
    return suite(rest, prog) or 0


if __name__ == "__main__":
    front.run("mla_var3.app.conformance:main")
