"""Lists CUTLASS examples on the way to an MLA kernel, with how each ran in the emulator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from generators.model.site import Site
from generators.write.text import cell, code, fence, sections, table
from mla_var3.examples.learning import EXAMPLES, PATHS, Learning
from mla_var3.gpuless.tables import Case, Table, read
from mla_var3.knowledge.evidence import Link

TITLE = "## CUTLASS examples on the way to an MLA kernel, in order"
ANCHOR = "#cutlass-examples-on-the-way-to-an-mla-kernel-in-order"
RECORD = "results/conformance/cutlass-examples.json"


class Way(NamedTuple):
    """Examples of one chip, each of which adds something to those before.

    Attributes:
        title: Whose.
        lead: Which of them for what, before the table.
        examples: Their keys, each with why it comes after the one before.
        then: What to read behind them; ``{a}`` to ``{d}`` are learning paths.
    """

    title: str
    lead: str
    examples: Mapping[str, str]
    then: str


WAYS = (
    Way(
        "For Blackwell (sm_100: TMA, tcgen05)",
        "**For attention read 1 to 4, for latent decode (MLA) 1 to 5.**",
        {
            "blackwell-tutorial-tma-tma-v0": "one copy and one barrier, no product yet",
            "blackwell-tutorial-tma-tma-v1": "the same copy between two roles: who waits for whom",
            "blackwell-tutorial-gemm-fp16-gemm-0": "adds the product: what TMA brings goes to "
            "tcgen05, sums to Tensor Memory",
            "blackwell-attention-fmha": "two such products in a chain, a softmax between them, and "
            "a role for each",
            "blackwell-attention-mla-decode-fp16": "fmha's roles over a latent cache in pages, its "
            "keys split over blocks",
        },
        "This is the short way, and the order holds everywhere. [Path A]({a}) is the long way from "
        "3 on, with four further products up to the persistent one; take it between 3 and 4 if "
        "roles and persistent loops are new to you. [Path B]({b}) asks questions about 4 and 5, "
        "in this order, with the schedule of "
        "latent decode between them and its fp8 twin at the end.",
    ),
    Way(
        "For Hopper (sm_90: TMA, wgmma)",
        "**For attention read 1 to 3.**",
        {
            "hopper-dense-gemm": "one product per block: TMA, barriers and wgmma alone",
            "hopper-dense-gemm-persistent": "the same product, now by roles and in a loop over "
            "tiles, which attention takes for granted",
            "hopper-attention-fmha": "two products in a chain with a softmax between them, in the "
            "roles of the persistent product",
        },
        "CUTLASS has no latent attention in Python for Hopper. What follows is ours: "
        "[path D]({d}), from a product to flash_mla.",
    ),
)


def section(site: Site, learning: Learning, link: Link) -> str:
    """The ways, a table each; empty where an example or the record of their runs is missing."""
    file = site.root / RECORD
    keys = {key for way in WAYS for key in way.examples}
    if not file.is_file() or not learning.paths or not keys <= learning.examples.keys():
        return ""
    ran = read(file)
    return sections(
        TITLE,
        "Read them from the top. Each runs on a CPU as NVIDIA wrote it: *passed* is by the "
        "example's own assertions and without a report, *found* passed them with a report; "
        f"[all runs]({link('results/conformance')}).",
        *(part for way in WAYS for part in _way(way, ran, learning, link)),
        fence(
            "$ nox -s examples -- fetch\n"
            "$ nox -s examples -- show hopper-dense-gemm\n"
            "$ nox -s adopt -- hopper-dense-gemm  # runs it on the CPU and compares",
            "console",
        ),
    )


def _way(way: Way, ran: Table, learning: Learning, link: Link) -> tuple[str, ...]:
    rows = []
    for number, (key, why) in enumerate(way.examples.items(), 1):
        example = learning.examples[key]
        rows.append(
            [
                str(number),
                f"[{cell(example.title)}]({link(f'{EXAMPLES}/{key}.toml')})<br>"
                f"{code(example.path.partition('/CuTeDSL/')[2] or example.path)}",
                cell(example.goal or ""),
                cell(why),
                _outcomes(_cases(ran, example.path)),
            ]
        )
    head = ["", "Example", "What it shows", "Why after the one before", "Runs in the emulator"]
    paths = {name[0]: link(f"{PATHS}/{name}.toml") for name in learning.paths}
    return (
        f"### {way.title}",
        way.lead,
        table(head, rows),
        _left_out(way, learning),
        way.then.format_map(paths),
    )


def _left_out(way: Way, learning: Learning) -> str:
    """What need not be read: other attention for the chip by name, and how many files besides."""
    folder = next(iter(way.examples)).partition("-")[0]
    attention = [
        found.path.rsplit("/", 1)[-1]
        for key, found in learning.examples.items()
        if key.startswith(f"{folder}-attention-") and key not in way.examples
    ]
    rest = len(learning.examples) - len(way.examples) - len(attention)
    named = f" Other attention there: {', '.join(map(code, attention))}." if attention else ""
    return (
        f"**Leave out** the other {rest + len(attention)} of {len(learning.examples)} files until "
        f"you need one.{named}"
    )


def _cases(ran: Table, path: str) -> list[Case]:
    """Runs of an example: the record's tests begin with the end of its path."""
    return [case for case in ran.cases if path.endswith(f"/{case.test.partition(' ')[0]}")]


def _outcomes(cases: list[Case]) -> str:
    counts = Counter(case.outcome.value for case in cases)
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items()) or "not run"
