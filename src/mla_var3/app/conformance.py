"""Command ``conformance``: starts one of the test suites by name, each implemented elsewhere.

Suites are others' tests and scripts, seeded bugs, and counts; each writes its result table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

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


def tokenspeed_mla(argv: Sequence[str], prog: str) -> int:
    """TokenSpeed's own tests of MLA decode for Blackwell, in the emulator."""
    return _tests("tokenspeed-mla", argv, prog)


def flashinfer_mla(argv: Sequence[str], prog: str) -> int:
    """FlashInfer's own tests of MLA decode for Blackwell, in the emulator."""
    return _tests("flashinfer-mla", argv, prog)


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


@dataclass(frozen=True)
class Tests:
    """Run a suite of tests under pytest, and write its table.

    Attributes:
        checkout: A folder that has its sources; by default they are fetched with git.
        only: An expression for pytest's -k, to run a part; nothing is recorded then.
        sample: Cases to run of each test, chosen evenly; all by default.
    """

    checkout: Path | None = None
    only: str = ""
    sample: int | None = None


def _tests(suite: str, argv: Sequence[str], prog: str) -> int:
    from mla_var3.gpuless import suite_tests

    chosen = arguments.parse(Tests, argv, prog)
    return suite_tests.run("emulator", suite, chosen.checkout, chosen.only, chosen.sample)


def _interpreter(suite: str, argv: Sequence[str]) -> int:
    from mla_var3.interpreter.commands import main

    return main(["conformance", suite, *argv])


SUITES: dict[str, Callable[..., int]] = {
    "cutile-python": cutile_python,
    "tilegym": tilegym,
    "cutlass-examples": cutlass_examples,
    "cutlass-options": cutlass_options,
    "strangers": strangers,
    "tokenspeed-mla": tokenspeed_mla,
    "flashinfer-mla": flashinfer_mla,
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
