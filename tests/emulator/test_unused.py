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


@pytest.mark.parametrize(
    ("count", "excusable"), [(0, False), (1, True), (2, True), (1 << 16, True), (65537, False)]
)
def test_reads_are_excused_from_the_first_to_the_last_that_is_kept(
    count: int, excusable: bool
) -> None:
    reads = RacingReads()
    if count:
        reads.note((1, 0, 0), np.arange(count), np.zeros(count, np.int64))
    assert (reads.count, reads.excusable) == (count, excusable)
    assert len(reads.writers[1, 0, 0]) == (count if excusable else 0)


#: Two warps read vectors of the same words, which the first writes back one more; what the second
#: has of element ``used`` is kept.
VECTORS = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 x, .param .u64 y)
{{
.reg .pred %p<8>; .reg .b16 %h<9>; .reg .b32 %r<16>; .reg .b64 %d<16>;
ld.param.u64 %d0, [x]; ld.param.u64 %d1, [y];
mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 31;
mul.wide.u32 %d2, %r1, {size}; add.u64 %d3, %d0, %d2; add.u64 %d4, %d1, %d2;
setp.lt.u32 %p0, %r0, 32;
ld.global.v{count}.u{bits} {{{registers}}}, [%d3];
{adds}
@%p0 st.global.u{bits} [%d3+{at}], {written};
{more}
ret;
}}
"""


@pytest.mark.parametrize("width", [2, 4, 8])
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("used", [None, 0, 1])
@pytest.mark.parametrize("seed", [None, 3])
def test_an_element_of_a_vector_that_is_dropped_is_no_finding(
    width: int, count: int, used: int | None, seed: int | None
) -> None:
    """Of a vector that races the second warp may use nothing, whichever element is written."""
    if width * count > 16:
        return
    bank = {2: "%h", 4: "%r", 8: "%d"}[width]
    first = {2: 1, 4: 4, 8: 5}[width]
    registers = [f"{bank}{first + i}" for i in range(count)]
    bits, size = 8 * width, width * count
    used_at = None if used is None else (0 if used == 0 else count - 1)
    more = "" if used_at is None else f"@!%p0 st.global.u{bits} [%d4], {registers[used_at]};"
    text = VECTORS.format(
        size=size, count=count, bits=bits, registers=", ".join(registers),
        adds=f"add.u{bits} {registers[-1]}, {registers[-1]}, 1;", at=size - width,
        written=registers[-1], more=more,
    )  # fmt: skip
    kind = np.dtype(f"u{width}")
    room = np.zeros(32 * size + 16, np.uint8)
    x = room[-room.ctypes.data % 16 :][: 32 * size].view(kind)
    x[:] = np.arange(32 * count)
    after, y = x.copy().reshape(32, count), np.zeros(32 * count, kind)
    done = launch(text, [x, y], 1, 64, options=Options(seed=seed))
    races = [d.kind for d in done.diagnostics]
    assert races == ([] if used is None else ["global-race"])
    after[:, -1] += 1
    assert x.reshape(32, count).tolist() == after.tolist()
