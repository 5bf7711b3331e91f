"""What a kernel of ours and a library's must share to be compared, whatever their pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from generators.model import problems
from generators.model.run import Run
from generators.model.site import Site
from generators.write import figures
from mla_var3.knowledge.evidence import Link
from mla_var3.workloads import workloads
from mla_var3.workloads.mla import WORKLOAD

#: Libraries by their design, the one that all are compared with first.
PEERS: Mapping[str, str] = WORKLOAD.peers


def unpaged(run: Run) -> tuple[object, ...]:
    """The problem of a run but for its pages."""
    axes = problems.problem_of(run.record).axes
    return tuple((name, value) for name, value in axes if name != "page")


def alike(site: Site) -> Callable[[Run], bool]:
    """Whether a run did all that the libraries' kernels do."""
    lighter, covers = workloads()[WORKLOAD.key].lighter, _covers(site)
    return lambda run: not lighter(run.record.problem) and _does(site, run, covers)


def _covers(site: Site) -> str | None:
    """What the libraries' kernels do, attention up to the latent output; None without one."""
    peer = site.designs().get(next(iter(PEERS)))
    return peer[0].plan_class().covers if peer else None


def _does(site: Site, run: Run, covers: str | None) -> bool:
    """Whether a run did that."""
    version = site.version_of(run)
    return version is not None and version.plan_class().covers == covers


def time_of(run: Run, link: Link) -> str:
    """The time of a run, which leads to its record."""
    return figures.record_link(run, link, figures.duration(run.total))
