"""MLA decode by TMA and wgmma, whole and plain: the first kernel to port an Ampere one to.

A block per sequence of 64 heads. One warp loads tiles of 64 cache rows into a ring of two stages;
two warpgroups each hold 256 of the output's 512 columns. Both work out all scores, so that nothing
is handed over: that is the first thing to improve.
"""

import cutlass
import torch
from cutlass import Float32, cute, range_constexpr
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator, hopper_helpers

HEADS, KEYS, WIDTH, LATENT, STAGES = 64, 64, 576, 512, 2
HALF, SIDES, TILE_BYTES = LATENT // 2, 2, KEYS * WIDTH * 2
K, MN = cute.nvgpu.OperandMajorMode.K, cute.nvgpu.OperandMajorMode.MN
SMEM, RMEM = warpgroup.OperandSource.SMEM, warpgroup.OperandSource.RMEM
SCALE = (128 + 64) ** -0.5 * 1.4426950408889634  # of the model, and log2(e) for exp2


@cute.struct
class Storage:
    """Shared memory: barriers, queries, and the ring."""

    asked: cute.struct.MemRange[cutlass.Int64, 1]
    full: cute.struct.MemRange[cutlass.Int64, STAGES]
    free: cute.struct.MemRange[cutlass.Int64, STAGES]
    q: cute.struct.Align[cute.struct.MemRange[cutlass.BFloat16, HEADS * WIDTH], 1024]
    kv: cute.struct.Align[cute.struct.MemRange[cutlass.BFloat16, STAGES * KEYS * WIDTH], 1024]


def rows(stages):
    """Tiles of 64 rows of 576, K-major, swizzled over 128 bytes."""
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, cutlass.BFloat16)
    return cute.tile_to_shape(atom, (KEYS, WIDTH, stages), order=(0, 1, 2))


@cute.jit
def fetch(load, tensor, shared, tile, sequence, stage, barrier):
    """One tile by TMA, from a whole warp: announce its bytes, then ask for them."""
    tiles = cute.local_tile(tensor, (KEYS, WIDTH), (None, 0, sequence))
    to, start = cpasync.tma_partition(
        load, 0, cute.make_layout(1), cute.group_modes(shared, 0, 2), cute.group_modes(tiles, 0, 2)
    )
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(barrier, TILE_BYTES)
    cute.copy(load, start[None, tile], to[None, stage], tma_bar_ptr=barrier)


@cute.jit
def softmax(score, acc, best, total, first, length):
    """Scores to weights; older sums shrink to the new maximum. A thread has two rows."""
    lane = cute.arch.lane_idx()
    for i in range_constexpr(cute.size(score)):
        key = first + 8 * (i // 4) + 2 * (lane % 4) + i % 2
        score[i] = score[i] * SCALE if key < length else -Float32.inf
    for r in range_constexpr(2):
        top = best[r]
        for i in range_constexpr(cute.size(score)):
            if cutlass.const_expr(i // 2 % 2 == r):
                top = cute.arch.fmax(top, score[i])
        for apart in range_constexpr(1, 3):  # Four lanes share a row.
            top = cute.arch.fmax(top, cute.arch.shuffle_sync_bfly(top, apart))
        shrink = cute.math.exp2(best[r] - top)
        best[r], total[r] = top, total[r] * shrink
        for i in range_constexpr(cute.size(score)):
            if cutlass.const_expr(i // 2 % 2 == r):
                score[i] = cute.math.exp2(score[i] - top)
                total[r] += score[i]
        for i in range_constexpr(cute.size(acc)):
            if cutlass.const_expr(i // 2 % 2 == r):
                acc[i] = acc[i] * shrink


@cute.jit
def consume(s_q, s_kv, asked, full, free, out, qk, pv, length):
    """One warpgroup: all scores, and its 256 columns of the output."""
    side, thread = cute.arch.thread_idx()[0] // 128, cute.arch.thread_idx()[0] % 128
    s_v = cute.make_tensor(s_kv.iterator, cute.select(s_kv.layout, mode=[1, 0, 2]))
    first, second = qk.get_slice(thread), pv.get_slice(thread)
    q = qk.make_fragment_A(first.partition_A(s_q))
    k = qk.make_fragment_B(first.partition_B(s_kv))
    v = pv.make_fragment_B(
        second.partition_B(cute.local_tile(s_v, (HALF, KEYS, STAGES), (side, 0, 0)))
    )
    score = qk.make_fragment_C(first.partition_shape_C((HEADS, KEYS)))
    acc = pv.make_fragment_C(second.partition_shape_C((HEADS, HALF)))
    steps = cute.make_layout(((2, 2, 2), 1, KEYS // 16), stride=((1, 2, 4), 0, 8))
    weight = cute.make_rmem_tensor(steps, cutlass.BFloat16)
    best, total = cute.make_rmem_tensor(2, Float32), cute.make_rmem_tensor(2, Float32)
    best.fill(-1e30)
    total.fill(0.0)
    acc.fill(0.0)
    cute.arch.mbarrier_wait(asked, 0)
    for step in cutlass.range(cute.ceil_div(length, KEYS), unroll=1):
        stage, turn = step % STAGES, step // STAGES
        cute.arch.mbarrier_wait(full + stage, turn & 1)
        warpgroup.fence()
        for i in range_constexpr(WIDTH // 16):
            qk.set(warpgroup.Field.ACCUMULATE, i > 0)
            cute.gemm(qk, score, q[None, None, i, 0], k[None, None, i, stage], score)
        warpgroup.commit_group()
        warpgroup.wait_group(0)
        softmax(score, acc, best, total, step * KEYS, length)
        for i in range_constexpr(cute.size(score)):
            weight[i] = score[i].to(cutlass.BFloat16)
        warpgroup.fence()
        pv.set(warpgroup.Field.ACCUMULATE, True)
        for i in range_constexpr(KEYS // 16):
            cute.gemm(pv, acc, weight[None, None, i], v[None, None, i, stage], acc)
        warpgroup.commit_group()
        warpgroup.wait_group(0)
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(free + stage)
    for r in range_constexpr(2):
        for apart in range_constexpr(1, 3):
            total[r] += cute.arch.shuffle_sync_bfly(total[r], apart)
    mine = second.partition_C(cute.local_tile(out, (HEADS, HALF), (0, side)))
    for i in range_constexpr(cute.size(acc)):
        mine[i] = (acc[i] / total[i // 2 % 2]).to(cutlass.BFloat16)


@cute.kernel
def decode(
    load_q: cute.CopyAtom, q: cute.Tensor, load_kv: cute.CopyAtom, kv: cute.Tensor,
    out: cute.Tensor, qk: cute.TiledMma, pv: cute.TiledMma,
):  # fmt: skip
    """Warps 0 to 7 compute, warp 8 loads; three more give registers to those who compute."""
    sequence = cute.arch.block_idx()[0]
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    storage = SmemAllocator().allocate(Storage)
    asked, full, free = (x.data_ptr() for x in (storage.asked, storage.full, storage.free))
    ring, one = rows(STAGES), rows(1)
    s_q = storage.q.get_tensor(one.outer, swizzle=one.inner)
    s_kv = storage.kv.get_tensor(ring.outer, swizzle=ring.inner)
    if cute.arch.thread_idx()[0] == 0:
        cute.arch.mbarrier_init(asked, 1)
        for stage in range_constexpr(STAGES):
            cute.arch.mbarrier_init(full + stage, 1)
            cute.arch.mbarrier_init(free + stage, 4 * SIDES)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    length = kv.shape[0]
    if warp >= 4 * SIDES:
        cute.arch.setmaxregister_decrease(24)  # A warpgroup gives them, so there are four warps.
        if warp == 4 * SIDES:
            fetch(load_q, q, s_q, 0, sequence, 0, asked)
            for step in cutlass.range(cute.ceil_div(length, KEYS), unroll=1):
                stage, turn = step % STAGES, step // STAGES
                cute.arch.mbarrier_wait(free + stage, turn & 1 ^ 1)
                fetch(load_kv, kv, s_kv, step, sequence, stage, full + stage)
    else:
        cute.arch.setmaxregister_increase(240)
        consume(s_q, s_kv, asked, full, free, out[sequence, None, None], qk, pv, length)


@cute.jit
def launch(q: cute.Tensor, kv: cute.Tensor, out: cute.Tensor):
    """Of q [b, 64, 576] and kv [b, t, 576], out [b, 64, 512]."""
    bf16, make = cutlass.BFloat16, hopper_helpers.make_trivial_tiled_mma
    qk = make(bf16, bf16, K, K, Float32, (1, 1, 1), (HEADS, KEYS), SMEM)
    pv = make(bf16, bf16, K, MN, Float32, (1, 1, 1), (HEADS, HALF), RMEM)
    box = cute.slice_(rows(1), (None, None, 0))
    loads = []
    for x in (q, kv):
        at = cute.make_tensor(x.iterator, cute.select(x.layout, mode=[1, 2, 0]))
        kind = cpasync.CopyBulkTensorTileG2SOp()
        loads += cpasync.make_tiled_tma_atom(kind, at, box, (KEYS, WIDTH))
    grid, block = (q.shape[0], 1, 1), (128 * (SIDES + 1), 1, 1)
    decode(*loads, out, qk, pv).launch(grid=grid, block=block, min_blocks_per_mp=1)


q = torch.randn(2, HEADS, WIDTH, dtype=torch.bfloat16).cuda()
kv = torch.randn(2, 200, WIDTH, dtype=torch.bfloat16).cuda()  # 200 rows: the last tile has 8.
out = torch.zeros(2, HEADS, LATENT, dtype=torch.bfloat16).cuda()
launch(*(from_dlpack(x, assumed_align=16) for x in (q, kv, out)))
weights = torch.softmax(q.float() @ kv.float().mT * (128 + 64) ** -0.5, -1)
expected = weights @ kv[..., :LATENT].float()
error = (out.float() - expected).norm() / expected.norm()
print(f"right: {bool(error < 5e-3)}, relative error {error:.1e}")
