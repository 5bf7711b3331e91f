"""Draws the README's terminal recording: runs its first command and draws the output as an SVG.

Run by ``python -m generators.committed.recording``; a test compares the drawing with what the
command prints from the committed records.
"""

from __future__ import annotations

import html
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from mla_var3 import front
from mla_var3.app.launcher import PIPE_WIDTH
from mla_var3.errors import KnowledgeError
from mla_var3.paths import repo_root, write_atomic

PICTURE = "docs/assets/first-command.svg"
#: What a reader types, and what nox runs for it.
TYPED = "python -m nox -s profile -- mla_var6_plus v4"
RUN = ("-m", "mla_var3.kernel", "mla_var6_plus", "v4")
#: Of a character and of a line, in pixels.
_ACROSS, _DOWN, _MARGIN = 7.25, 17, 16
#: GitHub shows the file as an image, so that it brings its colours for both schemes.
STYLE = (
    "text{font:12px 'IBM Plex Mono',ui-monospace,'DejaVu Sans Mono',monospace;fill:#13202b;"
    "white-space:pre}rect{fill:#f0f4f7}.typed{font-weight:700}"
    "@media(prefers-color-scheme:dark){text{fill:#e7eef4}rect{fill:#1c2630}}"
)


def printed(root: Path) -> str:
    """What the command prints.

    Args:
        root: Top of the checkout.

    Raises:
        KnowledgeError: It fails.
    """
    done = subprocess.run([sys.executable, *RUN], cwd=root, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise KnowledgeError(f"the first command ends with {done.returncode}: {TYPED}")
    return done.stdout


def picture(output: str) -> str:
    """The command and its output as an SVG file."""
    lines = [f"$ {TYPED}", *_wrapped(output)]
    width = round(max(map(len, lines)) * _ACROSS + 2 * _MARGIN)
    height = len(lines) * _DOWN + 2 * _MARGIN
    said = html.escape(f"What `{TYPED}` prints: {verdict(lines)}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'role="img" aria-label="{said}"><style>{STYLE}</style>'
        f'<rect width="{width}" height="{height}" rx="6"/>\n'
        f"{''.join(_drawn(lines))}</svg>\n"
    )


def _wrapped(output: str) -> Iterator[str]:
    """Lines as a terminal shows them: what is longer goes on in the next one."""
    for line in output.rstrip().splitlines():
        text = line.rstrip()
        yield from (text[at : at + PIPE_WIDTH] for at in range(0, max(len(text), 1), PIPE_WIDTH))


def verdict(lines: Sequence[str]) -> str:
    """The line that says whether the kernel is right."""
    found = (line.strip(" ┃│") for line in lines if ": right" in line or ": wrong" in line)
    return next(found, "no verdict")


def _drawn(lines: Sequence[str]) -> Iterator[str]:
    for row, line in enumerate(lines):
        kind = ' class="typed"' if row == 0 else ""
        y = _MARGIN + 12 + row * _DOWN
        yield f'<text x="{_MARGIN}" y="{y}"{kind} xml:space="preserve">{html.escape(line)}</text>\n'


def main() -> int:
    """Run the command and draw it; returns the exit code."""
    root = repo_root()
    write_atomic(root / PICTURE, picture(printed(root)))
    print(f"wrote {PICTURE}")
    return 0


if __name__ == "__main__":
    front.run("generators.committed.recording:main")
