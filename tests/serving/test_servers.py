"""Entry points of vLLM and SGLang, on stand-ins of the modules that they replace names in."""

from __future__ import annotations

import logging
import sys
import types

import pytest
import torch

from mla_var3.app import serving_wheel
from mla_var3.errors import CallError
from mla_var3.paths import repo_root
from mla_var3.serving import flashmla, kinds, operators, servers

from .stand_in import LATENT, WIDTH, paged_cache, vector
from .test_flashmla import close


def theirs(*given, **named):
    """FlashMLA's function, which does nothing here."""
    return "theirs", given, named


@pytest.fixture
def server(monkeypatch):
    """A server's module of FlashMLA's functions, and a back end that has taken them from it."""

    def made(name, backend):
        for one in (name, backend):
            module = types.ModuleType(one)
            module.get_mla_metadata = module.flash_mla_with_kvcache = theirs
            monkeypatch.setitem(sys.modules, one, module)
        monkeypatch.setenv(servers.ASKED, "1")
        return sys.modules[backend]

    return made


@pytest.fixture
def of_vllm(server):
    return server(servers.VLLM, "vllm.v1.attention.backends.mla.flashmla")


@pytest.fixture
def of_sglang(server, monkeypatch):
    """SGLang's back end, with the hooks that were registered."""
    backend = server(servers.SGLANG, "sglang.srt.layers.attention.flashmla_backend")
    module = types.ModuleType("sglang.srt.plugins.hook_registry")
    backend.hooks = {}
    module.HookRegistry = types.SimpleNamespace(
        register=lambda target, hook, kind: backend.hooks.update({target: (hook, kind)})
    )
    module.HookType = types.SimpleNamespace(AFTER="after")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return backend


def problem(lengths=(70, 3)):
    """Queries, cache and table."""
    cache, table = paged_cache(list(lengths))
    return torch.randn(len(lengths), 1, 16, WIDTH).bfloat16(), cache, table


def test_what_vllm_asks_of_its_build_stays(of_vllm, monkeypatch):
    """Without FlashMLA's extension all its functions are one that raises, and a check says so."""
    ops = sys.modules[servers.VLLM]
    reason = False, "vllm._flashmla_C is not available"
    monkeypatch.setattr(ops, "is_flashmla_dense_supported", lambda: reason, raising=False)
    monkeypatch.setattr(ops, "flash_mla_sparse_fwd", theirs, raising=False)
    servers.vllm()
    assert ops.is_flashmla_dense_supported() == reason
    assert ops.flash_mla_sparse_fwd is theirs
    assert theirs not in (ops.get_mla_metadata, ops.flash_mla_with_kvcache)


def test_nothing_is_replaced_unless_asked(of_vllm, of_sglang, monkeypatch):
    monkeypatch.delenv(servers.ASKED)
    servers.vllm()
    servers.sglang()
    assert of_vllm.flash_mla_with_kvcache is theirs is of_sglang.flash_mla_with_kvcache


def test_a_step_of_vllm(of_vllm, by_reference, caplog):
    with caplog.at_level(logging.WARNING):
        servers.vllm()
        servers.vllm()
        q, cache, table = problem()
        schedule, _ = of_vllm.get_mla_metadata(vector(70, 3), 16, 1, is_fp8_kvcache=False)
        for _layer in range(2):
            o, lse = of_vllm.flash_mla_with_kvcache(
                q=q, k_cache=cache, block_table=table, cache_seqlens=vector(70, 3),
                head_dim_v=LATENT, tile_scheduler_metadata=schedule, softmax_scale=0.1,
                causal=True, is_fp8_kvcache=False,
            )  # fmt: skip
    assert [kind.name for kind in by_reference] == ["schedule", "attention", "attention"]
    close(o, lse, q, cache, table, [70, 3], 0.1, True)
    assert [line.split(":")[0] for line in caplog.messages] == [
        "mla_var3 takes the place of FlashMLA's dense decode in vllm.v1.attention.ops.flashmla",
        "mla_var3 decodes",
    ]


def test_what_is_not_dense_decode_stays_theirs(of_vllm):
    servers.vllm()
    q = torch.zeros(1, 1, 16, WIDTH).bfloat16()
    assert of_vllm.get_mla_metadata()[0] == "theirs"
    assert of_vllm.get_mla_metadata(vector(3), 16, 1, is_fp8_kvcache=True)[0] == "theirs"
    for named in (
        {"q": q, "indices": vector(1), "out": q},
        {"q": q, "is_fp8_kvcache": True},
        {"q": q.to(torch.float8_e4m3fn), "descale_q": 1},
    ):
        assert of_vllm.flash_mla_with_kvcache(**named) == ("theirs", (), named)


def test_what_ours_does_not_take_raises(of_vllm):
    servers.vllm()
    q, cache, table = problem()
    with pytest.raises(CallError, match="page size 48"):
        of_vllm.flash_mla_with_kvcache(
            q=q, k_cache=cache[:, :48], block_table=table, cache_seqlens=vector(70, 3),
            head_dim_v=LATENT, tile_scheduler_metadata=flashmla.get_mla_metadata()[0],
        )  # fmt: skip


def test_a_captured_step_of_sglang(of_sglang, by_reference, monkeypatch):
    """Its buffers, the table cut to the lengths of the capture, and longer ones at the replay."""
    servers.sglang()
    q, cache, table = problem((200, 3))
    backend = types.SimpleNamespace(cuda_graph_mla_metadata=torch.empty(132, 8, dtype=torch.int32))
    hook, kind = of_sglang.hooks[servers.SGLANG_BUFFER]
    assert (hook(None, backend, 2, 2), kind) == (None, "after")
    monkeypatch.setattr(operators, "sms_of", lambda _: 132)
    kept, seen = backend.cuda_graph_mla_metadata, set()
    narrow = table[:, :1]
    for lengths in (vector(1, 1), vector(200, 3)):
        step, splits = of_sglang.get_mla_metadata(lengths, 16, 1, is_fp8_kvcache=False)
        assert splits.shape == (3,)
        view = kept[: step.shape[0]]
        view.copy_(step)
        seen.add((view.data_ptr(), view.shape))
        o, lse = of_sglang.flash_mla_with_kvcache(
            q=q, k_cache=cache, block_table=narrow, cache_seqlens=lengths, head_dim_v=LATENT,
            tile_scheduler_metadata=view, num_splits=splits, softmax_scale=0.1, causal=True,
        )  # fmt: skip
        close(o, lse, q, cache, table, lengths.tolist(), 0.1, True)
    assert len(seen) == 1


@pytest.mark.parametrize("sms", [78, 114, 132])
def test_the_buffer_has_room_for_every_schedule(sms):
    most = max(kinds.schedule_rows(rows, sms) for rows in range(1, sms * kinds.ROWS + 1))
    assert most <= servers.PER_SM * sms


def test_the_page_names_what_is_replaced_and_said(of_vllm, caplog):
    page = (repo_root() / "docs/serving/servers.md").read_text(encoding="utf-8")
    servers.vllm()
    [said] = caplog.messages
    assert f"\n{said}\n" in page
    for name in (servers.ASKED, servers.VLLM, servers.SGLANG, *serving_wheel.PLUGINS):
        assert f"`{name}`" in page or f"{name}=1" in page
