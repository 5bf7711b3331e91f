"""Says how a library was run beside our kernels: which version, clock, protocol, and command."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from generators.model.run import Run
from generators.model.site import Site
from generators.write.text import cell
from mla_var3 import inputs
from mla_var3.runtime.library_kernel import LibraryPlan, Requirement

#: The pinned source of the library that all are compared with.
PINNED = "third_party/flashmla.toml"
#: A version whose last part is a commit: ``1.0.0+9241ae3``.
_COMMIT = re.compile(r"\+[0-9a-f]{7,40}$")


def section(site: Site, pairs: Sequence[tuple[Run, Run]], name: str) -> str:
    """A short list, from the library's records; empty without any.

    Args:
        site: All inputs.
        pairs: Ours and the library's, per problem.
        name: What the library is called.
    """
    theirs = [peer for _, peer in pairs]
    version = site.version_of(theirs[0]) if theirs else None
    plan = version.plan_class() if version else None
    needs = plan.needs if plan is not None and issubclass(plan, LibraryPlan) else None
    if version is None or needs is None:
        return ""
    lines = [
        f"**Which {name}:** {_versions(theirs, needs)}.",
        "**Cache:** pages of 64 tokens. They lie in a random order where a problem says page=64, "
        "and in order in the table where ours reads a contiguous cache.",
        "**Clock:** not locked. Each record states the SM clock right after its run: "
        f"{_clock(theirs)}.",
        f"**Protocol:** {_protocol(theirs)}.",
        f"**To repeat it** on such a GPU: `{install(site.root, needs)}`, then `nox -s bench -- "
        f"--peers --set=serving --designs=flash_mla@cute-dsl,{version.design_key.split('@')[0]}` "
        "for the problems with pages of servers, or with `--b=32 --s=1 --t=4096` in place of the "
        "set for one problem.",
    ]
    return f"## How {name} was run\n\n" + "\n".join(f"- {line}" for line in lines)


def version_of(run: Run, needs: Requirement) -> str | None:
    """Version of the library as a record states it; None where it states none."""
    named = needs.module.partition(".")[0]
    known = {key.replace("-", "_"): value for key, value in run.record.toolchain.items()}
    return known.get(named)


def _versions(theirs: Sequence[Run], needs: Requirement) -> str:
    """Each version with how many rows it stands behind, and when."""
    groups: dict[str | None, list[Run]] = {}
    for run in theirs:
        groups.setdefault(version_of(run, needs), []).append(run)
    return "; ".join(
        f"{_called(version)} in {len(runs)} row{'s' * (len(runs) > 1)} ({_days(runs)})"
        for version, runs in sorted(groups.items(), key=lambda item: -len(item[1]))
    )


def _called(version: str | None) -> str:
    if version is None:
        return "no version recorded"
    if _COMMIT.search(version):
        return f"`{cell(version)}`, whose last part is the commit,"
    return f"version `{cell(version)}`, commit not recorded,"


def _days(runs: Sequence[Run]) -> str:
    days = sorted({run.record.time.date().isoformat() for run in runs})
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


def _clock(theirs: Sequence[Run]) -> str:
    found = sorted(
        clock
        for run in theirs
        if (device := run.record.device) is not None and (clock := device.sm_clock_mhz) is not None
    )
    return f"{found[0]:,.0f} to {found[-1]:,.0f} MHz in these" if found else "none does here"


def _protocol(theirs: Sequence[Run]) -> str:
    """What was done alike, in words."""
    found = [outcome.protocol for run in theirs if (outcome := run.outcome) and outcome.protocol]
    said = ["medians"]
    if found and all(one.graph_replay for one in found):
        said.append("of CUDA graph replays")
    if found and all(one.l2_flush for one in found):
        said.append("with the L2 flushed before each")
    rounds = {one.rounds for one in found if one.rounds}
    turns = f", all versions of a run in turn ({min(rounds)} rounds or more)" if rounds else ""
    return " ".join(said) + turns


def install(root: Path, needs: Requirement) -> str:
    """How to install the library, at the commit that is pinned where one is."""
    if not (root / PINNED).is_file():
        return needs.install
    pinned = inputs.read_toml(root / PINNED)["peer"]
    return needs.install.replace(pinned["repository"], f"{pinned['repository']}@{pinned['commit']}")
