"""What all versions share: the plan, tile sizes, tensor views, matrix atoms, keys that rows see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, const_expr, range_constexpr
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.utils import hopper_helpers

from mla_var3.errors import PlanError
from mla_var3.runtime import KernelPlan, RuntimeObject
from mla_var3.runtime.cute_kernel import CuteKernel, Dynamic
from mla_var3.workloads import Cost
from mla_var3.workloads.mla import LatentProblem

if TYPE_CHECKING:
    import torch

#: Rows (head, query) of a CTA, keys of a tile, and the side of the square slabs that TMA moves.
ROWS, KEYS, SLAB = 64, 64, 64
LATENT, ROPE = 512, 64
#: A row of q or of the cache in slabs: eight of the latent part, then the rope slab.
SLABS, ROPE_SLAB = 9, 8
SLAB_BYTES = SLAB * SLAB * 2
#: The latent dimensions that one consumer warpgroup accumulates: half of the output's columns.
HALF = LATENT // 2
#: L2 policy "evict first" of a TMA load: keys of one sequence are of no use to the next.
EVICT_FIRST = 0x12F0000000000000
#: A finite start keeps exp2(old - new) defined for rows that see no key at all.
LOWEST = -1.0e30
LN_2 = 0.6931471805599453


@dataclass(frozen=True, kw_only=True)
class SlabPlan(LatentProblem, KernelPlan):
    """Latent problems whose rows are nine slabs, and their launch."""

    def validate(self) -> None:
        super().validate()
        if (self.k, self.p) != (LATENT, ROPE):
            raise PlanError(
                f"k={self.k} and p={self.p}: this design is built for k={LATENT} and p={ROPE}, "
                "which fill the registers of its two consumer warpgroups"
            )

    @property
    def row_tiles(self) -> int:
        """Tiles of 64 rows of all sequences."""
        return -(-self.h * self.s // ROWS) * self.b

    def launch(
        self,
        kernel_fn: Callable[..., Any],
        host_fn: Callable[[Any], Any],
        inputs: tuple[torch.Tensor, ...],
        outputs: tuple[torch.Tensor, ...] | None = None,
    ) -> RuntimeObject:
        """Attention over ``inputs``.

        Args:
            kernel_fn: The device function; its name is the stage's.
            host_fn: The host function for a tiling.
            inputs: q, qpe, z, kpe.
            outputs: o and lse; fresh ones unless given.
        """
        outputs = outputs or self.empty_outputs(inputs[0].device)
        return self.bind(
            kernel_fn,
            host_fn,
            dict(zip(("q", "qpe", "z", "kpe"), inputs, strict=True)),
            dict(zip(("o", "lse"), outputs, strict=True)),
            (self.scale / LN_2,),
            self._algorithmic_flops_bytes(),
        )

    def bind(
        self,
        kernel_fn: Callable[..., Any],
        host_fn: Callable[[Any], Any],
        inputs: Mapping[str, torch.Tensor],
        outputs: Mapping[str, torch.Tensor],
        numbers: tuple[float, ...],
        cost: Cost,
    ) -> RuntimeObject:
        """One launch, compiled for any extents but the widths of rows.

        Args:
            kernel_fn: The device function; its name is the stage's.
            host_fn: The host function for a tiling.
            inputs: Tensors read, in the order of the host function's parameters.
            outputs: Tensors written, likewise.
            numbers: What else it takes before the stream.
            cost: Work of the launch.
        """
        tensors = {**inputs, **outputs}
        dynamic = [
            Dynamic(x, tuple(range(x.ndim if name.endswith("lse") else x.ndim - 1)))
            for name, x in tensors.items()
        ]
        stage = kernel_fn.__name__
        return CuteKernel(
            kernel_fn,
            lambda x: (host_fn(x), (*dynamic, *numbers)),
            input_tensors=inputs,
            output_tensors=outputs,
            tiling=self.tiling(stage),
            autotune_configs=self._autotune_configs()[stage],
            algorithmic_flops_bytes_fn=lambda _: cost,
        )


def score_mma(dtype, source):
    """Scores [64, 64] of a warpgroup: Q and K both K-major; Q from ``source``."""
    k_major = warpgroup.OperandMajorMode.K
    return hopper_helpers.make_trivial_tiled_mma(
        dtype, dtype, k_major, k_major, Float32, (1, 1, 1), (ROWS, KEYS), source
    )


def output_mma(dtype, source):
    """Output [64, 256] of a warpgroup: weights from ``source``, the latent tile MN-major."""
    k_major, mn_major = warpgroup.OperandMajorMode.K, warpgroup.OperandMajorMode.MN
    return hopper_helpers.make_trivial_tiled_mma(
        dtype, dtype, k_major, mn_major, Float32, (1, 1, 1), (ROWS, HALF), source
    )


def slab_layout(dtype, slabs):
    """Shared memory of square slabs, K-major, 128-byte swizzle: [64, 64, slabs]."""
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, dtype)
    return cute.tile_to_shape(atom, (SLAB, SLAB, slabs), order=(0, 1, 2))


def shared_slabs(memory, dtype, slabs):
    """Shared memory as slabs: [64, 64, slabs]."""
    layout = slab_layout(dtype, slabs)
    return memory.get_tensor(layout.outer, swizzle=layout.inner)


def value_layout(dtype):
    """Four slabs of keys read as values: the same bytes, transposed, [256, 64]."""
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.MN_SW128, dtype)
    return cute.tile_to_shape(atom, (HALF, KEYS), order=(1, 0))


def reduced(combine, values):
    """Values combined pairwise, as a tree, which has few steps that wait for each other."""
    while len(values) > 1:
        values = [combine(values[i], values[i + 1]) for i in range(0, len(values), 2)]
    return values[0]


def operand_layout():
    """Registers of a 64x64 tile as the A operand of four MMA steps; flat, it is the C layout."""
    return cute.make_layout(((2, 2, 2), 1, 4), stride=((1, 2, 4), 0, 8))


def as_rows(x):
    """[b, h, s, w] as [h*s, w, b]: row r is query ``r % s`` of head ``r // s``."""
    b, h, s, width = x.shape
    return cute.make_tensor(
        x.iterator, cute.make_layout((h * s, width, b), stride=(width, 1, h * s * width))
    )


def as_keys(x):
    """[b, t, w] as [t, w, b]."""
    return cute.make_tensor(x.iterator, cute.select(x.layout, mode=[1, 2, 0]))


def seen(row, queries, keys, causal: cutlass.Constexpr):
    """One past the last key that a row sees; bottom-right aligned, so it may be below 1."""
    return row % queries + (keys - queries + 1) if causal else keys


@cute.jit
def seen_by_all(first, queries, keys, causal: cutlass.Constexpr):
    """Keys that each of the rows ``first`` to ``first + 63`` sees."""
    least = keys
    if const_expr(causal):
        query = first % queries
        # Rows that reach the next head meet its first query.
        query = Int32(0) if query + ROWS > queries else query
        least = seen(query, queries, keys, causal)
    return least


def seen_by_any(first, queries, keys, causal: cutlass.Constexpr, rows=ROWS):
    """Keys that at least one of ``rows`` rows from ``first`` on sees."""
    if not causal:
        return keys
    last = cutlass.min(first % queries + (rows - 1), queries - 1)
    return cutlass.max(seen(last, queries, keys, causal), 0)


def as_vector(x):
    """[b, h, s] as [h*s, b]."""
    b, h, s = x.shape
    return cute.make_tensor(x.iterator, cute.make_layout((h * s, b), stride=(1, h * s)))


def tma_parts(atom, shared, matrix, rank=0, ranks=1):
    """The slabs of ``shared`` and of ``matrix`` [rows, width, b] as operands of a TMA copy.

    Of a multicast to ``ranks`` CTAs, CTA ``rank`` loads its share of each slab.
    """
    slabs = cute.local_tile(matrix, (SLAB, SLAB), (None, None, None))
    return cpasync.tma_partition(
        atom,
        rank,
        cute.make_layout(ranks),
        cute.group_modes(shared, 0, 2),
        cute.group_modes(slabs, 0, 2),
    )


class SlabLoads:
    """TMA loads of a tile of 64 rows, slab by slab: eight latent ones, then the rope slab."""

    def __init__(self, latent_atom, latent, rope_atom, rope, shared, rank=0, ranks=1):
        """``latent`` [rows, 512, b] and ``rope`` [rows, 64, b] go to ``shared`` [64, 64, slabs]."""
        self.atoms = (latent_atom, rope_atom)
        parts = [
            tma_parts(atom, shared, x, rank, ranks)
            for atom, x in ((latent_atom, latent), (rope_atom, rope))
        ]
        self.shared = parts[0][0]
        self.sources = tuple(source for _, source in parts)  # [box, row tiles, slabs, b]

    def issue(self, slab, tile, batch, into, barrier, **options):
        """Load ``slab`` of row tile ``tile`` into the shared slab ``into``; from the whole warp."""
        rope = slab == ROPE_SLAB
        source = self.sources[rope][None, tile, 0 if rope else slab, batch]
        cute.copy(self.atoms[rope], source, self.shared[None, into], tma_bar_ptr=barrier, **options)


def inbox(memory):
    """Shared memory that the peer CTA writes: half an output, 64 maxima and 64 sums, all fp32.

    Each thread finds its own 128 values as 32 groups of four, so that a warp moves 512 bytes.
    """
    values = cute.recast_ptr(memory.data_ptr(), dtype=Float32)
    maxima = values + ROWS * HALF
    return values + cute.arch.thread_idx()[0] % 128 * 4, maxima, maxima + ROWS


@cute.jit
def send_half(memory, peer, out, row_max, row_sum, row, lane):
    """Write a warpgroup's half of the output to the inbox of CTA ``peer``."""
    values, maxima, sums = inbox(memory)
    target = remote_address(values, peer)
    for j in range_constexpr(32):
        store_remote(target + j * 2048, *[out[4 * j + i] for i in range(4)])
    if lane % 4 == 0:
        for r in range_constexpr(2):
            store_remote(remote_address(maxima + row + 8 * r, peer), row_max[r])
            store_remote(remote_address(sums + row + 8 * r, peer), row_sum[r])


@cute.jit
def add_half(memory, out, row_max, row_sum, row):
    """Merge what the peer has sent into the same half of this CTA's output."""
    values, maxima, sums = inbox(memory)
    mine, theirs = cute.make_rmem_tensor(2, Float32), cute.make_rmem_tensor(2, Float32)
    for r in range_constexpr(2):
        peer_max = cute.make_tensor(maxima, cute.make_layout(ROWS))[row + 8 * r]
        peer_sum = cute.make_tensor(sums, cute.make_layout(ROWS))[row + 8 * r]
        new = cute.arch.fmax(row_max[r], peer_max)
        mine[r] = cute.math.exp2(row_max[r] - new, fastmath=True)
        theirs[r] = cute.math.exp2(peer_max - new, fastmath=True)
        row_sum[r] = row_sum[r] * mine[r] + peer_sum * theirs[r]
        row_max[r] = new
    quads = cute.make_tensor(values, cute.make_layout((4, 32), stride=(1, 512)))
    quad = cute.make_rmem_tensor(4, Float32)
    for j in range_constexpr(32):
        cute.autovec_copy(quads[None, j], quad)
        for i in range_constexpr(4):
            out[4 * j + i] = out[4 * j + i] * mine[i // 2] + quad[i] * theirs[i // 2]


def remote_address(pointer, rank):
    """Address of ``pointer``'s place in the shared memory of CTA ``rank`` of the cluster."""
    return cute.arch.inline_ptx(
        "mapa.shared::cluster.u32 {$w0}, {$r0}, {$r1};",
        write_only_types=[Int32],
        read_only_args=[Int32(pointer.toint()), rank],
    )


def store_remote(address, *values):
    """Store one or four fp32 values in another CTA's shared memory."""
    many, operands = (".v4", "{{$r1}, {$r2}, {$r3}, {$r4}}") if len(values) == 4 else ("", "{$r1}")
    cute.arch.inline_ptx(
        f"st.shared::cluster{many}.f32 [{{$r0}}], {operands};", read_only_args=[address, *values]
    )
