"""Renders kernel sources as code blocks, with the compiler's remarks at their lines."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path

from generators.model.run import Run
from generators.write.text import fence
from mla_var3.evidence import Passed, Remark, StaticFacts
from mla_var3.paths import kernels_dir, relative
from mla_var3.tables import cell

#: What of a line's instructions is worth a word, with how it is called.
_COUNTED = {"spill_loads": "spill loads", "spill_stores": "spill stores", "mma": "tensor-core"}


def repo_name(file: Path) -> str:
    """Path of a kernel source from the top of the checkout."""
    return f"kernels/{relative(file, kernels_dir())}"


def remarks_by_line(runs: Iterable[Run], file: str) -> dict[int, list[str]]:
    """What compilers said about each line of a file, one sentence for all archs it holds for.

    Stale records are left out: their lines are those of another source.

    Args:
        runs: Records of the versions that use the file.
        file: Path from the top of the checkout.
    """
    said: dict[int, dict[str, list[str]]] = {}
    for run in runs:
        if run.stale or not isinstance(run.record.outcome, Passed):
            continue
        for stage in run.record.outcome.stages:
            if stage.static is None:
                continue
            for line, sentence in _sentences(stage.static, file):
                archs = said.setdefault(line, {}).setdefault(sentence, [])
                if stage.static.arch not in archs:
                    archs.append(stage.static.arch)
    return {
        line: [f"{', '.join(archs)}: {sentence}" for sentence, archs in sentences.items()]
        for line, sentences in sorted(said.items())
    }


def tabs(blocks: Mapping[str, str]) -> str:
    """Blocks of Markdown as tabs by their titles; a single one stands alone."""
    if len(blocks) == 1:
        return next(iter(blocks.values()))
    # Titles are Markdown too: __init__ would be bold.
    plain = {title.replace("_", r"\_"): block for title, block in blocks.items()}
    return "\n\n".join(
        f'=== "{title}"\n\n{textwrap.indent(block, "    ")}' for title, block in plain.items()
    )


def _sentences(facts: StaticFacts, file: str) -> Iterable[tuple[int, str]]:
    remarks: tuple[Remark, ...] = getattr(facts, "remarks", ())
    for remark in remarks:
        if remark.file == file and remark.line:
            times = f" ({remark.count} times)" if remark.count > 1 else ""
            yield remark.line, f"*{remark.kind}* {cell(remark.message)}{times}"
    for row in facts.lines:
        counts = [f"{getattr(row, name)} {text}" for name, text in _COUNTED.items()
                  if getattr(row, name)]  # fmt: skip
        if row.file == file and counts:
            yield row.line, f"{', '.join(counts)} instructions"


def annotated(file: Path, name: str, runs: Iterable[Run]) -> str:
    """A source file as a code block whose lines carry what compilers said about them.

    Args:
        file: The file.
        name: Its path from the top of the checkout.
        runs: Records of the versions that use it.
    """
    lines = file.read_text(encoding="utf-8").splitlines()
    notes: list[str] = []
    for line, sentences in remarks_by_line(runs, name).items():
        if not 1 <= line <= len(lines):
            continue
        # Two blanks before a line end break the line inside the note.
        notes.append(f"{len(notes) + 1}.  " + "  \n    ".join(sentences))
        lines[line - 1] += f"  # ({len(notes)})!"
    block = fence("\n".join(lines), "python", file.stem, title=name, linenums="1")
    return "\n\n".join([block, "\n".join(notes)]) if notes else block
