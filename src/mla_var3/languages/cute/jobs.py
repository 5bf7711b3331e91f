"""Compiles bound CuTe kernels side by side; implements ``Language.compile_many`` for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mla_var3.errors import PlanError
from mla_var3.evidence import StaticFacts
from mla_var3.languages.base import Compiled, CompileJob
from mla_var3.languages.cute.compile import (
    FACTS,
    TIMEOUT_S,
    HostCompiled,
    HostJob,
    compile_hosts,
)
from mla_var3.languages.cute.facts import CuteFacts
from mla_var3.languages.cute.kernel import CuteKernel
from mla_var3.runtime.kernel import Kernel


def compile_jobs(
    jobs: Sequence[CompileJob],
    *,
    workers: int | None,
    cache_dir: Path | None,
    timeout: float | None,
    progress: Callable[[CompileJob, StaticFacts], None],
) -> list[Compiled]:
    """Compile kernels of this language; see :meth:`mla_var3.languages.base.Language.compile_many`.

    Raises:
        PlanError: A host function launches several device kernels, or none.
    """
    asked = [HostJob(*require_cute(job.kernel).host(), job.arch) for job in jobs]
    of_host = {id(one): job for one, job in zip(asked, jobs, strict=True)}

    def told(one: HostJob, result: HostCompiled) -> None:
        job = of_host[id(one)]
        progress(job, only_launch(job.kernel, result))

    results = compile_hosts(
        asked,
        workers=workers,
        cache_dir=cache_dir,
        timeout=TIMEOUT_S if timeout is None else timeout,
        progress=told,
    )
    return [
        Compiled(
            facts := only_launch(job.kernel, result),
            {**result.files, FACTS: facts.model_dump_json(indent=1).encode()},
        )
        for job, result in zip(jobs, results, strict=True)
    ]


def require_cute(kernel: Kernel) -> CuteKernel:
    """The kernel; PlanError when it is of another language."""
    if not isinstance(kernel, CuteKernel):
        raise PlanError(f"{kernel.name} is not a CuTe kernel but {kernel.language}")
    return kernel


def only_launch(kernel: Kernel, result: HostCompiled) -> CuteFacts:
    """Facts of the one device kernel that a host function launches, under the kernel's name.

    Raises:
        PlanError: It launches another number of kernels.
    """
    if len(result.facts) != 1:
        raise PlanError(
            f"{kernel.name}: its host function launches {len(result.facts)} device kernels; give "
            "each a CuteKernel of its own, in a KernelPipeline"
        )
    return result.facts[0].model_copy(update={"kernel": kernel.function_name})
