"""Loading of the wrong kernels that ``mutants.toml`` lists."""

from __future__ import annotations

import dataclasses
import importlib
import shutil
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from mla_var3.errors import HyperMlaError, NotExecutableError
from mla_var3.runtime import registry
from mla_var3.runtime.cases import cases
from mla_var3.runtime.check import check_plan
from mla_var3.runtime.plan import KernelPlan

from .fake_peers import standing_in

#: Problems that are made beside those of the workload; check makes more.
MADE = 15
#: How check notices: wrong numbers, an error of the interpreter's, or a launch that is refused.
Caught = Literal["values", "diagnostic", "refusal"]


@dataclass(frozen=True)
class Mutant:
    """One edit; with an ``argument`` it changes no result."""

    version: registry.Version
    name: str
    find: str
    put: str
    by: Caught = "values"
    file: str | None = None
    argument: str | None = None

    def __str__(self) -> str:
        return f"{self.version.design}-{self.version.version}-{self.name}"

    def target(self) -> Path:
        """The file that is edited."""
        path = self.version.path
        return path if self.file is None else path.parents[1] / self.file


def read() -> list[Mutant]:
    """All entries of ``mutants.toml``."""
    listed = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    return [
        Mutant(registry.find(design, version), name, **edit)
        for design, versions in listed.items()
        for version, edits in versions.items()
        for name, edit in edits.items()
    ]


def mutate(text: str, find: str, put: str) -> str:
    """``text`` with its one ``find`` replaced.

    Raises:
        ValueError: ``find`` does not occur exactly once.
    """
    if (count := text.count(find)) != 1:
        raise ValueError(f"{find!r} occurs {count} times, needs exactly 1")
    return text.replace(find, put)


@contextmanager
def loaded(
    version: registry.Version, folder: Path, mutant: Mutant | None = None
) -> Iterator[type[KernelPlan]]:
    """The plan class of a copy of the version's design below ``folder``, with the edit made."""
    design = version.path.parents[1]
    package = f"copy_of_{version.name}"
    copy = folder / package
    shutil.copytree(design, copy, ignore=shutil.ignore_patterns("__pycache__", "*.md"))
    if mutant is not None:
        target = copy / mutant.target().relative_to(design)
        target.write_text(mutate(target.read_text(), mutant.find, mutant.put))
    original = ".".join((registry.PACKAGE, *design.parts[-3:]))
    for file in copy.glob("**/*.py"):
        file.write_text(file.read_text().replace(f"{original}.", f"{package}."))
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        module = f"{package}.{version.name}.{version.name}"
        yield dataclasses.replace(version, module=module).plan_class()
    finally:
        sys.path.remove(str(folder))
        for name in [n for n in sys.modules if n.split(".")[0] == package]:
            del sys.modules[name]


def noticed(plan_class: type[KernelPlan]) -> dict[Caught, str]:
    """What check says of the first small problem, cheapest first, that it finds at fault."""
    found_in = cases(plan_class(), MADE)
    for case in sorted(found_in, key=lambda case: case.plan._algorithmic_flops_bytes().flops):
        try:
            with standing_in():
                result = check_plan(case.plan, order=case.order)
        except NotExecutableError as error:  # A library that is absent here.
            pytest.skip(str(error))
        except HyperMlaError as error:
            return {"refusal": str(error)}
        found: dict[Caught, str] = {}
        if wrong := [str(e) for e in result.errors if not e.ok]:
            found["values"] = "; ".join(wrong)
        if result.faults:
            found["diagnostic"] = "; ".join(map(str, result.faults))
        if found:
            return found
    return {}
