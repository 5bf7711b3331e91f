"""Works out the FLOPs and bytes of an adopted file whose kernel language is not installed.

Its inputs and its reference are plain torch and run. The language is stood in for while the file is
imported, and ``launch`` is not called.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from mla_var3.campaign import contract, running
from mla_var3.campaign.reaching import imports
from mla_var3.errors import ToolchainError
from mla_var3.evidence import Scalar
from mla_var3.workloads import Cost

#: Kernel languages that nothing here runs, by the module that files import.
FOREIGN = {"flydsl": "FlyDSL"}


def language_of(path: Path) -> str:
    """The foreign language that a file imports and that is not installed; empty without one."""
    tops = {name.partition(".")[0] for name in imports(path)}
    found = [module for module in FOREIGN if module in tops]
    return next((m for m in found if importlib.util.find_spec(m) is None), "")


def require_installed(path: Path) -> None:
    """Refuse to run a file whose kernel language is missing.

    Raises:
        ToolchainError: It is; names what works without it.
    """
    if module := language_of(path):
        raise ToolchainError(
            f"{path} imports {module}, which is not installed, so that none of it runs; its inputs "
            f"and reference do: `nox -s campaign -- step0 {path} --device=amd-mi300x` states its "
            "ceilings"
        )


def work_of(path: Path, sizes: Mapping[str, Scalar]) -> tuple[dict[str, Scalar], str, Cost, str]:
    """Sizes, element type, cost and its source of a file whose language is missing.

    Outputs count in the narrowest floating-point type of the inputs, since a reference may be wider
    than what the kernel writes.

    Raises:
        PlanError: Its inputs or its reference fail.
    """
    from mla_var3.campaign.flops import Counting  # Loads torch.

    module, counter = language_of(path), Counting()
    with running.on_cpu("torch", ()), _stood_in(module):
        mine = contract.load(path)
        problem = mine.problem(sizes)
        with contract.one_sentence(f"{path}: inputs fails"):
            given = mine.inputs("cuda", **problem)
        with contract.one_sentence(f"{path}: reference fails"), counter:
            right = mine.reference(**given)
        out = contract.outputs(path, "reference", given, right)
    tensors = contract.tensors(given)
    least, dtype = contract.narrowest([*tensors, *out.values()])
    width = least.element_size() if least is not None else 8
    moved = sum({id(one): one.nbytes for one in tensors}.values())
    moved += sum(one.numel() * min(one.element_size(), width) for one in out.values())
    counted = "torch's FlopCounter over the reference" if counter.flops else "no FLOP counted"
    source = (
        f"{counted}, and the bytes of its inputs and outputs, these as {dtype}: {module} is not "
        "installed and nothing was launched"
    )
    return problem, dtype, Cost(counter.flops, moved), source


class _StandIn(ModuleType):
    """A module and all that it holds: enough for decorators, annotations and base classes."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Self:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(self)(f"{self.__name__}.{name}")

    def __call__(self, *_args: Any, **_named: Any) -> Self:
        return self

    def __getitem__(self, _key: Any) -> Self:
        return self

    def __mro_entries__(self, _bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return ()


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, top: str) -> None:
        self.top = top

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] == self.top else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: it is whole as it is."""


@contextlib.contextmanager
def _stood_in(top: str) -> Iterator[None]:
    finder = _Finder(top)
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [n for n in sys.modules if n.split(".")[0] == top]:
            del sys.modules[name]
