# ruff: noqa: E501  # A PTX statement stays on its line.
"""Random programs whose lanes part and meet, and their threads run one by one.

Each context knows a mask of the lanes that are in it, so that votes, shuffles and the like have a
meaning there. Where it knows none, as some contexts do by chance, only lanes by themselves work.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

from tests.emulator.steps import PREDICATES, REGISTERS, VALUES, WORD, operand, step
from tests.emulator.together import (
    ALIKE,
    ATOMICS,
    BALLOT,
    FIRST,
    REDUCTIONS,
    Lane,
    Meeting,
    Part,
    Run,
    alike,
    reduced,
    shuffled,
    to_all,
)


@dataclass(frozen=True)
class Context:
    """Who is here: all of the block, whole warps, or some lanes; and the number of their mask."""

    level: str
    mask: int | None

    def of(self, level: str) -> Context:
        """Inside of it, at most this level."""
        order = ["block", "warp", "lane"]
        return Context(max(self.level, level, key=order.index), self.mask)


class Programs:
    """Draws programs.

    Args:
        seed: Of the draws.
    """

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.names: Iterator[int] = itertools.count(1)
        self.count = 1
        self.far: list[str] = []

    def name(self) -> int:
        """A number for a label, a mask, or a counter."""
        self.count += 1
        return next(self.names)

    # One lane by itself -----------------------------------------------------------------------
    def own(self) -> Part:
        """An instruction of one lane, which a predicate may guard."""
        if self.draw.random() < 0.5:
            text, effect = step(self.draw)
            return [text], _alone(effect)
        d, s, p = (self.draw.randrange(n) for n in (REGISTERS, REGISTERS, PREDICATES))
        a, value = operand(self.draw)
        guard, holds = self.draw.choice(
            [("", lambda t: True), (f"@%p{p} ", lambda t: t.p[p]), (f"@!%p{p} ", lambda t: not t.p[p])]
        )  # fmt: skip
        space, kind = self.draw.choice(["shared", "global", "local"]), self.draw.randrange(6)
        if space == "local" and kind > 1:
            space = "shared"
        set_up = f"and.b32 %u, %r{s}, 3; "
        set_up += "mad.lo.u32 %u, %u, 4, %m;" if space == "shared" else f"mad.wide.u32 %w, %u, 4, %{space};"  # fmt: skip
        at = "[%u]" if space == "shared" else "[%w]"
        name = self.draw.choice(list(ATOMICS if kind == 2 else REDUCTIONS))
        number = list(REDUCTIONS).index(name) if name in REDUCTIONS else 0

        def run(t: Lane) -> None:
            if not holds(t):
                return
            memory = {"shared": t.words, "global": t.cells, "local": t.spots}[space]
            here, x = t.r[s] & 3, value(t)
            if kind in (0, 4, 5):
                memory[here] = x
            elif kind == 1:
                t.r[d] = memory[here]
            elif kind == 2:
                t.r[d], memory[here] = memory[here], ATOMICS[name](memory[here], x)
            else:
                there = t.counters[space]
                there[number] = REDUCTIONS[name](there[number], x)

        match kind:
            case 0 | 5:
                line = f"{set_up} {guard}st.{space}.b32 {at}, {a};"
            case 1:
                line = f"{set_up} {guard}ld.{space}.b32 %r{d}, {at};"
            case 2:
                line = f"{set_up} {guard}atom.{space}.{name} %r{d}, {at}, {a};"
            case 3:
                counter = "counters" if space == "shared" else "%counters"
                line = f"{guard}red.{space}.{name} [{counter}+{4 * number}], {a};"
            case _:
                return self._asynchronous(s)
        return [line], _alone(run)

    def _asynchronous(self, s: int) -> Part:
        """A copy of a word, an arrival, or a store that an mbarrier is told of."""
        label, (a, value) = self.name(), operand(self.draw)
        at = f"and.b32 %u, %r{s}, 3; mad.wide.u32 %w, %u, 4, %global; mad.lo.u32 %u, %u, 4, %m;"
        wait = (
            f"L{label}: mbarrier.try_wait.parity.shared.b64 %z, [%b], %h; @!%z bra L{label}; "
            "xor.b32 %h, %h, 1;"
        )
        kind = self.draw.randrange(3)

        def run(t: Lane) -> None:
            if kind == 0:
                t.words[t.r[s] & 3] = t.cells[t.r[s] & 3]
            elif kind == 1:
                t.words[t.r[s] & 3] = value(t)

        copy = "cp.async.ca.shared.global [%u], [%w], 4;"
        store = (
            "mbarrier.arrive.expect_tx.shared.b64 _, [%b], 4; mapa.shared::cluster.u32 %u, %u, 0; "
            f"mapa.shared::cluster.u32 %v, %b, 0; mov.b32 %y, {a}; "
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%u], %y, [%v];"
        )
        text = [
            f"{at} {copy} cp.async.commit_group; cp.async.wait_group 0;",
            f"{at} {store} {wait}",
            f"mbarrier.arrive.shared.b64 _, [%b]; {wait}",
        ]
        return [text[kind]], _alone(run)

    # Lanes together ---------------------------------------------------------------------------
    def together(self, here: Context, k: int) -> Part:
        """An instruction of the lanes of a mask."""
        site = self.name()
        d, s, p, q = (
            self.draw.randrange(n) for n in (REGISTERS, REGISTERS, PREDICATES, PREDICATES)
        )
        name, kind = self.draw.choice(list(REDUCTIONS)), self.draw.randrange(8)
        x = self.draw.randrange(ALIKE)
        whole = here.level != "lane"
        target = f"%x{x}" if whole and kind < 3 else f"%r{d}"
        mode, by = self.draw.choice(["bfly", "up", "down", "idx"]), self.draw.randrange(32)
        first = f"brev.b32 %u, %k{k}; clz.b32 %u, %u;"
        board = f"add.u32 %v, %u, %first; mad.lo.u32 %v, %v, 4, %board; ld.shared.b32 %r{d}, [%v];"

        def run(t: Lane) -> Generator[Meeting, Any, None]:
            who = t.members(t.k[k])

            def put(value: int) -> None:
                if target[1] == "x":
                    t.x[x] = value
                else:
                    t.r[d] = value

            match kind:
                case 0:
                    put((yield Meeting(site, who, t.p[p], BALLOT)))
                case 1:
                    put((yield Meeting(site, who, t.r[s], reduced(name))))
                case 2 | 3:
                    put((yield Meeting(site, who, t.r[s], FIRST)))
                case 4:
                    voted = yield Meeting(site, who, t.p[p], BALLOT)
                    t.p[q] = voted != 0 if by & 1 else voted == t.k[k]
                case 5:
                    put((yield Meeting(site, who, t.r[s] & 3, alike)))
                case 6:
                    mask = yield Meeting(site, who, t.r[s] & 3, alike)
                    put((yield Meeting(-site, t.members(mask), t.r[s], reduced(name))))
                case _:
                    how = shuffled(mode, by) if whole else FIRST
                    put((yield Meeting(site, who, t.r[s], how)))

        code = [
            f"vote.sync.ballot.b32 {target}, %p{p}, %k{k};",
            f"redux.sync.{name} {target}, %r{s}, %k{k};",
            f"{first} shfl.sync.idx.b32 {target}, %r{s}, %u, 31, %k{k};",
            f"mad.lo.u32 %v, %t, 4, %board; st.shared.b32 [%v], %r{s}; bar.warp.sync %k{k}; "
            f"{first} {board} bar.warp.sync %k{k};",
            f"vote.sync.{'any' if by & 1 else 'all'}.pred %p{q}, %p{p}, %k{k};",
            f"and.b32 %u, %r{s}, 3; match.any.sync.b32 {target}, %u, %k{k};",
            f"and.b32 %u, %r{s}, 3; match.any.sync.b32 %v, %u, %k{k}; "
            f"redux.sync.{name} {target}, %r{s}, %v;",
            f"shfl.sync.{mode}.b32 {target}, %r{s}, {by}, {0 if mode == 'up' else 31}, %k{k};"
            if whole
            else f"{first} shfl.sync.idx.b32 {target}, %r{s}, %u, 31, %k{k};",
        ]
        return [code[kind]], run

    def block_wide(self) -> Part:
        """A barrier of all threads, and what each has for another."""
        site, by, popc = self.name(), self.draw.randrange(1, 64), self.draw.random() < 0.3
        d, s, p = (self.draw.randrange(n) for n in (REGISTERS, REGISTERS, PREDICATES))

        def run(t: Lane) -> Generator[Meeting, Any, None]:
            everyone = tuple(range(t.threads))
            if popc:
                t.r[d] = yield Meeting(site, everyone, t.p[p], to_all(lambda b: sum(b.values())))
                return
            values = yield Meeting(site, everyone, t.r[s], to_all(dict))
            t.r[d] = values[(t.id + by) % t.threads]

        exchange = (
            f"mad.lo.u32 %v, %t, 4, %board; st.shared.b32 [%v], %r{s}; bar.sync 0; "
            f"add.u32 %v, %t, {by}; rem.u32 %v, %v, %n; mad.lo.u32 %v, %v, 4, %board; "
            f"ld.shared.b32 %r{d}, [%v]; bar.sync 0;"
        )
        return [f"bar.red.popc.u32 %r{d}, 0, %p{p};" if popc else exchange], run

    def alike(self) -> Part:
        """Arithmetic on what is the same in a warp."""
        op, x, y = self.draw.choice(list(VALUES)), *(self.draw.randrange(ALIKE) for _ in range(2))
        number = self.draw.randrange(1 << 20)

        def run(t: Lane) -> None:
            t.x[x] = VALUES[op](t.x[y], number) & WORD

        return [f"{op} %x{x}, %x{y}, {number};"], _alone(run)

    # Ways -------------------------------------------------------------------------------------
    def block(self, depth: int, here: Context) -> Part:
        """Some of all."""
        parts = []
        for _ in range(self.draw.randrange(2, 6)):
            kind = self.draw.random()
            if depth and kind < 0.4:
                way = self.draw.choice([self.one_of_two, self.one_of_two, self.loop, self.table])
                parts.append(way(depth - 1, here))
            elif kind < 0.55 and here.mask is not None:
                parts.append(self.together(here, here.mask))
            elif kind < 0.6 and here.level == "block":
                parts.append(self.block_wide())
            elif kind < 0.65 and here.level != "lane":
                parts.append(self.alike())
            else:
                parts.append(self.own())
        return _after(parts)

    def _masked(self, here: Context, test: str, holds: Callable[[Lane], bool]) -> tuple[Part, Context]:  # fmt: skip
        """Inside for the lanes that a test lets in: with their mask, or by chance without one."""
        if here.mask is None or self.draw.random() < 0.3:
            return _after([]), Context("lane", None)
        k, outer = self.name(), here.mask

        def run(t: Lane) -> Generator[Meeting, Any, None]:
            t.k[k] = yield Meeting(k, t.members(t.k[outer]), holds(t), BALLOT)

        return ([f"vote.sync.ballot.b32 %k{k}, {test}, %k{outer};"], run), Context("lane", k)

    def one_of_two(self, depth: int, here: Context) -> Part:
        """A block that some jump over, or one of two, of which the second may lie far away."""
        p, x, bit = (self.draw.randrange(n) for n in (PREDICATES, ALIKE, 20))
        other, end, second = self.name(), self.name(), self.draw.random() < 0.5
        if self.draw.random() < 0.35:
            before: list[str] = []
            masks: list[Run] = []
            inside = outside = here.of("warp")
            test = f"and.b32 %u, %x{x}, {1 << bit}; setp.ne.u32 %z, %u, 0; @%z"

            def holds(t: Lane) -> bool:
                return bool(t.x[x] >> bit & 1)
        else:

            def holds(t: Lane) -> bool:
                return t.p[p]

            (text, run), inside = self._masked(here, f"!%p{p}", lambda t: not t.p[p])
            (more, then), outside = self._masked(here, f"%p{p}", lambda t: t.p[p])
            before, masks, test = text + more, [run, then], f"@%p{p}"
        one, first = self.block(depth, inside)
        two, last = self.block(depth, outside) if second else _after([])
        text = [*before, f"{test} bra L{other};", *one]
        if second and self.draw.random() < 0.4:
            self.far += [f"L{other}:", *two, f"bra L{end};"]
            text += [f"L{end}:"]
        else:
            text += [f"bra L{end};", f"L{other}:", *two, f"L{end}:"] if second else [f"L{other}:"]

        def run_one(t: Lane) -> Generator[Meeting, Any, None]:
            for mask in masks:
                yield from mask(t)
            yield from (last if holds(t) else first)(t)

        return text, run_one

    def loop(self, depth: int, here: Context) -> Part:
        """A loop with as many turns for all, each warp, or each lane, which may leave it."""
        again, end = self.name(), self.name()
        r, x = self.draw.randrange(REGISTERS), self.draw.randrange(ALIKE)
        level = self.draw.choice(["block", "warp", "lane", "lane"])
        if level != "lane":
            inside = here.of(level)
            body, run = self.block(depth, inside)
            start = (
                f"mov.b32 %c{again}, 3;" if level == "block" else f"and.b32 %c{again}, %x{x}, 3;"
            )

            def run_even(t: Lane) -> Generator[Meeting, Any, None]:
                for _ in range(3 if level == "block" else max(1, t.x[x] & 3)):
                    yield from run(t)

            turn = (
                f"sub.u32 %c{again}, %c{again}, 1; setp.gt.s32 %z, %c{again}, 0; @%z bra L{again};"
            )
            return [start, f"L{again}:", *body, turn], run_even
        p, leaves, k = self.draw.randrange(PREDICATES), self.draw.random() < 0.5, self.name()
        outer = here.mask
        inside = Context("lane", None if outer is None or self.draw.random() < 0.3 else k)
        one, first = self.block(depth, inside)
        two, second = self.block(depth, inside) if leaves else _after([])

        def ballot(t: Lane, site: int, stays: bool) -> Generator[Meeting, Any, None]:
            if inside.mask is not None:
                t.k[k] = yield Meeting(site, t.members(t.k[k]), stays, BALLOT)

        def run_uneven(t: Lane) -> Generator[Meeting, Any, None]:
            if inside.mask is not None and outer is not None:
                t.k[k] = t.k[outer]
            turns = t.r[r] & 3
            while True:  # The test comes first: some have no turn.
                yield from ballot(t, again, turns > 0)
                if turns == 0:
                    return
                yield from first(t)
                if leaves:
                    yield from ballot(t, end, not t.p[p])
                    if t.p[p]:
                        return
                    yield from second(t)
                turns -= 1

        def vote(test: str) -> list[str]:
            return [] if inside.mask is None else [f"vote.sync.ballot.b32 %k{k}, {test}, %k{k};"]

        text = [] if inside.mask is None else [f"mov.b32 %k{k}, %k{outer};"]
        text += [f"and.b32 %c{again}, %r{r}, 3;", f"L{again}: setp.gt.s32 %z, %c{again}, 0;"]
        text += [*vote("%z"), f"@!%z bra L{end};", *one]
        text += [*vote(f"!%p{p}"), f"@%p{p} bra L{end};", *two] if leaves else []
        return [*text, f"sub.u32 %c{again}, %c{again}, 1; bra L{again};", f"L{end}:"], run_uneven

    def table(self, depth: int, here: Context) -> Part:
        """One of three, by a register; the lanes of each may have their mask."""
        table, end, s = self.name(), self.name(), self.draw.randrange(REGISTERS)
        k, outer = self.name(), here.mask
        inside = Context("lane", None if outer is None else k)
        parts = [self.block(depth, inside) for _ in range(3)]
        labels = [self.name() for _ in parts]
        text = [f"rem.u32 %v, %r{s}, 3;"]
        text += [] if outer is None else [f"match.any.sync.b32 %k{k}, %v, %k{outer};"]
        text += [f"T{table}: .branchtargets {', '.join(f'L{n}' for n in labels)};"]
        text += [f"brx.idx %v, T{table};"]
        for label, (lines, _) in zip(labels, parts, strict=True):
            text += [f"L{label}:", *lines, f"bra L{end};"]

        def run(t: Lane) -> Generator[Meeting, Any, None]:
            chosen = t.r[s] % 3
            if outer is not None:
                t.k[k] = yield Meeting(k, t.members(t.k[outer]), chosen, alike)
            yield from parts[chosen][1](t)

        return [*text, f"L{end}:"], run


def _alone(effect: Callable[[Lane], None]) -> Run:
    def run(t: Lane) -> Generator[Meeting, Any, None]:
        effect(t)
        return
        yield

    return run


def _after(parts: list[Part]) -> Part:
    """One after the other."""

    def run(t: Lane) -> Generator[Meeting, Any, None]:
        for _, one in parts:
            yield from one(t)

    return [line for lines, _ in parts for line in lines], run
