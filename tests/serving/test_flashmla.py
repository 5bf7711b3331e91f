"""FlashMLA's calls: results, schedules over steps, the patterns of servers, refusals."""

from __future__ import annotations

import importlib
import math
import re
import sys
import types

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.errors import CallError
from mla_var3.paths import repo_root
from mla_var3.serving import flashinfer, flashmla, operators

from .stand_in import LATENT, WIDTH, launched, paged_cache, vector, wanted


def close(o, lse, q, cache, table, lengths, scale, causal):
    """Whether a call's results are right."""
    h, shared = q.shape[2], cache.shape[2]
    for i, length in enumerate(lengths):
        keys = cache[table[i, : -(-length // cache.shape[1])].long()].flatten(0, 1)[:length]
        for head in range(h):
            k = keys[:, head // (h // shared)]
            expected, sums = wanted(q[i, :, head][None], k, k[:, :LATENT], scale, causal)
            sums = sums.masked_fill(sums == -math.inf, math.inf)  # As FlashMLA says it.
            assert torch.allclose(o[i, :, head].double(), expected[0], rtol=1e-2, atol=2e-2)
            assert torch.allclose(lse[i, head].double(), sums[0], atol=1e-3)


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.sampled_from([0, 1, 3, 64, 70, 130]), min_size=1, max_size=4),
    s=st.integers(1, 4),
    heads=st.sampled_from([(1, 1), (3, 1), (6, 2), (16, 1)]),
    page=st.sampled_from([16, 64, 128]),
    causal=st.booleans(),
    dtype=st.sampled_from([torch.bfloat16, torch.float16]),
)
def test_the_call(lengths, s, heads, page, causal, dtype):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operators, "launch", launched)
        h, shared = heads
        cache, table = paged_cache(lengths, shared, dtype, page)
        q = torch.randn(len(lengths), s, h, WIDTH).to(dtype)
        schedule, none = flashmla.get_mla_metadata()
        assert none is None
        o, lse = flashmla.flash_mla_with_kvcache(
            q, cache, table, vector(*lengths), LATENT, schedule, none, causal=causal
        )
    assert (o.shape, lse.shape) == ((len(lengths), s, h, LATENT), (len(lengths), h, s))
    close(o, lse, q, cache, table, lengths, WIDTH**-0.5, causal)


def test_a_schedule_is_made_once_and_serves_all_layers(by_reference):
    cache, table = paged_cache([70, 3])
    q, schedule = torch.randn(2, 1, 16, WIDTH).bfloat16(), flashmla.get_mla_metadata()[0]
    for _layer in range(3):
        flashmla.flash_mla_with_kvcache(q, cache, table, vector(70, 3), LATENT, schedule)
    assert [kind.name for kind in by_reference] == ["schedule", *["attention"] * 3]


def test_a_schedule_for_other_sizes_is_refused(by_reference):
    cache, table = paged_cache([70, 3])
    q, schedule = torch.randn(2, 1, 16, WIDTH).bfloat16(), flashmla.get_mla_metadata()[0]
    flashmla.flash_mla_with_kvcache(q, cache, table, vector(70, 3), LATENT, schedule)
    more = torch.randn(2, 2, 16, WIDTH).bfloat16()
    with pytest.raises(
        CallError, match="made for 2 sequences of 16 rows, and the call has 2 of 32"
    ):
        flashmla.flash_mla_with_kvcache(more, cache, table, vector(70, 3), LATENT, schedule)


def test_as_vllm_calls(by_reference):
    """A schedule of lengths per step, made in the first layer, which a capture therefore holds."""
    lengths = vector(70, 3)
    cache, table = paged_cache([70, 3])
    wide = torch.zeros(2, 9, dtype=torch.int32)
    wide[:, : table.shape[1]] = table
    schedule, _ = flashmla.get_mla_metadata(lengths, 16, 1, is_fp8_kvcache=False)
    assert by_reference == []
    q = torch.randn(2, 1, 16, WIDTH).bfloat16()
    o, lse = flashmla.flash_mla_with_kvcache(
        q=q, k_cache=cache.squeeze(2).unsqueeze(-2), block_table=wide[:, : table.shape[1]],
        cache_seqlens=lengths, head_dim_v=LATENT, tile_scheduler_metadata=schedule,
        softmax_scale=0.1, causal=True, is_fp8_kvcache=False,
    )  # fmt: skip
    assert [kind.name for kind in by_reference] == ["schedule", "attention"]
    close(o, lse, q, cache, table, [70, 3], 0.1, True)


def test_as_sglang_calls(by_reference):
    """One schedule over all steps, into which each step's is copied outside of the capture."""
    kept, splits = flashmla.get_mla_metadata(torch.ones(8, dtype=torch.int32), 16, 1)
    cache, table = paged_cache([70, 3])
    q, places = torch.randn(2, 16, WIDTH).bfloat16(), set()
    for lengths in (vector(70, 3), vector(60, 2)):
        step, counts = flashmla.get_mla_metadata(lengths.to(torch.int32), 16, 1)
        kept.copy_(step)
        splits[:3].copy_(counts)
        o, _ = flashmla.flash_mla_with_kvcache(
            q=q.view(2, -1, 16, WIDTH), k_cache=cache.view(-1, 64, 1, WIDTH), block_table=table,
            cache_seqlens=lengths, head_dim_v=LATENT, tile_scheduler_metadata=kept,
            num_splits=splits[:3], softmax_scale=0.1, causal=True,
        )  # fmt: skip
        assert o.view(-1, 16 * LATENT).shape == (2, 16 * LATENT)
        assert int(kept.tile_scheduler_metadata[0, 0]) == int(lengths.sum())
        places.add(kept.tile_scheduler_metadata.data_ptr())
    assert len(places) == 1


def test_a_server_that_imports_flashmla_from_elsewhere(monkeypatch):
    """SGLang has a package of its own, vLLM a copy with its names (docs/serving/servers.md)."""
    monkeypatch.setitem(sys.modules, "sgl_kernel.flash_mla", flashmla)
    assert importlib.import_module("sgl_kernel.flash_mla") is flashmla
    taken = (
        "flash_mla_with_kvcache",
        "get_mla_metadata",
        "flash_mla_sparse_fwd",
        "FlashMLASchedMeta",
    )
    copy = types.SimpleNamespace(**dict.fromkeys(taken))
    for name in flashmla.__all__:
        setattr(copy, name, getattr(flashmla, name))
    assert copy.get_mla_metadata is flashmla.get_mla_metadata
    assert None not in vars(copy).values()


def bad(**changed):
    """A call's arguments with some changed."""
    cache, table = paged_cache([70, 3])
    good = {
        "q": torch.randn(2, 1, 16, WIDTH).bfloat16(),
        "k_cache": cache,
        "block_table": table,
        "cache_seqlens": vector(70, 3),
        "head_dim_v": LATENT,
        "tile_scheduler_metadata": flashmla.get_mla_metadata()[0],
    }
    return {**good, **{name: change(good[name]) for name, change in changed.items()}}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"q": lambda q: q.float()}, "q must be bfloat16 or float16, and is float32"),
        ({"q": lambda q: q[..., :512]}, "q must be 576 wide, and is 512"),
        ({"q": lambda q: q[0]}, "q must have 4 axes, and has 3"),
        ({"q": lambda q: q.to("meta")}, "k_cache is on cpu, and q is on meta"),
        ({"q": lambda q: q.half()}, "k_cache is bfloat16, and q is float16"),
        ({"q": lambda q: q.transpose(2, 3).contiguous().transpose(2, 3)}, "q must be dense"),
        ({"k_cache": lambda k: k[:, :48]}, "page size 48 is neither one of 1, 2, 4, 8, 16, 32"),
        ({"k_cache": lambda k: k.repeat(1, 1, 3, 1)}, "16 query heads do not divide among 3"),
        ({"block_table": lambda t: t.long()}, "block_table must be int32, and is int64"),
        ({"block_table": lambda t: t[:1]}, "block_table is for 1 sequences, and q has 2"),
        ({"block_table": lambda t: None}, "needs block_table and cache_seqlens"),
        ({"cache_seqlens": lambda n: n[None]}, "cache_seqlens must have 1 axes, and has 2"),
        ({"head_dim_v": lambda _: 576}, "head_dim_v=576: 512 is what this decode has"),
    ],
)
def test_bad_input_gets_one_sentence(by_reference, changed, said):
    with pytest.raises(CallError, match=said.replace("(", r"\(")) as caught:
        flashmla.flash_mla_with_kvcache(**bad(**changed))
    assert "\n" not in str(caught.value)
    assert by_reference == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"cache_seqlens": lambda _: vector(500, 3)}, "has 500, and block_table has pages for 192"),
        ({"cache_seqlens": lambda _: vector(-1, 3)}, "has -1, and a length is at least 0"),
        ({"block_table": lambda t: t + 7}, r"block_table names page \d+ of 3"),
    ],
)
def test_in_debug_mode_lengths_and_pages_are_looked_at(by_reference, monkeypatch, changed, said):
    monkeypatch.setenv("MLA_VAR3_DEBUG", "1")
    with pytest.raises(CallError, match=said):
        flashmla.flash_mla_with_kvcache(**bad(**changed))


def test_queries_and_outputs_need_not_be_in_order(by_reference):
    """Heads of two of the cache: each half of q is rows apart."""
    cache, table = paged_cache([5], 2)
    q = torch.randn(1, 3, 4, 2 * WIDTH).bfloat16()[..., :WIDTH]
    o, lse = flashmla.flash_mla_with_kvcache(
        q, cache, table, vector(5), LATENT, flashmla.get_mla_metadata()[0]
    )
    close(o, lse, q, cache, table, [5], WIDTH**-0.5, False)


def test_the_dense_call_as_the_page_on_serving_writes_it(by_reference):
    page = (repo_root() / "docs/serving/call.md").read_text(encoding="utf-8")
    [code] = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)
              if "block_table,     #" in block]  # fmt: skip
    cache, table = paged_cache([70, 3])
    given = {"q": torch.randn(2, 1, 16, WIDTH).bfloat16(), "cache": cache, "block_table": table,
             "cache_seqlens": vector(70, 3), "flashmla": flashmla}  # fmt: skip
    exec(code, given)
    out, lse = given["out"], given["lse"]
    assert (out.shape, lse.shape) == ((2, 1, 16, LATENT), (2, 16, 1))
    assert (out.dtype, lse.dtype) == (torch.bfloat16, torch.float32)
    close(out, lse, given["q"], cache, table, [70, 3], WIDTH**-0.5, True)


def test_the_call_is_held_to_torch_as_the_page_writes_it(by_reference, monkeypatch, capsys):
    page = (repo_root() / "docs/serving/call.md").read_text(encoding="utf-8")
    [code] = [block for block in re.findall(r"``` \{ .python \}\n(.*?)```", page, re.DOTALL)
              if "import paged_mla" in block]  # fmt: skip
    monkeypatch.syspath_prepend(repo_root() / "examples/first")
    monkeypatch.setattr(torch, "set_default_device", lambda device: None)
    exec(code, {})
    found = re.findall(r"tensor\(([\d.e-]+)\)", capsys.readouterr().out)
    assert [float(one) < most for one, most in zip(found, (6e-3, 3e-3), strict=True)] == [True] * 2


def test_one_buffer_serves_both_calls_as_the_page_writes_it(by_reference):
    page_text = (repo_root() / "docs/serving/cache.md").read_text(encoding="utf-8")
    [code] = [block for block in re.findall(r"```python\n(.*?)```", page_text, re.DOTALL)
              if "ckv, kpe = " in block]  # fmt: skip
    made, wrap = code.split("scale = ", 1)
    lengths, page = [70, 3], 64
    filled, table = paged_cache(lengths)
    given = {
        "torch": torch, "q": torch.randn(2, 1, 16, WIDTH).bfloat16(), "pages": len(filled),
        "page": page, "heads": 16, "block_table": table, "cache_seqlens": vector(*lengths),
        "flashmla": flashmla, "flashinfer": flashinfer, "qo_indptr": torch.arange(3),
        "kv_indptr": torch.tensor([0, 2, 3]),
        "kv_indices": torch.cat([table[0, :2], table[1, :1]]),
    }  # fmt: skip
    exec(made, given)
    given["ckv"].copy_(filled[:, :, 0, :LATENT])
    given["kpe"].copy_(filled[:, :, 0, LATENT:])
    exec("scale = " + wrap, given)
    close(given["out"], given["lse"], given["q"], filled, table, lengths, 192**-0.5, True)
    assert torch.equal(given["same"].view_as(given["out"]), given["out"])
    swapped = torch.cat([given["kpe"], given["ckv"]], -1)  # rotary part first, as the page says
    rows = given["rows"]
    again = given["wrapper"].run(rows[..., :LATENT], rows[..., LATENT:],
                                 swapped[..., 64:], swapped[..., :64])  # fmt: skip
    assert torch.equal(again, given["same"])


def test_the_lines_for_servers_name_what_the_page_says(monkeypatch):
    page = (repo_root() / "docs/serving/servers.md").read_text(encoding="utf-8")
    for name in ("flash_mla", "sgl_kernel.flash_mla"):
        line = f'sys.modules["{name}"] = mla_var3.serving.flashmla'
        assert line in page
        monkeypatch.setitem(sys.modules, name, None)
        exec(line, {"sys": sys, "mla_var3": importlib.import_module("mla_var3")})
        assert importlib.import_module(name) is flashmla


def test_the_comparison_as_the_page_writes_it(by_reference, monkeypatch, capsys):
    """FlashMLA is a stand-in here, which is ours."""
    page = (repo_root() / "docs/serving/servers.md").read_text(encoding="utf-8")
    [code] = [block for block in re.findall(r"``` \{ \.python \}\n(.*?)```", page, re.DOTALL)
              if "import flash_mla " in block]  # fmt: skip
    monkeypatch.setitem(sys.modules, "flash_mla", flashmla)
    cache, table = paged_cache([70, 3])
    exec(code, {"q": torch.randn(2, 1, 16, WIDTH).bfloat16(), "cache": cache,
                "block_table": table, "cache_seqlens": vector(70, 3)})  # fmt: skip
    assert capsys.readouterr().out == "tensor(0.) tensor(0.)\n"
