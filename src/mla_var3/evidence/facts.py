"""Schema of compile facts of a kernel for one arch (registers, spills, SASS), in any language.

Each language that compiles adds its own facts in the module ``facts`` of its folder.

Only what was read from the compiler's output stands here. Occupancy, and whether a path is the
arch's fast one, follow from these facts and a device, and are worked out when they are read
(``mla_var3.static``).
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, model_serializer
from pydantic_core import CoreSchema, core_schema

RemarkKind = Literal["passed", "missed", "failed", "analysis"]


class FactsModel(BaseModel):
    """Frozen, without fields that nobody declared."""

    # Schemas are built as they are first used: a third of the time that the import took.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class Remark(FactsModel):
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


class LineFacts(FactsModel):
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


class StaticFacts(FactsModel):
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
        step_mix: Count of what every step of the loops that multiply executes, by name (see
            ``static.steps``); None in records of before it was read.
        mma_path: Tensor-core opcodes used, such as ``HGMMA``; joined by ``+`` from the fastest to
            the slowest where several are; ``FMA`` for multiplications left to the CUDA cores;
            ``none`` when the kernel multiplies no matrices.
        mma_instructions: Count by full tensor-core opcode.
        tma_loads: TMA load instructions.
        tma_stores: TMA store and reduction instructions.
        async_copies: Asynchronous copies of the older kind (LDGSTS).
        lines: Instructions by source line.
    """

    #: What a language says of a compile beside these, also of one that failed.
    asked: ClassVar[tuple[str, ...]] = ()

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
    step_mix: dict[str, int] | None = None
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
        """Sentence that the multiplications wait for each other; empty where they do not."""
        return ""

    @property
    def most_registers(self) -> int:
        """Registers of a thread that holds tiles: more than at launch where it asks for them."""
        return self.registers

    @property
    def unmet(self) -> tuple[str, ...]:
        """What the compiler says that it could not do, each once."""
        return ()

    @property
    def synchronization(self) -> tuple[str, ...]:
        """Barriers in shared memory and register budgets, in words."""
        return ()

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
        kept = ("language", "kernel", "arch", "toolchain", "error", *self.asked)
        return {key: value for key, value in content.items() if key in kept}


class _AnyLanguage:
    """Validates facts as those of the language that they name."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        choices = {key: handler.generate_schema(kind) for key, kind in kinds().items()}
        return core_schema.tagged_union_schema(choices, discriminator="language")


def kinds() -> dict[str, type[StaticFacts]]:
    """The class of each language's facts by the language's key.

    It is what the module ``facts`` of a folder in ``mla_var3.languages`` derives from
    ``StaticFacts``: the one thing of languages that reading a record needs, found by name, so that
    a language is added in its own folder alone.
    """
    languages = importlib.import_module("mla_var3.languages")
    for folder in pkgutil.iter_modules(languages.__path__):
        name = f"{languages.__name__}.{folder.name}"
        if folder.ispkg and importlib.util.find_spec(f"{name}.facts"):
            importlib.import_module(f"{name}.facts")
    found = {kind.model_fields["language"].default: kind for kind in StaticFacts.__subclasses__()}
    return dict(sorted(found.items()))


#: Facts of any language that compiles.
Facts = Annotated[StaticFacts, _AnyLanguage()]
