"""Faults put into small kernels, each of which must be reported at its line, and nothing else."""

from __future__ import annotations

import linecache
from typing import Any

import cuda.tile as ct
import pytest
import torch

from mla_var3.interpreter import Options, launch

#: name: (kind, blocks, body). x has 5 floats, y 8 zeros, f 8 integer zeros, n is 2. Lines that
#: must be reported end with "# fault".
FAULTS: dict[str, tuple[str, int, str]] = {
    "padding is stored": (
        "undetermined-padding",
        1,
        """
        t = ct.load(x, (0,), (8,))  # fault
        ct.store(y, (0,), t)
        """,
    ),
    "padding is summed": (
        "undetermined-padding",
        1,
        """
        t = ct.load(x, (0,), (8,))  # fault
        u = ct.load(x, (0,), (8,), padding_mode=ct.PaddingMode.ZERO)
        ct.store(y, (0,), u + ct.sum(t))
        """,
    ),
    "padding under a maximum": (
        "undetermined-padding",
        1,
        """
        t = ct.load(x, (0,), (8,))  # fault
        ct.store(y, (0,), ct.zeros((8,), ct.float32) + ct.max(t))
        """,
    ),
    "padding in a scan": (
        "undetermined-padding",
        1,
        """
        t = ct.load(x, (0,), (8,))  # fault
        ct.store(y, (0,), ct.cumsum(t, axis=0))
        """,
    ),
    "padding times zero": (
        "undetermined-padding",
        1,
        """
        t = ct.load(x, (0,), (8,))  # fault
        ct.store(y, (0,), t * 0.0)
        """,
    ),
    "padding in a product": (
        "undetermined-padding",
        1,
        """
        t = ct.load(x, (0,), (8,)).reshape((1, 8))  # fault
        v = ct.ones((8, 8), ct.float32)
        ct.store(y, (0,), ct.mma(t, v, ct.zeros((1, 8), ct.float32)).reshape((8,)))
        """,
    ),
    "padding decides a branch": (
        "undetermined-padding",
        1,
        """
        t = ct.load(x, (0,), (8,))  # fault
        if ct.max(t).item() > 3.0:
            ct.store(y, (0,), ct.ones((8,), ct.float32))
        else:
            ct.store(y, (0,), ct.zeros((8,), ct.float32))
        """,
    ),
    "padding bounds a loop": (
        "undetermined-padding",
        1,
        """
        t = ct.load(f.slice(0, 0, 3), (0,), (4,))  # fault
        for i in range(ct.min(t).item() & 1):
            ct.store(f, (i,), ct.zeros((1,), ct.int32))
        ct.store(y, (0,), ct.zeros((8,), ct.float32))
        ct.store(f, (0,), ct.zeros((8,), ct.int32))
        """,
    ),
    "padding as an index": (
        "undetermined-padding",
        1,
        """
        at = ct.load(f.slice(0, 0, 5), (0,), (8,))  # fault
        ct.store(y, (0,), ct.gather(y, at, padding_value=0.0))
        """,
    ),
    "padding into an atomic": (
        "undetermined-padding",
        1,
        """
        t = ct.load(x, (0,), (8,))  # fault
        ct.atomic_add(y, ct.arange(8, dtype=ct.int32), t)
        """,
    ),
    "a load outside": (
        "tile-outside",
        1,
        """
        t = ct.load(x, (1,), (8,), padding_mode=ct.PaddingMode.ZERO)  # fault
        ct.store(y, (0,), ct.where(t == t, 0.0, 1.0))
        """,
    ),
    "a store outside": (
        "tile-outside",
        1,
        """
        ct.store(y, (0,), ct.zeros((8,), ct.float32))
        ct.store(y, (1,), ct.zeros((8,), ct.float32))  # fault
        """,
    ),
    "a grid that is too large": (
        "tile-outside",
        3,
        """
        i = ct.bid(0)
        ct.store(y, (i,), ct.zeros((4,), ct.float32))  # fault
        """,
    ),
    "a gather without a check": (
        "out-of-bounds",
        1,
        """
        at = ct.arange(8, dtype=ct.int32)
        t = ct.gather(x, at, check_bounds=False)  # fault
        ct.store(y, (0,), ct.where(at < 5, t, 0.0))
        """,
    ),
    "a scatter without a check": (
        "out-of-bounds",
        1,
        """
        at = ct.arange(8, dtype=ct.int32)
        ct.scatter(x, at, ct.zeros((8,), ct.float32), check_bounds=False)  # fault
        """,
    ),
    "raw memory beyond the end": (
        "out-of-bounds",
        1,
        """
        t = x.get_raw_memory().load_offset(5)  # fault
        ct.store(y, (0,), ct.where(ct.arange(8, dtype=ct.int32) < 8, 0.0, t))
        """,
    ),
    "raw memory before the start": (
        "out-of-bounds",
        1,
        """
        ct.store(y, (0,), ct.zeros((8,), ct.float32))
        y.get_raw_memory().store_offset(-1, 1.0)  # fault
        """,
    ),
    "a tile without a check": (
        "out-of-bounds",
        1,
        """
        t = ct.load(x, (0,), (8,), check_bounds=False)  # fault
        ct.store(y, (0,), ct.where(ct.arange(8, dtype=ct.int32) < 5, t, 0.0))
        """,
    ),
    "a slice that is too long": (
        "out-of-bounds",
        1,
        """
        t = ct.load(x.slice(0, 0, 4 * n), (0,), (8,))  # fault
        ct.store(y, (0,), ct.where(ct.arange(8, dtype=ct.int32) < 5, t, 0.0))
        """,
    ),
    "a part that does not exist": (
        "out-of-bounds",
        1,
        """
        t = ct.load(y, (0,), (8,))
        ct.store(y, (0,), t)
        ct.store(y, (1,), ct.extract(t, (n,), (4,)))  # fault
        """,
    ),
    "two blocks write": (
        "write-conflict",
        2,
        """
        ct.store(y, (0,), ct.zeros((8,), ct.float32))  # fault
        """,
    ),
    "tiles that overlap": (
        "write-conflict",
        2,
        """
        i = ct.bid(0)
        at = ct.arange(8, dtype=ct.int32) + 3 * i
        ct.scatter(y, at, ct.zeros((8,), ct.float32))  # fault
        """,
    ),
    "one scatter writes twice": (
        "write-conflict",
        1,
        """
        ct.store(y, (0,), ct.zeros((8,), ct.float32))
        at = ct.arange(8, dtype=ct.int32)
        ct.scatter(y, at // 2, at.astype(ct.float32))  # fault
        """,
    ),
    "a block reads what another writes": (
        "read-write-hazard",
        2,
        """
        if ct.bid(0) == 0:
            ct.store(y, (0,), ct.ones((8,), ct.float32))
        else:
            t = ct.load(y, (0,), (8,))  # fault
            ct.store(f, (0,), t.astype(ct.int32))
        """,
    ),
    "a plain store beside an atomic": (
        "read-write-hazard",
        2,
        """
        if ct.bid(0) == 0:
            ct.atomic_add(y, ct.arange(8, dtype=ct.int32), 1.0)
        else:
            ct.store(y, (0,), ct.ones((8,), ct.float32))  # fault
        """,
    ),
    "an atomic of one block": (
        "write-conflict",
        2,
        """
        ct.atomic_add(f, 0, 1, memory_scope=ct.MemoryScope.BLOCK)  # fault
        """,
    ),
    "a relaxed flag": (
        "read-write-hazard",
        2,
        """
        if ct.bid(0) == 0:
            ct.store(y, (0,), ct.ones((8,), ct.float32))
            ct.atomic_xchg(f, 0, 1, memory_order=ct.MemoryOrder.RELAXED)
        else:
            while ct.atomic_add(f, 0, 0) == 0:
                pass
            ct.store(x, (0,), ct.load(y, (0,), (8,)))  # fault
        """,
    ),
    "a flag before the data": (
        "read-write-hazard",
        2,
        """
        if ct.bid(0) == 0:
            ct.atomic_xchg(f, 0, 1)
            ct.store(y, (0,), ct.ones((8,), ct.float32))
        else:
            while ct.atomic_add(f, 0, 0) == 0:
                pass
            ct.store(x, (0,), ct.load(y, (0,), (8,)))  # fault
        """,
    ),
    "a tile divided by zero": (
        "division-by-zero",
        1,
        """
        t = ct.load(f, (0,), (8,))
        q = 7 // t  # fault
        ct.store(f, (0,), q)
        """,
    ),
    "a number divided by zero": (
        "division-by-zero",
        1,
        """
        q = n % (n - 2)  # fault
        ct.store(f, (0,), ct.full((8,), q, ct.int32))
        """,
    ),
    "a shift that is too far": (
        "shift-range",
        1,
        """
        t = ct.load(f, (0,), (8,)) + 40
        q = 1 << t  # fault
        ct.store(f, (0,), q)
        """,
    ),
    "a promise that is broken": (
        "assumption",
        1,
        """
        m = ct.assume_divisible_by(n, 4)  # fault
        ct.store(f, (0,), ct.full((8,), m, ct.int32))
        """,
    ),
    "memory that nothing wrote": (
        "uninitialised-read",
        1,
        """
        t = ct.load(u, (0,), (8,))  # fault
        ct.store(y, (0,), t)
        """,
    ),
    "an update of memory that nothing wrote": (
        "uninitialised-read",
        1,
        """
        ct.atomic_add(u, 3, 1.0)  # fault
        """,
    ),
    "an index that wrapped": (
        "index-overflow",
        1,
        """
        big = n * 1073741824 * n  # fault
        ct.store(y, (0,), ct.load(y, (big,), (8,)))
        """,
    ),
}

#: Only these are told of what is not known to be wrong.
WARNINGS = {"index-overflow"}


def build(name: str, body: str) -> tuple[Any, set[int]]:
    """The kernel of a body, and the lines that are marked."""
    text = "@ct.kernel\ndef kernel(x, y, f, u, n: int):\n"
    text += "\n".join(line[4:] for line in body.strip("\n").splitlines()) + "\n"
    lines = text.splitlines(keepends=True)
    file = f"<fault: {name}>"
    linecache.cache[file] = (len(text), None, lines, file)
    namespace: dict[str, Any] = {"ct": ct}
    exec(compile(text, file, "exec"), namespace)
    marked = {i for i, line in enumerate(lines, 1) if line.rstrip().endswith("# fault")}
    return namespace["kernel"], marked


@pytest.mark.parametrize("name", FAULTS)
def test_a_seeded_fault_is_reported_at_its_line(name: str) -> None:
    kind, blocks, body = FAULTS[name]
    kernel, marked = build(name, body)
    u = torch.zeros(8)
    args = torch.arange(5.0), torch.zeros(8), torch.zeros(8, dtype=torch.int32), u, 2
    report = launch((blocks,), kernel, args, options=Options(uninitialised=(u,)))
    severities = {"error", "warning"} if kind in WARNINGS else {"error"}
    found = {(d.kind, d.line) for d in report.diagnostics if d.severity in severities}
    if kind in WARNINGS:
        found = {(k, line) for k, line in found if k == kind}
    assert found == {(kind, line) for line in marked}, report.summary()


def test_there_are_enough_faults() -> None:
    assert len(FAULTS) >= 30
    assert {kind for kind, _, _ in FAULTS.values()} >= {"tile-outside", "write-conflict"}
