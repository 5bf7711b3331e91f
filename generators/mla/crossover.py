"""Says from which context on reading chosen tokens is faster than reading all, from one run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from generators.mla.same_work import time_of
from generators.model import targets
from generators.model.run import Run
from generators.model.site import Site
from generators.pages.kernels import run_version
from generators.write.text import cell, sections, table
from mla_var3.knowledge.evidence import Link
from mla_var3.workloads.mla import dense_or_sparse_set

#: Dense and sparse, ours and the library's, by design.
DENSE, SPARSE = ("flash_mla", "deepseek_flash_mla"), ("sparse_mla", "deepseek_sparse_decode")
#: Heads, sequences and cached tokens.
Size = tuple[int, int, int]


def text(site: Site, link: Link) -> str:
    """A sentence, and a row per size at which one run timed all four."""
    sizes = _newest(site)
    if not sizes:
        return "Dense and sparse decode were not timed in one run here."
    first = next(iter(sizes.values()))
    kept = first["sparse_mla"].record.problem["topk"]
    rows = [
        [
            str(h), str(b), f"{t:,}",
            *(time_of(found[design], link) for design in (*DENSE, *SPARSE)),
            f"{_gain(found):.1f}",
        ]
        for (h, b, t), found in sorted(sizes.items())
    ]  # fmt: skip
    head = [
        "Heads", "Sequences", "Cached tokens", "All tokens, ours", "FlashMLA",
        f"{kept:,} tokens, ours", "FlashMLA", "All over chosen, ours",
    ]  # fmt: skip
    return sections(
        _verdict(sizes),
        table(head, rows),
        f"One run on {cell(targets.target_name(first['sparse_mla'].record.target))}, one query "
        "token, medians with an L2 flush. All tokens: "
        f"{run_version(site, first['flash_mla'], link)} over a cache in bf16 and pages of 64. "
        f"Chosen ones: {run_version(site, first['sparse_mla'], link)} over rows of 656 bytes in "
        f"fp8, {kept:,} per query token, so that at {kept:,} cached tokens both read each token. "
        "**Choosing the tokens is not in these times**: an indexer scores all cached tokens in "
        "each step, which takes longer the longer the context is, and no indexer is here.",
    ).rstrip()


def short(site: Site, link: Link) -> str:
    """How flat the time of chosen tokens is, at one number of heads and sequences."""
    sizes = _newest(site)
    if not sizes:
        return "Dense and sparse decode were not timed in one run here."
    h, b = max(h for h, _, _ in sizes), min(b for _, b, _ in sizes)
    contexts = sorted(t for heads, batch, t in sizes if (heads, batch) == (h, b))
    near, far = sizes[h, b, contexts[1]], sizes[h, b, contexts[-1]]
    kept = near["sparse_mla"].record.problem["topk"]

    def both(design: str) -> str:
        return f"{time_of(near[design], link)} and {time_of(far[design], link)}"

    return (
        f"**{b} sequences of {contexts[1]:,} and of {contexts[-1]:,} cached tokens, {h} heads, on "
        f"{cell(targets.target_name(near['sparse_mla'].record.target))}: {kept:,} chosen tokens "
        f"take {both('sparse_mla')}** ({run_version(site, near['sparse_mla'], link)}; FlashMLA "
        f"{both('deepseek_sparse_decode')}), all tokens {both('flash_mla')}. Without the indexer."
    )


def _newest(site: Site) -> Mapping[Size, Mapping[str, Run]]:
    """The runs by size and design, of the newest run that timed all four at all sizes."""
    asked = {(p["h"], p["b"], p["t"]) for p in dense_or_sparse_set()}
    found: dict[str, dict[Size, dict[str, Run]]] = defaultdict(lambda: defaultdict(dict))
    for run in (*site.runs, *site.earlier):
        problem, design = run.record.problem, run.record.kernel.design
        size = next((x for x in asked if x == tuple(map(problem.get, "hbt"))), None)
        if size is None or not run.is_timed or problem.get("s") != 1:
            continue
        dense = design in DENSE and bool(problem.get("page")) and not problem.get("lengths")
        if dense or (design in SPARSE and problem.get("topk")):
            found[run.record.run][size][design] = run
    whole = {
        name: sizes
        for name, sizes in found.items()
        if set(sizes) == asked and all(set(x) == {*DENSE, *SPARSE} for x in sizes.values())
    }
    if not whole:
        return {}
    return max(whole.values(), key=lambda x: max(run.record.time for run in x[min(x)].values()))


def _gain(found: Mapping[str, Run]) -> float:
    return found["flash_mla"].total.median_us / found["sparse_mla"].total.median_us


def _verdict(sizes: Mapping[Size, Mapping[str, Run]]) -> str:
    contexts = sorted({t for _, _, t in sizes})
    faster = {
        t: [_gain(found) > 1 for (_, _, of), found in sizes.items() if of == t] for t in contexts
    }
    always = [t for t in contexts if all(faster[t])]
    never = [t for t in contexts if not any(faster[t])]
    if not always:
        return "**At none of these contexts are chosen tokens the faster at every size.**"
    largest = max(contexts)
    gains = [_gain(found) for (_, _, t), found in sizes.items() if t == largest]
    slower = f", and loses at {', '.join(f'{t:,}' for t in never)}" if never else ""
    return (
        f"**Attention over chosen tokens is the faster from {min(always):,} cached tokens on, of "
        f"the contexts timed{slower}.** At {largest:,} all tokens take {min(gains):.0f} to "
        f"{max(gains):.0f} times as long; the time of chosen ones hardly depends on the context."
    )
