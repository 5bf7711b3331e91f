"""Says what a faster attention kernel brings a whole decode step, by attention's share of it."""

from __future__ import annotations

from generators.mla import decode, heads, memory
from generators.mla.same_work import time_of
from generators.model.site import Site
from generators.pages.kernels import run_version
from generators.write.text import cell, sections, table
from mla_var3.knowledge.evidence import Link

#: Attention's part of a step.
SHARES = (0.05, 0.10, 0.20, 0.30, 0.50)
#: What a kernel takes of the time before, with how people say it.
TIMES = {0.95: "5 % less time", 0.9: "10 % less time", 1 / 1.2: "1.2 times as fast",
         0.8: "20 % less time", 0.5: "twice as fast"}  # fmt: skip


def more(share: float, time: float) -> float:
    """Tokens per second that a step gains, as a part of those before.

    Args:
        share: Attention's part of the step before.
        time: What the new kernel takes of the old one's time.
    """
    return 1 / (1 - share * (1 - time)) - 1


def text(site: Site, link: Link) -> str:
    """A row per gain of the kernel, a column per share; then attention of a known step."""
    rows = [
        [said, *(f"{more(share, time):.1%}" for share in SHARES)] for time, said in TIMES.items()
    ]
    head = ["The kernel", *(f"{share:.0%} of the step" for share in SHARES)]
    return sections(table(head, rows, right=head[1:]), _step(site, link)).rstrip()


def _step(site: Site, link: Link) -> str:
    """Attention of all layers at the problem that most pages quote, of a record."""
    found = decode.best_known(site)
    if found is None:
        return ""
    mine, theirs = min((p for p in found[1] if decode.sizes(p)["h"] == 128), key=heads.from_usual)
    ours, other = (run.total.median_us * memory.LAYERS / 1e3 for run in (mine, theirs))
    saved = other - ours
    return (
        f"**From a record, without a server:** {memory.MODEL} has {memory.LAYERS} layers. At "
        f"{cell(', '.join(f'{k}={v}' for k, v in decode.sizes((mine, theirs)).items()))} FlashMLA "
        f"takes {time_of(theirs, link)} per layer and {run_version(site, mine, link)} "
        f"{time_of(mine, link)}: {other:.1f} and {ours:.1f} ms of a step. Divide by *your* time "
        f"between two tokens: in a step of {other * 5:.0f} ms attention is a fifth, and these "
        f"{saved:.2f} ms are {more(0.2, ours / other):.1%} more tokens per second."
    )
