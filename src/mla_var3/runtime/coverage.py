"""Coverage of a check: finds branches, loops and indices of a kernel that no case exercised.

Whoever runs a kernel on the CPU notes which ways its branches, loops, block indices and tile
indices went (``Execution.facts``). A version is checked as far as these went every way: a loop that
never ran twice hides a mistake in its second turn, an index that was always 0 one in its use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mla_var3.runtime.execution import Execution, Facts

#: The ways that each kind of fact has to go, and what it means where one is missing.
WANTED = {
    "block": {"next": "never had a second block", "later": "never had a third block"},
    "tile": {"next": "was always at tile 0", "later": "never went beyond tile 1"},
    "edge": {"whole": "never had a whole tile", "ragged": "never had a ragged tile"},
    "loop": {"many": "never ran more than once", "none": "never ran zero times"},
    "fixed loop": {"many": "never ran more than once"},
    "branch": {"taken": "was never taken", "passed": "was always taken"},
    "comparison": {"held": "never held", "failed": "always held"},
    "minimum": {"first": "never was its first operand", "second": "never was its second operand"},
    "maximum": {"first": "never was its first operand", "second": "never was its second operand"},
    "remainder": {"beyond": "never wrapped"},
    "quotient": {"later": "never exceeded its first value"},
    "clusters": {"later": "never had a second cluster"},
    "jump": {"taken": "was never taken", "passed": "was always taken"},
    "turn": {"taken": "never ran more than once"},
    "skip": {"taken": "never ran zero times"},
}
#: Kinds that have to take more than one value.
VARIED = {"extent": "was always {}", "argument": "was always {}"}


def joined(parts: Iterable[Facts]) -> Facts:
    """Facts of several runs as one."""
    whole: Facts = {}
    for facts in parts:
        for key, ways in facts.items():
            whole.setdefault(key, set()).update(ways)
    return whole


def of(executions: Iterable[Execution]) -> Facts:
    """Facts of several launches."""
    return joined(execution.facts for execution in executions)


def gaps(facts: Facts) -> list[str]:
    """What no run went through, one phrase each."""
    return sorted(
        phrase for (kind, place), ways in facts.items() for phrase in _of(kind, place, ways)
    )


def _of(kind: str, place: str, ways: set[str]) -> Iterator[str]:
    if kind in VARIED and len(ways) == 1:
        yield f"{kind} {place} {VARIED[kind].format(*ways)}"
    wanted = WANTED.get(kind, {})
    for way, missing in wanted.items():
        if way not in ways:
            yield f"{kind} {place} {missing}"
            return
