"""FlashInfer's wrapper: results by its plan, plans under capture, refusals."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from mla_var3.errors import CallError
from mla_var3.serving.flashinfer import BatchMLAPagedAttentionWrapper

from .stand_in import LATENT, vector, wanted

H, SCALE = 3, 0.1


def indices(lengths, page):
    """Index pointers of pages, and the pages in a random order."""
    counts = [-(-length // page) for length in lengths]
    return [0, *itertools.accumulate(counts)], torch.randperm(sum(counts), dtype=torch.int32)


def planned(made, lengths, queries, page, pages, starts, width=64, **more):
    """A wrapper after its plan."""
    rows = torch.arange(len(lengths) + 1) * queries
    made.plan(
        rows, torch.tensor(starts), pages, vector(*lengths), H, LATENT, width, page, True, SCALE,
        torch.half, torch.half, **more,
    )  # fmt: skip
    return made


def wrapper(**more):
    return BatchMLAPagedAttentionWrapper(torch.empty(8, dtype=torch.int8), backend="fa3", **more)


@pytest.mark.parametrize("width", [64, 0])
@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize("base", ["base2", "basee"])
def test_results(by_reference, width, page, base):
    torch.manual_seed(0)
    queries, lengths = 2, [20, 0, 33]
    starts, pages = indices(lengths, page)
    ckv = torch.randn(len(pages), page, LATENT).half()
    kpe = torch.randn(len(pages), page, width).half()
    q, qpe = torch.randn(6, H, LATENT).half(), torch.randn(6, H, width).half()
    made = planned(wrapper(), lengths, queries, page, pages, starts, width, lse_mode=base)
    o, lse = made.run(q, qpe, ckv, kpe, return_lse=True)
    unit = math.log(2) if base == "base2" else 1.0
    for i, length in enumerate(lengths):
        own = pages[starts[i] : starts[i + 1]].long()
        z, positions = (x[own].flatten(0, 1)[:length] for x in (ckv, kpe))
        row = slice(queries * i, queries * (i + 1))
        query = torch.cat([q[row], qpe[row]], -1).transpose(0, 1)
        expected, sums = wanted(query, torch.cat([z, positions], -1), z, SCALE, True)
        assert torch.allclose(o[row].transpose(0, 1).double(), expected, rtol=1e-2, atol=2e-2)
        assert torch.allclose(lse[row].T.double(), sums / unit, atol=1e-3)
    into, sums = torch.empty_like(o), torch.empty_like(lse)
    assert made.run(q, qpe, ckv, kpe, out=into, lse=sums) is into
    assert torch.equal(into, o)
    assert torch.equal(sums, lse)


def test_under_capture_a_plan_writes_where_the_first_did(by_reference):
    made = wrapper(use_cuda_graph=True, kv_indices=torch.zeros(8, dtype=torch.int32))
    kept = []
    for lengths in ([20, 33], [17, 3]):
        starts, pages = indices(lengths, 16)
        planned(made, lengths, 1, 16, pages, starts)
        assert made._plan is not None
        kept.append([x.data_ptr() for x in made._plan])
        assert made._plan[1].tolist() == lengths
        assert made._plan[0].shape == (2, 4)  # the room of the caller's buffer
    assert kept[0] == kept[1]
    with pytest.raises(
        CallError, match="has room for 2 sequences of 4 pages, and the plan has 2 of 7"
    ):
        planned(made, [100, 3], 1, 16, *reversed(indices([100, 3], 16)))


def test_sequences_with_other_numbers_of_queries_are_refused():
    made = wrapper()
    with pytest.raises(CallError, match="qo_indptr gives sequences 1, 2 queries"):
        made.plan(
            torch.tensor([0, 2, 3]), torch.tensor([0, 1, 2]), vector(0, 1), vector(1, 1), H, LATENT,
            64, 1, False, SCALE, torch.half, torch.half,
        )  # fmt: skip


def test_a_run_fits_its_plan(by_reference):
    made = wrapper()
    q, qpe = torch.randn(2, H, LATENT).half(), torch.randn(2, H, 64).half()
    ckv, kpe = torch.randn(3, 16, LATENT).half(), torch.randn(3, 16, 64).half()
    with pytest.raises(CallError, match="needs a plan"):
        made.run(q, qpe, ckv, kpe)
    starts, pages = indices([20, 3], 16)
    planned(made, [20, 3], 1, 16, pages, starts)
    with pytest.raises(CallError, match="q_nope is"):
        made.run(q[:1], qpe, ckv, kpe)
    with pytest.raises(CallError, match="by its plan pages are 16 long"):
        made.run(q, qpe, ckv.view(-1, 8, LATENT), kpe)
    with pytest.raises(CallError, match="q_pe must be 64 wide, and is 32"):
        made.run(q, qpe[..., :32], ckv, kpe)
