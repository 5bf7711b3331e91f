"""Columns of tensor memory: who gets which, for how long, and which lanes a warp reaches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mla_var3.emulator.machine import Machine
from mla_var3.emulator.units.tcgen05.memory import Held, pattern
from mla_var3.errors import EmulatorError
from tests.emulator.machines import machine
from tests.emulator.tcgen05 import ACCUMULATOR

TO = 0x800
WARP = slice(0, 32)


def ready(ctas: int = 1, **options: Any) -> tuple[Machine, Any]:
    m = machine((128, 1, 1), (ctas, 1, 1), snippet=ACCUMULATOR, dynamic=0x1000, **options)
    return m, m.units["tensor_memory"]


def given(m: Machine, cta: int = 0) -> int:
    """The first column that an allocation has put into shared memory."""
    return int(m.shared.views[4][(cta * m.shared.size + TO) // 4])


def owned(unit: Any, cta: int = 0) -> list[int]:
    return np.flatnonzero(unit.owned[cta]).tolist()


def warp(m: Machine, cta: int, own: int = 0) -> slice:
    return slice(cta * 128 + 32 * own, cta * 128 + 32 * own + 32)


def test_the_first_columns_that_are_free_are_taken() -> None:
    m, unit = ready()
    taken = []
    for n in (64, 32, 256, 128, 32):
        assert unit._alloc(WARP, TO, n, False, 3) is True
        taken.append((given(m), n))
    assert taken == [(0, 64), (64, 32), (96, 256), (352, 128), (480, 32)]
    assert owned(unit) == list(range(512))
    assert unit._alloc(WARP, TO, 32, False, 4) is False
    assert unit.allocations == {(0, at): Held(n, 3) for at, n in taken}
    progress = m.progress
    unit.dealloc(np.uint32(64), np.uint32(32), WARP, 5)
    assert (owned(unit), m.progress) == ([c for c in range(512) if not 64 <= c < 96], progress + 1)
    assert unit._alloc(WARP, TO, 64, False, 6) is False
    assert unit._alloc(WARP, TO, 32, False, 6) is True
    assert given(m) == 64
    assert [d.kind for d in m.reporter.diagnostics if d.kind != "race"] == []


@pytest.mark.parametrize("n", [0, 1, 16, 31, 33, 48, 96, 513, 1024])
def test_so_many_columns_are_never_allocated(n: int) -> None:
    _, unit = ready()
    with pytest.raises(
        EmulatorError, match=rf"alloc of {n} columns; a power of two from 32 to 512"
    ):
        unit._alloc(WARP, TO, n, False, 3)


@pytest.mark.parametrize("n", [32, 64, 128, 256, 512])
def test_so_many_columns_are_allocated(n: int) -> None:
    _, unit = ready()
    assert unit._alloc(WARP, TO, n, False, 3)
    assert owned(unit) == list(range(n))


@pytest.mark.parametrize("first", [0, 1, 2, 3])
def test_the_first_of_a_pair_allocates_for_both(first: int) -> None:
    m, unit = ready(4)
    peer = first ^ 1
    assert unit._alloc(warp(m, first), TO, 64, True, 3)
    for cta in range(4):
        assert owned(unit, cta) == (list(range(64)) if cta in (first, peer) else [])
    assert list(unit.promised[peer]) == [0]
    assert unit._alloc(warp(m, first), TO, 32, True, 4)
    assert given(m, first) == 64
    # The other asks: it is given what was taken for it, in order.
    for at in (0, 64):
        assert unit._alloc(warp(m, peer), TO, 64, True, 5)
        assert given(m, peer) == at
    assert owned(unit, peer) == list(range(96))
    assert unit._alloc(warp(m, peer), TO, 32, True, 6)
    assert (given(m, peer), owned(unit, first)) == (96, list(range(128)))


def test_a_pair_needs_the_same_columns_in_both() -> None:
    m, unit = ready(2)
    assert unit._alloc(warp(m, 0), TO, 32, False, 3)
    assert unit._alloc(warp(m, 1), TO, 64, False, 3)
    assert unit._alloc(warp(m, 0), TO, 32, True, 3)
    assert given(m, 0) == 64
    assert unit._alloc(warp(m, 0), TO, 32, False, 3)
    assert given(m, 0) == 32


def test_what_is_given_back_is_what_was_allocated() -> None:
    m, unit = ready(2)
    unit._alloc(warp(m, 0), TO, 64, False, 3)
    unit._alloc(warp(m, 0), TO, 32, False, 3)
    unit._alloc(warp(m, 1), TO, 32, False, 3)
    for at, n, cta, held in (
        (0, 32, 0, "64 at 0 and 32 at 64"),
        (32, 64, 0, "64 at 0 and 32 at 64"),
        (64, 32, 1, "32 at 0"),
    ):
        m.reporter.found.clear()
        unit.dealloc(np.uint32(at), np.uint32(n), warp(m, cta), 7)
        (one,) = m.reporter.diagnostics
        assert one.message == f"tcgen05.dealloc of {n} columns at {at}, and allocated are {held}"
        assert (one.kind, one.at.pc, one.missing) == (
            "tensor-memory-allocation",
            7,
            "the address and the size of the alloc",
        )
        assert one.who == f"warp 0 of CTA {cta} of the cluster"
    assert len(unit.allocations) == 3
    # The lane of an address is not looked at.
    unit.dealloc(np.uint32(64 | 32 << 16), np.uint32(32), warp(m, 0), 7)
    unit.dealloc(np.uint32(0), np.uint32(32), warp(m, 1), 7)
    assert unit.allocations == {(0, 0): Held(64, 3)}
    m.reporter.found.clear()
    unit.dealloc(np.uint32(0), np.uint32(32), warp(m, 1), 7)
    assert m.reporter.diagnostics[0].message.endswith("columns at 0, and allocated are none")
    m.reporter.found.clear()
    unit.finish()
    (left,) = m.reporter.diagnostics
    assert (
        left.message == "CTA 0 of the cluster ends with 64 columns of tensor memory at 0 allocated"
    )
    assert (left.kind, left.at.pc) == ("tensor-memory-left", 3)
    assert left.other.pc == len(m.program.kernel.instructions) - 1


def test_the_right_to_allocate_is_given_up_for_a_cta() -> None:
    m, unit = ready(2)
    unit.relinquish(warp(m, 1))
    unit._alloc(warp(m, 0), TO, 32, False, 3)
    assert "tensor-memory-allocation" not in [d.kind for d in m.reporter.diagnostics]
    unit._alloc(warp(m, 1), TO, 32, False, 4)
    (one,) = [d for d in m.reporter.diagnostics if d.kind == "tensor-memory-allocation"]
    assert one.message == "tcgen05.alloc after the CTA has given up its right to allocate"
    assert (one.at.pc, one.who) == (4, "warp 0 of CTA 1 of the cluster")


def test_a_new_cluster_holds_nothing() -> None:
    m, unit = ready()
    unit._alloc(WARP, TO, 32, True, 3)
    unit.relinquish(WARP)
    unit.words[:] = 0
    m.start((1, 0, 0), 1)
    assert (owned(unit), unit.allocations, unit.relinquished, unit.promised) == ([], {}, set(), {})
    assert set(unit.words.ravel().tolist()) == {0x7FBADBAD}


@pytest.mark.parametrize("own", range(4))
@pytest.mark.parametrize("shape", ["32x32b", "16x64b", "16x128b", "16x256b"])
def test_a_warp_reaches_the_lanes_of_its_quarter_alone(shape: str, own: int) -> None:
    m, unit = ready(2)
    unit.owned[:] = True
    for cta in (0, 1):
        for lane in range(0, 128, 8):
            m.reporter.found.clear()
            window = unit._window(shape, 2, 0, lane << 16 | 40, warp(m, cta, own), 5, "ld")
            fine = lane == 32 * own or (lane == 32 * own + 16 and shape != "32x32b")
            base = lane if fine else 32 * own
            rows, columns, wide = pattern(shape, 2, 0)
            assert (window.lanes == base + rows).all()
            assert (window.columns == 40 + columns).all()
            high = 2 if shape == "32x32b" else 1
            (place,) = window.places
            assert (place.cta, place.blocks) == (cta, slice(base // 16, base // 16 + high))
            assert place.columns == slice(40, 40 + wide)
            said = [d.message for d in m.reporter.diagnostics]
            who = f"warp {own} of CTA {cta} of the cluster"
            # By default lane 0 names the own quarter, and so do 32 and 64 in the fourth warp.
            assert said == ([] if fine or lane | 32 * own == 32 * own else [
                f"tcgen05.ld by {who} at lane {lane}, and a warp of this number reaches lanes "
                f"{32 * own} to {32 * own + 31} only"
            ])  # fmt: skip


def test_columns_that_are_not_allocated_are_named() -> None:
    m, unit = ready(2)
    unit._alloc(warp(m, 1), TO, 32, False, 3)
    m.reporter.found.clear()
    for first, fine in ((0, True), (28, True), (29, False), (31, False), (32, False)):
        m.reporter.found.clear()
        unit._window("32x32b", 4, 0, first, warp(m, 1), 5, "st")
        said = [d.message for d in m.reporter.diagnostics]
        assert said == ([] if fine else [
            f"tcgen05.st touches columns {first} to {first + 3} of the tensor memory of CTA 1 of "
            "the cluster, and not all are allocated"
        ])  # fmt: skip
    with pytest.raises(EmulatorError, match=r"tcgen05\.ld reaches column 1025 of 512"):
        unit._window("32x32b", 4, 0, 1021, warp(m, 1), 5, "ld")
    unit.owned[:] = True
    unit._window("32x32b", 4, 0, 1020, warp(m, 1), 5, "ld")
    window = unit._window("16x32bx2", 2, 8, 4, warp(m, 0), 5, "ld")
    assert [p.columns for p in window.places] == [slice(4, 6), slice(12, 14)]


def test_threads_of_each_warp_have_a_count_of_their_own() -> None:
    _, unit = ready()
    counts = np.repeat([5, 6, 7, 8], 32)
    found = list(unit._warps(slice(0, 128), counts))
    assert found == [
        (slice(32 * w, 32 * w + 32), slice(32 * w, 32 * w + 32), 5 + w) for w in range(4)
    ]
    ids = np.r_[32:64, 96:128]
    assert list(unit._warps(ids, np.uint32(9))) == [
        (slice(32, 64), slice(0, 32), 9), (slice(96, 128), slice(32, 64), 9),
    ]  # fmt: skip


def test_what_is_stored_is_loaded() -> None:
    """Whole words, halves of two columns in one register, and a register's halves in two."""
    m, unit = ready()
    unit.owned[:] = True
    m.r = np.zeros((8, m.threads), np.uint32)
    values = [np.arange(32, dtype=np.uint32) + (i << 20 | i << 8) for i in range(4)]
    rows = np.arange(4)
    unit.store(values, "32x32b", False, 0, np.uint32(8), WARP, 1)
    assert (unit.words[0, :32, 8:12] == np.stack(values, 1)).all()
    unit.load(rows, "32x32b", False, 0, np.uint32(8), WARP, 2)
    assert (m.r[:4, :32] == np.stack(values)).all()
    unit.load(rows[:2], "32x32b", True, 0, np.uint32(8), WARP, 3)
    low = np.stack(values) & 0xFFFF
    assert (m.r[:2, :32] == (low[0::2] | low[1::2] << 16)).all()
    unit.store(values[:2], "32x32b", True, 0, np.uint32(16), WARP, 4)
    halves = [h for v in values[:2] for h in (v & 0xFFFF, v >> 16)]
    assert (unit.words[0, :32, 16:20] == np.stack(halves, 1)).all()
    assert not m.r[:, 32:].any()
