"""Emulated warp-level operations: runs shuffles, votes, reductions, and matrix loads and stores."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator.distinct import distinct
from mla_var3.emulator.formats import U32, U64
from mla_var3.emulator.units.base import WARP, Unit, UnitText
from mla_var3.emulator.within import meet
from mla_var3.gpuless.ptx import Instruction

LANES = np.arange(32)
BIT = U64(1) << np.arange(32, dtype=U64)
REDUCE = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
IDENTITY = {"add": 0, "or": 0, "xor": 0, "and": -1}


class WarpsText(UnitText):
    """What all lanes that a mask names execute together."""

    together: ClassVar[frozenset[str]] = frozenset(
        {"shfl", "elect", "ldmatrix", "stmatrix", "redux", "vote", "match", "movmatrix"}
    )

    @classmethod
    def lanes(cls, i: Instruction) -> int:
        return WARP if i.op == "bar.warp.sync" else super().lanes(i)


class Warps(Unit):
    """Shuffles, votes, reductions and matrix loads."""

    name = "warps"
    text = WarpsText

    def _spread(self, values: Any, s: Any) -> tuple[NDArray[Any], Any]:
        """Values as [warps, 32], and how to take results back."""
        m = self.machine
        ids = m.ids[s]
        values = np.broadcast_to(values, ids.shape)
        if len(ids) % 32 == 0 and bool((m.lane[ids[::32]] == 0).all()) and m.whole(s):
            return values.reshape(-1, 32), None
        warp, lane = m.warp[ids], m.lane[ids]
        _, row = np.unique(warp, return_inverse=True)
        out = np.zeros((int(row.max()) + 1, 32), values.dtype)
        out[row, lane] = values
        return out, (row, lane)

    def _present(self, s: Any) -> NDArray[np.bool_]:
        """Which lanes take part, [warps, 32]."""
        return self._spread(np.ones(len(self.machine.ids[s]), bool), s)[0]

    @staticmethod
    def _back(values: NDArray[Any], how: Any) -> NDArray[Any]:
        return values.reshape(-1) if how is None else values[how]

    def shuffle(self, mode: str, value: Any, index: Any, control: Any, s: Any) -> tuple[Any, Any]:
        """``shfl.sync``: the value of another lane, and whether that lane is in range."""
        self.machine.met(s)
        a, how = self._spread(value, s)
        b, c = self._number(index, s) & 31, self._number(control, s)
        segment, clamp = (c >> 8) & 31, c & 31
        low, high = LANES & segment, (LANES & segment) | (clamp & ~segment)
        match mode:
            case "up":
                lane = LANES - b
                ok = lane >= high
            case "down":
                lane = LANES + b
                ok = lane <= high
            case "bfly":
                lane = LANES ^ b
                ok = lane <= high
            case _:
                lane = low | (b & ~segment)
                ok = lane <= high
        lane = np.where(ok, lane, LANES)
        if lane.ndim == 1:  # All warps alike, as in nearly all kernels.
            return self._back(a[:, lane], how), self._back(np.broadcast_to(ok, a.shape), how)
        ok = np.broadcast_to(ok, a.shape)
        return self._back(np.take_along_axis(a, lane, 1), how), self._back(ok, how)

    def _number(self, value: Any, s: Any) -> NDArray[np.int64]:
        """Whole numbers as [warps, 32]; a single one where the text has it."""
        number = np.asarray(value).astype(np.int64)
        return self._spread(number, s)[0] if number.ndim else number

    def vote(self, mode: str, test: Any, s: Any) -> Any:
        """``vote.sync``."""
        self.machine.met(s)
        return self._vote(mode, test, s)

    def _vote(self, mode: str, test: Any, s: Any) -> Any:
        p, how = self._spread(test, s)
        here = self._present(s)
        out: Any
        match mode:
            case "any":
                out = (p & here).any(1)
            case "all":
                out = (p | ~here).all(1)
            case "uni":
                out = (p | ~here).all(1) | ~(p & here).any(1)
            case _:
                out = ((p & here) * BIT).sum(1).astype(U32)
        return self._back(np.repeat(out[:, None], 32, 1), how)

    def active(self, s: Any) -> Any:
        """``activemask``."""
        return self._vote("ballot", True, s)

    def elect(self, s: Any) -> tuple[Any, Any]:
        """``elect.sync``: true in the first lane of each warp; and that lane."""
        if isinstance(s, slice) and self.machine.whole(s):
            lane = self.machine.lane[s]
            if lane[0] == 0 and len(lane) % 32 == 0:
                return lane == 0, np.zeros(len(lane), U32)
        here, how = self._spread(np.ones(len(self.machine.ids[s]), bool), s)
        leader = here.argmax(1)
        chosen = LANES[None, :] == leader[:, None]
        lanes = np.repeat(leader[:, None], 32, 1).astype(U32)
        return self._back(chosen, how), self._back(lanes, how)

    def reduce(self, operation: str, value: Any, s: Any, absolute: bool, nan: bool) -> Any:
        """``redux.sync``."""
        self.machine.met(s)
        a, how = self._spread(value, s)
        here = self._present(s)
        if a.dtype == np.float32:
            a = np.abs(a) if absolute else a
            fn = {"min": np.fmin, "max": np.fmax}[operation]
            out = fn.reduce(np.where(here, a, np.nan), 1)
            if nan:
                out = np.where((np.isnan(a) & here).any(1), np.nan, out)
        else:
            if operation in IDENTITY:
                neutral = np.array(IDENTITY[operation]).astype(a.dtype)
            else:
                info = np.iinfo(a.dtype)
                neutral = np.array(info.max if operation == "min" else info.min, a.dtype)
            out = REDUCE[operation].reduce(np.where(here, a, neutral), 1)
        return self._back(np.repeat(out.astype(a.dtype)[:, None], 32, 1), how)

    def match(self, mode: str, value: Any, s: Any) -> tuple[Any, Any]:
        """``match.sync``: lanes with the same value; for ``all``, whether all have it."""
        self.machine.met(s)
        a, how = self._spread(value, s)
        here = self._present(s)
        same = (a[:, :, None] == a[:, None, :]) & here[:, None, :]
        mask = (same * BIT).sum(2).astype(U32)
        if mode == "any":
            return self._back(mask, how), self._back(here, how)
        every = (same | ~here[:, None, :]).all(2)
        return self._back(np.where(every, mask, U32(0)), how), self._back(every, how)

    # Order ------------------------------------------------------------------------------------
    def sync(self, mask: Any, s: Any) -> None:
        """``bar.warp.sync``."""
        m = self.machine
        if not m.clocks.lanes.open | m.clocks.lagging.warps:
            return
        masks = distinct(np.atleast_1d(mask))
        for one in masks:
            meet(m, s if len(masks) == 1 else m.ids[s][mask == one])

    # Matrices ---------------------------------------------------------------------------------
    def _rows(
        self, address: Any, count: int, s: Any, pc: int, what: str
    ) -> tuple[NDArray[np.int64], Any, Any]:
        """Addresses of the rows of ``count`` matrices, [warps, count, 8], their warps and lanes."""
        m = self.machine
        full, _ = self._spread(np.asarray(address), s)
        used = full[:, : 8 * count].reshape(-1)
        ids = m.ids[s].reshape(-1, 32)[:, : 8 * count].reshape(-1)
        at, _ = m.memory.shared_at(used, 16, ids, pc, what)
        return at.reshape(-1, count, 8), m.warp[ids], m.lane[ids]

    def ldmatrix(
        self, address: Any, count: int, trans: bool, s: Any, pc: int
    ) -> list[NDArray[np.uint32]]:
        """``ldmatrix``: ``count`` matrices of 8 by 8 halves over the lanes."""
        rows = self._seen(address, count, s, pc)
        x = self.machine.shared.views[2][(rows >> 1)[..., None] + np.arange(8)]
        if trans:
            x = x.swapaxes(2, 3)
        words = np.ascontiguousarray(x).view(U32)
        return [words[:, i].reshape(-1) for i in range(count)]

    def ldmatrix_bytes(self, address: Any, count: int, s: Any, pc: int) -> list[NDArray[np.uint32]]:
        """``ldmatrix`` of 16 by 16 bytes, transposed: two registers each of ``count``.

        Byte j of register k of lane l is row 4 (l % 4) + j, column l / 4 + 8 k.
        """
        rows = self._seen(address, count, s, pc)
        x = self.machine.shared.views[1][rows[..., None] + np.arange(16)]
        x = x.reshape(len(rows), count // 2, 4, 4, 2, 8).transpose(0, 1, 4, 5, 2, 3)
        words = np.ascontiguousarray(x).reshape(-1).view(U32).reshape(len(rows), count, 32)
        return [words[:, i].reshape(-1) for i in range(count)]

    def _seen(self, address: Any, count: int, s: Any, pc: int) -> NDArray[np.int64]:
        """Addresses of the rows that are read; tells of them."""
        m = self.machine
        rows, warp, lane = self._rows(address, count, s, pc, "read")
        if m.checks:
            self.machine.met(s)
            g, as_one = m.shared.granules(rows.reshape(-1), 16), m.model.collectives_order
            m.shadow.thread_read(g, warp, lane, pc, as_one)
        return rows

    def stmatrix(self, address: Any, values: list[Any], trans: bool, s: Any, pc: int) -> None:
        """``stmatrix`` of 8 by 8 halves."""
        x = np.stack([np.ascontiguousarray(v).reshape(-1, 8, 4) for v in values], 1).view(np.uint16)
        if trans:
            x = x.swapaxes(2, 3)
        self._write(address, len(values), x, s, pc)

    def stmatrix_bytes(self, address: Any, values: list[Any], s: Any, pc: int) -> None:
        """``stmatrix`` of 16 by 8 bytes, of which memory has the 8 columns as rows.

        A lane's four bytes are two columns of row lane / 4, then the same of the row 8 below.
        """
        x = np.stack([np.ascontiguousarray(v).reshape(-1, 8, 4) for v in values], 1).view(np.uint8)
        x = x.reshape(*x.shape[:2], 8, 4, 2, 2).transpose(0, 1, 3, 5, 4, 2)
        self._write(address, len(values), x, s, pc)

    def _write(self, address: Any, count: int, x: NDArray[Any], s: Any, pc: int) -> None:
        """Store the rows of ``count`` matrices per warp, of which ``x`` has 16 bytes each."""
        m = self.machine
        rows, warp, lane = self._rows(address, count, s, pc, "write")
        at, width = rows.reshape(-1), x.itemsize
        places = (at // width)[:, None] + np.arange(16 // width)
        self.machine.met(s)
        x, as_one = x.reshape(places.shape), m.model.collectives_order
        m.memory.put_shared(m.shared.views[width], [places], [x], at, 16, warp, lane, pc, as_one)
        if m.checks:
            m.sync.overwritten(at, 16, pc, s)

    def transpose(self, value: Any, s: Any) -> Any:
        """``movmatrix``: an 8 by 8 matrix of halves transposed across lanes."""
        self.machine.met(s)
        a, how = self._spread(value, s)
        x = np.ascontiguousarray(a).reshape(-1, 8, 4).view(np.uint16).swapaxes(1, 2)
        return self._back(np.ascontiguousarray(x).view(U32).reshape(-1, 32), how)
