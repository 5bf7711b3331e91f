"""Emulated ``mma.sync``: gathers register fragments, multiplies matrices, scatters the result."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator import formats
from mla_var3.emulator.formats import F16, U32
from mla_var3.emulator.units.base import Unit, UnitText
from mla_var3.emulator.units.layouts import Shape, element_bytes, half_pairs, scaled, values

#: Values of the low 4 bits of a byte.
NIBBLES = {"e2m1"}


class MmaText(UnitText):
    """A warp executes ``mma`` as one."""

    together: ClassVar[frozenset[str]] = frozenset({"mma"})


class Mma(Unit):
    """Warp-level matrix products."""

    name = "mma"
    text = MmaText

    def run(self, constant: tuple[Shape, list[list[int]]], scales: Any, s: Any, pc: int) -> None:
        """D = A B + C for each warp of ``s``."""
        m = self.machine
        m.met(s)
        shape, (d, a, b, c) = constant
        warps = len(m.ids[s]) // 32
        m.counts.flops(pc, 2 * shape.m * shape.n * shape.k * warps)
        if shape.a == "f64":
            self._double(shape, d, a, b, c, s, warps)
            return
        if scales is not None:
            x, y = self._scaled(shape, a, b, scales, s, warps)
        else:
            x, y = self._a(shape, a, s, warps), self._b(shape, b, s, warps)
        self._accumulate(shape, x @ y, d, c, s, warps)

    def _codes(self, rows: list[int], size: int, s: Any, warps: int) -> NDArray[Any]:
        """Registers as codes: [registers, warps, group of 8, elements of a lane quad]."""
        words = np.stack([self.machine.r[i][s] for i in rows])
        return np.ascontiguousarray(words.reshape(len(rows), warps, 8, 4)).view(f"u{size}")

    def _a(self, shape: Shape, rows: list[int], s: Any, warps: int) -> NDArray[Any]:
        codes = self._codes(rows, element_bytes(shape.a), s, warps)
        x = values(_unpacked(codes, shape, shape.a), shape.a)
        tall = x.reshape(len(rows) // 2, 2, warps, 8, -1) if len(rows) > 1 else x[:, None]
        return tall.transpose(2, 1, 3, 0, 4).reshape(warps, 16, -1)

    def _b(self, shape: Shape, rows: list[int], s: Any, warps: int) -> NDArray[Any]:
        codes = self._codes(rows, element_bytes(shape.b), s, warps)
        x = values(_unpacked(codes, shape, shape.b), shape.b)
        return x.transpose(1, 0, 3, 2).reshape(warps, -1, 8)

    def _accumulate(
        self, shape: Shape, product: NDArray[Any], d: list[int], c: list[int], s: Any, warps: int
    ) -> None:
        m = self.machine
        # [warps, half, row, quad, pair] to [half, pair][lane]
        grid = product.reshape(warps, 2, 8, 4, 2)
        # All of C is read first: D may be the same registers in another order.
        if shape.d == "f16":
            halves = [np.ascontiguousarray(m.r[i][s]).view(F16).reshape(-1, 2) for i in c]
            sums = [grid[:, i].reshape(-1, 2) + old for i, old in enumerate(halves)]
            for row, total in zip(d, sums, strict=True):
                m.r[row][s] = half_pairs(total.astype(F16).view(np.uint16))
            return
        bank = m.rs if shape.d == "s32" else m.rf
        sums = [bank[c[i]][s] + grid[:, i // 2, :, :, i % 2].reshape(-1) for i in range(4)]
        for row, total in zip(d, sums, strict=True):
            if shape.d == "s32":
                total = np.clip(total, -(2**31), 2**31 - 1) if shape.saturate else total
                bank[row][s] = total.astype(np.int64)
            else:
                bank[row][s] = total

    def _double(
        self,
        shape: Shape,
        d: list[int],
        a: list[int],
        b: list[int],
        c: list[int],
        s: Any,
        warps: int,
    ) -> None:
        """m8n8k4 in float64."""
        m = self.machine
        x = m.qf[a[0]][s].reshape(warps, 8, 4)
        y = m.qf[b[0]][s].reshape(warps, 8, 4).swapaxes(1, 2)
        grid = (x @ y).reshape(warps, 8, 4, 2)
        sums = [m.qf[c[i]][s] + grid[..., i].reshape(-1) for i in range(2)]
        for row, total in zip(d, sums, strict=True):
            m.qf[row][s] = total

    def _scaled(
        self, shape: Shape, a: list[int], b: list[int], scales: Any, s: Any, warps: int
    ) -> tuple[Any, Any]:
        """Operands times their block scales (``block_scale``)."""
        kind, vector, word_a, word_b, byte_a, thread_a, byte_b, thread_b = scales
        x, y = self._a(shape, a, s, warps), self._b(shape, b, s, warps)
        n = len(self.machine.ids[s])
        parts = [np.broadcast_to(v, n).reshape(warps, 8, 4) for v in (word_a, word_b)]
        # The lanes of a quad that the thread id names hold rows g and g + 8 ("block scaling").
        at, bt = int(np.ravel(thread_a)[0]), int(np.ravel(thread_b)[0])
        ab, bb = int(np.ravel(byte_a)[0]), int(np.ravel(byte_b)[0])
        rows = np.concatenate([parts[0][:, :, 2 * at], parts[0][:, :, 2 * at + 1]], 1)
        sa = _scale(rows, ab, vector, kind)
        sb = _scale(parts[1][:, :, bt], bb, vector, kind)
        each = shape.k // vector
        return scaled(x, np.repeat(sa, each, 2)), scaled(y, np.repeat(sb, each, 2).swapaxes(1, 2))


def _scale(words: NDArray[Any], first: int, vector: int, kind: str) -> NDArray[np.float32]:
    """``vector`` scale factors of each row from its word."""
    codes = [((words >> U32(8 * (first + j))) & U32(255)).astype(np.uint8) for j in range(vector)]
    return np.stack([formats.decode(c, kind) for c in codes], -1)


def _unpacked(codes: NDArray[Any], shape: Shape, kind: str) -> NDArray[Any]:
    """Codes of 4 bits two to a byte (k64), or one per byte in bits 2 to 5 (k32, f8f6f4)."""
    if kind not in NIBBLES:
        return codes
    if shape.k == 64:
        return np.stack([codes & 15, codes >> 4], -1).reshape(*codes.shape[:-1], -1)
    return (codes >> 2) & 15
