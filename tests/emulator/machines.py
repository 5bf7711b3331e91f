"""Machines that are ready for their first cluster, for tests of their parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mla_var3.emulator.count import Counts
from mla_var3.emulator.diagnostics import Reporter
from mla_var3.emulator.machine import Machine
from mla_var3.emulator.options import Options
from mla_var3.emulator.program import Program
from mla_var3.emulator.regions import GlobalMemory, Region
from mla_var3.gpuless.ptx import parse
from tests.emulator.events import Snippet

NOTHING = Snippet({"none": ""})


def machine(
    block: tuple[int, int, int] = (64, 1, 1),
    cluster: tuple[int, int, int] = (1, 1, 1),
    grid: tuple[int, int, int] = (4, 4, 4),
    snippet: Snippet = NOTHING,
    dynamic: int = 0,
    regions: Sequence[Region] = (),
    **options: Any,
) -> Machine:
    """One that is ready for its first cluster."""
    program, how = Program(parse(snippet.text())), Options(**options)
    reporter = Reporter(program.kernel, how.schedule, how.model.name)
    memory = GlobalMemory(regions, reporter, how.model, 4, how.checks)
    counts = Counts(program, how.counting)
    made = Machine(program, grid, block, cluster, dynamic, bytes(64), memory, reporter, how, counts)
    made.start((0, 0, 0), 0)
    return made
