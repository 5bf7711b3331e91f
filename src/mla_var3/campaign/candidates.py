"""Candidates of an automatic search: the versions to walk, the tilings of each worth a compile."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from mla_var3.campaign import cases
from mla_var3.campaign.sweepspec import autotuned
from mla_var3.campaign.workspace import Workspace
from mla_var3.errors import UsageError
from mla_var3.evidence import Scalar
from mla_var3.runtime import registry
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.registry import Version

Fields = Mapping[str, Mapping[str, Scalar]]


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
