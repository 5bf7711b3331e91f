"""Coverage of a check: branches, loops and indices of the kernel that its problems never exercised.

Whoever runs a kernel on the CPU notes which ways its branches, loops, block indices and tile
indices went (``Execution.facts``). A version is checked as far as these went every way: a loop that
never ran twice hides a mistake in its second turn, an index that was always 0 one in its use.
"""

from __future__ import annotations

from collections.abc import Iterable

from mla_var3.runtime.execution import Execution, Facts

#: The ways that each kind of fact has to go, and what it means where one is missing.
WANTED = {
    "block": {"later": "never had a second block"},
    "tile": {"later": "was always at tile 0"},
    "loop": {"many": "never ran more than once"},
    "branch": {"taken": "was never taken", "passed": "was always taken"},
    "clusters": {"later": "never had a second cluster"},
    "jump": {"taken": "was never taken", "passed": "was always taken"},
}


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
    found = []
    for (kind, place), ways in sorted(facts.items()):
        missing = WANTED.get(kind, {}).keys() - ways
        found += [f"{kind} {place} {WANTED[kind][way]}" for way in sorted(missing)]
    return found
