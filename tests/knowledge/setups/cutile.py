"""Setups of the cuTile snippets, which the interpreter runs, and of plain Python ones."""

from __future__ import annotations

from tests.knowledge.setups import Setup

TILE = """
import cuda.tile as ct
import torch
from mla_var3.interpreter import launch

torch.manual_seed(0)
zero = ct.PaddingMode.ZERO
TILE_M, TILE_N, K, P, D = 16, 16, 32, 16, 32


def run(kernel, *args, grid=(1,)):
    report = launch(grid, kernel, args)
    assert not report.errors, report.errors[0]


def close(a, b):
    torch.testing.assert_close(a.float(), b.float(), rtol=2e-2, atol=2e-2)

"""
#: One kernel that loads from a cache z [1, 40, K] in three tiles, the last of them partial.
CACHE = (
    TILE
    + """
z = torch.randn(1, 40, K)
"""
)
COMPILES = (
    TILE
    + """
@ct.kernel
def kernel(x, out, M: ct.Constant[int], N: ct.Constant[int]):
    a = ct.load(x, (0, 0), (M, 16))
    b = ct.load(x, (0, 0), (16, N))
    ct.store(out, (0, 0), ct.mma(a, b, ct.zeros((M, N), ct.float32)))


x = torch.zeros(64, 64, dtype=torch.bfloat16, device="meta")
out = torch.zeros(64, 64, device="meta")
args = (x, out, 16, 16)
"""
)
SETUPS: dict[str, list[Setup]] = {
    "a1-equal-block-split": [
        Setup(
            TILE
            + """
@ct.kernel
def kernel(out):
    # snippet


out = torch.zeros(6, dtype=torch.int32)
run(kernel, out, grid=(6,))
assert out.tolist() == [1, 1, 1, 0, 0, 0]
""",
            ("ct.store(out, ct.bid(0), ct.full((1,), 1, ct.int32))",),
        )
    ],
    "a10-undetermined-padding": [
        Setup(
            CACHE
            + """
@ct.kernel
def kernel(v, scores, out, weights, counts, per_split: int):
    batch, j, split, limit = 0, 2, ct.bid(0), 40
    col = j * TILE_N + ct.arange(TILE_N, dtype=ct.int32)
    score = ct.load(scores, j, (TILE_N,))
    tiles = ct.num_tiles(v, axis=1, shape=(1, TILE_N, D))
    count = 0
    # snippet
    ct.store(out, (split, 0), value.reshape((TILE_N, D)))
    ct.store(weights, split, score)
    ct.store(counts, split, ct.full((1,), count, ct.int32))


out, weights = torch.ones(3 * TILE_N, D), torch.ones(3 * TILE_N)
counts = torch.ones(3, dtype=torch.int32)
run(kernel, z, torch.zeros(40), out, weights, counts, 2, grid=(3,))
for tile in out.split(TILE_N):
    assert torch.equal(tile[:8], z[0, 32:]) and not tile[8:].any()
assert weights.isneginf().tolist() == ([False] * 8 + [True] * 8) * 3
assert counts.tolist() == [2, 1, 0]
""",
            ("count = count + 1",),
        )
    ],
    "a11-no-l2-flush": [
        Setup(
            """
import torch
import triton

x = torch.ones(1 << 20, device="cuda")
obj = lambda: x.add_(1)
obj()
# snippet
assert median_ms > 0
""",
            needs_gpu=True,
        )
    ],
    "a12-wide-operands": [
        Setup(
            TILE
            + """
@ct.kernel
def kernel(w, v, out):
    weight = ct.load(w, (0, 0), (TILE_M, TILE_N))
    value = ct.load(v, (0, 0), (TILE_N, D))
    acc = ct.zeros((TILE_M, D), ct.float32)
    # snippet
    ct.store(out, (0, 0), acc)


w, v = torch.rand(TILE_M, TILE_N), torch.randn(TILE_N, D).half()
out = torch.zeros(TILE_M, D)
run(kernel, w, v, out)
close(out, w @ v.float())
"""
        )
    ],
    "a2-single-row-combine": [
        Setup(
            TILE
            + """
TILE_B, TILE_S, TILE_K = 2, 8, 16


@ct.kernel
def kernel(o_latent, wv, out):
    tile_b, tile_s, head = 0, ct.bid(0), ct.bid(1)
    acc = ct.zeros((TILE_B * TILE_S, D), ct.float32)
    for c in range(K // TILE_K):
        # snippet
    ct.store(out, (tile_b, head, tile_s, 0), acc.reshape((TILE_B, 1, TILE_S, D)))


o_latent, wv = torch.randn(2, 3, 12, K).half(), torch.randn(3, K, D).half()
out = torch.zeros(2, 3, 12, D)
run(kernel, o_latent, wv, out, grid=(2, 3))
close(out, torch.einsum("bhsk,hkd->bhsd", o_latent.float(), wv.float()))
"""
        )
    ],
    "a3-underfilled-concurrency": [
        Setup(
            """
from mla_var3.languages.cutile.facts import CutileFacts

facts_a = facts_b = CutileFacts(
    kernel="k", arch="sm_90", registers=255, threads_per_block=256, shared_bytes=100_000
)
# snippet
assert resident == (1, 1) and not may_fit
"""
        )
    ],
    "a4-register-ceiling-persistent": [
        Setup(
            TILE
            + """
@ct.kernel
def kernel(out, items: int, tiles: int, heads: int):
    # snippet


out = torch.zeros(2, 3, 4, dtype=torch.int32)
run(kernel, out, 24, 4, 3, grid=(5,))
assert out.flatten().tolist() == list(range(24))
""",
            ("ct.store(out, (batch, head, tile), ct.full((1, 1, 1), item, ct.int32))",),
        )
    ],
    "a5-blind-large-tile-port": [
        Setup(
            COMPILES
            + """
def args(m, n):
    return x, out, m, n


def with_tile(m, n):
    return kernel


# snippet
assert facts.ok and facts.mma_path != "none"
""",
            less=(
                ('("sm_90", "sm_100", "sm_120")', '("sm_90",)'),
                ("((64, 64), (64, 128), (128, 64), (128, 128))", "((64, 64),)"),
            ),
        )
    ],
    "a6-uniform-causal-masking": [
        Setup(
            TILE
            + """
QUERIES = 4


@ct.kernel
def kernel(out, keys: int):
    row = ct.arange(4, dtype=ct.int32)[:, None]
    # snippet
        ct.store(out, (0, j), score)


out = torch.ones(4, 32)
run(kernel, out, 32)
assert torch.equal(out.isneginf(), torch.ones(4, 32).tril(28) == 0)
""",
            (
                "col = j * TILE_N + ct.arange(TILE_N, dtype=ct.int32)[None, :]\n"
                "score = ct.zeros((4, TILE_N), ct.float32)",
            ),
        ),
        Setup(
            TILE
            + """
QUERIES = 16


@ct.kernel
def kernel(out, keys: int):
    first, last = 0, 15
    row = ct.arange(16, dtype=ct.int32)[:, None]
    # snippet
            ct.store(out, (0, j), score)


out = torch.ones(16, 64)
run(kernel, out, 64)
assert torch.equal(out.isneginf(), torch.ones(16, 64).tril(48) == 0)
""",
            (
                "col = j * TILE_N + ct.arange(TILE_N, dtype=ct.int32)[None, :]\n"
                "score = ct.zeros((16, TILE_N), ct.float32)",
            ),
        ),
    ],
    "a7-sub-16-mma-dimension": [Setup("h, s, b = 8, 2, 4\n# snippet\nassert rows == 8\n")],
    "a8-blind-dataflow-flip": [
        Setup(
            """
from mla_var3.workloads.mla import flash_attention_cost, flash_mla_cost

b, h, s, t, tflops, gbps = 32, 128, 1, 4096, 990, 4800
# snippet
assert latent.bytes < plain.bytes and latent.flops > plain.flops
"""
        )
    ],
    "a9-default-warps-large-accumulator": [
        Setup(
            """
from types import SimpleNamespace

# snippet
test_no_spills(SimpleNamespace(spill_loads=0, spill_stores=0))
try:
    test_no_spills(SimpleNamespace(spill_loads=1, spill_stores=0))
except AssertionError:
    pass
else:
    raise ValueError("a spill was let through")
"""
        )
    ],
    "cutile-branch-in-loop": [
        Setup(
            TILE
            + """
@ct.kernel
def kernel(lengths, out):
    seq = ct.bid(0)
    # snippet


out = torch.zeros(2, 4, dtype=torch.int32)
run(kernel, torch.tensor([5, 40], dtype=torch.int32), out, grid=(2,))
assert out.tolist() == [[1, 0, 0, 0], [1, 1, 1, 0]]
""",
            ("ct.store(out, (seq, j), ct.full((1, 1), 1, ct.int32))",),
        ),
        Setup(
            CACHE
            + """
@ct.kernel
def kernel(z, needed, out, count: int):
    seq = 0
    # snippet
        ct.store(out, (i, 0), latent.reshape((TILE_N, K)))


out = torch.zeros(32, K)
run(kernel, z, torch.tensor([[2, 0]], dtype=torch.int32), out, 2)
assert torch.equal(out[:8], z[0, 32:]) and torch.equal(out[16:], z[0, :16])
"""
        ),
    ],
    "cutile-replace-hints-per-call": [
        Setup(
            TILE
            + """
import functools

# snippet


@ct.kernel
def kernel(out):
    ct.store(out, 0, ct.full((1,), 1, ct.int32))


assert with_hints(kernel, ()) is kernel
wide = with_hints(kernel, (("num_worker_warps", 8),))
assert wide is not kernel and wide is with_hints(kernel, (("num_worker_warps", 8),))
"""
        )
    ],
    "cutile-undetermined-padding": [
        Setup(
            CACHE
            + """
PER_SPLIT = 2


@ct.kernel
def kernel(v, z, out, counts):
    batch, j, split, count = 0, 2, ct.bid(0), 0
    # snippet
    ct.store(out, (split, 0), value.reshape((TILE_N, D)))
    ct.store(counts, split, ct.full((1,), count, ct.int32))


out, counts = torch.ones(3 * TILE_N, D), torch.ones(3, dtype=torch.int32)
run(kernel, z, z, out, counts, grid=(3,))
for tile in out.split(TILE_N):
    assert torch.equal(tile[:8], z[0, 32:]) and not tile[8:].any()
assert counts.tolist() == [2, 1, 0]
""",
            ("count = count + 1",),
        )
    ],
    "cutile-chunked-operand": [
        Setup(
            CACHE
            + """
CHUNKS, C = 4, K // 4


@ct.kernel
def kernel(q, z, out):
    batch, j = 0, ct.bid(0)
    query = ()
    for c in ct.static_iter(range(CHUNKS)):
        query = (*query, ct.load(q, (0, c), (TILE_M, C)))
    score = ct.zeros((TILE_M, TILE_N), ct.float32)
    # snippet
    ct.store(out, (j, 0, 0), score.reshape((1, TILE_M, TILE_N)))


q, out = torch.randn(TILE_M, K), torch.zeros(3, TILE_M, TILE_N)
run(kernel, q, z, out, grid=(3,))
close(out.transpose(0, 1).flatten(1)[:, :40], q @ z[0].T)
assert not out[2, :, 8:].any()
"""
        )
    ],
    "cutile-fast-math-flags": [
        Setup(
            TILE
            + """
@ct.kernel
def kernel(s, v, weights, result):
    score = ct.load(s, (0, 0), (TILE_M, TILE_N))
    new_max = ct.max(score, axis=1, keepdims=True)
    acc = ct.load(v, (0, 0), (TILE_M, D))
    row_sum = ct.full((TILE_M, 1), 2.0, ct.float32)
    # snippet
    ct.store(weights, (0, 0), weight)
    ct.store(result, (0, 0), out)


s, v = torch.randn(TILE_M, TILE_N), torch.randn(TILE_M, D)
weights, result = torch.zeros_like(s), torch.zeros_like(v)
run(kernel, s, v, weights, result)
close(weights, (s - s.amax(1, keepdim=True)).exp2())
close(result, v / 2)
"""
        )
    ],
    "cutile-latency-hints": [
        Setup(
            CACHE
            + """
for LATENCY in (0, 10):
    @ct.kernel
    def kernel(z, out):
        batch, j = 0, ct.bid(0)
        # snippet
        ct.store(out, (j, 0), latent.reshape((TILE_N, K)))


    out = torch.zeros(40, K)
    run(kernel, z, out, grid=(3,))
    assert torch.equal(out, z[0])
"""
        )
    ],
    "cutile-occupancy-hint": [
        Setup(
            COMPILES + "# snippet\nassert of_facts(facts).blocks_per_sm > 0\n",
            less=(("(None, 2, 4)", "(2,)"),),
        )
    ],
    "cutile-operand-order": [
        Setup(
            CACHE
            + """
@ct.kernel
def kernel(q, z, out):
    batch = 0
    query = ct.load(q, (0, 0), (TILE_M, K))
    acc = ct.zeros((TILE_M, K), ct.float32)
    for j in range(3):
        # snippet
    ct.store(out, (0, 0), acc)


q, z, out = torch.randn(TILE_M, K).half(), z.half(), torch.zeros(TILE_M, K)
run(kernel, q, z, out)
close(out, (q @ z[0].T).float() @ z[0].float())
""",
            ("weight = score",),
        ),
        Setup(
            CACHE
            + """
@ct.kernel
def kernel(z2d, out):
    j = ct.bid(0)
    # snippet
    ct.store(out, (0, j), zt)


out = torch.zeros(K, 32)
run(kernel, z[0, :32].contiguous(), out, grid=(2,))
assert torch.equal(out, z[0, :32].T)
"""
        ),
    ],
    "cutile-static-loop-bounds": [
        Setup(
            TILE
            + """
# snippet


parts, old, new = torch.arange(3.0), torch.arange(2.0), torch.arange(4.0)
out = torch.zeros(1)
run(combine, parts, old, new, out, 3, 2, 4)
assert out.item() == 3 + 1 + 6
""",
            ("total = total + ct.load(parts, i, (1,))", "total = total + ct.load(lses, i, (1,))"),
        )
    ],
    "cutile-tma-conditions": [
        Setup(
            CACHE
            + """
PAGE = TILE_N


@ct.kernel
def kernel(z, table, cache, out, limit: int):
    batch, seq, j = 0, 0, 1
    col = j * TILE_N + ct.arange(TILE_N, dtype=ct.int32)[None, :]
    score = ct.zeros((TILE_M, TILE_N), ct.float32)
    # snippet
    ct.store(out, (0, 0), latent.reshape((PAGE, K)))


out = torch.zeros(PAGE, K)
cache = torch.randn(4, PAGE, K)
run(kernel, z, torch.tensor([[1, 3]], dtype=torch.int32), cache, out, 20)
assert torch.equal(out, cache[3])
"""
        )
    ],
    "cutile-worker-warps-hint": [
        Setup(
            TILE
            + """
# snippet


for kernel in (latent, wide, portable):
    out = torch.zeros(1, dtype=torch.int32)
    run(kernel, out)
    assert out.item() == 1
""",
            ("out", "ct.store(out, 0, ct.full((1,), 1, ct.int32))") * 2,
        )
    ],
    "o1-proportional-block-split": [
        Setup(
            """
# snippet


assert [share_blocks(132, *cost) for cost in ((3.0, 1.0), (0, 1.0), (1.0, 0))] == [99, 0, 132]
assert path_cost(10.0, 4.0, 3.0) == 10.0 and path_cost(1.0, 4.0, 3.0) == 6.0
"""
        ),
        Setup(
            TILE
            + """
# snippet


out = torch.zeros(12, dtype=torch.int32)
run(two_paths, out, 7, 5, 2, grid=(5,))
assert out.tolist() == [1] * 7 + [2] * 5
""",
            (
                "out, latent_items, other_items",
                "ct.store(out, item, ct.full((1,), 1, ct.int32))",
                "ct.store(out, latent_items + item, ct.full((1,), 2, ct.int32))",
            ),
        ),
    ],
    "o10-adaptive-autotuning": [
        Setup(
            """
import itertools

from mla_var3.kernel.cutile.mla.flash_mla.flash_mla_v2.flash_mla_v2 import Tiling

# snippet


assert len(set(_autotune_configs(None)["attention"])) == 4 * 3 * 2 * 2
"""
        )
    ],
    "o12-worker-warps-by-spills": [
        Setup(COMPILES + "# snippet\nassert facts.ok\n", less=(("(None, 8)", "(8,)"),))
    ],
    "o13-static-pruning": [
        Setup(
            """
from mla_var3.languages.cutile.facts import CutileFacts

# snippet


facts = CutileFacts(
    kernel="k", arch="sm_90", registers=168, mma_path="HGMMA", threads_per_block=384,
    shared_bytes=1024,
)
assert keep(facts, "HGMMA") is None
assert keep(facts.model_copy(update={"spill_loads": 3}), "HGMMA") == "3 spill instructions"
assert keep(facts, "UTCHMMA") == "HGMMA where another tiling gets UTCHMMA"
large = facts.model_copy(update={"shared_bytes": 300_000})
assert keep(large, "HGMMA") == "300000 bytes of shared memory do not fit"
"""
        )
    ],
    "o14-operand-swap": [
        Setup(
            TILE
            + """
@ct.kernel
def kernel(q, z, result, keys: int):
    tile_r = ct.bid(0)
    # snippet
    ct.store(result, (tile_r, 0), out)


q, z, result = torch.randn(32, K).half() / 4, torch.randn(48, K).half(), torch.zeros(32, K)
run(kernel, q, z, result, 48, grid=(2,))
score = q.float() @ z.float().T
close(result, (score - score.amax(1, keepdim=True)).exp2() @ z.float())
"""
        )
    ],
    "o15-shared-prefix-decompression": [
        Setup(
            TILE
            + """
TILE_B, TILE_S = 2, 8
ROWS = TILE_B * TILE_S


@ct.kernel
def kernel(q, key, rows, keys):
    group, head, tile_b, tile_s, j = ct.bid(0), ct.bid(1), 0, 0, 1
    # snippet
    ct.store(rows, (group, head, 0, 0), query.reshape((1, 1, ROWS, D)))
    ct.store(keys, (group, head, 0, 0), keys_n.reshape((1, 1, TILE_N, D)))


q, key = torch.randn(2, 2, 3, 8, D), torch.randn(2, 32, 3, D)
rows, keys = torch.zeros(2, 3, ROWS, D), torch.zeros(2, 3, TILE_N, D)
run(kernel, q, key, rows, keys, grid=(2, 3))
assert torch.equal(rows, q.transpose(1, 2).reshape(2, 3, ROWS, D))
assert torch.equal(keys, key[:, 16:].transpose(1, 2))
"""
        )
    ],
    "o16-split-kv": [
        Setup(
            """
# snippet


assert [best_splits(64, 132, 64), best_splits(512, 132, 64)] == [2, 1]
assert best_splits(2, 132, 2048) == 64
"""
        ),
        Setup(
            TILE
            + """
@ct.kernel
def kernel(out, stop: int, splits: int):
    split = ct.bid(0)
    # snippet


out = torch.zeros(11, dtype=torch.int32)
run(kernel, out, 11, 4, grid=(4,))
assert out.tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
""",
            ("ct.store(out, j, ct.full((1,), split, ct.int32))",),
        ),
    ],
    "o2-head-grouping": [
        Setup(
            TILE
            + """
h, s, b, tile_m = 3, 8, 2, 16
q, qpe, o = (torch.randn(b, h, s, d) for d in (K, P, K))
# snippet
assert grid == (2, 2) and q_rows.shape == (2, 24, K) and q_rows.data_ptr() == q.data_ptr()
"""
        ),
        Setup(
            TILE
            + """
QUERIES = 8


@ct.kernel
def kernel(q, out, limits, keys: int):
    # snippet
    ct.store(out, (batch, tile_r, 0), query)
    ct.store(limits, (tile_r, 0), limit)


q, out = torch.randn(2, 24, K), torch.zeros(2, 24, K)
limits = torch.zeros(24, 1, dtype=torch.int32)
for batch in range(2):
    run(kernel, q[batch:], out[batch:], limits, 20, grid=(2, 1))
assert torch.equal(out, q) and limits.flatten().tolist() == list(range(13, 21)) * 3
"""
        ),
    ],
    "o3-independent-path-scheduling": [
        Setup(
            """
from dataclasses import dataclass

from mla_var3.runtime import Tiling
from mla_var3.workloads.base import option

# snippet


tiling = PathTiling(tile_n_new=128)
assert (tiling.tile_m_old, tiling.tile_m_new, tiling.tile_n_new) == (64, 16, 128)
"""
        )
    ],
    "o4-swizzle-scheduling": [
        Setup(
            TILE
            + """
h, s, b, tile_m = 4, 8, 2, 16
# snippet
assert grid == (2, 2)
"""
        ),
        Setup(
            TILE
            + """
# snippet


@ct.kernel
def kernel(out, tiles_m: int, tiles_n: int):
    row, column = grouped(ct.bid(0), tiles_m, tiles_n, 2)
    ct.store(out, (row, column), ct.full((1, 1), ct.bid(0), ct.int32))


out = torch.zeros(3, 2, dtype=torch.int32)
run(kernel, out, 3, 2, grid=(6,))
assert out.tolist() == [[0, 2], [1, 3], [4, 5]]
"""
        ),
    ],
    "o5-latency-hints": [
        Setup(
            CACHE
            + """
@ct.kernel
def kernel(z, kpe, q, out):
    batch, j, tile_r = 0, ct.bid(0), 0
    # snippet
    latent = latent.reshape((TILE_N, K)) + query.reshape((TILE_M, K))
    ct.store(out, (j, 0), latent + ct.sum(key_pe))


kpe, q, out = torch.zeros(1, 40, P), torch.ones(1, 16, K), torch.zeros(40, K)
run(kernel, z, kpe, q, out, grid=(3,))
assert torch.equal(out, z[0] + 1)
"""
        )
    ],
    "o6-thread-block-clusters": [
        Setup(
            TILE
            + """
# snippet


out = torch.zeros(1, dtype=torch.int32)
run(latent, out)
assert out.item() == 1
""",
            ("out", "ct.store(out, 0, ct.full((1,), 1, ct.int32))"),
        )
    ],
    "o7-fast-math-softmax": [
        Setup(
            TILE
            + """
@ct.kernel
def kernel(s, v, weights, result):
    score = ct.load(s, (0, 0), (TILE_M, TILE_N))
    row_max = ct.full((TILE_M, 1), -1.0, ct.float32)
    new_max = ct.maximum(row_max, ct.max(score, axis=1, keepdims=True))
    row_sum = ct.full((TILE_M, 1), 2.0, ct.float32)
    # snippet
    ct.store(weights, (0, 0), weight)
    ct.store(result, (0, 0), out)


s, v = torch.randn(TILE_M, TILE_N), torch.randn(TILE_M, D)
weights, result = torch.zeros_like(s), torch.zeros_like(v)
run(kernel, s, v, weights, result)
top = s.amax(1, keepdim=True).clamp(min=-1)
close(weights, (s - top).exp2())
close(result, v * (-1 - top).exp2() / 2)
""",
            ("acc = ct.load(v, (0, 0), (TILE_M, D)) * rescale",),
        )
    ],
    "o8-causal-k-loop-split": [
        Setup(
            TILE
            + """
QUERIES = TILE_M = 16


@ct.kernel
def kernel(out, keys: int):
    first, last = 0, 15
    # snippet
            ct.store(out, (0, j), score)


out = torch.ones(16, 64)
run(kernel, out, 56)
assert torch.equal(out[:, :56].isneginf(), torch.ones(16, 56).tril(40) == 0)
""",
            ("score = ct.zeros((16, TILE_N), ct.float32)",),
        )
    ],
    "o17-rows-that-fit-registers": [
        Setup(
            TILE
            + """
# snippet


assert [rows_for(arch, 512) for arch in ("sm_120", "sm_90", "sm_100")] == [16, 64, 64]
assert rows_for("sm_120", 128) == 64
out = torch.zeros(1)
run(attention, out)
assert out.item() == 1
""",
            less=(
                (
                    "def attention(...): ...",
                    "def attention(out): ct.store(out, (0,), ct.full((1,), 1, ct.float32))",
                ),
            ),
        )
    ],
    "illegal-memory-access": [
        Setup(
            """
import torch

pool = torch.zeros(64, 640, dtype=torch.bfloat16)
tensors = {"q": pool[:, :576], "moved": pool.flatten()[3:67], "narrow": torch.zeros(4, 36).half()}
try:
    # snippet
    raise SystemExit("nothing was found")
except AssertionError as error:
    assert str(error) == "not at multiples of 16 bytes: ['moved', 'narrow']"
tensors = {"q": pool[:, :576]}
# snippet
right = True
"""
        )
    ],
    "fp8": [
        Setup(
            """
import torch

from mla_var3.workloads.mla.fp8 import fp8_rows

z, kpe = torch.randn(2, 9, 512).bfloat16(), torch.randn(2, 9, 64).bfloat16()

# snippet

assert rows.shape == (2, 9, 656)
assert torch.equal(rows, fp8_rows(z, kpe))
"""
        )
    ],
    "tma-descriptor": [
        Setup(
            """
import torch

tokens = 6

# snippet

assert stride == 584
assert cache.shape == (6, 578)
assert not cache.is_contiguous()
""",
            less=(('device="cuda"', 'device="cpu"'),),
        )
    ],
    "lse": [
        Setup(
            """
import math

import torch

# snippet


scores, values = torch.randn(3, 12, dtype=torch.float64), torch.randn(12, 512, dtype=torch.float64)
scores[2] = -math.inf  # a row without keys
parts = [slice(0, 5), slice(5, 5), slice(5, 12)]  # the second GPU has none
whole = torch.logsumexp(scores, -1)
for empty in (math.inf, -math.inf):
    lses = torch.stack([torch.logsumexp(scores[:, part], -1) for part in parts])
    lses[lses == -math.inf] = empty
    outputs = torch.stack([
        torch.softmax(scores[:, part], -1).nan_to_num(0.0) @ values[part] for part in parts
    ])
    out, lse = merge(outputs.float(), lses.float())
    assert torch.allclose(lse, whole.float())
    assert torch.allclose(out[:2], (torch.softmax(scores[:2], -1) @ values).float(), atol=1e-5)
    assert lse[2] == -math.inf and not out[2].any()
"""
        )
    ],
    "online-softmax": [
        Setup(
            """
import torch
from torch import exp2, log2, maximum

q, keys, values, scale = torch.randn(3, 8), torch.randn(10, 8), torch.randn(10, 4), 0.5
tiles = list(zip(keys.split(4), values.split(4)))
m, l, acc = torch.full((3,), -torch.inf), torch.zeros(3), torch.zeros(3, 4)
# snippet


weights = 2.0 ** (q @ keys.T * scale)
assert torch.allclose(out, weights @ values / weights.sum(-1, keepdim=True), atol=1e-5)
assert torch.allclose(lse, log2(weights.sum(-1)), atol=1e-5)
"""
        )
    ],
    "o9-causal-program-remap": [
        Setup(
            TILE
            + """
HEADS = 2
SECTION = 4


@ct.kernel
def kernel(out, b: int, tiles: int):
    # snippet
    ct.store(out, (batch, head, tile), ct.full((1, 1, 1), ct.bid(0), ct.int32))


out = torch.zeros(3, 2, 4, dtype=torch.int32)
run(kernel, out, 3, 4, grid=(24,))
# Four pairs, then the two left; in each section the last tile of every pair starts first.
whole = [[12 + pair, 8 + pair, 4 + pair, pair] for pair in range(4)]
rest = [[22 + pair, 20 + pair, 18 + pair, 16 + pair] for pair in range(2)]
assert out.flatten(0, 1).tolist() == whole + rest
"""
        ),
        Setup(
            TILE
            + """
@ct.kernel
def kernel(out, tiles: int, pairs: int):
    # snippet


out = torch.zeros(3, 4, dtype=torch.int32)
run(kernel, out, 4, 6, grid=(4,))
assert (out == 1).all()
""",
            ("ct.store(out, (item // half, tile), ct.full((1, 1), 1, ct.int32))",),
        ),
    ],
    "own-kernel-or-library": [
        Setup("# snippet\nassert round(1 / (1 - share * (1 - time)) - 1, 3) == 0.064\n"),
    ],
    "adopt": [
        Setup(
            """
import torch


def add(x, y):
    return x + y


# snippet
given = inputs("cpu", 8)
assert torch.equal(launch(**given), reference(**given))
"""
        )
    ],
    "interpreter": [
        Setup(
            TILE
            + """
@ct.kernel
def my_kernel(x, y, n: ct.Constant[int]):
    ct.store(y, ct.bid(0), ct.load(x, ct.bid(0), (n,)) * 2)


def run_my_pipeline():
    launch((4,), my_kernel, (x, y, 128))


x, y = torch.ones(512), torch.zeros(512)
# snippet
assert (y == 2).all() and len(reports) == 1
"""
        )
    ],
}
