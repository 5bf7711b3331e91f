"""Command ``run``: runs a cuTile or CuTe DSL script unchanged, without a GPU.

With ``--arch`` each kernel that it launches is compiled too, with one line for the result.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mla_var3 import front, inputs
from mla_var3.arguments import HELP
from mla_var3.errors import UsageError

if TYPE_CHECKING:
    from mla_var3.emulator.emulation import Emulation
    from mla_var3.evidence import StaticFacts

PROG = "python -m mla_var3.app.run"
#: Module whose import says that a script launches CuTe DSL kernels, which the emulator runs.
CUTE = "cutlass"
ARCH = "--arch"
#: What is said where there is nothing to compile.
NOTHING = "no kernel was launched, so none was compiled"
USAGE = f"""\
usage: {PROG} [--arch=ARCH] [OPTIONS] SCRIPT [ARGS]

Runs a script on the CPU: cuTile kernels in the interpreter, CuTe DSL kernels from their PTX in the
emulator. The script's own imports decide. --arch=sm_120 also compiles each kernel that the script
launches, at the sizes of its first launch, and says its registers, spills, shared memory and MMA
path in one line; --arch=sm_90,sm_120 does so for several. A CuTe DSL script runs as compiled for
the one arch that is named. The other OPTIONS are those of
  python -m mla_var3.interpreter run --help
  python -m mla_var3.emulator run --help
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script that ``argv`` (the process's by default) names; returns the exit code.

    Raises:
        UsageError: No script is named, it cannot be read as Python, or it is not for the arch.
        UnknownNameError: There is no such arch.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:1] and argv[0] in HELP:
        print(USAGE)
        return 0
    at = next((index for index, word in enumerate(argv) if word.endswith(".py")), None)
    if at is None:
        raise UsageError(f"a script that ends in .py must be given; see {PROG} --help")
    script, archs = Path(argv[at]), _archs(argv[:at])
    words = [*_without_arch(argv[:at]), *argv[at:]]
    if uses_cute(script):
        return _cute(script, words, archs) if archs else _emulator(words)
    return _cutile(words, archs) if archs else _interpreter(words)


def _archs(options: Sequence[str]) -> list[str]:
    """What ``--arch`` names; nothing where it is not there."""
    if not any(word.partition("=")[0] == ARCH for word in options):
        return []
    from mla_var3.app.naming import value_of  # It loads what a script without --arch never needs.

    archs = (value_of(ARCH, options) or "").split(",")
    if not all(archs):
        raise UsageError(f"{ARCH} must name archs, as in {ARCH}=sm_120 or {ARCH}=sm_90,sm_120")
    return archs


def _without_arch(options: Sequence[str]) -> list[str]:
    """Options without ``--arch``, its value in the same word or in the next."""
    return [
        word
        for before, word in zip(["", *options], options, strict=False)
        if word.partition("=")[0] != ARCH and before != ARCH
    ]


def _interpreter(words: Sequence[str]) -> int:
    from mla_var3.interpreter.commands import main as interpreter

    return interpreter(["run", *words])


def _emulator(words: Sequence[str]) -> int:
    from mla_var3.emulator.commands import main as emulator

    return emulator(["run", *words])


def _cutile(words: Sequence[str], archs: Sequence[str]) -> int:
    """Interpret a script, then compile what it launched."""
    from mla_var3.interpreter.launcher import launched
    from mla_var3.languages.cutile.compile import TileJob, compile_many
    from mla_var3.languages.cutile.toolchain import require_arch

    for arch in archs:  # Before the script runs, which may take long.
        require_arch(arch)
    with launched() as found:
        code = _interpreter(words)
    jobs = [TileJob(kernel, args, arch) for kernel, args in found.values() for arch in archs]
    made = [compiled.facts for compiled in compile_many(jobs)]
    told = (
        line(facts, [arg for arg in job.args if isinstance(arg, int | float)])
        for job, facts in zip(jobs, made, strict=True)
    )
    # Strides are specialized too, often to the same end.
    print(*(dict.fromkeys(told) or [NOTHING]), sep="\n")
    return code or int(any(facts.error is not None for facts in made))


def _cute(script: Path, words: Sequence[str], chosen: Sequence[str]) -> int:
    """Emulate a script as compiled for an arch, and say what ptxas made of its kernels."""
    from mla_var3.emulator import commands
    from mla_var3.languages.cute import arch as archs
    from mla_var3.languages.cute.compile import compile_ptx

    if len(chosen) > 1:
        raise UsageError(f"a CuTe DSL script runs as compiled for one arch: {', '.join(chosen)}")
    (arch,) = chosen
    if refused := archs.refusal(archs.features(names(script)), arch):
        raise UsageError(f"{script} {refused}")

    def told(emulation: Emulation) -> None:
        if not emulation.asked:
            print(NOTHING)
        for (text, kernel), asked in emulation.asked.items():
            print(line(compile_ptx(text, kernel, arch, asked).facts))

    return commands.run([f"{ARCH}={archs.target(arch)}", *words], f"{commands.PROG} run", told)


def line(facts: StaticFacts, numbers: Sequence[float] = ()) -> str:
    """What a compiler made of a kernel, in one line.

    Args:
        facts: What it made.
        numbers: The numbers that the kernel was launched with, such as its tile sizes.
    """
    called = f"({', '.join(map(str, numbers))})" if numbers else ""
    where = f"{facts.kernel}{called} on {facts.arch}"
    if facts.error is not None:
        return f"{where}: {facts.error}"
    count = facts.spill_instructions
    spills = f"{count:,} spill instructions" if count else "no spills"
    return (
        f"{where}: {facts.registers} registers, {spills}, {facts.shared_bytes:,} bytes of shared "
        f"memory, MMA path {facts.mma_path}" + (f"; {facts.serialized}" if facts.serialized else "")
    )


def uses_cute(script: Path) -> bool:
    """Whether a script imports the CuTe DSL.

    Raises:
        InputError: It cannot be read.
        UsageError: It is not Python; names the line.
    """
    found = set()
    for node in ast.walk(inputs.read_python(script)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return any(name.partition(".")[0] == CUTE for name in found)


def names(script: Path) -> set[str]:
    """The names and attributes that a script uses, and what it imports."""
    found: set[str] = set()
    for node in ast.walk(inputs.read_python(script)):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.alias):
            found |= set(node.name.split("."))
    return found


if __name__ == "__main__":
    front.run("mla_var3.app.run:main")
