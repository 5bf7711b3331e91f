"""Draws the README's picture: flash_mla's versions of one run as bars by time, as an SVG.

Run by ``python -m generators.committed.readme``; a test fails where the picture is out of date.
"""

from __future__ import annotations

import html
import math
from collections import Counter

from generators.model.run import Run
from generators.model.site import Site
from generators.write.text import us
from mla_var3 import devices, front
from mla_var3.errors import KnowledgeError
from mla_var3.evidence.compare import said
from mla_var3.languages import languages
from mla_var3.paths import repo_root, write_atomic

PICTURE = "docs/assets/ladder.svg"
DEVICE = "nvidia-h200-sxm"
DESIGNS = ("flash_mla", "flash_mla_split_kv")
PROBLEM = {"b": 32, "h": 128, "s": 1, "t": 4096, "causal": False, "dtype": "bf16"}
WIDTH, ROW, LEFT, RIGHT = 800, 26, 270, 190
#: GitHub shows the file as an image, so that it brings its colours for both schemes.
STYLE = (
    "text{font:14px 'IBM Plex Sans',sans-serif;fill:#13202b}.bar{fill:#00677f}.quiet{fill:#4a5a68}"
    "@media(prefers-color-scheme:dark){text{fill:#e7eef4}.bar{fill:#58c9e4}.quiet{fill:#a5b4c1}}"
)


def steps(site: Site) -> list[Run]:
    """Every version of the designs in the run that timed most of them, slowest first.

    Raises:
        KnowledgeError: No record has the problem.
    """
    found = [
        run
        for run in site.runs
        if run.is_timed
        and (run.record.target, run.record.mode) == (DEVICE, "event")
        and run.record.kernel.design in DESIGNS
        and all(run.record.problem.get(name) == value for name, value in PROBLEM.items())
    ]
    if not found:
        raise KnowledgeError(f"no record on {DEVICE} has the problem of the README's picture")
    (most, _), *_ = Counter(run.record.run for run in found).most_common(1)
    together = (run for run in found if run.record.run == most)
    return sorted(together, key=lambda run: -run.total.median_us)


def picture(site: Site) -> str:
    """The ladder as an SVG file: a bar per version, its length the logarithm of its time."""
    runs = steps(site)
    first, last = runs[0].total.median_us, runs[-1].total.median_us
    rows = [text for place, run in enumerate(runs) for text in _row(place, run, first, last)]
    problem = "b=32, h=128, s=1, t=4096, bf16"
    title = f"Latent attention on one {devices.load(DEVICE).name}, {problem}"
    message = (
        f"{title}: {len(runs)} versions timed in one run, from {us(first)} ({_name(runs[0])}) to "
        f"{us(last)} ({_name(runs[-1])}), {said(first, last)}."
    )
    height = 40 + ROW * len(runs) + 10
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'role="img" aria-label="{html.escape(message)}"><style>{STYLE}</style>'
        f'<text x="0" y="18" font-weight="600">{html.escape(title)} (bars: logarithm)</text>'
        f"{''.join(rows)}</svg>\n"
    )


def _row(place: int, run: Run, first: float, last: float) -> list[str]:
    y, time = 44 + ROW * place, run.total.median_us
    low = last / 2  # The fastest keeps a bar.
    long = (WIDTH - LEFT - RIGHT) * math.log(time / low) / math.log(first / low)
    gain = said(first, time) if place else ""
    says = f'{us(time)}<tspan class="quiet" dx="6">{gain}</tspan>'
    return [
        f'<text x="{LEFT - 10}" y="{y}" text-anchor="end">{html.escape(_name(run))}</text>',
        f'<rect class="bar" x="{LEFT}" y="{y - 13}" width="{long:.1f}" height="16"/>',
        f'<text x="{LEFT + long + 8:.1f}" y="{y}">{says}</text>',
    ]


def _name(run: Run) -> str:
    kernel = run.record.kernel
    return f"{kernel.design} {kernel.version}, {languages()[kernel.language].title}"


def main() -> int:
    """Draw the picture of this checkout; returns the exit code."""
    from generators.families import load

    write_atomic(repo_root() / PICTURE, picture(load()).encode())
    print(f"wrote {PICTURE}")
    return 0


if __name__ == "__main__":
    front.run("generators.committed.readme:main")
