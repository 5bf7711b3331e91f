"""Tile scheduler of variable lengths: the device cuts all work into equal parts, once per step.

Work is what all sequences' tiles of keys take, in units of a tile, and what it costs to begin one.
It lies in a row, sequence by sequence; each worker takes what lies between two cuts. A sequence
that is cut leaves a partial result with each worker that has a part of it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Int32, const_expr

from mla_var3.kernel.cute_python.kit.schedule import rank_in_cluster
from mla_var3.kernel.cute_python.kit.slabs import KEYS, ROWS

#: Threads that each try a size of parts.
CANDIDATES = 256
#: Above any number of a candidate, and what no candidate costs.
STEP = 1024
NONE = STEP * STEP + CANDIDATES
#: Of a tile, in which the cost of a part is given.
SHARE = 16


class Cut(enum.IntEnum):
    """Columns of a worker's row: where its work begins and ends, and what it begins."""

    SEQUENCE = 0
    TILE = 1  # of that sequence
    END_SEQUENCE = 2
    END_TILE = 3  # one past the last; 0 where the work ends with the sequence before
    LAST = 4  # last worker of the sequence that this one begins and does not end; else -1
    OWNER = 5  # first worker of the sequence that this one goes on with; else -1


#: Columns of a row, of which the last ones are left open.
COLUMNS = 8


@cute.jit
def tiles_of(lengths, sequence):
    """Tiles of a sequence; one without keys has one, in which all is hidden."""
    return cutlass.max(cute.ceil_div(lengths[sequence], KEYS), 1)


class Even:
    """Cut ``lengths`` [b] into as many parts as ``cuts`` [workers, 8] has rows."""

    def __init__(self, begin=2, split=1, least=2, join=0, each=0):
        """Costs in tiles.

        Args:
            begin: Of beginning a sequence.
            split: Of leaving a part of one.
            least: The least part.
            join: Of merging three parts and more.
            each: Of each of these, in sixteenths.
        """
        self.begin, self.split, self.least, self.join, self.each = begin, split, least, join, each
        self.smallest = begin + split + least

    def rows(self, tiles, workers):
        """The cuts of so many tiles of keys of each sequence, on the host."""
        return even_cuts(tiles, workers, self.begin, self.split, self.least, self.join, self.each)

    @cute.jit
    def __call__(self, lengths: cute.Tensor, cuts: cute.Tensor, stream: cuda.CUstream):
        """Launch."""
        self.schedule(lengths, cuts).launch(grid=(1, 1, 1), block=(CANDIDATES, 1, 1), stream=stream)

    @cute.kernel
    def schedule(self, lengths: cute.Tensor, cuts: cute.Tensor):
        """One block: each thread tries a size, and one writes the cuts of the least that does."""
        thread = cute.arch.thread_idx()[0]
        smem = cutlass.utils.SmemAllocator()
        least = smem.allocate_tensor(Int32, cute.make_layout(1))
        total = smem.allocate_tensor(Int32, cute.make_layout(1))
        if thread == 0:
            least[0] = Int32(NONE)
            total[0] = Int32(0)
        cute.arch.sync_threads()
        mine = Int32(0)
        for i in cutlass.range(thread, lengths.shape[0], CANDIDATES, unroll=1):
            mine = mine + tiles_of(lengths, i) + self.begin
        cute.arch.atomic_add(total.iterator, mine)
        cute.arch.sync_threads()
        size = cutlass.max(cute.ceil_div(total[0], cuts.shape[0]), self.smallest)
        held, most = self.cut(lengths, cuts, size + thread, False)
        if held == lengths.shape[0]:
            cost = thread + (self.join + most * self.each // SHARE if most > 2 else 0)
            cute.arch.atomic_min(least.iterator, cost * STEP + thread)
        cute.arch.sync_threads()
        if thread == 0:
            self.cut(lengths, cuts, size + least[0] % STEP, True)

    @cute.jit
    def cut(self, lengths, cuts, size, write: cutlass.Constexpr):
        """How many sequences parts of a size hold, and the most parts of one that is cut.

        Of the last part any size, where written.
        """
        sequences, workers, most = lengths.shape[0], cuts.shape[0], Int32(0)
        sequence, tile, worker, room, owner = Int32(0), Int32(0), Int32(0), Int32(size), Int32(0)
        if const_expr(write):
            for i in cutlass.range(workers, unroll=1):
                cuts[i, int(Cut.SEQUENCE)] = sequences
                cuts[i, int(Cut.TILE)] = Int32(0)
                cuts[i, int(Cut.END_SEQUENCE)] = sequences
                cuts[i, int(Cut.END_TILE)] = Int32(0)
                cuts[i, int(Cut.LAST)] = Int32(-1)
                cuts[i, int(Cut.OWNER)] = Int32(-1)
            cuts[0, int(Cut.SEQUENCE)] = Int32(0)
        while (sequence < sequences) & (worker < workers):
            left = tiles_of(lengths, sequence) - tile
            fits = left + self.begin <= room
            if const_expr(write):
                fits = fits | (worker == workers - 1)
            if fits:
                if const_expr(write):  # noqa: SIM102  # const_expr stands alone.
                    if tile > 0:
                        cuts[owner, int(Cut.LAST)] = worker
                        cuts[worker, int(Cut.OWNER)] = owner
                most = cutlass.max(most, worker - owner + 1) if tile > 0 else most
                room = room - left - self.begin
                sequence, tile = sequence + 1, Int32(0)
            else:
                taken = room - self.begin - self.split
                if taken >= self.least:
                    if tile == 0:
                        owner = worker
                    elif const_expr(write):
                        cuts[worker, int(Cut.OWNER)] = owner
                    tile = tile + cutlass.min(taken, left - 1)
                worker, room = worker + 1, Int32(size)
                if const_expr(write):
                    cuts[worker - 1, int(Cut.END_SEQUENCE)] = sequence
                    cuts[worker - 1, int(Cut.END_TILE)] = tile
                    cuts[worker, int(Cut.SEQUENCE)] = sequence
                    cuts[worker, int(Cut.TILE)] = tile
        return sequence, most


class Work(NamedTuple):
    """What a CTA needs to know of the work; all of it is uniform."""

    table: cute.Tensor  # [b, pages of a sequence]
    lengths: cute.Tensor  # [b]
    first: Int32  # sequence
    first_tile: Int32  # of it
    last: Int32  # sequence
    last_tile: Int32  # one past it; 0 where the last sequence is taken to its end
    block: Int32  # row tile
    slot: Int32  # for a part of what another worker began; ``share`` further on, of what others end
    heads: Int32
    queries: Int32
    masked: Int32  # queries, or 0 where all see all keys


@dataclass(frozen=True)
class EvenSchedule:
    """A cluster of ``share`` CTAs per worker and group of as many row tiles."""

    share: int

    def groups(self, rows):
        """Groups of row tiles of a sequence with so many rows."""
        return cute.ceil_div(rows, ROWS * self.share)

    def launch(self, q, cuts):
        """Grid and cluster of a launch on q [b,s,h,512]."""
        clusters = cuts.shape[0] * self.groups(q.shape[1] * q.shape[2])
        return {"grid": (clusters * self.share, 1, 1), "cluster": (self.share, 1, 1)}

    @cute.jit
    def work(self, where, lse, masked):
        """The work of this CTA. Groups of one worker are neighbors: they read the same keys."""
        table, lengths, cuts = where
        _, heads, queries, _ = lse.shape
        groups = self.groups(heads * queries)
        cluster = cute.arch.make_warp_uniform(cute.arch.cluster_idx()[0])
        rank, cut = rank_in_cluster(), cuts[cluster // groups, None]
        last, last_tile = cut[int(Cut.END_SEQUENCE)], cut[int(Cut.END_TILE)]
        last = last - 1 if last_tile == 0 else last
        return Work(
            table, lengths, cut[int(Cut.SEQUENCE)], cut[int(Cut.TILE)], last, last_tile,
            cluster % groups * self.share + rank, 2 * cluster * self.share + rank,
            heads, queries, masked,
        )  # fmt: skip

    @cute.jit
    def part(self, work, sequence, length):
        """First tile of this CTA's part of a sequence, one past its last, and if it is all.

        Right for any lengths, also for others than the cuts were made of: a part that begins past
        the end of its sequence has a tile in which all is hidden.
        """
        start = work.first_tile if sequence == work.first else Int32(0)
        goes_on = (sequence == work.last) & (work.last_tile > 0)
        stop = work.last_tile if goes_on else cute.ceil_div(length, KEYS)
        whole = (start == 0) & ((sequence != work.last) | (work.last_tile == 0))
        return start, cutlass.max(stop, start + 1), whole

    def slot(self, part, worker, block, groups):
        """Where worker ``part`` left the rows of a tile of what ``worker`` began."""
        cluster = part * groups + block // self.share
        return (2 * cluster + Int32(part == worker)) * self.share + block % self.share

    def rank(self):
        """This CTA among those that share keys."""
        return rank_in_cluster()

    def reader(self, i):
        """The one of these CTAs with number ``i``."""
        return i


def even_cuts(tiles, workers, begin=2, split=1, least=2, join=0, each=0):
    """The cuts that ``Even`` makes, on the host: rows of six numbers, as ``Cut`` names them.

    Args:
        tiles: Tiles of keys of each sequence, at least 1 each.
        workers: Parts.
        begin: As ``Even`` takes it.
        split: Likewise.
        least: Likewise.
        join: Likewise.
        each: Likewise.
    """
    total, costs = sum(tiles) + begin * len(tiles), (begin, split, least)
    size = max(-(-total // workers), begin + split + least)
    chosen, worth = CANDIDATES, None
    for extra in range(CANDIDATES):
        if worth is not None and extra >= worth:
            break  # nothing that follows costs less
        fitted, rows = _cut(tiles, workers, size + extra, costs)
        most = max(row[Cut.LAST] - i + 1 for i, row in enumerate(rows))
        cost = extra + (join + most * each // SHARE if most > 2 else 0)
        if fitted and (worth is None or cost < worth):
            chosen, worth = extra, cost
    return _cut(tiles, workers, size + chosen, costs)[1]


def _cut(tiles, workers, size, costs):
    """Whether parts of a size hold all, and the cuts; the last part is of any size."""
    begin, split, least = costs
    places, last, owners = [(0, 0)], [-1] * workers, [-1] * workers
    worker, room, owner, fitted = 0, size, 0, True
    for sequence, whole in enumerate(tiles):
        tile = 0
        while tile < whole:
            left = whole - tile
            fits = left + begin <= room
            fitted &= fits or worker < workers - 1
            if fits or worker == workers - 1:
                if tile:
                    last[owner], owners[worker] = worker, owner
                room, tile = room - left - begin, whole
                continue
            taken = room - begin - split
            if taken >= least:
                if tile == 0:
                    owner = worker
                else:
                    owners[worker] = owner
                tile += min(taken, left - 1)
            worker, room = worker + 1, size
            places.append((sequence, tile))
    places += [(len(tiles), 0)] * (workers + 1 - len(places))
    return fitted, [(*places[i], *places[i + 1], last[i], owners[i]) for i in range(workers)]
