"""``Adopted``: checks, compiles, times and records a user's adopted kernel file.

Its records lie below ``out/adopted`` and never among the committed ones.
"""

from __future__ import annotations

import datetime
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mla_var3 import evidence, languages, paths
from mla_var3.blobs import blob_id
from mla_var3.campaign import absent, contract, reaching, running
from mla_var3.campaign.contract import Contract, Kind
from mla_var3.campaign.running import Launched, Trace
from mla_var3.errors import InputError, PlanError, ToolchainError
from mla_var3.evidence import Passed, Record, Scalar, StaticFacts
from mla_var3.profiling import recording
from mla_var3.runtime import costs
from mla_var3.runtime.check import OutputError, compare
from mla_var3.workloads import Cost, Tolerance
from mla_var3.workloads.base import SEED

if TYPE_CHECKING:
    import torch

    from mla_var3.campaign.flops import Counting

#: The workload of records of adopted files.
LAYER = "adopted"
VERSION = "v0"
#: A single row may err by this factor more than the whole, as of our versions.
ROW_FACTOR = 3.0


@dataclass(frozen=True)
class Checked:
    """One problem that ran and was compared.

    Attributes:
        problem: Its sizes.
        errors: How far each output is from its reference.
        trace: What ran.
        cost: FLOPs of the reference, as torch counts them, else those that ran; and the bytes of
            inputs and outputs, each once.
        counted: What counted the FLOPs.
        dtype: Narrowest floating-point type of its tensors.
        rate: Element type at whose rate no kernel beats it: operands of 8 bits or fewer may be
            multiplied as such, wider ones as 16 bits, and as TF32 where all have 32 bits.
    """

    problem: Mapping[str, Scalar]
    errors: tuple[OutputError, ...]
    trace: Trace
    cost: Cost
    counted: str = ""
    dtype: str = "float32"
    rate: str = "bf16"

    @property
    def wrong(self) -> str:
        """What is wrong, in one line; empty when nothing is."""
        faults = [str(d) for d in self.trace.diagnostics if d.severity == "error"]
        return "; ".join([*(str(e) for e in self.errors if not e.ok), *dict.fromkeys(faults)])

    @property
    def error(self) -> float:
        """Largest relative error."""
        return max(e.error for e in self.errors)


@dataclass(frozen=True)
class Adopted:
    """A file with the three functions.

    Attributes:
        path: The file.
        kind: What runs its kernels.
        archs: What they are compiled for.
    """

    path: Path
    kind: Kind
    archs: tuple[str, ...]
    _seen: dict[str, Checked] = field(default_factory=dict, compare=False, repr=False)

    @property
    def name(self) -> str:
        """What records call it."""
        return contract.name_of(self.path)

    @functools.cached_property
    def told(self) -> Contract:
        """The contract, read with nothing running: sizes and checks."""
        with self._running():
            return contract.load(self.path)

    def _running(self) -> Any:
        return running.on_cpu(self.kind, self.archs or running.DEFAULT_ARCHS["cute"])

    def check(self, sizes: Mapping[str, Scalar]) -> Checked:
        """Run a problem on the CPU and compare it.

        Raises:
            PlanError: The file's own code fails; names the line.
            InputError: The file breaks its contract.
        """
        key = repr(sorted(sizes.items()))
        if key not in self._seen:
            self._seen[key] = self._checked(sizes)
        return self._seen[key]

    def _checked(self, sizes: Mapping[str, Scalar]) -> Checked:
        from mla_var3.campaign.flops import Counting  # Before a GPU is played, which it asks about.

        counter = Counting()
        with self._running() as trace:
            mine = contract.load(self.path)
            problem = mine.problem(sizes)
            ran = run(mine, problem, trace, counter)
        if self.kind != "torch" and not trace.count:
            raise PlanError(f"{self.path}: launch launches no kernel, so that nothing is checked")
        return checked_of(mine, problem, trace, counter, ran)


def checked_of(
    mine: Contract,
    problem: Mapping[str, Scalar],
    trace: Trace,
    counter: Counting,
    ran: tuple[Any, Any, Any],
) -> Checked:
    """What came of a problem whose outputs, references and inputs are there.

    Raises:
        PlanError: Shapes differ.
    """
    out, ref, given = ran
    errors = _compared(mine, out, ref)
    tensors = [*contract.tensors(given), *out.values()]
    moved = {id(t): t.nbytes for t in tensors}
    counted = "torch's FlopCounter over the reference"
    flops = counter.flops
    if not flops:
        flops = sum(one.flops for one in trace.launches)
        counted = "what the kernels executed" if flops else ""
    least, dtype = contract.narrowest(tensors)
    narrow = any(t.element_size() == 1 and str(t.dtype) != "torch.bool" for t in tensors)
    wide = least is not None and least.element_size() >= 4
    rate = "fp8" if narrow else "fp32" if wide else "bf16"
    cost = Cost(flops, sum(moved.values()))
    return Checked(problem, errors, trace, cost, counted, dtype, rate)


def run(
    mine: Contract, problem: Mapping[str, Scalar], trace: Trace, counter: Counting
) -> tuple[Any, Any, Any]:
    """Outputs, references and inputs; the counter counts the reference."""
    import torch

    torch.manual_seed(SEED)  # The same values at each run, so that one that is wrong stays so.
    with contract.beside(mine.path), contract.one_sentence(f"{mine.path}: inputs fails"):
        given = mine.inputs("cuda", **problem)
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise PlanError(
            f"{mine.path}: inputs must give a mapping by name, and gives {_form(given)}"
        )
    with (
        contract.one_sentence(f"{mine.path}: reference fails"),
        counter,
    ):
        before = trace.live()
        right = mine.reference(**_copied(given))
        if trace.live() > before or contract.calls_launch(mine.path):
            raise PlanError(f"{mine.path}: reference launches the kernel that it is to judge")
    with contract.beside(mine.path), contract.one_sentence(f"{mine.path}: launch fails"):
        result = mine.launch(**given)
    named = list(right) if isinstance(right, Mapping) else []
    out = contract.outputs(mine.path, "launch", given, result, named)
    ref = contract.outputs(mine.path, "reference", given, right, list(out))
    if set(out) != set(ref):
        raise PlanError(
            f"{mine.path}: launch gives {', '.join(out)}, and reference {', '.join(ref)}"
        )
    return _plain(out), _plain(ref), given


def _form(given: object) -> str:
    """What inputs give instead of a mapping by name."""
    if not isinstance(given, Mapping):
        return f"{type(given).__name__}"
    return f"a {type(given).__name__} with {next(n for n in given if not isinstance(n, str))!r}"


def _compared(
    mine: Contract, out: Mapping[str, torch.Tensor], ref: Mapping[str, torch.Tensor]
) -> tuple[OutputError, ...]:
    """How far each output is from its reference.

    Raises:
        PlanError: Their shapes differ.
    """
    try:
        return tuple(compare(n, out[n], ref[n], _allowed(mine, out[n])) for n in ref)
    except PlanError as error:
        raise PlanError(f"{mine.path}: {error}") from error


def _copied(given: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs for the reference, which a launch may not change and which may not change them."""
    return {name: one.clone() if hasattr(one, "clone") else one for name, one in given.items()}


def _plain(tensors: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    return {name: tensor.detach() for name, tensor in tensors.items()}


def _allowed(mine: Contract, output: torch.Tensor) -> Tolerance:
    whole = contract.allowed(mine, output)
    return Tolerance(whole, ROW_FACTOR * whole)


def adopt(path: Path, archs: str | None = None) -> Adopted:
    """A file with the three functions.

    Raises:
        InputError: It lacks one, or cannot be read.
        ToolchainError: The language of its kernels is not installed.
    """
    if not path.is_file():
        raise InputError(str(path), "is not a file")
    absent.require_installed(path)
    kind = contract.kind_of(path)
    own = contract.constant(path, contract.ARCH) or None
    return Adopted(path.resolve(), kind, running.archs_of(kind, archs or own))


# -- records ---------------------------------------------------------------------------------------


def results() -> Path:
    """Folder of the records of adopted files."""
    return paths.out_dir() / "adopted"


def sources_of(path: Path) -> dict[str, str]:
    """A file and those of its user that it runs, each with what git calls its content."""
    return {str(file): blob_id(file.read_bytes()) for file in reaching.reached(path)}


def records_of(path: Path) -> list[Record]:
    """Records of a file's present content, in the order of their times."""
    mine = sources_of(path)
    return [r for r in evidence.find(results()) if r.kernel.sources.items() >= mine.items()]


def records(found: Adopted, checked: Checked, note: Callable[[str], None]) -> list[Record]:
    """A record of each arch; of plain torch one of the CPU.

    Args:
        found: The file.
        checked: A problem that ran.
        note: Told what happens.
    """
    if found.archs and checked.trace.launches:
        names = ", ".join(dict.fromkeys(one.kernel for one in checked.trace.launches))
        note(f"compiling {running.short(names)} for {', '.join(found.archs)}")
    made = running.compiled(checked.trace, found.archs)
    if not made:
        return [record_of(found, checked, "disabled", evidence.CPU, [])]
    return [
        record_of(found, checked, "static", f"static/{running.arch_key(arch)}",
                [one.facts for one in compiled])
        for arch, compiled in made.items()
    ]  # fmt: skip


def record_of(
    found: Adopted,
    checked: Checked,
    mode: evidence.Mode,
    target: str,
    facts: Sequence[StaticFacts],
    outcome: evidence.Outcome | None = None,
) -> Record:
    """A record of what came of a problem, on a target."""
    language = running.LANGUAGES[found.kind]
    package = languages.find(language).package
    tools = (*languages.find(language).tools, *({"triton": ["triton"]}.get(found.kind, [])))
    return Record(
        kernel=evidence.KernelIdentity(
            language=language, package=package, layer=LAYER, design=found.name, version=VERSION,
            sources=sources_of(found.path),
        ),
        problem=dict(checked.problem),
        slug=slug(checked.problem),
        mode=mode,
        target=target,
        toolchain=recording.toolchain([*tools, "torch"]),
        outcome=outcome or outcome_of(checked, facts),
        run=recording.RUN,
        time=datetime.datetime.now(datetime.UTC).replace(microsecond=0),
    )  # fmt: skip


def slug(problem: Mapping[str, Scalar]) -> str:
    """File-name form of the sizes."""
    parts = [f"{name}{value}" for name, value in problem.items() if value is not None]
    text = "-".join(parts) or "default"
    return "".join(c if c.isalnum() or c in "_.-" else "_" for c in text)


def outcome_of(checked: Checked, facts: Sequence[StaticFacts]) -> evidence.Outcome:
    """What a record says that came of a problem."""
    correctness = correctness_of(checked)
    if checked.wrong:
        return evidence.Failed(error=checked.wrong, correctness=correctness)
    for one in facts:
        if one.error is not None:
            said = f"does not compile for {one.arch}: {one.error}"
            return evidence.Failed(error=said, stage=one.kernel, correctness=correctness)
    return Passed(correctness=correctness, stages=stages_of(checked, facts))


def stages_of(checked: Checked, facts: Sequence[StaticFacts]) -> list[evidence.Stage]:
    """The kernels as a record's stages; of plain torch the call as one."""
    made = [
        evidence.Stage(
            name=name, kernel=running.short(one.kernel), tiling={}, grid=list(one.grid),
            static=facts[i] if i < len(facts) else None,
        )
        for i, (name, one) in enumerate(named(checked.trace))
    ]  # fmt: skip
    return made or [evidence.Stage(name="launch", kernel="launch", tiling={}, grid=[])]


def named(trace: Trace) -> list[tuple[str, Launched]]:
    """Kernels of a trace by the names of their stages: a second one of a name has a number."""
    seen: dict[str, int] = {}
    found = []
    for one in trace.launches:
        name = running.short(one.kernel)
        seen[name] = seen.get(name, 0) + 1
        found.append((name if seen[name] == 1 else f"{name}_{seen[name]}", one))
    return found


def correctness_of(checked: Checked) -> evidence.Correctness:
    """The comparison as a record keeps it."""
    worst, trace = checked.error, checked.trace
    return evidence.Correctness(
        status="failed" if checked.wrong else "passed",
        against="its own reference on the CPU",
        tolerance=max(e.allowed.whole for e in checked.errors),
        cases=[
            evidence.CheckedCase(
                problem=dict(checked.problem),
                max_relative_error=float(f"{worst:.1e}") if math.isfinite(worst) else None,
                mma_flops=trace.mma_flops, bytes_loaded=trace.loaded, bytes_stored=trace.stored,
            )
        ],
        message=checked.wrong or None,
    )  # fmt: skip


def work(checked: Checked) -> costs.Given:
    """The work of a checked problem, for all that is worked out from its records."""
    stages = stages_of(checked, ())
    only = {stages[0].name: checked.cost} if len(stages) == 1 else {}
    if only:
        return costs.Given(only, checked.cost, checked.rate)
    parts = zip(stages, checked.trace.launches, strict=True)
    # What ran in a stage may be padded: its share of the work, and not the work itself.
    ran = max(1, sum(one.flops for one in checked.trace.launches))
    own = {s.name: Cost(checked.cost.flops * one.flops // ran, 0) for s, one in parts}
    first = stages[0].name
    rest = checked.cost.flops - sum(cost.flops for cost in own.values())
    own[first] = Cost(own[first].flops + rest, checked.cost.bytes)
    return costs.Given(own, checked.cost, checked.rate)


def write(made: Sequence[Record]) -> list[Path]:
    """Keep records; returns their files."""
    return [evidence.write(record, results())[0] for record in made]


def require_records(path: Path) -> list[Record]:
    """Records of a file.

    Raises:
        ToolchainError: There is none; says what to run.
    """
    found = records_of(path)
    if not found:
        raise ToolchainError(f"{path} has no record as it is; run nox -s profile -- {path}")
    return found
