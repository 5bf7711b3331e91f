"""Speed of the interpreter. Left out of default runs; ``pytest -m benchmark tests/benchmarks``."""

from __future__ import annotations

import math
from typing import Any

import cuda.tile as ct
import pytest
import torch

from mla_var3.interpreter import Options, launch
from mla_var3.interpreter.frontend import clear_cache

pytestmark = pytest.mark.benchmark

Int = ct.Constant[int]

#: Seconds that one attention launch may take on one core, all tracking on.
TARGET = 0.3


@ct.kernel
def attention(q, k, v, out, scale: float, TM: Int, TN: Int, D: Int):
    i, head = ct.bid(0), ct.bid(1)
    rows = i * TM + ct.arange(TM, dtype=ct.int32)
    query = ct.load(q, (head, i, 0), (1, TM, D)).reshape((TM, D))
    top = ct.full((TM, 1), -math.inf, dtype=ct.float32)
    total = ct.zeros((TM, 1), dtype=ct.float32)
    acc = ct.zeros((TM, D), dtype=ct.float32)
    shift = k.shape[1] - q.shape[1]
    for j in range(ct.cdiv(k.shape[1], TN)):
        key = ct.load(k, (head, 0, j), (1, D, TN), order=(0, 2, 1)).reshape((D, TN))
        score = ct.mma(query, key, ct.zeros((TM, TN), dtype=ct.float32)) * scale
        columns = j * TN + ct.arange(TN, dtype=ct.int32)
        score = ct.where(rows[:, None] + shift >= columns[None, :], score, -math.inf)
        new = max(top, ct.max(score, axis=-1, keepdims=True))
        p = ct.exp2(score - new, flush_to_zero=True)
        rescale = ct.exp2(top - new)
        total = total * rescale + ct.sum(p, axis=-1, keepdims=True)
        value = ct.load(v, (head, j, 0), (1, TN, D)).reshape((TN, D))
        acc = ct.mma(p.astype(q.dtype), value, acc * rescale)
        top = new
    ct.store(out, (head, i, 0), (acc / total).reshape((1, TM, D)).astype(out.dtype))


def problem(h: int, s: int, t: int, d: int) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """Grid and arguments of an attention launch at b = 1."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(h, n, d, generator=generator).bfloat16() for n in (s, t, t))
    out = torch.empty_like(q)
    return (1, h), (q, k, v, out, 1.4426950408889634 / math.sqrt(d), 4, 64, d)


@pytest.fixture
def one_core() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_core")
@pytest.mark.parametrize("track", [True, False], ids=["tracked", "untracked"])
def test_attention_launch(benchmark: Any, track: bool) -> None:
    grid, args = problem(16, 4, 256, 512)
    options = Options(track=track)
    report = benchmark.pedantic(
        launch, (grid, attention, args), {"options": options}, rounds=10, warmup_rounds=1
    )
    assert report.diagnostics == []
    q, k, v, out = args[:4]
    mask = torch.ones(4, 256, dtype=torch.bool).tril(256 - 4)
    expected = torch.nn.functional.scaled_dot_product_attention(
        q.float(), k.float(), v.float(), attn_mask=mask
    )
    torch.testing.assert_close(out.float(), expected, atol=2e-2, rtol=2e-2)
    if benchmark.stats is not None:  # None where benchmarks are disabled
        assert benchmark.stats.stats.median < TARGET


def test_front_end(benchmark: Any) -> None:
    """The first launch of a signature, which the cache saves the next ones."""
    grid, args = problem(1, 4, 64, 64)

    def first() -> None:
        clear_cache()
        launch(grid, attention, args)

    benchmark.pedantic(first, rounds=3, warmup_rounds=1)
