"""Wrong CuTe kernels as an adversary would make them, each right at the sizes one tries first."""

from __future__ import annotations

from tests.kernels.wrong import Wrong

KIT = "kernels/cute_python/kit"
MLA, PREFIX = "flash_mla@cute-dsl", "mla_shared_prefix@cute-dsl"
#: Design, version, file of the kit, text, what stands in its place, and why one would overlook it.
EDITS = [
    (MLA, "v9", "merge", "parts = partial.shape[2] // sequences",
     "parts = cutlass.min(partial.shape[2] // sequences, 5)", "more than five parts"),
    (MLA, "v9", "merge", "            at = part * sequences + batch",
     "            at = part * sequences + batch % 2", "a third sequence that is merged"),
    (MLA, "v9", "merge", "lse[row, batch] = top", "lse[row % 4, batch] = top",
     "a fifth row that is merged"),
    (MLA, "v4", "stores", "lse[row, batch] = value * LN_2", "lse[row % 64, batch] = value * LN_2",
     "a second row tile"),
    (MLA, "v3", "schedule", "return block, out, out % sequences, split * 2 * pairs, pairs #1",
     "return block, out, out % sequences % 2, split * 2 * pairs, pairs", "a third sequence"),
    (MLA, "v5", "schedule", "out // sequences * self.splits + rank // self.share",
     "cutlass.min(out // sequences, 4) * self.splits + rank // self.share", "more than five parts"),
    (MLA, "v1", "masks", "return row % queries + (keys - queries + 1) if causal else keys",
     "return row % 96 % queries + (keys - queries + 1) if causal else keys",
     "rows past 96 that do not begin a head"),
    (MLA, "v2", "masks", "Int32(0) if query + ROWS > queries else query", "query",
     "a row tile that reaches into the next head"),
    (MLA, "v8", "latent_kernel", "first_tile * KEYS, taken & 1)", "first_tile * KEYS, 0)",
     "a second item of a persistent cluster"),
    (MLA, "v9", "latent_kernel", "parity, key_tile = ((done + i) & 1) ^ 1,",
     "parity, key_tile = (i & 1) ^ 1,", "an item after one of an odd number of pairs"),
    ("hopper_gemm", "v3", "gemm_persistent", "height = cutlass.min(self.group_m, rows - top)",
     "height = self.group_m", "a last group of fewer row tiles"),
    ("hopper_gemm", "v3", "gemm_persistent", "(done + step) // self.stages & 1 ^ 1",
     "step // self.stages & 1 ^ 1", "a second tile of a persistent block"),
    ("hopper_gemm", "v4", "gemm_persistent", "return rows, cute.ceil_div(c.shape[1], TILE_N)",
     "return cutlass.min(rows, 3), cute.ceil_div(c.shape[1], TILE_N)", "a fourth row tile"),
    ("flash_attention@cute-dsl", "v1", "head_items", "item // pairs % work.heads, item",
     "item // pairs % work.heads % 3, item", "a fourth head"),
    ("hopper_attention", "v3", "head_items", "outer % work.groups, split",
     "outer % work.groups % 2, split", "a third sequence"),
    (PREFIX, "v3", "head_items", "first = total * split // work.splits",
     "first = total * split // cutlass.min(work.splits, 2)", "more than two parts of the prefix"),
    (PREFIX, "v2", "combine", "head, j // OUT_SLABS)", "head, j // OUT_SLABS % 2)",
     "a third part of the prefix"),
    ("thin_mla", "v0", "thin_kernel", "tile = first + GROUPS * i + group\n            for j",
     "tile = cutlass.min(first + GROUPS * i + group, 6)\n            for j", "an eighth tile"),
    (MLA, "v13", "pages", "self.table[sequence, at]", "self.table[sequence, cutlass.min(at, 3)]",
     "a fifth page"),
    (MLA, "v13", "slots", "o[sequence, row // heads, row % heads, None]",
     "o[sequence, 0, row % heads, None]", "a second query of a sequence that is cut"),
    ("sparse_mla", "v0", "sparse", "(place < cutlass.min(length,", "(place <= cutlass.min(length,",
     "a list that is filled in part"),
    ("blackwell_mla", "v0", "tall_kernel", "first = work.block * TALL\n", "first = Int32(0)\n",
     "a second tile of 128 rows under a causal mask"),
    (MLA, "v9", "softmax", "top - old > lazy else old", "top - old > lazy * 12 else old",
     "scores that grow by more than fp16 holds"),
    (MLA, "v4", "stores", "Float32(0.0) if wg.row_sum[r] == 0.0 else Float32(1.0)", "Float32(1.0)",
     "a row that sees no key"),
    (MLA, "v10", "epilogue", "peer = cta ^ self.share", "peer = cta ^ 1",
     "clusters of two row tiles"),
]  # fmt: skip
CUTE = [
    Wrong(design, version, f"{KIT}/{file}.py", find, put, why)
    for design, version, file, find, put, why in EDITS
]
