"""FlashMLA's and FlashInfer's calls with v5 behind them: what is gathered, grouped and folded.

The kernel is that of ``test_flash_mla``; where the reference of its plan takes its place, only
what lies between it and the callers is at stake.
"""

from __future__ import annotations

import math
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("cutlass", reason="needs nvidia-cutlass-dsl")

from mla_var3.kernel.cute_python.mla.flash_mla import peers, serving

PAGE, WIDTH, LATENT = 64, 576, 512


@pytest.fixture
def by_reference(monkeypatch):
    """The plan's reference in place of its launch; gives the plans that were launched."""
    plans = []

    def launched(plan, *inputs):
        plans.append(plan)
        found = plan.reference_fn(*inputs)
        return {"o": found["o"].to(inputs[0].dtype), "lse": found["lse"]}

    monkeypatch.setattr(serving, "launched", launched)
    return plans


def wanted(q, k, v, scale, causal):
    """One sequence and head: q [s,w], k [t,w], v [t,e] to o [s,e] and the natural LSE [s]."""
    scores = q.double() @ k.double().T * scale
    if causal:
        s, t = scores.shape
        scores = scores.masked_fill(torch.ones(s, t, dtype=torch.bool).triu(t - s + 1), -math.inf)
    return scores.softmax(-1).nan_to_num(0.0) @ v.double(), scores.logsumexp(-1)


def paged_cache(lengths, heads, dtype):
    """Pages in a random order, NaN where no key is, and their table with addresses of nothing."""
    counts = [-(-length // PAGE) for length in lengths]
    order = iter(torch.randperm(sum(counts)).tolist())
    cache = torch.randn(max(sum(counts), 1), PAGE, heads, WIDTH).to(dtype)
    table = torch.full((len(lengths), max([1, *counts]) + 1), 2147480000, dtype=torch.int32)
    for i, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        for j in range(count):
            table[i, j] = next(order)
        if length % PAGE:
            cache[table[i, count - 1], length % PAGE :] = math.nan
    return cache, table


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.sampled_from([0, 1, 3, 64, 70, 130]), min_size=1, max_size=4),
    s=st.integers(1, 4),
    heads=st.sampled_from([(1, 1), (3, 1), (6, 2), (16, 1)]),
    causal=st.booleans(),
    dtype=st.sampled_from([torch.bfloat16, torch.float16]),
)
def test_flashmlas_call(lengths, s, heads, causal, dtype):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serving, "launched", _reference)
        h, shared = heads
        cache, table = paged_cache(lengths, shared, dtype)
        q = torch.randn(len(lengths), s, h, WIDTH).to(dtype)
        schedule, none = peers.get_mla_metadata()
        o, lse = peers.flash_mla_with_kvcache(
            q, cache, table, torch.tensor(lengths, dtype=torch.int32), LATENT, schedule, none,
            causal=causal,
        )  # fmt: skip
    assert o.shape == (len(lengths), s, h, LATENT)
    assert lse.shape == (len(lengths), h, s)
    for i, length in enumerate(lengths):
        pages = table[i, : -(-length // PAGE)].long()
        rows = cache[pages].flatten(0, 1)[:length]
        for head in range(h):
            k = rows[:, head // (h // shared)]
            expected, sums = wanted(q[i, :, head], k, k[:, :LATENT], WIDTH**-0.5, causal)
            sums[sums == -math.inf] = math.inf  # As FlashMLA says it.
            assert torch.allclose(o[i, :, head].double(), expected, rtol=1e-2, atol=2e-2)
            assert torch.allclose(lse[i, head].double(), sums, atol=1e-3)


def _reference(plan, *inputs):
    found = plan.reference_fn(*inputs)
    return {"o": found["o"].to(inputs[0].dtype), "lse": found["lse"]}


def test_sequences_of_one_length_share_a_launch(by_reference):
    cache, table = paged_cache([70, 3, 70, 0], 1, torch.bfloat16)
    q = torch.randn(4, 1, 16, WIDTH).bfloat16()
    lengths = torch.tensor([70, 3, 70, 0], dtype=torch.int32)
    peers.flash_mla_with_kvcache(q, cache, table, lengths, LATENT, peers.Schedule())
    assert [(plan.b, plan.t) for plan in by_reference] == [(1, 3), (2, 70)]


@pytest.mark.parametrize("width", [64, 0])
@pytest.mark.parametrize("page", [1, 16])
def test_flashinfers_wrapper(by_reference, width, page):
    torch.manual_seed(0)
    queries, lengths, h, scale = [2, 1, 2], [20, 0, 33], 3, 0.1
    counts = [-(-length // page) for length in lengths]
    pages = torch.randperm(sum(counts), dtype=torch.int32)
    ckv = torch.randn(sum(counts), page, LATENT).half()
    kpe = torch.randn(sum(counts), page, width).half()
    q, qpe = torch.randn(sum(queries), h, LATENT).half(), torch.randn(sum(queries), h, width).half()
    starts, rows = ([0, *torch.tensor(x).cumsum(0).tolist()] for x in (counts, queries))
    made = peers.BatchMLAPagedAttentionWrapper(torch.empty(8, dtype=torch.int8), backend="fa3")
    made.plan(
        torch.tensor(rows), torch.tensor(starts), pages, torch.tensor(lengths), h, LATENT, width,
        page, True, scale, torch.half, torch.half,
    )  # fmt: skip
    o, lse = made.run(q, qpe, ckv, kpe, return_lse=True)
    for i, length in enumerate(lengths):
        own = pages[starts[i] : starts[i + 1]].long()
        z, positions = (x[own].flatten(0, 1)[:length] for x in (ckv, kpe))
        for head in range(h):
            row = slice(rows[i], rows[i + 1])
            query = torch.cat([q[row, head], qpe[row, head]], -1)
            expected, sums = wanted(query, torch.cat([z, positions], -1), z, scale, True)
            assert torch.allclose(o[row, head].double(), expected, rtol=1e-2, atol=2e-2)
            assert torch.allclose(lse[row, head].double(), sums / math.log(2), atol=1e-3)
    into, sums = torch.empty_like(o), torch.empty_like(lse)
    assert made.run(q, qpe, ckv, kpe, out=into, lse=sums) is into
    assert torch.equal(into, o)
    assert torch.equal(sums, lse)


def test_the_kernel_itself_behind_flashmlas_call():
    """In the emulator: rows that fill no tile, keys that fill no page."""
    torch.manual_seed(0)
    cache, table = paged_cache([5], 1, torch.bfloat16)
    q = torch.randn(1, 2, 3, WIDTH).bfloat16()
    lengths = torch.tensor([5], dtype=torch.int32)
    o, lse = peers.flash_mla_with_kvcache(
        q, cache, table, lengths, LATENT, peers.Schedule(), causal=True
    )
    rows = cache[table[0, 0], :5, 0]
    for head in range(3):
        expected, sums = wanted(q[0, :, head], rows, rows[:, :LATENT], WIDTH**-0.5, True)
        assert torch.allclose(o[0, :, head].double(), expected, rtol=1e-2, atol=2e-2)
        assert torch.allclose(lse[0, head].double(), sums, atol=1e-3)


FLASHMLA = """
import dataclasses, torch, flash_mla, kernelkit

@dataclasses.dataclass
class TestParam:
    b: int
    s_q: int
    s_k: int
    h_q: int = 128
    h_kv: int = 1
    test_performance: bool = True

def test_flash_mla(t):
    assert not t.test_performance
    assert flash_mla.get_mla_metadata()[1] is None
    assert kernelkit.bench.triton
    assert t.b < 9, "too many"

def main(dtype):
    torch.set_default_dtype(dtype)
    for b in (1, 9):
        test_flash_mla(TestParam(b, 1, 20))
"""


def test_cases_of_flashmlas_test_are_run_without_its_timing(tmp_path):
    (tmp_path / "tests/kernelkit").mkdir(parents=True)
    (tmp_path / "tests/kernelkit/__init__.py").write_text("from . import bench\n")
    (tmp_path / "tests/kernelkit/bench.py").write_text(
        "import triton\nimport triton.language as tl\n@triton.jit\ndef f(x: tl.constexpr): pass\n"
    )
    (tmp_path / "tests/test_flash_mla_dense_decoding.py").write_text(FLASHMLA)
    default = torch.get_default_dtype()
    try:
        with peers.flashmla(tmp_path) as cases:
            assert [case.tiles for case in cases] == [2, 18]
            cases[0].run()
            with pytest.raises(AssertionError, match="too many"):
                cases[1].run()
    finally:
        torch.set_default_dtype(default)
    assert "flash_mla" not in sys.modules
    assert "kernelkit" not in sys.modules


FLASHINFER = """
import flashinfer, pytest, torch
from tests.test_helpers.test_helpers import answer
from flashinfer.utils import has_flashinfer_jit_cache, is_sm90a_supported

@pytest.mark.parametrize("backend", ["fa2", "fa3"])
def test_batch_mla_without_kpe(backend):
    assert (backend, answer) == ("fa3", 42)
    assert has_flashinfer_jit_cache()

@pytest.mark.parametrize("qo_len", [1, 3])
@pytest.mark.parametrize("kv_len_0", [0, 70])
@pytest.mark.parametrize("backend", ["fa2", "fa3"])
def test_batch_mla_varlen_page_attention(qo_len, kv_len_0, backend):
    wrapper = flashinfer.mla.BatchMLAPagedAttentionWrapper(torch.empty(1), backend=backend)
    assert wrapper

test_batch_mla_oob_kv_nan = test_batch_mla_page_attention = test_batch_mla_without_kpe
"""


def test_cases_of_flashinfers_tests_are_combined_by_their_marks(tmp_path):
    for name in ("attention", "test_helpers"):
        (tmp_path / "tests" / name).mkdir(parents=True)
    (tmp_path / "tests/test_helpers/test_helpers.py").write_text("answer = 42\n")
    (tmp_path / "tests/attention/test_deepseek_mla.py").write_text(FLASHINFER)
    with peers.flashinfer(tmp_path) as cases:
        for case in cases:
            case.run()
        names = [case.name for case in cases]
    assert names[0] == "test_batch_mla_without_kpe(backend=fa3)"
    assert len(names) == 1 + 4 + 1 + 1
    assert "test_batch_mla_varlen_page_attention(backend=fa3, kv_len_0=70, qo_len=3)" in names
    assert "flashinfer" not in sys.modules
