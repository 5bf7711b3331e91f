"""What a kernel of ours and a library's must share to be compared, whatever their pages."""

from __future__ import annotations

from collections.abc import Mapping

from generators.model import problems
from generators.model.run import Run
from generators.write import figures
from mla_var3.evidence import Scalar
from mla_var3.knowledge.evidence import Link
from mla_var3.workloads.mla import WORKLOAD

#: Libraries by their design, the one that all are compared with first.
PEERS: Mapping[str, str] = WORKLOAD.peers
#: The first one's design and its name.
PEER, PEER_NAME = next(iter(PEERS.items()))
#: Tokens of a page of a server, which dense decode is compared with.
PAGE = 64


def unpaged(run: Run) -> tuple[tuple[str, Scalar], ...]:
    """The problem of a run but for its pages."""
    axes = problems.problem_of(run.record).axes
    return tuple((name, value) for name, value in axes if name != "page")


def time_of(run: Run, link: Link) -> str:
    """The time of a run, which leads to its record."""
    return figures.record_link(run, link, figures.duration(run.total))
