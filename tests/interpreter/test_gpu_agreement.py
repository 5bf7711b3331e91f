"""The interpreter against a GPU: the same kernel and inputs must give the same bits.

Results that cuTile leaves open (order of sums, approximations) are compared within a tolerance.
Without a GPU the interpreter is compared with itself. Each run draws a sample of the cases, one of
each kind at least; ``HYPERMLA_ALL_CASES=1`` runs them all.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cuda.tile as ct
import pytest
import torch

from mla_var3.interpreter import launch

from . import test_launcher as kernels
from . import test_memory as memory
from . import test_ops as ops

Launch = Callable[[tuple[int, ...], Any, tuple[Any, ...]], Any]


@dataclass(frozen=True)
class Case:
    """A kernel with its arguments; tensors are copied for each side.

    Attributes:
        name: Test id.
        kernel: The kernel.
        args: Its arguments.
        grid: Blocks.
        tolerance: Relative and absolute tolerance of floats; 0 compares bits.
    """

    name: str
    kernel: Any
    args: tuple[Any, ...]
    grid: tuple[int, ...] = (1,)
    tolerance: float = 0.0


def _integers() -> list[Case]:
    cases = []
    for dtype, (bits, signed) in ops.INTEGERS.items():
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        x = torch.tensor([low, high, 77 % high, 5, 0, high // 3, low, 1], dtype=dtype)
        y = torch.tensor([3, 7, high, 2, 9, 11, 1, high], dtype=dtype)
        n = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7], dtype=dtype)
        name = str(dtype).removeprefix("torch.")
        for op in range(14):
            out = torch.zeros(8, dtype=dtype)
            cases.append(Case(f"integers-{name}-{op}", ops.integers, (x, y, out, op, 8)))
        for left in (0, 1):
            out = torch.zeros(8, dtype=dtype)
            cases.append(Case(f"shift-{name}-{left}", ops.shifts, (x, n, out, left, 8)))
        flags = torch.zeros(6, 8, dtype=torch.bool)
        cases.append(Case(f"compare-{name}", ops.comparisons, (x, y, flags, 8)))
    return cases


def _floats() -> list[Case]:
    cases = []
    x = torch.tensor([5.5, -5.5, 2.0, math.nan, 0.0, math.inf, 1e-3, 7.25])
    y = torch.tensor([2.0, 2.0, -3.0, 1.0, math.nan, 1.0, 3.0, -0.5])
    exact = {0, 1, 2, 5, 6, 7}
    for op in range(8):
        tolerance = 0.0 if op in exact else 1e-5
        cases.append(
            Case(f"binary-{op}", ops.binary, (x, y, torch.zeros(8), op, 8), tolerance=tolerance)
        )
    positive = torch.rand(8) + 0.5
    for op, name in enumerate(ops.UNARY):
        exact_fn = name in ("sqrt", "floor", "ceil", "abs", "neg")
        cases.append(
            Case(
                f"unary-{name}",
                ops.unary,
                (positive, torch.zeros(8), op, 8),
                tolerance=0.0 if exact_fn else 1e-5,
            )
        )
    a, b = torch.rand(8) + 0.1, -torch.rand(8) - 0.1
    cases += [
        Case(f"directed-{op}", ops.directed, (a, b, torch.zeros(8), op, 8)) for op in range(7)
    ]
    small = torch.tensor([-140.0, -126.0, 3.0, -1e-39])
    cases.append(
        Case("flushed", ops.flushed, (small, small.flip(0).contiguous(), torch.zeros(3, 4), 4))
    )
    return cases


def _conversions() -> list[Case]:
    cases = []
    eighths = [torch.float8_e4m3fn, torch.float8_e5m2]
    for source in [*ops.FLOAT_DTYPES, *eighths]:
        # What a conversion to an integer does beyond its range, the hardware decides.
        x = torch.tensor([0.0, 2.5, -1.75, 100.0, 0.3, -0.0, 1.0, 1 / 3]).to(source)
        for target in [*ops.NUMBERS, *eighths]:
            if source is target or (target in ops.INTEGERS and not ops.INTEGERS[target][1]):
                continue
            out = torch.zeros(8).to(target)
            cases.append(Case(f"convert-{source}-{target}", ops.convert, (x, out, 8)))
    wide = torch.tensor([1e9, -1e9, 448.0, 470.0, 57344.0, 65504.0, 70000.0, 3e38])
    for target in [torch.float16, torch.bfloat16, *eighths]:
        out = torch.zeros(8).to(target)
        cases.append(Case(f"overflow-{target}", ops.convert, (wide, out, 8)))
    for source in ops.INTEGER_DTYPES:
        bits, signed = ops.INTEGERS[source]
        top = (1 << bits - 1) - 1 if signed else (1 << bits) - 1
        x = torch.tensor([0, 5, top, top - 1, top // 3, 1, 2, 100], dtype=source)
        for target in ops.NUMBERS:
            if source is not target:
                out = torch.zeros(8, dtype=target)
                cases.append(Case(f"convert-{source}-{target}", ops.convert, (x, out, 8)))
    tf32 = 1 + torch.rand(8)
    cases.append(Case("tf32", ops.narrow, (tf32, torch.zeros(8), 8)))
    return cases


def _tiles() -> list[Case]:
    generator = torch.Generator().manual_seed(0)
    small = torch.randint(1, 4, (4, 8), generator=generator)
    cases = []
    for dtype in (torch.float32, torch.int32, torch.int64):
        for op in range(6):
            out = torch.zeros(4, dtype=torch.int32 if op >= 4 else dtype)
            cases.append(
                Case(f"reduce-{dtype}-{op}", ops.reductions, (small.to(dtype), out, op, 4, 8))
            )
        for op in range(5):
            x, out = small[:2].to(dtype), torch.zeros(2, 8, dtype=dtype)
            cases.append(Case(f"scan-{dtype}-{op}", ops.scans, (x, out, op, 8)))
    for dtype, acc in ((torch.bfloat16, torch.float32), (torch.float16, torch.float16)):
        x, y = (torch.randint(-4, 4, (16, 16), generator=generator).to(dtype) for _ in range(2))
        zero = torch.zeros(16, 16, dtype=acc)
        cases.append(Case(f"mma-{dtype}", ops.product, (x, y, zero, zero.clone(), 16, 16, 16)))
    row = torch.arange(10.0)
    cases += [
        Case("pack", ops.pack, (torch.arange(4, dtype=torch.int32), torch.zeros(16).byte(), 4)),
        Case("move", ops.cut_and_join, (torch.randn(4, 4), torch.randn(2, 4), torch.zeros(4, 4))),
        Case("ragged", memory.tail, (row, torch.zeros(10), 4), (3,)),
        Case("overlapping", memory.steps, (row, torch.zeros(4, 4), 3)),
        Case(
            "gather",
            memory.gathers,
            (torch.arange(6), torch.tensor([5, -1, 0, 6], dtype=torch.int32), torch.zeros(4).long(),
             4),
        ),
        Case("order", kernels.where_am_i, (torch.zeros(24, dtype=torch.int32),), (2, 3, 4)),
        Case(
            "histogram",
            memory.histogram,
            (torch.tensor([0, 1, 1, 3, 3, 3, 3, -1], dtype=torch.int32),
             torch.zeros(5, dtype=torch.int32), 4),
            (2,),
        ),
    ]  # fmt: skip
    q, k, v = (torch.randn(2, n, 64, generator=generator).bfloat16() for n in (20, 50, 50))
    cases.append(
        Case(
            "attention",
            kernels.flash,
            (q, k, v, torch.zeros_like(q), torch.zeros(2, 20), 0.18, 16, 16, 64, True),
            (2, 2),
            tolerance=2e-2,
        )
    )
    return cases


_WIDTHS = (8, 16, 32, 64)
CASES = [*_integers(), *_floats(), *_conversions(), *_tiles()]

#: Cases that a run draws; the seed is fixed, so that a failure is a fault and not bad luck.
DRAWN, SEED = 80, 20261121


def _kind(case: Case) -> str:
    return case.name.partition("-")[0]


def _drawn() -> list[Case]:
    """One case of each kind, and then of all, without repeating one; in the order of ``CASES``."""
    if os.environ.get("HYPERMLA_ALL_CASES"):
        return CASES
    chance = random.Random(SEED)
    shuffled = chance.sample(CASES, len(CASES))
    first = {_kind(case): case.name for case in reversed(shuffled)}
    names = dict.fromkeys([*first.values(), *(case.name for case in shuffled)])
    taken = set(list(names)[:DRAWN])
    return [case for case in CASES if case.name in taken]


SAMPLE = _drawn()


def _copy(arg: Any, device: str) -> Any:
    return arg.clone().to(device) if isinstance(arg, torch.Tensor) else arg


def disagreement(case: Case, device: str, other: Launch) -> str | None:
    """Runs a case in the interpreter and elsewhere; returns how the results differ, if they do."""
    mine = tuple(_copy(arg, "cpu") for arg in case.args)
    theirs = tuple(_copy(arg, device) for arg in case.args)
    launch(case.grid, case.kernel, mine)
    other(case.grid, case.kernel, theirs)
    for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        if not isinstance(a, torch.Tensor):
            continue
        b = b.cpu()
        if case.tolerance:
            same = torch.allclose(
                a.double(), b.double(), case.tolerance, case.tolerance, equal_nan=True
            )
        else:
            bits = torch.equal(a.view(torch.uint8), b.view(torch.uint8))
            nan = a.is_floating_point() and bool((a.double() != a.double()).any())
            same = bits or (
                nan and torch.allclose(a.double(), b.double(), 0.0, 0.0, equal_nan=True)
            )
        if not same:
            return f"argument {i}: interpreter {a.flatten()[:16]}, other {b.flatten()[:16]}"
    return None


def on_gpu(grid: tuple[int, ...], kernel: Any, args: tuple[Any, ...]) -> None:
    """Launches on the current GPU and waits."""
    ct.launch(torch.cuda.current_stream(), grid, kernel, args)
    torch.cuda.synchronize()


#: Where one H200 (tileiras 13.4.92, 2026-11-21) differs from what cuTile documents.
KNOWN = {
    **{f"integers-uint{n}-3": "tileiras refuses floor division of unsigned" for n in _WIDTHS},
    **{f"integers-uint{n}-13": "abs takes unsigned as signed" for n in (8, 16, 32)},
    **{
        f"convert-torch.float8_{form}-torch.bool": "negative zero becomes True"
        for form in ("e4m3fn", "e5m2")
    },
}


def test_every_kind_of_case_is_drawn() -> None:
    assert {_kind(case) for case in SAMPLE} == {_kind(case) for case in CASES}
    assert len({case.name for case in CASES}) == len(CASES)
    assert len(SAMPLE) in (DRAWN, len(CASES))


def test_known_differences_name_cases() -> None:
    assert set(KNOWN) <= {case.name for case in CASES}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            id=case.name,
            marks=pytest.mark.xfail(case.name in KNOWN, reason=KNOWN.get(case.name, "")),
        )
        for case in SAMPLE
    ],
)
def test_agrees_with_the_gpu(case: Case) -> None:
    assert (found := disagreement(case, "cuda", on_gpu)) is None, found


@pytest.mark.parametrize("case", SAMPLE, ids=lambda c: c.name)
def test_the_interpreter_agrees_with_itself_in_another_order(case: Case) -> None:
    from mla_var3.interpreter import Options

    def backwards(grid: tuple[int, ...], kernel: Any, args: tuple[Any, ...]) -> None:
        launch(grid, kernel, args, options=Options(order="reverse", track=False))

    assert (found := disagreement(case, "cpu", backwards)) is None, found


def test_a_difference_is_seen() -> None:
    def off_by_one(grid: tuple[int, ...], kernel: Any, args: tuple[Any, ...]) -> None:
        launch(grid, kernel, args)
        args[2].view(-1)[0] += 1

    for name in ("integers-int32-0", "binary-0", "unary-exp"):
        case = next(c for c in CASES if c.name == name)
        if name == "unary-exp":
            case = Case("exp", ops.integer_power, (case.args[0], torch.ones(8, dtype=torch.int32),
                        torch.zeros(8), 8), tolerance=1e-5)  # fmt: skip
        assert "argument 2" in str(disagreement(case, "cpu", off_by_one))
