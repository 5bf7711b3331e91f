"""Lists of two caches, tokens of 584 bytes, page tables in fp8, rows in bfloat16."""

from __future__ import annotations

import math

import pytest
import torch

from mla_var3.errors import CallError
from mla_var3.serving import flashmla, kinds, launching

from .stand_in import LATENT, WIDTH, as_keys, packed, packed_pages, unpacked, vector, wanted

B, S, H = 2, 2, 16
#: By how much an LSE that is summed in fp32 may be off, also where it is near 0.
FP32 = 1e-5


def cache_of(width, pages, page):
    """A cache in fp8 for queries of a width, and its tokens in fp32."""
    tokens = torch.randn(pages * page, width)
    if width == LATENT:
        cache = packed_pages(tokens, page)
        rows = cache.squeeze(2).as_strided((pages, page, 576), (cache.stride(0), 576, 1))
        return cache, as_keys("584", rows).flatten(0, 1)
    cache = packed(tokens).view(pages, page, 1, -1)
    return cache, unpacked(cache.flatten(0, 2))


def lists_of(count, k):
    """Lists of tokens, with places without one."""
    indices = torch.randint(0, count, (B, S, k), dtype=torch.int32)
    indices[0, 0, k // 2] = -1
    return indices


def poison(cache, width, indices):
    """Make values and rotary values of tokens that no list names NaN."""
    pages, page = cache.shape[:2]
    named = torch.zeros(pages * page, dtype=torch.bool)
    named[indices[indices >= 0].long()] = True
    row = 576 if width == LATENT else cache.shape[3]
    rows = cache.squeeze(2).as_strided((pages, page, row), (cache.stride(0), row, 1))
    rows[~named.view(pages, page)] = 0x7F


def right(found, q, keys_of, scale):
    """Whether a call's results are, by what each query token attends to."""
    o, lse = found
    for i in range(len(q)):
        for j in range(q.shape[1]):
            keys = keys_of(i, j)
            expected, sums = wanted(q[i, j][None], keys, keys[:, :LATENT], scale, False)
            sums = sums.masked_fill(sums == -math.inf, math.inf)
            assert torch.allclose(o[i, j].double(), expected[0], rtol=1e-2, atol=2e-2)
            assert torch.allclose(lse[i, :, j].double(), sums[0], atol=1e-3)


def sparse(width, second, counted, poisoned=False, steep=1, k=70):
    """A sparse call, checked; of ``steep`` queries the maximum moves by more than its lag."""
    torch.manual_seed(0)
    q, schedule = steep * torch.randn(B, S, H, width), flashmla.get_mla_metadata()[0]
    q, sizes, given, taken = q.bfloat16(), [(k // 14, 6, k), (3, 61, 40)][: 1 + second], {}, []
    for prefix, (pages, page, k) in zip(("", "extra_"), sizes, strict=False):
        cache, keys = cache_of(width, pages, page)
        indices, counts = lists_of(pages * page, k), (k - 3, 0) if counted else (k, k)
        if poisoned:
            indices[indices == 0] = 1  # the first token is what is read where there is none
            poison(cache, width, indices)
        given[f"{prefix}k_cache"] = cache
        given["extra_indices_in_kvcache" if prefix else "indices"] = indices
        given[f"{prefix}topk_length"] = vector(*counts) if counted else None
        taken.append((keys, indices, counts))
    found = flashmla.flash_mla_with_kvcache(
        q=q, block_table=None, cache_seqlens=None, head_dim_v=LATENT, is_fp8_kvcache=True,
        tile_scheduler_metadata=schedule, **given,
    )  # fmt: skip

    def attended(i, j):
        named = [(keys, x[i, j, : counts[i]]) for keys, x, counts in taken]
        return torch.cat([keys[x[x >= 0].long()] for keys, x in named])

    right(found, q, attended, width**-0.5)


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("width", [LATENT, WIDTH])
def test_forms_and_second_caches(by_reference, width, second, counted):
    sparse(width, second, counted)
    form = f"{'584' if width == LATENT else '656'}{'-second' * second}"
    assert [kind.form for kind in by_reference] == ["lists", form]


def dense_fp8(causal):
    """A dense call over a cache in fp8, checked."""
    torch.manual_seed(0)
    cache, keys = cache_of(WIDTH, 5, 64)
    table, lengths = torch.tensor([[2, 0, 4], [3, 1, -1]]).int(), (150, 1)
    q = torch.randn(B, S, H, WIDTH).bfloat16()
    found = flashmla.flash_mla_with_kvcache(
        q, cache, table, vector(*lengths), LATENT, flashmla.get_mla_metadata()[0],
        is_fp8_kvcache=True, causal=causal,
    )  # fmt: skip

    def attended(i, j):
        seen = lengths[i] - (S - 1 - j if causal else 0)
        return keys.unflatten(0, (5, 64))[table[i].clamp(0).long()].flatten(0, 1)[: max(seen, 0)]

    right(found, q, attended, WIDTH**-0.5)


@pytest.mark.parametrize("causal", [False, True])
def test_a_dense_cache_in_fp8(by_reference, causal):
    dense_fp8(causal)
    assert [kind.form for kind in by_reference] == ["lists", "656-table"]


def prefill(width, sink, counted, *, n=3, k=70, counts=(70, 70, 33), heads=H):
    """Attention over lists of rows in bfloat16, checked."""
    torch.manual_seed(0)
    tokens = 100
    kv, q = torch.randn(tokens, 1, width).bfloat16(), torch.randn(n, heads, width).bfloat16()
    indices = torch.randint(1, tokens, (n, 1, k), dtype=torch.int32)
    indices[0, 0, :2], indices[1:2] = torch.tensor([-1, 2147480000]), tokens
    kv[0], logits = math.nan, torch.randn(heads) if sink else None  # a row that no list names
    o, top, lse = flashmla.flash_mla_sparse_fwd(
        q, kv, indices, 0.05, attn_sink=logits, topk_length=vector(*counts) if counted else None
    )
    assert (o.shape, top.shape, lse.shape) == ((n, heads, LATENT), (n, heads), (n, heads))
    for i in range(n):
        named = indices[i, 0, : counts[i] if counted else k]
        keys = kv[named[(named >= 0) & (named < tokens)].long(), 0]
        expected, sums = wanted(q[i][None], keys, keys[:, :LATENT], 0.05, False)
        scores = q[i].double() @ keys.double().T * 0.05
        if sink:
            expected = expected * torch.sigmoid(sums[0] - logits).nan_to_num(0.0)[:, None]
        assert torch.allclose(o[i].double(), expected[0], rtol=1e-2, atol=2e-2)
        known = sums[0].masked_fill(sums[0] == -math.inf, math.inf)
        assert torch.allclose(lse[i].double(), known, atol=FP32)
        highest = scores.amax(-1) if len(keys) else torch.full((heads,), -math.inf).double()
        assert torch.allclose(top[i].double(), highest, atol=1e-3)


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("sink", [False, True])
@pytest.mark.parametrize("width", [LATENT, WIDTH])
def test_rows_in_bfloat16(by_reference, width, sink, counted):
    prefill(width, sink, counted)
    assert [kind.key for kind in by_reference] == [f"prefill-bfloat16-share1-rows{width}"]


@pytest.mark.parametrize(
    ("n", "heads", "k", "parts"),
    [(1, 128, 2048, 16), (1, 64, 512, 4), (33, 128, 2048, 2), (34, 128, 2048, 1), (1, 64, 70, 1),
     (66, 64, 2048, 2), (67, 64, 2048, 1), (4096, 128, 2048, 1), (4, 200, 1024, 8),
     (64, 64, 512, 1), (16, 64, 1024, 8), (66, 64, 1024, 1), (1, 64, 300, 1)],
)  # fmt: skip
def test_few_lists_are_cut_so_that_no_sm_is_idle(n, heads, k, parts):
    assert kinds.parts_of(n, heads, k, 132) == parts


def test_few_lists_are_launched_in_parts(by_reference, monkeypatch):
    monkeypatch.setattr(launching, "EMULATED_SMS", 4)
    prefill(WIDTH, True, True, n=1, k=800, counts=(799,))
    prefill(LATENT, False, False, n=1, k=800)
    assert [kind.form for kind in by_reference] == ["rows576-parts", "rows512-parts"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"d_v": 576}, "d_v=576"),
        ({"q": torch.zeros(3, 16, 500).bfloat16()}, "q must be 512 or 576 wide, not 500"),
        ({"q": torch.zeros(3, 16, 576).half()}, "q must be bfloat16, and is float16"),
        ({"kv": torch.zeros(9, 2, 576).bfloat16()}, "kv must be .tokens, 1, 576."),
        ({"indices": torch.zeros(2, 1, 7).int()}, "indices must be .3, 1, topk."),
        ({"topk_length": torch.zeros(2).int()}, "topk_length is for 2 sequences, and q has 3"),
    ],
)
def test_bad_rows_get_one_sentence(by_reference, changed, said):
    given = {
        "q": torch.zeros(3, 16, 576).bfloat16(), "kv": torch.zeros(9, 1, 576).bfloat16(),
        "indices": torch.zeros(3, 1, 7).int(), "sm_scale": 0.1,
    }  # fmt: skip
    with pytest.raises(CallError, match=said):
        flashmla.flash_mla_sparse_fwd(**{**given, **changed})
    assert by_reference == []


@pytest.mark.parametrize("width", [LATENT, WIDTH])
def test_without_tokens_there_is_nothing(by_reference, width):
    kv, q = torch.zeros(0, 1, width).bfloat16(), torch.randn(2, H, width).bfloat16()
    found = flashmla.flash_mla_sparse_fwd(q, kv, torch.zeros(2, 1, 4).int(), 0.1)
    for x, value in zip(found, (0.0, -math.inf, math.inf), strict=True):
        assert (x == value).all()


class TestInTheEmulator:
    """The kernels themselves; a race or an access out of bounds would raise."""

    @pytest.fixture(autouse=True)
    def few(self, monkeypatch):
        monkeypatch.setattr(launching, "EMULATED_SMS", 2)

    @pytest.mark.slow
    def test_tokens_of_584_bytes_in_two_caches(self):
        sparse(LATENT, True, True)

    @pytest.mark.slow
    def test_the_maximum_of_584_bytes_moves_in_even_and_odd_tiles(self):
        sparse(LATENT, False, False, steep=16, k=330)

    @pytest.mark.slow
    def test_what_no_list_names_may_be_anything(self):
        sparse(WIDTH, False, True, poisoned=True)

    @pytest.mark.slow
    def test_rows_with_a_sink_list_after_list(self):
        prefill(WIDTH, True, True, n=4, k=200, counts=(200, 130, 0, 63))

    @pytest.mark.slow
    def test_rows_in_parts_of_which_some_are_empty(self, monkeypatch):
        monkeypatch.setattr(launching, "EMULATED_SMS", 6)
        monkeypatch.setattr(kinds, "MERGE", 0)
        prefill(LATENT, True, True, n=2, k=400, counts=(400, 65))

    @pytest.mark.slow
    def test_rows_of_more_heads_than_a_tile_in_parts(self, monkeypatch):
        monkeypatch.setattr(launching, "EMULATED_SMS", 4)
        monkeypatch.setattr(kinds, "MERGE", 0)
        prefill(WIDTH, True, False, n=1, k=300, heads=80)

    @pytest.mark.exhaustive
    @pytest.mark.parametrize("width", [LATENT, WIDTH])
    @pytest.mark.parametrize("counted", [False, True])
    def test_rows(self, width, counted):
        prefill(width, counted, counted)

    @pytest.mark.exhaustive
    @pytest.mark.parametrize(("width", "second"), [(LATENT, False), (WIDTH, True)])
    def test_forms(self, width, second):
        sparse(width, second, True)

    @pytest.mark.exhaustive
    def test_a_dense_cache_in_fp8(self):
        dense_fp8(True)


def test_every_form_is_a_kind():
    assert {kinds.lists(form) for form in kinds.FORMS} <= set(kinds.every())
    assert {kinds.prefill(form) for form in kinds.ROW_FORMS} <= set(kinds.every())
