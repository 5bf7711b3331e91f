"""Compiles the court's test kernels and runs them on the CPU, and stores the facts for judging.

Nothing of it needs a GPU. A kernel whose source is edited is observed in a copy of the checkout, in
a process of its own.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter

from mla_var3 import devices, languages
from mla_var3.errors import HyperMlaError, KnowledgeError
from mla_var3.evidence import Scalar
from mla_var3.evidence.facts import Facts, StaticFacts
from mla_var3.front import run
from mla_var3.knowledge.court.cases import Kernel
from mla_var3.languages import CompileJob
from mla_var3.languages.stage_facts import compile_jobs
from mla_var3.paths import repo_root, write_atomic
from mla_var3.runtime import registry
from mla_var3.runtime.execution import recording
from mla_var3.runtime.plan import KernelPlan
from mla_var3.workloads import workloads

#: Where what was observed is kept.
TABLE = "results/court/observed.json"
#: What all cases are compiled for, and the device whose figures hold.
ARCH, DEVICE = "sm_90", "nvidia-h200-sxm"
#: Axes of the problem on which work is counted, by workload; the others stay, since rows decide
#: what a tile wastes.
COUNTED: Mapping[str, Mapping[str, int]] = {
    "mla": {"b": 1},
    "gemm": {"m": 512, "n": 512, "k": 256},
}


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Work(_Model):
    """FLOPs and DRAM bytes of a cost model."""

    flops: int
    bytes: int


class SeenStage(_Model):
    """One launch: how it is launched, what the compiler made of it, and its least work."""

    name: str
    kernel: str
    tiling: dict[str, Any]
    grid: tuple[int, ...]
    static: Facts | StaticFacts
    work: Work


class Counted(_Model):
    """A run on the CPU.

    Attributes:
        problem: What was run.
        flops: Matrix FLOPs that ran.
        loaded: Bytes that loads asked for.
        least: The work of the cost model.
        stored: Bytes that stores wrote; None where these four were not counted.
        conflicts: Wavefronts of shared memory beyond the least.
        sectors: Sectors of global memory that warps asked for.
        least_sectors: Sectors that the same bytes would fill.
    """

    problem: dict[str, Scalar]
    flops: int
    loaded: int
    least: Work
    stored: int | None = None
    conflicts: int | None = None
    sectors: int | None = None
    least_sectors: int | None = None


class Seen(_Model):
    """All that is known of a kernel.

    Attributes:
        language: Key of the language.
        layer: Workload.
        problem: Axes.
        stages: Launches in order.
        counted: A run on the CPU, where the language counts cheaply.
    """

    language: str
    layer: str
    problem: dict[str, Scalar]
    stages: tuple[SeenStage, ...]
    counted: Counted | None = None


_TABLE = TypeAdapter(dict[str, Seen])


def key(kernel: Kernel) -> str:
    """What names a kernel in the table."""
    return json.dumps(kernel.model_dump(mode="json", exclude_defaults=True), sort_keys=True)


def load(root: Path | None = None) -> dict[str, Seen]:
    """What was observed, by kernel; empty where nothing was."""
    path = (root or repo_root()) / TABLE
    return _TABLE.validate_json(path.read_bytes()) if path.is_file() else {}


def store(seen: Mapping[str, Seen], root: Path | None = None) -> Path:
    """Write what was observed."""
    path = (root or repo_root()) / TABLE
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {name: seen[name].model_dump(mode="json") for name in sorted(seen)}
    for item in content.values():
        for stage in item["stages"]:
            stage["static"].pop("lines", None)
        if item["counted"] is not None:
            item["counted"] = {k: v for k, v in item["counted"].items() if v is not None}
    write_atomic(path, json.dumps(content, indent=1) + "\n")
    return path


def renew(
    kernels: Iterable[Kernel],
    *,
    fresh: bool = False,
    root: Path | None = None,
    say: Callable[[str], None] = print,
) -> dict[str, Seen]:
    """Observe the kernels that the table lacks, or all of them.

    Args:
        kernels: What to observe.
        fresh: Observe also what the table has.
        root: Top of the checkout.
        say: Told of each kernel.

    Raises:
        KnowledgeError: One of them cannot be observed.
    """
    wanted = {key(kernel): kernel for kernel in kernels}
    table = {} if fresh else {k: v for k, v in load(root).items() if k in wanted}
    for name, kernel in wanted.items():
        if name in table:
            continue
        say(f"observing {kernel.design} {kernel.version} {name}")
        table[name] = observe(kernel, root)
        store(table, root)
    return table


def observe(kernel: Kernel, root: Path | None = None) -> Seen:
    """Compile a kernel and count its work.

    Raises:
        KnowledgeError: It does not compile, or an edit matches nothing.
    """
    try:
        return _edited(kernel, root or repo_root()) if kernel.source else _seen(kernel)
    except HyperMlaError as error:
        raise KnowledgeError(f"{kernel.design} {kernel.version}: {error}") from error


def _edited(kernel: Kernel, root: Path) -> Seen:
    with tempfile.TemporaryDirectory(prefix="hypermla-court-") as name:
        top = Path(name)
        for entry in root.iterdir():
            if entry.name not in ("src", "kernels", ".git", "out"):
                (top / entry.name).symlink_to(entry)
        ignore = shutil.ignore_patterns("__pycache__")
        for folder in ("src", "kernels"):
            shutil.copytree(root / folder, top / folder, symlinks=True, ignore=ignore)
        for edit in kernel.source:
            path = top / edit.file
            text = path.read_text(encoding="utf-8")
            if edit.old not in text:
                raise KnowledgeError(f"{edit.file} does not hold {edit.old!r}")
            path.write_text(text.replace(edit.old, edit.new), encoding="utf-8")
        plain = kernel.model_copy(update={"source": ()})
        done = subprocess.run(
            [sys.executable, "-m", "mla_var3.knowledge.court.observing"],
            input=plain.model_dump_json(), capture_output=True, encoding="utf-8", check=False,
            cwd=top, env={**os.environ, "PYTHONPATH": str(top / "src")},
        )  # fmt: skip
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise KnowledgeError(f"edited, it cannot be observed: {said[-1] if said else 'no word'}")
    return Seen.model_validate_json(done.stdout)


def _plan(kernel: Kernel) -> tuple[registry.Version, KernelPlan]:
    version = registry.find(kernel.design, kernel.version)
    plan = version.plan_class()(**kernel.problem)
    plan = plan.resolve(devices.load(DEVICE).machine(plan.dtype))
    return version, tiled(plan, kernel.tiling)


def tiled(plan: KernelPlan, fields: Mapping[str, Mapping[str, Any]]) -> KernelPlan:
    """A plan with fields of its stages' tilings replaced."""
    stages = {k.name: k.tiling for _, k in plan.plan(*plan.prepare_inputs("meta")).stages()}
    made = {name: dataclasses.replace(stages[name], **given) for name, given in fields.items()}
    return dataclasses.replace(plan, tilings={**plan.tilings, **made})


def _seen(kernel: Kernel) -> Seen:
    version, plan = _plan(kernel)
    obj = plan.plan(*plan.prepare_inputs("meta"))
    spoken = languages.find(version.language)
    jobs = [CompileJob(stage, ARCH) for _, stage in obj.stages()]
    stages = []
    for (path, stage), made in zip(obj.stages(), compile_jobs(jobs, workers=1), strict=True):
        if made.facts.error is not None:
            raise KnowledgeError(f"{path} does not compile: {made.facts.error}")
        stages.append(
            SeenStage(
                name=path, kernel=stage.function_name, tiling=stage.tiling.values(),
                grid=tuple(made.grid or spoken.grid(stage)),
                static=made.facts.model_copy(update={"lines": ()}),
                work=Work(flops=stage.cost.flops, bytes=stage.cost.bytes),
            )
        )  # fmt: skip
    return Seen(
        language=version.language, layer=version.layer, problem=plan.problem(),
        stages=tuple(stages), counted=_counted(version, plan, kernel),
    )  # fmt: skip


def _counted(version: registry.Version, whole: KernelPlan, kernel: Kernel) -> Counted | None:
    """Work counted on the CPU: by a language that builds nothing for it, or where a case asks."""
    spoken = languages.find(version.language)
    if spoken.cannot_execute() is not None:
        return None
    if spoken.cpu_builds is not None:
        return None if kernel.counted is None else _built(kernel)
    fewer: dict[str, Any] = dict(COUNTED.get(version.layer, {}))
    repeats = workloads()[version.layer].repeats(whole.problem())
    if "h" in repeats:
        fewer["h"] = 1
    if not fewer.keys() <= repeats.keys():  # A stage joins sequences: what one does tells nothing.
        return None
    plan = dataclasses.replace(whole, **fewer)  # How the keys were split stays as it is.
    run = plan.plan(*plan.prepare_inputs("cpu"))
    with recording() as executions:
        run()
    return Counted(
        problem=plan.problem(),
        flops=sum(each.mma_flops or 0 for each in executions),
        loaded=sum(each.bytes_loaded or 0 for each in executions),
        least=Work(flops=run.cost.flops, bytes=run.cost.bytes),
    )


def _built(kernel: Kernel) -> Counted:
    """Work counted by running a build of the kernel on the problem that its case names."""
    problem = {**kernel.problem, **(kernel.counted or {})}
    _, plan = _plan(kernel.model_copy(update={"problem": problem}))
    run = plan.plan(*plan.prepare_inputs("cpu"))
    with recording() as executions:
        run()

    def total(name: str) -> int:
        return sum(getattr(each, name) or 0 for each in executions)

    return Counted(
        problem=plan.problem(), flops=total("mma_flops"), loaded=total("bytes_loaded"),
        least=Work(flops=run.cost.flops, bytes=run.cost.bytes), stored=total("bytes_stored"),
        conflicts=total("bank_conflicts"), sectors=total("sectors"),
        least_sectors=total("least_sectors"),
    )  # fmt: skip


def answer() -> int:
    """Observe the kernel that comes as JSON, and print what was seen."""
    print(_seen(Kernel.model_validate_json(sys.stdin.read())).model_dump_json())
    return 0


if __name__ == "__main__":
    run("mla_var3.knowledge.court.observing:answer")
