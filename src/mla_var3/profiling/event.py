"""Modes that need a GPU and nothing else: ``disabled`` (run, check) and ``event`` (time)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import cuda.tile as ct
import torch

from mla_var3 import devices, records
from mla_var3.errors import RecordError, ToolchainError
from mla_var3.profiling import recording
from mla_var3.profiling.timing import Timer
from mla_var3.runtime import autotune
from mla_var3.runtime.autotune import Progress
from mla_var3.runtime.check import check_plan
from mla_var3.runtime.kernel import RuntimeObject
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.registry import Version, find


@dataclass(frozen=True)
class ProfileResult:
    """A run's record and where it and the bulk artefacts lie."""

    record: records.Record
    paths: tuple[Path, ...]

    def get_total_time_us(self) -> float:
        """Median time of the whole version in microseconds.

        Raises:
            ToolchainError: The run measured no time.
        """
        outcome = self.record.outcome
        if isinstance(outcome, records.Failed):
            raise ToolchainError(f"the run failed: {outcome.error}")
        if outcome.total is None:
            raise ToolchainError(f"a run in mode {self.record.mode} measures no time")
        return outcome.total.median_us


def require_gpu(mode: str) -> None:
    """Raise ToolchainError unless torch sees a GPU."""
    if not torch.cuda.is_available():
        raise ToolchainError(
            f"mode {mode} needs a CUDA GPU and torch sees none; --prof_type=static needs none"
        )


def bind(
    version: Version,
    plan: KernelPlan,
    *,
    timer: Timer | None,
    retune: bool = False,
    tune_max_iters: int = 32,
    progress: Progress = lambda _: None,
) -> tuple[KernelPlan, RuntimeObject]:
    """Resolve ``plan`` for the GPU, bind it there and, given a timer, tune it.

    Returns:
        The plan with all its tilings fixed, and the bound runtime object.
    """
    key = recording.gpu()[0].key
    plan = resolve_for_gpu(plan)
    user = dict(plan.tilings)
    stored = {} if retune or timer is None else autotune.load(version, plan, key)
    plan = dataclasses.replace(plan, tilings={**stored, **user})
    obj = plan.plan(*plan.prepare_inputs("cuda"))
    if timer is not None and not stored:
        short = 10
        trials = autotune.tune(
            obj,
            plan,
            lambda kernel: sorted(timer.samples_us(kernel, short))[short // 2],
            limit=tune_max_iters,
            progress=progress,
        )
        if trials:
            tuned = {kernel.name: kernel.tiling for _, kernel in obj.stages()}
            autotune.save(version, plan, key, tuned)
            # Rebuilt, since a plan may size its other stages by a tiling.
            plan = dataclasses.replace(plan, tilings={**tuned, **user})
            obj = plan.plan(*plan.prepare_inputs("cuda"))
    return plan, obj


def bind_tuned(
    version: Version, plan: KernelPlan, *, tuned: bool
) -> tuple[KernelPlan, RuntimeObject]:
    """Bind ``plan`` with the stored tilings (or the default ones), timing nothing."""
    plan = resolve_for_gpu(plan)
    stored = autotune.load(version, plan, recording.gpu()[0].key) if tuned else {}
    plan = dataclasses.replace(plan, tilings={**stored, **plan.tilings})
    return plan, plan.plan(*plan.prepare_inputs("cuda"))


def resolve_for_gpu(plan: KernelPlan) -> KernelPlan:
    """``plan`` with its open sizes filled in for the GPU, validated."""
    ceilings = recording.gpu()[0].ceilings(plan.dtype)
    plan = plan.resolve(ceilings.tflops, ceilings.gbps)
    plan.validate()
    return plan


def event_profile_plan(
    plan: KernelPlan,
    *,
    version: Version | str,
    out_dir: Path | None = None,
    artefacts: Path | None = None,
    label: str | None = None,
    bench_runs: int = 50,
    check: bool = True,
    no_autotune: bool = False,
    retune: bool = False,
    tune_max_iters: int = 32,
    progress: Progress = lambda _: None,
    replace: bool = True,
) -> ProfileResult:
    """Check ``plan`` on the GPU, then time the whole and each stage; writes the record.

    Args:
        plan: What to run.
        version: The version it belongs to, or ``"<design> <version>"``.
        out_dir: Results folder; ``results/`` of the checkout by default.
        artefacts: Folder for bulk files; this mode leaves none.
        label: Prefix of progress lines.
        bench_runs: Timed runs.
        check: Compare with the reference first; a wrong kernel is not timed.
        no_autotune: Keep the default tilings.
        retune: Tune even where tuned tilings are stored.
        tune_max_iters: Tilings to time a stage.
        progress: Told what happens.
        replace: Replace a passed record of today's sources. A mode that only starts from these
            times must not: that record may share its run with other versions' records.

    Raises:
        ToolchainError: There is no GPU.
    """
    require_gpu("event")
    found = find(*version.split()) if isinstance(version, str) else version
    say = progress if label is None else (lambda text: progress(f"{label}: {text}"))
    device, _ = recording.gpu()

    def body() -> tuple[KernelPlan, Outcome]:
        timer = Timer(bench_runs)
        bound, obj = bind(
            found, plan, timer=None if no_autotune else timer, retune=retune,
            tune_max_iters=tune_max_iters, progress=say,
        )  # fmt: skip
        checked = None
        if check:
            say("checking against the reference")
            checked, wrong = _check(bound)
            if wrong is not None:
                return bound, wrong
        say(f"timing {bench_runs} runs")
        total = timer.time(obj)
        leaves = obj.stages()
        durations = {leaves[0][0]: total}
        if len(leaves) > 1:
            durations = {path: timer.time(kernel) for path, kernel in leaves}
        passed = _passed(bound, obj, device, checked, durations)
        fraction = round(passed.predictions[0].time_us / total.median_us, 4)
        return bound, passed.model_copy(
            update={"protocol": timer.protocol, "total": total, "roofline_fraction": fraction}
        )

    record = _make(found, "event", *_or_failed(resolve_for_gpu(plan), body))
    if replace or isinstance(record.outcome, records.Failed) or not _is_known(record, out_dir):
        return _written(record, out_dir)
    return ProfileResult(record, ())


def run_disabled(
    plan: KernelPlan, *, version: Version, out_dir: Path | None = None, check: bool = True
) -> ProfileResult:
    """Run ``plan`` once on the GPU with its default tilings and write the record.

    Args:
        plan: What to run.
        version: The version it belongs to.
        out_dir: Results folder; the checkout's by default.
        check: Compare with the reference; without it nothing but the kernels is launched, which
            is what an external profiler wants.
    """
    require_gpu("disabled")
    device, _ = recording.gpu()

    def body() -> tuple[KernelPlan, Outcome]:
        bound, obj = bind(version, plan, timer=None)
        checked = None
        if check:
            checked, wrong = _check(bound)
            if wrong is not None:
                return bound, wrong
        else:
            obj()
            torch.cuda.synchronize()
        return bound, _passed(bound, obj, device, checked)

    record = _make(version, "disabled", *_or_failed(resolve_for_gpu(plan), body))
    return _written(record, out_dir)


Outcome = records.Passed | records.Failed


def _or_failed(
    plan: KernelPlan, body: Callable[[], tuple[KernelPlan, Outcome]]
) -> tuple[KernelPlan, Outcome]:
    """What ``body`` gives, or a failed outcome when the compiler, driver or memory refuses."""
    try:
        return body()
    except (RuntimeError, ct.TileError) as error:
        said = str(error).strip().splitlines()
        return plan, records.Failed(error=said[0] if said else type(error).__name__)


def _check(plan: KernelPlan) -> tuple[records.Correctness, records.Failed | None]:
    result = check_plan(plan, "cuda")
    checked = recording.correctness([result], "torch fp32 on the same GPU", plan.dtype)
    failed = None if result.ok else records.Failed(error=result.explain(), correctness=checked)
    return checked, failed


def _passed(
    plan: KernelPlan,
    obj: RuntimeObject,
    device: devices.Device,
    checked: records.Correctness | None,
    durations: dict[str, records.Duration] | None = None,
) -> records.Passed:
    cost = plan._algorithmic_flops_bytes()
    return records.Passed(
        correctness=checked,
        stages=recording.stages(obj, plan, (device,), durations),
        flops=cost.flops,
        bytes=cost.bytes,
        predictions=[recording.prediction(device, plan, cost.flops, cost.bytes)],
    )


def _make(
    version: Version, mode: records.Mode, plan: KernelPlan, outcome: Outcome
) -> records.Record:
    _, state = recording.gpu()  # After the work, so that the clocks are those under load.
    return recording.make(
        version, plan, mode, state.key, outcome, device=state, tools=recording.GPU_TOOLS
    )


def _written(record: records.Record, out_dir: Path | None) -> ProfileResult:
    path, _ = records.write(record, out_dir)
    return ProfileResult(record, (path,))


def _is_known(record: records.Record, out_dir: Path | None) -> bool:
    """Whether a passed record of the same sources lies where ``record`` would."""
    try:
        there = records.read((out_dir or records.results_dir()) / record.path)
    except RecordError:
        return False
    return there.kernel == record.kernel and isinstance(there.outcome, records.Passed)
