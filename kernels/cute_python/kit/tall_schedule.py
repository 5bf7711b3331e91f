"""Schedule of two CTAs per tile of 128 rows, each of which has half of the output's columns."""

from __future__ import annotations

from dataclasses import dataclass

import cutlass.cute as cute

from mla_var3.kernel.cute_python.kit.even import Cut, EvenSchedule, Work


@dataclass(frozen=True)
class HalvesSchedule(EvenSchedule):
    """A CTA per worker, tile of 128 rows, and half of the output's columns; ``share`` is 2."""

    def launch(self, q, cuts):
        tiles = cuts.shape[0] * self.groups(q.shape[1] * q.shape[2])
        return {"grid": (2 * tiles, 1, 1)}

    def half(self):
        """Which half of the columns this CTA has."""
        return cute.arch.block_idx()[0] % 2

    @cute.jit
    def work(self, where, lse, masked):
        """The work of this CTA, its tile counted in 128 rows."""
        table, lengths, cuts = where
        _, heads, queries, _ = lse.shape
        groups = self.groups(heads * queries)
        tile = cute.arch.block_idx()[0] // 2
        cut = cuts[tile // groups, None]
        last, last_tile = cut[int(Cut.END_SEQUENCE)], cut[int(Cut.END_TILE)]
        last = last - 1 if last_tile == 0 else last
        return Work(
            table, lengths, cut[int(Cut.SEQUENCE)], cut[int(Cut.TILE)], last, last_tile,
            tile % groups, 2 * tile * self.share, heads, queries, masked,
        )  # fmt: skip
