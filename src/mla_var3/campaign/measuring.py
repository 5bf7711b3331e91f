"""The profile plan: which commands measure a kernel on a device, what each answers, how to read it.

Nothing here runs a GPU. For AMD's devices the commands are rocprofv3's, over the three functions of
an adopted file, which are the file's own and need nothing of this project.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mla_var3.campaign import contract
from mla_var3.devices import Device
from mla_var3.errors import UsageError
from mla_var3.evidence import Scalar

#: Launches that a profiler sees: the first compile, the others are alike.
LAUNCHES = 20
#: FLOPs that one count of SQ_INSTS_VALU_MFMA_MOPS stands for.
MFMA_FLOPS = 512
FOLDER = "out/rocprof"
#: Types of torch that AMD's matrix counters tell apart, by the end of the counter's name.
_MOPS = {"bfloat16": "BF16", "float16": "F16", "float32": "F32", "float8_e4m3fnuz": "F8"}


@dataclass(frozen=True)
class Step:
    """One measurement.

    Attributes:
        question: What it answers.
        command: What to type.
        reading: How to read what comes back.
    """

    question: str
    command: str
    reading: str


def of_nvidia(subject: Sequence[str], flags: Sequence[str]) -> list[Step]:
    """Steps of a version or file on an NVIDIA device: our own modes.

    Args:
        subject: Design and version, or a file.
        flags: Its sizes.
    """
    words = shlex.join([*subject, *flags])
    timed = Step("right, and how fast", f"nox -s profile -- {words} --prof_type=event",
                 "the median over graph replays, L2 flushed; the record names the run")  # fmt: skip
    if subject[0].endswith(".py"):
        return [timed]
    return [
        timed,
        Step("what limits each stage", f"nox -s profile -- {words} --prof_type=ncu",
             "tensor and DRAM share, occupancy, stalls"),
        Step("what runs beside what", f"nox -s profile -- {words} --prof_type=nsys",
             "stages on a time line"),
    ]  # fmt: skip


def require_amd(path: Path, device: Device) -> None:
    """Refuse a file whose kernels are in a language that compiles for NVIDIA alone.

    Raises:
        UsageError: It is one.
    """
    kind = contract.kind_of(path)
    if kind in ("cutile", "cute"):
        name = "cuTile" if kind == "cutile" else "the CuTe DSL"
        raise UsageError(
            f"{path} is written in {name}, which compiles for NVIDIA alone; {device.name} runs "
            "Triton and plain PyTorch files"
        )


def of_amd(path: Path, sizes: Mapping[str, Scalar], dtype: str, device: Device) -> list[Step]:
    """Steps of an adopted file on an AMD device.

    Args:
        path: The file.
        sizes: Its sizes.
        dtype: Element type of its products.
        device: The device.
    """
    told = "".join(f", {name}={value!r}" for name, value in sizes.items())
    code = (
        f"import {path.stem} as k; given = k.inputs('cuda'{told}); "
        f"[k.launch(**given) for _ in range({LAUNCHES})]"
    )
    program = f"env PYTHONPATH={shlex.quote(str(path.parent))} python -c {shlex.quote(code)}"

    def counted(question: str, counters: Sequence[str], reading: str) -> Step:
        command = f"rocprofv3 --pmc {' '.join(counters)} -f csv -d {FOLDER} -- {program}"
        return Step(question, command, reading)

    mops = f"SQ_INSTS_VALU_MFMA_MOPS_{_MOPS.get(dtype, 'BF16')}"
    return [
        Step("how fast each kernel is", f"rocprofv3 --kernel-trace --stats -f csv -d {FOLDER} -- "
             f"{program}", f"kernel_stats: the average over {LAUNCHES} launches holds the first, "
             "which compiles nothing but finds cold caches; take the median of kernel_trace"),
        counted("share of the matrix cores", [mops, "SQ_VALU_MFMA_BUSY_CYCLES", "GRBM_GUI_ACTIVE"],
                f"FLOP are {MFMA_FLOPS} per count of {mops}; over the time of the step before they "
                "are a share of the tensor ceiling"),
        counted("DRAM traffic", ["FETCH_SIZE", "WRITE_SIZE"],
                "kilobytes per launch; over the time a share of the DRAM ceiling, and beside the "
                "bytes of Step 0 what is read twice"),
        counted("cache hits", ["TCC_HIT_sum", "TCC_MISS_sum"], "hits over both: L2's share"),
        counted("LDS bank conflicts", ["SQ_LDS_BANK_CONFLICT", "SQ_LDS_IDX_ACTIVE"],
                "cycles lost over cycles active"),
        counted("waves", ["SQ_WAVES", "SQ_WAVE_CYCLES", "SQ_BUSY_CYCLES"],
                "wave cycles over busy cycles: waves in flight per sequencer"),
    ]  # fmt: skip


def lines(steps: Sequence[Step]) -> list[str]:
    """The plan as it is printed."""
    found = []
    for number, step in enumerate(steps, 1):
        found += [f"{number}. {step.question}", f"   $ {step.command}", f"   {step.reading}"]
    return found
