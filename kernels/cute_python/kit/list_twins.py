"""Lists of tokens in the forms that servers keep, of which two CTAs convert half each.

As ``twins``, for lists of one cache or two and for page tables, and for tokens of 656 or 584 bytes.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Float16, Float32, Int32, Int64, Uint8, range_constexpr

from mla_var3.kernel.cute_python.kit.gather import PIECE
from mla_var3.kernel.cute_python.kit.list_window import ListWindowKernel, Model1Kernel
from mla_var3.kernel.cute_python.kit.slabs import SLABS
from mla_var3.kernel.cute_python.kit.twins import TwinsKernel


class ListTwinsKernel(TwinsKernel, ListWindowKernel):
    """Tokens of 656 bytes: of one list, of lists of two caches, or of a page table."""

    def any_row(self, caches):
        """Where there are bytes to read for a place without a token."""
        return Int64(caches[0].iterator.toint())


class Model1TwinsKernel(ListTwinsKernel, Model1Kernel):
    """Tokens of 584 bytes: seven slabs of e4m3 values, and rotary values that count as values."""

    words, each, fixed = 2, 1, 3
    told, fenced = ((0, 1, 2), (3,), (4, 5), (6, 7)), tuple(range(SLABS - 1))

    def exact(self, words):
        """The powers of two that eight bytes stand for."""
        bits = cute.make_rmem_tensor(8, Int32)
        for i in range(8):
            bits[i] = ((words[i // 4] >> (8 * (i % 4))) & 0xFF) << 23
        return cute.recast_tensor(bits, Float32)

    @cute.jit
    def put_rotary(self, storage, held, odd, group, i: cutlass.Constexpr):
        """Rotary values in fp16 to the last slab of the values."""
        words = cute.recast_tensor(held.pieces[None, self.values + i], Int32)
        raw = cute.make_rmem_tensor(4, Int32)
        for k in range_constexpr(4):
            raw[k] = words[k] & held.masks[1 + i]
        values = cute.make_rmem_tensor(PIECE // 2, Float16)
        values.store(cute.recast_tensor(raw, BFloat16).load().to(Float32).to(Float16))
        part = cute.recast_tensor(values, Uint8)
        self.put(storage, part, odd * SLABS + self.rope_slab, group, i)
