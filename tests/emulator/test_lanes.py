"""Random programs whose lanes part and meet, against threads that run one by one."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mla_var3.emulator.launcher import launch
from mla_var3.emulator.options import Options
from tests.emulator.lanes import Context, Programs
from tests.emulator.steps import PREDICATES, REGISTERS
from tests.emulator.together import ALIKE, COUNTERS, OWN, Lane, Run, run_all

DEPTH = 3
ROWS = REGISTERS + PREDICATES + ALIKE + 2 * OWN


@dataclass
class Drawn:
    """A kernel, what it is given, and what it does.

    Attributes:
        values: Registers, then what is alike in a warp [rows, threads].
        cells: Words of global memory of each thread [threads, OWN].
    """

    text: str
    run: Run
    values: NDArray[np.uint32]
    cells: NDArray[np.uint32]

    def wanted(self) -> tuple[NDArray[np.uint32], ...]:
        """What each thread has at the end, its words of global memory, and the counters."""
        counters = {space: [0] * COUNTERS for space in ("shared", "global")}
        n = self.values.shape[1]
        threads = []
        for i, column in enumerate(self.values.T.tolist()):
            r, x = column[:REGISTERS], column[REGISTERS:]
            p = [a < b for a, b in itertools.pairwise(r[: PREDICATES + 1])]
            cells = self.cells[i].tolist()
            threads.append(Lane(r, p, r[:OWN], i, n, x, cells, r[OWN:], counters, {0: 2**32 - 1}))
        run_all(threads, self.run)
        rows = [[*t.r, *t.p, *t.x, *t.words, *t.spots] for t in threads]
        both = [*counters["global"], *counters["shared"]]
        return tuple(
            np.array(part, np.uint64).astype(np.uint32)
            for part in (np.transpose(rows), [t.cells for t in threads], both)
        )

    def got(self, seed: int | None) -> tuple[list[Any], tuple[NDArray[np.uint32], ...]]:
        """What is reported and what comes out in an order of the warps."""
        n = self.values.shape[1]
        out, cells = np.zeros((ROWS, n), np.uint32), self.cells.copy()
        counters = np.zeros(2 * COUNTERS, np.uint32)
        given = [self.values, out, cells, counters]
        done = launch(self.text, given, 1, n, options=Options(seed=seed, max_steps=100_000))
        return done.diagnostics, (out, cells, counters)


def drawn(seed: int) -> Drawn:
    """The program of a seed."""
    programs = Programs(seed)
    n = 32 * programs.draw.choice([1, 2, 3, 4, 6])
    body, run = programs.block(DEPTH, Context("block", 0))
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 1 << 32, (REGISTERS + ALIKE, n), np.uint64)
    values = np.where(values % 3 == 0, values, values & 63).astype(np.uint32)
    values[REGISTERS:] = np.repeat(values[REGISTERS:, ::32], 32, 1)
    cells = rng.integers(0, 1 << 10, (n, OWN)).astype(np.uint32)
    names = [f"%r{i}" for i in range(REGISTERS)] + [f"%x{i}" for i in range(ALIKE)]

    def put(row: int, name: str) -> str:
        return f"st.global.b32 [%out+{4 * n * row}], {name};"

    kept = [*names[:REGISTERS], *(f"%p{i}" for i in range(PREDICATES)), *names[REGISTERS:]]
    kept += [f"shared [%m+{4 * i}]" for i in range(OWN)]
    kept += [f"local [%local+{4 * i}]" for i in range(OWN)]
    ends = []
    for row, name in enumerate(kept):
        if name.startswith("%p"):
            ends.append(f"selp.b32 %u, 1, 0, {name}; " + put(row, "%u"))
        elif name.startswith("%"):
            ends.append(put(row, name))
        else:
            ends.append(f"ld.{name.replace(' ', '.b32 %u, ')}; " + put(row, "%u"))
    for i in range(COUNTERS):
        at = 4 * (COUNTERS + i)
        ends.append(
            f"@%z ld.shared.b32 %u, [counters+{4 * i}]; @%z st.global.b32 [%counters+{at}], %u;"
        )
    text = f"""
        .version 8.6
        .target sm_90a
        .address_size 64
        .visible .entry kernel(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d) {{
          .reg .b32 %r<{REGISTERS}>, %x<{ALIKE}>, %c<{programs.count}>, %k<{programs.count}>;
          .reg .b32 %t, %n, %u, %v, %y, %m, %b, %h, %board, %first;
          .reg .pred %p<{PREDICATES}>, %z; .reg .b64 %w, %in, %out, %global, %local, %counters;
          .shared .align 16 .b8 words[{4 * OWN * n}]; .shared .align 16 .b8 boards[{4 * n}];
          .shared .align 8 .b8 barriers[{8 * n}]; .shared .align 16 .b8 counters[{4 * COUNTERS}];
          .local .align 16 .b8 spots[{4 * OWN}];
          mov.u32 %t, %tid.x; mov.u32 %n, %ntid.x; and.b32 %first, %t, -32; mov.b32 %k0, -1;
          mul.wide.u32 %w, %t, 4; mov.b32 %h, 0; mov.u32 %board, boards;
          ld.param.u64 %in, [a]; add.s64 %in, %in, %w;
          ld.param.u64 %out, [b]; add.s64 %out, %out, %w;
          ld.param.u64 %global, [c]; mad.wide.u32 %global, %t, {4 * OWN}, %global;
          ld.param.u64 %counters, [d]; mov.u64 %local, spots;
          mov.u32 %m, words; mad.lo.u32 %m, %t, {4 * OWN}, %m;
          mov.u32 %b, barriers; mad.lo.u32 %b, %t, 8, %b;
          {" ".join(f"ld.global.b32 {x}, [%in+{4 * n * i}];" for i, x in enumerate(names))}
          {" ".join(f"st.shared.b32 [%m+{4 * i}], %r{i};" for i in range(OWN))}
          {" ".join(f"st.local.b32 [%local+{4 * i}], %r{OWN + i};" for i in range(OWN))}
          {" ".join(f"setp.lt.u32 %p{i}, %r{i}, %r{i + 1};" for i in range(PREDICATES))}
          setp.eq.u32 %z, %t, 0;
          {" ".join(f"@%z st.shared.b32 [counters+{4 * i}], 0;" for i in range(COUNTERS))}
          mbarrier.init.shared.b64 [%b], 1; fence.mbarrier_init.release.cluster;
          bar.sync 0;
          {chr(10).join(body)}
          bar.sync 0;
          setp.eq.u32 %z, %t, 0;
          {" ".join(ends)}
          ret;
          {chr(10).join(programs.far)}
        }}"""
    return Drawn(text, run, values, cells)


@pytest.mark.parametrize("number", range(8))
def test_lanes_that_part_and_meet_do_what_each_does_alone(number: int) -> None:
    one = drawn(number)
    wanted = one.wanted()
    for seed in (None, 1):
        found, got = one.got(seed)
        assert found == []
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(a, b)
