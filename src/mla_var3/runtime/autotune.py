"""Autotuner: times a kernel's tilings on the GPU, selects the fastest and stores it for reuse.

Every tiling that was timed, or could not be, is kept as history beside the stored ones.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mla_var3 import inputs
from mla_var3.errors import HyperMlaError, InputError, TilingError
from mla_var3.paths import out_dir, write_atomic
from mla_var3.runtime.kernel import Kernel, RuntimeObject
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.tiling import Tiling

if TYPE_CHECKING:
    from mla_var3.runtime.registry import Version

Measure = Callable[[Kernel], float]
Progress = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Trial:
    """One tiling that was timed; ``time_us`` is None when it could not run."""

    tiling: Tiling
    time_us: float | None
    error: str | None = None


def candidates(kernel: Kernel, plan: KernelPlan, limit: int) -> list[Tiling]:
    """The current tiling, then the configured ones that ``validate`` accepts, ``limit`` at most."""
    chosen = [kernel.tiling]
    for tiling in kernel.autotune_configs:
        try:
            tiling.validate(plan)
        except TilingError:
            continue
        if tiling not in chosen:
            chosen.append(tiling)
    return chosen[:limit]


def tune_kernel(kernel: Kernel, tilings: Sequence[Tiling], measure: Measure) -> list[Trial]:
    """Time each tiling and leave the fastest set on ``kernel``.

    Args:
        kernel: A kernel whose tensors are on the GPU.
        tilings: Candidates; the first is kept when none can run.
        measure: Median time of one launch in microseconds.

    Returns:
        The trials in order.
    """
    trials = []
    for tiling in tilings:
        kernel.tiling = tiling
        try:
            trials.append(Trial(tiling, measure(kernel)))
        except (HyperMlaError, RuntimeError) as error:
            # A tiling the compiler or driver refuses is an answer, not a fault of the run.
            trials.append(Trial(tiling, None, str(error).splitlines()[0] if str(error) else "?"))
    timed = [t for t in trials if t.time_us is not None]
    kernel.tiling = min(timed, key=lambda t: t.time_us or 0.0).tiling if timed else tilings[0]
    return trials


def store_path(version: Version, plan: KernelPlan, device_key: str) -> Path:
    """Where tuned tilings of this version, problem and device are kept."""
    return (
        out_dir() / "tuned" / device_key / version.design / version.version / f"{plan.slug()}.json"
    )


def load(version: Version, plan: KernelPlan, device_key: str) -> dict[str, Tiling]:
    """Stored tilings by stage; empty when none fit today's sources."""
    path = store_path(version, plan, device_key)
    if not path.is_file():
        return {}
    try:
        stored = inputs.read_json(path)
        if stored["sources"] != version.sources():
            return {}
        types = plan.tiling_types
        tilings = {name: types[name](**values) for name, values in stored["tilings"].items()}
        for tiling in tilings.values():
            tiling.validate(plan)
    except (InputError, ValueError, KeyError, TypeError, AttributeError, TilingError):
        return {}  # A store from another time is tuned anew.
    return tilings


def save(version: Version, plan: KernelPlan, device_key: str, tilings: dict[str, Tiling]) -> Path:
    """Keep ``tilings`` for the next run."""
    path = store_path(version, plan, device_key)
    content = {
        "sources": version.sources(),
        "tilings": {name: dataclasses.asdict(tiling) for name, tiling in tilings.items()},
    }
    write_atomic(path, json.dumps(content, indent=1) + "\n")
    return path


def history_path(version: Version, plan: KernelPlan, device_key: str) -> Path:
    """Where the trials of this version, problem and device are kept, one JSON object per line."""
    return store_path(version, plan, device_key).with_suffix(".trials.jsonl")


def remember(
    version: Version, plan: KernelPlan, device_key: str, run: str, trials: dict[str, list[Trial]]
) -> Path:
    """Add what a run tried to the history; times of one run compare with each other alone."""
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0).isoformat()
    lines = [
        {"run": run, "time": now, "sources": version.sources(), "stage": stage,
         "tiling": dataclasses.asdict(one.tiling), "time_us": one.time_us, "error": one.error}
        for stage, mine in trials.items() for one in mine
    ]  # fmt: skip
    path = history_path(version, plan, device_key)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(json.dumps(line) + "\n" for line in lines)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(file, content.encode())  # At once, so that two runs' lines do not mix.
    finally:
        os.close(file)
    return path


def history(version: Version, plan: KernelPlan, device_key: str) -> list[dict[str, Any]]:
    """What was tried of a version at a problem, the oldest first.

    Raises:
        InputError: A line is not sound; names it.
    """
    path = history_path(version, plan, device_key)
    if not path.is_file():
        return []
    found = []
    for number, line in enumerate(inputs.read_text(path).splitlines(), 1):
        try:
            one = json.loads(line)
            missing = {"run", "time", "stage", "tiling", "time_us", "error"} - one.keys()
        except (ValueError, AttributeError) as error:
            raise InputError(f"{path.name}, line {number}:", "is not a trial") from error
        if missing:
            raise InputError(f"{path.name}, line {number}:", f"has no {sorted(missing)[0]}")
        found.append(one)
    return found


def tune(
    obj: RuntimeObject,
    plan: KernelPlan,
    measure: Measure,
    *,
    limit: int,
    prune: Callable[[Kernel, list[Tiling]], list[Tiling]] | None = None,
    progress: Progress = lambda _: None,
) -> dict[str, list[Trial]]:
    """Tune every stage that the user did not fix, one after another.

    Args:
        obj: The bound runtime object; its stages' tilings are set in place.
        plan: The plan it came from; stages in ``plan.tilings`` are left alone.
        measure: Median time of one launch in microseconds.
        limit: Tilings to time per stage.
        prune: Takes away tilings that static facts rule out.
        progress: Told what happens.

    Returns:
        Trials by stage name.
    """
    trials = {}
    for path, kernel in obj.stages():
        if kernel.name in plan.tilings:
            continue
        tilings = candidates(kernel, plan, limit)
        if prune is not None:
            tilings = prune(kernel, tilings) or tilings[:1]
        progress(f"tuning {path}: {len(tilings)} tilings")
        if len(tilings) > 1:
            trials[kernel.name] = tune_kernel(kernel, tilings, measure)
    return trials
