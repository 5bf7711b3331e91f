# ruff: noqa: E501  # A PTX statement stays on its line.
"""Random programs of flags, fences and barriers: their races are those that a search finds.

The search knows nothing of clocks: it draws an edge for each thing that orders two instructions,
by the values that the flags really had, and asks whether a path leads from one access to another.
"""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.emulator.clocks import Clocks
from mla_var3.emulator.launcher import launch
from mla_var3.emulator.options import DEFAULT, STRICT, Model, Options
from mla_var3.emulator.words import Board, Snapshot, Words

WARPS, PLACES, FLAGS = 2, 7, 2
SCOPES = ("gpu", "gpu", "gpu", "cluster", "cta")
ORDERS = {
    "ask": ("relaxed", "acquire"),
    "put": ("relaxed", "release"),
    "add": ("relaxed", "acquire", "release", "acq_rel"),
}


@dataclass
class Step:
    """What lane 0 of a warp does: reads or writes a place, uses a flag, or fences."""

    kind: str
    cta: int
    warp: int
    phase: int
    at: int = 0
    order: str = ""
    number: int = -1
    scope: str = "gpu"

    def text(self) -> str:
        where = f"[%rd{1 if self.order else 0}+{4 * self.at}]"
        bit = 1 << max(self.number, 0)
        give = f"st.global.u32 [%rd2+{4 * self.number}], %r9;"
        match self.kind:
            case "read":
                return f"ld.global.u32 %r9, {where};"
            case "write":
                return f"st.global.u32 {where}, %r1;"
            case "ask":
                return f"ld.{self.order}.{self.scope}.global.u32 %r9, {where}; {give}"
            case "put":
                return f"st.{self.order}.{self.scope}.global.u32 {where}, {bit};"
            case "add":
                return f"atom.{self.order}.{self.scope}.global.or.b32 %r9, {where}, {bit}; {give}"
        return "fence.acq_rel.gpu;"


@dataclass
class Program:
    """Steps of warps in phases, each of which ends with a barrier of CTAs or of clusters."""

    cluster: int
    ctas: int
    phases: int
    meets: list[str]
    steps: list[Step] = field(default_factory=list)

    @classmethod
    def draw(cls, seed: int) -> Program:
        r = random.Random(seed)
        cluster, phases = r.choice([1, 1, 2]), r.randint(1, 3)
        made = cls(cluster, cluster * r.choice([1, 2, 3]), phases, r.choices(["cta", "cluster"], k=phases))  # fmt: skip
        for at in range(PLACES):
            for kind in r.choice([("write", "read"), ("write", "write")]):
                made.steps.append(made._somewhere(r, kind, at=at))
        for number in range(r.randint(6, 14)):
            kind = r.choice(sorted(ORDERS))
            order = r.choice(ORDERS[kind])
            made.steps.append(
                made._somewhere(
                    r,
                    kind,
                    at=r.randrange(FLAGS),
                    order=order,
                    number=number,
                    scope=r.choice(SCOPES),
                )
            )
        made.steps += [made._somewhere(r, "fence") for _ in range(r.randint(0, 6))]
        r.shuffle(made.steps)
        return made

    def _somewhere(self, r: random.Random, kind: str, **more) -> Step:
        return Step(kind, r.randrange(self.ctas), r.randrange(WARPS), r.randrange(self.phases), **more)  # fmt: skip

    def of(self, cta: int, warp: int) -> list[list[int]]:
        """Numbers of a warp's steps, by phase."""
        mine = [n for n, s in enumerate(self.steps) if (s.cta, s.warp) == (cta, warp)]
        return [[n for n in mine if self.steps[n].phase == p] for p in range(self.phases)]

    def text(self) -> str:
        meet = {"cta": "bar.sync 0;", "cluster": "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"}  # fmt: skip
        body = []
        for cta, warp in itertools.product(range(self.ctas), range(WARPS)):
            body.append(f"W{cta * WARPS + warp}:")
            for phase, numbers in enumerate(self.of(cta, warp)):
                steps = " ".join(self.steps[n].text() for n in numbers)
                body.append(f"@%p1 bra M{cta}_{warp}_{phase}; {steps} M{cta}_{warp}_{phase}:")
                body.append(f"bar.warp.sync -1; {meet[self.meets[phase]]}")
            body.append("ret;")
        jumps = " ".join(
            f"setp.eq.u32 %p2, %r3, {w}; @%p2 bra W{w};" for w in range(self.ctas * WARPS)
        )
        return (
            ".version 8.6\n.target sm_90a\n.address_size 64\n"
            ".visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c)\n{\n"
            ".reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %rd<4>;\n"
            "ld.param.u64 %rd0, [a]; ld.param.u64 %rd1, [b]; ld.param.u64 %rd2, [c];\n"
            "mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; shr.u32 %r3, %r1, 5; mad.lo.u32 %r3, %r2, 2, %r3;\n"
            f"and.b32 %r4, %r1, 31; setp.ne.u32 %p1, %r4, 0; {jumps} ret;\n" + "\n".join(body) + "\n}\n"
        )  # fmt: skip

    def run(self, options: Options) -> tuple[list[int], set[int]]:
        """What each step on a flag read, and the places of which a race was reported."""
        seen = np.zeros(16, np.uint32)
        arrays = [np.zeros(PLACES, np.uint32), np.zeros(FLAGS, np.uint32), seen]
        done = launch(
            self.text(), arrays, self.ctas, 32 * WARPS, cluster=self.cluster, options=options
        )
        raced = set()
        for d in done.diagnostics:
            assert d.kind == "global-race", d
            found = re.match(rf"global byte (\d+) of \({PLACES},\) uint32 ", d.message)
            assert found, d
            raced.add(int(found[1]) // 4)
        return seen.tolist(), raced

    # The search -------------------------------------------------------------------------------
    def races(self, seen: list[int], model: Model, far: bool) -> set[int]:
        """Places whose two accesses nothing orders; ``far``: fences of other warps count too."""
        before = self._closed(self._edges())
        while True:
            more = before.copy()
            for reader, asked in enumerate(self.steps):
                if asked.kind not in ("ask", "add"):
                    continue
                for writer, told in enumerate(self.steps):
                    meet = self._in_reach(asked, told) and self._in_reach(told, asked)
                    if (
                        told.kind in ("put", "add")
                        and meet
                        and seen[asked.number] >> told.number & 1
                    ):
                        starts = self._side(writer, before, model, far, ("release", "acq_rel"))
                        ends = self._side(reader, before, model, far, ("acquire", "acq_rel"))
                        for start, end in itertools.product(starts, ends):
                            more[start, end] = True
            more = self._closed(more)
            if (more == before).all():
                break
            before = more
        out = set()
        for at in range(PLACES):
            a, b = (n for n, s in enumerate(self.steps) if s.kind in ("read", "write") and s.at == at)  # fmt: skip
            if not before[a, b] and not before[b, a]:
                out.add(at)
        return out

    def _in_reach(self, one: Step, other: Step) -> bool:
        """Whether the scope of a step has the other in it."""
        size = {"gpu": self.ctas, "cluster": self.cluster, "cta": 1}[one.scope]
        return one.cta // size == other.cta // size

    def _side(
        self, n: int, before: np.ndarray, model: Model, far: bool, orders: tuple[str, ...]
    ) -> list[int]:
        """Steps that a step on a flag stands for: itself, or the fences before or behind it."""
        step = self.steps[n]
        if model.relaxed_publishes or step.order in orders:
            return [n]
        told = before[:, n] if "release" in orders else before[n]
        return [
            f
            for f, s in enumerate(self.steps)
            if s.kind == "fence"
            and told[f]
            and ((s.cta, s.warp) == (step.cta, step.warp) or far)
            and s.cta // self.cluster == step.cta // self.cluster
        ]

    def _edges(self) -> np.ndarray:
        """What the order of programs and barriers say; a barrier is a step behind the others."""
        n = len(self.steps)
        edges = np.zeros((n + self.ctas * self.phases,) * 2, bool)
        for cta in range(self.ctas):
            for phase, meet in enumerate(self.meets):
                who = cta // self.cluster * self.cluster if meet == "cluster" else cta
                barrier = n + who * self.phases + phase
                for warp in range(WARPS):
                    mine = self.of(cta, warp)
                    for a, b in itertools.pairwise(mine[phase]):
                        edges[a, b] = True
                    edges[mine[phase], barrier] = True
                    for later in mine[phase + 1 :]:
                        edges[barrier, later] = True
        return edges

    @staticmethod
    def _closed(edges: np.ndarray) -> np.ndarray:
        """Whether a path leads from one to another."""
        out = edges.copy()
        while True:
            more = out | ((out.astype(np.float32) @ out.astype(np.float32)) > 0)
            if (more == out).all():
                return out
            out = more


@pytest.mark.parametrize("model", [DEFAULT, STRICT], ids=lambda m: m.name)
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([None, 1, 2]))
def test_races_are_those_that_nothing_orders(model: Model, seed: int, order: int | None) -> None:
    # Nothing here uses what it reads, or writes different numbers, and all of it counts the same.
    model = replace(model, unused_reads=False, equal_stores=False)
    program = Program.draw(seed)
    seen, raced = program.run(Options(model=model, seed=order))
    assert program.races(seen, model, far=True) <= raced <= program.races(seen, model, far=False)


@given(st.data())
def test_a_snapshot_tells_which_others_its_warp_had_learned(data: st.DataObject) -> None:
    """A chain that came later than the snapshot is in none of its numbers."""
    vector = np.array(data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=6)), np.int64)
    chains = st.tuples(st.integers(0, 9), st.integers(0, 9))
    learned = data.draw(st.dictionaries(st.tuples(st.integers(1, 3), st.integers(0, 3)), chains))
    wanted = {}
    for key, (chain, base) in learned.items():
        number = int(vector[chain]) - base if chain < len(vector) else 0
        if number > 0:
            wanted[key] = number
    assert Snapshot(vector, learned).others == wanted


NUMBERS = st.lists(st.integers(0, 9), max_size=5)


@given(NUMBERS, NUMBERS, st.integers(0, 6), st.integers(0, 6))
def test_what_two_warps_told_of_their_cluster_is_joined(
    a: list[int], b: list[int], first: int, second: int
) -> None:
    """Each chain by the later number; one of them may have told it when there were fewer chains."""
    clocks, board = Clocks(2, 2), Board()
    words = Words(clocks, board, lambda s: list(s), 2)
    words.start(1)
    told = {(2, 0): a, (2, 1): b, (3, 0): [99]}
    board.snapshots = {key: [Snapshot(np.array(v, np.int64), {})] for key, v in told.items()}
    for number, key in enumerate(told):
        words.learn(key, 50 + number, 3)
    vector = clocks.vector()
    vector[50], vector[51], vector[52] = 3 + (first > 2), 3 + (second > 2), 4
    known = [v for v, knows in ((a, first > 2), (b, second > 2)) if knows]
    found = words.of(2, vector)
    if not known:
        assert found is None
    else:
        assert found is not None
        size = max(map(len, known))
        filled = [[*v, *[0] * (size - len(v))] for v in known]
        assert found.tolist() == [max(each) for each in zip(*filled, strict=True)]
    assert words.of(4, vector) is None
