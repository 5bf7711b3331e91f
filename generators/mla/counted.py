"""Says how the FLOPs, bytes and shares of a latent decode are counted, worked out on one record."""

from __future__ import annotations

from generators.mla import decode, design_choice, reached
from generators.mla.same_work import time_of
from generators.model import problems
from generators.model.choice import Pair
from generators.model.run import Run
from generators.model.site import Site
from generators.pages.kernels import run_version
from generators.write import figures
from generators.write.text import cell, table
from mla_var3 import devices
from mla_var3.knowledge.evidence import Link
from mla_var3.workloads.mla.regimes import Shape


def usual(site: Site) -> Pair | None:
    """Our run and the library's at the problem that most pages quote, of one run."""
    found = decode.best_known(site)
    return min(found[1], key=lambda pair: from_usual(pair[0])) if found else None


def from_usual(run: Run) -> tuple[object, ...]:
    """How far a problem is from the one that most pages quote: no lengths, then its sizes."""
    problem, near = run.record.problem, {"b": 32, "h": 128, "t": design_choice.CONTEXT}
    return problem.get("lengths") is not None, sum(problem[k] != v for k, v in near.items())


def text(site: Site, link: Link) -> str:
    """Formulas, one problem worked out, and what its rates are shares of."""
    return "\n\n".join(filter(None, (rows(site, link), about(site, link))))


def about(site: Site, link: Link) -> str:
    """Whose the worked-out problem is, and what the counts leave out."""
    pair = usual(site)
    if pair is None or pair[0].work is None:
        return ""
    mine, card = pair[0], devices.find(pair[0].record.target)
    return (
        f"{run_version(site, mine, link)} at {cell(problems.problem_text(mine.record))}. "
        f"Peaks are those of the datasheet, dense, for [{cell(card.name)}]"
        f"({link(f'knowledge/devices/{card.key}.toml')}). FLOPs leave out exponentials, scaling "
        "and pairs that a mask hides; bytes leave out the table of pages and what is read twice; "
        "both the products that absorb $W_k$ and $W_v$."
    )


def rows(site: Site, link: Link) -> str:
    """The table alone: a row for FLOPs, bytes and time."""
    pair = usual(site)
    if pair is None or pair[0].work is None:
        return ""
    mine, theirs = pair
    work, shape = mine.work, Shape()
    assert work is not None
    size = {name: int(mine.record.problem[name]) for name in "bhst"}  # type: ignore[arg-type]
    b, h, s, t = size.values()
    row, both = shape.k + shape.p, 2 * shape.k + shape.p
    cache, rest = b * t * row * shape.w, b * h * s * both * shape.w
    sheet, _ = reached.rates(mine)
    tflops = work.flops / mine.total.median_us / 1e6
    found = [
        [
            "FLOPs",
            f"2 · b · h · s · t · {both:,}: scores over {row} values, outputs over {shape.k}; "
            "pairs that a causal mask hides are not counted, and s=1 has none",
            f"2 · {b} · {h} · {s} · {t:,} · {both:,} = {work.flops / 1e9:.1f} GFLOP",
            f"**{figures.rate(mine, 'flops')}**, {tflops / sheet.tflops:.0%} of "
            f"{sheet.tflops:,.4g} TFLOP/s",
        ],
        [
            "Bytes",
            f"each once: the cache for all heads, b · t · {row} · {shape.w}; queries and outputs, "
            f"b · h · s · {both:,} · {shape.w}",
            f"{cache / 1e6:.1f} + {rest / 1e6:.1f} = {work.bytes / 1e6:.1f} MB",
            f"**{figures.rate(mine, 'bytes')}**, {reached.per_us(mine) / 1e3 / sheet.gbps:.0%} of "
            f"{sheet.gbps:,.0f} GB/s",
        ],
        [
            "Time",
            "median of replays, L2 flushed; the merge of splits (combine) in it, its partial "
            "results in neither FLOPs nor bytes; the schedule in neither time",
            time_of(mine, link),
            f"FlashMLA {time_of(theirs, link)} in the same run: "
            f"{mine.total.median_us / theirs.total.median_us:.2f} of its time",
        ],
    ]
    return table(["", "Counted as", "Here", "Over the time, and of what"], found)
