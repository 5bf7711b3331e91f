"""Says how a prefix that all sequences share compares with reading it for each of them."""

from __future__ import annotations

from generators.mla import peers
from generators.mla.same_work import PEER, PEER_NAME, time_of
from generators.model.site import Site
from generators.pages.kernels import run_version
from generators.write.text import table
from mla_var3.evidence.compare import said
from mla_var3.knowledge.evidence import Link
from mla_var3.workloads import workloads
from mla_var3.workloads.mla import WORKLOAD


def text(site: Site, link: Link) -> str:
    """A row per problem that a run timed on both sides, fewest query tokens first."""
    lighter = workloads()[WORKLOAD.key].lighter
    rows = []
    for mine, theirs in peers.pairs_of(site, PEER, lambda run: lighter(run.record.problem)):
        sizes = mine.record.problem
        rows.append([
            f"{sizes['b']}", f"{sizes['h']}", f"{sizes['s']}",
            f"{sizes['shared']:,} of {sizes['t']:,}",
            f"{run_version(site, mine, link)} {time_of(mine, link)}", time_of(theirs, link),
            said(theirs.total.median_us, mine.total.median_us),
        ])  # fmt: skip
    if not rows:
        return f"No run timed a kernel for a shared prefix beside {PEER_NAME}."
    head = ["Sequences", "Heads", "Query tokens of each", "Tokens shared", "Prefix read once",
            PEER_NAME, "Ours is"]  # fmt: skip
    return table(head, rows)
