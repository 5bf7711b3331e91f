# Tables of places.
"""Which operations on tensor memory race: units of one warp and of two, waits, fences, models."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from mla_var3.emulator.clocks import TENSOR, TENSOR_LOAD, TENSOR_STORE, Clocks, Event
from mla_var3.emulator.diagnostics import Reporter
from mla_var3.emulator.machine import Machine  # noqa: F401  # The units import each other.
from mla_var3.emulator.options import MODELS, STRICT, Options
from mla_var3.emulator.program import Program
from mla_var3.emulator.units.tcgen05.shadow import (
    AFTER_READ,
    AFTER_SYNC,
    AFTER_WRITE,
    BEFORE_SYNC,
    BLOCKS,
    ROOM,
    Place,
    TensorShadow,
    _granules,
    _words,
)
from mla_var3.gpuless.ptx import parse
from tests.emulator.events import Snippet
from tests.emulator.tcgen05 import ACCUMULATOR, AFTER, BEFORE

KERNEL = Snippet({f"step {i}": "add.u32 %r2, %r1, 1;" for i in range(12)})
HERE = Place(0, slice(0, 8), slice(4, 6))
NAMES = {TENSOR: "tcgen05", TENSOR_LOAD: "tcgen05.ld", TENSOR_STORE: "tcgen05.st"}


class Memory:
    """The tensor memory of a CTA of four warps (or of two CTAs)."""

    def __init__(self, model: str = "default", ctas: int = 1) -> None:
        program = Program(parse(KERNEL.text()))
        self.reporter = Reporter(program.kernel, "", model)
        self.clocks = Clocks(4 * ctas, 4)
        self.shadow = TensorShadow(ctas, self.clocks, self.reporter, MODELS[model])

    def do(
        self,
        unit: int,
        warp: int,
        pc: int,
        form: int = 0,
        at: Place = HERE,
        writes: bool | None = None,
    ) -> Event:
        """An operation: loads read, stores and products write."""
        event = self.shadow.issue(unit, warp)
        if unit == TENSOR_LOAD if writes is None else not writes:
            self.shadow.read(at, event, pc, form)
        else:
            self.shadow.write(at, event, pc, form)
        return event

    def wait(self, event: Event, before: bool = True) -> None:
        """Its warp waits for it, and makes a fence for others."""
        self.shadow.finish(event.warp, event.chain, event.number)
        if before:
            self.shadow.before(event.warp)

    def meet(self, first: int, second: int, after: bool = True) -> None:
        """Two warps meet at a barrier, and the second makes a fence."""
        vector = self.clocks.vector()
        self.clocks.publish(sorted([first, second]), vector)
        self.clocks.tick([first, second])
        self.clocks.join(sorted([first, second]), vector)
        if after:
            self.shadow.after(second)

    @property
    def found(self) -> list[tuple[str, int, int | None]]:
        return [(d.kind, d.at.pc, d.other and d.other.pc) for d in self.reporter.diagnostics]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("first", "second"), list(itertools.product((TENSOR, TENSOR_LOAD, TENSOR_STORE), repeat=2))
)
def test_nothing_but_a_wait_orders_two_units(first: int, second: int, model: str) -> None:
    """Of the same warp: what it issued itself it has not waited for."""
    m = Memory(model)
    filled = m.do(TENSOR_STORE, 0, 0)
    m.wait(filled)
    m.shadow.after(0)
    event = m.do(first, 0, 1, 7)
    m.do(second, 0, 2, 7)
    both_read = first == second == TENSOR_LOAD
    in_order = first == second == TENSOR
    assert m.found == ([] if both_read or in_order else [("race", 2, 1)])
    if m.found:
        (one,) = m.reporter.diagnostics
        before, after = f"{NAMES[first]} of warp 0", f"{NAMES[second]} of warp 0"
        place = "tensor memory lanes 0 to 15, column 4"
        if first == TENSOR_LOAD:
            assert one.message == f"{place} is still read by {before} when {after} has it written"
            assert one.missing == AFTER_READ[first]
        else:
            what = "read" if second == TENSOR_LOAD else "written"
            assert one.message == (
                f"{place} is written by {before} and {what} by {after}, and nothing orders the two"
            )
            assert one.missing == AFTER_WRITE[first]
        assert (one.who, one.other_who) == (after, before)
    m.reporter.found.clear()
    # After a wait it is over: products are waited for by a commit's barrier.
    again = Memory(model)
    again.wait(again.do(TENSOR_STORE, 0, 0))
    event = again.do(first, 0, 1, 7)
    if first == TENSOR:
        again.clocks.finish(0, event.chain, event.number)
        again.shadow.after(0)
    else:
        again.wait(event)
    again.do(second, 0, 2, 7)
    assert again.found == []


@pytest.mark.parametrize(
    ("before", "after", "missing"),
    [
        (True, True, None),
        (False, True, BEFORE_SYNC),
        (True, False, AFTER_SYNC),
        (False, False, BEFORE_SYNC),
    ],
)
def test_strict_asks_for_a_fence_on_both_sides_of_a_barrier(
    before: bool, after: bool, missing: str | None
) -> None:
    for unit, model in itertools.product((TENSOR_LOAD, TENSOR_STORE), MODELS):
        m = Memory(model)
        m.wait(m.do(TENSOR_STORE, 0, 0))
        m.wait(m.do(unit, 0, 1), before)
        m.meet(0, 1, after)
        m.do(TENSOR_STORE, 1, 2)
        if model == "default" or missing is None:
            assert m.found == []
        else:
            # The first store was told of, but not taken in either.
            first = {0: AFTER_SYNC} if unit == TENSOR_LOAD and not after else {}
            found = {d.other.pc: d.missing for d in m.reporter.diagnostics}
            assert found == first | {1: missing}


@pytest.mark.parametrize(
    ("first", "second", "pipes"),
    [(3, 3, True), (3, 5, False), (0, 3, True), (3, 0, False), (0, 0, True), (5, 5, True)],
)
def test_strict_runs_products_of_one_form_in_order_and_copies_before_products(
    first: int, second: int, pipes: bool
) -> None:
    for model in MODELS:
        for write in (False, True):
            m = Memory(model)
            m.do(TENSOR, 0, 1, first)
            m.do(TENSOR, 0, 2, second, writes=write)
            assert m.found == ([] if pipes or model == "default" else [("race", 2, 1)])


@pytest.mark.parametrize(
    ("first", "second", "pipes"), [(3, 3, True), (3, 5, False), (0, 3, True), (3, 0, False)]
)
def test_strict_asks_the_same_of_what_a_product_reads(first: int, second: int, pipes: bool) -> None:
    m = Memory("strict")
    m.wait(m.do(TENSOR_STORE, 0, 0))
    m.do(TENSOR, 0, 1, first, writes=False)
    m.do(TENSOR, 0, 2, second)
    assert m.found == ([] if pipes else [("race", 2, 1)])


@pytest.mark.parametrize("model", MODELS)
def test_a_load_is_not_piped_behind_a_product(model: str) -> None:
    m = Memory(model)
    m.do(TENSOR, 0, 1, 3)
    m.do(TENSOR_LOAD, 0, 2, 3)
    assert m.found == [("race", 2, 1)]


@pytest.mark.parametrize("known", [0, 1, 2])
def test_products_that_a_warp_knows_to_be_issued_run_before_its_own(known: int) -> None:
    """Warp 0 issues two; warp 1 meets it before the first, between the two, or behind both."""
    m = Memory()
    if known == 0:
        m.meet(0, 1)
    m.do(TENSOR, 0, 1, 3)
    if known == 1:
        m.meet(0, 1)
    m.do(TENSOR, 0, 2, 3, at=Place(0, slice(0, 8), slice(6, 7)))
    if known == 2:
        m.meet(0, 1)
    m.do(TENSOR, 1, 3, 3)
    m.do(TENSOR, 1, 4, 3, at=Place(0, slice(0, 8), slice(6, 7)))
    assert m.found == [("race", 3, 1), ("race", 4, 2)][known:]


def test_what_a_warp_knows_of_another_says_nothing_of_a_third() -> None:
    m = Memory()
    m.do(TENSOR, 0, 1, 3)
    m.do(TENSOR, 2, 2, 3, at=Place(0, slice(0, 8), slice(8, 9)))
    m.meet(0, 1)
    m.do(TENSOR, 1, 3, 3, at=Place(0, slice(0, 8), slice(8, 9)))
    m.do(TENSOR, 1, 4, 3)
    assert m.found == [("race", 3, 2)]


def test_numbers_of_products_go_on_in_the_next_cluster() -> None:
    m = Memory()
    for _ in range(3):
        m.do(TENSOR, 0, 1, 3)
    chain, number = m.shadow.last(TENSOR, 0)
    assert number == 3
    m.clocks.start()
    m.shadow.start()
    m.do(TENSOR, 0, 5, 3)
    assert m.shadow.last(TENSOR, 0) == (chain, 4)
    m.do(TENSOR, 1, 6, 3)
    assert m.found == [("race", 6, 5)]
    m.reporter.found.clear()
    m.meet(0, 2)
    m.do(TENSOR, 2, 7, 3)
    assert m.found == [("race", 7, 6)]


def test_places_beside_each_other_do_not_race() -> None:
    for other in (
        Place(0, slice(0, 8), slice(6, 7)),
        Place(0, slice(0, 8), slice(3, 4)),
        Place(1, slice(0, 8), slice(4, 6)),
    ):
        m = Memory(ctas=2)
        m.do(TENSOR_STORE, 0, 1)
        m.do(TENSOR_STORE, 1, 2, at=other)
        assert m.found == []
    m = Memory()
    m.do(TENSOR_STORE, 0, 1, at=Place(0, slice(0, 8, 2), slice(4, 5)))
    m.do(TENSOR_STORE, 1, 2, at=Place(0, slice(1, 8, 2), slice(4, 5)))
    assert m.found == []
    m.do(TENSOR_STORE, 1, 3, at=Place(0, slice(6, 8), slice(4, 5)))
    assert m.found == [("race", 3, 1)]
    assert m.reporter.diagnostics[0].message.startswith(
        "tensor memory lanes 96 to 111, column 4 is written"
    )


def test_what_nothing_has_written_is_not_read() -> None:
    m = Memory()
    m.wait(m.do(TENSOR_STORE, 0, 1))
    m.do(TENSOR_LOAD, 0, 2)
    assert m.found == []
    m.do(TENSOR_LOAD, 0, 3, at=Place(0, slice(2, 4), slice(4, 7)))
    (one,) = m.reporter.diagnostics
    assert (one.kind, one.at.pc, one.other) == ("uninitialized-read", 3, None)
    assert (
        one.message == "tensor memory lanes 32 to 47, column 6 is read and nothing has written it"
    )
    assert (one.who, one.missing) == (
        "tcgen05.ld of warp 0",
        "a write, or a product that does not accumulate",
    )


def test_an_allocation_ends_when_all_is_over() -> None:
    for unit, waited in itertools.product((TENSOR_LOAD, TENSOR_STORE), (True, False)):
        m = Memory()
        m.wait(m.do(TENSOR_STORE, 0, 1))
        event = m.do(unit, 0, 2)
        if waited:
            m.wait(event)
        m.shadow.end(HERE, 0, 3)
        assert m.found == ([] if waited else [("race", 3, 2)])
        if not waited:
            assert "deallocated" in m.reporter.diagnostics[0].message
        m.reporter.found.clear()
        m.do(TENSOR_LOAD, 0, 4)
        assert [k for k, _, _ in m.found] == ["uninitialized-read"]


@pytest.mark.parametrize("form", [0, 3])
def test_scale_factors_are_no_accumulator(form: int) -> None:
    m = Memory()
    m.do(TENSOR, 0, 1, form)
    event = m.shadow.issue(TENSOR, 1)
    m.shadow.scales(Place(0, slice(0, 8), slice(5, 6)), event, 2)
    if not form:  # A copy.
        assert m.found == []
        return
    (one,) = m.reporter.diagnostics
    assert (one.kind, one.at.pc, one.other.pc) == ("descriptor", 2, 1)
    assert one.message == (
        "tensor memory lanes 0 to 15, column 5 is read for scale factors by tcgen05 of warp 1, and "
        "a product has written it"
    )
    assert (one.who, one.other_who) == ("tcgen05 of warp 1", "tcgen05 of warp 0")
    assert one.missing == "columns of their own for accumulators and scale factors"
    m.reporter.found.clear()
    m.shadow.start()  # Nothing is written any more.
    m.shadow.scales(Place(0, slice(0, 8), slice(5, 6)), event, 2)
    assert m.found == []


def test_what_warps_know_grows_with_the_chains() -> None:
    m = Memory("strict")
    event = m.do(TENSOR_STORE, 0, 1)
    m.wait(event)
    m.shadow.fenced[2, 3] = 9
    for i in range(m.clocks.room):
        m.clocks.chain(i, TENSOR)
    assert m.shadow.fenced.shape == (4, m.clocks.room)
    assert m.shadow.fenced[2, 3] == 9
    m.do(TENSOR_LOAD, 0, 2)
    assert m.found == []


@pytest.mark.parametrize("cta", [0, 1])
@pytest.mark.parametrize("blocks", [(0, 8, 1), (2, 4, 1), (0, 8, 2), (1, 8, 2)])
def test_granules_are_blocks_of_lanes_column_by_column(
    cta: int, blocks: tuple[int, int, int]
) -> None:
    found = _granules(cta, *blocks, 10, 13)
    listed = np.arange(found.start, found.stop) if isinstance(found, slice) else found
    wanted = [(cta * ROOM + c) * BLOCKS + b for c in range(10, 13) for b in range(*blocks)]
    assert listed.tolist() == wanted
    assert isinstance(found, slice) is (blocks == (0, 8, 1))
    place = Place(cta, slice(*blocks), slice(10, 13))
    for i in range(len(wanted)):
        column, block = divmod(wanted[i] - cta * ROOM * BLOCKS, BLOCKS)
        assert (
            _words(place, i)
            == f"tensor memory lanes {16 * block} to {16 * block + 15}, column {column}"
        )


# A kernel whose two warps add to one accumulator -------------------------------------------------
def by_two_warps(between: str) -> Snippet:
    steps = ACCUMULATOR.steps
    return replace(
        ACCUMULATOR,
        steps=steps
        | {
            "where": steps["where"].replace(" @%p1 bra ISSUED;", ""),
            "first": f"@!%p1 {steps['first']} {BEFORE} {between} {AFTER} setp.ne.u32 %p6, %r1, 32;",
            "more": f"@!%p6 {steps['more']}",
            "commit": f"@!%p6 {steps['commit']}",
        },
    )


def test_a_product_behind_a_barrier_runs_behind_that_of_another_warp() -> None:
    kernel = by_two_warps("bar.sync 0;")
    _, done = kernel.run()
    assert done.diagnostics == []
    _, done = kernel.run(options=Options(model=STRICT))
    race = ("race", kernel.line("more"), kernel.line("first"))
    assert [(d.kind, d.at.line, d.other.line) for d in done.diagnostics] == [race]
    apart = by_two_warps("")
    _, done = apart.run()
    assert race in [(d.kind, d.at.line, d.other and d.other.line) for d in done.diagnostics]
