"""Command ``adopt``: checks or drafts the functions by which a user's kernel file is run here.

A file needs three functions: inputs(device, sizes...) makes the inputs by name, reference(**inputs)
computes the right result by plain torch, launch(**inputs) launches the kernel as its users do.
Where they are missing, the file is run once without a GPU, and a draft of them is written beside
it. Then check, profile and compare take the file in place of a design.
"""

from __future__ import annotations

import difflib
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from mla_var3 import front
from mla_var3.app.drafting import SUITE, draft, examples
from mla_var3.app.naming import value_of
from mla_var3.archs import base_arch
from mla_var3.arguments import HELP
from mla_var3.campaign import adopted, contract, running
from mla_var3.errors import UsageError
from mla_var3.examples.store import id_of
from mla_var3.gpuless import suites
from mla_var3.paths import relative

PROG = "python -m mla_var3.app.adopt"
FLAGS = ("--to", "--arch")
EXAMPLES = "--examples"
USAGE = f"""\
usage: {PROG} [--to=ADOPTED.py] [--arch=ARCH] FILE.py [ARGS]
       {PROG} [--to=ADOPTED.py] EXAMPLE
       {PROG} --examples[=TEXT] [--timeout=SECONDS]

Makes a cuTile, CuTe DSL, Triton or plain PyTorch file a kernel that check, profile, compare and
campaign take as they take our versions. It needs three functions:

  def inputs(device, n=4096):     the inputs by name; further parameters are sizes, and flags
  def reference(x, y):            what is right, by plain torch
  def launch(x, y):               launches the kernel as its users do; returns the same, or None
                                  where it writes to inputs, which reference then names

CHECKS = [{{"n": 100}}] names sizes to check, TOLERANCE = 1e-2 the largest relative error, ARCH what
CuTe DSL and Triton files run as compiled for. Where the functions are missing, FILE is run once on
the CPU with ARGS, and a draft of them is written to FILE's name with _adopted, or where --to says:
complete but for the reference, or complete where FILE compares its results by itself.

EXAMPLE is a fetched CUTLASS example, by id or path; it is run at the sizes of the conformance suite
and held to its own reference, and its draft goes to out/adopted. --examples does so for all of
them, or those with TEXT in their path, and checks and compiles each: which can be adopted, and why
the others cannot, goes to a table.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Adopt the file that ``argv`` (the process's by default) names; returns the exit code.

    Raises:
        UsageError: No file is named, or the draft's place is taken.
        InputError: Nothing can be drafted.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:1] and argv[0] in HELP:
        print(USAGE)
        return 0
    if argv[:1] and argv[0].partition("=")[0] == EXAMPLES:
        from mla_var3.app import adopting_examples

        return adopting_examples.main(argv[0].partition("=")[2], argv[1:])
    at = next((i for i in range(len(argv)) if _is_name(argv, i)), None)
    if at is None:
        raise UsageError(f"a file or an example must be given; see {PROG} --help")
    own, path, rest = argv[:at], Path(argv[at]), argv[at + 1 :]
    for word in own:
        if word.startswith("-") and word.partition("=")[0] not in FLAGS:
            raise UsageError(f"unknown flag {word}; see {PROG} --help")
    to = value_of("--to", own)
    return _adopt(path, Path(to) if to else None, value_of("--arch", own), rest)


def _is_name(argv: Sequence[str], i: int) -> bool:
    """Whether a word names the file: it is no flag, and no flag's value."""
    before = argv[i - 1] if i else ""
    return not argv[i].startswith("-") and before not in FLAGS


def _adopt(path: Path, to: Path | None, arch: str | None, rest: Sequence[str]) -> int:
    if not path.is_file():
        if rest:
            raise UsageError(f"there is no file {str(path)!r}")
        example = _example(str(path))
        target = to or adopted.results() / f"{id_of(example.path).replace('-', '_')}.py"
        source = suites.sources(suites.find(SUITE), None) / example.path
        arguments = shlex.split(example.arguments)
        draft(source, target, base_arch(example.arch), arguments, own_reference=True)
        return 0
    if contract.has_contract(path):
        return told(path, arch)
    target = to or path.with_name(f"{contract.name_of(path)}_adopted.py")
    draft(path, target, arch, rest)
    return 0


def _example(asked: str) -> suites.Script:
    """The shortest run of a CUTLASS example in the conformance suite.

    Raises:
        UsageError: It is neither a file nor such an example.
    """
    known = examples()
    wanted = asked.strip("/").removeprefix("examples/python/CuTeDSL/")
    found = known.get(wanted) or known.get(id_of(wanted))
    if found is None:
        near = difflib.get_close_matches(id_of(wanted), known, n=1, cutoff=0.5)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise UsageError(
            f"{asked} is neither a file nor one of the {len(known)} examples that the emulator's "
            f"conformance suite runs{hint}"
        )
    return found


def told(path: Path, arch: str | None) -> int:
    """Run an adopted file once and say what it is; 1 where it is wrong."""
    found = adopted.adopt(path, arch)
    checked = found.check({})
    launches = checked.trace.launches
    names = ", ".join(f"{running.short(x.kernel)}{list(x.grid)}" for x in launches)
    print(f"{relative(path)}: {found.kind}; kernels: {names or 'none'}")
    sizes = ", ".join(f"{name}={value}" for name, value in found.told.sizes.items())
    print(f"sizes: {sizes or 'none'}")
    print(f"wrong: {checked.wrong}" if checked.wrong else f"right, error {checked.error:.1e}")
    name = relative(path)
    print(f"next: nox -s check -- {name}; nox -s profile -- {name}")
    return int(bool(checked.wrong))


if __name__ == "__main__":
    front.run("mla_var3.app.adopt:main")
