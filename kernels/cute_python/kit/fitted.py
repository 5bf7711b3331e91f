"""Tile scheduler of variable lengths that orders sequences so that few are cut, on the device.

``fitted_cuts`` says what it does. One block, once per step: each thread tries one size of parts and
one of two ways to choose the sequence that is cut, and one thread writes what the cheapest makes.
"""

from __future__ import annotations

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Int32, const_expr

from mla_var3.kernel.cute_python.kit.even import CANDIDATES, COLUMNS, STEP, Cut, tiles_of
from mla_var3.kernel.cute_python.kit.fitted_cuts import MOST, SHARE, Costs
from mla_var3.kernel.cute_python.kit.ordered import Named, order_rows, workers_of

#: Sequences of a word of those that are placed, and words.
BITS = 32
WORDS = MOST // BITS
#: Above what any candidate costs; it stands for the last one.
NONE = STEP * STEP + CANDIDATES - 1


@cute.jit
def halves(tiles):
    """Half tiles that so many tiles take."""
    return 2 * tiles + tiles % 2


@cute.jit
def room_for(room):
    """Tiles that half tiles are room for."""
    tiles = cutlass.max(room, 0) // 2
    return tiles - Int32(halves(tiles) > cutlass.max(room, 0))


class Fitted:
    """Order ``lengths`` [b] and cut them: ``cuts`` [n, 8], rows of workers, then of what follows.

    Of more than ``MOST`` sequences the order stays.

    Args:
        costs: What cuts cost.
    """

    def __init__(self, costs: Costs):
        self.costs = costs
        self.smallest = costs.begin + costs.split + 2 * costs.least

    @cute.jit
    def __call__(self, lengths: cute.Tensor, cuts: cute.Tensor, stream: cuda.CUstream):
        """Launch."""
        self.schedule(lengths, cuts).launch(grid=(1, 1, 1), block=(CANDIDATES, 1, 1), stream=stream)

    @cute.kernel
    def schedule(self, lengths: cute.Tensor, cuts: cute.Tensor):
        """One block: each thread tries a size, and one writes the cuts of the cheapest."""
        thread = cute.arch.thread_idx()[0]
        smem = cutlass.utils.SmemAllocator()
        least, total = [smem.allocate_tensor(Int32, cute.make_layout(1)) for _ in range(2)]
        tiles, given, names = [
            smem.allocate_tensor(Int32, cute.make_layout(MOST)) for _ in range(3)
        ]
        placed = smem.allocate_tensor(Int32, cute.make_layout((CANDIDATES, WORDS)))
        rows, follows = workers_of(cuts, lengths)
        sequences = lengths.shape[0]
        if thread == 0:
            least[0] = Int32(NONE)
            total[0] = Int32(0)
        cute.arch.sync_threads()
        mine = Int32(0)
        for i in cutlass.range(thread, sequences, CANDIDATES, unroll=1):
            count = tiles_of(lengths, i)
            mine = mine + halves(count) + self.costs.begin
            if sequences <= MOST:
                given[i] = count
        cute.arch.atomic_add(total.iterator, mine)
        cute.arch.sync_threads()
        if sequences <= MOST:
            self.sort(sequences, given, tiles, names)
        cute.arch.sync_threads()
        size = cutlass.max(cute.ceil_div(total[0], rows.shape[0]), self.smallest)
        lists = lengths, tiles, names, placed[thread, None]
        fits, most = self.fit(lists, rows, follows, size + thread // 2, thread % 2, False)
        if fits > 0:
            many = self.costs.join + most * self.costs.each // SHARE if most > 2 else 0
            cute.arch.atomic_min(least.iterator, (thread // 2 + many) * STEP + thread)
        cute.arch.sync_threads()
        if thread == 0:
            best = least[0] % STEP
            self.fit(lists, rows, follows, size + best // 2, best % 2, True)
        for i in cutlass.range(
            sequences + thread, order_rows(sequences) * COLUMNS, CANDIDATES, unroll=1
        ):
            follows[i] = Int32(-1)

    @cute.jit
    def sort(self, sequences, given, tiles, names):
        """Sequences by falling number of tiles; of as many, in order."""
        for i in cutlass.range(cute.arch.thread_idx()[0], sequences, CANDIDATES, unroll=1):
            rank, mine = Int32(0), given[i]
            for j in cutlass.range(sequences, unroll=1):
                before = (given[j] > mine) | ((given[j] == mine) & (j < i))
                rank = rank + Int32(before)
            tiles[rank], names[rank] = mine, i

    @cute.jit
    def tiles_at(self, lists, at):
        """Tiles of the sequence at a place of the sorted list."""
        lengths, tiles, _, _ = lists
        count = Int32(0)
        if lengths.shape[0] <= MOST:  # noqa: SIM108  # only one of them is read
            count = tiles[at]
        else:
            count = tiles_of(lengths, at)
        return count

    @cute.jit
    def free(self, lists, at):
        """Whether a sequence is not placed yet; where the order stays, those ahead are not."""
        free = Int32(1)
        if lists[0].shape[0] <= MOST:
            free = (lists[3][at // BITS] >> (at % BITS)) & 1 ^ 1
        return free

    @cute.jit
    def next_free(self, lists, at):
        """The next place, from one on, whose sequence is not placed yet; else one past the last.

        A word at a time: of the free ones in it, the lowest bit is the next.
        """
        sequences, found = lists[0].shape[0], Int32(at)
        if (sequences <= MOST) & (at < sequences):
            word = at // BITS
            free = (lists[3][word] ^ Int32(-1)) & (Int32(-1) << (at % BITS))
            while (free == 0) & ((word + 1) * BITS < sequences):
                word = word + 1
                free = lists[3][word] ^ Int32(-1)
            lowest = BITS - 1 - Int32(cute.arch.clz(free & (Int32(0) - free)))
            found = cutlass.min(word * BITS + lowest, sequences) if free != 0 else Int32(sequences)
        return found

    @cute.jit
    def fitting(self, lists, longest, room):
        """The longest sequence that fits whole, or one past the last place."""
        sequences = lists[0].shape[0]
        at = Int32(longest)
        if halves(self.tiles_at(lists, longest)) > room:
            at = Int32(sequences)
            if sequences <= MOST:
                low, high = longest + 1, Int32(sequences)
                while low < high:
                    middle = (low + high) // 2
                    fits = halves(self.tiles_at(lists, middle)) <= room
                    high = middle if fits else high
                    low = low if fits else middle + 1
                at = self.next_free(lists, low)
        return at

    @cute.jit
    def place(self, lists, follows, before, at, write: cutlass.Constexpr):
        """Put a sequence into the order, after the one before it; its name."""
        name = Int32(at)
        if lists[0].shape[0] <= MOST:
            name = lists[2][at]
            lists[3][at // BITS] = lists[3][at // BITS] | (Int32(1) << (at % BITS))
        if const_expr(write):
            follows[name] = Int32(-1)
            if before >= 0:
                follows[before] = name
        return name

    @cute.jit
    def fit(self, lists, rows, follows, size, shortest, write: cutlass.Constexpr):
        """Fill workers up to a size: whether they hold all, and the most parts of a sequence."""
        sequences, workers = lists[0].shape[0], rows.shape[0]
        begin, split = self.costs.begin, self.costs.split
        for i in cutlass.range(WORDS, unroll=1):
            lists[3][i] = Int32(0)
        count, longest, last, name = Int32(0), Int32(0), Int32(sequences - 1), Int32(-1)
        rest, begun, parts, most, owner = Int32(0), Int32(0), Int32(0), Int32(1), Int32(0)
        fits = Int32(1)
        for worker in cutlass.range(workers, unroll=1):
            final = Int32(worker == workers - 1)
            room, filled = Int32(size), Int32(0)
            first = name if rest > 0 else Int32(-1)
            goes_on = Int32(rest > 0)
            if const_expr(write):
                rows[worker, int(Cut.SEQUENCE)] = count - goes_on
                rows[worker, int(Cut.TILE)] = begun if rest > 0 else Int32(0)
                rows[worker, int(Cut.LAST)] = Int32(-1)
                rows[worker, int(Cut.OWNER)] = owner if rest > 0 else Int32(-1)
            if rest > 0:
                needs, parts = halves(rest) + begin + split, parts + 1
                if (needs > room) & (final == 0):
                    taken = room_for(room - begin - split)
                    begun, rest, filled = begun + taken, rest - taken, Int32(1)
                else:
                    fits = Int32(0) if needs > room else fits
                    room, rest, most = room - needs, Int32(0), cutlass.max(most, parts)
                    if const_expr(write):
                        rows[owner, int(Cut.LAST)] = worker
            while (filled == 0) & (count < sequences):
                longest = self.next_free(lists, longest)
                at = self.fitting(lists, longest, room - begin)
                at = longest if final > 0 else at  # the last one takes what is left
                if at < sequences:
                    name = self.place(lists, follows, name, at, write)
                    first, count = name if first < 0 else first, count + 1
                    room = room - halves(self.tiles_at(lists, at)) - begin
                    longest = longest + Int32(at == longest)
                    fits = Int32(0) if room < 0 else fits
                else:
                    taken, filled = room_for(room - begin - split), Int32(1)
                    if taken >= self.costs.least:
                        at = longest
                        if (shortest > 0) & (sequences <= MOST):
                            while self.free(lists, last) == 0:
                                last = last - 1
                            at = last
                        name = self.place(lists, follows, name, at, write)
                        first, count = name if first < 0 else first, count + 1
                        longest = longest + Int32(at == longest)
                        begun, parts, owner = taken, Int32(1), Int32(worker)
                        rest = self.tiles_at(lists, at) - taken
            if const_expr(write):
                rows[worker, int(Cut.END_SEQUENCE)] = count - Int32(rest > 0)
                rows[worker, int(Cut.END_TILE)] = begun if rest > 0 else Int32(0)
                rows[worker, int(Named.FIRST)] = first
                rows[worker, int(Named.LAST)] = name if first >= 0 else Int32(-1)
        return fits, most
