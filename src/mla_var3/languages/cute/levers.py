"""Table of advice per rule of Nsight Compute: the change that a CuTe kernel's author can make."""

LEVERS = {
    "CPIStall": (
        "issue loads earlier (a deeper ring, another order of waits) or give the waiting to warps "
        "of their own; the hot lines say which wait it is"
    ),
    "IssueSlotUtilization": (
        "give each scheduler more warps that can issue: another consumer warpgroup, or tiles so "
        "small that a second block fits an SM"
    ),
    "TheoreticalOccupancy": (
        "fewer stages or smaller tiles free shared memory; setmaxnreg and smaller accumulators "
        "free registers. A kernel that hides latency in its own pipeline needs neither"
    ),
    "AchievedOccupancy": "a persistent grid, or blocks of equal work: no SM waits at the end",
    "LaunchConfiguration": (
        "smaller tiles, or splits along the reduced axis, until the blocks fill the SMs in whole "
        "waves"
    ),
    "WorkloadImbalance": "a scheduler that gives every block equal work, the longest first",
    "SharedMemoryConflicts": (
        "another swizzle of the shared tile, or stmatrix and ldmatrix in place of single stores "
        "and loads"
    ),
    "UncoalescedSharedAccess": "another swizzle of the shared tile, or another thread-value layout",
    "UncoalescedGlobalAccess": "TMA, or a thread-value layout whose neighbors are adjacent bytes",
    "MemoryCacheAccessPattern": (
        "another order of blocks, cluster multicast, or cache hints on TMA loads"
    ),
    "FPInstructions": "write a product and its sum as one fma; fold scales into exponents",
    "HighPipeUtilization": "take work off the busy pipe: other instructions, or fewer of them",
    "ThreadDivergence": "let whole warps branch, not lanes; predicate with select",
}
