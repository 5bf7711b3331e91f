"""What the CuTe DSL's compiler made of one device kernel for one arch."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from mla_var3.records import StaticFacts


class BarrierGroup(BaseModel):
    """Neighbouring mbarriers that are initialised for the same number of arrivals.

    Attributes:
        barriers: How many.
        arrivals: Arrivals that complete a phase of each.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    barriers: int
    arrivals: int


class RegisterBudget(BaseModel):
    """One ``setmaxnreg``: registers per thread that a warpgroup goes down or up to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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
        mbarriers: mbarriers that are initialised, as ptxas counts them.
        barrier_groups: Them by place and arrivals, in the order of shared memory; empty where the
            addresses are worked out at run time.
        mbarrier_waits: Waits for an mbarrier (one per ``SYNCS.PHASECHK`` that may suspend).
        mbarrier_arrivals: Arrivals at an mbarrier.
        transaction_bytes: Bytes that a TMA barrier is told to expect, each figure once.
        pipeline_stages: Depth of the deepest ring of TMA loads that the barriers and the shared
            memory allow; None where there is none, or it cannot be told (see ``reading.stages``).
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
    def waits_per_wgmma(self) -> float | None:
        """Waits for warpgroup multiplications per multiplication; None without any."""
        return self.wgmma_waits / self.wgmma if self.wgmma else None
