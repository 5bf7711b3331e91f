"""Scores the advice on the court's test kernels: how often it ranks the right page first.

Each kernel is shown under neutral names, with its work given, so that no rule can know it by name.
The score stands beside those of the best constant answer and of chance.
"""

from __future__ import annotations

import datetime
import functools
import itertools
import math
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mla_var3.errors import KnowledgeError
from mla_var3.evidence import CheckedCase, Correctness, KernelIdentity, Passed, Record, Stage
from mla_var3.evidence.compare import Comparison
from mla_var3.knowledge.backtest import GAINED, Backtest, Case
from mla_var3.knowledge.court import observing, packages
from mla_var3.knowledge.court.cases import Kernel, Past, Seeded, Stranger
from mla_var3.knowledge.court.observing import Seen, SeenStage, Work
from mla_var3.knowledge.history import Gain, Transition, transition
from mla_var3.knowledge.matching import match
from mla_var3.knowledge.pages import Catalogue
from mla_var3.languages.cute.facts import CuteFacts, RegisterBudget
from mla_var3.paths import repo_root
from mla_var3.runtime import costs
from mla_var3.workloads import Cost

TOP = 3
Gains = Mapping[str, Sequence[Gain]]


@dataclass(frozen=True)
class Verdict:
    """The advice for one case.

    Attributes:
        case: Name of the case.
        design: What is held out together.
        remedies: Ids of the pages any of which is right; none where nothing is to be found.
        advised: Ids of the pages advised, best first; what stands beside one shares its place.
    """

    case: str
    design: str
    remedies: tuple[str, ...]
    advised: tuple[tuple[str, ...], ...]

    @property
    def place(self) -> int | None:
        """Place of the first right page, from 1; for a good kernel 1 is silence."""
        if not self.remedies:
            return None if self.advised else 1
        wanted = set(self.remedies)
        places = (i for i, ids in enumerate(self.advised, 1) if wanted & set(ids))
        return next(places, None)

    def __str__(self) -> str:
        said = ", ".join(ids[0] for ids in self.advised[:TOP]) or "nothing found"
        where = "-" if self.place is None else self.place
        return f"{where:>2}  {self.case}: wants {' or '.join(self.remedies) or 'silence'}; {said}"


@dataclass(frozen=True)
class Score:
    """How often the right page came first, and among the first three.

    Attributes:
        cases: How many there are.
        first: Share whose first page is right.
        top: Share with a right page among the first three.
        constant_first: Share for the best page that is always said.
        constant_top: Share for the best three that are always said.
        random_first: Share for a page drawn among those that are ever right.
    """

    cases: int
    first: float
    top: float
    constant_first: float
    constant_top: float
    random_first: float

    def __str__(self) -> str:
        return (
            f"{self.cases} cases: first {self.first:.0%}, top {TOP} {self.top:.0%}; "
            f"the best constant answer {self.constant_first:.0%} and {self.constant_top:.0%}, "
            f"by chance {self.random_first:.0%}"
        )


def score(verdicts: Sequence[Verdict]) -> Score:
    """The score of some verdicts, and of answers that look at nothing.

    An answer that is always the same is either silence or pages: nobody says both.
    """
    count = len(verdicts) or 1
    answers = [set(v.remedies) or {""} for v in verdicts]
    known = sorted(set().union(*answers)) if answers else []
    one = max((_named(answers, (page,)) for page in known), default=0)
    silence, three = _named(answers, ("",)), _named(answers, _best(answers))
    places = [v.place for v in verdicts]
    return Score(
        cases=len(verdicts),
        first=sum(place == 1 for place in places) / count,
        top=sum(place is not None and place <= TOP for place in places) / count,
        constant_first=one / count,
        constant_top=max(silence, three) / count,
        random_first=math.fsum(len(a) / len(known) for a in answers) / count if known else 0.0,
    )


def _named(answers: Sequence[set[str]], pages: Iterable[str]) -> int:
    return sum(bool(answer.intersection(pages)) for answer in answers)


def _best(answers: Sequence[set[str]]) -> tuple[str, ...]:
    """The three pages that most answers name one of."""
    named = Counter(page for answer in answers for page in answer - {""})
    trios = itertools.combinations(sorted(named), min(TOP, len(named)))
    return max(trios, key=lambda trio: _named(answers, trio), default=())


def record_of(seen: Seen, name: Callable[[str], str] = lambda text: text) -> Record:
    """What was observed as the record of a static run, under neutral names."""
    stages = [
        Stage.model_construct(name=name(stage.name), kernel="kernel", tiling=stage.tiling,
                              grid=list(stage.grid), static=stage.static)
        for stage in seen.stages
    ]  # fmt: skip
    checked = None
    if seen.counted is not None:
        case = CheckedCase(
            problem=seen.counted.problem, max_relative_error=0.0,
            bytes_stored=seen.counted.stored or 0,
            mma_flops=seen.counted.flops, bytes_loaded=seen.counted.loaded,
            bank_conflicts=seen.counted.conflicts, sectors=seen.counted.sectors,
            least_sectors=seen.counted.least_sectors,
        )  # fmt: skip
        checked = Correctness(status="passed", against="torch", tolerance=1.0, cases=[case])
    identity = KernelIdentity(
        language=seen.language, package="neutral", layer=seen.layer, design=name("design"),
        version="v0", sources={"kernels/neutral.py": "0" * 40},
    )  # fmt: skip
    return Record.model_construct(
        kernel=identity, problem=dict(seen.problem), slug="neutral", mode="static",
        target=f"static/{seen.stages[0].static.arch}", device=None, toolchain={},
        outcome=Passed(correctness=checked, stages=stages), run="0" * 12, git=None,
        time=datetime.datetime.min,
    )  # fmt: skip


def advised(
    seen: Seen, catalogue: Catalogue, gains: Gains, name: Callable[[str], str] = lambda text: text
) -> tuple[tuple[str, ...], ...]:
    """Ids of the pages for what was observed, best first, each with those that say the same."""
    case = None if seen.counted is None else _cost(seen.counted.least)
    stages = {name(stage.name): _cost(stage.work) for stage in seen.stages}
    with costs.given(costs.Given(stages, case)):
        found = match(record_of(seen, name), catalogue, gains)
    return tuple(item.ids for item in found)


def seen_of(case: Stranger, root: Path | None = None) -> Seen:
    """A stranger as the committed compile of it and the expert's launch state it.

    Raises:
        KnowledgeError: The example or package was not compiled, or has no such kernel.
    """
    if case.launch is not None:
        found = _packaged(root).get(case.id)
        if found is None:
            raise KnowledgeError(f"{case.id}: {packages.TABLE} has no compile of {case.package}")
        return found
    path = (root or repo_root()) / "knowledge/examples" / f"{case.example}.toml"
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise KnowledgeError(f"{case.id}: there is no example {case.example}") from error
    kernels = content.get("compiled", {}).get("kernels", [])
    stated = next((k for k in kernels if k["kernel"].startswith(case.kernel)), None)
    if stated is None:
        raise KnowledgeError(f"{case.id}: {case.example} states no kernel {case.kernel!r}")
    known = CuteFacts.model_fields.keys() - {"register_budgets"}
    budgets = [text.split() for text in stated.get("register_budgets", ())]
    facts = CuteFacts(
        arch=content["arch"], warps_per_block=-(-stated["threads_per_block"] // 32),
        register_budgets=[RegisterBudget(direction=way, registers=n) for way, n in budgets],
        **{name: value for name, value in stated.items() if name in known},
    )  # fmt: skip
    stage = SeenStage(
        name="kernel", kernel="kernel", tiling={}, grid=case.grid, static=facts,
        work=Work(flops=case.flops, bytes=case.bytes),
    )  # fmt: skip
    return Seen(language=facts.language, layer=case.layer, problem=case.problem, stages=(stage,))


@functools.cache
def _packaged(root: Path | None) -> Mapping[str, Seen]:
    return packages.load(root)


def try_strangers(
    cases: Iterable[Stranger], catalogue: Catalogue, gains: Gains, root: Path | None = None
) -> list[Verdict]:
    """The advice for each kernel of others."""
    return [
        Verdict(case.id, case.origin, case.remedies, advised(seen_of(case, root), catalogue, gains))
        for case in cases
    ]


def promises(replayed: Backtest) -> list[float]:
    """What advice promised over what was measured, for each step whose page it names; ascending."""
    cases = (case for case in replayed.cases if case.promised is not None)
    return sorted(case.promised / case.step.gain for case in cases if case.promised is not None)


def try_history(replayed: Backtest) -> list[Verdict]:
    """The advice for each version that a later one beat, once per transition.

    Of the problems of a transition the one of the median gain speaks.
    """
    steps: dict[Transition, list[Case]] = defaultdict(list)
    for case in replayed.cases:
        if case.applied:
            steps[transition(case.step)].append(case)
    best = {
        key: sorted(cases, key=lambda case: case.step.gain)[len(cases) // 2]
        for key, cases in steps.items()
    }
    return [
        Verdict(f"{design} {version} ({language})", design, case.applied, case.beside)
        for (language, _, design, version), case in sorted(best.items())
    ]  # fmt: skip


def try_past(
    cases: Iterable[Past], catalogue: Catalogue, gains: Gains, *, held_out: bool = False
) -> list[Verdict]:
    """The advice for each version that a version of another design beat.

    Args:
        cases: The transitions.
        catalogue: The pages.
        gains: What pages brought.
        held_out: Forget what the beaten version's design taught.

    Raises:
        KnowledgeError: The two were not timed in one run, or the gain is too small to speak of.
    """
    found = []
    for case in cases:
        before, after = catalogue.pair(case.before, case.after)
        if before.run != after.run or Comparison(before, after).gain < GAINED:
            raise KnowledgeError(f"{case.id}: no gain of {GAINED}x within one run")
        known = without(gains, before.kernel.design) if held_out else gains
        said = tuple(item.ids for item in match(before, catalogue, known))
        found.append(Verdict(case.id, before.kernel.design, case.remedies, said))
    return found


def _cost(work: Work) -> Cost:
    return Cost(work.flops, work.bytes)


def without(gains: Gains, design: str) -> dict[str, list[Gain]]:
    """Measured gains but for those of one design."""
    plain = design.partition("@")[0]
    return {
        page: [gain for gain in found if gain.transition[2] != plain]
        for page, found in gains.items()
    }


def try_seeded(
    cases: Iterable[Seeded],
    table: Mapping[str, Seen],
    catalogue: Catalogue,
    gains: Gains,
    *,
    held_out: bool = False,
) -> list[Verdict]:
    """The advice for each slow kernel.

    Args:
        cases: The slow-downs.
        table: What was observed; a case that it lacks is left out.
        catalogue: The pages.
        gains: What pages brought.
        held_out: Forget what the case's own design taught.
    """
    found = []
    for case in cases:
        seen = table.get(observing.key(case.slow))
        if seen is not None:
            known = without(gains, case.good.design) if held_out else gains
            said = advised(seen, catalogue, known)
            found.append(Verdict(case.id, case.good.design, case.remedies, said))
    return found


def try_good(
    kernels: Iterable[Kernel], table: Mapping[str, Seen], catalogue: Catalogue, gains: Gains
) -> list[Verdict]:
    """The advice for each good kernel, which should be silence."""
    return [
        Verdict(f"{k.design} {k.version} {k.problem or ''}", k.design, (),
                advised(table[observing.key(k)], catalogue, gains))
        for k in kernels
        if observing.key(k) in table
    ]  # fmt: skip
