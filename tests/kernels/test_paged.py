"""Pages, lengths, the even schedule and lists of tokens, in the emulator."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("cutlass", reason="needs nvidia-cutlass-dsl")

from serving.stand_in import LATENT, WIDTH, packed, paged_cache, unpacked, vector, wanted

from mla_var3.emulator import Options
from mla_var3.emulator.options import DEFAULT, STRICT
from mla_var3.kernel.cute_python.kit.even import Cut, even_cuts
from mla_var3.kernel.cute_python.mla.flash_mla.flash_mla_v25.flash_mla_v25 import Plan
from mla_var3.serving import flashmla, kinds, launching, operators

from .attention_cases import assert_merged

LENGTHS = st.lists(st.integers(0, 4000), min_size=1, max_size=12)

#: How the host cuts, for v13 to v22 and from v23 on.
CUTS = (even_cuts, Plan.schedule.rows)


def tiles_of(lengths):
    return [max(-(-n // 64), 1) for n in lengths]


def parts(cuts, tiles):
    """(worker, sequence, first tile, one past the last) of all parts."""
    for worker, (first, start, end, stop, *_) in enumerate(cuts):
        for sequence in range(first, end + (stop > 0)):
            yield (
                worker, sequence, start if sequence == first else 0,
                stop if sequence == end else tiles[sequence],
            )  # fmt: skip


@pytest.mark.parametrize("cut", CUTS)
@given(lengths=LENGTHS, workers=st.integers(1, 140))
def test_parts_cover_each_tile_once(cut, lengths, workers):
    tiles = tiles_of(lengths)
    cuts = cut(tiles, workers)
    assert len(cuts) == workers
    covered = [(sequence, i) for _, sequence, a, z in parts(cuts, tiles) for i in range(a, z)]
    assert sorted(covered) == [(s, i) for s, n in enumerate(tiles) for i in range(n)]


@pytest.mark.parametrize("cut", CUTS)
@given(lengths=LENGTHS, workers=st.integers(1, 140))
def test_who_begins_a_sequence_knows_who_ends_it(cut, lengths, workers):
    tiles = tiles_of(lengths)
    cuts = cut(tiles, workers)
    holders = {}
    for worker, sequence, _, _ in parts(cuts, tiles):
        holders.setdefault(sequence, []).append(worker)
    for found in holders.values():
        assert found == list(range(found[0], found[-1] + 1))
    cut = {found[0]: found[-1] for found in holders.values() if len(found) > 1}
    assert {w: row[Cut.LAST] for w, row in enumerate(cuts) if row[Cut.LAST] >= 0} == cut
    later = {w: found[0] for found in holders.values() for w in found[1:]}
    assert {w: row[Cut.OWNER] for w, row in enumerate(cuts) if row[Cut.OWNER] >= 0} == later


@pytest.mark.parametrize("cut", CUTS)
@given(b=st.integers(1, 300), t=st.integers(1, 40000), workers=st.sampled_from([16, 66, 132]))
def test_no_part_is_much_above_the_mean(cut, b, t, workers):
    tiles = tiles_of([t] * b)
    work = [0] * workers
    for worker, _, a, z in parts(cut(tiles, workers), tiles):
        work[worker] += z - a
    assert max(work) <= sum(work) / workers + 8


def test_sequences_that_can_be_halved_are():
    """64 of 66 pairs of SMs with 32 tiles each, and not 66 with parts of three sequences."""
    tiles = tiles_of([4096] * 32)
    sizes = [z - a for _, _, a, z in parts(even_cuts(tiles, 66), tiles)]
    assert sizes == [32] * 64


@pytest.mark.parametrize(
    ("tiles", "workers", "most"),
    [
        ([9], 66, 1),  # few keys: a tile for each of nine workers
        ([9, 9], 18, 2),  # all workers are busy: parts of two tiles
        ([10] * 10, 18, 10),  # whole, since two parts cost more than they save
    ],
)
def test_short_sequences_are_cut_where_it_pays(tiles, workers, most):
    sizes = [z - a for _, _, a, z in parts(Plan.schedule.rows(tiles, workers), tiles)]
    assert max(sizes) == most


@settings(max_examples=10, deadline=None)
@given(lengths=LENGTHS, workers=st.sampled_from([1, 3, 16, 66, 132]))
def test_the_device_cuts_as_the_host(lengths, workers):
    cuts = torch.full((workers, kinds.COLUMNS), -9, dtype=torch.int32)
    launching.launch(kinds.SCHEDULE, vector(*lengths), cuts, written=[cuts])
    made = [tuple(row[: len(Cut)]) for row in cuts.tolist()]
    assert made == Plan.schedule.rows(tiles_of(lengths), workers)


@given(lengths=LENGTHS, workers=st.integers(1, 140))
def test_what_joining_costs_keeps_sequences_in_two_parts(lengths, workers):
    def most(cuts):
        return max(row[Cut.LAST] - i for i, row in enumerate(cuts))

    tiles = tiles_of(lengths)
    free, dear = even_cuts(tiles, workers), even_cuts(tiles, workers, join=255)
    assert dear == free or most(dear) <= 1


def attended(q, cache, table, lengths, made_for):
    """One decode under the schedule of other lengths."""
    b, s, h, _ = q.shape
    cuts = operators.even_schedule(vector(*made_for), s * h)
    o, lse = q.new_full((b, s, h, LATENT), math.nan), torch.full((b, h, s), math.nan)
    operators.paged_decode(
        q[..., :LATENT], q[..., LATENT:], cache[..., :LATENT], cache[..., LATENT:], table,
        vector(*lengths), cuts, o, lse, 0.07, True, False, -math.inf,
    )  # fmt: skip
    return o, lse


@pytest.mark.slow
@pytest.mark.parametrize("made_for", [(130, 0, 70), (640, 3, 0), (1, 1, 900)])
def test_results_are_right_under_the_schedule_of_other_lengths(made_for):
    torch.manual_seed(0)
    lengths = (130, 0, 70)
    cache, table = paged_cache(lengths)
    cache = cache.squeeze(2)
    q = torch.randn(3, 2, 16, WIDTH).bfloat16()
    o, lse = attended(q, cache, table, lengths, made_for)
    for i, length in enumerate(lengths):
        keys = cache[table[i, : -(-length // 64)].long()].flatten(0, 1)[:length]
        expected, sums = wanted(q[i].transpose(0, 1), keys, keys[:, :LATENT], 0.07, True)
        assert torch.allclose(o[i].transpose(0, 1).double(), expected, rtol=2e-2, atol=1e-2)
        assert torch.allclose(lse[i].double(), sums, atol=1e-3)


@pytest.mark.parametrize(
    ("workers", "lengths", "s", "h"),
    [
        (3, (400, 30), 1, 40),  # two parts, one of which stays in registers
        (11, (2300,), 2, 24),  # so many parts that they are read side by side
        (3, (400, 30), 1, 16),  # few rows: two parts
        (5, (70, 900, 0, 300), 2, 10),  # few rows, of several sequences per worker and of none
        (4, (777, 500), 4, 8),  # 32 rows, which are exchanged in two rounds
        (3, (700, 260), 3, 48),  # three row tiles in two clusters, the last one half empty
        # four parts, merged by three workers
        pytest.param(4, (900,), 1, 64, marks=pytest.mark.exhaustive),
        # more workers than groups of columns
        pytest.param(36, (4600,), 1, 34, marks=pytest.mark.exhaustive),
        # few rows in so many parts that some merge one of a warp's
        pytest.param(36, (4600, 4600), 1, 8, marks=pytest.mark.exhaustive),
    ],
)
def test_workers_merge_what_they_share(workers, lengths, s, h):
    torch.manual_seed(0)
    cache, table = paged_cache(lengths)
    cache, rows = cache.squeeze(2), s * h
    q = torch.randn(len(lengths), s, h, WIDTH).bfloat16()
    ctas = workers * kinds.tiles_of(rows)
    cuts = torch.zeros(workers + 2 * ctas, kinds.COLUMNS, dtype=torch.int32)
    made = torch.tensor(even_cuts(tiles_of(lengths), workers))
    cuts[:workers, : len(Cut)] = made
    assert (made[:, Cut.LAST] >= 0).any()
    o, lse = q.new_full((len(lengths), s, h, LATENT), math.nan), torch.zeros(len(lengths), h, s)
    operators.paged_decode(
        q[..., :LATENT], q[..., LATENT:], cache[..., :LATENT], cache[..., LATENT:], table,
        vector(*lengths), cuts, o, lse, 0.07, True, False, -math.inf,
    )  # fmt: skip
    assert not cuts[workers:].any()  # what tells that parts have come, for the next launch
    assert torch.equal(cuts[:workers, : len(Cut)], made)
    for i, length in enumerate(lengths):
        keys = cache[table[i, : -(-length // 64)].long()].flatten(0, 1)[:length]
        expected, sums = wanted(q[i].transpose(0, 1), keys, keys[:, :LATENT], 0.07, True)
        error = (o[i].transpose(0, 1).double() - expected).norm()
        assert error <= 4e-3 * expected.norm()  # of no keys nothing but zeros
        assert torch.allclose(lse[i].double(), sums, atol=1e-3)


@pytest.mark.slow
@pytest.mark.sampled(9)
@pytest.mark.parametrize(("seed", "model"), [(1, DEFAULT), (2, DEFAULT), (None, STRICT)])
@pytest.mark.parametrize(
    "fields",
    [
        {"b": 2, "h": 8, "s": 4, "t": 1200, "page": 16, "lengths": "ragged", "causal": True},
        {"b": 1, "h": 40, "s": 1, "t": 1700, "page": 64},  # more rows, one warp without any
        {"b": 1, "h": 40, "s": 1, "t": 3584, "page": 64},  # in 14 parts: teams of warps
    ],
)
def test_merges_under_other_schedules(fields, seed, model):
    """Three workers and more have parts of each sequence, and leave no signal."""
    plan = Plan(**fields)
    assert min(row[Cut.LAST] - i for i, row in enumerate(plan.cuts()) if row[Cut.LAST] > i) > 1
    assert_merged(plan, Options(seed=seed, model=model))


def test_lengths_beyond_the_table_read_nothing_beyond_it():
    cache, table = paged_cache([64])
    q = torch.randn(1, 1, 16, WIDTH).bfloat16()
    o, _ = attended(q, cache.squeeze(2), table[:, :1].contiguous(), (1000,), (1000,))
    assert torch.isfinite(o.float()).all()


@pytest.mark.slow
@pytest.mark.parametrize(("h", "counts"), [(64, (500, 70)), (128, (300, 1))])
def test_lists_of_tokens(h, counts):
    """Of the first list three workers and more have parts; 128 heads are two CTAs of a cluster."""
    torch.manual_seed(0)
    cache = packed(torch.randn(3 * 64, WIDTH)).view(3, 64, 1, -1)
    indices = torch.randint(0, 192, (2, 1, 500), dtype=torch.int32)
    indices[0, 0, ::7], indices[1, 0, 1] = -1, 500  # none, and one that the cache has not
    q = torch.randn(2, 1, h, WIDTH).bfloat16()
    o, lse = flashmla.flash_mla_with_kvcache(
        q, cache, None, None, LATENT, flashmla.get_mla_metadata()[0], softmax_scale=0.07,
        is_fp8_kvcache=True, indices=indices, topk_length=vector(*counts),
    )  # fmt: skip
    for i, count in enumerate(counts):
        tokens = indices[i, 0, :count]
        tokens = tokens[(tokens >= 0) & (tokens < 192)].long()
        keys = unpacked(cache.flatten(0, 2)[tokens])
        expected, sums = wanted(q[i, 0][None], keys, keys[:, :LATENT], 0.07, False)
        error = (o[i, 0].double() - expected[0]).norm() / expected.norm()
        assert error < 3e-3
        assert torch.allclose(lse[i, :, 0].double(), sums[0], atol=1e-3)


@pytest.mark.parametrize(
    ("h", "s", "share", "single"),
    [(48, 1, 1, 0), (128, 1, 2, 0), (48, 4, 2, 64), (80, 4, 2, 64), (64, 4, 2, 0)],
)
def test_all_row_tiles_but_an_odd_one_share_keys(h, s, share, single):
    plan = Plan(b=2, h=h, s=s, t=300, page=64)
    assert plan.share == share
    assert plan.leftover == (single > 0)
    assert plan.groups(share) * share == kinds.tiles_of(h * s)
    kind = kinds.attention("bfloat16", h * s, 64, False)
    assert (kind.share, kind.single) == (share, single)
    workers = len(plan.cuts())
    assert workers == kinds.workers_of(h * s, plan.target.sm_count)
    # Pairs, then single tiles, two to a cluster, all of which run at once.
    clusters = workers * (plan.row_tiles // 2) + -(-workers * (plan.row_tiles % 2) // 2)
    assert share == 1 or 2 * clusters <= plan.target.sm_count
