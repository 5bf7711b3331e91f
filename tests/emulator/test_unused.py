"""Racing reads of global memory whose values have no effect, as of threads that hold copies."""

from __future__ import annotations

import numpy as np
import pytest

from mla_var3.emulator import unused
from mla_var3.emulator.launcher import launch
from mla_var3.emulator.options import STRICT, Options
from mla_var3.emulator.unused import RacingReads

#: Two warps read the same words, add 1, and the first writes them back; ``more`` is done with what
#: the second has.
KERNEL = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 x, .param .u64 y)
{{
.reg .pred %p<8>; .reg .b32 %r<16>; .reg .b64 %d<16>;
ld.param.u64 %d0, [x]; ld.param.u64 %d1, [y];
mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 31; mov.u32 %r9, %ctaid.x;
mad.lo.u32 %r2, %r9, 32, %r1;
mul.wide.u32 %d2, %r2, 4; add.u64 %d3, %d0, %d2; add.u64 %d4, %d1, %d2;
setp.lt.u32 %p0, %r0, 32;
{first}
ld.global.u32 %r3, [%d3];
add.u32 %r4, %r3, 1;
@%p0 st.global.u32 [%d3], %r4;
{more}
ret;
}}
"""
USED = "@!%p0 st.global.u32 [%d4], %r4;"


def run(
    more: str = "", first: str = "", grid: int = 1, block: int = 64, **named: object
) -> tuple[list[str], np.ndarray, np.ndarray]:
    x, y = np.arange(32 * grid, dtype=np.uint32), np.zeros(32 * grid, np.uint32)
    text = KERNEL.format(more=more, first=first)
    done = launch(text, [x, y], grid, block, options=Options(**named))  # type: ignore[arg-type]
    assert done.reads is None
    return [d.kind for d in done.diagnostics], x, y


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize(("grid", "jobs"), [(1, 1), (64, 1), (64, 2)])
def test_a_copy_that_is_dropped_is_no_finding(seed, grid, jobs):
    found, x, _ = run(grid=grid, jobs=jobs, seed=seed)
    assert found == []
    assert x.tolist() == list(range(1, 32 * grid + 1))


def test_the_strict_model_reports_it():
    found, x, _ = run(model=STRICT)
    assert found == ["global-race"]
    assert x.tolist() == list(range(1, 33))


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_copy_that_is_used_is_a_race(seed):
    found, x, y = run(USED, seed=seed)
    assert found == ["global-race"]
    # What is left behind is of the first run.
    assert x.tolist() == list(range(1, 33))
    assert set(y.tolist()) <= set(range(1, 34))


def test_a_use_that_only_some_numbers_show_is_one():
    used = "setp.gt.u32 %p1, %r3, 1000; @!%p1 bra DONE; @!%p0 st.global.u32 [%d4], %r4; DONE:"
    assert run(used)[0] == ["global-race"]


def test_another_reader_does_not_hide_behind_one_that_drops_what_it_read():
    """A third warp uses the word; of several readers a write is held against the last."""
    other = (
        "setp.lt.u32 %p2, %r0, 64; @%p2 bra NEXT; ld.global.u32 %r5, [%d3];"
        "st.global.u32 [%d4], %r5; NEXT:"
    )
    found, _, y = run(first=other, block=96)
    assert found == ["global-race"]
    assert y.tolist() == list(range(32))


def test_writes_that_race_are_no_reads():
    both = "@!%p0 st.global.u32 [%d3], %r4;"
    assert set(run(both)[0]) == {"global-race"}


def test_ordered_reads_are_used_as_they_are():
    later = "bar.sync 0; @!%p0 ld.global.u32 %r6, [%d3]; @!%p0 st.global.u32 [%d4], %r6;"
    found, x, y = run(later)
    assert found == []
    assert y.tolist() == x.tolist()


def test_too_many_reads_are_not_excused(monkeypatch):
    monkeypatch.setattr(unused, "MOST", 31)
    assert run()[0] == ["global-race"]


def test_which_reads_are_filled():
    reads = RacingReads()
    reads.note((1, 7, 4096), np.array([3, 5]), np.array([0, 2]))
    granules = np.array([[3, 4], [4, 5], [6, 7], [3, 4]])
    warps = np.array([1, 1, 1, 0])
    filled, plain = reads.filled((1, 7, 4096), granules, warps)
    assert filled.tolist() == [True, True, False, False]
    assert plain.tolist() == [False, False, True, False]
    filled, plain = reads.filled((2, 7, 4096), granules, warps)
    assert (filled.any(), plain.all()) == (False, True)
    other = RacingReads()
    other.note((2, 7, 4096), np.array([3]), np.array([0]))
    reads.merge(other)
    assert reads.count == 3
    assert reads.filled((2, 7, 4096), granules, warps)[0].tolist() == [True, False, False, False]
