"""Compiles kernels that pages cite as evidence, under listed tilings and archs, and keeps results.

``knowledge/compiles/NAME.toml`` lists the cases, of a version or of a small kernel beside it.
``python -m mla_var3.knowledge compile`` compiles them and keeps what it saw as
``results/compiles/NAME.json``; a page names the list and the cases that it rests on.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mla_var3 import inputs
from mla_var3.blobs import blob_id, blob_of
from mla_var3.errors import KnowledgeError, UnknownNameError
from mla_var3.evidence import Git, git_state
from mla_var3.evidence.facts import Facts, StaticFacts
from mla_var3.languages.base import CompileJob
from mla_var3.languages.stage_facts import compile_jobs
from mla_var3.paths import repo_root, write_atomic
from mla_var3.runtime import registry
from mla_var3.runtime.kernel import Kernel

LISTS = "knowledge/compiles"
TABLES = "results/compiles"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Case(_Model):
    """One compile; what it does not say is said for all cases of the list.

    Attributes:
        arch: Such as ``sm_90``.
        problem: Fields of the plan, or arguments of the small kernel.
        tiling: Fields of the tiling, hints among them.
    """

    arch: str = ""
    problem: dict[str, Any] = {}
    tiling: dict[str, Any] = {}


class Listed(_Model):
    """Cases of one kernel.

    Attributes:
        title: What is compiled, as it stands above the table of a page.
        version: Design and version, as users type them.
        stage: The stage of the version that is meant, where it has several.
        kernel: A Python file beside the list instead of a version. Its function ``kernel`` takes
            the problem, and returns the kernel bound to tensors that need no memory.
        arch: Target of all cases that name none.
        problem: As of a case, for all.
        tiling: As of a case, for all.
        cases: The compiles by their names.
    """

    title: str = Field(min_length=1)
    version: str | None = None
    stage: str | None = None
    kernel: str | None = Field(None, pattern=r"^[a-z0-9_]+\.py$")
    arch: str = "sm_90"
    problem: dict[str, Any] = {}
    tiling: dict[str, Any] = {}
    cases: dict[str, Case] = Field(min_length=1)


class Seen(_Model):
    """What a compile gave."""

    case: str
    facts: Facts


class Table(_Model):
    """All compiles of a list.

    Attributes:
        schema_version: Version of this form.
        sources: Git blob ids of the list and of the kernel's files, by path.
        git: The commit that was compiled.
        compiles: In the order of the list.
    """

    schema_version: Literal[1] = 1
    sources: dict[str, str]
    git: Git | None
    compiles: tuple[Seen, ...]

    def facts(self, case: str) -> StaticFacts:
        """Facts of a case.

        Raises:
            KnowledgeError: It was not compiled.
        """
        found = {seen.case: seen.facts for seen in self.compiles}
        if case not in found:
            raise KnowledgeError(f"no compile {case!r}; there are {', '.join(found)}")
        return found[case]


# -- reading -------------------------------------------------------------------------------------


def names(root: Path | None = None) -> list[str]:
    """Names of the lists."""
    return sorted(path.stem for path in ((root or repo_root()) / LISTS).glob("*.toml"))


def listed(name: str, root: Path | None = None) -> Listed:
    """The list of a name.

    Raises:
        UnknownNameError: There is none.
        KnowledgeError: It is not a list of compiles.
    """
    root = root or repo_root()
    if name not in names(root):
        raise UnknownNameError("list of compiles", name, names(root))
    path = f"{LISTS}/{name}.toml"
    with inputs.faults_as(KnowledgeError, path):
        found = Listed.model_validate(inputs.read_toml(root / path))
    if (found.version is None) == (found.kernel is None):
        raise KnowledgeError(f"{path} names either a version or a kernel")
    return found


def table(name: str, root: Path | None = None) -> Table:
    """What the compiles of a list gave.

    Raises:
        KnowledgeError: It was never compiled, or the file is not such a table.
    """
    path = f"{TABLES}/{name}.json"
    with inputs.faults_as(KnowledgeError, path):
        return Table.model_validate_json(inputs.read_text((root or repo_root()) / path))


def changed(found: Table, root: Path | None = None) -> list[str]:
    """Sources of a table that went, or differ from those that were compiled."""
    root = root or repo_root()
    return [name for name, blob in found.sources.items() if blob_of(root / name) != blob]


def words(facts: StaticFacts, counted: Sequence[str] = ()) -> str:
    """The figures of a compile in words, each with its unit.

    Args:
        facts: Of the compile.
        counted: Opcodes to count beside what is always said.
    """
    if facts.error is not None:
        return facts.error
    stack = f"{facts.stack_bytes} bytes of stack" if facts.stack_bytes else "no stack"
    return ", ".join(
        [
            f"{facts.registers} registers",
            stack,
            f"{facts.shared_bytes} bytes of shared memory",
            f"{facts.instructions} instructions",
            tensor_cores(facts),
            f"{facts.tma_loads} TMA loads",
            *(f"{facts.instruction_mix.get(name, 0)} {name}" for name in counted),
            *facts.synchronization,
        ]
    )


def tensor_cores(facts: StaticFacts) -> str:
    """Tensor-core instructions by opcode, or what stands in their place."""
    bases = facts.mma_path.split("+")
    counts = [f"{facts.instruction_mix[b]} {b}" for b in bases if b in facts.instruction_mix]
    return ", ".join(counts) or facts.mma_path


# -- compiling -----------------------------------------------------------------------------------


def compile_lists(
    wanted: Sequence[str] = (), say: Callable[[str], None] = lambda _text: None
) -> Iterator[Path]:
    """Compile the lists that are named, or all, and write each table as it is done.

    Raises:
        UnknownNameError: No such list, version, arch or field.
        KnowledgeError: A list is not sound.
        HyperMlaError: What the compilers raise.
    """
    for name in wanted or names():
        yield write(name, compiled(listed(name), name, say))


def write(name: str, found: Table) -> Path:
    """Write a table, whole or not at all, unless it states the same as the one that is there."""
    path = repo_root() / TABLES / f"{name}.json"
    if not path.is_file() or table(name).model_copy(update={"git": found.git}) != found:
        content = found.model_dump(mode="json", exclude_none=True)
        write_atomic(path, json.dumps(content, indent=1) + "\n")
    return path


def compiled(found: Listed, name: str, say: Callable[[str], None]) -> Table:
    """Compile all cases of a list."""
    jobs = [
        CompileJob(_bound(found, case), case.arch or found.arch) for case in found.cases.values()
    ]
    results = compile_jobs(jobs, progress=say)
    return Table(
        sources=_sources(found, name),
        git=git_state(),
        compiles=tuple(
            Seen(case=case, facts=_kept(done.facts))
            for case, done in zip(found.cases, results, strict=True)
        ),
    )


def _kept(facts: StaticFacts) -> Any:
    """Facts without the counts of each line, which no page shows and which fill most of a file."""
    return facts.model_copy(update={"lines": ()})


def _bound(found: Listed, case: Case) -> Kernel:
    problem = {**found.problem, **case.problem}
    if found.kernel is not None:
        kernel = _small_kernel(found.kernel)(**problem)
    else:
        kernel = _stage(found, problem, case.arch or found.arch)
    kernel.tiling = dataclasses.replace(kernel.tiling, **{**found.tiling, **case.tiling})
    return kernel


def _stage(found: Listed, problem: Mapping[str, Any], arch: str) -> Kernel:
    from mla_var3.profiling.static import resolved  # Brings torch, and reading a list needs none.

    plan = resolved(_version(found).plan_of(problem), arch, None)
    stages = dict(plan.plan(*plan.prepare_inputs("meta")).stages())
    stage = found.stage or next(iter(stages))
    if stage not in stages:
        raise UnknownNameError("stage", stage, list(stages))
    return stages[stage]


def _version(found: Listed) -> registry.Version:
    design, _, version = (found.version or "").partition(" ")
    return registry.find(design, version or None)


def _small_kernel(name: str) -> Callable[..., Kernel]:
    path = repo_root() / LISTS / name
    spec = importlib.util.spec_from_file_location(f"compiles_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise KnowledgeError(f"{LISTS}/{name} does not exist")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # The CuTe DSL looks up where a class comes from.
    spec.loader.exec_module(module)
    found: Callable[..., Kernel] = module.kernel
    return found


def _sources(found: Listed, name: str) -> dict[str, str]:
    own = [f"{LISTS}/{name}.toml"] + ([f"{LISTS}/{found.kernel}"] if found.kernel else [])
    blobs = {path: blob_id((repo_root() / path).read_bytes()) for path in own}
    return blobs if found.kernel else {**blobs, **_version(found).sources()}
