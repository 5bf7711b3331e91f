"""Shows the exercises of examples/exercises: skeleton, command, and the solution behind a click."""

from __future__ import annotations

from generators.model.site import Site
from generators.write.text import fence, fold, sections
from mla_var3 import inputs

FOLDER = "examples/exercises"
#: What stands where the reader's lines belong.
GAP = "pass  # Your lines."
NAMES = (
    "axpy", "row_sum", "matmul", "softmax", "attend", "cute_axpy", "cute_row_sum", "cute_reverse",
)  # fmt: skip


def skeleton(name: str) -> str:
    """Path of the script with a gap."""
    return f"{FOLDER}/{name}.py"


def solution(name: str) -> str:
    """Path of the same script without one."""
    return f"{FOLDER}/solutions/{name}.py"


def filled_gap(gap: str, whole: str) -> str:
    """The lines of a solution that stand in the gap.

    Args:
        gap: The skeleton.
        whole: The solution.

    Raises:
        ValueError: They differ elsewhere.
    """
    before, _, after = gap.partition(GAP)
    if not (whole.startswith(before) and whole.endswith(after)):
        raise ValueError("skeleton and solution differ outside of the gap")
    indent = before.rpartition("\n")[2]
    return indent + whole[len(before) : len(whole) - len(after)]


def shown(site: Site, name: str) -> str:
    """Skeleton, command and folded solution of an exercise."""
    gap = inputs.read_text(site.root / skeleton(name))
    lines = filled_gap(gap, inputs.read_text(site.root / solution(name)))
    count = len(lines.splitlines())
    return sections(
        fence(gap.rstrip("\n"), "python"),
        fence(f"$ nox -s run -- {skeleton(name)}", "console"),
        fold("Solution", f"{count} line{'s' if count > 1 else ''}", fence(lines, "python")),
    )
