"""Compiles a kernel's tilings and ranks them by static facts; prunes those not worth timing.

A tiling is pruned when its launch is refused, when it spills registers, or when a matrix
multiplication leaves the arch's fast tensor-core path. The rest are ordered by a model that needs
no GPU and is meant for ordering only::

    score = fill * density / (largest density among the kept)

``fill`` is the share of the device's SMs that is busy on average while the fullest SM works
through its blocks, blocks / (SMs * ceil(blocks / SMs)); ``density`` is the tensor work a block
does for each instruction that its warps must issue, MMA FLOPs / (warps * instructions that are
no MMA), both counted once in the code. Scores within one in a hundred are ties (48 bytes of
barriers make as much): they go to the larger tile, since a block waits once per tile and takes
fewer of them, then to more resident warps, then to the order of the configurations.

A kernel that multiplies no matrices only moves bytes, and by Little's law its rate is what is under
way divided by the latency. Asynchronous loads wait in shared memory, so that what a block can have
under way is its shared memory, and no more than it moves at all; the ``density`` is the share of an
SM's shared memory that one block fills so. Several blocks per SM do not make up for small ones: of
the merge of ``flash_mla_split_kv`` one block per SM with 50 KB took 16.9 us on an H100, four with
39 KB each 27.5 us. Where loads go through registers it is the share of warps that are resident.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from mla_var3.errors import DeviceFigureError, TilingError, UnknownNameError
from mla_var3.evidence import StaticFacts
from mla_var3.languages.base import CompileJob
from mla_var3.languages.stage_facts import compile_jobs
from mla_var3.runtime import Kernel, Tiling
from mla_var3.static.occupancy import Occupancy, of_facts
from mla_var3.static.sass import mma_note

#: Seconds a configuration may take to compile before it is pruned for that.
RANK_TIMEOUT_S = 120.0
#: Scores that differ by this share or less say nothing.
SAME = 0.01
T = TypeVar("T")


@dataclass(frozen=True)
class Kept:
    """A tiling worth timing.

    Attributes:
        tiling: The tiling.
        facts: What the compiler made of it.
        score: By the module's model; 1 is best.
        fill: Share of the SMs that is busy; 1 when the device's SM count is not known.
        density: Tensor FLOPs per issued instruction, or the share of an SM that waits for bytes.
        warps: Resident warps per SM; 0 when that is not known.
    """

    tiling: Tiling
    facts: StaticFacts
    score: float
    fill: float
    density: float
    warps: int = 0


class Launch(NamedTuple):
    """What a launch asks of the device, which its code does not say.

    Attributes:
        blocks: Blocks of its grid.
        moved: Bytes that it moves, by the cost model.
    """

    blocks: int
    moved: int

    @classmethod
    def of(cls, kernel: Kernel) -> Self:
        """The launch of a bound kernel.

        Raises:
            TilingError: CUDA could not launch its grid.
        """
        return cls(math.prod(kernel.grid()), kernel.cost.bytes)


class Pruned(NamedTuple):
    """A tiling not worth timing, and why."""

    tiling: Tiling
    reason: str


@dataclass(frozen=True)
class Ranking:
    """The tilings of one kernel for one arch.

    Attributes:
        kernel: Stage name.
        arch: Such as ``sm_90``.
        kept: Best first.
        pruned: In the order of the configurations.
        least_bad: When nothing is kept, the tiling that compiles and moves the fewest bytes
            through local memory; else None.
    """

    kernel: str
    arch: str
    kept: tuple[Kept, ...]
    pruned: tuple[Pruned, ...]
    least_bad: Tiling | None = None

    @property
    def best(self) -> Tiling | None:
        """The first kept tiling, else the least bad one; None when nothing compiles."""
        return self.kept[0].tiling if self.kept else self.least_bad


def rank(
    kernel: Kernel,
    arch: str,
    *,
    configs: Sequence[Tiling] | None = None,
    limit: int | None = None,
    device: Any = None,
    workers: int | None = None,
    cache_dir: Path | None = None,
    timeout: float = RANK_TIMEOUT_S,
    progress: Callable[[str], None] = lambda _text: None,
) -> Ranking:
    """Compile a kernel's tilings for an arch and rank them.

    Args:
        kernel: Bound to tensors of the full size; meta tensors do. Its own tiling stays as it is.
        arch: Such as ``sm_90``.
        configs: Tilings to rank; ``kernel.autotune_configs`` by default.
        limit: Compile at most this many, spread evenly over the list; the others are neither kept
            nor pruned.
        device: A :class:`mla_var3.devices.Device`; the one that stands for the arch by default.
        workers: Compilers at a time.
        cache_dir: Cache folder.
        timeout: Seconds each compile may take.
        progress: Told of each compile as it ends.

    Raises:
        ToolchainError: A tool is missing or of the wrong version.
        UnknownNameError: An arch that the compiler does not know.
    """
    asked = spread(list(kernel.autotune_configs if configs is None else configs), limit)
    pruned: dict[int, str] = {}
    bound: dict[int, Kernel] = {}
    launches: dict[int, Launch] = {}
    for index, tiling in enumerate(asked):
        candidate = copy.copy(kernel)
        candidate.tiling = tiling
        try:
            launches[index] = Launch.of(candidate)
        except TilingError as error:
            pruned[index] = str(error)
        else:
            bound[index] = candidate
    results = compile_jobs(
        [CompileJob(candidate, arch) for candidate in bound.values()],
        workers=workers,
        cache_dir=cache_dir,
        timeout=timeout,
        progress=progress,
    )
    facts = {index: result.facts for index, result in zip(bound, results, strict=True)}
    device = device or _default_device(arch)
    held = {index: of_facts(found, device) for index, found in facts.items()}
    for index, found in facts.items():
        if reason := reason_to_prune(found, held[index]):
            pruned[index] = reason
    measured = {
        index: (
            fill(launches[index].blocks, device),
            density(found, held[index], launches[index], device),
        )
        for index, found in facts.items()
        if index not in pruned
    }
    top = max((d for _, d in measured.values()), default=0.0) or 1.0
    kept = [
        Kept(
            asked[index],
            facts[index],
            round(f * d / top, 6),
            round(f, 6),
            round(d, 6),
            _warps(held[index]),
        )
        for index, (f, d) in measured.items()
    ]
    kept.sort(key=lambda k: (-k.score, -k.warps))
    kept = ordered(kept, lambda k: k.score, lambda k: tile_size(k.tiling.values()))
    return Ranking(
        kernel.name,
        arch,
        tuple(kept),
        tuple(Pruned(asked[index], pruned[index]) for index in sorted(pruned)),
        None if kept else _least_bad(asked, facts),
    )


def ordered(found: Sequence[T], score: Callable[[T], float], size: Callable[[T], int]) -> list[T]:
    """Candidates, the best first; of scores that the model cannot tell apart the larger tile first.

    Args:
        found: Candidates, equal ones in the order that they keep.
        score: By the module's model, a finite number.
        size: Elements of a tile.
    """
    left = sorted(found, key=score, reverse=True)
    made: list[T] = []
    while left:
        best = score(left[0])
        count = sum(best - score(one) <= SAME * abs(best) for one in left)
        made += sorted(left[:count], key=size, reverse=True)
        left = left[count:]
    return made


def tile_size(fields: Mapping[str, Any]) -> int:
    """Elements of a tile, by the fields of a tiling that are its extents."""
    extents = (v for name, v in fields.items() if name.startswith("tile_") and v)
    return math.prod(int(v) for v in extents)


def spread(configs: list[Tiling], limit: int | None) -> list[Tiling]:
    """At most ``limit`` of the configurations, evenly spread, the first one included."""
    if limit is None or limit >= len(configs):
        return configs
    if limit < 1:
        raise TilingError(f"limit={limit} is below 1: at least one tiling must be compiled")
    return [configs[i * len(configs) // limit] for i in range(limit)]


def reason_to_prune(facts: StaticFacts, held: Occupancy | None) -> str | None:
    """Why a tiling is not worth timing, with the figures that say so; None when it is."""
    if facts.error is not None:
        return f"does not compile for {facts.arch}: {facts.error}"
    if held is not None and held.blocks_per_sm == 0:
        return (
            f"does not fit an SM of {held.device}: {facts.registers} registers x "
            f"{facts.threads_per_block} threads, {facts.shared_bytes} bytes of shared memory"
        )
    reasons = []
    if facts.spills:
        reasons.append(
            f"spills: {facts.registers} registers, {facts.stack_bytes} bytes of stack, "
            f"{facts.spill_loads} LDL + {facts.spill_stores} STL in the code"
        )
    if note := mma_note(facts.mma_path, facts.arch):
        reasons.append(note)
    return "; ".join(reasons) or None


def fill(blocks: int, device: Any) -> float:
    """Share of the SMs busy on average while the fullest SM works, 0 to 1; 1 without a device."""
    try:
        count = device.sm_count if device is not None else None
    except DeviceFigureError:
        count = None
    return 1.0 if count is None else blocks / (count * -(-blocks // count))


def density(facts: StaticFacts, held: Occupancy | None, launch: Launch, device: Any) -> float:
    """Tensor work per block for each other instruction its warps issue (static counts).

    Without tensor work it is the share of an SM that waits for bytes, 0 to 1.
    """
    work = facts.mma_work
    if not work:
        return under_way(facts, held, launch, device)
    others = facts.instructions - sum(facts.mma_instructions.values())
    return work / (facts.warps_per_block * max(others, 1))


def under_way(facts: StaticFacts, held: Occupancy | None, launch: Launch, device: Any) -> float:
    """Share of an SM's shared memory that a block's loads can fill, else of its warps that fit.

    Args:
        facts: What the compiler made of it.
        held: Its occupancy; 1 is returned without it.
        launch: Its grid and bytes.
        device: A :class:`mla_var3.devices.Device`, which ``held`` is of.
    """
    if held is None:
        return 1.0
    if not facts.tma_loads + facts.async_copies:
        return held.fraction
    waiting = min(facts.shared_bytes, launch.moved / launch.blocks)
    return float(waiting / device.sm_limits().shared_memory_per_sm)


def _warps(held: Occupancy | None) -> int:
    return held.warps if held is not None else 0


def _least_bad(asked: Sequence[Tiling], facts: dict[int, StaticFacts]) -> Tiling | None:
    sound = {index: found for index, found in facts.items() if found.ok}
    if not sound:
        return None
    index = min(sound, key=lambda i: (sound[i].spill_load_bytes + sound[i].spill_store_bytes, i))
    return asked[index]


def _default_device(arch: str) -> Any:
    from mla_var3 import devices

    try:
        return devices.default_for_arch(arch)
    except UnknownNameError:
        return None
