"""The operators below the calls: what torch asks of one, and what they take."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mla_var3.errors import ToolchainError
from mla_var3.serving import flashmla, kinds, launching, operators

from .stand_in import LATENT, WIDTH, paged_cache, vector


def arguments(lengths=(70, 3), s=1, h=16):
    """Those of ``paged_decode``."""
    cache, table = paged_cache(list(lengths))
    cache, b = cache.squeeze(2).nan_to_num(0.0), len(lengths)
    q = torch.randn(b, s, h, WIDTH).bfloat16()
    cuts = operators.even_schedule(vector(*lengths), s * h)
    return (
        q[..., :LATENT], q[..., LATENT:], cache[..., :LATENT], cache[..., LATENT:],
        table.clamp(max=len(cache) - 1), vector(*lengths), cuts,
        torch.zeros(b, s, h, LATENT, dtype=q.dtype), torch.zeros(b, h, s),
        0.1, True, False, math.inf,
    )  # fmt: skip


def rows_of(few, n=2, h=16):
    """Those of ``list_prefill``, with lengths and a sink or without."""
    q, rows = torch.randn(n, 1, h, WIDTH).bfloat16(), torch.randn(1, 50, WIDTH).bfloat16()
    lists = torch.randint(0, 50, (n, 30), dtype=torch.int32)
    return (
        q[..., :LATENT], q[..., LATENT:], rows.view(torch.uint8), lists,
        vector(30, 3) if few else None, torch.randn(h) if few else None,
        torch.zeros(n, 1, h, LATENT, dtype=q.dtype), torch.zeros(n, h), torch.zeros(n, h), 0.1,
    )  # fmt: skip


TESTS = ("test_schema", "test_faketensor")


def test_torch_finds_no_fault_with_them(by_reference):
    torch.library.opcheck(operators.even_schedule, (vector(70, 3), 16), test_utils=TESTS)
    torch.library.opcheck(operators.paged_decode, arguments(), test_utils=TESTS)
    for few in (False, True):
        torch.library.opcheck(operators.list_prefill, rows_of(few), test_utils=TESTS)


def test_a_decoding_step_is_one_graph(by_reference):
    cache, table = paged_cache([70, 3])
    q, lengths = torch.randn(2, 1, 16, WIDTH).bfloat16(), vector(70, 3)

    def step(q, lengths):
        schedule, _ = flashmla.get_mla_metadata()
        return flashmla.flash_mla_with_kvcache(
            q, cache, table, lengths, LATENT, schedule, causal=True
        )

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for found, expected in zip(compiled(q, lengths), step(q, lengths), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize(("rows", "workers"), [(16, 4), (64, 4), (65, 2), (128, 2), (200, 1)])
def test_parts_follow_from_rows_and_sms(by_reference, rows, workers):
    cuts = operators.even_schedule(vector(70, 3), rows)
    assert cuts.shape == (workers * (1 + 2 * kinds.tiles_of(rows)), kinds.COLUMNS)
    assert cuts[:workers].all()
    assert not cuts[workers:].any()  # nothing has been left yet
    assert launching.sms_of(cuts.device) == 4


@pytest.mark.slow
@pytest.mark.parametrize(("causal", "lengths"), [(True, (70, 3)), (False, (70, 0))])
def test_queries_of_more_tiles_than_sms_are_taken_some_at_a_time(monkeypatch, causal, lengths):
    """Blocks of a launch wait for each other, so that all have to run at once."""
    torch.manual_seed(0)
    given = list(arguments(lengths, s=6, h=64))
    given[10] = causal
    launched = []
    attend = operators.launch
    monkeypatch.setattr(
        operators,
        "launch",
        lambda kind, *x, **y: (launched.append(kind.name), attend(kind, *x, **y)),
    )
    operators.paged_decode(*given)
    assert launched == ["schedule", "attention"] * 2, "four tiles of rows, then two"
    some = [given[at].clone() for at in (7, 8)]
    monkeypatch.setattr(operators, "sms_of", lambda _: 6)
    given[6] = operators.even_schedule(given[5], 6 * 64)
    operators.paged_decode(*given)
    assert launched[4:] == ["schedule", "attention"]
    for one, whole in zip(some, (given[7], given[8]), strict=True):
        assert torch.allclose(one.float(), whole.float(), atol=2e-2)
        assert torch.equal(one.isinf(), whole.isinf())


def test_the_workspace_is_what_is_stated(by_reference, monkeypatch):
    seen = []
    monkeypatch.setattr(
        operators, "launch", lambda kind, *values, written: seen.append((kind, values))
    )
    operators.paged_decode(*arguments(s=2, h=80))
    (values,) = (values for kind, values in seen if kind.name != "schedule")
    assert values[7].nbytes == operators.workspace_bytes(160, torch.device("cpu"))


def test_the_stated_memory_of_a_call_is_what_it_takes(monkeypatch):
    monkeypatch.setattr(operators, "sms_of", lambda device: 132)
    took = {
        rows: operators.workspace_bytes(rows, torch.device("cpu"))
        for rows in range(1, 132 * 64 + 1)
    }
    told = (Path(__file__).parents[2] / "docs/serving/step.md").read_text(encoding="utf-8")
    section = told.partition("\n## How much memory a call takes")[2].partition("\n## ")[0]
    few, most, pairs = {took[rows] for rows in range(1, 129)}, max(took.values()), took[256]
    assert re.findall(r"\| ([\d,]+) bytes \|", section) == [
        f"{size:,}" for size in (*few, most, pairs)
    ]
    assert {rows for rows, size in took.items() if size == most} == set(range(129, 193))
    assert f"**Set aside {-(-most // 1_000_000)} MB" in section
    for rows, size in took.items():  # As the formula says.
        tiles = -(-rows // kinds.ROWS)
        rounded = tiles if tiles == 1 else tiles + tiles % 2
        assert size == 4 * max(132 // tiles, 1) * rounded * 66_048
    assert f"{8 * 256 * 128 * (512 + 1) * 4 / 1e6:.1f} MB" in section


def test_the_first_call_does_not_import_a_compiler():
    """torch's takes seconds, which a server waits for at its first token."""
    code = (
        "import sys, torch\n"
        "from mla_var3.serving import operators\n"
        "operators.launch = lambda *_, written: None\n"
        "operators.even_schedule(torch.ones(2, dtype=torch.int32), 16)\n"
        "assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_another_gpu_gets_a_sentence(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (10, 0))
    with pytest.raises(ToolchainError, match="cuda:0 is sm_100, and serving kernels are built for"):
        launching.kernel_of(kinds.SCHEDULE, torch.device("cuda:0"))


@pytest.mark.parametrize(
    ("rows", "page", "key"),
    [
        (3, 64, "attention-bfloat16-columns16-share1-box64"),
        (17, 8, "attention-bfloat16-columns32-share1-box8"),
        (33, 64, "attention-bfloat16-share1-box64"),
        (128, 64, "attention-bfloat16-share2-box32"),
        (128, 128, "attention-bfloat16-share2-box32"),
        (64, 32, "attention-bfloat16-share1-box32"),
        (128, 16, "attention-bfloat16-share2-box16"),
    ],
)
def test_kinds_of_kernels(rows, page, key):
    kind = kinds.attention("bfloat16", rows, page, False)
    assert kind.key == key
    assert kind in kinds.every()


def test_a_page_that_is_all_of_a_sequence_may_be_of_any_size():
    assert kinds.attention("float16", 16, 1000, True).box == 64
