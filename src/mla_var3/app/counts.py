"""``conformance -- counts``: compares the emulator's counts with Nsight Compute's, in a table.

A folder of mode ``ncu`` says which plan ran and what the hardware counted; the same plan runs here
in the emulator. Only instructions that both PTX and SASS have are compared: ptxas merges, splits
and moves the rest.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import tyro
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from mla_var3 import arguments, devices, inputs
from mla_var3.errors import PlanError, ToolchainError, UsageError
from mla_var3.paths import repo_root, write_atomic
from mla_var3.profiling import ncu, ncu_rep, replay
from mla_var3.profiling.ncu_rep import Profiled
from mla_var3.runtime.kernel import Kernel

if TYPE_CHECKING:
    from mla_var3.emulator.count import Counts
    from mla_var3.runtime.plan import KernelPlan

SCHEMA = 1
TARGET = Path("results/conformance/counts.json")
#: The GPU that the committed reports are of, whose size a persistent grid asks for.
DEVICE = "nvidia-h200-sxm"
#: Relative difference up to which two counts agree.
AGREE = 0.02


class Row(BaseModel):
    """One quantity, counted twice.

    Attributes:
        quantity: What is counted.
        counter: Nsight Compute's counters whose sum it is.
        emulated: By the emulator.
        counted: By Nsight Compute.
        why: What sets them apart; empty where they agree.
    """

    model_config = ConfigDict(extra="forbid")

    quantity: str
    counter: str
    emulated: int
    counted: int
    why: str = ""

    @property
    def difference(self) -> float:
        """Relative to what the hardware counted; infinite where it counted nothing."""
        if self.emulated == self.counted:
            return 0.0
        return (self.emulated - self.counted) / self.counted if self.counted else float("inf")

    @property
    def agrees(self) -> bool:
        """Whether the two are as near as was promised."""
        return abs(self.difference) <= AGREE


class Compared(BaseModel):
    """A stage of a kernel at one problem.

    Attributes:
        kernel: Its version and stage.
        problem: Slug of the problem.
        same_ptx: Whether the PTX that the GPU's code was assembled from is the one emulated.
        rows: The quantities.
    """

    model_config = ConfigDict(extra="forbid")

    kernel: str
    problem: str
    same_ptx: bool
    rows: list[Row]


class Table(BaseModel):
    """The committed comparison of the emulator's counts with the hardware's.

    Attributes:
        version: Of this schema.
        device: The GPU's name.
        kernels: By kernel and problem.
    """

    model_config = ConfigDict(extra="forbid")

    version: int = SCHEMA
    device: str = DEVICE
    kernels: list[Compared] = []


def read(path: Path) -> Table:
    """A committed table.

    Raises:
        ToolchainError: It is not one.
    """
    with inputs.faults_as(ToolchainError, str(path)):
        return Table.model_validate(inputs.read_json(path))


# -- what the emulator counts ----------------------------------------------------------------------


@dataclass(frozen=True)
class Quantity:
    """Something that both count.

    Attributes:
        name: What it is.
        emulated: By the emulator, of one launch.
        counters: Nsight Compute's metrics to be summed, as a pattern; ``opcode X`` is a warp
            instruction of SASS.
        why: What sets the two apart, where something is known to.
    """

    name: str
    emulated: Callable[[Counts], int]
    counters: str
    why: str = "not known"


def _instructions(pattern: str) -> Callable[[Counts], int]:
    return lambda counts: int(counts.warps[_at(counts, pattern)].sum())


def _at(counts: Counts, pattern: str) -> NDArray[np.bool_]:
    """Which instructions have an opcode that matches from its start."""
    found = re.compile(pattern)
    listing = counts.program.kernel.instructions
    return np.array([found.match(".".join(i.parts)) is not None for i in listing], np.bool_)


def _tma_bytes(what: str) -> Callable[[Counts], int]:
    return lambda counts: int(counts.bytes[f"global {what}"][counts.boxes > 0].sum())


def _of(name: str, pattern: str) -> Callable[[Counts], int]:
    return lambda counts: int(getattr(counts, name)[_at(counts, pattern)].sum())


_SHARED = r"(ld|st)\.(volatile\.)?shared|ldmatrix|stmatrix"
#: What is compared, each with what Nsight Compute calls it.
QUANTITIES = (
    Quantity("FLOPs of the tensor cores", lambda counts: counts.tensor_flops,
             r"sm__ops_path_tensor_src_\w+\.sum"),
    Quantity("wgmma instructions", _instructions(r"wgmma\.mma_async"), "opcode [HQIB]GMMA"),
    Quantity("mma instructions", _instructions(r"mma\."), "opcode [HQIBD]MMA"),
    Quantity("TMA loads", _of("boxes", r"cp\.async\.bulk\S*\.shared::\w+\.global"),
             r"smsp__inst_executed_op_tma_ld\.sum"),
    Quantity("TMA stores", _of("boxes", r"cp\.async\.bulk\S*\.global\.shared"),
             r"smsp__inst_executed_op_tma_st\.sum"),
    Quantity("bytes loaded by TMA", _tma_bytes("read"),
             r"l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld\.sum"),
    Quantity("bytes stored by TMA", _tma_bytes("write"),
             r"l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st\.sum"),
    Quantity("global sectors of threads", _of("sectors", r"ld\.|ldu\.|st\."),
             "memory_l2_theoretical_sectors_global"),
    Quantity("global sectors stored, at the tags of L1", _of("sectors", r"st\."),
             r"l1tex__t_sectors_pipe_lsu_mem_global_op_st\.sum",
             "counts less than Nsight Compute's own counts of the same stores, per instruction and "
             "on the way to L2, which agree with the emulator's"),
    Quantity("bank conflicts of shared memory", _of("conflicts", _SHARED),
             "derived__memory_l1_wavefronts_shared_excessive"),
    Quantity("bank conflicts, with waits for others", _of("conflicts", _SHARED),
             r"l1tex__data_bank_conflicts_pipe_lsu_mem_shared\.sum",
             "also counts accesses that wait for those of TMA and wgmma, as addresses alone do not "
             "tell, and changes from run to run"),
    Quantity("ldmatrix instructions", _instructions("ldmatrix"),
             r"smsp__inst_executed_op_ldsm\.sum"),
    Quantity("stmatrix instructions", _instructions("stmatrix"),
             r"smsp__inst_executed_op_shared_stsm\.sum"),
    Quantity("barriers of named threads", _instructions(r"bar(rier)?\.(sync|arrive|red|cta)"),
             "opcode BAR"),
    Quantity("conversions of pairs to 16 bits", _instructions(r"cvt\.\S*(bf16x2|f16x2)"),
             "opcode F2FP",
             "depends on the inputs, which a GPU's generator draws otherwise: a warp rounds its "
             "weights again where a maximum has moved"),
    Quantity("special functions, integer divisions among them",
             _instructions(r"(ex2|lg2|rcp|rsqrt|sqrt|sin|cos|tanh|div)\."), "opcode MUFU"),
)  # fmt: skip


def counted(launch: Profiled, pattern: str) -> int:
    """Sum of the metrics, or of the opcodes, that a pattern names."""
    if opcode := pattern.removeprefix("opcode ") if pattern.startswith("opcode ") else "":
        found = launch.opcodes or {}
        return round(sum(n for name, n in found.items() if re.fullmatch(opcode, name)))
    values = (m.value for m in launch.metrics if re.fullmatch(pattern, m.name))
    return round(sum(value for value in values if isinstance(value, float)))


def rows(counts: Counts, launch: Profiled) -> list[Row]:
    """Every quantity as both count it."""
    return [_row(quantity, counts, launch) for quantity in QUANTITIES]


def _row(quantity: Quantity, counts: Counts, launch: Profiled) -> Row:
    row = Row(
        quantity=quantity.name,
        counter=quantity.counters.replace("\\", ""),
        emulated=quantity.emulated(counts),
        counted=counted(launch, quantity.counters),
    )
    return row if row.agrees else row.model_copy(update={"why": quantity.why})


# -- both of a folder ------------------------------------------------------------------------------


def compare(folder: Path) -> list[Compared]:
    """What a folder of mode ``ncu`` counted of each stage, beside the emulator's counts.

    Raises:
        ToolchainError: The report cannot be read, or holds no launch of a stage.
        PlanError: A stage is not in the CuTe DSL.
    """
    launches = ncu_rep.read(folder / ncu.REPORT)
    content = inputs.read_json(folder / replay.SPEC)
    plan = replay.read(folder / replay.SPEC)
    name = f"{content['design'].partition('@')[0]} {content['version']}"
    return [
        _compared(f"{name} {path}" if several else name, plan, kernel, launches)
        for several, path, kernel in _stages(plan)
    ]


def _stages(plan: KernelPlan) -> list[tuple[bool, str, Kernel]]:
    device = devices.load(DEVICE)
    resolved = plan.resolve(device.machine(plan.dtype))
    stages = resolved.plan(*resolved.prepare_inputs("cpu")).stages()
    return [(len(stages) > 1, path, kernel) for path, kernel in stages]


def _compared(
    name: str, plan: KernelPlan, kernel: Kernel, launches: Sequence[Profiled]
) -> Compared:
    from mla_var3 import languages

    pattern = languages.find(kernel.language).launches(kernel)
    if (launch := ncu.longest(launches, pattern)) is None:
        raise ToolchainError(f"{name}: the report holds no launch of {kernel.name}")
    counts, ptx = _emulated(name, kernel)
    return Compared(
        kernel=name,
        problem=plan.slug(),
        same_ptx=instructions(ptx) == instructions(launch.ptx),
        rows=rows(counts, launch),
    )


def _emulated(name: str, kernel: Kernel) -> tuple[Counts, str]:
    from mla_var3.emulator import Options
    from mla_var3.languages.cute import emulation
    from mla_var3.languages.cute.compile import PTX
    from mla_var3.languages.cute.kernel import CuteKernel

    if not isinstance(kernel, CuteKernel):
        raise PlanError(f"{name}: {kernel.language} is not emulated; allowed is cute-dsl")
    host, values = kernel.host()
    options = Options(
        checks=False, counting="full", jobs=0, multiprocessors=devices.load(DEVICE).sm_count
    )
    outputs = tuple(kernel.output_tensors.values())
    compiled, run = emulation.emulate(kernel.name, host, values, outputs, options)
    return run.counts[-1], compiled.files[PTX].decode()


def instructions(ptx: str) -> list[str]:
    """The statements of PTX, without comments and what only a debugger reads."""
    lines = (" ".join(line.split("//")[0].split()) for line in ptx.splitlines())
    return [line for line in lines if line and not line.startswith((".loc", ".file", "$L__tmp"))]


# -- the command -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """Hold the emulator's counts against reports of Nsight Compute.

    Attributes:
        folders: Folders that runs of --prof_type=ncu left, each with plan.json and its report.
        out: The table; entries of other kernels and problems stay.
    """

    folders: Annotated[tyro.conf.Positional[tuple[Path, ...]], arguments.named("FOLDER...")]
    out: Path | None = None


def main(argv: Sequence[str], prog: str) -> int:
    """Compare the folders that ``argv`` names, and keep the table; returns the exit code."""
    asked: Asked = arguments.parse(Asked, argv, prog)
    if not asked.folders:
        raise UsageError(f"FOLDER... must be given; see {prog} --help")
    path = asked.out or repo_root() / TARGET
    table = read(path) if path.is_file() else Table()
    found = {(one.kernel, one.problem): one for one in table.kernels}
    for folder in asked.folders:
        for one in compare(folder):
            found[one.kernel, one.problem] = one
            _say(one)
    table.kernels = [found[key] for key in sorted(found)]
    write_atomic(path, table.model_dump_json(indent=1) + "\n")
    print(f"wrote {path}", file=sys.stderr)
    return 0


def _say(one: Compared) -> None:
    print(f"{one.kernel} at {one.problem}{'' if one.same_ptx else ' (the PTX differs)'}")
    for row in one.rows:
        mark = "" if row.agrees else f"  {row.difference:+.1%}"
        print(f"  {row.quantity}: {row.emulated:,} emulated, {row.counted:,} counted{mark}")
