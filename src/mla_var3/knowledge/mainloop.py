"""What a step of a kernel's main loop costs beside its products, from what each step executes."""

from __future__ import annotations

import re
from collections.abc import Callable

from mla_var3.evidence import Record, Stage
from mla_var3.runtime import costs
from mla_var3.static.sass import mma_family
from mla_var3.workloads import workloads

#: Threads of a warp, warps of a warpgroup, and its dense FLOPs of 16 bits per clock on an SM's
#: tensor cores (NVIDIA H100 Tensor Core GPU Architecture whitepaper).
_LANES, _WARPS, _FLOPS_PER_CLOCK = 32, 4, 4096
#: Clocks of one warp's exponentials: 16 results a clock per SM, so 4 per scheduler (CUDA C++
#: Programming Guide, throughput of native arithmetic instructions, compute capability 9.0).
_EXP_CLOCKS = 8
#: What an online softmax needs per score: one exponential and some for the factors of older sums,
#: and a multiply-add, an addition and some for the row sums. Between 1.0 and 1.25, and between 1.9
#: and 2.8, in our kernels of sm_90.
_EXPS, _FLOATS = 1.3, 3.2
#: Instructions of one exponential that keeps denormals: a comparison and two multiplications.
_GUARD = 3
#: Instructions that mask a score: a comparison of its key with the row's limit, and a selection.
_MASK = 2
#: Comparisons of a row's maximum per score: one, and some between threads and steps.
_COMPARED = 1.06
#: A loop that stores results goes over tiles, not over steps.
_STORES = frozenset({"STG", "UTMASTG", "UTMAREDG"})
_SHARED_STORES = ("STS", "STSM", "ST", "ATOMS")
_OPEN_WAIT = re.compile(r"WARPGROUP\.DEPBAR [1-9]\d*")
_WGMMA = re.compile(r"HGMMA\.(\d+)x(\d+)x(\d+)\.")


def _mix(stage: Stage) -> dict[str, int] | None:
    """Instructions of each step; None where no loop over steps is known."""
    facts = stage.static
    if facts is None or not facts.ok or not facts.step_mix:
        return None
    return None if _STORES & facts.step_mix.keys() else facts.step_mix


def _warpgroup_flops(mix: dict[str, int]) -> int | None:
    """FLOPs of a warpgroup's products in a step; None where others than warpgroups multiply."""
    flops = 0
    for name, count in mix.items():
        if not mma_family(name):
            continue
        if (shape := _WGMMA.match(name)) is None:
            return None
        m, n, k = (int(extent) for extent in shape.groups())
        flops += 2 * m * n * k * count
    return flops or None


def _scores_per_lane(record: Record, stage: Stage, flops: int) -> float | None:
    """Scores that a thread of a warpgroup turns into weights in a step, by the products' FLOPs.

    At least as many as enter a row's maximum: a loop with a branch per kind of tile may hold the
    softmax of all of them, and the products of one.
    Where a problem does not tell, as where stages share its keys: just as many.
    """
    workload, work = workloads().get(record.kernel.layer), costs.cost(record, stage)
    mix = _mix(stage) or {}
    scores = workload.scores(record.problem) if workload is not None else None
    if scores and work is not None and work.flops:
        counted = flops * scores / work.flops / (_WARPS * _LANES)
        return max(counted, mix.get("FMNMX", 0) / _COMPARED)
    compared = mix.get("FMNMX", 0) or mix.get("FSEL", 0) - _hidden(mix)
    return compared / _COMPARED if compared else None


def _read(
    measure: Callable[[dict[str, int], float, int], float | None],
) -> Callable[..., float | None]:
    """A figure of the softmax of a step, from its mix, the scores of a thread and its FLOPs."""

    def read(record: Record, stage: Stage) -> float | None:
        mix = _mix(stage)
        flops = None if mix is None else _warpgroup_flops(mix)
        if mix is None or flops is None or not mix.get("MUFU"):
            return None
        scores = _scores_per_lane(record, stage, flops)
        return None if scores is None else measure(mix, scores, flops)

    return read


def _exponentials(mix: dict[str, int], scores: float, flops: int) -> float:
    return mix["MUFU"] / scores


def _hidden(mix: dict[str, int]) -> int:
    """Selections by place: each has a comparison of integers. Others choose the larger score."""
    return min(mix.get("FSEL", 0), mix.get("ISETP", 0))


def _masked(mix: dict[str, int], scores: float, flops: int) -> float:
    return _hidden(mix) / scores


def _softmax(mix: dict[str, int], scores: float, flops: int) -> float:
    exps = max(0.0, mix["MUFU"] - _EXPS * scores)
    floats = max(0.0, mix.get("FFMA", 0) + mix.get("FADD", 0) - _FLOATS * scores)
    by_instruction = mix.get("FMNMX", 0) >= scores / 2
    larger = 0 if by_instruction else mix.get("FSEL", 0) - _hidden(mix)
    guards = max(0.0, mix.get("FSETP", 0) - larger - (_EXPS - 1) * scores)
    return 1 + (_EXP_CLOCKS * exps + floats + _GUARD * guards) / (flops / _FLOPS_PER_CLOCK)


def _masking(mix: dict[str, int], scores: float, flops: int) -> float:
    return 1 + _MASK * min(_hidden(mix), scores) / (flops / _FLOPS_PER_CLOCK)


#: Exponentials per score; 1 is the least.
exponentials = _read(_exponentials)
#: Selections per score that every step executes: 1 where each score of each step is masked.
masked = _read(_masked)
#: The same with the mask's instructions in place of the softmax's.
masking = _read(_masking)
#: Time of a step's products with the softmax's needless instructions after them, over without.
softmax = _read(_softmax)


def issue(record: Record, stage: Stage) -> float | None:
    """Time of a step that issues one instruction per clock and warp, over that of its products.

    A scheduler issues one instruction per clock, and each warpgroup has a warp on each of the four.
    """
    mix = _mix(stage)
    flops = None if mix is None else _warpgroup_flops(mix)
    if mix is None or flops is None:
        return None
    return max(1.0, sum(mix.values()) / (flops / _FLOPS_PER_CLOCK))


def barriers(record: Record, stage: Stage) -> int | None:
    """Barriers of a step at which a warp waits, less those at which it only arrives for others.

    Handovers between warps are pairs of both. More waits than arrivals are barriers at which all
    wait for all.
    """
    mix = _mix(stage)
    return None if mix is None else max(0, mix.get("BAR.SYNC", 0) - mix.get("BAR.ARV", 0))


def fences(record: Record, stage: Stage) -> int | None:
    """Fences of a step that publish nothing, or reach beyond the block.

    A step without stores to shared memory has nothing that a fence of proxies would publish.
    """
    mix = _mix(stage)
    if mix is None:
        return None
    far = sum(n for name, n in mix.items() if name.startswith("MEMBAR") and ".CTA" not in name)
    publishes = any(mix.get(name) for name in _SHARED_STORES)
    return far + (0 if publishes else mix.get("FENCE", 0))


def overlapped(record: Record, stage: Stage) -> int | None:
    """Waits of a step that leave products of the warpgroup under way; None without a softmax.

    Where there is none, a softmax has no product of its own warpgroup to run under.
    """
    mix = _mix(stage)
    if mix is None or not mix.get("MUFU") or _warpgroup_flops(mix) is None:
        return None
    return sum(n for name, n in mix.items() if _OPEN_WAIT.fullmatch(name))


#: Registers of an SM (CUDA C++ Programming Guide, compute capability 9.0).
_REGISTERS = 65536


def spare_registers(record: Record, stage: Stage) -> float | None:
    """Share of an SM's registers that no warp may use, by the budgets that warps ask for.

    The last warpgroup gives registers up, the others take what they ask for. None without budgets.
    """
    facts = stage.static
    budgets = getattr(facts, "register_budgets", ()) if facts is not None and facts.ok else ()
    if facts is None or not budgets or facts.warps_per_block % _WARPS:
        return None
    asked = [budget.registers for budget in budgets]
    groups = facts.warps_per_block // _WARPS
    used = _WARPS * _LANES * (min(asked) + (groups - 1) * max(asked))
    return max(0.0, 1 - used / _REGISTERS)
