"""Recompiles old sources from git under today's toolchain, in a work tree of their own.

A record names its sources by their git blobs, so what it ran can be compiled again for as long as
the history is there. States of different versions share a tree where no file of theirs differs.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

import mla_var3
from mla_var3 import forked, front
from mla_var3.errors import RecordError, ToolchainError
from mla_var3.evidence.builds import Case, Compiled
from mla_var3.evidence.sources import KERNELS, git
from mla_var3.languages import fingerprints
from mla_var3.paths import kernels_dir, repo_root
from mla_var3.runtime import KernelPlan, registry
from mla_var3.runtime.registry import Version
from mla_var3.static import tools

_ASKED = TypeAdapter(tuple[tuple[str, str, tuple[Case, ...]], ...])
_MADE = TypeAdapter(tuple[tuple[Compiled, ...], ...])
#: What a tree takes of the package besides its kernels.
_LEFT_OUT = shutil.ignore_patterns("kernel", "__pycache__")
#: Modules that only sources of old find: what they called by other names, or took from elsewhere.
_OLDER = {
    "older.py": """
from mla_var3.runtime import ConcurrentKernels, Kernel, KernelPipeline, KernelPlan, RuntimeObject
from mla_var3.runtime.ct_kernel import (
    INV_LOG_2, ConstBool, ConstFloat, ConstInt, CtKernel, require_power_of_two,
)
from mla_var3.runtime.ct_kernel import CutileTiling as Tiling
from mla_var3.workloads import Cost, option
""",
    "mla/__init__.py": """
from mla_var3.runtime import KernelPlan
from mla_var3.workloads import mla

LatentPlan, DecompressedPlan, MixedPlan = (
    type(name, (problem, KernelPlan), {"__module__": __name__})
    for name, problem in {
        "LatentPlan": mla.LatentProblem,
        "DecompressedPlan": mla.DecompressedProblem,
        "MixedPlan": mla.MixedProblem,
    }.items()
)
""",
}
#: An import of the time when one module held all of it.
_ALL_OF_RUNTIME = re.compile(
    r"from mla_var3\.runtime import (?=[^()\n]*\boption\b|\([^()]*\boption\b)"
)


@dataclass(frozen=True)
class State:
    """One state of a version's sources, and what to compile of it.

    Attributes:
        design: The design with its language, as ``registry.find`` takes it.
        version: The version.
        sources: Git blob id by path.
        cases: What to compile.
    """

    design: str
    version: str
    sources: Mapping[str, str]
    cases: tuple[Case, ...]


@dataclass
class _Tree:
    files: dict[str, str] = field(default_factory=dict)
    states: list[int] = field(default_factory=list)

    def takes(self, sources: Mapping[str, str]) -> bool:
        return all(self.files.get(name, blob) == blob for name, blob in sources.items())


def text_of(blob: str) -> str:
    """The text of a source by its git blob.

    Raises:
        RecordError: The repository does not have it.
    """
    if (text := git("cat-file", "blob", blob)) is None:
        raise RecordError(f"the repository does not have the source {blob}")
    return text + "\n"


def rebuilt(states: Sequence[State]) -> Iterator[tuple[int, tuple[Compiled, ...]]]:
    """What states compile to: their places, and a result per case, in any order.

    Raises:
        RecordError: A source is not in the repository.
        ToolchainError: The compiling process ended early.
    """
    for tree in _trees(states):
        made = _compiled(tree, [states[place] for place in tree.states])
        yield from zip(tree.states, made, strict=True)


def _trees(states: Sequence[State]) -> list[_Tree]:
    """As few trees as the order of the states allows."""
    trees: list[_Tree] = []
    for place, state in enumerate(states):
        tree = next((each for each in trees if each.takes(state.sources)), None)
        if tree is None:
            trees.append(tree := _Tree())
        tree.files.update(state.sources)
        tree.states.append(place)
    return trees


def _compiled(tree: _Tree, states: Sequence[State]) -> tuple[tuple[Compiled, ...], ...]:
    asked = [(state.design, state.version, state.cases) for state in states]
    with tempfile.TemporaryDirectory(prefix="hypermla-old-") as name:
        root = Path(name)
        _grow(tree, root, {_folder(state) for state in states})
        environment = {
            **os.environ, "PYTHONPATH": str(root / "src"), "HYPERMLA_ROOT": str(repo_root()),
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "mla_var3.languages.rebuilding"],
            input=_ASKED.dump_json(_ASKED.validate_python(asked)).decode(),
            env=environment, cwd=root, capture_output=True, encoding="utf-8", check=False,
            preexec_fn=forked.die_with_parent,
        )  # fmt: skip
    if done.returncode:
        raise ToolchainError(f"compiling old sources failed: {tools.one_line(done.stderr[-400:])}")
    return _MADE.validate_json(done.stdout.splitlines()[-1])


def _grow(tree: _Tree, root: Path, replaced: set[str]) -> None:
    """Today's package with other kernels: those of the tree in place of today's of the same name.

    Args:
        tree: The sources.
        root: An empty folder.
        replaced: Folders of versions, of which only the tree's own files count.
    """
    package = Path(mla_var3.__file__).parent
    shutil.copytree(package, root / "src" / package.name, ignore=_LEFT_OUT)
    shutil.copytree(kernels_dir(), root / KERNELS, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "src" / package.name / "kernel").symlink_to(root / KERNELS)
    for name, text in _OLDER.items():
        place = root / "src" / package.name / name
        place.parent.mkdir(exist_ok=True)
        place.write_text(text, encoding="utf-8")
    for folder in replaced:
        shutil.rmtree(root / folder, ignore_errors=True)
    for name, blob in tree.files.items():
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        text = _ALL_OF_RUNTIME.sub("from mla_var3.older import ", text_of(blob))
        place.write_text(text, encoding="utf-8")


def _folder(state: State) -> str:
    version = registry.find(state.design, state.version)
    return f"{KERNELS}/{version.path.parent.relative_to(kernels_dir()).as_posix()}"


def _as_today(version: Version) -> None:
    """Let a module of old be found and bound as today's are.

    Its plan was named after the version, and resolved open sizes for two ceilings; a record names
    the sizes that came of it, so nothing is left to resolve but the device.
    """
    module: Any = importlib.import_module(version.module)
    plans: list[Any] = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, KernelPlan)
        and value.__module__ == module.__name__
        and not inspect.isabstract(value)
    ]
    module.Plan = getattr(module, "Plan", plans[0] if plans else None)
    for kind in plans[0].__mro__ if plans else ():
        own = vars(kind).get("resolve")
        if own is not None and "peak_gbps" in inspect.signature(own).parameters:
            del kind.resolve


def main() -> int:
    """Compile what the parent process asks for on stdin; results as the last line of stdout."""
    made = []
    for design, name, cases in _ASKED.validate_json(sys.stdin.read()):
        version = registry.find(design, name)
        with contextlib.suppress(Exception):  # What is wrong with it is said for each case.
            _as_today(version)
        made.append(tuple(fingerprints.compiled(version, cases)))
    print(_MADE.dump_json(tuple(made)).decode())
    return 0


if __name__ == "__main__":
    front.run("mla_var3.languages.rebuilding:main")
