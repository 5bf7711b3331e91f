"""Table of advice per rule of Nsight Compute: the change that a cuTile kernel's author can make.

The compiler chooses instructions, registers, and the layout of shared memory; what bears on those
alone has no lever here.
"""

LEVERS = {
    "CPIStall": (
        "the latency hint of loads, another order of loads in the loop, or smaller tiles, so that "
        "more loads are in flight"
    ),
    "IssueSlotUtilization": (
        "the hints occupancy and num_worker_warps, or tiles so small that a second block fits an SM"
    ),
    "TheoreticalOccupancy": (
        "smaller tiles, or the hint occupancy; spills say when the compiler could not follow"
    ),
    "AchievedOccupancy": "blocks of equal work, so that no SM waits at the end",
    "LaunchConfiguration": (
        "smaller tiles, or splits along the reduced axis, until the blocks fill the SMs in whole "
        "waves"
    ),
    "WorkloadImbalance": "another mapping of blocks to work, so that every block has as much",
    "UncoalescedGlobalAccess": "load whole tiles in place of gathers, along the contiguous axis",
    "MemoryCacheAccessPattern": "another order of blocks, so that neighbors share what they read",
}
