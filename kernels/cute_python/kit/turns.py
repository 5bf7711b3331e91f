"""Ping-pong of per-head attention: one warpgroup's softmax runs under the other's wgmma products.

The softmax of one runs under the products of the other.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import warpgroup

from mla_var3.kernel.cute_python.kit.head_epilogue import EPILOGUE
from mla_var3.kernel.cute_python.kit.head_items import GROUPS
from mla_var3.kernel.cute_python.kit.head_kernel import CONSUMERS, HeadKernel

#: Named barrier of the first warpgroup's turn; the next is the other's.
TURN = EPILOGUE + GROUPS


class TurnKernel(HeadKernel):
    """A main loop whose products wait for their turn."""

    @cute.jit
    def attend(self, wg, storage, item, steps, done):
        """The scores of step i run under the output of step i - 1."""
        place = self.place_of(wg, done, 0)
        self.scores(wg, storage, place)
        warpgroup.wait_group(0)
        self.release(storage.k_free, place)
        self.softmax(wg, self.tile_of(wg, item, steps, 0))
        self.round_weights(wg)
        for i in cutlass.range(1, steps, unroll=1):
            before, place = self.place_of(wg, done, i - 1), self.place_of(wg, done, i)
            self.wait_turn(wg)
            self.scores(wg, storage, place)
            self.accumulate(wg, storage, before)
            self.pass_turn(wg)
            warpgroup.wait_group(1)
            self.release(storage.k_free, place)
            self.softmax(wg, self.tile_of(wg, item, steps, i))
            warpgroup.wait_group(0)
            self.release(storage.v_free, before)
            self.rescale(wg)
            self.round_weights(wg)
        place = self.place_of(wg, done, steps - 1)
        self.accumulate(wg, storage, place)
        warpgroup.wait_group(0)
        self.release(storage.v_free, place)

    @cute.jit
    def enter(self, wg):
        if wg.number == 1:
            self.pass_turn(wg)

    @cute.jit
    def leave(self, wg):
        if wg.number == 0:
            self.wait_turn(wg)

    @cute.jit
    def wait_turn(self, wg):
        cute.arch.barrier(barrier_id=TURN + wg.number, number_of_threads=CONSUMERS)

    @cute.jit
    def pass_turn(self, wg):
        cute.arch.barrier_arrive(barrier_id=TURN + 1 - wg.number, number_of_threads=CONSUMERS)
