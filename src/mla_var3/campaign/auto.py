"""Automatic search of a campaign: compiles, ranks and times tilings, hints and versions.

It uses no language model. Every candidate is compiled first. What spills or leaves the fast path of
the tensor cores is pruned, the rest is ordered by its static facts, and where the campaign's GPU
is, the first ones are timed in one run with the default tilings. Stages are tuned together where
their joint validator asks for it; else each alone, and the best of each together at the end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from mla_var3 import devices, inputs, languages
from mla_var3.campaign import cases, surfaces
from mla_var3.campaign.candidates import Fields, candidates
from mla_var3.campaign.cases import Case, Outcome, Sources
from mla_var3.campaign.trials import Trial, chosen, fastest
from mla_var3.campaign.workspace import Workspace
from mla_var3.errors import HyperMlaError, InputError
from mla_var3.languages import CompileJob
from mla_var3.languages.stage_facts import compile_jobs
from mla_var3.paths import write_atomic
from mla_var3.runtime import Tiling, autotune
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.registry import Version

TRIALS = "trials"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Limits:
    """How far to walk.

    Attributes:
        budget_s: Seconds for timing.
        top: Candidates of each version to time.
        most: Candidates of each version to compile.
        everything: Whether the pruned ones are timed too, which tells what pruning costs.
    """

    budget_s: float = 480.0
    top: int = 6
    most: int = 64
    everything: bool = False


class Walk:
    """One walk over a campaign's candidates.

    Args:
        found: The campaign.
        limits: How far to walk.
        say: Told what happens.
    """

    def __init__(self, found: Workspace, limits: Limits, say: Say) -> None:
        self.found, self.limits, self.say = found, limits, say
        self.device = devices.find(found.settings.device)
        self.sources, self.spent = Sources({}), 0.0

    def run(self, versions: Iterable[Version]) -> list[Trial]:
        """Compile all candidates, time the best where the campaign's GPU is; returns all trials."""
        trials: list[Trial] = []
        for version in versions:
            plan = self._plan(version)
            trials += self._compiled(version, candidates(plan, self.limits.most))
        if not is_here(self.device.key):
            return trials
        asked = trials if self.limits.everything else chosen(trials, self.limits.top)
        trials = self._timed(trials, [t for t in asked if t.compiled.record is not None])
        more = self._together(trials)
        return [*trials, *self._timed(more, more)] if more else trials

    def _plan(self, version: Version) -> KernelPlan:
        plan = version.plan_of(self.found.settings.problem)
        plan = plan.resolve(self.device.machine(plan.dtype))
        plan.validate()
        return plan

    def _compiled(self, version: Version, found: Iterable[Fields]) -> list[Trial]:
        language = languages.find(version.language)
        made = []
        asked = [self._case(version, fields) for fields in found]
        self._compile_at_once([case for case in asked if self._kept(case) is None])
        for case in asked:
            outcome = self._kept(case) or self._keep(cases.run(case))
            if outcome.status != "passed":
                self.say(f"pruned {version.version} {surfaces.label(outcome)}: {outcome.reason}")
            made.append(Trial(outcome, surfaces.worth(outcome)))
        kept = sum(trial.score is not None for trial in made)
        self.say(f"{version.key}: {len(made)} candidates compiled by {language.key}, {kept} kept")
        return made

    def _case(self, version: Version, fields: Fields) -> Case:
        return Case(
            design=version.qualified, version=version.version, mode="static", check=False,
            problem=self.found.settings.problem, target=self.device.compile_arch,
            device=self.device.key,
            tilings={stage: dict(values) for stage, values in fields.items()},
        )  # fmt: skip

    def _compile_at_once(self, asked: Iterable[Case]) -> None:
        """Fill the compile cache by all cores; what a case comes to is told when it is run."""
        jobs = []
        for case in asked:
            with contextlib.suppress(HyperMlaError):
                plan = cases.plan_of(case)
                stages = plan.plan(*plan.prepare_inputs("meta")).stages()
                jobs += [CompileJob(kernel, case.target) for _, kernel in stages]
        if jobs:
            self.say(f"compiling {len(jobs)} kernels")
        with contextlib.suppress(HyperMlaError):
            compile_jobs(jobs)

    def _timed(self, trials: Sequence[Trial], asked: Sequence[Trial]) -> list[Trial]:
        """Trials with the times of those that are asked for, within target and budget."""
        target, done = self.found.settings.target_us, {}
        for trial in asked:
            if self.spent > self.limits.budget_s:
                self.say(f"the budget of {self.limits.budget_s:g} s is spent")
                break
            case = trial.compiled.case.model_copy(
                update={"mode": "event", "target": self.device.key, "device": None, "check": True}
            )
            outcome = self._keep(cases.run(case))
            self.spent += outcome.seconds
            done[id(trial)] = outcome
            self.say(f"{trial.name}: {outcome}")
            reached = target and outcome.median_us and outcome.median_us <= target
            if reached and not self.limits.everything:
                self.say(f"the target of {target:,.2f} us is reached")
                break
        return [dataclasses.replace(t, timed=done.get(id(t), t.timed)) for t in trials]

    def _together(self, trials: Sequence[Trial]) -> list[Trial]:
        """The best tiling of each stage alone, together, where more than one was better."""
        best = fastest(trials)
        if best is None or self.limits.everything:
            return []
        version = best.compiled.case.version
        mine = [t for t in trials if t.compiled.case.version == version and t.us is not None]
        default = next((t for t in mine if t.is_default), None)
        found: dict[str, Trial] = {}
        for trial in sorted(mine, key=lambda t: t.us or math.inf):
            stages = list(trial.compiled.case.tilings)
            better = default is None or (trial.us or math.inf) < (default.us or math.inf)
            if len(stages) == 1 and better:
                found.setdefault(stages[0], trial)
        if len(found) < 2:
            return []
        merged = {stage: dict(t.compiled.case.tilings[stage]) for stage, t in found.items()}
        return self._compiled(best.compiled.case.found, [merged])

    # -- what is kept -----------------------------------------------------------------------------

    def _path(self, case: Case, run: str = "") -> Path:
        name = self.sources.key(case) + (f"-{run}" if run else "")
        return self.found.root / TRIALS / f"{name}.json"

    def _kept(self, case: Case) -> Outcome | None:
        """What a compile came to before, of the same sources.

        Raises:
            InputError: The file is not sound; names the field.
        """
        path = self._path(case)
        if not path.is_file():
            return None
        try:
            return Outcome.model_validate(inputs.read_json(path))
        except ValidationError as error:
            raise InputError(
                f"{TRIALS}/{path.name}:", inputs.first_fault(error, "trial")
            ) from error

    def _keep(self, outcome: Outcome) -> Outcome:
        """Keep a trial; of timed ones each run's, since their times are of that run alone."""
        run = outcome.record.run if outcome.record and outcome.case.mode == "event" else ""
        write_atomic(self._path(outcome.case, run), outcome.model_dump_json(indent=1) + "\n")
        return outcome


def is_here(device: str) -> bool:
    """Whether the GPU here is the campaign's."""
    import torch

    from mla_var3.profiling import recording

    if not torch.cuda.is_available():
        return False
    try:
        return recording.gpu()[0].key == device
    except HyperMlaError:
        return False  # A GPU that no file describes.


def keep_tuned(found: Workspace, best: Trial) -> Path | None:
    """Keep the fastest tilings for the next profile; None where they are the default ones."""
    case = best.compiled.case
    if not case.tilings:
        return None
    plan = cases.plan_of(case)
    tilings: dict[str, Tiling] = dict(plan.tilings)
    return autotune.save(case.found, plan, found.settings.device, tilings)
