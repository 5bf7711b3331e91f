"""Few-row attention whose split-KV partials merge through L2 without clusters and counters.

Each place in L2 holds a sentinel until a part has written it (l2_sentinels.py). A place has one
reader, which polls until the sentinel is gone and writes it back. So all places are empty between
launches, and each launch relies on it.
"""

from __future__ import annotations

import operator
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, const_expr, range_constexpr

from mla_var3.kernel.cute_python.kit.l2_sentinels import any_empty, clear, get, put
from mla_var3.kernel.cute_python.kit.slabs import SLAB, SLABS
from mla_var3.kernel.cute_python.kit.softmax import LN_2, LOWEST
from mla_var3.kernel.cute_python.kit.thin_kernel import ThinKernel
from mla_var3.kernel.cute_python.kit.thin_slabs import (
    BLOCKS,
    BOTH,
    COLUMNS,
    CONSUMERS,
    GROUPS,
    UNIT,
)

#: Blocks that a warpgroup keeps of what both have, and the most units of them.
HALF_BLOCKS = BLOCKS // GROUPS
MOST_SLOTS = HALF_BLOCKS * COLUMNS[-1] // UNIT
#: Parts whose units a thread asks for at once.
AT_ONCE = 8


class Unit(NamedTuple):
    """What a thread has of a unit that it finishes: two dimensions of two columns."""

    slot: Int32  # number of the unit among those of the warpgroup
    values: cute.Tensor  # [4] under the maximum of its column
    top: cute.Tensor  # [2] maxima of the LSEs, in units of log2
    total: cute.Tensor  # [2] sums of their exponentials under it


class Given(NamedTuple):
    """What another part writes of a unit: where, and words in registers."""

    unit: Unit
    at: cute.Pointer
    lse_at: cute.Pointer
    values: cute.Tensor  # [4] fp32 as bits
    lse: cute.Tensor  # [2]


class ThinSentinelKernel(ThinKernel):
    """CTAs share the keys of a row tile, each with a part of them.

    Args:
        causal: Whether a mask is aligned at the bottom right.
        columns: Rows (head, query) of a CTA.
        parts: CTAs of a row tile.
    """

    def __init__(self, causal, columns, parts):
        super().__init__(causal, columns)
        self.parts = parts
        #: Units that a warpgroup keeps; the parts take turns to finish one.
        self.slots = HALF_BLOCKS * self.quads
        self.readers = min(parts, self.slots)

    def ctas(self) -> int:
        """CTAs per row tile of a sequence."""
        return self.parts

    @cute.jit
    def epilogue(self, wg, storage, scratch, o, lse, place, group: cutlass.Constexpr):
        """The warpgroups merge, then the parts."""
        self.over_keys(wg, wg.row_sum, operator.add, group)
        self.hand_over(wg, storage, group)
        self.meet(BOTH, CONSUMERS)
        self.join(wg, storage, group)
        _, _, part = place
        if const_expr(self.parts > 1):
            self.give(wg, scratch, part, group)
            self.meet(BOTH, CONSUMERS)  # who asks already would slow down who still writes
        if part < self.readers:  # as there may be more parts than units to finish
            units = [self.own_unit(wg, part, k, group) for k in range(self.slots_of_part)]
            if const_expr(self.parts > 1):
                self.take(wg, scratch, units, part, group)
            for unit in units:
                self.store_unit(wg, unit, o, lse, place, group)
            if const_expr(self.parts > 1):
                self.meet(BOTH, CONSUMERS)  # both have read all LSEs
                self.clear_lse(scratch, part)

    # ---- the warpgroups of a CTA -----------------------------------------------------------
    def results(self, storage):
        """Maximum and sum of each column, by warpgroup: [groups, 2, columns]."""
        n = self.columns
        return storage.results.get_tensor(cute.make_layout((GROUPS, 2, n), stride=(2 * n, n, 1)))

    def handed(self, wg, storage, group):
        """Four values of this thread by quad and block, where warpgroup ``group`` had its keys."""
        values = cute.recast_ptr(storage.kv.data_ptr() + group * SLABS * SLAB * SLAB, dtype=Float32)
        shape = (4, self.quads, HALF_BLOCKS)
        return cute.make_tensor(
            values + wg.thread * 4, cute.make_layout(shape, stride=(1, 512, 512 * self.quads))
        )

    @cute.jit
    def hand_over(self, wg, storage, group: cutlass.Constexpr):
        """The half that the other warpgroup keeps, to where the own keys were, and the sums."""
        results, place = self.results(storage), self.handed(wg, storage, group)
        for block in range_constexpr(HALF_BLOCKS):
            for j in range_constexpr(self.quads):
                given = self.quad(wg, (1 - group) * HALF_BLOCKS + block, j)
                cute.autovec_copy(given, place[None, j, block])
        if (wg.warp == 0) & (wg.lane < 4):
            for c in range_constexpr(self.mine):
                results[group, 0, self.column(wg, c)] = wg.row_max[c]
                results[group, 1, self.column(wg, c)] = wg.row_sum[c]

    @cute.jit
    def join(self, wg, storage, group: cutlass.Constexpr):
        """Merge the kept half of both, divided by the sums of both; ``wg.top`` is their LSE."""
        results, place = self.results(storage), self.handed(wg, storage, 1 - group)
        theirs = cute.make_rmem_tensor_like(wg.shrink)
        for c in range_constexpr(self.mine):
            peer_max, peer_sum = [results[1 - group, i, self.column(wg, c)] for i in range(2)]
            top = cute.arch.fmax(wg.row_max[c], peer_max)
            wg.shrink[c] = cute.math.exp2(wg.row_max[c] - top, fastmath=True)
            theirs[c] = cute.math.exp2(peer_max - top, fastmath=True)
            total = wg.row_sum[c] * wg.shrink[c] + peer_sum * theirs[c]
            inverse = Float32(0.0) if total == 0.0 else cute.arch.rcp_approx(total)
            wg.shrink[c], theirs[c] = wg.shrink[c] * inverse, theirs[c] * inverse
            wg.top[c] = top + cute.math.log2(total, fastmath=True)
        other = cute.make_rmem_tensor(4, Float32)
        for block in range_constexpr(HALF_BLOCKS):
            for j in range_constexpr(self.quads):
                cute.autovec_copy(place[None, j, block], other)
                own = self.quad(wg, group * HALF_BLOCKS + block, j)
                for i in range_constexpr(4):
                    c = 2 * j + i % 2
                    own[i] = own[i] * wg.shrink[c] + other[i] * theirs[c]

    # ---- the parts of a row tile -----------------------------------------------------------
    @property
    def slots_of_part(self):
        """Units per warpgroup that a part finishes, at most."""
        return -(-self.slots // self.parts)

    def member(self, part):
        """Place in the scratch tensors of a part of this CTA's row tile."""
        return cute.arch.block_idx()[0] // self.parts * self.parts + part

    def unit_of(self, wg, scratch, part, slot, group):
        """Where ``part`` writes four values of this thread, for the one that finishes the unit."""
        partial, _ = scratch
        row = (self.member(part) * self.slots + slot) * GROUPS + group
        return cute.domain_offset((row, 4 * wg.thread), partial).iterator

    def lse_of(self, scratch, part, reader, column):
        """Where ``part`` writes the LSE of ``column`` and those after it for ``reader``."""
        _, partial_lse = scratch
        row = self.member(part) * self.readers + reader
        return cute.domain_offset((row, column), partial_lse).iterator

    @cute.jit
    def give(self, wg, scratch, part, group: cutlass.Constexpr):
        """Write the LSE, and the units that other parts finish."""
        for reader in range_constexpr(self.readers):
            turn = const_expr(reader // 4 % GROUPS == group)
            if turn & (part != reader) & (wg.warp == reader % 4) & (wg.lane < 4):
                for j in range_constexpr(self.quads):
                    pair = cute.make_tensor(wg.top.iterator + 2 * j, cute.make_layout(2))
                    put(self.lse_of(scratch, part, reader, self.column(wg, 2 * j)), pair)
        for slot in range_constexpr(self.slots):
            if part != slot % self.parts:
                put(self.unit_of(wg, scratch, part, slot, group), self.kept(wg, slot, group))

    def kept(self, wg, slot, group):
        """Four values of a unit: the quads of a column change slowest."""
        return self.quad(wg, group * HALF_BLOCKS + slot % HALF_BLOCKS, slot // HALF_BLOCKS)

    @cute.jit
    def own_unit(self, wg, part, k: cutlass.Constexpr, group: cutlass.Constexpr):
        """The ``k``-th unit that this part finishes, with what it has of it itself."""
        slot = part + k * self.parts
        if const_expr((k + 1) * self.parts > self.slots):
            # The last one twice, rather than one that does not exist.
            slot = slot if slot < self.slots else slot - self.parts
        values = cute.make_rmem_tensor(4, Float32)
        top, total = cute.make_rmem_tensor(2, Float32), cute.make_rmem_tensor(2, Float32)
        values.fill(0.0)
        top.fill(0.0)
        for s in range_constexpr(self.slots):
            for i in range_constexpr(4):
                values[i] = self.kept(wg, s, group)[i] if slot == s else values[i]
        for j in range_constexpr(self.quads):
            for i in range_constexpr(2):
                top[i] = wg.top[2 * j + i] if slot // HALF_BLOCKS == j else top[i]
        for i in range_constexpr(2):
            own = top[i]
            # Rows that see no key: any weight of their zeros is right, but none is a NaN.
            top[i] = cute.arch.fmax(own, Float32(LOWEST))
            total[i] = cute.math.exp2(own - top[i], fastmath=True)
            values[i], values[i + 2] = values[i] * total[i], values[i + 2] * total[i]
        return Unit(slot=slot, values=values, top=top, total=total)

    @cute.jit
    def take(self, wg, scratch, units, part, group: cutlass.Constexpr):
        """Add what the other parts have written, some at once."""
        whole, rest = divmod(self.parts - 1, AT_ONCE)
        for i in cutlass.range(whole, unroll=1):
            self.add_parts(wg, scratch, units, part, 1 + i * AT_ONCE, AT_ONCE, group)
        if const_expr(rest):
            self.add_parts(wg, scratch, units, part, 1 + whole * AT_ONCE, rest, group)

    @cute.jit
    def add_parts(
        self,
        wg,
        scratch,
        units,
        part,
        first,
        count: cutlass.Constexpr,
        group: cutlass.Constexpr,
    ):
        """Add the units of ``count`` parts, as soon as all of their words are there."""
        sources = [(part + first + i) % self.parts for i in range(count)]
        given = [self.given(wg, scratch, unit, i, part, group) for i in sources for unit in units]
        missing = cutlass.Boolean(True)
        while missing:
            for one in given:
                get(one.at, one.values)
                get(one.lse_at, one.lse)
            empty = any_empty([x for one in given for x in (one.values, one.lse)])
            missing = cute.arch.vote_any_sync(empty)  # no lane goes ahead of its warp
        for one in given:
            clear(one.at, 4)
            self.add(one)

    def given(self, wg, scratch, unit, source, part, group):
        """Where ``source`` writes what ``part`` takes of a unit, and registers for it."""
        column = UNIT * (unit.slot // HALF_BLOCKS) + 2 * (wg.lane % 4)
        return Given(
            unit=unit,
            at=self.unit_of(wg, scratch, source, unit.slot, group),
            lse_at=self.lse_of(scratch, source, part, column),
            values=cute.make_rmem_tensor(4, Int32),
            lse=cute.make_rmem_tensor(2, Int32),
        )

    @cute.jit
    def add(self, given):
        """Add a part's four values, under a maximum that its LSE may raise."""
        unit = given.unit
        values, lse = (cute.recast_tensor(x, Float32) for x in (given.values, given.lse))
        for i in range_constexpr(2):
            top = cute.arch.fmax(unit.top[i], lse[i])
            old = cute.math.exp2(unit.top[i] - top, fastmath=True)
            weight = cute.math.exp2(lse[i] - top, fastmath=True)
            unit.top[i], unit.total[i] = top, unit.total[i] * old + weight
            for at in (i, i + 2):
                unit.values[at] = unit.values[at] * old + values[at] * weight

    @cute.jit
    def store_unit(self, wg, unit, o, lse, place, group: cutlass.Constexpr):
        """Store a unit, two dimensions of two rows; one warp of a column's first unit the LSE."""
        block, batch, _ = place
        dimension = (group * HALF_BLOCKS + unit.slot % HALF_BLOCKS) * SLAB
        for i in range_constexpr(2):
            row = block * self.columns + UNIT * (unit.slot // HALF_BLOCKS) + 2 * (wg.lane % 4) + i
            total = unit.total[i]
            inverse = Float32(0.0) if total == 0.0 else cute.arch.rcp_approx(total)
            if row < o.shape[0]:
                for r in range_constexpr(2):
                    at = dimension + 16 * wg.warp + wg.lane // 4 + 8 * r
                    o[row, at, batch] = (unit.values[i + 2 * r] * inverse).to(o.element_type)
                first = (unit.slot % HALF_BLOCKS == 0) & (wg.warp == 0) & (wg.lane < 4)
                if const_expr(group == 0) and first:
                    value = unit.top[i] + cute.math.log2(total, fastmath=True)
                    lse[row, batch] = value * LN_2

    @cute.jit
    def clear_lse(self, scratch, part):
        """Leave the LSEs that were written for this part empty."""
        quads, threads = (self.parts - 1) * self.columns // 4, CONSUMERS
        for first in range_constexpr(0, quads, threads):
            number = first + cute.arch.thread_idx()[0]
            if number < quads:
                source = (part + 1 + number // (self.columns // 4)) % self.parts
                column = number % (self.columns // 4) * 4
                clear(self.lse_of(scratch, source, part, column), 4)
