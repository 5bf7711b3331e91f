"""Whole launches: grids, orders, limits, threads, arguments, and kernels as people write them."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import cuda.tile as ct
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.errors import InterpreterError
from mla_var3.interpreter import Options, launch, recording
from mla_var3.interpreter.launcher import launched

from .helpers import line_of, only, refusal, run, run_clean

Int = ct.Constant[int]
Bool = ct.Constant[bool]

EXAMPLE = Path(__file__).parents[2] / "examples" / "interpret_your_kernel.py"


# ----------------------------------------------------------------------------- the machinery


@ct.kernel
def copies(x, y, TILE: Int):
    ct.store(y, (0,), ct.load(x, (0,), (TILE,)))


def test_each_specialization_is_collected_once() -> None:
    x, y = torch.arange(16.0), torch.empty(16)
    with launched() as outer:
        for tile in (8, 16, 16):
            launch((1,), copies, (x, y, tile))
        with launched() as inner:
            launch((1,), copies, (x, y, 8))
    launch((1,), copies, (x, y, 4))
    assert [args[-1] for kernel, args in outer.values() if kernel is copies] == [8, 16]
    assert [args[-1] for _, args in inner.values()] == [8]


@ct.kernel
def where_am_i(out):
    x, y, z = ct.bid(0), ct.bid(1), ct.bid(2)
    at = (z * ct.num_blocks(1) + y) * ct.num_blocks(0) + x
    ct.store(out, at, at)


@pytest.mark.parametrize("grid", [(6,), (2, 3), (2, 3, 4)])
@pytest.mark.parametrize("order", ["forward", "reverse", 3])
def test_every_block_of_a_grid_runs_once(grid: tuple[int, ...], order: Any) -> None:
    n = math.prod(grid)
    out = torch.full((n,), -1, dtype=torch.int32)
    report = run(where_am_i, out, grid=grid, order=order)
    assert report.diagnostics == []
    assert out.tolist() == list(range(n))
    assert report.grid == (*grid, 1, 1)[:3]


@ct.kernel
def records_order(log, counter):
    ct.scatter(log, ct.atomic_add(counter, 0, 1), ct.bid(0))


def test_block_orders() -> None:
    def order(option: Any) -> list[int]:
        log, counter = torch.zeros(8, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
        run_clean(records_order, log, counter, grid=(8,), order=option)
        return log.tolist()

    assert order("forward") == list(range(8))
    assert order("reverse") == list(range(7, -1, -1))
    assert sorted(order(1)) == list(range(8))
    assert order(1) == order(1) != order(2)
    with pytest.raises(InterpreterError, match="must be one of forward, reverse, random"):
        order("sideways")


@pytest.mark.parametrize("grid", [(), (1, 1, 1, 1), (0,), (-1,), (1.5,), (1, 70000), "ab"])
def test_grids_that_cannot_be(grid: Any) -> None:
    with pytest.raises(InterpreterError, match="grid"):
        launch(grid, where_am_i, (torch.zeros(1, dtype=torch.int32),))


@ct.kernel
def counts_up(out, n):
    i = 0
    while i < n:
        i += 1  # counts
    ct.store(out, 0, i)


@ct.kernel
def waits(flag):
    while ct.atomic_cas(flag, 0, 7, 7) == 0:  # waits
        pass


@ct.kernel
def spins(out):
    i = 0
    while i < 1:
        i = i * 2
    ct.store(out, 0, i)


def test_a_launch_that_is_too_long() -> None:
    out = torch.zeros(1, dtype=torch.int32)
    run_clean(counts_up, out, 50)
    error = refusal(counts_up, out, 10**6, max_steps=10_000)
    assert isinstance(error, InterpreterError)
    assert "passed the limit of 10000 operations" in str(error)
    assert f"test_launcher.py:{line_of(counts_up, 'counts') - 1}" in str(error)


def test_loops_that_cannot_end_are_known_at_once() -> None:
    error = refusal(waits, torch.zeros(1, dtype=torch.int32), grid=(2,))
    assert f"test_launcher.py:{line_of(waits, 'waits')}" in str(error)
    assert "block (0, 0, 0) and 1 other wait in this loop" in str(error)
    assert "deadlock" in str(error)
    error = refusal(waits, torch.zeros(1, dtype=torch.int32))
    assert "block (0, 0, 0) waits in this loop" in str(error)
    error = refusal(spins, torch.zeros(1, dtype=torch.int32))
    assert "never ends" in str(error)
    assert run(waits, torch.ones(1, dtype=torch.int32)).errors == []


def test_threads_are_restored() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        run_clean(where_am_i, torch.zeros(1, dtype=torch.int32))
        assert torch.get_num_threads() == 2
        refusal(spins, torch.zeros(1, dtype=torch.int32))
        assert torch.get_num_threads() == 2
        x = torch.randn(512, 512)
        out = torch.empty_like(x)
        run_clean(matmul, x, x, out, 512, 512, 512)
        torch.testing.assert_close(out, x @ x)
    finally:
        torch.set_num_threads(before)


def test_a_failed_launch_reports_nothing() -> None:
    with recording() as reports:
        refusal(spins, torch.zeros(1, dtype=torch.int32))
    assert reports == []


def test_tensors_elsewhere_are_refused() -> None:
    with pytest.raises(InterpreterError, match="'x' is on device meta"):
        launch((1,), tail_copy, (torch.empty(4, device="meta"), torch.zeros(4), 4))


@ct.kernel
def tail_copy(x, y, TILE: Int):
    ct.store(y, (ct.bid(0),), ct.load(x, (ct.bid(0),), (TILE,)))


def test_tensors_that_require_grad_are_written_in_place() -> None:
    x, y = torch.ones(4, requires_grad=True), torch.zeros(4)
    run_clean(tail_copy, x, y, 4)
    assert y.tolist() == [1.0] * 4
    y += 1  # and stay ordinary tensors


@ct.kernel
def nested(pair, y):
    (x, scale), shift = pair
    ct.store(y, (0,), ct.load(x, (0,), (4,)) * scale + shift)


def test_nested_tuples() -> None:
    y = torch.zeros(4)
    report = run(nested, ((torch.ones(4), 3.0), 2), y)
    assert y.tolist() == [5.0] * 4
    assert set(report.arrays) == {"pair[0][0]", "y"}


def test_options_are_values() -> None:
    assert Options() == Options(poison=Options().poison)
    with pytest.raises(AttributeError):
        Options().track = False  # type: ignore[misc]


@ct.kernel
def invariant_work(x, y, N: Int):
    ones = ct.ones((N, N), ct.float32)
    table = ct.mma(ones, ones, ct.zeros((N, N), ct.float32))
    ct.store(y, (ct.bid(0), 0), table)


def test_work_that_is_done_once_counts_for_every_block() -> None:
    y = torch.zeros(12, 4)
    report = run(invariant_work, torch.ones(4), y, 4, grid=(3,))
    assert report.mma_flops == 3 * 2 * 4**3
    assert bool((y == 4).all())
    single = run(invariant_work, torch.ones(4), torch.zeros(4, 4), 4)
    assert report.steps == 3 * single.steps


# ----------------------------------------------------------------------- kernels for real


@ct.kernel
def matmul(a, b, c, TM: Int, TN: Int, TK: Int):
    i, j = ct.bid(0), ct.bid(1)
    zero = ct.PaddingMode.ZERO
    acc = ct.zeros((TM, TN), dtype=ct.float32)
    for k in range(ct.num_tiles(a, 1, (TM, TK))):
        x = ct.load(a, (i, k), (TM, TK), padding_mode=zero)
        y = ct.load(b, (k, j), (TK, TN), padding_mode=zero)
        acc = ct.mma(x, y, acc)
    ct.store(c, (i, j), acc.astype(c.dtype))


@settings(max_examples=25)
@given(
    m=st.integers(1, 40),
    n=st.integers(1, 40),
    k=st.integers(1, 40),
    tile=st.sampled_from([(8, 8, 16), (16, 32, 8)]),
    dtype=st.sampled_from([torch.bfloat16, torch.float32]),
)
def test_matmul(m: int, n: int, k: int, tile: tuple[int, int, int], dtype: torch.dtype) -> None:
    a, b = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
    c = torch.full((m, n), math.nan, dtype=dtype)
    grid = (-(-m // tile[0]), -(-n // tile[1]))
    report = run(matmul, a, b, c, *tile, grid=grid)
    assert report.diagnostics == []
    torch.testing.assert_close(
        c.float(), (a.float() @ b.float()).to(dtype).float(), atol=1e-2, rtol=1e-2
    )
    steps = -(-k // tile[2])
    assert report.mma_flops == 2 * math.prod(tile) * math.prod(grid) * steps
    assert report.unique_bytes_loaded == (m * k + k * n) * dtype.itemsize


@ct.kernel
def flash(q, k, v, out, lse, scale: float, TM: Int, TN: Int, D: Int, CAUSAL: Bool):
    i, head = ct.bid(0), ct.bid(1)
    s, t = q.shape[1], k.shape[1]
    zero = ct.PaddingMode.ZERO
    query = ct.load(q, (head, i, 0), (1, TM, D), padding_mode=zero).reshape((TM, D))
    rows = i * TM + ct.arange(TM, dtype=ct.int32)
    top = ct.full((TM, 1), -1e30, dtype=ct.float32)
    total = ct.zeros((TM, 1), dtype=ct.float32)
    acc = ct.zeros((TM, D), dtype=ct.float32)
    for j in range(ct.cdiv(t, TN)):
        key = ct.load(k, (head, 0, j), (1, D, TN), order=(0, 2, 1), padding_mode=zero)
        score = ct.mma(query, key.reshape((D, TN)), ct.zeros((TM, TN), dtype=ct.float32))
        columns = j * TN + ct.arange(TN, dtype=ct.int32)
        seen = columns[None, :] < t
        if CAUSAL:
            seen = seen & (columns[None, :] <= rows[:, None] + (t - s))
        score = ct.where(seen, score * scale, -1e30)
        new = max(top, ct.max(score, axis=1, keepdims=True))
        p = ct.where(seen, ct.exp2(score - new), 0.0)
        rescale = ct.exp2(top - new)
        total = total * rescale + ct.sum(p, axis=1, keepdims=True)
        value = ct.load(v, (head, j, 0), (1, TN, D), padding_mode=zero).reshape((TN, D))
        acc = ct.mma(p.astype(v.dtype), value, acc * rescale)
        top = new
    ct.store(out, (head, i, 0), (acc / total).reshape((1, TM, D)).astype(out.dtype))
    ct.store(lse, (head, i), (top + ct.log2(total)).reshape((1, TM)))


@settings(max_examples=15)
@given(s=st.integers(1, 20), extra=st.integers(0, 40), causal=st.booleans())
def test_flash_attention(s: int, extra: int, causal: bool) -> None:
    h, d, t = 2, 16, s + extra
    q, k, v = (torch.randn(h, n, d).bfloat16() for n in (s, t, t))
    out = torch.full((h, s, d), math.nan).bfloat16()
    lse = torch.full((h, s), math.nan)
    scale = 1.4426950408889634 / math.sqrt(d)
    report = run(flash, q, k, v, out, lse, scale, 8, 16, d, causal, grid=(-(-s // 8), h))
    assert report.diagnostics == []
    mask = torch.ones(s, t, dtype=torch.bool).tril(t - s) if causal else None
    expected = torch.nn.functional.scaled_dot_product_attention(
        q.float(), k.float(), v.float(), attn_mask=mask
    )
    torch.testing.assert_close(out.float(), expected, atol=3e-2, rtol=3e-2)
    scores = q.float() @ k.float().mT / math.sqrt(d)
    if causal:
        scores = scores.masked_fill(~mask, -math.inf)
    torch.testing.assert_close(lse * math.log(2), scores.logsumexp(-1), atol=1e-3, rtol=1e-3)
    blocks = -(-s // 8) * h * -(-t // 16)
    assert report.mma_flops == 2 * 2 * 8 * 16 * d * blocks


def test_padding_left_undetermined_shows_in_attention() -> None:
    @ct.kernel
    def values_only(p, v, out, M: Int, N: Int, D: Int):
        weights = ct.load(p, (0, 0), (M, N), padding_mode=ct.PaddingMode.ZERO)
        value = ct.load(v, (0, 0), (N, D))
        ct.store(out, (0, 0), ct.mma(weights, value, ct.zeros((M, D), ct.float32)))

    p, v, out = torch.rand(4, 6), torch.rand(6, 8), torch.zeros(4, 8)
    only(run(values_only, p, v, out, 4, 8, 8), "undetermined-padding")
    assert bool(torch.isnan(out).all())
    run(values_only, p, v, out, 4, 8, 8, poison=0.0)
    torch.testing.assert_close(out, p @ v)


@ct.kernel
def layer_norm(x, w, b, y, eps: float, N: Int):
    row = ct.bid(0)
    n = x.shape[1]
    total, square = ct.zeros((1, N), ct.float32), ct.zeros((1, N), ct.float32)
    for j in range(ct.num_tiles(x, 1, (1, N))):
        tile = ct.load(x, (row, j), (1, N), padding_mode=ct.PaddingMode.ZERO)
        total, square = total + tile, square + tile * tile
    mean = ct.sum(total) / n
    spread = ct.rsqrt(ct.sum(square) / n - mean * mean + eps)
    for j in range(ct.num_tiles(x, 1, (1, N))):
        tile = (ct.load(x, (row, j), (1, N)) - mean) * spread
        scale, shift = ct.load(w, (j,), (N,)), ct.load(b, (j,), (N,))
        ct.store(y, (row, j), tile * scale[None, :] + shift[None, :])


@settings(max_examples=10)
@given(rows=st.integers(1, 5), n=st.integers(2, 70))
def test_layer_norm(rows: int, n: int) -> None:
    x, w, b = torch.randn(rows, n), torch.randn(n), torch.randn(n)
    y = torch.full((rows, n), math.nan)
    run_clean(layer_norm, x, w, b, y, 1e-3, 32, grid=(rows,))
    expected = torch.nn.functional.layer_norm(x, (n,), w, b, 1e-3)
    torch.testing.assert_close(y, expected, atol=1e-3, rtol=1e-3)


@ct.kernel
def embedding(table, ids, out, N: Int, D: Int):
    at = ct.load(ids, (ct.bid(0),), (N,), padding_mode=ct.PaddingMode.ZERO)
    columns = ct.arange(D, dtype=ct.int32)
    ct.store(out, (ct.bid(0), 0), ct.gather(table, (at[:, None], columns[None, :])))


@settings(max_examples=10)
@given(ids=st.lists(st.integers(0, 9), min_size=1, max_size=20))
def test_embedding(ids: list[int]) -> None:
    table, index = torch.randn(10, 8), torch.tensor(ids)
    out = torch.full((len(ids), 8), math.nan)
    run_clean(embedding, table, index, out, 4, 8, grid=(-(-len(ids) // 4),))
    assert torch.equal(out, table[index])


@ct.kernel
def split_k(a, b, c, TK: Int):
    x, y = ct.load(a, (0, ct.bid(0)), (8, TK)), ct.load(b, (ct.bid(0), 0), (TK, 8))
    part = ct.mma(x, y, ct.zeros((8, 8), ct.float32))
    i = ct.arange(8, dtype=ct.int32)
    ct.atomic_add(c, (i[:, None], i[None, :]), part)


@pytest.mark.parametrize("order", ["forward", "reverse", 5])
def test_atomic_split_k(order: Any) -> None:
    a, b, c = torch.randn(8, 64), torch.randn(64, 8), torch.zeros(8, 8)
    run_clean(split_k, a, b, c, 16, grid=(4,), order=order)
    torch.testing.assert_close(c, a @ b, atol=1e-4, rtol=1e-4)


# --------------------------------------------------------------------------- the example


def test_the_example_finds_its_bug(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {"__name__": "example", "__file__": str(EXAMPLE)}
    source = EXAMPLE.read_text()
    exec(compile(source, str(EXAMPLE), "exec"), namespace)
    report, y = namespace["interpret"](namespace["softmax_with_a_bug"])
    [found] = report.diagnostics
    assert found.kind == "undetermined-padding"
    assert "ct.load(x" in source.splitlines()[found.line - 1]
    assert bool(torch.isnan(y).all())
    report, y = namespace["interpret"](namespace["softmax"])
    assert report.diagnostics == []
    torch.testing.assert_close(y.sum(1), torch.ones(4))
    namespace["main"]()
    assert "no findings" in capsys.readouterr().out


def test_the_example_runs_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "error: undetermined-padding" in done.stdout
