"""What a compiler made of one kernel for one arch: typed, for each language that compiles.

Only what was read from the compiler's output stands here. Occupancy, and whether a path is the
arch's fast one, follow from these facts and a device, and are worked out when they are read
(``mla_var3.static``).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_serializer

RemarkKind = Literal["passed", "missed", "failed", "analysis"]


class _Model(BaseModel):
    # Schemas are built as they are first used: a third of the time that the import took.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class Remark(_Model):
    """What the compiler did, or could not do, with one operation of the source.

    Attributes:
        file: Source file, relative to the checkout.
        line: 1-based line; 0 when the compiler gave none.
        kind: Whether an optimization was applied.
        category: ``memory`` or ``tensor-core``.
        message: One sentence, with the instruction and the reasons.
        count: Operations of that line that the remark was made for.
    """

    file: str
    line: int
    kind: RemarkKind
    category: str
    message: str
    count: int = 1


class LineFacts(_Model):
    """SASS instructions that the cubin's line table ascribes to one source line (static counts).

    The optimizer moves code between lines, so counts of neighboring lines run into each other.

    Attributes:
        file: Source file, relative.
        line: 1-based line.
        instructions: All instructions.
        mma: Tensor-core instructions.
        spill_loads: LDL instructions.
        spill_stores: STL instructions.
        tma: TMA loads, stores and reductions.
    """

    file: str
    line: int
    instructions: int
    mma: int = 0
    spill_loads: int = 0
    spill_stores: int = 0
    tma: int = 0


class StaticFacts(_Model):
    """Facts of one compiled kernel; the same inputs and toolchain always give the same facts.

    When ``error`` is set the compile failed: no figure means anything, and all are left out when
    the facts are serialized.

    Attributes:
        language: Key of the language.
        kernel: Name of the kernel function.
        arch: Compile target, such as ``sm_90``.
        toolchain: Version of each tool.
        error: One sentence when the compile failed.
        registers: Registers per thread.
        stack_bytes: Stack per thread, bytes.
        spill_loads: LDL instructions in the code (local memory: spills or indexed locals).
        spill_stores: STL instructions in the code.
        spill_load_bytes: Bytes per thread if each LDL runs once.
        spill_store_bytes: The same for STL.
        shared_bytes: Shared memory per block, static and dynamic together, without the system's
            reserve.
        dynamic_shared_bytes: The part that the launch asks for.
        tensor_memory_columns: Columns of tensor memory a block allocates, of the SM's 512.
        threads_per_block: Threads per block, producer warps included.
        warps_per_block: Warps per block.
        blocks_per_cluster: Blocks per cluster.
        barriers: Named barriers used.
        instructions: Instructions in the code, padding left out.
        instruction_mix: Count by base opcode.
        mma_path: Tensor-core opcodes used, such as ``HGMMA``; joined by ``+`` from the fastest to
            the slowest where several are; ``FMA`` for multiplications left to the CUDA cores;
            ``none`` when the kernel multiplies no matrices.
        mma_instructions: Count by full tensor-core opcode.
        tma_loads: TMA load instructions.
        tma_stores: TMA store and reduction instructions.
        async_copies: Asynchronous copies of the older kind (LDGSTS).
        lines: Instructions by source line.
    """

    language: str
    kernel: str
    arch: str
    toolchain: dict[str, str] = Field(default_factory=dict)
    error: str | None = None
    registers: int = Field(0, ge=0)
    stack_bytes: int = Field(0, ge=0)
    spill_loads: int = Field(0, ge=0)
    spill_stores: int = Field(0, ge=0)
    spill_load_bytes: int = Field(0, ge=0)
    spill_store_bytes: int = Field(0, ge=0)
    shared_bytes: int = Field(0, ge=0)
    dynamic_shared_bytes: int = Field(0, ge=0)
    tensor_memory_columns: int = Field(0, ge=0)
    threads_per_block: int = Field(0, ge=0)
    warps_per_block: int = Field(0, ge=0)
    blocks_per_cluster: int = Field(1, ge=1)
    barriers: int = Field(0, ge=0)
    instructions: int = Field(0, ge=0)
    instruction_mix: dict[str, int] = Field(default_factory=dict)
    mma_path: str = "none"
    mma_instructions: dict[str, int] = Field(default_factory=dict)
    tma_loads: int = Field(0, ge=0)
    tma_stores: int = Field(0, ge=0)
    async_copies: int = Field(0, ge=0)
    lines: tuple[LineFacts, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the compile succeeded."""
        return self.error is None

    @property
    def spill_instructions(self) -> int:
        """Loads and stores of local memory."""
        return self.spill_loads + self.spill_stores

    @property
    def serialized(self) -> str:
        """That its multiplications wait for each other, as a sentence; empty where none does."""
        return ""

    @property
    def spills(self) -> bool:
        """Whether the code touches local memory."""
        return self.spill_instructions > 0

    @property
    def mma_work(self) -> int:
        """Tensor-core work of a block if each instruction runs once; compares within a language."""
        return sum(self.mma_instructions.values())

    @model_serializer(mode="wrap")
    def _without_empty_figures(self, handler: Any) -> dict[str, Any]:
        content: dict[str, Any] = handler(self)
        if self.error is None:
            content.pop("error", None)
            return content
        kept = ("language", "kernel", "arch", "hints", "target", "toolchain", "error")
        return {key: value for key, value in content.items() if key in kept}


class CutileFacts(StaticFacts):
    """Facts of a cuTile kernel.

    Attributes:
        hints: Compiler hints that were set, opt_level included.
        mma_ops: Matrix multiplications in the tile IR, after inlining.
        mma_tile_flops: FLOPs per block if each of those runs once (multiply-add = 2).
        remarks: Compiler remarks in source order.
    """

    language: Literal["cutile-dsl"] = "cutile-dsl"
    hints: dict[str, int] = Field(default_factory=dict)
    mma_ops: int = Field(0, ge=0)
    mma_tile_flops: int = Field(0, ge=0)
    remarks: tuple[Remark, ...] = ()

    @property
    def mma_work(self) -> int:
        """FLOPs of a block if each matrix multiplication runs once."""
        return self.mma_tile_flops


class BarrierGroup(_Model):
    """Neighboring mbarriers that are initialized for the same number of arrivals.

    Attributes:
        barriers: How many.
        arrivals: Arrivals that complete a phase of each.
    """

    barriers: int
    arrivals: int


class RegisterBudget(_Model):
    """One ``setmaxnreg``: registers per thread that a warpgroup goes down or up to."""

    direction: Literal["dec", "inc"]
    registers: int


class CuteFacts(StaticFacts):
    """Facts of one device kernel that the CuTe DSL compiled.

    Counts are of instructions in the code, not of those executed: a loop's body counts once, and
    as often as the compiler unrolled it.

    Attributes:
        language: The language's key.
        target: What the compiler was asked for, such as ``sm_90a``.
        dynamic_shared_known: Whether the launch asks for a constant amount of shared memory. When
            not, ``shared_bytes`` counts the static part alone, and says nothing of occupancy.
        mbarriers: mbarriers that are initialized, as ptxas counts them.
        barrier_groups: Them by place and arrivals, in the order of shared memory; empty where the
            addresses are worked out at run time.
        mbarrier_waits: Waits for an mbarrier (one per ``SYNCS.PHASECHK`` that may suspend).
        mbarrier_arrivals: Arrivals at an mbarrier.
        transaction_bytes: Bytes that a TMA barrier is told to expect, each figure once.
        pipeline_stages: Depth of the deepest ring of TMA loads that the barriers and the shared
            memory allow; None where there is none, or it cannot be told, as with tcgen05 (see
            ``reading.stages``).
        wgmma: Warpgroup multiplications.
        wgmma_waits: Waits for them (``WARPGROUP.DEPBAR``).
        wgmma_serialized: Whether each multiplication is waited for before the next: ptxas says so
            (C7514), or puts in waits (C7517) until there is one per multiplication.
        tcgen05_mma: Multiplications of the fifth-generation tensor cores.
        warp_mma: Warp-level multiplications.
        tma_multicast: TMA loads that write to several blocks of a cluster.
        register_budgets: ``setmaxnreg`` instructions, in the order of the PTX.
        ptx_instructions: Instructions of the PTX.
        ptx_version: Such as ``9.4``.
        warnings: What ptxas warns of, each once.
    """

    language: Literal["cute-dsl"] = "cute-dsl"
    target: str = ""
    dynamic_shared_known: bool = True
    mbarriers: int = Field(0, ge=0)
    barrier_groups: tuple[BarrierGroup, ...] = ()
    mbarrier_waits: int = Field(0, ge=0)
    mbarrier_arrivals: int = Field(0, ge=0)
    transaction_bytes: tuple[int, ...] = ()
    pipeline_stages: int | None = None
    wgmma: int = Field(0, ge=0)
    wgmma_waits: int = Field(0, ge=0)
    wgmma_serialized: bool = False
    tcgen05_mma: int = Field(0, ge=0)
    warp_mma: int = Field(0, ge=0)
    tma_multicast: int = Field(0, ge=0)
    register_budgets: tuple[RegisterBudget, ...] = ()
    ptx_instructions: int = Field(0, ge=0)
    ptx_version: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def serialized(self) -> str:
        if not self.wgmma_serialized:
            return ""
        return (
            f"serialized wgmma: the assembler waits {self.wgmma_waits} times for {self.wgmma} "
            "multiplications, each before the next"
        )

    @property
    def waits_per_wgmma(self) -> float | None:
        """Waits for warpgroup multiplications per multiplication; None without any."""
        return self.wgmma_waits / self.wgmma if self.wgmma else None


Facts = Annotated[CutileFacts | CuteFacts, Field(discriminator="language")]
