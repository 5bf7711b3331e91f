"""Builds records from finished runs: identity, toolchain, device, correctness and times."""

from __future__ import annotations

import datetime
import importlib.metadata
import math
import re
import shutil
import subprocess
import uuid
from collections.abc import Iterable, Mapping, Sequence

from mla_var3 import devices, evidence, languages
from mla_var3.evidence import revisions
from mla_var3.languages import Compiled
from mla_var3.profiling import gpu_lock
from mla_var3.profiling.job import Job
from mla_var3.runtime.check import CaseResult
from mla_var3.runtime.kernel import RuntimeObject
from mla_var3.runtime.registry import Version
from mla_var3.workloads.observing import name_of, problem_of

#: Names this process; records that share it were timed in one run and may be compared.
RUN = uuid.uuid4().hex[:12]


def toolchain(distributions: Iterable[str]) -> dict[str, str]:
    """Versions of the installed distributions, verbatim.

    A compiler that came without its distribution, as on a host that reaches no registry, is asked
    for its version: the program is called as the distribution's last word. What cannot be found is
    left out.
    """
    versions = {}
    for name in distributions:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            if found := _ask(name.rsplit("-", 1)[-1]):
                versions[name] = found
    return versions


def _ask(binary: str) -> str | None:
    if (path := shutil.which(binary)) is None:
        return None
    done = subprocess.run(
        [path, "--version"], capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    patterns = (r"V(\d+\.\d+\.\d+)", r"release (\d+\.\d+)")  # The exact one first.
    found = (re.search(pattern, done.stdout) for pattern in patterns)
    return next((match.group(1) for match in found if match), None)


def identity(version: Version) -> evidence.KernelIdentity:
    """Language, workload, design and version that a record is about."""
    return evidence.KernelIdentity(
        language=version.language,
        package=version.package,
        layer=version.layer,
        design=version.design,
        version=version.version,
        sources=version.sources(),
    )


def passed(
    obj: RuntimeObject,
    *,
    correctness: evidence.Correctness | None = None,
    protocol: evidence.Protocol | None = None,
    total: evidence.Duration | None = None,
    durations: Mapping[str, evidence.Duration] | None = None,
    compiled: Mapping[str, Compiled] | None = None,
) -> evidence.Passed:
    """The outcome of a run that ended.

    Args:
        obj: The bound runtime object.
        correctness: The comparison with the reference.
        protocol: How the times were taken.
        total: Time of the whole.
        durations: Times by stage path.
        compiled: What was compiled, by stage path.
    """
    made = compiled or {}
    stages = [
        evidence.Stage(
            name=path,
            kernel=kernel.function_name,
            tiling=kernel.tiling.values(),
            grid=list(
                (made[path].grid if path in made else ())
                or languages.find(kernel.language).grid(kernel)
            ),
            duration=(durations or {}).get(path),
            static=made[path].facts if path in made else None,
        )
        for path, kernel in obj.stages()
    ]
    return evidence.Passed(correctness=correctness, protocol=protocol, stages=stages, total=total)


def correctness(results: Sequence[CaseResult], against: str) -> evidence.Correctness:
    """The checked cases as a record keeps them."""
    wrong = [r.explain() for r in results if not r.ok]
    return evidence.Correctness(
        status="failed" if wrong else "passed",
        against=against,
        tolerance=max(e.allowed.whole for r in results for e in r.errors),
        cases=[_case(r) for r in results],
        message=wrong[0] if wrong else None,
    )


#: What a run on the CPU counts, by the names of both models.
COUNTED = (
    "mma_flops", "bytes_loaded", "bytes_stored", "bank_conflicts", "sectors", "least_sectors",
)  # fmt: skip


def _case(result: CaseResult) -> evidence.CheckedCase:
    worst = result.max_relative_error
    return evidence.CheckedCase(
        problem=result.plan.problem(),
        # Rounded to two digits: torch's sums differ in the last bits by machine.
        max_relative_error=float(f"{worst:.1e}") if math.isfinite(worst) else None,
        **{name: _sum(getattr(x, name) for x in result.executions) for name in COUNTED},
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    """The sum, or None where nothing was counted or one launch counted nothing."""
    values = list(counts)
    known = [value for value in values if value is not None]
    return sum(known) if values and len(known) == len(values) else None


def make(
    job: Job,
    mode: evidence.Mode,
    target: str,
    outcome: evidence.Outcome,
    *,
    device: evidence.Device | None = None,
    more_tools: Iterable[str] = (),
) -> evidence.Record:
    """The record of a run."""
    plan = job.plan
    return evidence.Record(
        kernel=identity(job.version),
        problem=plan.problem(),
        slug=plan.slug(),
        mode=mode,
        target=target,
        device=device,
        toolchain=toolchain((*more_tools, *job.tools)) | plan.libraries(),
        outcome=outcome,
        run=RUN,
        git=evidence.git_state(),
        time=datetime.datetime.now(datetime.UTC).replace(microsecond=0),
        workload=revisions.today(name_of(problem_of(type(plan)))),
    )


def gpu() -> tuple[devices.Device, evidence.Device]:
    """The GPU that torch uses: its device file and its state as ``nvidia-smi`` tells it."""
    import torch

    name = torch.cuda.get_device_name()
    device = devices.find(name)
    driver, sm_clock, memory_clock = _driver_state(gpu_lock.gpu_uuid())
    major, minor = torch.cuda.get_device_capability()
    return device, evidence.Device(
        key=device.key,
        name=name,
        arch=f"sm_{major}{minor}",
        driver=driver,
        sm_clock_mhz=_number(sm_clock),
        memory_clock_mhz=_number(memory_clock),
    )


def _driver_state(gpu_uuid: str) -> tuple[str, str, str]:
    """Driver version, SM clock and memory clock; ``unknown`` and empty where it does not tell.

    By its UUID, since nvidia-smi counts GPUs that this process may not see.
    """
    fields = "driver_version,clocks.sm,clocks.mem"
    try:
        line = subprocess.run(
            ["nvidia-smi", f"--id=GPU-{gpu_uuid}", f"--query-gpu={fields}",
             "--format=csv,noheader,nounits"],
            capture_output=True, encoding="utf-8", errors="replace", check=True, timeout=30,
        ).stdout  # fmt: skip
        driver, sm_clock, memory_clock = (part.strip() for part in line.split(","))
    except (OSError, subprocess.SubprocessError, IndexError, ValueError):
        return "unknown", "", ""
    return driver, sm_clock, memory_clock


def _number(text: str) -> float | None:
    return float(text) if text.replace(".", "", 1).isdigit() else None
