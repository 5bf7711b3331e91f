"""Options of an emulated run (schedule, limits, counting) and its memory-model assumptions.

A ``Model`` has a flag per assumption about hardware that PTX does not promise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from mla_var3.errors import EmulatorError

if TYPE_CHECKING:
    from mla_var3.emulator.stops import Stop

Counting = Literal["off", "basic", "full"]


@dataclass(frozen=True)
class Model:
    """Assumptions about hardware that PTX does not state; false is what PTX alone promises.

    Attributes:
        name: Name in reports.
        wgmma_rendezvous: The four warps of a warpgroup have all arrived at a ``wgmma`` before any
            of it starts, so what one of them had seen, the wait of each has seen.
        relaxed_publishes: A relaxed atomic on global memory orders what its warp knew before.
        reader_fences: A ``fence.proxy.async`` by the side that reads, after it has synchronized,
            counts as much as one by the side that wrote.
        exit_drains: The shared memory of a CTA that ends stays until its bulk stores have read it,
            and its bulk loads have written it.
        copies_publish: The end of a copy tells also what the thread knew that issued it.
        arrivals_publish: An arrival that ``cp.async`` makes tells also what the thread had stored
            itself that asked for it, beside the copies and what it had seen of others.
        relaxed_keeps: A relaxed arrival at the barrier of a cluster comes after what its warp did
            to shared memory of other CTAs, so that these may end.
        unused_reads: A thread may read global memory while another warp of its cluster writes it,
            where what the launch leaves behind does not depend on what it got: as threads that hold
            copies of a tile do. Shared memory may be read before anything has written it, likewise.
        equal_stores: Two warps of a cluster may store the same to the same place in no order: of
            global memory, and by one instruction of shared memory too.
        budgets_by_warp: The warps of a warpgroup may execute ``setmaxnreg`` at different places of
            the text and with different counts, as long as each does so as often.
        tensor_thread_sync: What orders two threads orders their ``tcgen05`` operations as if
            ``tcgen05.fence::before_thread_sync`` came before and ``after_thread_sync`` behind.
        loads_done_when_used: A ``tcgen05.ld`` has read tensor memory once one of its registers is
            used, without ``tcgen05.wait::ld``.
        tensor_in_order: All ``tcgen05.mma`` and ``cp`` of a thread run in the order in which they
            are issued, whatever their shapes and accumulators.
        commits_in_order: Once a ``tcgen05.commit`` is seen, those before it of its thread have
            arrived too, so that the CTA of their barriers may end.
        swizzle_by_address: The swizzle of an operand of ``tcgen05`` or ``wgmma`` goes by the bits
            of the address, so that a tile need not start where its pattern does.
        compiler_inits: An mbarrier that a compiler of tiles (Triton's) initializes reaches
            asynchronous copies once a barrier of the threads orders the two, without a fence.
        collectives_order: Lanes of a warp that run an instruction together (shuffles, votes,
            ``ldmatrix``, products) know then what the others did before, as at ``bar.warp.sync``.
            ``elect`` is none of these: what it chooses one lane for, others may lag behind.
        one_lane_frees: What a warp has read one of its lanes may give back for all, without
            ``bar.warp.sync``, as NVIDIA's pipelines do in ``consumer_release``.
        lane_waits: What one lane of a warp has waited for, its other lanes know, without
            ``bar.warp.sync``.
        lanes_by_warp: A warp's ``tcgen05.ld`` and ``st`` find its own quarter of the lanes where
            the bits of the lane in the address are among those of the quarter: 0 in any warp, 32 in
            the second and fourth.
    """

    name: str
    wgmma_rendezvous: bool = True
    relaxed_publishes: bool = True
    reader_fences: bool = True
    exit_drains: bool = True
    copies_publish: bool = True
    arrivals_publish: bool = True
    relaxed_keeps: bool = True
    unused_reads: bool = True
    equal_stores: bool = True
    budgets_by_warp: bool = True
    tensor_thread_sync: bool = True
    loads_done_when_used: bool = True
    tensor_in_order: bool = True
    commits_in_order: bool = True
    swizzle_by_address: bool = True
    compiler_inits: bool = True
    collectives_order: bool = True
    one_lane_frees: bool = True
    lane_waits: bool = True
    lanes_by_warp: bool = True


DEFAULT = Model("default")
STRICT = Model(
    "strict",
    wgmma_rendezvous=False,
    relaxed_publishes=False,
    reader_fences=False,
    exit_drains=False,
    copies_publish=False,
    arrivals_publish=False,
    relaxed_keeps=False,
    unused_reads=False,
    equal_stores=False,
    budgets_by_warp=False,
    tensor_thread_sync=False,
    loads_done_when_used=False,
    tensor_in_order=False,
    commits_in_order=False,
    swizzle_by_address=False,
    compiler_inits=False,
    collectives_order=False,
    one_lane_frees=False,
    lane_waits=False,
    lanes_by_warp=False,
)
#: The default for who writes fences, releases and waits wherever the PTX ISA asks for them.
FENCED = replace(
    DEFAULT, name="default, fences and releases asked for", tensor_thread_sync=False,
    loads_done_when_used=False, commits_in_order=False, relaxed_publishes=False,
    exit_drains=False, lane_waits=False, wgmma_rendezvous=False, arrivals_publish=False,
)  # fmt: skip
MODELS = {m.name: m for m in (DEFAULT, STRICT)}


@dataclass(frozen=True)
class Options:
    """How kernels are run.

    Attributes:
        checks: Look for races, uninitialized reads and the like; without, only values are made.
        model: Assumptions of the memory model.
        seed: Order of warpgroups; None runs the lowest program counter first. The same seed
            replays the same schedule.
        counting: ``basic`` counts instructions, FLOPs and bytes; ``full`` bank conflicts and
            sectors too.
        jobs: Processes over which independent clusters are spread; 0 takes every core.
        max_steps: Segments that one cluster may run before it is called endless.
        max_clusters: Run only so many clusters of each grid; None runs all.
        timeline: Keep what happened when, for one cluster.
        multiprocessors: What the emulated device says it has.
        resident: Multiprocessors that hold CTAs at the same time; None: those of the largest GPU of
            the architecture.
        stop: A Python line at which to print who is where, barriers and tiles.
        fill: The byte that shared memory holds before anything has written it.
        compiled: A compiler of tiles made the kernel: no author could have placed its fences.
        environment: What ``%envreg0`` holds, a register that drivers define.
    """

    checks: bool = True
    model: Model = DEFAULT
    seed: int | None = None
    counting: Counting = "basic"
    jobs: int = 1
    max_steps: int = 2_000_000
    max_clusters: int | None = None
    timeline: bool = False
    multiprocessors: int = 4
    resident: int | None = None
    stop: Stop | None = None
    fill: int = 0xA5
    compiled: bool = False
    environment: int = 0

    @property
    def schedule(self) -> str:
        """Name of the schedule, as reports give it."""
        return "lowest pc first" if self.seed is None else f"seed {self.seed}"


def model(name: str) -> Model:
    """The memory model of that name.

    Raises:
        EmulatorError: There is none.
    """
    if name not in MODELS:
        raise EmulatorError(f"there is no memory model {name!r} (known: {', '.join(MODELS)})")
    return MODELS[name]
