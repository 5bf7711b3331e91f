"""Automatic search of a campaign: compiles, ranks and times tilings, hints and versions.

It uses no language model. Every candidate is compiled first. What spills or leaves the fast path of
the tensor cores is pruned, the rest is ordered by its static facts, and where the campaign's GPU
is, the first ones are timed in one run with the default tilings. Stages are tuned together where
their joint validator asks for it; else each alone, and the best of each together at the end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from mla_var3 import devices, inputs, languages
from mla_var3.campaign import cases, surfaces
from mla_var3.campaign.cases import Case, Outcome, Sources
from mla_var3.campaign.sweepspec import autotuned
from mla_var3.campaign.workspace import Workspace
from mla_var3.errors import HyperMlaError, InputError, UsageError
from mla_var3.evidence import Scalar
from mla_var3.languages import CompileJob, ranking
from mla_var3.languages.stage_facts import compile_jobs
from mla_var3.paths import write_atomic
from mla_var3.runtime import Tiling, autotune, registry
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.registry import Version

TRIALS, REPORT, DATA = "trials", "auto.md", "auto.json"
Say = Callable[[str], None]
Fields = Mapping[str, Mapping[str, Scalar]]


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


@dataclass(frozen=True)
class Trial:
    """A candidate.

    Attributes:
        compiled: What its compile gave.
        score: By static facts; None where they prune it.
        timed: What its timing gave; None where it was not timed.
    """

    compiled: Outcome
    score: float | None
    timed: Outcome | None = None

    @property
    def name(self) -> str:
        """Version and tilings."""
        return f"{self.compiled.case.version} {surfaces.label(self.compiled)}"

    @property
    def is_default(self) -> bool:
        """Whether it is a version as it comes."""
        return not self.compiled.case.tilings

    @property
    def us(self) -> float | None:
        """Its time."""
        return self.timed.median_us if self.timed is not None else None


@dataclass(frozen=True)
class Regret:
    """What pruning and ordering by static facts cost and saved, where all candidates were timed.

    Attributes:
        loss: By which share the best of those that would have been timed is slower than the best.
        saving: Which share of the timing's wall time the others took.
        kept: How many would have been timed.
        all_: How many were.
    """

    loss: float
    saving: float
    kept: int
    all_: int

    def __str__(self) -> str:
        return (
            f"of {self.all_} timed candidates static facts keep {self.kept}: the best of them is "
            f"{self.loss:.1%} slower than the best of all, for {1 - self.saving:.0%} of the time"
        )


def regret(trials: Sequence[Trial], top: int) -> Regret | None:
    """What static facts cost and saved; None where the pruned ones were not timed.

    Args:
        trials: All trials of a run.
        top: How many of each version would have been timed beside its default.
    """
    timed = [trial for trial in trials if trial.us is not None]
    pruned = [trial for trial in timed if trial.score is None]
    kept = [trial for trial in chosen(trials, top) if trial.us is not None]
    could = [trial for trial in trials if trial.score is None and trial.compiled.record]
    if not kept or (could and not pruned):
        return None
    best, mine = (min(t.us for t in each if t.us is not None) for each in (timed, kept))
    spent = [sum(t.timed.seconds for t in each if t.timed) for each in (timed, kept)]
    return Regret(mine / best - 1, 1 - spent[1] / spent[0] if spent[0] else 0.0,
                  len(kept), len(timed))  # fmt: skip


def chosen(trials: Sequence[Trial], top: int) -> list[Trial]:
    """What is timed: of each version its default, then the best by static facts.

    Where stages are tuned alone they take turns, since their scores do not compare: of 18 trials of
    flash_mla_fp8 the best by score were all of its merge, and the tiling that made it 1.26 times
    faster was the only one of the other stage.
    """
    found = []
    for _, group in itertools.groupby(trials, key=lambda trial: trial.compiled.case.version):
        mine = list(group)
        stages: dict[tuple[str, ...], list[Trial]] = {}
        for trial in sorted(mine, key=lambda t: -(t.score or 0.0)):
            if trial.score is not None and not trial.is_default:
                stages.setdefault(tuple(trial.compiled.case.tilings), []).append(trial)
        alone = (ranking.ordered(one, lambda t: t.score or 0.0, _tile_size)
                 for one in stages.values())  # fmt: skip
        turns = itertools.zip_longest(*alone)
        ranked = [trial for turn in turns for trial in turn if trial is not None]
        found += [*(t for t in mine if t.is_default and t.compiled.record), *ranked[:top]]
    return found


def _tile_size(trial: Trial) -> int:
    return sum(ranking.tile_size(fields) for fields in trial.compiled.case.tilings.values())


# -- candidates -----------------------------------------------------------------------------------


def candidates(plan: KernelPlan, most: int) -> list[Fields]:
    """Tilings of a version worth a compile, the default ones first, evenly spread over its lists.

    Args:
        plan: The version's plan of the problem.
        most: How many at most.
    """
    found: list[Fields] = [*(_joint(plan) if is_joint(plan) else autotuned(plan))]
    found = [each for each in found if not each or not _is_default(plan, each)]
    if len(found) > most:
        found = [found[i * len(found) // most] for i in range(most)]
    return found if {} in found else [{}, *found[: most - 1]]


def _is_default(plan: KernelPlan, fields: Fields) -> bool:
    return all(plan.default_tiling(s).values() == dict(values) for s, values in fields.items())


def _joint(plan: KernelPlan) -> Iterator[Fields]:
    """Every choice of one tiling per stage; the first is the default."""
    yield {}
    configs = plan._autotune_configs()
    lists = [[(stage, one.values()) for one in tilings] for stage, tilings in configs.items()]
    yield from (dict(one) for one in itertools.product(*filter(None, lists)))


def is_joint(plan: KernelPlan) -> bool:
    """Whether stages that run at once have to fit each other."""
    return any(cases.joint_validators(plan.plan(*plan.prepare_inputs("meta"))))


def versions_of(found: Workspace, asked: str) -> list[Version]:
    """Versions to walk: the current one, those that are named, or ``all`` that did not fail.

    Raises:
        UsageError: The campaign is of a file, or its baseline did not pass.
        UnknownNameError: There is no such version.
    """
    design = found.settings.design
    if design is None:
        raise UsageError(
            f"campaign {found.settings.name} is of a file, which declares no tilings; auto walks "
            "those of a design: campaign init NAME D V"
        )
    if not asked:
        from mla_var3.campaign import stages

        base = stages.current(found)
        return [registry.find(design, base.version if base else found.settings.start)]
    if asked != "all":
        return [registry.find(design, name) for name in asked.split(",")]
    failed = {entry.version for entry in found.memory.entries() if entry.failed}
    return [v for v in registry.select(design) if v.version not in failed]


# -- the walk -------------------------------------------------------------------------------------


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


def fastest(trials: Iterable[Trial]) -> Trial | None:
    """The fastest trial; None where nothing was timed."""
    timed = [trial for trial in trials if trial.us is not None]
    return min(timed, key=lambda trial: trial.us or math.inf, default=None)


def keep_tuned(found: Workspace, best: Trial) -> Path | None:
    """Keep the fastest tilings for the next profile; None where they are the default ones."""
    case = best.compiled.case
    if not case.tilings:
        return None
    plan = cases.plan_of(case)
    tilings: dict[str, Tiling] = dict(plan.tilings)
    return autotune.save(case.found, plan, found.settings.device, tilings)


# -- what is said ---------------------------------------------------------------------------------


def report(found: Workspace, trials: Sequence[Trial], top: int) -> str:
    """All trials as a page, the fastest first, then by static facts."""
    best, cost = fastest(trials), regret(trials, top)
    lines = [f"# Trials of campaign {found.settings.name}", ""]
    if best is not None:
        defaults = [t for t in trials if t.is_default and t.us is not None]
        lines += [
            f"Fastest: {best.name}, {best.us:,.2f} us. Defaults in the same run: "
            + (", ".join(f"{t.name} {t.us:,.2f} us" for t in defaults) or "none")
            + ".",
            "",
        ]
    else:
        first = next(iter(chosen([t for t in trials if not t.is_default], 1)), None)
        words = f"Static facts put {first.name} first" if first else "Static facts keep none"
        lines += [f"Nothing was timed: this is not {found.settings.device}. {words}.", ""]
    if cost is not None:
        lines += [f"Pruning: {cost}.", ""]
    lines += ["| candidate | static score | time | |", "|---|---|---|---|"]
    order = sorted(trials, key=lambda t: (t.us or math.inf, -(t.score or 0.0)))
    return "\n".join([*lines, *map(_row, order)]) + "\n"


def _row(trial: Trial) -> str:
    score = "pruned" if trial.score is None else f"{trial.score:,.3g}"
    time_ = "" if trial.us is None else f"{trial.us:,.2f} us"
    said = trial.timed if trial.timed is not None and trial.us is None else trial.compiled
    text = str(said).replace("|", "/")
    return f"| {trial.name} | {score} | {time_} | {text} |"


def data(trials: Sequence[Trial], top: int) -> str:
    """The same for programs."""
    best, cost = fastest(trials), regret(trials, top)
    rows = [
        {"version": t.compiled.case.version, "tilings": t.compiled.case.tilings,
         "score": t.score, "median_us": t.us, "reason": t.compiled.reason}
        for t in trials
    ]  # fmt: skip
    content = {
        "best": best.name if best else None,
        "regret": dataclasses.asdict(cost) if cost else None,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "trials": rows,
    }
    return json.dumps(content, indent=1) + "\n"
