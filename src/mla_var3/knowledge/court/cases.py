"""Reads the court's test kernels, each with the page that advice should rank first, from TOML.

Lists stand in ``knowledge/court``: ``seeded.toml`` has kernels of ours that one edit made slow,
``strangers.toml`` third-party kernels with an expert's verdict on each, ``history.toml`` versions
that another design beat. All were written before the advice was asked.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from mla_var3.errors import KnowledgeError
from mla_var3.paths import repo_root

FOLDER = "knowledge/court"
SEEDED, STRANGERS = f"{FOLDER}/seeded.toml", f"{FOLDER}/strangers.toml"
HISTORY = f"{FOLDER}/history.toml"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Replaced(_Model):
    """An edit of a source.

    Attributes:
        file: Path from the top of the checkout.
        old: What stands there; each occurrence is replaced.
        new: What takes its place.
    """

    file: str
    old: str
    new: str


class Kernel(_Model):
    """A kernel as it is observed.

    Attributes:
        design: Design, with ``@language`` where it exists in two.
        version: Such as ``v2``.
        problem: Axes that differ from the plan's defaults.
        tiling: Fields of the tilings that differ from the defaults, by stage.
        source: Edits of its sources.
        counted: Axes of the problem on which its work is counted, where a CPU has to build it.
    """

    design: str
    version: str
    problem: dict[str, Any] = {}
    tiling: dict[str, dict[str, Any]] = {}
    source: tuple[Replaced, ...] = ()
    counted: dict[str, Any] | None = None


class Edit(_Model):
    """What one edit changes; what it does not name stays."""

    version: str | None = None
    problem: dict[str, Any] = {}
    tiling: dict[str, dict[str, Any]] = {}
    source: tuple[Replaced, ...] = ()


class Seeded(_Model):
    """A good kernel of ours and the edit that makes it slow.

    Attributes:
        id: Unique name.
        good: The kernel before the edit.
        edit: The edit.
        remedies: Pages any of which undoes it.
        why: Why the edit costs time, in one sentence.
    """

    id: str
    good: Kernel
    edit: Edit
    remedies: tuple[str, ...]
    why: str

    @property
    def slow(self) -> Kernel:
        """The kernel after the edit."""
        stages = {**self.good.tiling, **self.edit.tiling}
        tiling = {
            stage: {**self.good.tiling.get(stage, {}), **self.edit.tiling.get(stage, {})}
            for stage in stages
        }
        return Kernel(
            design=self.good.design,
            version=self.edit.version or self.good.version,
            problem={**self.good.problem, **self.edit.problem},
            tiling=tiling,
            source=self.edit.source,
            counted=self.good.counted,
        )


class Launch(_Model):
    """One launch of a kernel of a package.

    Attributes:
        arguments: In order; a tensor is told by its form, such as ``bf16[32,128]``.
        hints: Compiler hints of cuTile, or ``num_warps`` and ``num_stages`` of Triton.
        constants: Constants of a Triton kernel; None for others.
        keywords: Keyword arguments of a host function that compiles and launches a kernel of the
            CuTe DSL; None for others.
        tiling: What a reader of the launch learns of the tiles.
    """

    arguments: tuple[Any, ...]
    hints: dict[str, int] = {}
    constants: dict[str, Any] | None = None
    keywords: dict[str, Any] | None = None
    tiling: dict[str, Any] = {}


class Smaller(_Model):
    """The same kernel on a problem that a CPU runs, to count its work.

    Attributes:
        problem: Axes that differ.
        arguments: As of a launch.
        grid: Blocks per axis.
        flops: FLOPs of the problem.
        bytes: Least DRAM bytes of the problem.
    """

    problem: dict[str, Any]
    arguments: tuple[Any, ...]
    grid: tuple[int, ...]
    flops: int
    bytes: int


class Stranger(_Model):
    """A kernel that nobody here wrote.

    Attributes:
        id: Unique name.
        example: File of ``knowledge/examples``, without its ending, whose compile states the facts.
        package: Name and version of the package that holds the kernel, in place of an example.
        kernel: Which kernel: of an example the start of its name, the first by default; of a
            package ``module:name``.
        launch: How a kernel of a package is launched.
        counted: A smaller launch whose work a CPU counts.
        layer: Workload whose words describe the problem.
        problem: Axes of the problem that the example runs by default.
        grid: Blocks per axis.
        flops: FLOPs of the problem.
        bytes: Least DRAM bytes of the problem.
        remedies: Pages any of which an expert would name; empty where nothing is to be found.
        why: The expert's reason.
    """

    id: str
    example: str = ""
    package: str = ""
    kernel: str = ""
    launch: Launch | None = None
    counted: Smaller | None = None
    layer: str
    problem: dict[str, Any] = {}
    grid: tuple[int, ...] = ()
    flops: int = 0
    bytes: int = 0
    remedies: tuple[str, ...]
    why: str

    @property
    def origin(self) -> str:
        """Where it is from."""
        return self.example or self.package


class Past(_Model):
    """A version that a version of another design beat in the same run.

    Attributes:
        id: Unique name.
        before: Address of its record.
        after: Address of the successor's.
        remedies: Pages any of which says what the successor does and it lacks.
        why: What that is, in one sentence.
    """

    id: str
    before: str
    after: str
    remedies: tuple[str, ...]
    why: str


class _SeededList(_Model):
    case: tuple[Seeded, ...]
    good: tuple[Kernel, ...] = ()


class _StrangerList(_Model):
    case: tuple[Stranger, ...]


class _PastList(_Model):
    case: tuple[Past, ...]


_CaseList = TypeVar("_CaseList", _SeededList, _StrangerList, _PastList)


def _listed(kind: type[_CaseList], name: str, root: Path | None) -> _CaseList:
    """A file of cases, each named once; KnowledgeError where it is no such file."""
    path = (root or repo_root()) / name
    try:
        found = kind.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise KnowledgeError(f"{name} cannot be read: {error}") from error
    except ValidationError as error:
        raise KnowledgeError(f"{name}: {error}") from error
    _once([case.id for case in found.case], name)
    return found


def seeded(root: Path | None = None) -> tuple[tuple[Seeded, ...], tuple[Kernel, ...]]:
    """The seeded slow-downs, and every good kernel once: those of the cases and those beside them.

    Raises:
        KnowledgeError: The list is missing, is not TOML, or names a case twice.
    """
    found = _listed(_SeededList, SEEDED, root)
    goods: list[Kernel] = []
    for kernel in (*(case.good for case in found.case), *found.good):
        if kernel not in goods:
            goods.append(kernel)
    return found.case, tuple(goods)


def strangers(root: Path | None = None) -> tuple[Stranger, ...]:
    """The kernels of others.

    Raises:
        KnowledgeError: The list is missing, is not TOML, or names a case twice.
    """
    return _listed(_StrangerList, STRANGERS, root).case


def past(root: Path | None = None) -> tuple[Past, ...]:
    """The versions that a version of another design beat.

    Raises:
        KnowledgeError: The list is missing, is not TOML, or names a case twice.
    """
    return _listed(_PastList, HISTORY, root).case


def _once(names: list[str], where: str) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise KnowledgeError(f"{where} names {', '.join(twice)} twice")
