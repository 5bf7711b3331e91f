"""What a launch shows: prints, watched lines, a debugger, the first bad number, assertions."""

from __future__ import annotations

import math
import sys
from typing import Any

import cuda.tile as ct
import pytest
import torch

from mla_var3.errors import InterpreterError
from tests.interpreter.helpers import assert_points_at, line_of, only, refusal, run, run_clean

Int = ct.Constant[int]


@ct.kernel
def prints(x, TILE: Int):
    i = ct.bid(0)
    tile = ct.load(x, (0, 0), (TILE, TILE))
    ct.printf("%d: %.1f\n", i, tile)


def test_a_large_tile_prints_figures_and_a_window(capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.arange(128.0 * 128).reshape(128, 128)
    x[5, 5] = math.nan
    run(prints, x, 128, grid=(3,), print_blocks=((1, 0, 0),))
    out = capsys.readouterr().out
    assert out.startswith("1: <128x128 float32, min 0, max 16383, mean ")
    assert "1 NaN; first: [[0.0, 1.0, 2.0, 3.0], [128.0, 129.0, 130.0, 131.0], " in out
    assert out.count("\n") == 1
    run_clean(prints, x, 2)
    assert capsys.readouterr().out == "0: [[0.0, 1.0], [128.0, 129.0]]\n"
    run(prints, x, 2, print_limit=3)
    assert "2x2 float32" in capsys.readouterr().out


@ct.kernel
def sums(x, y, TILE: Int):
    i = ct.bid(0)
    tile = ct.load(x, (i,), (TILE,))
    total = ct.sum(tile * 2.0, keepdims=True)  # watched
    ct.store(y, (i,), total)


def test_a_watched_line_keeps_its_values() -> None:
    x, y = torch.arange(8.0), torch.zeros(2)
    spec = f"test_seeing.py:{line_of(sums, 'watched')}"
    report = run(sums, x, y, 4, grid=(2,), watch=(spec,))
    totals = [w for w in report.watched if w.name == "total"]
    assert [w.value.item() for w in totals] == [12.0, 44.0]
    assert [w.block for w in totals] == [(0, 0, 0), (1, 0, 0)]
    assert f"{totals[1]}" in report.summary()
    assert str(totals[1]).endswith(": block (1, 0, 0): total = [44]")
    assert run(sums, x, y, 4, grid=(2,)).watched == []
    with pytest.raises(InterpreterError, match=r"must be like 'kernel.py:12'"):
        run(sums, x, y, 4, watch=("kernel.py",))


@ct.kernel
def stops(x, y, TILE: Int):
    i = ct.bid(0)
    tile = ct.load(x, (i,), (TILE,))
    doubled = tile + tile
    if i == 1:
        breakpoint()  # stops  # noqa: T100
    ct.store(y, (i,), doubled)


def test_a_breakpoint_opens_a_debugger_with_the_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int, dict[str, Any]]] = []

    def hook() -> None:
        frame = sys._getframe(1)
        seen.append((frame.f_code.co_filename, frame.f_lineno, dict(frame.f_locals)))

    monkeypatch.setattr(sys, "breakpointhook", hook)
    x, y = torch.arange(8.0), torch.zeros(8)
    run_clean(stops, x, y, 4, grid=(2,))
    [(file, line, variables)] = seen
    assert file == __file__
    assert line == line_of(stops, "stops  # noqa: T100")
    assert variables["block"] == (1, 0, 0)
    assert variables["i"] == 1
    assert variables["tile"].tolist() == [4.0, 5.0, 6.0, 7.0]
    assert variables["doubled"].tolist() == [8.0, 10.0, 12.0, 14.0]
    assert torch.equal(y, 2 * x)


@ct.kernel
def bad_numbers(x, y, KIND: Int):
    tile = ct.load(x, (0,), (4,))
    if KIND == 0:
        tile = tile - tile  # makes NaN
        tile = tile * 2.0 + 1.0
    elif KIND == 1:
        tile = ct.exp(tile)  # makes infinity
        tile = tile * 2.0
    else:
        tile = (tile * 1000.0).astype(ct.float16).astype(ct.float32)  # leaves float16
    ct.store(y, (0,), tile)


@pytest.mark.parametrize(
    ("values", "kind", "found", "mark", "said"),
    [
        ([1.0, 2.0, math.inf, 4.0], 0, "nan", "makes NaN", "element (2,), of inf, inf"),
        ([1.0, 2.0, 3.0, 100.0], 1, "infinity", "makes infinity", "element (3,), of 100"),
        ([1.0, 90.0, 3.0, 4.0], 2, "float16-overflow", "leaves float16", "element (1,), of 90000"),
    ],
)
def test_the_first_bad_number(
    values: list[float], kind: int, found: str, mark: str, said: str
) -> None:
    x = torch.tensor(values)
    report = run(bad_numbers, x, torch.zeros(4), kind, numerics=True)
    diagnostics = [d for d in report.diagnostics if d.kind == found]
    assert len(diagnostics) == 1
    assert_points_at(diagnostics[0], bad_numbers, mark)
    assert said in diagnostics[0].message
    assert diagnostics[0].severity == "warning"
    run_clean(bad_numbers, x, torch.zeros(4), kind)


@ct.kernel
def gathers_rows(x, y, stride: int):
    at = ct.arange(4, dtype=ct.int32) * stride  # wraps
    ct.store(y, (0,), ct.gather(x, at, check_bounds=True, padding_value=0.0))


def test_index_tiles_that_wrap() -> None:
    x, y = torch.ones(8), torch.zeros(4)
    run_clean(gathers_rows, x, y, 2, numerics=True)
    report = run(gathers_rows, x, y, 2**30, numerics=True)
    assert_points_at(only(report, "index-overflow"), gathers_rows, "wraps")


@ct.kernel
def asserts(x, y, TILE: Int):
    tile = ct.load(x, (0,), (TILE,))
    ct.assert_(tile < 5.0, "too large")  # noqa: PT009
    ct.store(y, (0,), tile)


def test_an_assertion_shows_the_element_and_the_values() -> None:
    run_clean(asserts, torch.ones(4), torch.zeros(4), 4)
    error = str(refusal(asserts, torch.tensor([1.0, 2.0, 7.5, 9.0]), torch.zeros(4), 4))
    assert "assertion failed in block (0, 0, 0) at element (2,), one of 2" in error
    assert error.endswith(": 7.5 < 5 is false: too large")
