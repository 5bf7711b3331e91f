"""Records each warp's steps of an emulated launch, in its own order and without times.

A step is a run of instructions, an operation that they start (product, copy), a signal to others
(arrivals, bytes, words in global memory) or a wait. ``replay`` puts the steps on a clock.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

#: A warp of a launch: the number of its cluster, and its own in it.
Who = tuple[int, int]


@dataclass(slots=True)
class Step:
    """One step of a warp.

    Attributes:
        kind: ``run``, ``product``, ``commit``, ``settle``, ``arrive``, ``copy``, ``wait``,
            ``store``, ``store commit`` or ``store wait``; of tensor memory ``tensor``, a product,
            and ``told``, an arrival once the products of the warp are done.
        pc: The instruction; of a run the first.
        key: What it tells or waits for: something that ends once; of ``tensor`` the CTAs.
        amount: Of a run the instruction behind its last one; bytes; terms of a product (n k); of a
            wait for groups how many may be left.
        cta: Of a copy that with the memory it goes to.
    """

    kind: str
    pc: int
    key: Hashable = None
    amount: int = 0
    cta: int = -1


@dataclass
class Trace:
    """The steps of all warps of a launch.

    Attributes:
        warps_per_cta: Warps of a CTA.
        steps: Per warp what it did.
    """

    warps_per_cta: int
    steps: dict[Who, list[Step]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._open: dict[Who, tuple[int, int]] = {}
        self._serial = itertools.count()
        #: Writes so far of each word by which warps talk.
        self._written: dict[int, int] = {}

    # What warps do ----------------------------------------------------------------------------
    def run(self, cluster: int, warps: Iterable[int], start: int, end: int) -> None:
        """Warps begin to issue instructions; what these start or wait for is told as it comes."""
        for warp in warps:
            self._flush((cluster, warp))
            self._open[cluster, warp] = start, end

    def add(
        self, cluster: int, warps: Iterable[int], kind: str, pc: int, key: Hashable = None,
        amount: int = 0, cta: int = -1,
    ) -> None:  # fmt: skip
        """A step of each warp, at an instruction of those that they issue."""
        for warp in warps:
            who = cluster, int(warp)
            self._until(who, pc)
            self._steps(who).append(Step(kind, pc, key, amount, cta))

    def serial(self) -> int:
        """A number that nothing else has."""
        return next(self._serial)

    def product(self, cluster: int, first: int, terms: int, pc: int) -> None:
        """A warpgroup starts products of 64 rows with so many terms (columns times depth)."""
        key = ("product", self.serial())
        self.add(cluster, range(first, first + 4), "product", pc, key, terms)

    def tensor(self, cluster: int, warp: int, ctas: tuple[int, ...], terms: int, pc: int) -> None:
        """A warp starts a product into the tensor memory of CTAs, so many terms in each.

        Those of one instruction that follow each other are one.
        """
        mine = self._steps((cluster, warp))
        last = mine[-1] if mine else None
        if last and (last.kind, last.pc, last.key) == ("tensor", pc, ctas):
            last.amount += terms
        else:
            self.add(cluster, [warp], "tensor", pc, ctas, terms)

    def copy(
        self, cluster: int, warp: int, key: Hashable, count: int, pc: int, cta: int
    ) -> None:  # fmt: skip
        """An asynchronous copy that counts its bytes; those of one instruction are one."""
        mine = self._steps((cluster, warp))
        last = mine[-1] if mine else None
        if last and (last.kind, last.pc, last.key) == ("copy", pc, key):
            last.amount += count
        else:
            self.add(cluster, [warp], "copy", pc, key, count, cta)

    def write_words(self, cluster: int, addresses: Any, warps: Any, pc: int) -> None:
        """Warps write words that others may be waiting for."""
        for address, warp in sorted(set(zip(addresses.tolist(), warps.tolist(), strict=True))):
            self._written[address] = number = self._written.get(address, 0) + 1
            self.add(cluster, [warp], "arrive", pc, ("word", address, number))

    def read_words(self, cluster: int, addresses: Any, warps: Any, pc: int) -> None:
        """Warps read such words; who asks again and again has waited once."""
        for address, warp in sorted(set(zip(addresses.tolist(), warps.tolist(), strict=True))):
            if (number := self._written.get(address)) is None:
                continue
            who = cluster, warp
            self._forget(who, pc, address)
            self.add(cluster, [warp], "wait", pc, ("word", address, number))

    def close(self) -> Trace:
        """The launch has ended."""
        for who in list(self._open):
            self._flush(who)
        return self

    # Segments ---------------------------------------------------------------------------------
    def _steps(self, who: Who) -> list[Step]:
        return self.steps.setdefault(who, [])

    def _until(self, who: Who, pc: int) -> None:
        """Issue what is open up to an instruction."""
        start, end = self._open.get(who, (0, 0))
        if start <= pc < end:
            self._steps(who).append(Step("run", start, amount=pc + 1))
            self._open[who] = pc + 1, end

    def _flush(self, who: Who) -> None:
        start, end = self._open.pop(who, (0, 0))
        if start < end:
            self._steps(who).append(Step("run", start, amount=end))

    def _forget(self, who: Who, pc: int, address: int) -> None:
        """Drop earlier looks at a word, and the loop in which they were taken."""
        mine = self._steps(who)
        at = len(mine) - 1
        while at >= 0 and mine[at].kind == "run":
            at -= 1
        if at >= 0 and mine[at].kind == "wait" and mine[at].pc == pc:
            key = mine[at].key
            if isinstance(key, tuple) and key[:2] == ("word", address):
                del mine[at:]
                _, end = self._open.get(who, (0, 0))
                self._open[who] = pc + 1, max(end, pc + 1)
