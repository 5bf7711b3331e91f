"""Tile scheduler of variable lengths that orders sequences so that few are cut, on the device.

``fitted_cuts`` says what it does. One cluster, once per step: half of its blocks cut the longest,
the others the shortest. Each warp tries one size of parts; the block that found the best writes the
rows. A warp keeps in its lanes which sequences are not placed yet: two votes find the longest that
fits.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Int32, range_constexpr

from mla_var3.kernel.cute_python.kit.dsmem import remote_address
from mla_var3.kernel.cute_python.kit.even import COLUMNS, Cut, tiles_of
from mla_var3.kernel.cute_python.kit.fitted_cuts import MOST, SIZES, Costs, fitted_cuts
from mla_var3.kernel.cute_python.kit.fitted_cuts import halves as halves_of
from mla_var3.kernel.cute_python.kit.handovers import cluster_sync
from mla_var3.kernel.cute_python.kit.ordered import Named, order_rows, workers_of
from mla_var3.kernel.cute_python.kit.schedule import rank_in_cluster

#: Lanes of a warp, and so many words of so many bits hold which sequences are not placed yet.
LANES = 32
#: Bits of a key below the half tiles.
BITS = MOST.bit_length() - 1
#: Ways: to cut the longest, or the shortest.
WAYS = 2
#: Blocks of the cluster, warps of a block, each of which tries a size, and its threads. With more
#: warps per SM each waits for the others to issue.
BLOCKS = 8
WARPS = WAYS * SIZES // BLOCKS
THREADS = WARPS * LANES
#: Workers that get work: no GPU with the kernels of this schedule has as many SMs.
WORKERS = 160
#: Above the key of any sequence.
NONE = (1 << 31) - 1


class Begin(enum.IntEnum):
    """What a warp notes of a worker: a place in its order, a tile, and who shares that sequence."""

    PLACE = 0
    TILE = 1
    OWNER = 2
    LAST = 3


class Lists(NamedTuple):
    """What a warp fits from, and where it notes what it found."""

    lengths: cute.Tensor  # [b]
    keys: cute.Tensor  # [MOST] rising: half tiles, then a number from above; the last is longest
    names: cute.Tensor  # [MOST] sequences in the order found
    begins: cute.Tensor  # [WORKERS + 1, 4], as ``Begin`` names them
    free: cute.Tensor  # [2]: of this lane's word, what is not placed, and the least key of these
    way: Int32  # 1 where the shortest sequence is cut, 0 where the longest is


@cute.jit
def halves(tiles):
    """Half tiles that so many tiles take."""
    return 2 * tiles + tiles % 2


@cute.jit
def room_for(room):
    """Tiles that half tiles are room for."""
    tiles = cutlass.max(room, 0) // 2
    return tiles - Int32(halves(tiles) > cutlass.max(room, 0))


@cute.jit
def lowest_bit(word):
    """Number of the lowest bit of a word that has one."""
    return Int32(cute.arch.clz(cute.arch.brev(word)))


@cute.jit
def highest_bit(word):
    """Number of the highest bit of a word that has one."""
    return LANES - 1 - Int32(cute.arch.clz(word))


def tell(place, block, value):
    """Write a number where another block of the cluster has the same place."""
    cute.arch.inline_ptx(
        "st.shared::cluster.b32 [{$r0}], {$r1};",
        read_only_args=[remote_address(place, block), Int32(value)],
    )


class Fitted:
    """Order ``lengths`` [b] and cut them: ``cuts`` [n, 8], rows of workers, then of what follows.

    Of more than ``MOST`` sequences the order stays.

    Args:
        costs: What cuts cost.
    """

    def __init__(self, costs: Costs):
        self.costs = costs
        self.smallest = costs.begin + costs.split + halves_of(costs.alone)

    def rows(self, tiles, workers):
        """The cuts of so many tiles of keys of each sequence, on the host."""
        return fitted_cuts(tiles, workers, self.costs)

    @cute.jit
    def __call__(self, lengths: cute.Tensor, cuts: cute.Tensor, stream: cuda.CUstream):
        """Launch."""
        self.schedule(lengths, cuts).launch(
            grid=(BLOCKS, 1, 1), cluster=(BLOCKS, 1, 1), block=(THREADS, 1, 1), stream=stream
        )

    @cute.kernel
    def schedule(self, lengths: cute.Tensor, cuts: cute.Tensor):
        """A size per warp; then the better way of the least size that holds all work."""
        thread = cute.arch.thread_idx()[0]
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        smem = cutlass.utils.SmemAllocator()
        best, total = [smem.allocate_tensor(Int32, cute.make_layout(1)) for _ in range(2)]
        bests = smem.allocate_tensor(Int32, cute.make_layout(BLOCKS))
        given, keys = [smem.allocate_tensor(Int32, cute.make_layout(MOST)) for _ in range(2)]
        names = smem.allocate_tensor(Int32, cute.make_layout((WARPS, MOST), stride=(MOST, 1)))
        shape = cute.make_ordered_layout((WARPS, WORKERS + 1, len(Begin)), order=(2, 1, 0))
        begins = smem.allocate_tensor(Int32, shape, byte_alignment=16)
        rows, follows = workers_of(cuts, lengths)
        sequences, workers = lengths.shape[0], cutlass.min(rows.shape[0], WORKERS)
        if thread == 0:
            best[0], total[0] = Int32(NONE), Int32(0)
        cluster_sync()
        mine = Int32(0)
        for i in cutlass.range(thread, sequences, THREADS, unroll=1):
            half = halves(tiles_of(lengths, i))
            mine = mine + half + self.costs.begin
            if sequences <= MOST:
                given[i] = (half << BITS) + (MOST - 1 - i)
        cute.arch.atomic_add(total.iterator, mine)
        cute.arch.sync_threads()
        if sequences <= MOST:
            self.sort(sequences, given, keys)
        cute.arch.sync_threads()
        size = cutlass.max(cute.ceil_div(total[0], workers), self.smallest)
        free, block = cute.make_rmem_tensor(cute.make_layout(2), Int32), rank_in_cluster()
        way, extra = block % WAYS, block // WAYS * WARPS + warp
        lists = Lists(lengths, keys, names[warp, None], begins[warp, None, None], free, way)
        fits, many = self.fit(lists, workers, size + extra)
        if (fits > 0) & (thread % LANES == 0):
            cute.arch.atomic_min(best.iterator, (extra * 2 + many) * WAYS + way)
        cute.arch.sync_threads()
        if thread < BLOCKS:
            tell(bests.iterator + block, thread, best[0])
        cluster_sync()
        least = bests[0]
        for i in range_constexpr(1, BLOCKS):
            least = cutlass.min(least, bests[i])
        if best[0] == least:
            found = least // (2 * WAYS) % WARPS
            ours = names[found, None], begins[found, None, None]
            self.write(rows, follows, sequences, workers, *ours)

    @cute.jit
    def sort(self, sequences, given, keys):
        """Keys in rising order, at the end: more tiles come later, of as many the first."""
        for i in cutlass.range(cute.arch.thread_idx()[0], sequences, THREADS, unroll=1):
            longer, mine = Int32(0), given[i]
            for j in cutlass.range(sequences, unroll=4):
                longer = longer + Int32(given[j] > mine)
            keys[MOST - 1 - longer] = mine

    # ---- one size, by one warp ---------------------------------------------------------------
    @cute.jit
    def fit(self, lists, workers, size):
        """Fill workers up to a size: whether they hold all, and a sequence has many parts."""
        sequences = lists.lengths.shape[0]
        begin, split = self.costs.begin, self.costs.split
        least = cutlass.min(room_for(size - begin - split), self.costs.least)
        self.begin(lists)
        count, fits = Int32(0), Int32(1)  # sequences placed
        rest, begun, owner, many = Int32(0), Int32(0), Int32(0), Int32(0)
        for worker in cutlass.range(workers, unroll=1):
            final = Int32(worker == workers - 1)
            room, filled = Int32(size), Int32(0)
            # All lanes write the same, each after all have written what it overwrites.
            cute.arch.sync_warp()
            lists.begins[worker, int(Begin.PLACE)] = count - Int32(rest > 0)
            lists.begins[worker, int(Begin.TILE)] = begun if rest > 0 else Int32(0)
            lists.begins[worker, int(Begin.OWNER)] = owner if rest > 0 else Int32(-1)
            lists.begins[worker, int(Begin.LAST)] = Int32(-1)
            if rest > 0:
                many = Int32(1) if worker - owner > 1 else many
                needs = halves(rest) + begin + split
                if (needs > room) & (final == 0):
                    taken = room_for(room - begin - split)
                    begun, rest, filled = begun + taken, rest - taken, Int32(1)
                else:
                    fits = Int32(0) if needs > room else fits
                    room, rest = room - needs, Int32(0)
                    lists.begins[owner, int(Begin.LAST)] = worker
            while (filled == 0) & (count < sequences):
                # The last one takes what is left.
                most = NONE if final > 0 else room - begin
                half = self.take(lists, count, most)
                if half > 0:
                    count, room = count + 1, room - half - begin
                    fits = Int32(0) if room < 0 else fits
                else:
                    taken, filled = room_for(room - begin - split), Int32(1)
                    if taken >= least:
                        rest = (self.take_cut(lists, count) >> 1) - taken
                        count, begun, owner = count + 1, taken, Int32(worker)
        lists.begins[workers, int(Begin.PLACE)] = sequences
        lists.begins[workers, int(Begin.TILE)] = Int32(0)
        return fits, many

    @cute.jit
    def begin(self, lists):
        """None is placed: of each word all that are sequences, and the least key of these."""
        last = (cute.arch.lane_idx() + 1) * LANES
        absent = cutlass.min(MOST - lists.lengths.shape[0] - (last - LANES), LANES)
        absent = cutlass.max(absent, 0)
        lists.free[0], lists.free[1] = Int32(0), Int32(NONE)
        if (absent < LANES) & (lists.lengths.shape[0] <= MOST):
            lists.free[0] = Int32(-1) << absent
            lists.free[1] = lists.keys[last - LANES + absent]

    @cute.jit
    def take(self, lists, count, most):
        """Place the longest sequence of at most so many half tiles: its own, or 0 if none is."""
        half = Int32(0)
        if lists.lengths.shape[0] <= MOST:
            half = self.take_sorted(lists, count, most)
        else:
            half = halves(tiles_of(lists.lengths, count))
            half = half if half <= most else Int32(0)
        return half

    @cute.jit
    def take_cut(self, lists, count):
        """Place the sequence that is cut: its half tiles."""
        half = Int32(0)
        if (lists.way > 0) & (lists.lengths.shape[0] <= MOST):
            half = self.take_shortest(lists, count)
        else:
            half = self.take(lists, count, NONE)
        return half

    @cute.jit
    def take_shortest(self, lists, count):
        free = lists.free
        word = lowest_bit(cute.arch.vote_ballot_sync(free[0] != 0))
        those = cute.arch.shuffle_sync(free[0], word)
        found = lists.keys[word * LANES + lowest_bit(those)]
        lists.names[count] = MOST - 1 - (found & (MOST - 1))
        those = those & (those - 1)
        self.leave(free, word, those, lists.keys[word * LANES + lowest_bit(those) % LANES])
        return found >> BITS

    def leave(self, free, word, those, least):
        """What a word has left, which the lane with its number keeps."""
        mine = cute.arch.lane_idx() == word
        free[0] = cutlass.select_(mine, those, free[0])
        free[1] = cutlass.select_(mine, least, free[1])

    @cute.jit
    def take_sorted(self, lists, count, most):
        lane, free, half = cute.arch.lane_idx(), lists.free, Int32(0)
        bound = Int32(NONE) if most == NONE else (most + 1) << BITS
        words = cute.arch.vote_ballot_sync((free[0] != 0) & (free[1] < bound))
        if words != 0:
            word = highest_bit(words)
            those, key = cute.arch.shuffle_sync(free[0], word), lists.keys[word * LANES + lane]
            mine = ((those >> lane) & 1 > 0) & (key < bound)
            bit = highest_bit(cute.arch.vote_ballot_sync(mine))
            found = cute.arch.shuffle_sync(key, bit)
            half = found >> BITS
            lists.names[count] = MOST - 1 - (found & (MOST - 1))
            those = those & ~(Int32(1) << bit)
            self.leave(free, word, those, cute.arch.shuffle_sync(key, lowest_bit(those) % LANES))
        return half

    # ---- the rows of the size that was chosen ------------------------------------------------
    @cute.jit
    def write(self, rows, follows, sequences, workers, names, begins):
        """All threads: what workers begin and end with, and what follows each sequence."""
        thread = cute.arch.thread_idx()[0]
        for i in cutlass.range(thread, sequences, THREADS, unroll=1):
            after = Int32(-1)
            if i + 1 < sequences:
                after = self.name_of(names, sequences, i + 1)
            follows[self.name_of(names, sequences, i)] = after
        padded = order_rows(sequences) * COLUMNS
        for i in cutlass.range(sequences + thread, padded, THREADS, unroll=1):
            follows[i] = Int32(-1)
        for i in cutlass.range(thread, rows.shape[0], THREADS, unroll=1):
            worker = cutlass.min(i, workers)
            place, tile = begins[worker, int(Begin.PLACE)], begins[worker, int(Begin.TILE)]
            after = cutlass.min(i + 1, workers)
            end, stop = begins[after, int(Begin.PLACE)], begins[after, int(Begin.TILE)]
            rows[i, int(Cut.SEQUENCE)], rows[i, int(Cut.TILE)] = place, tile
            rows[i, int(Cut.END_SEQUENCE)], rows[i, int(Cut.END_TILE)] = end, stop
            last, owner, names_first, names_last = Int32(-1), Int32(-1), Int32(-1), Int32(-1)
            if i < workers:
                last, owner = begins[i, int(Begin.LAST)], begins[i, int(Begin.OWNER)]
                if (place < end) | (tile < stop):
                    names_first = self.name_of(names, sequences, place)
                    names_last = self.name_of(names, sequences, end - Int32(stop == 0))
            rows[i, int(Cut.LAST)], rows[i, int(Cut.OWNER)] = last, owner
            rows[i, int(Named.FIRST)], rows[i, int(Named.LAST)] = names_first, names_last

    @cute.jit
    def name_of(self, names, sequences, place):
        """The sequence at a place of the order."""
        name = Int32(place)
        if sequences <= MOST:
            name = names[place]
        return name
