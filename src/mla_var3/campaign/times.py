"""Finds the time of a campaign's version: on the GPU here, else in records of one run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mla_var3 import devices
from mla_var3.campaign import seeding, subjects
from mla_var3.campaign.memory import Performance
from mla_var3.evidence import Passed, Record

if TYPE_CHECKING:
    from mla_var3.campaign.workspace import Workspace


def of(
    found: Workspace,
    version: str,
    parent: str | None,
    say: Callable[[str], None],
    warnings: list[str],
) -> Performance | None:
    """Times of a version and its parent, both of one run; None where nothing here knows them.

    Args:
        found: The campaign.
        version: What is timed.
        parent: What it was made of; None for the version that the campaign begins with.
        say: Told what is done.
        warnings: Gets what is odd, and refuses nothing.
    """
    import torch

    if torch.cuda.is_available():
        asked = [version] if parent is None else [parent, version]
        made = found.subject.timed(asked, say)
        protocol = f"CUDA events over graph replay, L2 flushed, {subjects.BENCH_RUNS} runs"
    elif parent is None:
        record = found.subject.recorded(version)
        made = [record] if record is not None else []
        protocol = ""
    else:
        made, protocol = recorded_together(found, version, parent), ""
    if not made:
        return None
    target, device = made[-1].target, found.settings.device
    if not devices.runs_code_of(target, device):
        warnings.append(f"not timed: this is {target}, and the campaign is of {device}")
        return None
    if target != device:  # Which of two is faster is told all the same.
        warnings.append(f"timed on {target}: the target, one of {device}, is not judged by it")
    medians = [_median(record) for record in made]
    if medians[-1] is None:
        return None
    return Performance(
        median_us=medians[-1],
        parent_us=medians[0] if parent is not None else None,
        run=made[-1].run,
        parent_run=made[0].run if parent is not None else None,
        device=target,
        protocol=protocol or seeding.protocol_of(made[-1]),
    )


def recorded_together(found: Workspace, version: str, parent: str) -> list[Record]:
    """Records of parent and version as they are now, of the newest run that timed both."""
    device = found.settings.device
    each = [
        {(r.run, r.target, r.slug): r for r in found.subject.records_of(name) if r.is_timed}
        for name in (parent, version)
    ]
    shared = [
        key
        for key in each[0].keys() & each[1].keys()
        if devices.runs_code_of(each[1][key].target, device)
    ]
    if not shared:
        return []
    newest = max(shared, key=lambda key: each[1][key].time)
    return [records[newest] for records in each]


def _median(record: Record) -> float | None:
    outcome = record.outcome
    return outcome.total.median_us if isinstance(outcome, Passed) and outcome.total else None
