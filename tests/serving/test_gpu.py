"""The calls on a GPU: many random ones, bits, memory, graphs, what torch asks, bad input."""

from __future__ import annotations

import math
import random

import pytest
import torch

from mla_var3.errors import CallError
from mla_var3.serving import checks, flashmla, operators

from . import test_lists
from .stand_in import LATENT, WIDTH, packed, unpacked

pytestmark = pytest.mark.gpu
#: Random calls of each kind, and launches that must give the same bits.
DENSE, SPARSE, LAUNCHES = 400, 100, 10_000
#: Largest error of an output, relative to its norm, and of an LSE.
ERROR, LSE_ERROR = 6e-3, 3e-3


class Dense:
    """A dense call's tensors, pages in a random order and garbage where no key is."""

    def __init__(self, lengths, s, h, page=64, dtype=torch.bfloat16, seed=0):
        g = torch.Generator("cuda").manual_seed(seed)

        def randn(*shape):
            return torch.randn(shape, generator=g, device="cuda").to(dtype)

        counts = [-(-n // page) for n in lengths]
        pages = max(sum(counts), 1)
        order = torch.randperm(pages, generator=torch.Generator().manual_seed(seed)).int()
        self.q, self.cache = randn(len(lengths), s, h, WIDTH), randn(pages, page, 1, WIDTH)
        self.table = torch.zeros(len(lengths), max([1, *counts]), dtype=torch.int32)
        for row, part in zip(self.table, order[: sum(counts)].split(counts), strict=True):
            row[: len(part)] = part
        self.table, self.keys = self.table.cuda(), lengths
        self.lengths = torch.tensor(lengths, dtype=torch.int32, device="cuda")

    def __call__(self, schedule=None, causal=False, **changed):
        given = {
            "q": self.q, "k_cache": self.cache, "block_table": self.table,
            "cache_seqlens": self.lengths, "head_dim_v": LATENT,
            "tile_scheduler_metadata": schedule or flashmla.get_mla_metadata()[0],
            "causal": causal,
        }  # fmt: skip
        return flashmla.flash_mla_with_kvcache(**{**given, **changed})

    def wanted(self, causal):
        """Output and LSE, by torch in fp32."""
        (b, s, h, _), page = self.q.shape, self.cache.shape[1]
        o = self.q.new_zeros(b, s, h, LATENT, dtype=torch.float32)
        lse = self.q.new_zeros(b, h, s, dtype=torch.float32)
        for i, n in enumerate(self.keys):
            keys = self.cache[self.table[i, : -(-n // page)].long()].flatten(0, 2)[:n].float()
            o[i], lse[i] = attended(self.q[i], keys, causal)
        return o, lse


def attended(q, keys, causal=False):
    """Queries [s,h,w] over keys [t,w]: o [s,h,512], LSE [h,s] as FlashMLA says it."""
    scores = torch.einsum("shw,tw->sht", q.float(), keys) * WIDTH**-0.5
    s, t = len(q), len(keys)
    if causal:
        hidden = torch.ones(s, t, dtype=torch.bool, device=q.device).triu(t - s + 1)
        scores = scores.masked_fill(hidden[:, None], -math.inf)
    sums = scores.logsumexp(-1)
    o = scores.softmax(-1).nan_to_num(0.0) @ keys[:, :LATENT]
    return o, sums.masked_fill(sums == -math.inf, math.inf).T


def right(found, wanted):
    """Whether output and LSE are; says how far off they are."""
    (o, lse), (expected, sums) = found, wanted
    norm = expected.norm()
    off = float((o.float() - expected).norm() / norm.clamp_min(1e-30)) if norm else float(o.norm())
    near = torch.where(sums == lse, 0.0, (lse - sums).abs())
    assert off < ERROR, off
    assert float(near.max()) < LSE_ERROR
    return off


def captured(call):
    """A graph of a call and what it returns."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = call()
    return graph, results


def test_random_dense_calls_are_right():
    draw, worst = random.Random(7), 0.0
    for case in range(DENSE):
        s, h = draw.choice([1, 1, 2, 3, 4, 8]), draw.choice([8, 16, 32, 40, 64, 128])
        b, t = draw.choice([1, 2, 3, 7, 33, 100]), draw.choice([5, 100, 700, 3000])
        page = draw.choice([64, 64, 64, 128, 32, 16, 8, 1])
        half = draw.random() < 0.3
        causal = draw.random() < 0.5
        keys = [draw.randint(t // 2, 3 * t // 2) * (draw.random() > 0.15) for _ in range(b)]
        call = Dense(keys, s, h, page, torch.float16 if half else torch.bfloat16, case)
        early = draw.random() < 0.5
        schedule = flashmla.get_mla_metadata(*((call.lengths, s * h) if early else ()))[0]
        worst = max(worst, right(call(schedule, causal), call.wanted(causal)))
    print(f"{DENSE} dense calls, largest error {worst:.2e}")


def sparse_call(b, s, h, k, tokens, seed, **changed):
    """A sparse call: its results and those of torch in fp32."""
    torch.manual_seed(seed)
    pages = -(-tokens // 64)
    cache = packed(torch.randn(pages * 64, WIDTH)).view(pages, 64, 1, -1).cuda()
    indices = torch.randint(0, tokens, (b, s, k), dtype=torch.int32)
    indices[torch.rand(b, s, k) < 0.1] = -1
    counts = torch.randint(0, k + 1, (b,), dtype=torch.int32)
    q = torch.randn(b, s, h, WIDTH).bfloat16().cuda()
    found = flashmla.flash_mla_with_kvcache(
        q, cache, None, None, LATENT, flashmla.get_mla_metadata()[0], is_fp8_kvcache=True,
        indices=indices.cuda(), topk_length=counts.cuda(), **changed,
    )  # fmt: skip
    o, lse = q.new_zeros(b, s, h, LATENT, dtype=torch.float32), q.new_zeros(b, h, s).float()
    for i in range(b):
        for j in range(s):
            named = indices[i, j, : counts[i]]
            keys = unpacked(cache.flatten(0, 2)[named[named >= 0].long()])
            o[i, j], sums = attended(q[i, j][None], keys)
            lse[i, :, j] = sums[:, 0]
    return found, (o, lse)


def test_random_sparse_calls_are_right():
    draw, worst = random.Random(11), 0.0
    for case in range(SPARSE):
        sizes = draw.choice([1, 3, 20]), draw.choice([1, 2, 4]), draw.choice([16, 64, 128])
        k, tokens = draw.choice([1, 64, 200, 2048]), draw.choice([64, 1000, 5000])
        worst = max(worst, right(*sparse_call(*sizes, k, tokens, case)))
    print(f"{SPARSE} sparse calls, largest error {worst:.2e}")


class TestLists:
    """What is tried by plain torch and in the emulator, on tensors of the GPU."""

    @pytest.fixture(autouse=True)
    def on_gpu(self):
        torch.set_default_device("cuda")
        yield
        torch.set_default_device(None)

    @pytest.mark.parametrize("second", [False, True])
    @pytest.mark.parametrize("width", [LATENT, WIDTH])
    def test_forms_and_second_caches(self, width, second):
        for counted in (False, True):
            test_lists.sparse(width, second, counted)

    @pytest.mark.parametrize("causal", [False, True])
    def test_a_dense_cache_in_fp8(self, causal):
        test_lists.dense_fp8(causal)

    @pytest.mark.parametrize("width", [LATENT, WIDTH])
    def test_rows_in_bfloat16(self, width):
        test_lists.prefill(width, True, True)

    @pytest.mark.parametrize("width", [LATENT, WIDTH])
    @pytest.mark.parametrize(("n", "heads"), [(1, 128), (9, 80), (200, 64)])
    def test_rows_whole_and_in_parts(self, width, n, heads):
        counts = [1 + 701 * i % 2048 for i in range(n)]
        test_lists.prefill(width, True, True, n=n, k=2048, counts=counts, heads=heads)
        test_lists.prefill(width, False, False, n=n, k=2048, counts=counts, heads=heads)


@pytest.mark.parametrize(
    ("lengths", "s", "h"), [([4096] * 32, 1, 128), ([9000, 100, 5000], 2, 64), ([40000], 1, 16)]
)
def test_launches_of_one_call_give_the_same_bits(lengths, s, h):
    call = Dense(lengths, s, h)
    graph, (o, lse) = captured(call)
    graph.replay()
    first, differ = (o.clone(), lse.clone()), torch.zeros((), dtype=torch.int64, device="cuda")
    for _ in range(LAUNCHES if len(lengths) == 32 else LAUNCHES // 5):
        graph.replay()
        differ += (o != first[0]).any().long() + (lse != first[1]).any().long()
    assert not int(differ)


def test_a_captured_step_follows_the_lengths():
    call = Dense([3000, 700, 5000, 64], 2, 128)
    graph, found = captured(call)
    for keys in ([100, 700, 0, 63], [3000, 1, 4999, 64]):
        call.keys = keys
        call.lengths.copy_(torch.tensor(keys, dtype=torch.int32))
        graph.replay()
        right(found, call.wanted(False))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("s", "h"), [(66, 128), (67, 128), (100, 128), (128, 128), (150, 80)])
def test_prompts_of_more_row_tiles_than_sms(s, h, causal):
    """Their queries are taken some at a time; with fewer keys than queries some see none."""
    for keys in ([700, 3000, 130, s, 3, 0], [5000]):
        call = Dense(keys, s, h, seed=s)
        right(call(causal=causal), call.wanted(causal))


@pytest.mark.parametrize("causal", [False, True])
def test_a_captured_prompt_follows_the_lengths(causal):
    call = Dense([900, 2000, 64], 128, 128)
    graph, found = captured(lambda: call(causal=causal))
    for keys in ([100, 1999, 0], [833, 128, 64]):
        call.keys = keys
        call.lengths.copy_(torch.tensor(keys, dtype=torch.int32))
        graph.replay()
        right(found, call.wanted(causal))


@pytest.mark.parametrize("schedule_first", [False, True])
def test_lengths_and_tables_may_begin_anywhere(schedule_first):
    """A server hands out slices of what it keeps."""
    call = Dense([700, 64, 130, 3000, 5], 1, 16)
    call.q, call.table, call.lengths, call.keys = (
        x[2:] for x in (call.q, call.table, call.lengths, call.keys)
    )
    assert call.lengths.data_ptr() % 16
    assert call.table.data_ptr() % 16
    given = (call.lengths, 16) if schedule_first else ()
    right(call(flashmla.get_mla_metadata(*given)[0]), call.wanted(False))


@pytest.mark.parametrize(("h", "shared"), [(6, 2), (9, 3), (126, 3), (63, 3)])
def test_heads_of_the_cache_have_any_number_of_query_heads(h, shared):
    """So that the LSE of the second one begins anywhere."""
    call = Dense([700, 64, 130], 1, h)
    caches = [torch.randn_like(call.cache) for _ in range(shared)]
    whole = torch.cat(caches, 2)
    o, lse = call(k_cache=whole)
    step, q = h // shared, call.q
    for j, own in enumerate(caches):
        call.q, call.cache = q[:, :, j * step : (j + 1) * step], own
        right((o[:, :, j * step : (j + 1) * step], lse[:, j * step : (j + 1) * step]),
              call.wanted(False))  # fmt: skip


@pytest.mark.parametrize(("b", "s", "h"), [(32, 1, 128), (64, 2, 64), (8, 1, 16)])
def test_peak_memory_is_outputs_and_workspace(b, s, h):
    call = Dense([4096] * b, s, h)
    schedule = flashmla.get_mla_metadata()[0]
    call(schedule)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    # What was asked for: blocks that the allocator kept may be larger than that.
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    o, lse = call(schedule)
    torch.cuda.synchronize()
    taken = torch.cuda.memory_stats()["requested_bytes.all.peak"] - before
    stated = o.nbytes + lse.nbytes + operators.workspace_bytes(s * h, o.device)
    print(f"b={b} s={s} h={h}: took {taken}, outputs and workspace {stated}")
    assert taken <= stated


def test_torch_finds_no_fault_with_the_operators():
    call = Dense([70, 3], 1, 16)
    cuts = operators.even_schedule(call.lengths, 16)
    o, lse = call()
    cache = call.cache.squeeze(2)
    torch.library.opcheck(operators.even_schedule, (call.lengths, 16))
    torch.library.opcheck(
        operators.paged_decode,
        (
            call.q[..., :LATENT], call.q[..., LATENT:], cache[..., :LATENT], cache[..., LATENT:],
            call.table, call.lengths, cuts, o, lse, 0.1, True, False, math.inf,
        ),
    )  # fmt: skip


def test_a_step_compiles_to_one_graph():
    call = Dense([700, 3], 2, 16)
    step = torch.compile(lambda: call(flashmla.get_mla_metadata()[0]), fullgraph=True)
    right(step(), call.wanted(False))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"q": torch.zeros(2, 1, 16, WIDTH)}, "q must be bfloat16 or float16"),
        ({"block_table": torch.zeros(2, 1, dtype=torch.int32)}, "block_table is on cpu"),
        ({"cache_seqlens": torch.zeros(2).cuda} , "cache_seqlens must be int32"),
        ({"block_table": torch.zeros(1, 1, dtype=torch.int32)}, "block_table is"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence(changed, said):
    made = {name: x() if callable(x) else x for name, x in changed.items()}
    with pytest.raises(CallError, match=said):
        Dense([70, 3], 1, 16)(**made)


def test_contents_that_lie_outside_are_named_when_debugging(monkeypatch):
    call = Dense([700, 3], 1, 16)
    monkeypatch.setenv(checks.DEBUG, "1")
    with pytest.raises(CallError, match="cache_seqlens has 7000, and block_table has pages for"):
        call(cache_seqlens=call.lengths * 10)
    with pytest.raises(CallError, match="block_table names page"):
        call(block_table=call.table + 1000)


def test_contents_that_lie_outside_read_nothing_outside():
    call = Dense([700, 3], 1, 16)
    results = [*call(cache_seqlens=call.lengths * 10), *call(block_table=call.table + 1000)]
    torch.cuda.synchronize()
    assert all(bool(x.isfinite().all()) for x in results)
