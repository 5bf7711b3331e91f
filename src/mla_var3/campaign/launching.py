"""Checks an adopted file on the GPU here, and times its launch there."""

from __future__ import annotations

from collections.abc import Mapping

from mla_var3.campaign import adopted, contract
from mla_var3.campaign.adopted import Adopted, Checked
from mla_var3.campaign.running import Trace
from mla_var3.evidence import Passed, Record, Scalar
from mla_var3.profiling import recording


def timed(found: Adopted, sizes: Mapping[str, Scalar], bench_runs: int) -> tuple[Record, Checked]:
    """Check a file on the GPU, then time its launch by CUDA events over graph replay.

    Args:
        found: The file.
        sizes: Those that are not the file's own.
        bench_runs: Timed runs.

    Returns:
        The record, and what was checked: its work is the record's.

    Raises:
        ToolchainError: There is no GPU.
    """
    from mla_var3.campaign.flops import Counting
    from mla_var3.profiling import binding, gpu_lock
    from mla_var3.profiling.timing import Timer

    binding.require_gpu("event")
    with gpu_lock.held(lambda _: None):
        mine = contract.load(found.path)
        problem = mine.problem(sizes)
        counter, trace = Counting(), Trace(found.kind)
        ran = adopted.run(mine, problem, trace, counter)
        checked = adopted.checked_of(mine, problem, trace, counter, ran)
        outcome = adopted.outcome_of(checked, [])
        device, state = recording.gpu()
        if isinstance(outcome, Passed):
            timer = Timer(bench_runs)
            total = timer.time(lambda: mine.launch(**ran[2]))
            outcome = outcome.model_copy(update={"total": total, "protocol": timer.protocol})
        record = adopted.record_of(found, checked, "event", device.key, [], outcome)
        return record.model_copy(update={"device": state}), checked
