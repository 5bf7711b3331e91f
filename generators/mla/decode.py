"""Makes the page that names one kernel for dense decode on Hopper, with every time behind it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from statistics import geometric_mean

from generators.mla import balance, choosing, lengths, served
from generators.mla.same_work import PAGE, PEER, PEER_NAME, time_of
from generators.model import problems, targets
from generators.model.choice import Pair, alike, kernel_of, pair_of
from generators.model.run import Run
from generators.model.site import Site
from generators.write import figures
from generators.write.page import Page
from generators.write.source import repo_name
from generators.write.text import cell, fold, meta, sections, table
from mla_var3 import devices
from mla_var3.evidence.compare import said
from mla_var3.knowledge.evidence import Link
from mla_var3.runtime.registry import Version
from mla_var3.versions import number_of
from mla_var3.workloads.mla import WORKLOAD

PATH = "mla/which-decode-kernel.md"
#: This file, by which other pages name the page.
SOURCE = "generators/mla/decode.py"
FOUND_BY = (
    "which decode kernel", "which kernel for H100", "which decode kernel on an H100",
    "which decode kernel on an H200", "which kernel do I take", "pick a decode kernel",
    "recommended kernel", "decode kernel for small batch", "small batch long context",
    "batch 1 to 8", "how fast is decode at batch 1",
    "decode at 128k context", "few sequences long context", "best kernel for DeepSeek decode",
    "serve DeepSeek on H100", "fastest kernel on Hopper", "kernel recommendation",
    "large batch decode kernel", "which version of flash_mla to take",
    "v20, v21 or v22 for serving", "v22, v23 or v24 for serving",
    "v24 or v25 for serving", "what the server calls launch",
    "fastest at batch one", "fastest kernel for a batch of one",
    "kernel for MTP", "decode with 2 to 4 query tokens", "speculative decoding kernel time",
    "which kernel for my server", "best MLA decode kernel", "which version should I deploy",
    "is it faster than FlashMLA at my batch", "decode one user", "ragged batch decode kernel",
    "one sequence ten times as long", "which kernel for many sequences", "paged decode kernel",
    "decode with pages of 64", "128 heads batch 1", "kernel for drafted tokens",
    "MTP with 2 query tokens", "microseconds per decode step",
)  # fmt: skip
#: The section of few heads on a card, and what it is asked by.
HEADS = "few-heads"
HEADS_BY = (
    "which MLA decode kernel for H100 few heads", "which MLA kernel for H200 with 16 heads",
    "which kernel with 16 heads per GPU", "FlashMLA, FlashInfer, cuTile or CuTe DSL with 16 heads",
    "justify the kernel for tensor parallel 8", "cuTile with 16 heads beside FlashMLA",
    "8 query heads per GPU",
    "decode kernel for TP8", "Kimi K2 decode kernel", "16 heads batch 128", "few heads TP8",
    "is decode bandwidth bound with few heads", "GB/s of decode with 16 heads",
    "is cuTile an option on Hopper", "FlashMLA with 8 or 16 heads", "batch 16 to 128 few heads",
    "64 row tile mostly padding", "does vLLM's kernel win with few heads",
)  # fmt: skip
#: Most heads that are few, and the least cached tokens of a row there.
FEW_HEADS, LONG = 32, 4096
#: Sequences up to which a batch is small.
FEW = 8
#: Query tokens of a step that verifies drafted ones, at most.
DRAFTED = 8
SERVING = "docs/serving.md"
SERVED, SPARSE = "docs/serving/times.md", "docs/serving/sparse.md"
#: The term, and the section that answers it.
SPECULATIVE, SEVERAL = "docs/glossary/speculative.md", "several-query-tokens"
#: The section of one kernel's time by context, and what it is asked by.
CURVE = "by-context"
CURVE_BY = (
    "decode time by context length", "curve of decode time from 1k to 128k context",
    "time of one kernel over context lengths", "how does decode time scale with context",
    "latency against sequence length", "is decode time linear in the context",
    "plot of time against context", "time per step at 64k tokens", "scaling with cached tokens",
    "decode time at 2k 4k 8k 16k 32k 64k", "how much slower is a long context",
    "same kernel at several context lengths", "chart for a slide",
    "doubling of the context", "decode time by batch size",
    "decode time vs number of heads", "time of decode by heads and sequences",
)  # fmt: skip
#: Chip whose other cards run the same machine code.
H100 = "nvidia-h100-sxm"


def page(site: Site) -> Page | None:
    """The page; None where no run timed a kernel of ours beside the library over pages."""
    found = best_known(site)
    if found is None:
        return None
    version, pairs = found
    link = site.link(PATH)
    few = [pair for pair in pairs if sizes(pair)["b"] <= FEW]
    rest = [pair for pair in pairs if sizes(pair)["b"] > FEW]
    content = sections(
        meta(
            title="Which decode kernel on an H100 or H200?",
            description="One kernel for dense MLA decode on Hopper, with every time behind it",
            found_by=list(FOUND_BY),
            sections={HEADS: list(HEADS_BY), CURVE: list(CURVE_BY)},
        ),
        "# Which decode kernel on an H100 or H200?",
        _verdict(site, version, pairs, few, link),
        _on_h100(site, pairs, link),
        _few_heads(site, version, link),
        f"## With up to {FEW} sequences" if few else "",
        _table(few, version, link),
        f"Each row is one run that timed both, the newest in which {version.version} did as well "
        f"as in any; [how times are taken]({link('docs/how-times-are-taken.md')}). A length such "
        "as *ragged* is half to one and a half times the mean; *one* is ten times as long as the "
        "others.",
        fold(f"With more than {FEW} sequences", f"{len(rest)} problems",
             _table(rest, version, link)),
        _several(site, version, pairs, link),
        f"## One kernel from short to long contexts {{ #{CURVE} }}",
        lengths.times(site, link),
        "## When another one",
        _others(link),
    )  # fmt: skip
    return Page(PATH, content, None, ("MLA", "Which decode kernel"))


def sizes(pair: Pair) -> dict[str, int]:
    """Sequences, heads, query tokens and cached tokens of a pair's problem."""
    return {name: int(pair[0].record.problem[name]) for name in ("b", "h", "s", "t")}  # type: ignore[arg-type]


def best_known(site: Site) -> tuple[Version, list[Pair]] | None:
    """The version to take, with a pair per problem: the one that the calls of a server launch.

    It has to be timed beside the library at half as many problems as any; else, of those that
    are, it is the one whose times are the smallest share of the library's. Versions were timed at
    different problems, so that their shares alone do not say which is the faster one.
    """
    return site.once(_best_known)


def _best_known(site: Site) -> tuple[Version, list[Pair]] | None:
    found = by_version(site)
    if not found:
        return None
    enough = max(len(pairs) for pairs in found.values()) / 2
    many = [kernel for kernel in found if len(found[kernel]) >= enough]
    called = served.kernel(site)
    until = [k for k in many if called and k[:2] == called[:2] and _number(k) <= _number(called)]
    # What the calls launch, or the newest before it: that one may be timed at few problems.
    least = min(many, key=lambda kernel: _share(found[kernel]))
    best = max(until, key=_number, default=least)
    version = site.version_of(found[best][0][0])
    assert version is not None  # Others do not suit.
    return version, sorted(found[best], key=_order)


def _number(kernel: tuple[str, ...]) -> int:
    return number_of(kernel[-1])


def by_version(site: Site) -> dict[tuple[str, ...], list[Pair]]:
    """Of each version, by language, design and version, a pair per problem with one query token."""
    return {kernel: _newest(of.values()) for kernel, of in _known(site, range(1, 2)).items()}


def drafted(site: Site, mine: Run) -> list[Pair]:
    """The pairs of a run's version with several query tokens under a causal mask, few first."""
    known = _known(site, range(2, DRAFTED + 1)).get(kernel_of(mine), {})
    return sorted(_newest(known.values()), key=_order)


def _known(
    site: Site, tokens: Container[object]
) -> dict[tuple[str, ...], dict[object, list[Pair]]]:
    """By version and problem each time beside the library's of the same run."""
    suits = alike(site, WORKLOAD.key)
    known: dict[tuple[str, ...], dict[object, list[Pair]]] = defaultdict(lambda: defaultdict(list))
    for contests in site.contests.values():
        problem = contests[0][0].record.problem
        if contests[0][0].record.kernel.layer != WORKLOAD.key or not _is_asked(problem, tokens):
            continue
        for runs in contests:
            theirs = [run for run in runs if run.record.kernel.design == PEER]
            if not theirs:
                continue
            first = min(theirs, key=lambda run: run.total.median_us)
            for mine in runs:
                if suits(mine) and mine.record.kernel.language != "library":
                    known[kernel_of(mine)][problems.problem_of(mine.record)].append((mine, first))
    return known


def _is_asked(problem: Mapping[str, object], tokens: Container[object]) -> bool:
    """So many query tokens over pages of a server, of which several are causal."""
    asked = problem.get("s") in tokens and problem.get("page") == PAGE
    return asked and (problem.get("s") == 1 or bool(problem.get("causal")))


def _newest(groups: Iterable[list[Pair]]) -> list[Pair]:
    return [pair for group in groups if (pair := pair_of(group)) is not None]


def _share(pairs: list[Pair]) -> float:
    return geometric_mean(mine.total.median_us / theirs.total.median_us for mine, theirs in pairs)


def _order(pair: Pair) -> tuple[int, ...]:
    found = sizes(pair)
    return found["s"], found["b"], -found["h"], found["t"]


def _verdict(site: Site, version: Version, pairs: list[Pair], few: list[Pair], link: Link) -> str:
    name = f"[{cell(version.key)}]({link(repo_name(version.path))})"
    where = sorted({targets.target_name(mine.record.target) for mine, _ in pairs})
    worst = max(pairs, key=lambda pair: pair[0].total.median_us / pair[1].total.median_us)
    told = [
        f"**Take {name}.** At {len(pairs)} problems with one query token and pages of {PAGE} "
        f"tokens, one run on {cell(' and '.join(where))} timed it beside {PEER_NAME}: it takes "
        f"{_share(pairs):.2f} of {PEER_NAME}'s time in the geometric mean",
        f", {_share(few):.2f} at the {len(few)} with up to {FEW} sequences" if few else "",
        f". At the worst it is {said(worst[1].total.median_us, worst[0].total.median_us)} "
        f"({cell(str(problems.problem_of(worst[0].record)))}).",
        f" {_launched(site, version)} [in place of {PEER_NAME}]({link(SERVING)}). "
        f"[When to keep {PEER_NAME}, and which DSL]({link('docs/b200-and-rtx-5090.md')}).",
        _why_another(site, version, pairs, link),
    ]
    return "".join(told)


def _few_heads(site: Site, version: Version, link: Link) -> str:
    """Times and rates of few heads on a card from small batches up; empty where none was timed."""
    found: dict[tuple[int, int, int, str], Pair] = {}
    known = by_version(site)
    for kernel in sorted(known, key=_number):
        if kernel[:2] != (version.language, version.design):
            continue
        for pair in known[kernel]:
            of, lengths = sizes(pair), pair[0].record.problem.get("lengths")
            if of["h"] > FEW_HEADS or of["b"] < FEW or of["t"] < LONG:
                continue
            if lengths is None or kernel[-1] == version.version:
                found[of["h"], of["b"], of["t"], str(lengths or "equal")] = pair
    if not found:
        return ""
    rows = [
        [
            f"{h} heads", str(b), f"{t:,}", cell(lengths),
            f"{time_of(mine, link)} ({kernel_of(mine)[-1]}), {figures.rate(mine, 'bytes')}",
            f"{time_of(theirs, link)}, {figures.rate(theirs, 'bytes')}",
            said(theirs.total.median_us, mine.total.median_us),
        ]
        for (h, b, t, lengths), (mine, theirs) in sorted(found.items(), key=lambda one: one[0])
    ]  # fmt: skip
    tile = choosing.tiles(site, FEW_HEADS, link)
    tiles = f", and takes {tile}" if tile else ""
    least = min(h for h, *_ in found)
    most, card = max(
        (mine.work.bytes / mine.total.median_us / 1e3 / _gbps(mine), mine.record.target)
        for mine, _ in found.values()
        if mine.work is not None
    )
    return sections(
        f"## With few heads: TP=8, 8 or 16 per GPU {{ #{HEADS} }}",
        f"**The same kernel, and it is the server's: [switch it on]({link(SERVING)}"
        "), nothing to choose; older versions are steps to learn from;** cache in bf16 or fp16 "
        "(fp8 stays your server's), H100 or H200. One query token, pages of "
        f"{PAGE}, L2 flushed; GB/s are the least bytes over the time. Each row names the version "
        f"that ran{_since(site, version, link)}:",
        table(
            ["Heads", "Sequences b", "Cached tokens t", "Lengths", "Ours", PEER_NAME, "Ours is"],
            rows,
        ),
        f"- **Memory or arithmetic:** {balance.few_and_all(site, link) or 'by the card'}.\n"
        f"- **Bytes decide, not padding:** up to {most:.0%} of the [bandwidth]"
        f"({link(f'knowledge/devices/{card}.toml')}). Up to {FEW_HEADS} heads are columns of the "
        "matrix instruction, so no tile of 64 rows stands empty, and the whole cache is read "
        f"however few heads ask: [why, and tensor or data parallel]"
        f"({link('docs/glossary/head-grouping.md')}#sixteen-heads-per-gpu).\n"
        f"- **Not measured:** fewer than {least} heads (Kimi K2 at TP=8 has 8; the same bytes of "
        f"cache, so begin from the row of {least}), an H100, other batches than these, "
        "FlashInfer, vLLM's Triton kernel. [What each takes, and when to keep FlashMLA]"
        f"({link('docs/b200-and-rtx-5090.md')}).\n"
        "- **cuTile** runs on Hopper too, but its decode reads one contiguous cache, no pages"
        f"{tiles}: "
        f"[both beside {PEER_NAME}]({link('knowledge/when-to-leave-cutile.md')}).",
    )  # fmt: skip


def _since(site: Site, version: Version, link: Link) -> str:
    """What a server launches in place of the versions of the rows, where it is another."""
    if (kernel := _another_called(site, version)) is None:
        return ""
    same = ""
    if (version.version, kernel[-1]) == ("v24", "v25"):
        same = ", which is v24 but for 65 to 128 rows per sequence"
    return f"; the calls launch {kernel[-1]}{same} ([both]({link(SERVED)}))"


def _gbps(run: Run) -> float:
    """The largest bandwidth that is stated of a run's card."""
    return devices.load(run.record.target).bound("bfloat16").gbps


def _another_called(site: Site, version: Version) -> tuple[str, str, str] | None:
    """What a server calls, where it is another version."""
    kernel = served.kernel(site)
    return None if kernel == (version.language, version.design, version.version) else kernel


def _launched(site: Site, version: Version) -> str:
    """What a server calls, where it is another version too."""
    if (kernel := _another_called(site, version)) is None:
        return "A server calls it"
    return f"These are records of {version.version}; a server calls {kernel[-1]}"


def _why_another(site: Site, version: Version, pairs: list[Pair], link: Link) -> str:
    """Why the times are not those of what a server calls; empty where they are."""
    if (kernel := _another_called(site, version)) is None:
        return ""
    count = len(by_version(site).get(kernel, ()))
    return (
        f" **By the calls you get {kernel[-1]}, and need not choose.** The table is "
        f"{version.version}'s only since the measured problems differ: {kernel[-1]} was timed at "
        f"{count} such problems, {version.version} at {len(pairs)}, so their shares do not "
        "compare; each version in one run with the one before it: "
        f"[where it stands]({link(SERVED)})."
    )


def _several(site: Site, version: Version, pairs: list[Pair], link: Link) -> str:
    """Times with several query tokens, and how their call is made; empty where none was timed."""
    found = drafted(site, pairs[0][0])
    if not found:
        return ""
    most = max(sizes(pair)["s"] for pair in found)
    return sections(
        f"## With 2 to {most} query tokens (MTP, speculative) {{ #{SEVERAL} }}",
        f"**The same {version.version}, with `causal=True`**: it takes {_share(found):.2f} of "
        f"{PEER_NAME}'s time in the geometric mean of {len(found)} problems. `cache_seqlens` "
        "counts the new tokens too, whose rows are in the cache before the call; query i of s "
        "sees keys 0 to t - s + i. All sequences of a call have equally many query tokens; masks "
        f"of drafted trees are not covered ([speculative decoding]({link(SPECULATIVE)})).",
        _table(found, version, link),
    )


def _on_h100(site: Site, pairs: list[Pair], link: Link) -> str:
    """What these times say of the other card with the same machine code."""
    if any(mine.record.target == H100 for mine, _ in pairs):
        return ""
    known = site.cards
    if H100 not in known:
        return ""
    return (
        "**On an H100** the same machine code runs (sm_90a), and this kernel was not timed there: "
        f"its [bandwidth]({link(f'knowledge/devices/{H100}.toml')}) is smaller, so expect longer "
        "times. To time both there, at 60 problems: "
        f"{command(pairs)}."
    )


def command(pairs: list[Pair]) -> str:
    """What times the kernel and the library again over pages, as Markdown."""
    mine, theirs = (figures.design_of(run.record) for run in pairs[0])
    return f"`nox -s bench -- --peers --set=serving --designs={mine},{theirs}`"


def _table(pairs: list[Pair], version: Version, link: Link) -> str:
    several = len({mine.record.target for mine, _ in pairs}) > 1
    drafts = any(sizes(pair)["s"] > 1 for pair in pairs)
    rows = [
        [
            *([cell(targets.target_name(mine.record.target))] if several else []),
            *(str(sizes((mine, theirs))[name]) for name in ("b", "h")),
            *([str(sizes((mine, theirs))["s"])] if drafts else []),
            f"{sizes((mine, theirs))['t']:,}",
            cell(str(mine.record.problem.get("lengths") or "equal")),
            time_of(mine, link),
            time_of(theirs, link),
            said(theirs.total.median_us, mine.total.median_us),
        ]
        for mine, theirs in pairs
    ]
    head = [
        *(["Device"] if several else []), "Sequences b", "Heads h",
        *(["Query tokens s"] if drafts else []), "Cached tokens t", "Lengths",
        version.version, PEER_NAME, f"{version.version} is",
    ]  # fmt: skip
    return table(head, rows)


def _others(link: Link) -> str:
    return (
        f"- **Other sizes**, still more query tokens, one contiguous cache: [the advisor]"
        f"({link('knowledge/workloads/mla.md')}), which answers from the nearest record.\n"
        f"- **A list of tokens per query** (sparse, fp8): [sparse decode]"
        f"({link(SPARSE)}).\n"
        "- **A prompt** (hundreds of query tokens): [prefill]"
        f"({link('docs/glossary/prefill.md')}).\n"
        "- **What a shorter time brings the whole model**: [tokens per second]"
        f"({link('docs/own-kernel-or-library.md')}#what-it-brings-in-tokens-per-second).\n"
        f"- **{PEER_NAME} and other libraries at every problem**: [against libraries]"
        f"(against-libraries.md).\n"
        f"- **When to keep {PEER_NAME}, which DSL, fp8, B200, RTX 5090**: [by case]"
        f"({link('docs/b200-and-rtx-5090.md')}); "
        f"another card: [which]({link('docs/scope.md')}#which-gpu-do-i-need)."
    )
