"""From a finished run to its record: the parts that all modes share."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.metadata
import math
import re
import shutil
import subprocess
import uuid
from collections.abc import Iterable, Mapping

import torch

from mla_var3 import devices, records
from mla_var3.roofline import Prediction, predict
from mla_var3.runtime.check import TOLERANCE, CaseResult
from mla_var3.runtime.kernel import RuntimeObject
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.registry import Version

STATIC_TOOLS = ("cuda-tile", "nvidia-cuda-tileiras", "nvidia-cuda-nvcc", "nvidia-nvvm")
GPU_TOOLS = ("torch", *STATIC_TOOLS)
BINARIES = {"nvidia-cuda-tileiras": "tileiras", "nvidia-cuda-nvcc": "ptxas"}

#: Names this process; records that share it were timed in one run and may be compared.
RUN = uuid.uuid4().hex[:12]


def toolchain(distributions: Iterable[str]) -> dict[str, str]:
    """Versions of the installed distributions, verbatim.

    A compiler that came without its distribution, as on a host that reaches no registry, is asked
    for its version; what cannot be found is left out.
    """
    versions = {}
    for name in distributions:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            if found := _ask(BINARIES.get(name)):
                versions[name] = found
    return versions


def _ask(binary: str | None) -> str | None:
    if binary is None or (path := shutil.which(binary)) is None:
        return None
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    patterns = (r"V(\d+\.\d+\.\d+)", r"release (\d+\.\d+)")  # The exact one first.
    found = (re.search(pattern, done.stdout) for pattern in patterns)
    return next((match.group(1) for match in found if match), None)


def identity(version: Version) -> records.KernelIdentity:
    """Who the record is about."""
    return records.KernelIdentity(
        language=version.language,
        layer=version.layer,
        design=version.design,
        version=version.version,
        source_sha256=version.source_sha256(),
    )


def prediction(
    device: devices.Device, plan: KernelPlan, flops: int, bytes_: int
) -> records.Prediction:
    """Roofline floor of ``flops`` and ``bytes_`` on ``device``."""
    ceilings = device.ceilings(plan.dtype)
    floor: Prediction = predict(flops, bytes_, ceilings)
    return records.Prediction(
        device=device.key,
        time_us=round(floor.time_us, 3),
        bound=floor.bound,
        intensity=round(floor.intensity, 3),
        ridge=round(floor.ridge, 3),
        tflops_ceiling=ceilings.tflops,
        gbps_ceiling=ceilings.gbps,
        ceiling_kind=ceilings.source_kind,
    )


def stages(
    obj: RuntimeObject,
    plan: KernelPlan,
    predict_for: Iterable[devices.Device] = (),
    durations: Mapping[str, records.Duration] | None = None,
    static: Mapping[str, dict[str, object]] | None = None,
) -> list[records.Stage]:
    """A record's stages from the kernels of ``obj``.

    Args:
        obj: The bound runtime object.
        plan: Its plan.
        predict_for: Devices to place each stage on the roofline of.
        durations: Measured times by stage path.
        static: Compiler facts by stage path.
    """
    return [
        records.Stage(
            name=path,
            kernel=kernel.function_name,
            tiling=dataclasses.asdict(kernel.tiling),
            grid=list(kernel.grid()),
            flops=kernel.flops,
            bytes=kernel.bytes,
            duration=(durations or {}).get(path),
            static=(static or {}).get(path),
            predictions=[prediction(d, plan, kernel.flops, kernel.bytes) for d in predict_for],
        )
        for path, kernel in obj.stages()
    ]


def correctness(results: Iterable[CaseResult], against: str, dtype: str) -> records.Correctness:
    """The checked cases as a record keeps them."""
    results = list(results)
    wrong = [r.explain() for r in results if not r.ok]
    return records.Correctness(
        status="failed" if wrong else "passed",
        against=against,
        tolerance=TOLERANCE[dtype],
        cases=[
            records.CheckedCase(
                problem=r.plan.problem(),
                # Rounded to two digits: torch's sums differ in the last bits by machine.
                max_relative_error=float(f"{r.max_relative_error:.1e}")
                if math.isfinite(r.max_relative_error)
                else None,
                mma_flops=sum(x.mma_flops for x in r.reports) if r.reports else None,
                bytes_loaded=sum(x.bytes_loaded for x in r.reports) if r.reports else None,
                bytes_stored=sum(x.bytes_stored for x in r.reports) if r.reports else None,
            )
            for r in results
        ],
        message=wrong[0] if wrong else None,
    )


def make(
    version: Version,
    plan: KernelPlan,
    mode: records.Mode,
    target: str,
    outcome: records.Passed | records.Failed,
    *,
    device: records.Device | None = None,
    tools: Iterable[str] = STATIC_TOOLS,
) -> records.Record:
    """The record of a run."""
    return records.Record(
        kernel=identity(version),
        problem=plan.problem(),
        slug=plan.slug(),
        mode=mode,
        target=target,
        device=device,
        toolchain=toolchain(tools),
        outcome=outcome,
        run=RUN,
        git=records.git_state(),
        time=datetime.datetime.now(datetime.UTC).replace(microsecond=0),
    )


def gpu() -> tuple[devices.Device, records.Device]:
    """The GPU that torch uses: its device file and its state as ``nvidia-smi`` tells it."""
    name = torch.cuda.get_device_name()
    device = devices.find(name)
    fields = "driver_version,clocks.sm,clocks.mem"
    try:
        line = subprocess.run(
            ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"],
            capture_output=True, text=True, check=True, timeout=30,
        ).stdout.splitlines()[torch.cuda.current_device()]  # fmt: skip
        driver, sm_clock, memory_clock = (part.strip() for part in line.split(","))
    except (OSError, subprocess.SubprocessError, IndexError, ValueError):
        driver, sm_clock, memory_clock = "unknown", "", ""

    def number(text: str) -> float | None:
        return float(text) if text.replace(".", "", 1).isdigit() else None

    major, minor = torch.cuda.get_device_capability()
    return device, records.Device(
        key=device.key,
        name=name,
        arch=f"sm_{major}{minor}",
        driver=driver,
        clocks_locked=None,
        sm_clock_mhz=number(sm_clock),
        memory_clock_mhz=number(memory_clock),
    )
