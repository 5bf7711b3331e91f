"""What the compiler made of one kernel for one arch."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_serializer

from mla_var3.static.occupancy import Occupancy
from mla_var3.static.remarks import Remark

#: Part of the cache key: raise it when facts change their meaning or gain a field.
FACTS_VERSION = 2


class LineFacts(BaseModel):
    """SASS instructions that the cubin's line table ascribes to one source line (static counts).

    The optimiser moves code between lines, so counts of neighbouring lines run into each other.

    Attributes:
        file: Source file, relative.
        line: 1-based line.
        instructions: All instructions.
        mma: Tensor-core instructions.
        spill_loads: LDL instructions.
        spill_stores: STL instructions.
        tma: TMA loads, stores and reductions.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    line: int
    instructions: int
    mma: int = 0
    spill_loads: int = 0
    spill_stores: int = 0
    tma: int = 0


class StaticFacts(BaseModel):
    """Facts of one compiled kernel; the same inputs and toolchain always give the same facts.

    When ``error`` is set the compile failed: the figures are all zero, mean nothing, and are left
    out when the facts are serialised.

    Attributes:
        kernel: Name of the kernel function.
        arch: Compile target, such as ``sm_90``.
        hints: Compiler hints that were set, opt_level included.
        toolchain: Version of each tool, and of the bytecode.
        error: One sentence when the compile failed.
        registers: Registers a thread.
        stack_bytes: Stack a thread, bytes.
        spill_loads: LDL instructions in the code (local memory: spills or indexed locals).
        spill_stores: STL instructions in the code.
        spill_load_bytes: Bytes a thread moves if each LDL runs once.
        spill_store_bytes: The same for STL.
        shared_bytes: Shared memory a block, static and dynamic together, without the system's
            reserve.
        dynamic_shared_bytes: The part that the launch asks for. A cuTile cubin declares all of it
            statically (one ``.shared`` array in the PTX, the ``.nv.shared`` section in the
            cubin), so this is 0.
        tensor_memory_columns: Columns of tensor memory a block allocates, of the SM's 512.
        threads_per_block: Threads a block, producer warps included.
        warps_per_block: Warps a block.
        blocks_per_cluster: Blocks a cluster.
        barriers: Named barriers used.
        instructions: Instructions in the code, padding left out.
        instruction_mix: Count by base opcode.
        mma_ops: Matrix multiplications in the TileIR, after inlining.
        mma_tile_flops: FLOPs a block does if each of those runs once (multiply-add = 2).
        mma_path: Tensor-core opcodes used, such as ``HGMMA``; joined by ``+`` from the fastest to
            the slowest where several are; ``FMA`` for multiplications left to the CUDA cores;
            ``none`` when the kernel multiplies no matrices.
        mma_instructions: Count by full tensor-core opcode.
        mma_note: Why the path is not the arch's fast one; None when it is.
        tma_loads: TMA load instructions.
        tma_stores: TMA store and reduction instructions.
        async_copies: Asynchronous copies of the older kind (LDGSTS).
        remarks: Compiler remarks in source order.
        lines: Instructions by source line.
        occupancy: Theoretical occupancy; None when no device of the arch has sourced figures.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kernel: str
    arch: str
    hints: dict[str, int] = Field(default_factory=dict)
    toolchain: dict[str, str] = Field(default_factory=dict)
    error: str | None = None
    registers: int = 0
    stack_bytes: int = 0
    spill_loads: int = 0
    spill_stores: int = 0
    spill_load_bytes: int = 0
    spill_store_bytes: int = 0
    shared_bytes: int = 0
    dynamic_shared_bytes: int = 0
    tensor_memory_columns: int = 0
    threads_per_block: int = 0
    warps_per_block: int = 0
    blocks_per_cluster: int = 1
    barriers: int = 0
    instructions: int = 0
    instruction_mix: dict[str, int] = Field(default_factory=dict)
    mma_ops: int = 0
    mma_tile_flops: int = 0
    mma_path: str = "none"
    mma_instructions: dict[str, int] = Field(default_factory=dict)
    mma_note: str | None = None
    tma_loads: int = 0
    tma_stores: int = 0
    async_copies: int = 0
    remarks: tuple[Remark, ...] = ()
    lines: tuple[LineFacts, ...] = ()
    occupancy: Occupancy | None = None

    @property
    def ok(self) -> bool:
        """Whether the compile succeeded."""
        return self.error is None

    @property
    def spills(self) -> bool:
        """Whether the code touches local memory."""
        return self.spill_loads + self.spill_stores > 0

    @property
    def on_fast_path(self) -> bool:
        """Whether every matrix multiplication takes the arch's full-throughput path."""
        return self.mma_note is None

    @model_serializer(mode="wrap")
    def _without_empty_figures(self, handler: Any) -> dict[str, Any]:
        content: dict[str, Any] = handler(self)
        if self.error is None:
            del content["error"]
            return content
        kept = ("kernel", "arch", "hints", "toolchain", "error")
        return {key: value for key, value in content.items() if key in kept}


class Change(BaseModel):
    """One fact that two compiles differ in; ``delta`` is None unless both are numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    before: Any
    after: Any
    delta: float | None = None


def line_table(facts: StaticFacts, file: str | None = None) -> dict[tuple[str, int], list[Remark]]:
    """Remarks by (file, line), for annotating a source page.

    Args:
        facts: Facts of one compile.
        file: Only this file's lines.
    """
    table: dict[tuple[str, int], list[Remark]] = {}
    for remark in facts.remarks:
        if file is None or remark.file == file:
            table.setdefault((remark.file, remark.line), []).append(remark)
    return table


def diff(before: StaticFacts, after: StaticFacts) -> list[Change]:
    """Facts that differ, in the order of the model; nested ones as ``instruction_mix.FFMA``.

    Remarks and lines are compared as wholes by their messages, since line numbers move with every
    edit of the source.
    """
    changes = []
    for name, old in _flat(before).items():
        new = _flat(after).get(name)
        if old != new:
            changes.append(_change(name, old, new))
    for name, new in _flat(after).items():
        if name not in _flat(before):
            changes.append(_change(name, None, new))
    return changes


def _change(name: str, old: Any, new: Any) -> Change:
    numbers = [v for v in (old, new) if isinstance(v, int | float) and not isinstance(v, bool)]
    delta = float(numbers[1] - numbers[0]) if len(numbers) == 2 else None
    return Change(name=name, before=old, after=new, delta=delta)


def _flat(facts: StaticFacts) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in facts.model_dump(mode="json", exclude={"remarks", "lines"}).items():
        if isinstance(value, dict):
            flat.update({f"{name}.{key}": item for key, item in value.items()})
        else:
            flat[name] = value
    flat["remarks"] = sorted(f"{r.kind}: {r.message} x{r.count}" for r in facts.remarks)
    return flat
