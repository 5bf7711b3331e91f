"""Emulated ``tcgen05.mma`` unit: multiplies matrices of a CTA, or a pair, into tensor memory.

It also runs ``tcgen05.commit``, by which an mbarrier learns that products are done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator import formats
from mla_var3.emulator import functions as fn
from mla_var3.emulator.clocks import TENSOR, Event
from mla_var3.emulator.formats import F16, F32
from mla_var3.emulator.units.base import Unit
from mla_var3.emulator.units.layouts import element_bytes, scaled, values
from mla_var3.emulator.units.tcgen05.descriptors import Kind, NotEmulated, Product, lanes_of
from mla_var3.emulator.units.tcgen05.memory import TensorMemory, memory_of
from mla_var3.emulator.units.tcgen05.operands import SharedOperands
from mla_var3.emulator.units.tcgen05.shadow import BLOCKS, LANES, ROOM, Place
from mla_var3.emulator.units.wgmma import multiplied

if TYPE_CHECKING:
    from mla_var3.emulator.machine import Machine

#: A matrix in tensor memory: its address has the lane above, and the column below.
COLUMN = 0xFFFF


@dataclass(frozen=True)
class Form:
    """What the opcode of a ``tcgen05.mma`` says, and constant operands.

    Attributes:
        kind: Its kind.
        in_tensor: Whether A lies in tensor memory.
        shift: Power of two by which the accumulator is divided first.
    """

    kind: Kind
    in_tensor: bool
    shift: int = 0


class Operands(NamedTuple):
    """The operands of one product, as numbers.

    ``mask`` has words of lanes that are left alone, or what says which columns of B are zeros.
    """

    d: int
    a: int
    b: int
    scales: tuple[int, ...]
    mask: tuple[int, ...]
    keep: bool


class Issue(NamedTuple):
    """A product on its way: its event, what tells it from others (see the shadow), and where."""

    event: Event
    form: int
    pc: int


def at_thread(value: Any, i: int) -> int:
    """The value of the ``i``-th thread, or of all."""
    return int(value[i]) if np.ndim(value) else int(value)


class TensorProducts(Unit):
    """The tcgen05 unit of each CTA, or pair of CTAs, of a cluster."""

    name = "tcgen05"

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.shared = SharedOperands(machine)

    @property
    def memory(self) -> TensorMemory:
        return memory_of(self.machine)

    # Products ---------------------------------------------------------------------------------
    def product(
        self,
        form: Form,
        operands: tuple[Any, ...],
        scales: tuple[Any, ...],
        mask: tuple[Any, ...],
        s: Any,
        pc: int,
    ) -> None:
        """``tcgen05.mma`` of each thread of ``s``.

        Args:
            form: What does not depend on the thread.
            operands: D, A, B, the instruction descriptor, and whether the sum goes on.
            scales: Addresses of the scale factors of A and of B.
            mask: Words of the lanes whose rows are left as they are, or of columns of zeros.
            s: The threads.
            pc: The instruction.
        """
        m = self.machine
        for i, thread in enumerate(m.ids[s].tolist()):
            d, a, b, word, keep = (at_thread(x, i) for x in operands)
            factors, lanes = (tuple(at_thread(x, i) for x in group) for group in (scales, mask))
            try:
                w = Product.of(word, form.kind)
                self._product(form, w, Operands(d, a, b, factors, lanes, bool(keep)), thread, pc)
            except NotEmulated as error:
                raise m.reporter.stop(pc, str(error)) from None
        m.note("tcgen05.mma", s, pc)

    def _product(self, form: Form, w: Product, x: Operands, thread: int, pc: int) -> None:
        m, kind = self.machine, form.kind
        ctas = self.ctas(kind.pair, int(m.cta[thread]), pc)
        event = self.memory.shadow.issue(TENSOR, int(m.warp[thread]))
        issue = Issue(event, hash((w.m, w.n, w.d, kind, x.d)) | 1, pc)
        right = self._right(w, x, ctas, issue)
        if x.scales:
            factors = self._scales(x.scales[1], w.b_scale, w.n, w, kind, ctas[0], issue)
            right = scaled(right, factors)
        for cta in ctas:
            left = self._left(form, w, x, w.m // len(ctas), cta, issue)
            if x.scales:
                rows = w.m // len(ctas)
                factors = self._scales(x.scales[0], w.a_scale, rows, w, kind, cta, issue)
                left = scaled(left, factors)
            out = multiplied(left, right.T)
            self._accumulate(-out if w.negative else out, form, w, x, cta, issue)
        m.counts.flops(pc, 2 * w.m * w.n * w.k)
        if m.trace is not None:
            # An instruction sums over 32 bytes, whatever their type.
            terms = w.m * w.n // len(ctas) // 64 * 16
            m.trace.tensor(m.number, int(m.warp[thread]), tuple(ctas), terms, pc)

    def ctas(self, pair: bool, cta: int, pc: int) -> list[int]:
        """The CTAs that work on what one of their threads has issued."""
        if not pair:
            return [cta]
        if self.machine.ctas % 2:
            raise self.machine.reporter.stop(
                pc, "a tcgen05 instruction of a pair of CTAs in a cluster without pairs"
            )
        return [cta & ~1, cta | 1]

    def _right(self, w: Product, x: Operands, ctas: list[int], issue: Issue) -> NDArray[Any]:
        """B as [n, k]; each CTA of a pair has its part of the columns."""
        n = w.n // len(ctas)
        parts = [self._values(x.b, n, w, w.b, w.b_transposed, cta, issue) for cta in ctas]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _left(
        self, form: Form, w: Product, x: Operands, rows: int, cta: int, issue: Issue
    ) -> NDArray[Any]:
        """A as [rows, k]."""
        if not form.in_tensor:
            return self._values(x.a, rows, w, w.a, w.a_transposed, cta, issue)
        size = element_bytes(w.a)
        first = x.a & COLUMN
        if form.kind.folds(rows) > 1 and form.kind.stationary:
            raise NotEmulated(
                f"a tcgen05.mma.ws of {rows} rows with A in tensor memory is not emulated"
            )
        lanes, blocks = lanes_of(rows, form.kind.pair, x.a >> 16 & 0x7FFF)
        place = Place(cta, blocks, slice(first, first + w.k * size // 4))
        self._reads(place, issue)
        words = np.ascontiguousarray(self.memory.words[cta, lanes, place.columns])
        return values(words.view(f"u{size}"), w.a)

    def _values(
        self, word: int, rows: int, w: Product, kind: str, transposed: bool, cta: int, issue: Issue
    ) -> NDArray[Any]:
        """An operand in a CTA's shared memory, as [rows, k]."""
        size = 1 if w.packed else element_bytes(kind)
        depth = w.k // 2 if w.packed else w.k
        codes = self.shared.codes(word, rows, depth, size, transposed, cta, issue.event, issue.pc)
        if w.packed:
            codes = np.stack([codes & 15, codes >> 4], -1).reshape(len(codes), -1)
        out = values(codes, kind)
        return out.T if transposed else out

    def _scales(
        self, at: int, byte: int, rows: int, w: Product, kind: Kind, cta: int, issue: Issue
    ) -> NDArray[np.float32]:
        """Scale factors [rows, k]: row r in lane r % 32 of column r // 32, bytes from ``byte``."""
        first, wide, count = at & COLUMN, -(-rows // 32), w.k // kind.block
        place = Place(cta, slice(0, BLOCKS), slice(first, first + wide))
        self._reads(place, issue)
        if self.machine.checks:
            self.memory.shadow.scales(place, issue.event, issue.pc)
        words = np.ascontiguousarray(self.memory.words[cta, :32, place.columns]).view(np.uint8)
        codes = words.reshape(32, wide, 4).transpose(1, 0, 2).reshape(32 * wide, 4)[:rows]
        byte = byte or at >> 30
        chosen = formats.decode(codes[:, byte : byte + count], w.scale)
        return np.repeat(chosen, kind.block, 1)

    def _reads(self, place: Place, issue: Issue, form: int = 0) -> None:
        if place.columns.stop > ROOM:
            raise NotEmulated(f"a matrix in tensor memory reaches column {place.columns.stop}")
        self.memory.allocated([place], issue.pc, "mma")
        if self.machine.checks:
            self.memory.shadow.read(place, issue.event, issue.pc, form)

    # Accumulators -----------------------------------------------------------------------------
    def _accumulate(
        self, out: NDArray[Any], form: Form, w: Product, x: Operands, cta: int, issue: Issue
    ) -> None:
        """Add [rows, n] to the accumulator, one element to a column."""
        rows, first = len(out), x.d & COLUMN
        folds = form.kind.folds(rows)
        wide, base = w.n // folds, x.d >> 16 & 0x7FFF
        lanes, blocks = lanes_of(LANES if folds > 1 else rows, form.kind.pair, base)
        place = Place(cta, blocks, slice(first, first + wide))
        self._touches(place, x.keep, issue)
        if folds > 1:  # The first lanes hold the leftmost columns, the last the rightmost.
            out = np.concatenate(np.split(out, folds, 1))
        words = self.memory.words
        old = words[cta, lanes, place.columns]
        new = _sum(out, old, w, x.keep, form.shift)
        if any(x.mask):
            if form.kind.stationary:
                raise NotEmulated("columns of zeros of a tcgen05.mma.ws are not emulated")
            mine = x.mask[4 * (cta & 1) :][:4] if form.kind.pair else x.mask
            new = np.where(_lanes_off(mine)[lanes][:, None], old, new)
        words[cta, lanes, place.columns] = new

    def _touches(self, place: Place, keep: bool, issue: Issue) -> None:
        if keep:
            self._reads(place, issue, issue.form)
        elif place.columns.stop > ROOM:
            raise NotEmulated(f"an accumulator reaches column {place.columns.stop}")
        self.memory.allocated([place], issue.pc, "mma")
        if self.machine.checks:
            self.memory.shadow.write(place, issue.event, issue.pc, issue.form)

    # Completion -------------------------------------------------------------------------------
    def commit(self, barrier: Any, mask: Any, s: Any, pc: int) -> None:
        """``tcgen05.commit``: an arrival once all that the thread has issued is done.

        A mask sends it to the barrier at the same offset of each CTA that it names.
        """
        m = self.machine
        n, size = len(m.ids[s]), m.shared.size
        bars = m.shared.physical(fn.spread(barrier, n), m.cta_offset[s])
        for i, warp in enumerate(m.warp[s].tolist()):
            at = int(bars[i])
            places = [at]
            if mask is not None:
                named = at_thread(mask, i)
                places = [at % size + k * size for k in range(m.ctas) if named >> k & 1]
            chain, number = self.memory.shadow.last(TENSOR, warp)
            for place in places:
                m.sync.arrived(place, Event(chain, number, warp, TENSOR), pc)
            m.clocks.tick([warp])
        m.note("tcgen05.commit", s, pc)


def _sum(
    out: NDArray[Any], old: NDArray[np.uint32], w: Product, keep: bool, shift: int
) -> NDArray[np.uint32]:
    """The words of the accumulator after a product."""
    if w.d == "s32":
        total = out.astype(np.int64) + (old.view(np.int32) if keep else 0)
        if w.saturates:
            total = np.clip(total, -(2**31), 2**31 - 1)
        return total.astype(np.int32).view(np.uint32)
    if w.d == "f16":
        before = (old & 0xFFFF).astype(np.uint16).view(F16).astype(F32)
        total = out + before * F32(2.0**-shift) if keep else out
        return total.astype(F16).view(np.uint16).astype(np.uint32)
    out = np.ascontiguousarray(out, F32)
    if not keep:
        return out.view(np.uint32)
    before = old.view(F32)
    return (out + (before * F32(2.0**-shift) if shift else before)).view(np.uint32)


def _lanes_off(words: tuple[int, ...]) -> NDArray[np.bool_]:
    """Lanes that a mask of four words names."""
    return np.unpackbits(np.array(words, np.uint32).view(np.uint8), bitorder="little").astype(bool)
