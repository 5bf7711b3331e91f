"""Random kernels of loads, stores and ordered atomics: their hazards are those a search finds.

Blocks run one after the other, so an acquire has heard of every release at its element that some
block made before. The search draws an edge for each such pair, and asks for a path.
"""

from __future__ import annotations

import itertools
import linecache
import random
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cuda.tile as ct
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.interpreter import using
from mla_var3.interpreter.footprint import Footprint, Scattered, Strided
from mla_var3.interpreter.hazards import Actor
from mla_var3.interpreter.launch_report import DiagnosticLog
from mla_var3.interpreter.memory import Memory
from mla_var3.interpreter.redirect import run_script
from mla_var3.paths import repo_root

from .helpers import run

PLACES, FLAGS, BLOCKS = 8, 2, 3
ORDERS = ("RELAXED", "ACQUIRE", "RELEASE", "ACQ_REL")


@dataclass
class Step:
    """What a block does: loads or stores a place, or adds to a flag."""

    kind: str
    block: int
    at: int
    order: str = ""
    number: int = -1

    def text(self) -> str:
        match self.kind:
            case "load":
                return f"t = t + ct.load(x, ({self.at},), (1,))"
            case "store":
                return f"ct.store(x, ({self.at},), t)"
        order = f"memory_order=ct.MemoryOrder.{self.order}"
        return f"t = t + ct.atomic_add(flags, {self.at}, 1, {order}).reshape((1,))"


@dataclass
class Program:
    steps: list[Step] = field(default_factory=list)

    @classmethod
    def draw(cls, seed: int) -> Program:
        """Each place is accessed twice, and stored at least once."""
        r, made = random.Random(seed), cls()
        for at in range(PLACES):
            for kind in r.choice([("store", "load"), ("store", "store")]):
                made.steps.append(Step(kind, r.randrange(BLOCKS), at))
        for _ in range(r.randint(4, 16)):
            made.steps.append(
                Step("add", r.randrange(BLOCKS), r.randrange(FLAGS), r.choice(ORDERS))
            )
        r.shuffle(made.steps)
        return made

    def source(self) -> str:
        lines = ["@ct.kernel", "def program(x, flags, y):", "    i = ct.bid(0)"]
        for block in range(BLOCKS):
            lines += [f"    if i == {block}:", "        t = ct.full((1,), 1, ct.int32)"]
            for step in self.steps:
                if step.block == block:
                    step.number = len(lines) + 1
                    lines.append(f"        {step.text()}")
            lines.append(f"        ct.store(y, ({block},), t)")
        return "\n".join([*lines, ""])

    def run(self, name: str, order: str) -> set[int]:
        """The places of which a hazard was reported."""
        file, text = f"<hazards {name}>", self.source()
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        space: dict[str, Any] = {"ct": ct}
        try:
            exec(compile(text, file, "exec"), space)
            x, flags, y = (torch.zeros(n, dtype=torch.int32) for n in (PLACES, FLAGS, BLOCKS))
            report = run(space["program"], x, flags, y, grid=(BLOCKS,), order=order)
        finally:
            linecache.cache.pop(file)
        found = set()
        for d in report.diagnostics:
            if d.kind == "never-written":
                continue
            place = re.search(r"(?:reads|writes) x\[(\d+)\], which \((\d), 0, 0\)", d.message)
            assert place, d
            at, other = int(place[1]), int(place[2])
            found.add(at)
            pair = {s.block: s for s in self.steps if s.kind != "add" and s.at == at}
            [mine] = (s for block, s in pair.items() if block != other)
            assert d.line == mine.number
            both = {s.kind for s in pair.values()}
            assert d.kind == ("write-conflict" if both == {"store"} else "read-write-hazard")
        return found

    def hazards(self, order: str) -> set[int]:
        """Places that two blocks access, and nothing orders the two."""
        blocks = range(BLOCKS) if order == "forward" else range(BLOCKS)[::-1]
        ran = [s for block in blocks for s in self.steps if s.block == block]
        n = len(ran)
        before = [[ran[a].block == ran[b].block and a < b for b in range(n)] for a in range(n)]
        for a, b in itertools.combinations(range(n), 2):
            one, other = ran[a], ran[b]
            if one.kind == other.kind == "add" and one.at == other.at:
                told = one.order in ("RELEASE", "ACQ_REL") and other.order in ("ACQUIRE", "ACQ_REL")
                before[a][b] |= told
        for k, a, b in itertools.product(range(n), repeat=3):
            before[a][b] |= before[a][k] and before[k][b]
        out = set()
        for at in range(PLACES):
            a, b = (k for k, s in enumerate(ran) if s.kind != "add" and s.at == at)
            if not before[a][b]:
                out.add(at)
        return out


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["forward", "reverse"]))
def test_hazards_are_those_that_nothing_orders(seed: int, order: str) -> None:
    program = Program.draw(seed)
    assert program.run(str(seed), order) == program.hazards(order)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("blocks", ["forward", "reverse", "random"])
def test_the_last_block_may_merge_by_a_counter_of_acq_rel_alone(
    order: str, blocks: str, tmp_path: Path
) -> None:
    text = (repo_root() / "examples/api/cutile/atomics.py").read_text("utf-8")
    script = tmp_path / "atomics.py"
    script.write_text(text.replace("ct.MemoryOrder.ACQ_REL", f"ct.MemoryOrder.{order}"))
    with using(order=blocks):
        reports, _ = run_script(script)
    found = {d.kind for r in reports if r.kernel == "split_sum" for d in r.diagnostics}
    assert found == (set() if order == "ACQ_REL" else {"read-write-hazard"})


@dataclass
class Pieces:
    """What is kept of each two bytes: who wrote, read and updated them last, and what is empty."""

    writer: dict[int, int] = field(default_factory=dict)
    readers: dict[int, set[int]] = field(default_factory=dict)
    updaters: dict[int, set[int]] = field(default_factory=dict)
    undefined: set[int] = field(default_factory=set)
    read: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)

    def access(self, kind: str, strong: bool, block: int, pieces: list[int]) -> set[str]:
        """What is reported of an access that nothing orders after those of other blocks."""
        found = set()
        for q in pieces:
            wrote = self.writer.get(q, block) != block
            reads, updates = (bool(held.get(q, set()) - {block}) for held in
                              (self.readers, self.updaters))  # fmt: skip
            if kind == "load":
                if wrote or (not strong and updates):
                    found.add("read-write-hazard")
            else:
                if wrote:
                    found.add("write-conflict")
                if reads or (not strong and updates):
                    found.add("read-write-hazard")
        for q in pieces:
            if kind != "store":
                self.read.add(q)
            if kind == "load" and not strong:
                self.readers.setdefault(q, set()).add(block)
            if kind != "load":
                self.written.add(q)
                self.undefined.discard(q)
                if strong:
                    self.updaters.setdefault(q, set()).add(block)
                else:
                    self.writer[q] = block
        return found


ACCESSES = st.lists(
    st.tuples(
        st.sampled_from(["load", "store", "update"]), st.booleans(), st.integers(0, 2),
        st.booleans(), st.booleans(), st.sets(st.integers(0, 7), min_size=1, max_size=4),
    ),
    min_size=1, max_size=8,
)  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(ACCESSES, st.booleans(), st.sets(st.integers(0, 15), max_size=6))
def test_two_types_of_one_memory_race_by_the_bytes(
    accesses: list[tuple[str, bool, int, bool, bool, set[int]]], written: bool, empty: set[int]
) -> None:
    """Elements of four bytes, and of two in the same memory; in a row or anywhere."""
    room = np.zeros(64, np.uint8)
    start = -room.ctypes.data % 16
    words = torch.from_numpy(room[start : start + 32]).view(torch.int32)
    halves = torch.from_numpy(room[start : start + 32]).view(torch.int16)
    log = DiagnosticLog()
    memory = Memory(log, True)
    wide, narrow = memory.add_arrays([("wide", words), ("narrow", halves)])
    region = wide.region
    assert region is narrow.region
    region.written = written
    model = Pieces(undefined=set(empty))
    if empty:
        region.undefined = region.shadow(torch.bool)
        region.undefined[torch.tensor(sorted(empty))] = True
    blocks = [Actor(str(i)) for i in range(3)]
    hazards = memory.hazards
    for line, (kind, strong, block, is_wide, in_a_row, chosen) in enumerate(accesses, 1):
        array, factor = (wide, 2) if is_wide else (narrow, 1)
        elements = list(range(min(chosen), max(chosen) + 1)) if in_a_row else sorted(chosen)
        at: Footprint = (
            Strided(elements[0], (len(elements),), (1,))
            if in_a_row
            else Scattered(torch.tensor(elements))
        )
        pieces = [factor * e + i for e in elements for i in range(factor)]
        fresh = [any(factor * e + i in model.undefined for i in range(factor)) for e in elements]
        hazards.enter(blocks[block])
        where = ("f.py", line)
        before = len(log.diagnostics())
        if not written:
            kind = "load"  # Whoever writes says so before.
            model.read.update(pieces)
            expected: set[str] = set()
        else:
            expected = model.access(kind, strong or kind == "update", block, pieces)
        if kind == "load":
            got = hazards.load(array, at, 2 * factor, where, strong)
        elif kind == "update":
            got = hazards.update(array, at, 2 * factor, where, True)
        else:
            got = hazards.store(array, at, 2 * factor, where, strong)
        if kind != "store":
            assert (got is None) is (not any(fresh))
            if got is not None:
                assert got.tolist() == fresh
        new = log.diagnostics()[before:]
        assert {d.kind for d in new} == expected, (line, kind)
        for d in new:
            assert re.match(
                rf"block {block} (reads|writes) {array.name}\[(\d+)\], which", d.message
            )
            place = int(d.message.split("[")[1].split("]")[0])
            assert place in elements
    for shadow, wanted in ((region.read_shadow, model.read), (region.write_shadow, model.written)):
        held = set() if shadow is None else set(torch.nonzero(shadow).flatten().tolist())
        assert held == wanted
    for array in (wide, narrow):
        traffic = memory.array_traffic()[array.name]  # Both have all of the memory.
        assert traffic.unique_bytes_loaded == 2 * len(model.read)
        assert traffic.unique_bytes_stored == 2 * len(model.written)
