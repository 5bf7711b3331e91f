"""Setups of the CuTe DSL snippets: small programs that the emulator runs."""

from __future__ import annotations

from mla_var3.paths import repo_root
from tests.knowledge.setups import Setup

START = """
import cutlass
import torch
from cutlass import Boolean, Float32, Int32, cute, pipeline, range_constexpr
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator

"""
#: Compiled by the toolchain for sm_90a; nothing is launched.
COMPILED = """
import os

os.environ["CUTE_DSL_ARCH"] = "sm_90a"
import cuda.bindings.driver as cuda
import cutlass
from cutlass import BFloat16, cute
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream


class StreamLatent:
    @cute.jit
    def __call__(self, z: cute.Tensor, o: cute.Tensor, stream: cuda.CUstream):
        self.kernel(z, o).launch(grid=(z.shape[0], 1, 1), block=(128, 1, 1), stream=stream)

    @cute.kernel
    def kernel(self, z: cute.Tensor, o: cute.Tensor):
        o[cute.arch.block_idx()[0], cute.arch.thread_idx()[0]] = z[cute.arch.block_idx()[0], 0]


o = make_fake_compact_tensor(BFloat16, (cute.sym_int32(), 512), stride_order=(1, 0))
"""
#: Two layers of a server, with plain torch in place of kernels, which a graph captures as it would.
SERVED = """
import torch
from mla_var3.gpuless import streams
from mla_var3.serving import operators
from tests.serving import stand_in

made = []


def launch(kind, *values, written):
    made.append(kind.name)
    if kind.name == "attention":
        streams.submit(lambda: stand_in.attention(*values))


def right():
    for (o, _), (q, cache) in zip(results, layers, strict=True):
        for i, n in enumerate(lengths.tolist()):
            keys = cache[block_table[i].long()].flatten(0, 2)[:n]
            latent, scale = keys[:, :512], 576**-0.5
            wanted, _ = stand_in.wanted(q[i].transpose(0, 1), keys, latent, scale, False)
            assert torch.allclose(o[i].double(), wanted.transpose(0, 1), atol=1e-2)


kept, operators.launch = operators.launch, launch
layers = [
    (torch.randn(2, 1, 4, 576).bfloat16().cuda(), torch.randn(4, 64, 1, 576).bfloat16().cuda())
    for _ in range(2)
]
lengths = torch.tensor([70, 100], dtype=torch.int32).cuda()
block_table = torch.tensor([[0, 1], [3, 2]], dtype=torch.int32).cuda()
"""
#: A step without a kernel: each call notes itself.
NOTED = """
done = []


class warpgroup:
    @staticmethod
    def wait_group(pending):
        done.append(f"wait {pending}")


class Step:
    def __getattr__(self, name):
        return lambda *_: done.append(name)

"""
#: The same for a step of a product: an arrival at its end, and no meeting.
WITHOUT_A_BARRIER = (
    NOTED
    + """\
    def run(self, full, free, acc, operands, step):
        # snippet


Step().run(*range(5))
assert done == ["await_loads", "multiply", "wait 1", "release"]
"""
)
#: A schedule without a kernel: what each call needs must stand before it.
UNDER_PRODUCTS = (
    NOTED
    + """\
    def run(self, wg, storage, place, before, tile):
        # snippet


Step().run(*range(5))
place = {name: number for number, name in enumerate(done)}
assert len(place) == 7
assert place["scores"] < place["accumulate"] < place["wait 1"] < place["softmax"] < place["wait 0"]
assert place["wait 0"] < place["rescale"] < place["round_weights"]
"""
)
#: The order alone is what the page is about.
BEHIND_THE_WAIT = (
    UNDER_PRODUCTS[: UNDER_PRODUCTS.index("assert len")]
    + """\
assert list(place) == ["accumulate", "softmax", "wait 0", "rescale"]
"""
)
#: A ring of two stages by the DSL's pipeline: warp 4 loads rows, warps 0 to 3 add them up.
PIPELINE = """
WIDTH, STAGES, CONSUMER_WARPS, PRODUCER = 128, 2, 4, 4
tile_bytes = WIDTH * 4


@cute.struct
class Storage:
    barriers: cute.struct.MemRange[cutlass.Int64, 2 * STAGES]
    ring: cute.struct.Align[cute.struct.MemRange[cutlass.Float32, STAGES * WIDTH], 128]


def make_ring(barriers):
    return pipeline.PipelineTmaAsync.create(
        num_stages=STAGES, tx_count=tile_bytes, barrier_storage=barriers,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, CONSUMER_WARPS),
        cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)))


@cute.jit
def produce(ring, load, src, dst, tiles):
    state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
    for j in cutlass.range(tiles, unroll=1):
        ring.producer_acquire(state)
        cute.copy(load, src[None, j], dst[None, state.index],
                  tma_bar_ptr=ring.producer_get_barrier(state))
        ring.producer_commit(state)
        state.advance()
    ring.producer_tail(state)


@cute.jit
def consume(ring, buffer, out, tiles):
    thread = cute.arch.thread_idx()[0]
    total = Float32(0.0)
    state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
    for j in cutlass.range(tiles, unroll=1):
        ring.consumer_wait(state)
        total += buffer[0, thread, state.index]
        ring.consumer_release(state)
        state.advance()
    out[thread] = total


class Sums:
    produce = staticmethod(produce)
    consume = staticmethod(consume)

    @cute.kernel
    def kernel(self, load: cute.CopyAtom, rows: cute.Tensor, out: cute.Tensor):
        thread = cute.arch.thread_idx()[0]
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        storage = SmemAllocator().allocate(Storage)
        barriers = storage.barriers.data_ptr()
        buffer = storage.ring.get_tensor(cute.make_layout((1, WIDTH, STAGES), stride=(0, 1, WIDTH)))
        boxes = cute.local_tile(rows, (1, WIDTH), (None, 0))
        dst, src = cpasync.tma_partition(
            load, 0, cute.make_layout(1), cute.group_modes(buffer, 0, 2),
            cute.group_modes(boxes, 0, 2))
        tiles = rows.shape[0]
BODY

    @cute.jit
    def __call__(self, rows: cute.Tensor, out: cute.Tensor):
        box = cute.make_layout((1, WIDTH), stride=(0, 1))
        load, coords = cpasync.make_tiled_tma_atom(
            cpasync.CopyBulkTensorTileG2SOp(), rows, box, (1, WIDTH))
        self.kernel(load, coords, out).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))


rows, out = torch.randn(6, WIDTH), torch.zeros(WIDTH)
Sums()(from_dlpack(rows, assumed_align=16), from_dlpack(out))
assert torch.allclose(out, rows.sum(0), atol=1e-5)
"""
#: Tiles of 64x64 of z, one after another by TMA into a ring, copied to o by the threads.
DESCRIPTORS = """
import cuda.bindings.driver as cuda

TN, K, STAGES = 64, 64, 2
grid = (1, 1, 1)


class Copy:
    HOST

    @cute.kernel
    def kernel(
        self, load: cute.CopyAtom, coords: cute.Tensor, o: cute.Tensor, ring: cute.ComposedLayout
    ):
        thread = cute.arch.thread_idx()[0]
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        memory = SmemAllocator()
        barrier = memory.allocate_array(cutlass.Int64, 1)
        smem = memory.allocate_tensor(
            o.element_type, ring.outer, byte_alignment=1024, swizzle=ring.inner)
        if thread == 0:
            cute.arch.mbarrier_init(barrier, 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()
        for j in cutlass.range(o.shape[0] // TN, unroll=1):
            stage = j % STAGES
            if warp == 0:
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive_and_expect_tx(barrier, TN * K * 2)
                DEVICE
            cute.arch.mbarrier_wait(barrier, j & 1)
            for i in cutlass.range(TN * K // 256, unroll=1):
                at = i * 256 + thread
                o[j * TN + at // K, at % K] = smem[at // K, at % K, stage]
            cute.arch.sync_threads()


z = torch.randn(192, K).half()
o = torch.zeros_like(z)
Copy()(from_dlpack(z, assumed_align=16), from_dlpack(o), cuda.CUstream(0))
assert torch.equal(z, o)
"""
HOST = """
    @cute.jit
    def __call__(self, z: cute.Tensor, o: cute.Tensor, stream: cuda.CUstream):
        atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, z.element_type)
        ring = cute.tile_to_shape(atom, (TN, K, STAGES), order=(0, 1, 2))
        one = cute.slice_(ring, (None, None, 0))
        load, coords = cpasync.make_tiled_tma_atom(
            cpasync.CopyBulkTensorTileG2SOp(), z, one, (TN, K))
        self.kernel(load, coords, o, ring).launch(grid=grid, block=(256, 1, 1), stream=stream)
"""
DEVICE = """
                tiles = cute.local_tile(coords, (TN, K), (None, 0))
                dst, src = cpasync.tma_partition(
                    load, 0, cute.make_layout(1), cute.group_modes(smem, 0, 2),
                    cute.group_modes(tiles, 0, 2))
                cute.copy(load, src[None, j], dst[None, stage], tma_bar_ptr=barrier)
"""


def edited(script: str, *edits: tuple[str, str]) -> str:
    """A script of ``examples/cute_sync`` with pieces replaced, each of which it has once."""
    text = (repo_root() / "examples/cute_sync" / script).read_text(encoding="utf-8")
    return replaced(text, *edits)


def replaced(text: str, *edits: tuple[str, str]) -> str:
    """A text with pieces replaced, each of which it has once."""
    for old, new in edits:
        if text.count(old) != 1:
            raise ValueError(f"{text.count(old)} places for {old!r}")
        text = text.replace(old, new)
    return text


def _sync(script: str, *edits: tuple[str, str], fills: tuple[str, ...] = ()) -> list[Setup]:
    return [Setup(edited(script, *edits), fills, emulated=True)]


def _program(code: str, *fills: str) -> Setup:
    return Setup(START + code, fills, emulated=True)


def _pipeline(body: str, *fills: str, threads: int = 160, **places: str) -> Setup:
    code = PIPELINE.replace("BODY", body.strip("\n")).replace("THREADS", str(threads))
    return _program(replaced(code, *places.values()) if places else code, *fills)


_RELEASE = """            cute.arch.sync_warp()
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive(free + stage)
"""
_WAIT = """            cute.arch.mbarrier_wait(full + stage, round_ & 1)
            total += ring[0, thread, stage]
"""
_REVERSE = """        buffer[thread] = rows[row, thread]
        cute.arch.sync_threads()  # filled
        out[row, thread] = buffer[WIDTH - 1 - thread]
"""

_K_AS_V = (repo_root() / "examples/cute/k_as_v.py").read_text(encoding="utf-8")
_P_BEGINS = "    # The accumulator's own registers"
_P_ENDS = "    warpgroup.commit_group()\n    warpgroup.wait_group(0)\n    cute.autovec_copy(acc"
#: The second product takes its weights from shared memory, where the threads write them.
_P_IN_SHARED = replaced(
    _K_AS_V[: _K_AS_V.index(_P_BEGINS)]
    + """    own_p = first.partition_C(s_q[None, None, 1])
    p = pv.make_fragment_A(second.partition_A(s_q))[None, None, None, 1]
    v = v[None, None, None, 1]
    # snippet
"""
    + _K_AS_V[_K_AS_V.index(_P_ENDS) :],
    ("(ROWS, WIDTH), RMEM)", "(ROWS, WIDTH), SMEM)"),
    ("from cutlass import cute\n", "from cutlass import cute, range_constexpr\n"),
)
#: The ring, the view and the fragments stand in the kernel as the page has them.
_TWO_VIEWS = replaced(
    _K_AS_V,
    ("from cutlass import cute\n", "from cutlass import Float32, cute\n"),
    ("def ring(", "def stages_of("),
    ("layout = ring(", "layout = stages_of("),
    (
        "    s_k = memory.allocate_tensor(dtype, layout.outer, 1024, swizzle=layout.inner)\n",
        "    # snippet 1-4\n",
    ),
    (
        "    s_v = cute.make_tensor(s_k.iterator, cute.select(s_k.layout, mode=[1, 0, 2]))\n",
        "",
    ),
    ("K, MN = cute.nvgpu.OperandMajorMode.K, cute.nvgpu.OperandMajorMode.MN\n", "# snippet 6\n"),
    ("    f16, f32 = cutlass.Float16, cutlass.Float32\n", "    dtype = cutlass.Float16\n"),
    ("    make = hopper_helpers.make_trivial_tiled_mma\n", "    # snippet 7-9\n"),
    ("    qk = make(f16, f16, K, K, f32, (1, 1, 1), (ROWS, KEYS), SMEM)\n", ""),
    ("    pv = make(f16, f16, K, MN, f32, (1, 1, 1), (ROWS, WIDTH), RMEM)\n", ""),
    ("    k = qk.make_fragment_B(first.partition_B(s_k))  # [keys, width]: sums over width\n", ""),
    (
        "    v = pv.make_fragment_B(second.partition_B(s_v))  # [width, keys]: sums over keys\n",
        "    # snippet 10-11\n",
    ),
)

SETUPS: dict[str, list[Setup]] = {
    "cute-arrivals-overflow": _sync("ring.py", (_RELEASE, "            # snippet\n")),
    "cute-barrier-not-published": _sync(
        "pair.py",
        (
            "    cute.arch.cluster_arrive()\n"
            "    cute.arch.cluster_wait()  # the other block runs, and its barrier is there\n",
            "    # snippet\n",
        ),
    ),
    "cute-dynamic-control-flow": [
        _program(
            """
@cute.kernel
def first_beyond(t: cute.Tensor, out: cute.Tensor, n: Int32, limit: Float32, valid: Int32):
    tid = cute.arch.thread_idx()[0]
    # snippet


@cute.jit
def launch(t: cute.Tensor, out: cute.Tensor):
    first_beyond(t, out, 4, 2.5, 20).launch(grid=(1, 1, 1), block=(32, 1, 1))


out = torch.zeros(32)
launch(from_dlpack(torch.tensor([1.0, 2.0, 3.0, 4.0])), from_dlpack(out))
assert out.tolist() == [6.0] * 20 + [0.0] * 12
"""
        )
    ],
    "cute-early-release": _sync(
        "product.py",
        (
            """        warpgroup.commit_group()
        warpgroup.wait_group(0)
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(free + stage)
""",
            "        # snippet\n",
        ),
    ),
    "cute-expected-bytes": _sync(
        "product.py",
        (
            "STEP_BYTES = 2 * TILE * TILE * 2\n",
            "TILE_M = TILE_N = TILE_K = TILE\nELEMENT_BYTES = 2\n# snippet\n",
        ),
    ),
    "cute-missing-proxy-fence": [
        *_sync(
            "store.py",
            (
                """        buffer[0, thread] = rows[row, thread] * 2.0
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.sync_threads()  # filled
        if warp == 0:
            cute.copy(store, shared, parts[None, row])
""",
                "        # snippet\n        if warp == 0:\n",
            ),
        ),
        Setup(_P_IN_SHARED, emulated=True),
    ],
    "cute-one-tile-as-k-and-v": [Setup(_TWO_VIEWS, emulated=True)],
    "cute-wait-among-loads": [
        _program(
            """
pieces, ROUNDS = 3, 4


@cute.jit
def load(into, rows, i, p):
    cute.autovec_copy(cute.local_tile(rows[i, p, None], (4,), (cute.arch.lane_idx(),)), into)


@cute.jit
def add(total, piece):
    for k in range_constexpr(4):
        total[k] = total[k] + piece[k]


@cute.kernel
def kernel(rows: cute.Tensor, out: cute.Tensor):
    held, total = cute.make_rmem_tensor((4, pieces), Float32), cute.make_rmem_tensor(4, Float32)
    total.fill(0.0)
    for p in range_constexpr(pieces):
        load(held[None, p], rows, 0, p)
    for i in cutlass.range(ROUNDS, unroll=1):
        # snippet
    cute.autovec_copy(total, cute.local_tile(out, (4,), (cute.arch.lane_idx(),)))


@cute.jit
def launch(rows: cute.Tensor, out: cute.Tensor):
    kernel(rows, out).launch(grid=(1, 1, 1), block=(32, 1, 1))


rows, out = torch.randn(ROUNDS + 1, pieces, 128), torch.zeros(128)
launch(from_dlpack(rows, assumed_align=16), from_dlpack(out, assumed_align=16))
assert torch.allclose(out, rows[:ROUNDS].sum((0, 1)), atol=1e-5)
"""
        )
    ],
    "cute-half-rows-across-blocks": [
        _program(
            """
from mla_var3.kernel.cute_python.kit.dsmem import remote_address, store_remote
from mla_var3.kernel.cute_python.kit.handovers import cluster_sync


@cute.kernel
def kernel(out: cute.Tensor):
    memory = SmemAllocator().allocate_array(Float32, 128)
    lane, rank = cute.arch.lane_idx(), cute.arch.block_idx()[0]
    there = remote_address(memory, rank ^ 1)
    values = [(1000 * rank + 4 * lane + i).to(Float32) for i in range(4)]
    cluster_sync()
    # snippet
    cluster_sync()
    mine = cute.make_tensor(memory, cute.make_layout(128))
    for i in range_constexpr(4):
        out[rank, 4 * lane + i] = mine[4 * lane + i]


@cute.jit
def launch(out: cute.Tensor):
    kernel(out).launch(grid=(2, 1, 1), block=(32, 1, 1), cluster=(2, 1, 1))


out = torch.zeros(2, 128)
launch(from_dlpack(out, assumed_align=16))
for rank in range(2):
    for row in range(4):
        for piece in range(8):
            at, first = 32 * row + 4 * (piece ^ row), 1000 * (1 - rank) + 4 * (8 * row + piece)
            assert out[rank, at : at + 4].tolist() == [first + i for i in range(4)]
"""
        )
    ],
    "cute-reuse-under-a-store": _sync(
        "store.py",
        (
            """        if warp == 0:
            cute.arch.cp_async_bulk_wait_group(0, read=True)  # the store before has read
        cute.arch.sync_threads()  # the buffer is free
        buffer[0, thread] = rows[row, thread] * 2.0
""",
            "        # snippet\n",
        ),
    ),
    "cute-layout-capture": [
        _program(
            """
TN, K, STAGES = 64, 64, 2


class Ring:
    def atom(self):
        kind = warpgroup.SmemLayoutAtomKind.K_SW128
        return warpgroup.make_smem_layout_atom(kind, cutlass.Float16)

    # snippet


@cute.jit
def launch(z: cute.Tensor):
    box = cute.make_layout((TN, K), stride=(K, 1))
    load, coords = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), z, box, (TN, K))
    Ring()(load, coords)


launch(from_dlpack(torch.zeros(64, K).half(), assumed_align=16))
""",
            "assert cute.size(ring.outer) == TN * K * STAGES",
        )
    ],
    "cute-missing-barrier": _sync(
        "reverse.py",
        (_REVERSE + "        cute.arch.sync_threads()  # read\n", "        # snippet\n"),
    ),
    "cute-missing-wait": _sync("ring.py", (_WAIT, "            # snippet\n")),
    "cute-multicast-below-the-limit": [
        _program(
            """
from mla_var3.kernel.cute_python.kit.gemm_tiles import TILE_N, tma_atom


@cute.kernel
def nothing():
    pass


@cute.jit
def launch(b: cute.Tensor):
    load, share = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileG2SMulticastOp()
    for cluster in range_constexpr(1, 3):
        # snippet
    nothing().launch(grid=(1, 1, 1), block=(32, 1, 1))


launch(from_dlpack(torch.zeros(256, 64).half(), assumed_align=16))
"""
        )
    ],
    "cute-reserved-names": [
        _program(
            """
import cuda.bindings.driver as cuda


@cute.kernel
def copy(latent: cute.Tensor, output: cute.Tensor):
    output[cute.arch.thread_idx()[0]] = latent[cute.arch.thread_idx()[0]]


class Copy:
    # snippet


out = torch.zeros(32)
Copy()(from_dlpack(torch.ones(32)), from_dlpack(out), cuda.CUstream(0))
assert (out == 1).all()
""",
            "copy(latent, output).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream)",
        ),
        Setup(
            """
import inspect
import keyword

C_KEYWORDS, CPP_KEYWORDS = frozenset({"register", "default"}), frozenset({"new"})


def fn(latent, register, new): ...


# snippet
assert bad == ["register", "new"]
"""
        ),
    ],
    "cute-ring-displaces-blocks": [
        Setup(
            """
from mla_var3.kernel.cute_python.kit.gemm_plan import BARRIER_BYTES, SHARED_BYTES

step_bytes, slabs, barriers = (128 + 256) * 64 * 2, 4 * 64 * 64 * 2, BARRIER_BYTES
# snippet
assert stages == 4
"""
        )
    ],
    "cute-shared-memory-limit": [
        Setup(
            """
from mla_var3.errors import TilingError

k, p, tile_m, tile_n = 512, 64, 16, 32
for stages in (2, 3):
    try:
        # snippet
    except TilingError as error:
        assert stages == 3 and str(need) in str(error), error
    else:
        assert stages == 2
"""
        )
    ],
    "cute-uninitialized-shared-memory": _sync("reverse.py", (_REVERSE, "        # snippet\n")),
    "cute-wrong-arrival-count": _sync(
        "ring.py",
        ("WIDTH, STAGES, CONSUMERS = 128, 2, 4\n", "WIDTH, STAGES = 128, 2\n# snippet 1\n"),
        (
            "            cute.arch.mbarrier_init(free + stage, CONSUMERS)\n",
            "            # snippet 2\n",
        ),
        (_RELEASE, "            cute.arch.sync_warp()\n            # snippet 4-5\n"),
    ),
    "cute-wrong-phase": _sync(
        "ring.py",
        (
            "            stage, round_ = step % STAGES, step // STAGES\n" + _WAIT,
            "            # snippet 1\n            # snippet 3\n"
            "            total += ring[0, thread, stage]\n",
        ),
        (
            """        stage, round_ = step % STAGES, step // STAGES
        cute.arch.mbarrier_wait(free + stage, round_ & 1 ^ 1)
""",
            "        # snippet 1-2\n",
        ),
    ),
    "cute-ahead-of-time-export": [
        Setup(
            COMPILED
            + """
z = make_fake_compact_tensor(BFloat16, (cute.sym_int32(), 512), stride_order=(1, 0))
fn = cute.compile(StreamLatent(), z, o, make_fake_stream())
# snippet
assert {"latent_64_2.h", "latent_64_2.o"} <= set(os.listdir("out/aot"))
""",
            compiled=True,
        )
    ],
    "cute-barrier-per-slab": _sync(
        "ring.py",
        (
            _WAIT,
            """            SLABS, order, tile, phase = 1, (0,), stage, round_ & 1
            # snippet
""",
        ),
        (
            "from cutlass.cute.nvgpu import cpasync\n",
            "from cutlass.cute.nvgpu import cpasync, warpgroup\n",
        ),
        fills=("total += ring[0, thread, stage + slab]",),
    ),
    "cute-dependent-launch": [
        _program(
            """
import cuda.bindings.driver as cuda


@cute.kernel
def first(x: cute.Tensor):
    # snippet 1
    x[cute.arch.thread_idx()[0]] = Float32(1.0)


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor):
    # snippet 3
    y[cute.arch.thread_idx()[0]] = x[cute.arch.thread_idx()[0]] + 1.0


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream):
    first(x).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream)
    # snippet 5


x, y = torch.zeros(32), torch.zeros(32)
launch(from_dlpack(x), from_dlpack(y), cuda.CUstream(0))
assert (y == 2).all()
""",
            "...",
            "...",
            "x, y",
            "(1, 1, 1)",
            "(32, 1, 1)",
        )
    ],
    "cute-fake-tensor-compilation": [
        Setup(
            COMPILED
            + """
# snippet
assert ".entry" in ptx and len(cubin) > 1000
""",
            compiled=True,
        )
    ],
    "cute-host-tma-descriptors": [
        _program(
            DESCRIPTORS.replace("    HOST", "    # snippet").replace(
                "                DEVICE", DEVICE.strip("\n")
            )
        ),
        _program(DESCRIPTORS.replace("    HOST", HOST.strip("\n")).replace("DEVICE", "# snippet")),
    ],
    "cute-lazy-maximum": [
        _program(
            """
@cute.kernel
def kernel(tops: cute.Tensor, out: cute.Tensor, lazy: Float32):
    thread = cute.arch.thread_idx()[0]
    old, top, rescaled = Float32(1.0), tops[thread], Float32(0.0)
    # snippet
    out[thread] = new + rescaled


@cute.jit
def launch(tops: cute.Tensor, out: cute.Tensor):
    kernel(tops, out, 4.0).launch(grid=(1, 1, 1), block=(64, 1, 1))


tops, out = torch.full((64,), 2.0), torch.zeros(64)
tops[0] = 8.0
launch(from_dlpack(tops), from_dlpack(out))
assert out.tolist() == [108.0] + [101.0] * 31 + [1.0] * 32
""",
            "rescaled = Float32(100.0)",
        )
    ],
    "cute-persistent-tiles": [
        _program(
            """
class Places:
    def __init__(self):
        self.stages = 2

    @cute.jit
    def place(self, tile):
        return tile // 2, tile % 2

    @cute.kernel
    def kernel(self, out: cute.Tensor, tiles: Int32, steps: Int32):
        first, blocks = cute.arch.block_idx()[0], cute.arch.grid_dim()[0]
        # snippet

    @cute.jit
    def __call__(self, out: cute.Tensor):
        self.kernel(out, 6, 3).launch(grid=(4, 1, 1), block=(1, 1, 1))


out = torch.zeros(3, 2, 3, dtype=torch.int32)
Places()(from_dlpack(out))
assert out.flatten(0, 1).tolist() == [[0, 1, 0]] * 4 + [[1, 0, 1]] * 2
""",
            "out[row, column, step] = stage",
        )
    ],
    "cute-pipelines-and-barriers": [
        _pipeline(
            """
        # snippet 1-5
        if warp == PRODUCER:
            produce(ring, load, src, dst, tiles)
        if warp < CONSUMER_WARPS:
            total = Float32(0.0)
            # snippet 7-12
            out[thread] = total
""",
            "total += buffer[0, thread, state.index]",
        )
    ],
    "cute-swizzled-shared-memory": [
        _program(
            """
TN, K, STAGES = 64, 64, 2
dtype = cutlass.Float16


@cute.kernel
def kernel(out: cute.Tensor, ring: cute.ComposedLayout):
    # snippet 4-5
    thread = cute.arch.thread_idx()[0]
    buf[thread, 3, 1] = dtype(thread)
    out[thread] = buf[thread, 3, 1]


@cute.jit
def launch(out: cute.Tensor):
    # snippet 1-2
    kernel(out, ring).launch(grid=(1, 1, 1), block=(64, 1, 1))


out = torch.zeros(64).half()
launch(from_dlpack(out))
assert torch.equal(out, torch.arange(64).half())
"""
        )
    ],
    "cute-tma-store-epilogue": [
        Setup(
            edited(
                "product.py",
                (
                    """    result = mine.partition_C(out)
    for i in range_constexpr(cute.size(acc)):
        result[i] = acc[i]
""",
                    """    dtype, EPILOGUE, leader = cutlass.Float16, 1, warp == 0
    warp = warps
    mma = hopper_helpers.make_trivial_tiled_mma(
        dtype, dtype, K_MAJOR, K_MAJOR, cutlass.Float32, (1, 1, 1), (TILE, TILE))
    rounded = cute.make_rmem_tensor(acc.layout, dtype)
    rounded.store(acc.load().to(dtype))
    slab = s_a[None, None, 0]
    parts, boxes_out = boxes(store, s_a, out)
    shared, out = parts[None, 0], boxes_out[None, 0]
    cute.arch.sync_threads()
    # snippet 1-2
    mine = copy.get_slice(thread)
    # snippet 3-7
        cute.arch.cp_async_bulk_commit_group()
        cute.arch.cp_async_bulk_wait_group(0, read=True)
""",
                ),
                (
                    "b: cute.Tensor, out: cute.Tensor\n):",
                    "b: cute.Tensor, store, out: cute.Tensor\n):",
                ),
                (
                    "    product(*from_a, *from_b, out)",
                    "    operation = cpasync.CopyBulkTensorTileS2GOp()\n"
                    "    to_out = cpasync.make_tiled_tma_atom(operation, out, box, (TILE, TILE))\n"
                    "    product(*from_a, *from_b, *to_out)",
                ),
                ("torch.zeros(TILE, TILE).cuda()", "torch.zeros(TILE, TILE).half().cuda()"),
                (
                    "allclose(out, expected, atol=2e-2)",
                    "allclose(out.float(), expected, atol=5e-2)",
                ),
                ("import cpasync, warpgroup", "import cpasync, warp as warps, warpgroup"),
            ),
            emulated=True,
        )
    ],
    "cute-tma-multicast": [
        _program(
            """
from mla_var3.kernel.cute_python.kit.gemm_tiles import (
    TILE_N, operand_layout, tma_atom, tma_parts,
)


@cute.kernel
def kernel(load_b: cute.CopyAtom, b: cute.Tensor, out: cute.Tensor):
    thread, stage = cute.arch.thread_idx()[0], 0
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    mine = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    memory = SmemAllocator()
    full = memory.allocate_array(cutlass.Int64, 1)
    free = memory.allocate_array(cutlass.Int64, 1)
    layout = operand_layout(cutlass.Float16, TILE_N, 1)
    tiles = memory.allocate_tensor(
        cutlass.Float16, layout.outer, byte_alignment=1024, swizzle=layout.inner)
    s_b, g_b = tma_parts(load_b, tiles, b, mine, 2)
    if thread == 0:
        cute.arch.mbarrier_init(full, 1)
        cute.arch.mbarrier_init(free, 2)
    cute.arch.mbarrier_init_fence()
    cute.arch.cluster_arrive_relaxed()
    cute.arch.cluster_wait()
    if warp == 0:
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full, TILE_N * 64 * 2)
        # snippet 4
    cute.arch.mbarrier_wait(full, 0)
    for k in cutlass.range(64, unroll=1):
        out[mine, thread, k] = tiles[thread, k, 0]
    cute.arch.sync_threads()
    if warp == 0:
        with cute.arch.elect_one():
            # snippet 6-7
    cute.arch.mbarrier_wait(free, 0)
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()


@cute.jit
def launch(b: cute.Tensor, out: cute.Tensor):
    # snippet 1-2
    kernel(*load_b, out).launch(grid=(2, 1, 1), block=(TILE_N, 1, 1), cluster=(2, 1, 1))


b = torch.randn(256, 64).half()
out = torch.zeros(2, 256, 64).half()
launch(from_dlpack(b, assumed_align=16), from_dlpack(out))
assert torch.equal(out[0], b) and torch.equal(out[1], b)
""",
            "...",
            "None, 0, 0",
            "None, 0",
        )
    ],
    "cute-serialized-products": [Setup(BEHIND_THE_WAIT)],
    "cute-softmax-under-products": [Setup(UNDER_PRODUCTS)],
    "cute-barrier-in-step": [Setup(WITHOUT_A_BARRIER)],
    "cute-split-keys-in-cluster": [
        _program(
            """
from mla_var3.kernel.cute_python.kit.dsmem import add_half, send_half
from mla_var3.kernel.cute_python.kit.slabs import HALF, ROWS


@cute.struct
class Storage:
    inbox: cute.struct.Align[cute.struct.MemRange[Float32, ROWS * HALF + 2 * ROWS], 128]


def cluster_sync():
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()


@cute.kernel
def kernel(result: cute.Tensor):
    thread = cute.arch.thread_idx()[0]
    lane, row = thread % 32, thread // 32 * 16 + thread % 32 // 4
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    inbox = SmemAllocator().allocate(Storage).inbox
    out = cute.make_rmem_tensor(128, Float32)
    row_max, row_sum = cute.make_rmem_tensor(2, Float32), cute.make_rmem_tensor(2, Float32)
    out.fill(Float32(rank + 1))
    row_max.fill(0.0)
    row_sum.fill(1.0)
    # snippet
    result[rank, thread] = out[0] + out[127] + row_sum[1]


@cute.jit
def launch(result: cute.Tensor):
    kernel(result).launch(grid=(2, 1, 1), block=(128, 1, 1), cluster=(2, 1, 1))


result = torch.zeros(2, 128)
launch(from_dlpack(result))
assert (result == 3 + 3 + 2).all()
"""
        )
    ],
    "cute-dsl": [
        Setup(
            """
import torch

from mla_var3.workloads.base import Cost
from tests.languages.cute.kernels_for_tests import Gemm as MyGemm

a, b, c = (torch.zeros(64, 64).bfloat16() for _ in range(3))
tiling, configs = None, []


def cost(tiling):
    return Cost(1, 1)


# snippet
"""
        ),
        Setup(
            """
from pathlib import Path

import torch

from mla_var3.errors import ToolchainError
from mla_var3.languages.cute.configuration import Configuration
from mla_var3.languages.cute.export import export
from tests.languages.cute import kernels_for_tests as kernels

one = Configuration({"tile_n": 64, "stages": 2}, kernels.Gemm(64, 2), kernels.gemm_arguments())
Path("gemm").mkdir()
export("gemm", [one], "sm_90", Path("gemm"), cache_dir=Path("cache"))
a, b, c = torch.zeros(64, 128).bfloat16(), torch.zeros(128, 128).bfloat16(), torch.zeros(64, 128)


class Kernel:
    def use(self, library):
        self.library = library


kernel = Kernel()
# snippet 1-3
try:
    # snippet 4
except ToolchainError as error:
    assert "needs its tensors on one GPU" in str(error)
# snippet 5
assert kernel.library is library
"""
        ),
    ],
    "shared-prefix": [
        Setup(
            """
import math

import torch
from mla_var3.serving import flashmla, operators
from tests.serving import stand_in

b, s, h, prefix = 3, 2, 4, 128
lengths = stand_in.vector(140, 192, 250)
cache, block_table = stand_in.paged_cache(lengths.tolist())
block_table[:, :2] = block_table[0, :2]
q = torch.randn(b, s, h, 576).bfloat16()
kept, operators.launch = operators.launch, stand_in.launched


def merge(outputs, lses):
    lses = torch.where(lses == math.inf, -math.inf, lses)
    total = torch.logsumexp(lses, dim=0)
    finite = torch.where(total == -math.inf, 0.0, total)
    weights = torch.exp(lses - finite)
    return (weights[..., None] * outputs.float()).sum(dim=0), total


# snippet
whole, sums = flashmla.flash_mla_with_kvcache(
    q, cache, block_table, lengths, 512, flashmla.get_mla_metadata()[0], causal=True
)
operators.launch = kept
assert torch.allclose(out, whole.float(), atol=2e-2)
assert torch.allclose(total, sums.transpose(1, 2), atol=1e-3)
"""
        ),
    ],
    "call": [
        Setup(
            """
import torch
from mla_var3.serving import flashmla, operators
from tests.serving import stand_in

cache_seqlens = stand_in.vector(70, 0, 128)
cache, block_table = stand_in.paged_cache(cache_seqlens.tolist())
q = torch.randn(3, 2, 4, 576).bfloat16()
kept, operators.launch = operators.launch, stand_in.launched
# snippet
operators.launch = kept
assert (out.shape, out.dtype) == ((3, 2, 4, 512), q.dtype)
assert (lse.shape, lse.dtype) == ((3, 4, 2), torch.float32)
for i, n in enumerate(cache_seqlens.tolist()):
    keys = cache[block_table[i, : -(-n // 64)].long()].flatten(0, 2)[:n]
    o, sums = stand_in.wanted(q[i].transpose(0, 1), keys, keys[:, :512], 576**-0.5, True)
    assert torch.allclose(out[i].double(), o.transpose(0, 1), atol=1e-2)
    assert torch.allclose(lse[i].double(), sums if n else -sums, atol=1e-3)
"""
        ),
    ],
    "cache": [
        Setup(
            """
import torch
from mla_var3.serving import flashinfer, flashmla, operators
from tests.serving import stand_in

cache_seqlens = stand_in.vector(70, 3)
filled, block_table = stand_in.paged_cache([70, 3])
pages, page, heads = len(filled), 64, 4
q = torch.randn(2, 1, heads, 576).bfloat16()
qo_indptr, kv_indptr = torch.arange(3), torch.tensor([0, 2, 3])
kv_indices = torch.cat([block_table[0, :2], block_table[1, :1]])
kept, operators.launch = operators.launch, stand_in.launched
# snippet 1-2
ckv.copy_(filled[:, :, 0, :512])
kpe.copy_(filled[:, :, 0, 512:])
# snippet 3-15
operators.launch = kept
assert torch.equal(same.view_as(out), out)
"""
        ),
    ],
    "sparse": [
        Setup(
            """
import torch
from mla_var3.serving import flashmla, operators
from tests.serving import stand_in
from tests.serving.test_sparse import arguments

given = arguments()
q, cache, indices = given["q"], given["k_cache"], given["indices"]
kept, operators.launch = operators.launch, stand_in.launched
# snippet
expected, sums = flashmla.flash_mla_with_kvcache(**given)
operators.launch = kept
assert torch.equal(out, expected) and torch.equal(lse, sums)
"""
        ),
    ],
    "step": [
        Setup(
            """
import torch
from mla_var3.serving import operators

heads, query_tokens = 128, 1
kept, operators.sms_of = operators.sms_of, lambda device: 132
# snippet
operators.sms_of = kept
assert scratch == 34_873_344
"""
        ),
    ],
    "capture-fails": [
        Setup(
            START
            + """
@cute.kernel
def double(x: cute.Tensor, y: cute.Tensor):
    i = cute.arch.thread_idx()[0]
    y[i] = x[i] + x[i]


@cute.jit
def host_function(x: cute.Tensor, y: cute.Tensor):
    double(x, y).launch(grid=(1, 1, 1), block=(32, 1, 1))


x, y = torch.ones(32).cuda(), torch.zeros(32).cuda()


def step():
    host_function(from_dlpack(x), from_dlpack(y))
    return y


# snippet
x.fill_(3)
graph.replay()
assert (out == 6).all()
""",
            emulated=True,
        ),
    ],
    "graphs": [
        Setup(
            SERVED
            + """
# snippet 1-19
assert made == 2 * ["schedule", "attention", "attention"]  # one schedule for all layers
graph.replay()
right()
old = results[0][0].clone()
new_lengths, new_table = lengths.new_tensor([71, 0]), block_table.flip(0)
layers[0][0].normal_()
# snippet 21-23
assert torch.equal(lengths, new_lengths)
assert torch.equal(block_table, new_table)
right()
assert not torch.equal(results[0][0], old)
operators.launch = kept
""",
            emulated=True,
        ),
    ],
    "emulator": [
        Setup(
            START
            + """
@cute.kernel
def add(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    i = cute.arch.thread_idx()[0]
    c[i] = a[i] + b[i]


@cute.jit
def host_function(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    add(a, b, c).launch(grid=(1, 1, 1), block=(32, 1, 1))


tensors = [torch.ones(32), torch.ones(32), torch.zeros(32)]
# snippet
assert (tensors[2] == 2).all() and run.bytes("global read") == 256
"""
        ),
        Setup(
            """
import numpy as np

a, b = np.arange(1024, dtype=np.float32), np.zeros(1024, dtype=np.float32)
ptx = '''
.version 8.0
.target sm_90a
.address_size 64
.visible .entry copy(.param .u64 x, .param .u64 y, .param .u32 n)
{
.reg .b64 %rd<5>; .reg .b32 %r<4>; .reg .f32 %f<2>;
mov.u32 %r1, %ctaid.x; ld.param.u32 %r3, [n]; mov.u32 %r2, %tid.x;
mad.lo.u32 %r2, %r1, %r3, %r2;
mul.wide.u32 %rd3, %r2, 4;
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
add.u64 %rd1, %rd1, %rd3; add.u64 %rd2, %rd2, %rd3;
ld.global.f32 %f1, [%rd1]; st.global.f32 [%rd2], %f1;
ret;
}
'''
# snippet
assert not done.diagnostics and (a == b).all()
"""
        ),
    ],
    "cute-warp-specialisation": [
        _pipeline(
            """
        ring = make_ring(barriers)
        # snippet
""",
            "buffer, out, tiles",
            threads=256,
        )
    ],
    "o11-pipelined-low-occupancy": [
        _pipeline(
            """
        ring = make_ring(barriers)
        # snippet
        if warp < CONSUMER_WARPS:
            cute.arch.setmaxregister_increase(232)
            consume(ring, buffer, out, tiles)
""",
            threads=256,
        )
    ],
}
