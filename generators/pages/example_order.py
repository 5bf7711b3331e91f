"""Lists CUTLASS examples on the way to an MLA kernel, with how each ran in the emulator."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from generators.model.site import Site
from generators.write.text import cell, fence, sections, table
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
        examples: Their keys.
        then: What to read behind them; ``{a}`` to ``{d}`` are learning paths.
    """

    title: str
    examples: tuple[str, ...]
    then: str


WAYS = (
    Way(
        "For Hopper (sm_90: TMA, wgmma)",
        ("hopper-dense-gemm", "hopper-dense-gemm-persistent", "hopper-attention-fmha"),
        "CUTLASS has no latent attention in Python for Hopper. What follows is ours: "
        "[path D]({d}), from a product to flash_mla.",
    ),
    Way(
        "For Blackwell (sm_100: TMA, tcgen05)",
        ("blackwell-tutorial-tma-tma-v0", "blackwell-tutorial-tma-tma-v1",
         "blackwell-tutorial-gemm-fp16-gemm-0", "blackwell-attention-fmha",
         "blackwell-attention-mla-decode-fp16"),
        "[Path A]({a}) and [path B]({b}) ask questions about products, attention and MLA.",
    ),
)  # fmt: skip


def section(site: Site, learning: Learning, link: Link) -> str:
    """The ways, a table each; empty where an example or the record of their runs is missing."""
    file = site.root / RECORD
    keys = {key for way in WAYS for key in way.examples}
    if not file.is_file() or not learning.paths or not keys <= learning.examples.keys():
        return ""
    ran = read(file)
    return sections(
        TITLE,
        "Read the first one first. Each runs on a CPU as NVIDIA wrote it: *passed* is by the "
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
    for number, key in enumerate(way.examples, 1):
        example = learning.examples[key]
        rows.append(
            [
                str(number),
                f"[{cell(example.title)}]({link(f'{EXAMPLES}/{key}.toml')})",
                cell(example.goal or ""),
                _outcomes(_cases(ran, example.path)),
            ]
        )
    head = ["", "Example", "What it shows", "Runs in the emulator"]
    paths = {name[0]: link(f"{PATHS}/{name}.toml") for name in learning.paths}
    return f"### {way.title}", table(head, rows), way.then.format_map(paths)


def _cases(ran: Table, path: str) -> list[Case]:
    """Runs of an example: the record's tests begin with the end of its path."""
    return [case for case in ran.cases if path.endswith(f"/{case.test.partition(' ')[0]}")]


def _outcomes(cases: list[Case]) -> str:
    counts = Counter(case.outcome.value for case in cases)
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items()) or "not run"
