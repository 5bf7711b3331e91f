"""FlashMLA split-KV v2: latents in chunks of columns, so that a tile arrives while one is used."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import cuda.tile as ct

from mla_var3.errors import TilingError
from mla_var3.kernel.cutile.mla.flash_mla_split_kv.common import MAX_SPLITS, ReduceTiling, SplitPlan
from mla_var3.runtime import KernelPipeline, KernelPlan, RuntimeObject, Tiling
from mla_var3.runtime.ct_kernel import INV_LOG_2, ConstBool, ConstFloat, ConstInt, CtKernel, TileMN
from mla_var3.workloads import option

if TYPE_CHECKING:
    import torch

    Tiles = tuple[Any, ...]

#: What a block costs beyond its steps, in steps of 64 keys by 576 dimensions in bf16 (72 KiB): the
#: queries it loads are as large as one step, and its pipeline has to fill.
BLOCK_STEPS = 2
#: What its partial result costs: 64 by 512 in fp32 (128 KiB), written once and read once.
PARTIAL_STEPS = 4


@dataclass(frozen=True, kw_only=True)
class SplitTiling(TileMN):
    """Rows and keys a block handles at a time, and in how many parts the latents arrive."""

    chunks: int = option(4, "parts of a tile's latent columns, each in slots of its own", minimum=1)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        width, rest = divmod(getattr(plan, "k", self.chunks), self.chunks)
        if rest or width & (width - 1):
            raise TilingError(
                f"k/chunks = {width * self.chunks + rest}/{self.chunks} is not a power of two, as "
                "the extent of a tile has to be"
            )


@dataclass(frozen=True, kw_only=True)
class Plan(SplitPlan):
    """Problem and launches of this version."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {
        "split": SplitTiling,
        "reduce": ReduceTiling,
    }

    @property
    def chunks(self) -> int:
        """Four; of latents too narrow for it, one."""
        return 4 if self.k % 64 == 0 else 1

    def default_tiling(self, stage: str) -> Tiling:
        if stage == "reduce":
            return self.reduce_tiling()
        return SplitTiling(num_worker_warps=8, chunks=self.chunks)

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        shapes = ((64, 64, None), (64, 32, None), (64, 64, 2), (128, 32, 2))
        return {
            "split": [
                SplitTiling(
                    tile_m=m, tile_n=n, num_ctas=ctas, num_worker_warps=8, chunks=self.chunks
                )
                for m, n, ctas in shapes
            ],
            "reduce": self.reduce_configs(),
        }

    def split_count(self, device: torch.device) -> int:
        """The user's, else the count whose waves of blocks take the fewest steps.

        A wave is one block an SM (tiles of this size leave room for no second). Few splits leave
        SMs idle in the last wave, many pay for their partial results.
        """
        if self.splits is not None:
            return self.splits
        tiling, sms = cast(TileMN, self.tiling("split")), self.target.sm_count
        blocks = ct.cdiv(self.h * self.s, tiling.tile_m) * self.b
        steps = ct.cdiv(self.t, tiling.tile_n)

        def duration(splits: int) -> int:
            waves = ct.cdiv(blocks * splits, sms)
            extra = BLOCK_STEPS + (PARTIAL_STEPS if splits > 1 else 0)
            return waves * (ct.cdiv(steps, splits) + extra)

        return min(range(1, min(steps, MAX_SPLITS) + 1), key=duration)

    def check_plans(self) -> list[Self]:
        """The shared problems, and causal queries over whole tiles, which need the mask as well."""
        plans = super().check_plans()
        return [*plans, dataclasses.replace(plans[0], s=2, t=128, causal=True)]

    def masked(self, tiling: SplitTiling) -> bool:
        """Whether some tile of keys needs the mask; its code is left out where none does."""
        return bool(self.t % tiling.tile_n or (self.causal and self.s > 1))

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        q, qpe, z, kpe = inputs
        o, lse = self.empty_outputs(q.device)
        splits = self.split_count(q.device)
        self.tiling("reduce")  # A tiling that makes no sense is refused even if it is not needed.
        if splits > 1:
            o_parts, lse_parts = self.partials(splits, q.device)
        else:
            o_parts, lse_parts = o.flatten(1, 2)[:, None], lse.flatten(1, 2)[:, None]
        rows = self.h * self.s
        operands = (
            *(q.flatten(1, 2), qpe.flatten(1, 2), z, kpe, o_parts, lse_parts),
            *(self.scale * INV_LOG_2, self.s, self.k, self.p),
        )
        parts = CtKernel(
            split,
            grid_fn=lambda x: (ct.cdiv(rows, x.tile_m), splits, self.b),
            args_fn=lambda x: (
                *(*operands, x.tile_m, x.tile_n, x.chunks),
                *(self.causal, self.masked(x)),
            ),
            input_tensors={"q": q, "qpe": qpe, "z": z, "kpe": kpe},
            output_tensors={"o_parts": o_parts, "lse_parts": lse_parts}
            if splits > 1
            else {"o": o, "lse": lse},
            tiling=self.tiling("split"),
            autotune_configs=self._autotune_configs()["split"],
            algorithmic_flops_bytes_fn=lambda _: (
                self.split_cost(splits) if splits > 1 else self._algorithmic_flops_bytes()
            ),
            _name="split",
        )
        stages = [parts, self.reduce(o_parts, lse_parts, o, lse)] if splits > 1 else [parts]
        return KernelPipeline(_name="flash_mla_split_kv", stages=stages)


@ct.kernel
def split(
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
    """Grid (row tiles, splits, b): q [b,h*s,K], z [b,t,K], o [b,splits,h*s,K], lse without K."""
    tile_r, split, batch = ct.bid(0), ct.bid(1), ct.bid(2)
    keys, splits = z.shape[1], o.shape[1]
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
    # The splits share the tiles [0, stop) evenly; with more splits than tiles some get none.
    begin, end = stop * split // splits, stop * (split + 1) // splits
    full = ct.minimum(ct.maximum(full, begin), end)

    # A finite start keeps exp2(row_max - new_max) defined for rows that see no key at all.
    row_max = ct.full((TILE_M, 1), -1e30, ct.float32)
    sums = ct.zeros((TILE_M, TILE_N), ct.float32)  # of each column; added up after the loop
    for masked in ct.static_iter((False, True) if MASKED else (False,)):
        for j in range(full if masked else begin, end if masked else full):
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
            # Scaling the maximum and not the scores leaves one fused multiply-add per score.
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
    # One reciprocal per row; an empty row's accumulator is 0 and stays so.
    inverse = 1.0 / ct.where(empty, 1.0, row_sum)
    for c in ct.static_iter(range(CHUNKS)):
        out = (acc[c] * inverse).astype(o.dtype).reshape((1, 1, TILE_M, C))
        ct.store(o, (batch, split, tile_r, c), out)
    log_sum = ct.where(empty, -float("inf"), (row_max + ct.log2(row_sum)) / INV_LOG_2)
    ct.store(lse, (batch, split, tile_r), log_sum.reshape((1, 1, TILE_M)))
