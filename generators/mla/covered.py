"""Says in a sentence with its record whether decode and prefill are covered."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from generators.mla import (
    balance,
    cards,
    choosing,
    counted,
    crossover,
    decode,
    design_choice,
    effort,
    elsewhere,
    exponentials,
    few_heads,
    gain,
    heads,
    least,
    lengths,
    memory,
    merging,
    models,
    peers,
    prefixes,
    prompts,
    reached,
    repeating,
    served,
    stages,
    turning,
    ultra,
)
from generators.mla.same_work import time_of
from generators.model import problems
from generators.model.site import Site
from generators.pages import record_facts
from generators.pages.kernels import run_version
from generators.write.text import cell, us
from mla_var3 import devices
from mla_var3.knowledge.evidence import Link
from mla_var3.workloads.mla import PREFILL_FROM, WORKLOAD, regimes

#: The page that says which kernel to take for a case.
CHOICE = "docs/b200-and-rtx-5090.md"
#: The card on which most was measured.
ARCH = "sm_90"


def prefill(site: Site, link: Link) -> str:
    """Yes or no, which kernel, its times, and what they leave out."""
    found = design_choice.comparison(site, devices.default_for_arch(ARCH))
    timed = [
        (choice.s, best.run)
        for choice in found.measured
        if choice.s >= PREFILL_FROM and (best := choice.best.get("flash_attention"))
    ]
    if not timed:
        return "No kernel was timed at prefill here."
    told = "; ".join(
        f"s = {s}: {run_version(site, run, link)} {time_of(run, link)}" for s, run in timed
    )
    return (
        f"**Covered here, yes**, over decompressed keys and values, on an "
        f"{cell(found.device.name.removeprefix('NVIDIA '))} ({found.shape.b} sequences, "
        f"{found.shape.h} heads, {design_choice.CONTEXT:,} keys, {regimes.DTYPE}, no mask; s query "
        f"tokens per sequence): {told}. **Making these keys and values of a latent cache is not in "
        f"the times**: {us(found.decompressing_us)} more, as a reference time. Longer prompts than "
        f"s = {_longest(site):,} were not timed."
    )


def _longest(site: Site) -> int:
    """The most query tokens of a sequence at which anything of ours was timed."""
    return max(
        int(run.record.problem["s"])  # type: ignore[arg-type]
        for run in (*site.runs, *site.earlier)
        if run.is_timed and run.record.kernel.layer == WORKLOAD.key
    )


def decoding(site: Site, link: Link) -> str:
    """Which kernel, by how much, and where all times stand."""
    found = decode.best_known(site)
    if found is None:
        return "No kernel was timed at decode beside a library here."
    _, pairs = found
    return (
        f"**Covered here, yes**, dense and sparse. Dense over pages: "
        f"{run_version(site, pairs[0][0], link)}, timed beside FlashMLA at {len(pairs)} problems: "
        f"[which decode kernel, with every time]({link(decode.SOURCE)})."
    )


def sample(site: Site, link: Link) -> str:
    """One record with all that a paper asks for: device, driver, commit, toolchain, command."""
    found = decode.best_known(site)
    if found is None:
        return ""
    mine, theirs = min(found[1], key=lambda pair: counted.from_usual(pair[0]))
    said = record_facts.facts(mine)
    told = "".join(f"\n- **{name}**: {said[name]}" for name in _CITED if said.get(name))
    return (
        f"**For example** {cell(problems.problem_text(mine.record))}: "
        f"{run_version(site, mine, link)} {time_of(mine, link)}, and in the same run FlashMLA "
        f"{time_of(theirs, link)}. Each time on this site leads to its record, which says as much:"
        f"\n{told}\n- **Again**: {decode.command(found[1])}, over all 60 problems of servers"
    )


#: What of a record is said of a sample.
_CITED = ("Where", "When", "How", "Toolchain")


def guides(site: Site, link: Link) -> list[str]:
    """Links to the pages that choose for a reader."""
    known = {
        CHOICE: "which decode kernel or DSL, by case",
        decode.SOURCE: "which decode kernel on an H100 or H200",
        cards.SOURCE: "which card: H100, H200 or B200",
    }
    return [f"[{said}]({link(page)})" for page, said in known.items() if page in site.addresses]


def drafted(site: Site, link: Link) -> str:
    """Which kernel takes several query tokens, by how much, and one time of it."""
    found = decode.best_known(site)
    pairs = decode.drafted(site, found[1][0][0]) if found else []
    if not pairs:
        return "No kernel was timed with several query tokens beside a library here."
    mine, theirs = min(pairs, key=lambda pair: counted.from_usual(pair[0]))
    return (
        f"**Covered here, yes**: {run_version(site, mine, link)} with `causal=True`. For example "
        f"{cell(problems.problem_text(mine.record))}: {time_of(mine, link)}, FlashMLA "
        f"{time_of(theirs, link)} in the same run. [All {len(pairs)} problems]"
        f"({link(decode.SOURCE)}#{decode.SEVERAL})."
    )


def energy(site: Site, link: Link) -> str:
    """Joules of one launch of ours and of the library, of one run."""
    found = decode.best_known(site)
    known = [
        (mine, theirs, mine.outcome.energy, theirs.outcome.energy)
        for mine, theirs in (found[1] if found else [])
        if mine.outcome and theirs.outcome and mine.outcome.energy and theirs.outcome.energy
    ]
    if not known:
        return "No energy was measured beside a library here."
    mine, theirs, ours, other = min(known, key=lambda one: counted.from_usual(one[0]))
    drawn = [
        f"[{used.joules * 1e3:.1f} mJ at {used.watts:.0f} W]({link(run.name)})"
        for run, used in ((mine, ours), (theirs, other))
    ]
    return (
        f"**For example** {cell(problems.problem_text(mine.record))}, back to back: "
        f"{run_version(site, mine, link)} {drawn[0]} per launch, FlashMLA {drawn[1]} in the same "
        "run: one layer's attention for one step of all sequences."
    )


SENTENCES: Mapping[str, Callable[[Site, Link], str]] = {
    "mla-prefill": prefill,
    "mla-prefill-rates": prompts.rates,
    "mla-reached": reached.text,
    "mla-sparse-prefill": prompts.sparse,
    "mla-decode": decoding,
    "mla-counted": counted.text,
    "mla-counted-rows": counted.rows,
    "mla-counted-about": counted.about,
    "mla-sample": sample,
    "mla-choice": choosing.text,
    "mla-triton": choosing.triton,
    "mla-repeat": repeating.text,
    "mla-outliers": repeating.outliers,
    "mla-hopper": balance.hopper,
    "mla-border": balance.border,
    "mla-drafted": drafted,
    "mla-balance": balance.text,
    "mla-few-and-all": balance.few_and_all,
    "mla-heads": heads.text,
    "mla-few-heads": few_heads.text,
    "mla-few-rows": few_heads.beside,
    "mla-few-versions": few_heads.versions,
    "mla-parallel": few_heads.parallel,
    "mla-least-time": least.text,
    "mla-crossover": crossover.text,
    "mla-sparse-short": crossover.short,
    "mla-turning": lambda _site, link: turning.short(link),
    "mla-prefixes": prefixes.text,
    "mla-served": served.text,
    "mla-other-card": cards.slower,
    "mla-multiprocessors": cards.multiprocessors,
    "mla-watts": cards.watts,
    "mla-cache": memory.cache,
    "mla-saves": memory.saves,
    "mla-room": memory.room,
    "mla-exponentials": exponentials.text,
    "mla-energy": energy,
    "mla-models": models.text,
    "mla-elsewhere": elsewhere.text,
    "mla-gain": gain.text,
    "mla-stages": stages.text,
    "mla-ultra": ultra.text,
    "merge-cost": merging.text,
    "mla-lengths": lengths.times,
    "mla-error-by-length": lengths.errors,
    "mla-run-minutes": lengths.minutes,
    "mla-effort": effort.table_of,
    "mla-torch": effort.torch,
    "mla-verdict": lambda site, _link: peers.verdict(site),
}
