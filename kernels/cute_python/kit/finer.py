"""The even schedule for few and short sequences too: what joins parts costs, in pairs as well.

A part that ends a sequence is left like the others, and so costs as much. Where most workers would
have nothing to do, a part may be a single tile.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32, const_expr

from mla_var3.kernel.cute_python.kit.even import (
    CANDIDATES,
    NONE,
    SHARE,
    STEP,
    Cut,
    Even,
    tiles_of,
)


class Finer(Even):
    """Cut ``lengths`` [b] into as many parts as ``cuts`` [workers, 8] has rows."""

    def __init__(self, begin=2, split=1, pair=2, join=2, each=1):
        """Costs in tiles.

        Args:
            begin: Of beginning a sequence.
            split: Of leaving a part of one.
            pair: Of merging two parts.
            join: Of merging three parts and more.
            each: Of each of these, in sixteenths.
        """
        super().__init__(begin, split, join=join, each=each)
        self.pair = pair

    def rows(self, tiles, workers):
        """The cuts of so many tiles of keys of each sequence, on the host."""
        costs = self.begin, self.split, least_of(sum(tiles), workers)
        total = sum(tiles) + self.begin * len(tiles)
        size, chosen, worth = max(-(-total // workers), sum(costs)), CANDIDATES, None
        for extra in range(CANDIDATES):
            if worth is not None and extra >= worth:
                break  # nothing that follows costs less
            fitted, rows = finer_cut(tiles, workers, size + extra, costs)
            most = max(row[Cut.LAST] - i + 1 for i, row in enumerate(rows))
            cost = extra + self.joining(most)
            if fitted and (worth is None or cost < worth):
                chosen, worth = extra, cost
        return finer_cut(tiles, workers, size + chosen, costs)[1]

    def joining(self, most):
        """What merging takes where a sequence has so many parts at most."""
        many = self.join + most * self.each // SHARE
        return many if most > 2 else self.pair if most == 2 else 0

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
            mine = mine + tiles_of(lengths, i)
        cute.arch.atomic_add(total.iterator, mine)
        cute.arch.sync_threads()
        workers, part = cuts.shape[0], Int32(2)
        if 2 * total[0] <= workers:
            part = Int32(1)
        mean = cute.ceil_div(total[0] + self.begin * lengths.shape[0], workers)
        size = cutlass.max(mean, part + (self.begin + self.split))
        held, most = self.cut_into(lengths, cuts, size + thread, part, False)
        if held == lengths.shape[0]:
            cost = Int32(thread)
            if most > 2:
                cost = cost + self.join + most * self.each // SHARE
            elif most == 2:
                cost = cost + self.pair
            cute.arch.atomic_min(least.iterator, cost * STEP + thread)
        cute.arch.sync_threads()
        if thread == 0:
            self.cut_into(lengths, cuts, size + least[0] % STEP, part, True)

    @cute.jit
    def cut_into(self, lengths, cuts, size, least, write: cutlass.Constexpr):
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
            taken = left + self.begin + (self.split if tile > 0 else 0)
            fits = taken <= room
            if const_expr(write):
                fits = fits | (worker == workers - 1)
            if fits:
                if const_expr(write):  # noqa: SIM102  # const_expr stands alone.
                    if tile > 0:
                        cuts[owner, int(Cut.LAST)] = worker
                        cuts[worker, int(Cut.OWNER)] = owner
                most = cutlass.max(most, worker - owner + 1) if tile > 0 else most
                room = room - taken
                sequence, tile = sequence + 1, Int32(0)
            else:
                taken = room - self.begin - self.split
                if taken >= least:
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


def least_of(tiles, workers):
    """The least part of a sequence: a tile where at most half of the workers get any, else two."""
    return 1 if 2 * tiles <= workers else 2


def finer_cut(tiles, workers, size, costs):
    """Whether parts of a size hold all, and the cuts; the last part is of any size."""
    begin, split, least = costs
    places, last, owners = [(0, 0)], [-1] * workers, [-1] * workers
    worker, room, owner, fitted = 0, size, 0, True
    for sequence, whole in enumerate(tiles):
        tile = 0
        while tile < whole:
            left = whole - tile
            taken = left + begin + (split if tile else 0)
            fits = taken <= room
            fitted &= fits or worker < workers - 1
            if fits or worker == workers - 1:
                if tile:
                    last[owner], owners[worker] = worker, owner
                room, tile = room - taken, whole
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
