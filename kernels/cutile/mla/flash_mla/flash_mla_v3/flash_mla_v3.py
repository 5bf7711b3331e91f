"""FlashMLA v3: latents in chunks of columns, so that the next tile arrives while one is used."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import cuda.tile as ct

from mla_var3.errors import TilingError
from mla_var3.runtime import KernelPlan, RuntimeObject
from mla_var3.runtime.ct_kernel import INV_LOG_2, ConstBool, ConstFloat, ConstInt, CtKernel, TileMN
from mla_var3.workloads import option
from mla_var3.workloads.mla import LatentProblem

if TYPE_CHECKING:
    import torch

    Tiles = tuple[Any, ...]

#: Registers of an SM by those a thread may have when eight worker warps and four that load share
#: it: 65536 / (12 * 32), rounded down to a multiple of 8 (CUDA Programming Guide, compute
#: capabilities 8.0 to 12.0, for the 65536 and the granularity).
REGISTERS_A_THREAD = 168
#: Worker warps of a 64-row tile when the compiler chooses.
DEFAULT_WORKER_WARPS = 4


#: The one launch.
STAGE = "attention"


@dataclass(frozen=True, kw_only=True)
class Tiling(TileMN):
    """Rows (heads times queries) and keys a block handles at a time, held in registers."""

    chunks: int = option(4, "parts of a tile's latent columns, each in slots of its own", minimum=1)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        k = getattr(plan, "k", self.chunks)
        width, rest = divmod(k, self.chunks)
        if rest or width & (width - 1):
            raise TilingError(
                f"k/chunks = {k}/{self.chunks} is not a power of two, as the extent of a tile has "
                "to be"
            )
        # fp32 accumulator, scores and column sums, and the weights once more in the 16-bit type.
        threads = 32 * (self.num_worker_warps or DEFAULT_WORKER_WARPS) * (self.num_ctas or 1)
        registers = self.tile_m * (k + 2 * self.tile_n + self.tile_n // 2) // threads
        if registers > REGISTERS_A_THREAD:
            raise TilingError(
                f"tile_m*(k + 2.5*tile_n)/threads = {self.tile_m}*({k} + 2.5*{self.tile_n})/"
                f"{threads} = {registers} registers a thread, more than {REGISTERS_A_THREAD}: "
                "it would spill"
            )


@dataclass(frozen=True, kw_only=True)
class Plan(LatentProblem, KernelPlan):
    """Problem and launch of this version."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {STAGE: Tiling}

    @property
    def chunks(self) -> int:
        """Four; of latents too narrow for it, one."""
        return 4 if self.k % 64 == 0 else 1

    def default_tiling(self, stage: str) -> Tiling:
        return Tiling(num_worker_warps=8, chunks=self.chunks)

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        shapes = ((64, 64, None), (64, 32, None), (64, 64, 2), (128, 32, 2), (128, 64, 2))
        return {
            STAGE: [
                Tiling(tile_m=m, tile_n=n, num_ctas=ctas, num_worker_warps=8, chunks=self.chunks)
                for m, n, ctas in shapes
            ]
        }

    def check_plans(self) -> list[Self]:
        """The shared problems, and causal queries over whole tiles, which need the mask as well."""
        plans = super().check_plans()
        return [*plans, dataclasses.replace(plans[0], s=2, t=128, causal=True)]

    def masked(self, tiling: Tiling) -> bool:
        """Whether some tile of keys needs the mask; its code is left out where none does."""
        return bool(self.t % tiling.tile_n or (self.causal and self.s > 1))

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        q, qpe, z, kpe = inputs
        o, lse = self.empty_outputs(q.device)
        # Row r of a sequence is query r % s of head r // s.
        q_rows, qpe_rows, o_rows, lse_rows = (x.flatten(1, 2) for x in (q, qpe, o, lse))
        rows = self.h * self.s
        operands = (
            *(q_rows, qpe_rows, z, kpe, o_rows, lse_rows),
            *(self.scale * INV_LOG_2, self.s, self.k, self.p),
        )
        return CtKernel(
            attention,
            grid_fn=lambda x: (ct.cdiv(rows, x.tile_m), self.b),
            args_fn=lambda x: (
                *(*operands, x.tile_m, x.tile_n, x.chunks),
                *(self.causal, self.masked(x)),
            ),
            input_tensors={"q": q, "qpe": qpe, "z": z, "kpe": kpe},
            output_tensors={"o": o, "lse": lse},
            tiling=self.tiling(STAGE),
            autotune_configs=self._autotune_configs()[STAGE],
            algorithmic_flops_bytes_fn=self._algorithmic_flops_bytes,
        )


@ct.kernel
def attention(
    q: ct.Array,
    qpe: ct.Array,
    z: ct.Array,
    kpe: ct.Array,
    o: ct.Array,
    lse: ct.Array,
    scale_log2: ConstFloat,
    QUERIES: ConstInt,
    K: ConstInt,
    P: ConstInt,
    TILE_M: ConstInt,
    TILE_N: ConstInt,
    CHUNKS: ConstInt,
    CAUSAL: ConstBool,
    MASKED: ConstBool,
):
    """Grid (row tiles, b): q [b,h*s,K], qpe [b,h*s,P], z [b,t,K], kpe [b,t,P]."""
    tile_r, batch = ct.bid(0), ct.bid(1)
    keys = z.shape[1]
    zero = ct.PaddingMode.ZERO
    C = K // CHUNKS
    query: Tiles = ()
    acc: Tiles = ()
    for c in ct.static_iter(range(CHUNKS)):
        chunk = ct.load(q, (batch, tile_r, c), (1, TILE_M, C), padding_mode=zero)
        query = (*query, chunk.reshape((TILE_M, C)))
        acc = (*acc, ct.zeros((TILE_M, C), ct.float32))
    query_pe = ct.load(qpe, (batch, tile_r, 0), (1, TILE_M, P), padding_mode=zero)
    query_pe = query_pe.reshape((TILE_M, P))
    # One past the last key a row sees, bottom-right aligned. Tiles [0, full) lie below the limit
    # of every row, tiles from stop on above all of them.
    if CAUSAL:
        row = tile_r * TILE_M + ct.arange(TILE_M, dtype=ct.int32)[:, None]  # [TILE_M, 1]
        limit = row % QUERIES + (keys - QUERIES + 1)
        # A tile within one head holds queries first to last; one that crosses heads, all of them.
        first = tile_r * TILE_M % QUERIES
        last = first + TILE_M - 1
        crosses = last >= QUERIES
        first, last = ct.where(crosses, 0, first), ct.where(crosses, QUERIES - 1, last)
        full = ct.maximum(first + (keys - QUERIES + 1), 0) // TILE_N
        stop = ct.cdiv(ct.maximum(last + (keys - QUERIES + 1), 0), TILE_N)
    else:
        limit, full, stop = keys, keys // TILE_N, ct.cdiv(keys, TILE_N)

    # A finite start keeps exp2(row_max - new_max) defined for rows that see no key at all.
    row_max = ct.full((TILE_M, 1), -1e30, ct.float32)
    sums = ct.zeros((TILE_M, TILE_N), ct.float32)  # of each column; added up after the loop
    for masked in ct.static_iter((False, True) if MASKED else (False,)):
        for j in range(full if masked else 0, stop if masked else full):
            # Each chunk is key and value, has its own slots in shared memory, and is let go of
            # when its own product is done.
            latent: Tiles = ()
            for c in ct.static_iter(range(CHUNKS)):
                part = ct.load(z, (batch, j, c), (1, TILE_N, C), padding_mode=zero)
                latent = (*latent, part.reshape((TILE_N, C)))
            key_pe = ct.load(kpe, (batch, j, 0), (1, TILE_N, P), padding_mode=zero)
            key_pe = key_pe.reshape((TILE_N, P))
            score = ct.zeros((TILE_M, TILE_N), ct.float32)
            for c in ct.static_iter(range(CHUNKS)):
                score = ct.mma(query[c], latent[c].transpose(), score)
            score = ct.mma(query_pe, key_pe.transpose(), score)
            if masked:
                col = j * TILE_N + ct.arange(TILE_N, dtype=ct.int32)[None, :]  # [1, TILE_N]
                score = ct.where(col < limit, score, -float("inf"))
            new_max = ct.maximum(row_max, ct.max(score, axis=1, keepdims=True) * scale_log2)
            weight = ct.exp2(score * scale_log2 - new_max, flush_to_zero=True)
            rescale = ct.exp2(row_max - new_max, flush_to_zero=True)
            sums = sums * rescale + weight
            weight = weight.astype(z.dtype)
            moved: Tiles = ()
            for c in ct.static_iter(range(CHUNKS)):
                moved = (*moved, ct.mma(weight, latent[c], acc[c] * rescale))
            acc, row_max = moved, new_max

    row_sum = ct.sum(sums, axis=1, keepdims=True)
    empty = row_sum == 0.0
    inverse = ct.where(empty, 0.0, 1.0 / ct.where(empty, 1.0, row_sum))
    for c in ct.static_iter(range(CHUNKS)):
        out = (acc[c] * inverse).astype(o.dtype).reshape((1, TILE_M, C))
        ct.store(o, (batch, tile_r, c), out)
    log_sum = ct.where(empty, -float("inf"), (row_max + ct.log2(row_sum)) / INV_LOG_2)
    ct.store(lse, (batch, tile_r), log_sum.reshape((1, TILE_M)))
