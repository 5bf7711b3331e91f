"""Makes the page that compares our fastest latent kernels with other libraries' kernels.

Only runs that timed both count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from generators.mla import by_language, conditions
from generators.mla.same_work import PEER, PEER_NAME, PEERS, time_of, unpaged
from generators.model import choice, problems, targets
from generators.model.choice import Pair, alike
from generators.model.problems import together
from generators.model.run import Run
from generators.model.site import Site
from generators.pages.kernels import run_version
from generators.write.page import Page
from generators.write.text import cell, meta, sections, table
from mla_var3.evidence.compare import NOISE, Comparison, Versus, Word, said
from mla_var3.knowledge.evidence import Link
from mla_var3.workloads import workloads
from mla_var3.workloads.mla import WORKLOAD

TITLE = "Against FlashMLA and other libraries"
PATH = "mla/against-libraries.md"
#: What readers call it.
FOUND_BY = (
    "FlashMLA comparison", "faster than FlashMLA", "FlashMLA benchmark", "peers",
    "conditions of the FlashMLA measurements", "repeat the FlashMLA benchmark",
    "slower or faster than FlashMLA", "how do you compare with FlashInfer",
    "compared with other libraries", "is FlashMLA still better", "cuTile against FlashMLA",
    "fair comparison with FlashMLA", "where does FlashMLA win", "speedup over FlashMLA",
    "ours against the library", "baseline of the measurements", "compared with Triton",
    "Triton version of MLA decode", "TileLang version of MLA decode", "TileLang comparison",
    "vLLM's Triton kernel", "what was not compared",
)  # fmt: skip


def page(site: Site, source: str) -> Page:
    """Every problem at which a kernel here and a library's ran in one run.

    Args:
        site: All inputs.
        source: The text that the page belongs to.
    """
    link = site.link(PATH)
    parts = [_beside(site, peer, name, link) for peer, name in PEERS.items()]
    lighter = workloads()[WORKLOAD.key].lighter
    first, name = PEER, PEER_NAME
    shared = _table(
        site, pairs_of(site, first, lambda run: lighter(run.record.problem)), name, link
    )
    content = sections(
        meta(found_by=list(FOUND_BY)),
        f"# {TITLE}",
        verdict(site) or "No run timed both a kernel here and a library's.",
        "One run timed both sides of a row in turns; times are its medians, and each leads to its "
        "record. Ours is the fastest kernel of that run that does the same work. Where several "
        "runs timed both at a problem, the row is of the newest in which ours did as well against "
        f"{name} as in any; the advisor answers from the same run, and names a kernel that does "
        "more where that is faster still. As fast means that two medians differ by less than "
        f"{NOISE:.1%}.",
        SIZES,
        COMPARED,
        "Dense attention alone. Sparse decode beside FlashMLA stands [with the calls of servers]"
        f"({link('docs/serving/times.md')}), in trials without a record, and so does "
        "sparse prefill.",
        conditions.section(site, pairs_of(site, first, alike(site, WORKLOAD.key)), name),
        by_language.section(site, link),
        *parts,
        f"## With a prefix that all sequences share\n\nOur kernel reads keys and values of the "
        f"prefix decompressed beforehand; {name} reads the whole cache of each sequence.\n\n"
        f"{shared}"
        if shared
        else "",
    )
    return Page(PATH, content, source, ("MLA", TITLE))


#: What the words of a problem mean.
SIZES = (
    "With page=64 both read pages of 64 tokens. Sequences are equally long, or *ragged* (half to "
    "one and a half times the mean), or *one* is ten times as long as the others."
)
#: Whose kernels these are, and who is not among them.
COMPARED = (
    "**Whose kernels:** FlashMLA is the installed library, TileGym NVIDIA's kernels in cuTile. "
    "*Triton* is a kernel of our own with split keys and Triton's tuner, not that of vLLM or "
    "SGLang. **Not compared:** FlashInfer and CUTLASS MLA (no run has them), TileLang (no version "
    "was timed; figures of it here are quoted from others), "
    "Triton kernels of vLLM and SGLang, whole servers."
)
#: What a server with pages does where no kernel of ours was timed with them.
UNTIMED = "use {}, none of ours was timed"


def _beside(site: Site, peer: str, name: str, link: Link) -> str:
    """The section of one library; empty where no run timed it."""
    pairs = pairs_of(site, peer, alike(site, WORKLOAD.key))
    paged = {unpaged(mine): (mine, theirs) for mine, theirs in pairs if _page(mine)}
    if not paged:
        found = _table(site, pairs, name, link)
        return f"## {name}\n\n{found}" if found else ""
    apart = [pair for pair in pairs if not _page(pair[0])]
    both = _table(site, [pair for pair in pairs if _page(pair[0])], name, link)
    untimed = sum(unpaged(mine) not in paged for mine, _ in apart)
    return sections(
        f"## {name}\n\nBoth over the same pages.\n\n{both}",
        f"## {name}, ours over a contiguous cache\n\n{name} reads pages here, and ours one "
        f"contiguous cache. At {untimed} of these {len(apart)} problems no kernel of ours was "
        f"timed with pages: with pages use {name} there.\n\n"
        + _table(site, apart, name, link, lambda mine: _with_pages(paged.get(unpaged(mine)), name))
        if apart
        else "",
    )


def _with_pages(pair: Pair | None, name: str) -> str:
    """What a server with pages takes at a problem."""
    if pair is None:
        return UNTIMED.format(name)
    mine, theirs = pair
    return said(theirs.total.median_us, mine.total.median_us)


def _page(run: Run) -> object:
    return run.record.problem.get("page")


def lead(site: Site, address: str) -> str:
    """The verdict, and where every problem behind it stands."""
    said = verdict(site)
    return f"{said} [{TITLE}]({address}): every problem measured in a common run." if said else ""


def verdict(site: Site) -> str:
    """Where the fastest of ours is ahead of the first library, ties with it and is behind."""
    pairs = pairs_of(site, PEER, alike(site, WORKLOAD.key))
    if not pairs:
        return ""
    found = Versus(tuple(Comparison(theirs.record, mine.record) for mine, theirs in pairs))
    words: tuple[Word, ...] = ("faster", "as fast", "slower")
    counts = ", ".join(f"{kind} at {found.count(kind)}" for kind in words)
    middle, most, least = (said(gain, 1.0) for gain in (found.median, found.best.gain,
                                                        found.worst.gain))  # fmt: skip
    best, worst = (cell(str(problems.problem_of(pair.after))) for pair in (found.best, found.worst))
    spread = (
        f" The median over all is {middle}, the worst {least} ({worst}), the best {most} ({best})."
    )
    return (
        f"**At {len(pairs)} problems one run timed both {PEER_NAME} and kernels of ours. Our "
        f"fastest kernel is {counts}.**{spread if len(pairs) > 1 else ''} Which of our versions is "
        f"the fastest depends on the problem. {_conditions([mine for mine, _ in pairs])}"
    )


def _conditions(ours: Sequence[Run]) -> str:
    """What a ratio against the first library does not say: how each side reads the cache."""
    paged = [run.record.problem for run in ours if run.record.problem.get("page")]
    uneven = sum(bool(problem.get("lengths")) for problem in paged)
    apart = (
        "FlashMLA reads its cache by pages and by a length per sequence; our kernel reads one "
        "contiguous cache of equal lengths."
    )
    if not paged:
        return f"In these runs {apart}"
    both = f"At {len(paged)} of the problems both read the same pages, {uneven} of them with "
    both += "lengths that differ."
    return both if len(paged) == len(ours) else f"{both} At the others {apart}"


def beside(site: Site) -> dict[tuple[object, ...], Pair]:
    """Our fastest and the first library's, by what runs of one problem share but the run.

    By the same rule the advisor and all tables name a kernel; see ``choice``.
    """
    pairs = pairs_of(site, PEER, alike(site, WORKLOAD.key))
    return {together(pair[0])[1:]: pair for pair in pairs}


def pairs_of(site: Site, peer: str, suits: Callable[[Run], bool]) -> list[Pair]:
    """Our fastest and the library's in one run, per problem."""
    found = [
        choice.pair_of(choice.pairs(contest, peer, suits) for contest in contests)
        for contests in site.contests.values()
        if contests[0][0].record.kernel.layer == WORKLOAD.key
    ]
    known = [pair for pair in found if pair is not None]
    return sorted(known, key=lambda pair: problems.problem_of(pair[0].record).order)


def _table(
    site: Site,
    pairs: Sequence[Pair],
    name: str,
    link: Link,
    paged: Callable[[Run], str] | None = None,
) -> str:
    """A row per problem; the device is told once where it is the same.

    Args:
        site: All inputs.
        pairs: Ours and the library's, per problem.
        name: What the library is called.
        link: How the page addresses files.
        paged: What to say of pages at the problem of one of ours; a column less without it.
    """
    where = {mine.record.target for mine, _ in pairs}
    said_once = f"All on {cell(targets.target_name(*where))}." if len(where) == 1 else ""
    rows = [
        [
            ("" if said_once else f"{cell(targets.target_name(mine.record.target))}, ")
            + cell(str(problems.problem_of(mine.record))),
            said(peer.total.median_us, mine.total.median_us),
            run_version(site, mine, link),
            time_of(mine, link),
            time_of(peer, link),
            *([paged(mine)] if paged else []),
        ]
        for mine, peer in pairs
    ]
    head = ["Problem", "Ours is", "Ours", "Its time", name, *(["With pages"] if paged else [])]
    return sections(said_once, table(head, rows)) if rows else ""
