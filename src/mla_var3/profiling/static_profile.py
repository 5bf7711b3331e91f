"""Mode ``static``: all that can be known of a version without a GPU."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mla_var3 import devices, records
from mla_var3.errors import DeviceFigureError, UnknownNameError
from mla_var3.languages import compiling as analyse
from mla_var3.languages import ranking as rank
from mla_var3.languages.cutile.compile import CompileJob, compile_many
from mla_var3.paths import out_dir as default_out_dir
from mla_var3.paths import write_atomic
from mla_var3.profiling import recording, report
from mla_var3.runtime.check import CaseResult, check_plan
from mla_var3.runtime.kernel import RuntimeObject
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.registry import Version

DEFAULT_ARCHS = ("sm_90", "sm_100", "sm_120")

Progress = Callable[[str], None]


@dataclass(frozen=True)
class StaticResult:
    """Records by arch and every path that was written."""

    records: tuple[records.Record, ...]
    record_paths: tuple[Path, ...]
    paths: tuple[Path, ...]
    report: Path

    @property
    def ok(self) -> bool:
        """Whether every record passed."""
        return all(isinstance(r.outcome, records.Passed) for r in self.records)


def parse_archs(text: str | None) -> tuple[str, ...]:
    """Archs of a comma-separated list, in order and once each; the default three when None.

    Raises:
        UnknownNameError: An arch the compiler does not know.
    """
    if text is None:
        return DEFAULT_ARCHS
    known = list(analyse.known_archs())
    archs = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for arch in archs or [text]:
        if arch not in known:
            raise UnknownNameError("arch", arch, known)
    return tuple(archs)


def device_for(arch: str, asked: devices.Device | None) -> devices.Device | None:
    """The device that predictions for ``arch`` are made for; None when no file describes one."""
    if asked is not None and asked.sm == arch:
        return asked
    try:
        return devices.default_for_arch(arch)
    except (UnknownNameError, DeviceFigureError):
        return None


def devices_of(arch: str, dtype: str) -> list[devices.Device]:
    """All devices of ``arch`` whose two ceilings are known, in key order."""
    found = []
    for device in devices.all_devices():
        if device.sm != arch or not device.is_compile_target:
            continue
        try:
            device.ceilings(dtype)
        except DeviceFigureError:
            continue
        found.append(device)
    return found


def static_profile_plan(
    plan: KernelPlan,
    *,
    version: Version,
    archs: Sequence[str] = DEFAULT_ARCHS,
    device: devices.Device | None = None,
    out_dir: Path | None = None,
    results: Path | None = None,
    retune: bool = False,
    tune_max_iters: int = 32,
    progress: Progress = lambda _: None,
) -> StaticResult:
    """Interpret ``plan`` small, compile it for ``archs`` at full size, predict, and record.

    Args:
        plan: What was asked for; open sizes are resolved for each arch's device.
        version: The version it belongs to.
        archs: Archs such as ``sm_90``.
        device: Device to predict for where its arch is among ``archs``.
        out_dir: Folder for report and artefacts; ``out/`` of the checkout by default.
        results: Results folder; the checkout's by default.
        retune: Compile all configured tilings and take the one that ranks first.
        tune_max_iters: Tilings to compile a stage when ranking.
        progress: Told what happens.

    Raises:
        ToolchainError: A compiler is missing, or refuses the kernel.
        DeviceFigureError: A device's ceiling is UNKNOWN.
    """
    folder = (out_dir or default_out_dir()) / version.design / version.version / "static"
    plans = {arch: _resolved(plan, arch, device) for arch in archs}
    if retune:
        plans = {a: _retuned(p, a, tune_max_iters, progress) for a, p in plans.items()}
    objects = {arch: p.plan(*p.prepare_inputs("meta")) for arch, p in plans.items()}
    for obj in objects.values():
        for _, kernel in obj.stages():
            kernel.grid()  # What CUDA could not launch is refused before minutes of work.
    # All archs at once, so that no core idles; the records below then find them in the cache.
    progress(f"compiling {version.key} for {', '.join(archs)}")
    compile_many(
        [
            CompileJob(kernel.kernel, kernel.args(), arch)
            for arch, obj in objects.items()
            for _, kernel in obj.stages()
        ],
        progress=lambda job, facts: progress(analyse.summary(facts)),
    )
    checked: list[CaseResult] = []
    made, record_paths, paths = [], [], []
    for arch, resolved in plans.items():
        obj, small = objects[arch], resolved.shrunk()
        case = next((done for done in checked if done.plan == small), None)
        if case is None:
            progress(f"interpreting {version.key} at {small.slug()}")
            case = check_plan(small)
            checked.append(case)
        artefacts = folder / resolved.slug() / arch
        record = _record(version, resolved, obj, arch, case, artefacts)
        path, changed = records.write(record, results)
        progress(f"{'wrote' if changed else 'unchanged'} {path}")
        made.append(record)
        record_paths.append(path)
        paths += [path, *_write_parameters(artefacts, resolved, obj)]
        paths += sorted((artefacts / "compiled").glob("*/*")) if case.ok else []
    report_path = folder / "report.md"
    write_atomic(report_path, report.render(made, next_steps(made), [_relative(p) for p in paths]))
    return StaticResult(tuple(made), tuple(record_paths), (*paths, report_path), report_path)


def next_steps(made: Sequence[records.Record]) -> list[str]:
    """The top three patterns for the records, as lines of the report."""
    from mla_var3 import knowledge

    return knowledge.next_steps(made, top=3)


def _resolved(plan: KernelPlan, arch: str, device: devices.Device | None) -> KernelPlan:
    chosen = device_for(arch, device)
    if chosen is not None:
        ceilings = chosen.ceilings(plan.dtype)
        plan = plan.resolve(ceilings.tflops, ceilings.gbps)
    plan.validate()
    return plan


def _retuned(plan: KernelPlan, arch: str, limit: int, progress: Progress) -> KernelPlan:
    obj = plan.plan(*plan.prepare_inputs("meta"))
    tilings = dict(plan.tilings)
    for path, kernel in obj.stages():
        if kernel.name in plan.tilings:
            continue
        ranking = rank.rank(kernel, arch, limit=limit, progress=progress)
        for tiling, reason in ranking.pruned:
            progress(f"{arch} {path}: pruned {report.tiling_text(vars(tiling))}: {reason}")
        if ranking.best is not None:
            tilings[kernel.name] = ranking.best
            progress(f"{arch} {path}: chose {report.tiling_text(vars(tilings[kernel.name]))}")
    return dataclasses.replace(plan, tilings=tilings)


def _record(
    version: Version,
    plan: KernelPlan,
    obj: RuntimeObject,
    arch: str,
    case: CaseResult,
    artefacts: Path,
) -> records.Record:
    checked = recording.correctness([case], "torch fp32, interpreted on the CPU", plan.dtype)
    outcome: records.Passed | records.Failed
    if not case.ok:
        outcome = records.Failed(error=case.explain(), correctness=checked)
        return recording.make(version, plan, "static", f"static/{arch}", outcome)
    facts = analyse.analyse(obj, [arch], artefacts=artefacts / "compiled")[arch]
    targets = devices_of(arch, plan.dtype)
    cost = plan._algorithmic_flops_bytes()
    outcome = records.Passed(
        correctness=checked,
        stages=recording.stages(
            obj,
            plan,
            targets,
            static={path: found.model_dump(mode="json") for path, found in facts.items()},
        ),
        flops=cost.flops,
        bytes=cost.bytes,
        predictions=[recording.prediction(d, plan, cost.flops, cost.bytes) for d in targets],
    )
    return recording.make(version, plan, "static", f"static/{arch}", outcome)


def _write_parameters(folder: Path, plan: KernelPlan, obj: RuntimeObject) -> list[Path]:
    """params.json and tiling/<stage>.json; compiled/<stage>/ is the compiler's."""
    written = [folder / "params.json"]
    write_atomic(written[0], _json(plan.problem()))
    for path, kernel in obj.stages():
        written.append(folder / "tiling" / f"{path}.json")
        write_atomic(written[-1], _json(dataclasses.asdict(kernel.tiling)))
    return written


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=1) + "\n"


def _relative(path: Path) -> str:
    try:
        return path.resolve().relative_to(Path.cwd().resolve()).as_posix()
    except ValueError:
        return str(path)
