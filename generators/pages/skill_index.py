"""Says with which agent skill to begin, for what purpose, and which ones it leads to."""

from __future__ import annotations

from generators.write.text import table

#: Which skill to begin with, for what, and those that it leads to.
FIRST: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Make a kernel of a file of yours as fast as it can be, by a campaign", "kernel-optimizer",
     ("kernel-baseline", "kernel-bottleneck-analysis", "kernel-profile-optimizer",
      "kernel-partial-restart")),
    ("Ask why a kernel is slow", "profile-kernel", ("optimization-catalog",)),
    ("Make a version of ours faster", "optimize-cute-dsl-kernel", ("optimize-cutile-dsl-kernel",)),
    ("Write a new version", "design-kernel", ("design-cute-dsl-kernel",
                                              "design-cutile-dsl-kernel")),
    ("Choose a kernel for sizes, or predict a time", "mla-analysis", ()),
    ("Look up a name or a message", "cute-dsl-ref", ("cutile-dsl-ref",)),
    ("Learn the CuTe DSL", "learn-cute-dsl", ()),
)  # fmt: skip


def rows() -> str:
    """The skills as a table for the page of their folder."""
    return table(
        ["To", "Begin with", "Then, or for the other language"],
        [[purpose, _link(first), ", ".join(map(_link, then))] for purpose, first, then in FIRST],
    )


def _link(name: str) -> str:
    return f"[{name}]({name}.md)"
