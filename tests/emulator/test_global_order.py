"""Which two accesses to global memory race, by kind, by who makes them and by what they know."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from mla_var3.emulator.clocks import BULK, GENERIC, GRID, Clocks
from mla_var3.emulator.diagnostics import Reporter
from mla_var3.emulator.options import MODELS
from mla_var3.emulator.order import AFTER_READ, AFTER_WRITE, WITHIN
from mla_var3.emulator.program import Program
from mla_var3.emulator.regions import BETWEEN_CLUSTERS, GlobalMemory, Region
from mla_var3.emulator.touched import Access, GridBefore, Touched
from mla_var3.emulator.words import Words
from mla_var3.gpuless.ptx import parse
from tests.emulator.events import Snippet

KERNEL = Snippet({f"step {i}": "add.u32 %r2, %r1, 1;" for i in range(12)})
BASE = 1 << 20
KINDS = ("read", "write", "atomic")


class Grid:
    """Global memory of one launch, and the warps of two clusters."""

    def __init__(self, model: str = "default", off: int = 0) -> None:
        program = Program(parse(KERNEL.text()))
        self.reporter = Reporter(program.kernel, "", model)
        self.region = Region(BASE + off, 256, "mine", content=bytes(256))
        self.memory = GlobalMemory([self.region], self.reporter, MODELS[model], 4, True)
        self.words = []
        for cluster in (1, 2):
            words = Words(Clocks(4, 2), self.memory.board, lambda s: list(s), 2)
            words.start(cluster)
            self.words.append(words)

    def touch(self, kind: str, cluster: int, warp: int, granules: list[int], pc: int) -> None:
        """Lanes of a warp touch a granule each."""
        words, n = self.words[cluster - 1], len(granules)
        warps = np.full(n, warp)
        number = words.clocks.seen[warps, warps]
        access = Access(
            words, cluster, warps, warps, number, np.arange(n), pc, kind != "read", kind == "atomic"
        )
        self.memory.touch(self.region, np.array(granules), access)

    def load(self, cluster: int, warp: int, granules: list[int], pc: int, number: int = 1) -> None:
        """A bulk copy reads granules."""
        words = self.words[cluster - 1]
        chain = words.clocks.chain("load", BULK)
        access = Access(words, cluster, warp, chain, number, warp, pc, False)
        self.memory.touch(self.region, np.array(granules), access)

    @property
    def clocks(self) -> Clocks:
        return self.words[0].clocks

    def meet(self, first: int, second: int) -> None:
        """Two warps of the first cluster meet at a barrier."""
        vector = self.clocks.vector()
        self.clocks.publish(sorted([first, second]), vector)
        self.clocks.tick([first, second])
        self.clocks.join(sorted([first, second]), vector)


def pairs() -> Iterator[tuple[str, str, str]]:
    yield from itertools.product(KINDS, KINDS, ("self", "met", "apart", "abroad"))


@pytest.mark.parametrize(("first", "second", "relation"), list(pairs()))
def test_two_accesses_race_if_one_writes_and_nothing_orders_them(
    first: str, second: str, relation: str
) -> None:
    grid = Grid()
    grid.touch(first, 1, 0, [3, 4, 5], 2)
    if relation == "met":
        grid.meet(0, 1)
    cluster, warp = {"self": (1, 0), "met": (1, 1), "apart": (1, 1), "abroad": (2, 1)}[relation]
    grid.touch(second, cluster, warp, [7, 5, 4], 6)
    alike = (first, second) in (("read", "read"), ("atomic", "atomic"))
    found = grid.reporter.diagnostics
    if alike or relation == "met":
        assert found == []
        return
    (one,) = found
    if relation == "self":  # Another lane of the warp did the first.
        assert (one.kind, one.at.pc, one.other.pc, one.missing) == ("warp-race", 6, 2, WITHIN)
        assert [x.split(" of ")[0] for x in (one.who, one.other_who)] == [
            "thread 1 (warp 0, lane 1)",
            "thread 2 (warp 0, lane 2)",
        ]
        return
    did, does = "read" if first == "read" else "written", "reads" if second == "read" else "writes"
    before = (
        "cluster 0"
        if relation == "abroad"
        else "thread 2 (warp 0, lane 2) of CTA 0 of the cluster of cluster 0"
    )
    now = "thread 33 (warp 1, lane 1) of CTA 0 of the cluster"
    assert one.message == (
        f"global byte 20 of mine is {did} by {before}, and {now} of cluster {cluster - 1} {does} it"
    )
    assert (one.kind, one.at.pc, one.other.pc, one.times) == ("global-race", 6, 2, 1)
    assert (one.who, one.other_who) == (now, before)
    after = AFTER_READ if first == "read" else AFTER_WRITE
    assert one.missing == (BETWEEN_CLUSTERS if relation == "abroad" else after[GENERIC])


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_beside_each_other_do_not_race(kind: str) -> None:
    grid = Grid()
    grid.touch(kind, 1, 0, [3, 4, 5], 2)
    grid.touch("write", 1, 1, [2, 6], 6)
    grid.touch("write", 2, 1, [0, 1, 7], 6)
    assert grid.reporter.diagnostics == []


@pytest.mark.parametrize("off", [0, 4, 12])
def test_a_place_is_counted_from_the_start_of_its_allocation(off: int) -> None:
    grid = Grid(off=off)
    grid.touch("write", 1, 0, [5], 2)
    grid.touch("write", 2, 0, [5], 2)
    (one,) = grid.reporter.diagnostics
    assert one.message.startswith(f"global byte {20 - off} of mine is written by cluster 0")


def test_the_last_write_is_what_counts() -> None:
    grid = Grid()
    grid.touch("write", 1, 0, [1], 1)
    grid.meet(0, 1)
    grid.touch("write", 1, 1, [1], 2)
    grid.touch("read", 1, 1, [1], 3)
    grid.touch("read", 1, 0, [1], 4)
    assert [(d.at.pc, d.other.pc) for d in grid.reporter.diagnostics] == [(4, 2)]


def test_reads_of_several_clusters_are_of_several_clusters() -> None:
    grid = Grid()
    grid.touch("read", 1, 0, [1], 1)
    grid.touch("read", 2, 0, [1], 2)
    grid.touch("write", 2, 0, [1], 3)
    (one,) = grid.reporter.diagnostics
    assert "is read by several clusters, and thread 0 (warp 0, lane 0)" in one.message


def test_of_reads_of_several_clusters_it_is_not_kept_whose_they_were() -> None:
    """Who has learned of any of them may write there, and of what one cluster did as ever."""
    for more, found in (([], []), ([2], [(4, 3)]), ([3], [])):
        grid, word = Grid(), [BASE + 128]
        first, second = grid.words
        grid.touch("read", 1, 0, [1], 1)
        grid.touch("read", 2, 1, [1], 2)
        first.release(word, np.array([0]), True)
        grid.touch("read", 1, 0, [2], 3)
        second.acquire(word, np.array([3]), True)
        grid.touch("write", 2, 3, [1, *more], 4)
        assert [(d.at.pc, d.other.pc) for d in grid.reporter.diagnostics] == found
        assert all("byte 8" in d.message for d in grid.reporter.diagnostics)


def test_what_a_warp_learned_through_a_word_is_ordered() -> None:
    grid, word = Grid(), [BASE + 128]
    first, second = grid.words
    grid.touch("write", 1, 0, [1], 1)
    first.release(word, np.array([0]), True)
    grid.touch("write", 1, 0, [2], 2)  # After the release.
    second.acquire(word, np.array([3]), True)
    grid.touch("write", 2, 3, [1], 3)
    assert grid.reporter.diagnostics == []
    grid.touch("write", 2, 2, [1], 4)  # Another warp has learned nothing.
    grid.touch("write", 2, 3, [2], 5)
    # The granule was written last by warp 3 of the same cluster.
    assert [(d.at.pc, d.other.pc) for d in grid.reporter.diagnostics] == [(4, 3), (5, 2)]


@pytest.mark.parametrize("model", ["default", "strict"])
@pytest.mark.parametrize("fence", ["none", "writer", "reader", "early"])
def test_a_bulk_copy_reads_what_threads_wrote_past_a_fence(fence: str, model: str) -> None:
    grid = Grid(model)
    if fence == "early":
        grid.clocks.fence(0, ("global",))
    grid.touch("write", 1, 0, [1], 1)
    if fence == "writer":
        grid.clocks.fence(0, ("global",))
    grid.meet(0, 1)
    if fence == "reader":
        grid.clocks.fence(1, ("global",))
    grid.load(1, 1, [0, 1], 5)
    found = grid.reporter.diagnostics
    if fence == "writer" or (fence == "reader" and model == "default"):
        assert found == []
        return
    (one,) = found
    assert (one.kind, one.at.pc, one.other.pc) == ("missing-proxy-fence", 5, 1)
    assert one.message == (
        "global byte 4 of mine was written by thread 0 (warp 0, lane 0) of CTA 0 of the cluster of "
        "cluster 0 and is read by bulk copy of warp 1 of CTA 0 of the cluster without "
        "fence.proxy.async"
    )


def test_a_copy_that_nobody_waits_for_is_still_reading() -> None:
    grid = Grid()
    grid.load(1, 1, [1], 5, number=2)
    grid.touch("write", 1, 1, [1], 6)
    (one,) = grid.reporter.diagnostics
    assert "is read by bulk copy of warp 1" in one.message
    again = Grid()
    again.load(1, 1, [1], 5, number=2)
    again.clocks.finish(1, again.clocks.chain("load", BULK), 2)
    again.touch("write", 1, 1, [1], 6)
    assert again.reporter.diagnostics == []


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("write", "write", "writes"),
        ("write", "read", "reads"),
        ("atomic", "atomic", ""),
        ("read", "write", ""),
        ("write", "atomic", "writes"),
        ("atomic", "write", "writes"),
        ("atomic", "read", "reads"),
        ("read", "read", ""),
    ],
)
def test_processes_are_compared_granule_by_granule(first: str, second: str, said: str) -> None:
    """What one wrote and another touched; the other way round is asked for, too."""
    grid = Grid()
    made = []
    for kind, cluster, pc, granules in ((first, 1, 2, [3, 4]), (second, 2, 7, [9, 4])):
        grid.region.shadow = Touched((grid.region.length >> 2) + 1, 2)
        grid.touch(kind, cluster, 0, granules, pc)
        grid.region.shadow.settle()
        made.append(grid.region.shadow)
    grid.memory.compare(grid.region, *made)
    messages = [d.message for d in grid.reporter.diagnostics]
    assert messages == (
        [f"global byte 16 of mine is written by cluster 0, and cluster 1 {said} it"] if said else []
    )
    assert [(d.at.pc, d.other.pc) for d in grid.reporter.diagnostics] == ([(7, 2)] if said else [])


# A grid that this one overlaps --------------------------------------------------------------------
class Second(Grid):
    """The same memory in the next launch; the first may run still."""

    def __init__(self, first: Grid, model: str = "default") -> None:
        super().__init__(model)
        shadow = first.region.shadow
        assert shadow is not None
        before = GridBefore("early", first.reporter.site, [{BASE + 512: shadow}, {BASE: shadow}])
        self.memory = GlobalMemory(
            [self.region], self.reporter, MODELS[model], 4, True, before=before
        )
        self.words = []
        for cluster in (1, 2):
            words = Words(Clocks(4, 2), self.memory.board, lambda s: list(s), 2)
            words.start(cluster)
            self.words.append(words)


@pytest.mark.parametrize(("first", "second"), list(itertools.product(KINDS, KINDS)))
@pytest.mark.parametrize("waits", [False, True])
def test_a_grid_may_still_run_until_it_is_waited_for(first: str, second: str, waits: bool) -> None:
    one = Grid()
    one.touch(first, 1, 0, [3, 4, 5], 2)
    two = Second(one)
    if waits:
        two.words[0].wait_for_grid([1])
    two.touch(second, 1, 1, [7, 2], 8)
    assert two.reporter.diagnostics == []  # Nobody has touched these.
    two.touch(second, 1, 1, [7, 5, 4], 6)
    alike = (first, second) in (("read", "read"), ("atomic", "atomic"))
    found = two.reporter.diagnostics
    if alike or waits:
        assert found == []
        return
    (race,) = found
    did, does = "read" if first == "read" else "written", "reads" if second == "read" else "writes"
    who = "thread 33 (warp 1, lane 1) of CTA 0 of the cluster"
    assert race.message == (
        f"global byte 20 of mine is {did} by the grid before (early at {one.reporter.site(2)}), "
        f"and {who} {does} it while that may still run"
    )
    assert (race.kind, race.at.pc, race.other, race.who) == ("global-race", 6, None, who)
    assert race.missing == AFTER_WRITE[GRID]


def test_a_warp_that_waits_says_nothing_of_others() -> None:
    one = Grid()
    one.touch("write", 1, 0, [3], 2)
    two = Second(one)
    two.words[0].wait_for_grid([0])
    two.touch("read", 1, 0, [3], 4)
    assert two.reporter.diagnostics == []
    two.touch("read", 1, 1, [3], 5)
    two.touch("read", 2, 0, [3], 6)
    assert [(d.at.pc, d.who.split(" of ")[0]) for d in two.reporter.diagnostics] == [
        (5, "thread 32 (warp 1, lane 0)"),
        (6, "thread 0 (warp 0, lane 0)"),
    ]


# Addresses --------------------------------------------------------------------------------------
def test_an_address_belongs_to_the_allocation_that_holds_it() -> None:
    program = Program(parse(KERNEL.text()))
    reporter = Reporter(program.kernel, "", "default")
    low, high = (Region(a, n, f"at {a}", content=bytes(n)) for a, n in ((1000, 50), (2000, 7)))
    memory = GlobalMemory([high, low], reporter, MODELS["default"], 4, True)
    wanted = {
        999: None,
        1000: low,
        1049: low,
        1050: None,
        1999: None,
        2000: high,
        2006: high,
        2007: None,
    }
    assert {a: memory.find(a) for a in wanted} == wanted
    address = np.array([1000, 1046, 1047, 2003, 2004, 500, 9000], np.uint64)
    found = {r and r.label: part.tolist() for r, part in memory.split(address, 4)}
    assert found == {
        "at 1000": [True, True, False, False, False, False, False],
        "at 2000": [False, False, False, True, False, False, False],
        None: [False, False, True, False, True, True, True],
    }
    assert list(memory.split(np.array([1000, 1046], np.uint64), 4)) == [(low, None)]
    ((region, part),) = memory.split(np.array([1000, 1047], np.uint64)[:1], 4)
    assert (region, part) == (low, None)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (996, "at 0x3e4, -4 bytes into the 50 bytes of a"),
        (1050, "at 0x41a, 50 bytes into the 50 bytes of a"),
        (1999, "at 0x7cf, 999 bytes into the 50 bytes of a"),
        (2008, "at 0x7d8, 8 bytes into the 7 bytes of b"),
    ],
)
def test_an_address_outside_is_said_by_the_allocation_before_it(address: int, said: str) -> None:
    program = Program(parse(KERNEL.text()))
    reporter = Reporter(program.kernel, "", "default")
    regions = [
        Region(a, n, name, content=bytes(n)) for a, n, name in ((1000, 50, "a"), (2000, 7, "b"))
    ]
    memory = GlobalMemory(regions, reporter, MODELS["default"], 4, True)
    memory.outside(3, "read", address, 4, "thread 5")
    (one,) = reporter.diagnostics
    assert one.message == f"global read of 4 bytes {said}"
    assert (one.kind, one.at.pc, one.who, one.missing) == (
        "out-of-bounds",
        3,
        "thread 5",
        "a bounds check of the index",
    )
    nothing = Reporter(program.kernel, "", "default")
    GlobalMemory([], nothing, MODELS["default"], 4, True).outside(3, "write", 64, 8, "")
    assert nothing.diagnostics[0].message == "global write of 8 bytes at 0x40"


@pytest.mark.parametrize("width", [1, 4, 8])
def test_bytes_that_nothing_has_written_are_named(width: int) -> None:
    program = Program(parse(KERNEL.text()))
    reporter = Reporter(program.kernel, "", "default")
    region = Region(1004, 64, "a", True, bytes(64))
    memory = GlobalMemory([region], reporter, MODELS["default"], 4, True)
    assert region.known is not None
    region.known[12 : 12 + 32] = True  # Byte 0 is the twelfth from a multiple of 16.
    memory.known(region, np.array([12, 12 + 32 - width]), width, 4, "x")
    assert reporter.diagnostics == []
    memory.known(region, np.array([12, 12 + 33 - width]), width, 4, "x")
    (one,) = reporter.diagnostics
    assert one.message == (
        f"global read of {width} bytes, {33 - width} bytes into a, that nothing has written"
    )


@pytest.mark.parametrize("after", [False, True])
def test_a_fence_says_nothing_of_what_comes_after_it(after: bool) -> None:
    """A word that is stored without a release tells what its warp knew at its last fence."""
    grid, word = Grid(), [BASE + 128]
    first, second = grid.words
    if not after:
        grid.touch("write", 1, 0, [2], 1)
    first.fence([0])
    if after:
        grid.touch("write", 1, 0, [2], 1)
    first.release(word, np.array([0]), False)
    second.acquire(word, np.array([3]), True)
    grid.touch("write", 2, 3, [2], 4)
    found = [(d.at.pc, d.other.pc) for d in grid.reporter.diagnostics]
    assert found == ([(4, 1)] if after else [])
