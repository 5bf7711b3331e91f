"""Tracks what warps learn of each other by flags and locks in global memory, for race detection.

Who writes such a word leaves there what its warp knew (a snapshot); who reads it learns that. A
snapshot of another cluster has a chain of its own here, so that what one warp has learned of it
passes on through barriers, as all knowledge does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator.clocks import ABROAD, GRID, Clocks, Vector

K = TypeVar("K")
#: What of the words there an access that writes one keeps.
Keeps = Literal["none", "near", "all"]

#: A warp of a launch: its cluster, from 1, and its number there.
Key = tuple[int, int]


@dataclass(frozen=True)
class Snapshot:
    """What a warp knew: its vector, and which chains of it stand for snapshots of others."""

    vector: Vector
    learned: dict[Key, tuple[int, int]]

    @functools.cached_property  # Of a counter that many raise each reader asks for all of these.
    def others(self) -> dict[Key, int]:
        """Numbers of the snapshots of other clusters' warps that it had learned."""
        v = self.vector
        return {
            key: int(v[chain]) - base
            for key, (chain, base) in self.learned.items()
            if chain < len(v) and v[chain] > base
        }


@dataclass
class Board:
    """What the clusters of a launch have left for each other.

    Attributes:
        snapshots: Of each warp, in order.
        held: By address, the last snapshot of each warp that left one there.
        near: The same of what is left for a CTA or a cluster alone, with whom it is for.
        fences: Of each cluster, its warps' numbers at their proxy fences for global memory.
    """

    snapshots: dict[Key, list[Snapshot]] = field(default_factory=dict)
    held: dict[int, dict[Key, int]] = field(default_factory=dict)
    near: dict[int, dict[tuple[Key, str], int]] = field(default_factory=dict)
    fences: dict[int, list[list[int]]] = field(default_factory=dict)
    #: Whether the grid before may still run, and whether a thread has waited for its end.
    overlaps: bool = False
    waited: bool = False


class Words:
    """What the warps of one cluster leave in words and learn from them."""

    def __init__(
        self, clocks: Clocks, board: Board, warps_of: Callable[[Any], list[int]], of_cta: int
    ) -> None:
        self.clocks, self.board, self.warps_of = clocks, board, warps_of
        #: Warps of a CTA.
        self.of_cta = of_cta
        self.start(0)

    def start(self, cluster: int) -> None:
        """A new cluster, numbered from 1: nothing is learned."""
        warps = self.clocks.warps
        self.cluster = cluster
        #: Chain of the snapshots of another cluster's warp, and the number before the first.
        self.learned: dict[Key, tuple[int, int]] = {}
        #: The same by cluster, and what snapshots of one say together, by how many of each.
        self._of_cluster: dict[int, list[tuple[Key, int, int]]] = {}
        self._joined: dict[tuple[int, tuple[int, ...]], Vector | None] = {}
        #: Per warp what it has read that a fence has yet to acquire, and its number when it last
        #: read so.
        self.awaiting: list[dict[Key, int]] = [{} for _ in range(warps)]
        self.read_at = [0] * warps
        #: Per warp its number at its last fence, and which of its snapshots it took there.
        self.at_fence: list[tuple[int, int] | None] = [None] * warps
        #: Chain and number of the end of the grid before.
        self.grid = (0, 0)
        if self.board.overlaps:
            chain = self.clocks.chain("grid", GRID)
            self.clocks.issued[chain] += 1
            self.grid = chain, int(self.clocks.issued[chain])
        if cluster:
            self.board.fences[cluster] = self.clocks.fences["global"]

    # The grid before --------------------------------------------------------------------------
    def wait_for_grid(self, s: Any) -> None:
        """``griddepcontrol.wait``: the grid before has ended, and all that it wrote is there."""
        chain, number = self.grid
        self.board.waited = True
        for w in self.warps_of(s) if number else ():
            self.clocks.finish(w, chain, number)

    def is_early(self, warp: Any) -> Any:
        """Whether warps, or one, may run before the grid before has ended."""
        chain, number = self.grid
        return self.clocks.seen[warp, chain] < number

    # Reading ----------------------------------------------------------------------------------
    def acquire(
        self, addresses: Any, warps: NDArray[np.int64], at_once: bool, reach: str = "gpu"
    ) -> None:
        """Warps [n] have read words [n]; if not ``at_once``, a fence must follow.

        Of two that meet in a word each must be among those that the other's access is for.
        """
        held, near, clocks = self.board.held, self.board.near, self.clocks
        if not held and not near:
            return
        for address, w in set(zip(np.asarray(addresses).tolist(), warps.tolist(), strict=True)):
            found = held.get(address)
            if reach != "gpu" or address in near:
                found = self._met(w, found or {}, near.get(address, {}), reach)
            if not found:
                continue
            if at_once:
                self._learn(w, found)
            else:
                _add(self.awaiting[w], found)
                self.read_at[w] = int(clocks.seen[w, w])
                clocks.tick([w])

    def _met(
        self, w: int, wide: dict[Key, int], near: dict[tuple[Key, str], int], reach: str
    ) -> dict[Key, int]:
        """What a warp may learn of a word where it, or who wrote it, means a few alone."""
        found = {key: number for key, number in wide.items() if self._within(key, w, reach)}
        for (key, theirs), number in near.items():
            if self._within(key, w, reach) and self._within(key, w, theirs):
                _add(found, {key: number})
        return found

    def _within(self, key: Key, w: int, reach: str) -> bool:
        """Whether another warp is in the same CTA or cluster as a warp of this one."""
        if reach == "gpu":
            return True
        together = reach == "cluster" or key[1] // self.of_cta == w // self.of_cta
        return key[0] == self.cluster and together

    def _learn(self, w: int, numbers: dict[Key, int]) -> None:
        every = dict(numbers)
        for key, number in numbers.items():
            for other, theirs in self.board.snapshots[key][number - 1].others.items():
                if every.get(other, 0) < theirs:
                    every[other] = theirs
        clocks, abroad = self.clocks, list[tuple[int, int]]()
        for key, number in every.items():
            if key[0] == self.cluster:
                clocks.join([w], clocks.fit(self.board.snapshots[key][number - 1].vector))
            else:
                chain, base = self._chain(key)
                abroad.append((chain, base + number))
        if abroad:
            clocks.finish(w, *np.array(abroad).T)

    def _chain(self, key: Key) -> tuple[int, int]:
        """Chain of the snapshots of another cluster's warp, and the number before the first."""
        if key not in self.learned:
            chain = self.clocks.chain(("abroad", key), ABROAD)
            self.learn(key, chain, int(self.clocks.seen[:, chain].max()))
        return self.learned[key]

    def learn(self, key: Key, chain: int, base: int) -> None:
        """A chain stands for a warp's snapshots: the first for the number after ``base``."""
        self.learned[key] = chain, base
        self._of_cluster.setdefault(key[0], []).append((key, chain, base))

    def of(self, cluster: int, vector: Vector) -> Vector | None:
        """What somebody who knows ``vector`` knows of another cluster's chains."""
        keys = self._of_cluster.get(cluster, ())
        marks = tuple(int(vector[chain]) - base for _, chain, base in keys)
        if (cluster, marks) not in self._joined:
            found = None
            for (key, _, _), mark in zip(keys, marks, strict=True):
                if mark > 0:
                    theirs = self.board.snapshots[key][mark - 1].vector
                    found = theirs if found is None else _longest(found, theirs)
            self._joined[cluster, marks] = found
        return self._joined[cluster, marks]

    # Writing ----------------------------------------------------------------------------------
    def release(
        self,
        addresses: Any,
        warps: NDArray[np.int64],
        now: bool,
        keeps: Keeps = "none",
        reach: str = "gpu",
    ) -> None:
        """Warps [n] leave in words [n] what they know: now, or at the last fence that they know.

        A store takes the place of what others had left there. An atomic keeps what it has not
        learned: all, or what is left for a few alone.
        """
        pairs = set(zip(np.asarray(addresses).tolist(), warps.tolist(), strict=True))
        told = {w: self._told(w, now) for w in {w for _, w in pairs}}
        held, near = self.board.held, self.board.near
        if keeps != "all":
            held.update({address: {} for address, _ in pairs})
        for address, _ in pairs if near and keeps == "none" else ():
            near.pop(address, None)
        for address, w in pairs:
            if told[w] and reach == "gpu":
                _add(held.setdefault(address, {}), told[w])
            elif told[w]:
                _add(near.setdefault(address, {}), {(key, reach): n for key, n in told[w].items()})
        self.clocks.tick(told)

    def _told(self, w: int, now: bool) -> dict[Key, int]:
        """Snapshots that a warp leaves: its own, or those of the fences of its cluster it knows."""
        if now:
            return {(self.cluster, w): self._snapshot(w)}
        seen = self.clocks.seen[w]
        return {
            (self.cluster, v): f[1] for v, f in enumerate(self.at_fence) if f and f[0] <= seen[v]
        }

    def _snapshot(self, w: int) -> int:
        """Keep what a warp knows; which of its snapshots that is, from 1."""
        mine = self.board.snapshots.setdefault((self.cluster, w), [])
        mine.append(Snapshot(self.clocks.seen[w].copy(), self.learned))
        return len(mine)

    # Fences -----------------------------------------------------------------------------------
    def fence(self, warps: list[int]) -> None:
        """A fence of the GPU: what was read is acquired, and what is known may be left in words."""
        clocks = self.clocks
        for w in warps:
            for v, words in enumerate(self.awaiting):
                if words and self.read_at[v] <= clocks.seen[w, v]:
                    self._learn(w, words)
            self.at_fence[w] = int(clocks.seen[w, w]), self._snapshot(w)
        clocks.tick(warps)


def _add(into: dict[K, int], numbers: dict[K, int]) -> None:
    """Let the later snapshot of each warp stand."""
    into.update({key: max(into.get(key, 0), number) for key, number in numbers.items()})


def _longest(a: Vector, b: Vector) -> Vector:
    """The larger number of each chain; the later vector may have more of them."""
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    found = longer.copy()
    np.maximum(found[: len(shorter)], shorter, out=found[: len(shorter)])
    return found
