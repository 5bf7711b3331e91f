"""Schema of a CuTe kernel's own compile facts: mbarriers, register budgets, TMA."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from mla_var3.evidence.facts import FactsModel, StaticFacts


class BarrierGroup(FactsModel):
    """Neighboring mbarriers that are initialized for the same number of arrivals.

    Attributes:
        barriers: How many.
        arrivals: Arrivals that complete a phase of each.
    """

    barriers: int
    arrivals: int


class RegisterBudget(FactsModel):
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
        operand_swizzle: Bytes of the narrowest swizzle of the tiles that warpgroups multiply, 0 for
            none; None where no warpgroup does, or in records of before it was read.
        pipeline_stages: Depth of the deepest ring of TMA loads that the barriers and the shared
            memory allow; None where there is none, or it cannot be told, as with tcgen05 (see
            ``reading.stages``).
        wgmma: Warpgroup multiplications.
        wgmma_waits: Waits for them (``WARPGROUP.DEPBAR``).
        wgmma_serialized: Whether each multiplication is waited for before the next: ptxas says so
            ("serialized due to"), or puts in waits (C7517) until there is one per multiplication.
        tcgen05_mma: Multiplications of the fifth-generation tensor cores.
        warp_mma: Warp-level multiplications.
        tma_multicast: TMA loads that write to several blocks of a cluster.
        register_budgets: ``setmaxnreg`` instructions, in the order of the PTX.
        ptx_instructions: Instructions of the PTX.
        ptx_version: Such as ``9.4``.
        warnings: What ptxas warns of, each once.
    """

    asked: ClassVar[tuple[str, ...]] = ("target",)

    language: Literal["cute-dsl"] = "cute-dsl"
    target: str = ""
    dynamic_shared_known: bool = True
    mbarriers: int = Field(0, ge=0)
    barrier_groups: tuple[BarrierGroup, ...] = ()
    mbarrier_waits: int = Field(0, ge=0)
    mbarrier_arrivals: int = Field(0, ge=0)
    transaction_bytes: tuple[int, ...] = ()
    operand_swizzle: int | None = None
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

    @property
    def ring_depth(self) -> int | None:
        """Steps that a ring of loads holds, by the barriers that give a place back; None unknown.

        Barriers that loads complete are initialized first, and also stand for operands that are
        loaded once; those behind them are as many as each ring has places.
        """
        if self.mbarriers == 1:
            return 1
        return max((group.barriers for group in self.barrier_groups[1:]), default=None)

    @property
    def register_moves(self) -> int:
        """How often warps give registers up or take them (``setmaxnreg``)."""
        return len(self.register_budgets)

    @property
    def most_registers(self) -> int:
        raised = (budget.registers for budget in self.register_budgets if budget.direction == "inc")
        return max(raised, default=self.registers)

    @property
    def synchronization(self) -> tuple[str, ...]:
        budgets = (f"setmaxnreg.{b.direction} {b.registers}" for b in self.register_budgets)
        return (f"{self.mbarriers} mbarriers", *dict.fromkeys(budgets))
