"""Which versions compile for an arch, by the records of their compiles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from generators.model import compare
from generators.model.run import Run
from generators.model.site import Site
from mla_var3.evidence.model import STATIC, Failed
from mla_var3.runtime.registry import Version


@dataclass
class Fit:
    """Versions of a design by what the compiler made of them for an arch.

    Attributes:
        clean: Compiled, and no record spills.
        spilling: Compiled, and some record spills.
        refused: Not compiled, with the record that says why.
        failed: Ended otherwise, as in a check on a CPU, with the record of it.
        unknown: Without a record.
    """

    clean: list[Version] = field(default_factory=list)
    spilling: list[Version] = field(default_factory=list)
    refused: list[tuple[Version, Run]] = field(default_factory=list)
    failed: list[tuple[Version, Run]] = field(default_factory=list)
    unknown: list[Version] = field(default_factory=list)

    @property
    def compiled(self) -> list[Version]:
        """The versions that compile."""
        return [*self.clean, *self.spilling]


def of(site: Site, versions: Iterable[Version], sm: str) -> Fit:
    """What records say of versions on an arch; the newest of each problem counts."""
    fit = Fit()
    for version in versions:
        runs = [run for run in site.runs_of(version) if run.record.target == f"{STATIC}{sm}"]
        passed = [run for run in runs if run.outcome]
        if passed:
            spills = any(compare.worst(run, "spill_instructions") for run in passed)
            (fit.spilling if spills else fit.clean).append(version)
        elif runs:
            (fit.refused if _refused(runs[-1]) else fit.failed).append((version, runs[-1]))
        else:
            fit.unknown.append(version)
    return fit


def _refused(run: Run) -> bool:
    """Whether a version was not compiled, rather than compiled and found wrong."""
    match run.record.outcome:
        case Failed(error=error):
            return error.startswith("does not compile")
    return True


def archs(site: Site, versions: Sequence[Version]) -> list[str]:
    """The archs that some version of a design compiles for, in order."""
    targets = {run.record.target for version in versions for run in site.runs_of(version)}
    sms = [target.removeprefix(STATIC) for target in targets if target.startswith(STATIC)]
    return sorted(
        (sm for sm in sms if of(site, versions, sm).compiled),
        key=lambda sm: (int(re.sub(r"\D", "", sm)), sm),
    )


def spans(versions: Sequence[Version], chosen: Sequence[Version]) -> str:
    """Versions in words: ``v0 to v2, v14``.

    Args:
        versions: All of the design, in order.
        chosen: Those to name, in order.
    """
    if not chosen:
        return ""
    places = [versions.index(version) for version in chosen]
    cuts = [i for i, (a, b) in enumerate(pairwise(places), 1) if b != a + 1]
    groups = [chosen[a:b] for a, b in pairwise([0, *cuts, len(chosen)])]
    return ", ".join(_span([version.version for version in group]) for group in groups)


def _span(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) < 3 else f"{names[0]} to {names[-1]}"
