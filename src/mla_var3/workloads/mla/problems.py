"""MLA problems: make the inputs and reference outputs that all versions of a design share.

Symbols as in ``mla_var3.workloads.mla.costs``. The softmax scale is ``1/sqrt(d+p)``; LSE is the
natural logarithm of the sum of exponentials, in fp32. Causal is bottom-right aligned: query i of s
sees keys ``0 .. t-s+i``. A row that sees no key has O = 0 and LSE = -inf.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mla_var3.devices import Machine
from mla_var3.errors import PlanError
from mla_var3.workloads.base import (
    SEED,
    USUAL_TILE,
    Cost,
    Problem,
    Tolerance,
    option,
)
from mla_var3.workloads.mla.costs import (
    FP8_GROUP,
    MIX,
    best_new_tokens,
    best_prefix_tokens,
    flash_attention_cost,
    flash_mla_cost,
    fp8_latent_cost,
    fp8_row_bytes,
    mixed_cost,
    paged_cost,
    prefix_cost,
    seen_pairs,
    sparse_cost,
)
from mla_var3.workloads.mla.serving import LENGTHS, drawn_lengths

if TYPE_CHECKING:
    import torch

#: Largest b, h, s or t a plan accepts: above it element offsets overflow 32 bits in no useful case.
MAX_EXTENT = 1 << 24
#: Largest number of elements in one tensor; TMA and int64 strides go further, no device does.
MAX_ELEMENTS = 1 << 40
#: LSE is computed in fp32 from exact products of the same inputs; absolute, since it is a log.
LSE_TOLERANCE = 2e-3
#: A score so far from 0 that exp of it is 0 or infinite, also against a maximum or a mask of -1000
#: in log2; near enough that fp32 keeps the LSE's tolerance.
FAR = 830.0


def ramp(length: int) -> torch.Tensor:
    """From 0 to 1."""
    import torch

    return torch.linspace(0.0, 1.0, length)


def attention_reference(scores: torch.Tensor, *, causal: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax weights and LSE of scaled scores.

    Args:
        scores: ``[b, h, s, t]``, already scaled.
        causal: Bottom-right aligned causal mask.

    Returns:
        Weights ``[b, h, s, t]`` (zero rows where no key is seen) and LSE ``[b, h, s]``.
    """
    import torch

    s, t = scores.shape[-2:]
    if causal:
        query = torch.arange(s, device=scores.device)[:, None]
        key = torch.arange(t, device=scores.device)[None, :]
        scores = scores.masked_fill(key > query + (t - s), -math.inf)
    lse = torch.logsumexp(scores, dim=-1)
    weights = torch.exp(scores - lse.nan_to_num(neginf=0.0)[..., None])
    return weights, lse


Reference = Callable[..., dict[str, Any]]


def by_sequence(shared: int = 0) -> Callable[[Reference], Reference]:
    """Run a plan's reference one sequence at a time and stack what it gives.

    Only one sequence's fp32 copies then take memory, so that the largest problems that fit a GPU
    can be checked there.

    Args:
        shared: How many of the last inputs have no batch dimension.
    """

    def decorate(reference: Reference) -> Reference:
        @functools.wraps(reference)
        def run(plan: Problem, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
            import torch

            split = len(inputs) - shared
            parts = [
                reference(plan, *(x[i : i + 1] for x in inputs[:split]), *inputs[split:])
                for i in range(inputs[0].shape[0])
            ]
            return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

        return run

    return decorate


#: Of how many places of a list one names no token, where some do.
STRAY = 7
#: Values for problems made for ``check``: dimensions, and tokens that are kept in another form.
LATENTS, HEADS, OLD = (512, 128, 256), (128, 64, 32), (0, 1, 16, 65, 200, 1100, 5000)
QUERIES = (1, 2, 3, 4, 5, 7, 12, 16, 17, 30, 65, 100, 130, 300, 700)


@dataclass(frozen=True, kw_only=True)
class MlaProblem(Problem):
    """Sizes that all designs share."""

    b: int = option(64, "batch: sequences", tries=(1, 2, 3, 5, 9, 33, 130), minimum=1)
    h: int = option(
        128,
        "query heads (128; 16 to 64 after tensor parallelism)",
        tries=(1, 2, 3, 16, 17, 33, 128, 200),
        minimum=1,
    )
    s: int = option(
        1, "query tokens per sequence (1 decode, up to 127 speculative)", tries=QUERIES, minimum=1
    )
    t: int = option(
        4096,
        "context length: keys per sequence",
        tries=(1, 3, 17, 65, 130, 257, 600, 2500, 9000),
        minimum=1,
    )
    p: int = option(64, "rotary position dimension", tries=(16, 32, 64), minimum=16)
    causal: bool = option(False, "bottom-right aligned causal mask")
    #: Factor on the last of the random queries, and so on its scores, which else are near 1.
    spread: float = dataclasses.field(
        default=1.0, metadata={"hidden": True, "tries": (1.0, 1.0, 1.0, 12.0, 48.0)}
    )
    #: Added to each score of the last query; see ``FAR``.
    shift: float = dataclasses.field(
        default=0.0, metadata={"hidden": True, "tries": (0.0, 0.0, 0.0, 0.0, FAR, -FAR)}
    )
    #: By how much scores of the last query of the last head rise from the first key to the last, so
    #: that each tile has a new maximum; ``check`` sets it where tiles are many.
    rise: float = dataclasses.field(default=0.0, metadata={"hidden": True, "deep": FAR})
    #: Factor on the softmax scale: a kernel is given its scale, and has to use it.
    sharpness: float = dataclasses.field(
        default=1.0, metadata={"hidden": True, "tries": (1.0, 0.75, 1.5)}
    )

    @property
    def d_qk(self) -> int:
        """Query-key dimension that sets the softmax scale, d + p (not k + p: see absorption)."""
        return self.head_dim + self.p

    @property
    def head_dim(self) -> int:
        """d, the head dimension without the position part."""
        return 128

    def pairs(self, first: int = 0, last: int | None = None) -> int:
        """Query-key pairs of one head that the mask leaves, for keys first .. last-1."""
        return seen_pairs(self.s, self.t, self.causal, first, last)

    @property
    def scale(self) -> float:
        """Softmax scale ``1/sqrt(d+p)``, in a check also others."""
        return self.sharpness / math.sqrt(self.d_qk)

    def steps(self) -> int:
        """Of kernels that take each head by itself; others take fewer."""
        return self.b * self.h * -(-self.s // USUAL_TILE) * self._key_steps()

    def _key_steps(self) -> int:
        """Tiles of keys, of which a piece of the keys has at least one."""
        pieces = (v for n, v in self.problem().items() if n.endswith(("splits", "parts")))
        return max(-(-self.t // USUAL_TILE), *(v for v in pieces if isinstance(v, int)), 1)

    def edges(self) -> list[Self]:
        """Heads that end within tiles far on; the last row of a tile sees one key of its last.

        That key is the first of a tile of any usual length. Or a last tile lacks a single key, or
        whole tiles end in the middle of one twice as long.
        """
        cut = self._cut()
        found = [
            dataclasses.replace(self, b=1, h=5, s=130, t=259, **cut, causal=True),
            dataclasses.replace(self, b=1, h=19, s=1, t=2 * USUAL_TILE - 1, causal=False),
            dataclasses.replace(self, b=1, h=3, s=1, t=3 * USUAL_TILE, causal=False),
        ]
        return [one for one in found if one.is_valid()]

    def _cut(self) -> dict[str, Any]:
        """Where the tokens of an edge are cut, by field; nowhere, unless a problem has parts."""
        return {}

    def shared_by(self, sms: int, items: int = 1) -> Self | None:
        """Sequences of few rows, of which each multiprocessor has two tiles of keys."""
        h, tiles = min(self.h, USUAL_TILE // 4), 2 * sms // items
        return dataclasses.replace(self, b=items, h=h, s=1, t=tiles * USUAL_TILE)

    def tolerance(self, output: str) -> Tolerance:
        if output == "lse":
            return Tolerance(LSE_TOLERANCE, LSE_TOLERANCE, "absolute")
        return super().tolerance(output)

    def split_counts(self) -> dict[str, Any]:
        """Into how many pieces the user wants keys cut, by field."""
        found = {n: v for n, v in self.problem().items() if n.endswith("splits")}
        return {name: value for name, value in found.items() if isinstance(value, int)}

    def validate(self) -> None:
        super().validate()
        for name, count in self.split_counts().items():
            if count > self.t:
                raise PlanError(f"{name}={count} exceeds t={self.t}: some pieces would have no key")
        for name in ("b", "h", "s", "t"):
            if getattr(self, name) > MAX_EXTENT:
                raise PlanError(f"{name}={getattr(self, name)} exceeds {MAX_EXTENT}")
        for name in ("p", "d", "k"):
            value = getattr(self, name, None)
            if value is not None and (value & (value - 1) or value > 512):
                raise PlanError(f"{name}={value} is not a power of two from 16 to 512")
        largest = self.b * self.h * max(self.s, self.t) * 512
        if largest > MAX_ELEMENTS:
            raise PlanError(
                f"b*h*max(s,t)*512 = {self.b}*{self.h}*{max(self.s, self.t)}*512 = {largest} "
                f"elements, more than {MAX_ELEMENTS}"
            )

    def check_plans(self) -> list[Self]:
        """Decode, speculative and prefill; ragged t; both masks, head counts and dtypes."""
        rows: list[tuple[int, int, int, int, bool, str, float, float]] = [
            # b, h, s, t, causal, dtype, spread, shift
            (2, 16, 1, 200, False, "bf16", 1.0, FAR),
            (1, 128, 1, 77, True, "fp16", 1.0, 0.0),
            # exp overflows unless each row's maximum goes off
            (2, 16, 2, 130, True, "bf16", 48.0, 0.0),
            (1, 16, 5, 250, False, "fp16", 1.0, 0.0),
            (1, 16, 5, 67, True, "bf16", 1.0, -FAR),
            (1, 2, 5, 2112, False, "bf16", 1.0, 0.0),  # rounding in the running sums adds up
            (1, 3, 130, 193, True, "fp16", 1.0, 0.0),
            # heads that fill no whole group of 16; tiles that reach one row into the next head
            (1, 17, 127, 150, True, "bf16", 1.0, 0.0),
            (1, 16, 5, 3, True, "bf16", 1.0, 0.0),  # rows that see no key
        ]
        names = ("b", "h", "s", "t", "causal", "dtype", "spread", "shift")
        fields: list[dict[str, Any]] = [dict(zip(names, row, strict=True)) for row in rows]
        return [dataclasses.replace(self, **given) for given in fields]

    def extreme(self) -> str:
        if self.shift:
            return f"scores near {self.shift:g}"
        if self.rise:
            return f"scores that rise by {self.rise:g}"
        return f"scores spread {self.spread:g}-fold" if self.spread != 1.0 else ""

    def shrunk(self) -> Self:
        """The same problem small enough to interpret in about a second; t stays ragged.

        Prefill (s of 128 and more) stays prefill, with fewer heads, and s = t stays so.
        """
        heads, queries = (2, 200) if self.s >= 128 else (16, 16)
        t = min(self.t, 200)
        splits = {name: min(count, t) for name, count in self.split_counts().items()}
        return dataclasses.replace(
            self, b=1, h=min(self.h, heads), s=min(self.s, queries), t=t, **splits
        )

    def _spread(self, *queries: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if self.spread != 1.0 and not queries[0].is_meta:
            for x in queries:
                x[:, :, -1] *= self.spread  # [b, h, s, *]
        return queries

    def _shifted(self, qpe: torch.Tensor, kpe: torch.Tensor) -> torch.Tensor:
        """``kpe`` [b,t,p], which with the last query of ``qpe`` [b,h,s,p] adds shift and rise."""
        if self.shift and not qpe.is_meta:
            kpe[..., 0] = 1.0
            qpe[:, :, -1, 0] = self.shift / self.scale
        if self.rise and not qpe.is_meta:
            kpe[..., 1] = ramp(kpe.shape[-2])
            qpe[:, -1, -1, 1] = self.rise / self.scale
        return kpe


def _heads_first(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2)  # [b, t, h, d] -> [b, h, t, d]


@dataclass(frozen=True, kw_only=True)
class LatentProblem(MlaProblem):
    """Absorbed attention over the latent cache (flash_mla and its split form).

    Inputs: q ``[b,h,s,k]``, qpe ``[b,h,s,p]``, z ``[b,t,k]``, kpe ``[b,t,p]``.
    Outputs: o ``[b,h,s,k]`` in the plan's dtype, lse ``[b,h,s]`` in fp32.
    """

    covers: ClassVar[str] = (
        "attention up to the latent output, which the caller still multiplies with Wv"
    )

    k: int = option(512, "latent (compressed) dimension", tries=LATENTS, minimum=16)

    def steps(self) -> int:
        return self.b * -(-self.h * self.s // USUAL_TILE) * self._key_steps()

    def prepare_inputs(self, device: str | torch.device = "cpu") -> tuple[torch.Tensor, ...]:
        b, h, s, t, k, p = self.b, self.h, self.s, self.t, self.k, self.p
        q, qpe, z, kpe = self.random(device, (b, h, s, k), (b, h, s, p), (b, t, k), (b, t, p))
        # Absorbed queries have about 1/sqrt(d) of the latent norm each; this keeps scores near 1.
        queries = self._spread(self.scaled(q, (self.d_qk / (k + p)) ** 0.5), qpe)
        return self.rounded(*queries, z, self._shifted(qpe, kpe))

    @by_sequence()
    def reference_fn(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        import torch

        q, qpe, z, kpe = (x.float() for x in inputs)
        scores = torch.einsum("bhsk,btk->bhst", q, z) + torch.einsum("bhsp,btp->bhst", qpe, kpe)
        weights, lse = attention_reference(scores * self.scale, causal=self.causal)
        return {"o": torch.einsum("bhst,btk->bhsk", weights, z), "lse": lse}

    def empty_outputs(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Uninitialized o and lse."""
        rows = (self.b, self.h, self.s)
        return self.empty(*rows, self.k, device=device), self.empty(*rows, device=device, fp32=True)

    def _algorithmic_flops_bytes(self, tiling: Any = None) -> Cost:
        return flash_mla_cost(
            self.b, self.h, self.s, self.t, self.k, self.p, self.element_bytes, self.pairs()
        )


@dataclass(frozen=True, kw_only=True)
class PagedLatentProblem(LatentProblem):
    """Absorbed attention over a cache in pages, of sequences that may be of unequal lengths.

    Inputs: q ``[b,s,h,k]``, qpe ``[b,s,h,p]``, z ``[pages,page,k]``, kpe ``[pages,page,p]``, which
    are views of rows of k+p, the pages of each sequence ``[b,n]`` and its keys ``[b]``, both in
    int32. Outputs: o ``[b,s,h,k]`` in the plan's dtype, lse ``[b,h,s]`` in fp32.

    Without ``page`` a sequence is one page.
    """

    page: int | None = option(
        None,
        "keys of a page, pages in random order; by default a sequence is one page",
        tries=(None, 64, 16, 1, 128),
        minimum=1,
    )
    lengths: str | None = option(
        None,
        "lengths of the sequences: ragged, or one ten times the rest; by default all t",
        tries=(None, "ragged", "one"),
    )
    #: Whether every third sequence has no keys, from the second on.
    absent: bool = dataclasses.field(
        default=False, metadata={"hidden": True, "tries": (False, True)}
    )
    #: Whether the table names, past a sequence's pages, one that holds no token.
    spare: bool = dataclasses.field(
        default=False, metadata={"hidden": True, "tries": (False, True)}
    )

    def validate(self) -> None:
        super().validate()
        if self.lengths is not None and self.lengths not in LENGTHS:
            raise PlanError(f"lengths={self.lengths!r} is not one of {', '.join(LENGTHS)}")

    def edges(self) -> list[Self]:
        """Pages of three tiles too, so that steps of two tiles end within pages."""
        page, t = 3 * USUAL_TILE, 7 * USUAL_TILE + 2
        cut = dataclasses.replace(self, b=2, h=3, s=1, t=t, page=page, causal=False)
        return super().edges() + [one for one in (cut,) if one.is_valid()]

    def drawn(self) -> list[int]:
        """Keys of each sequence."""
        found = drawn_lengths(self.b, self.t, self.lengths or "equal")
        return [0 if self.absent and i % 3 == 1 else keys for i, keys in enumerate(found)]

    def prepare_inputs(self, device: str | torch.device = "cpu") -> tuple[torch.Tensor, ...]:
        import torch

        keys = self.drawn()
        page = self.page or max(keys)
        counts = [-(-n // page) for n in keys]
        width, split = self.k + self.p, (self.k, self.p)
        pages = sum(counts) + self.spare
        q, cache = self.random(device, (self.b, self.s, self.h, width), (pages, page, width))
        q, cache = self.rounded(q, cache)
        order = torch.arange(sum(counts), dtype=torch.int32)
        if self.page is not None:  # A page may be anywhere.
            order = order[torch.randperm(len(order), generator=torch.Generator().manual_seed(SEED))]
        past = sum(counts) if self.spare else 0
        table = torch.full((self.b, max(counts) + self.spare), past, dtype=torch.int32)
        for row, count, part in zip(table, counts, order.split(counts), strict=True):
            row[:count] = part
        lengths = torch.tensor(keys, dtype=torch.int32)
        if not q.is_meta:
            self._at_extremes(q, cache)
            self._unwritten(cache, table, keys)
            cache[sum(counts) :] = math.nan
        return *q.split(split, -1), *cache.split(split, -1), table.to(device), lengths.to(device)

    @staticmethod
    def _unwritten(cache: torch.Tensor, table: torch.Tensor, keys: list[int]) -> None:
        """No token was ever written to what is left of a sequence's last page."""
        page = cache.shape[1]
        for row, count in zip(table, keys, strict=True):
            if count % page:
                cache[int(row[count // page]), count % page :] = math.nan

    def _at_extremes(self, q: torch.Tensor, cache: torch.Tensor) -> None:
        """Scale queries, and spread and shift the scores of the last one."""
        q[..., : self.k] *= (self.d_qk / (self.k + self.p)) ** 0.5
        q[:, -1] *= self.spread
        if self.shift:
            cache[..., self.k] = 1.0
            q[:, -1, :, self.k] = self.shift / self.scale
        if self.rise:  # within each page, whose order is any
            cache[..., self.k + 1] = ramp(cache.shape[-2])
            q[:, -1, -1, self.k + 1] = self.rise / self.scale

    def reference_fn(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        import torch

        q, qpe, z, kpe, table, lengths = inputs
        found = []
        for i, keys in enumerate(lengths.tolist()):
            pages = table[i, : -(-keys // z.shape[1])].long()
            own = [x[pages].flatten(0, 1)[None, :keys] for x in (z, kpe)]
            queries = [x[i : i + 1].transpose(1, 2) for x in (q, qpe)]
            found.append(super().reference_fn(*queries, *own))
        return {
            "o": torch.cat([one["o"].transpose(1, 2) for one in found]),
            "lse": torch.cat([one["lse"] for one in found]),
        }

    def empty_outputs(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Uninitialized o and lse."""
        o = self.empty(self.b, self.s, self.h, self.k, device=device)
        return o, self.empty(self.b, self.h, self.s, device=device, fp32=True)

    def _algorithmic_flops_bytes(self, tiling: Any = None) -> Cost:
        keys = self.drawn()
        return paged_cost(
            self.h, self.s, keys, self.k, self.p, self.element_bytes,
            sum(seen_pairs(self.s, n, self.causal) for n in keys),
        )  # fmt: skip


def fp8_rows(z: torch.Tensor, kpe: torch.Tensor, *, powers: bool = False) -> torch.Tensor:
    """Latents ``[b,t,k]`` and rotary parts ``[b,t,p]`` as rows of bytes ``[b,t,row]``.

    A row holds k values in e4m3, an fp32 scale for every 128 of them, and the rotary part as it is:
    656 bytes with the usual sizes, FlashMLA's layout.

    Args:
        z: Latents.
        kpe: Rotary parts.
        powers: Whether scales are powers of two, by which 16 bits hold each value times its scale.
    """
    import torch

    groups = z.float().unflatten(-1, (-1, FP8_GROUP))
    largest = torch.finfo(torch.float8_e4m3fn).max
    scale = groups.abs().amax(-1).clamp_min(torch.finfo(torch.float32).tiny) / largest
    scale = scale.log2().ceil().exp2() if powers else scale
    values = (groups / scale[..., None]).to(torch.float8_e4m3fn).flatten(-2)
    return torch.cat([x.view(torch.uint8) for x in (values, scale, kpe.contiguous())], dim=-1)


@dataclass(frozen=True, kw_only=True)
class Fp8LatentProblem(LatentProblem):
    """Absorbed attention over a latent cache in fp8, as rows of bytes (``fp8_rows``).

    Inputs: q ``[b,h,s,k]``, qpe ``[b,h,s,p]``, cache ``[b,t,row]`` in bytes. Outputs as those of
    ``LatentProblem``. The cache stands for value times scale, rounded to the problem's dtype: what
    fp8 itself costs against the latents that were packed is not an error of a kernel.
    """

    covers: ClassVar[str] = (
        "attention up to the latent output over a cache in fp8; the caller multiplies with Wv"
    )
    smaller: ClassVar[bool] = True

    def validate(self) -> None:
        super().validate()
        if self.k % FP8_GROUP:
            raise PlanError(f"k={self.k} is not a multiple of the {FP8_GROUP} values of a scale")

    def prepare_inputs(self, device: str | torch.device = "cpu") -> tuple[torch.Tensor, ...]:
        import torch

        q, qpe, z, kpe = super().prepare_inputs(device)
        if z.is_meta:
            width = fp8_row_bytes(self.k, self.p, self.element_bytes)
            rows = torch.empty(self.b, self.t, width, dtype=torch.uint8, device="meta")
        else:
            rows = fp8_rows(z, kpe)
        return q, qpe, rows

    def parts(self, cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Views of the rows: values ``[b,t,k]``, scales ``[b,t,k/128]``, rotary ``[b,t,p]``."""
        import torch

        end = self.k + 4 * (self.k // FP8_GROUP)
        return (
            cache[..., : self.k].view(torch.float8_e4m3fn),
            cache[..., self.k : end].view(torch.float32),
            cache[..., end:].view(self.torch_dtype),
        )

    def reference_fn(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        q, qpe, cache = inputs
        values, scales, kpe = self.parts(cache)
        z = (values.float() * scales.repeat_interleave(FP8_GROUP, -1)).to(q.dtype)
        return super().reference_fn(q, qpe, z, kpe)

    def _algorithmic_flops_bytes(self, tiling: Any = None) -> Cost:
        return fp8_latent_cost(
            self.b, self.h, self.s, self.t, self.k, self.p, self.element_bytes, self.pairs()
        )


@dataclass(frozen=True, kw_only=True)
class SparseLatentProblem(MlaProblem):
    """Absorbed attention of each query token over its own list of tokens of a cache in fp8.

    Inputs: q ``[b*s,1,h,k]``, qpe ``[b*s,1,h,p]``, cache ``[pages,64,row]`` in bytes
    (``fp8_rows``), the tokens of each list ``[b*s,topk]``, -1 where there is none, and how many of
    the list count ``[b*s]``, both in int32. Outputs: o ``[b*s,1,h,k]`` in the plan's dtype, lse
    ``[b*s,h,1]`` in fp32. As with ``Fp8LatentProblem`` the cache stands for value times scale.
    """

    covers: ClassVar[str] = (
        "attention up to the latent output over chosen tokens of a cache in fp8; the caller "
        "multiplies with Wv"
    )
    smaller: ClassVar[bool] = True

    k: int = option(512, "latent (compressed) dimension", minimum=16)
    topk: int = option(
        2048, "tokens that a query token attends to", tries=(1, 3, 64, 128, 200, 500), minimum=1
    )
    #: Whether lists name tokens twice, which then count twice.
    repeated: bool = dataclasses.field(
        default=False, metadata={"hidden": True, "tries": (False, True)}
    )
    #: Whether lists end early, each elsewhere, with other tokens behind their ends.
    ending: bool = dataclasses.field(
        default=False, metadata={"hidden": True, "tries": (False, True)}
    )
    #: Whether some places name a token past the end of the cache, and so none.
    stray: bool = dataclasses.field(default=False, metadata={"hidden": True, "deep": True})

    def validate(self) -> None:
        super().validate()
        if self.k % FP8_GROUP:
            raise PlanError(f"k={self.k} is not a multiple of the {FP8_GROUP} values of a scale")
        if self.causal:
            raise PlanError("causal=True: a list names the tokens that its query sees")

    def steps(self) -> int:
        """Every query token has a list of its own, which all of its heads read."""
        lists = self.b * self.s * -(-self.h // USUAL_TILE)
        return lists * -(-self.topk // USUAL_TILE)

    def shared_by(self, sms: int, items: int = 1) -> Self | None:
        """Lists as long as their sequences."""
        found = super().shared_by(sms, items)
        return found and dataclasses.replace(found, topk=found.t)

    def check_plans(self) -> list[Self]:
        """Lists longer and shorter than a tile and than what there is; both head counts."""
        rows = [(2, 64, 1, 300, 200), (1, 128, 2, 70, 128), (1, 64, 1, 5, 64), (2, 16, 1, 90, 3)]
        return [
            dataclasses.replace(self, b=b, h=h, s=s, t=t, topk=topk, causal=False, dtype="bf16")
            for b, h, s, t, topk in rows
        ]

    def shrunk(self) -> Self:
        small = super().shrunk()
        return dataclasses.replace(small, topk=min(self.topk, 128))

    def prepare_inputs(self, device: str | torch.device = "cpu") -> tuple[torch.Tensor, ...]:
        import torch

        n, width, page = self.b * self.s, self.k + self.p, 64
        pages = -(-self.b * self.t // page)
        q, tokens = self.random(device, (n, 1, self.h, width), (pages, page, width))
        if q.is_meta:
            row = fp8_row_bytes(self.k, self.p, 2)
            cache = torch.empty(pages, page, row, dtype=torch.uint8, device="meta")
        else:
            q[..., : self.k] *= (self.d_qk / width) ** 0.5
            q[-1] *= self.spread
            if self.shift:
                q[-1, ..., self.k] = self.shift / self.scale
                tokens[..., self.k] = 1.0
            if self.rise:  # within each page
                q[-1, ..., self.k + 1] = self.rise / self.scale
                tokens[..., self.k + 1] = ramp(page)
            # Kernels may round scales to 16 bits, which scores show the more the larger they are.
            powers = self.spread != 1.0
            cache = fp8_rows(*tokens.split((self.k, self.p), -1), powers=powers)
        draw = torch.Generator().manual_seed(SEED)
        chosen = torch.full((n, self.topk), -1, dtype=torch.int32)
        for i, row in enumerate(chosen):
            own = torch.randperm(self.t, generator=draw)[: self.topk] + i // self.s * self.t
            if self.repeated:
                own[1::2] = own[: len(own) // 2]
            places = torch.randperm(self.topk, generator=draw)[: len(own)]
            row[places] = own.to(torch.int32)
        if self.stray:
            chosen[:, ::STRAY] = pages * page
        lengths = torch.full((n,), self.topk, dtype=torch.int32)
        if self.ending:
            lengths = torch.randint(self.topk + 1, (n,), generator=draw, dtype=torch.int32)
        return *q.split((self.k, self.p), -1), cache, chosen.to(device), lengths.to(device)

    def reference_fn(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        import torch

        q, qpe, cache, chosen, lengths = inputs
        end = self.k + 4 * (self.k // FP8_GROUP)
        o = torch.zeros(q.shape, device=q.device)
        lse = torch.full((len(q), self.h, 1), -math.inf, device=q.device)
        for i, (tokens, length) in enumerate(zip(chosen, lengths.tolist(), strict=True)):
            listed, known = tokens[:length].long(), cache.flatten(0, 1)
            rows = known[listed[(listed >= 0) & (listed < len(known))]]
            if not len(rows):
                continue
            scales = rows[:, self.k : end].contiguous().view(torch.float32)
            values = rows[:, : self.k].contiguous().view(torch.float8_e4m3fn).float()
            z = values * scales.repeat_interleave(FP8_GROUP, -1)
            kpe = rows[:, end:].contiguous().view(q.dtype).float()
            scores = (q[i, 0].float() @ z.T + qpe[i, 0].float() @ kpe.T) * self.scale
            lse[i, :, 0] = scores.logsumexp(-1)
            o[i, 0] = scores.softmax(-1) @ z
        return {"o": o, "lse": lse}

    def empty_outputs(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Uninitialized o and lse."""
        n = self.b * self.s
        o = self.empty(n, 1, self.h, self.k, device=device)
        return o, self.empty(n, self.h, 1, device=device, fp32=True)

    def _algorithmic_flops_bytes(self, tiling: Any = None) -> Cost:
        return sparse_cost(self.b, self.h, self.s, min(self.t, self.topk), self.k, self.p, 2)


@dataclass(frozen=True, kw_only=True)
class DecompressedProblem(MlaProblem):
    """Multi-head attention over decompressed keys and values (flash_attention).

    Inputs: q ``[b,h,s,d]``, qpe ``[b,h,s,p]``, key ``[b,t,h,d]``, value ``[b,t,h,d]``,
    kpe ``[b,t,p]``. Outputs: o ``[b,h,s,d]``, lse ``[b,h,s]`` in fp32.
    """

    covers: ClassVar[str] = "attention over keys and values that were all decompressed beforehand"

    d: int = option(128, "head dimension without the position part", tries=HEADS, minimum=16)

    @property
    def head_dim(self) -> int:
        return self.d

    def prepare_inputs(self, device: str | torch.device = "cpu") -> tuple[torch.Tensor, ...]:
        b, h, s, t, d, p = self.b, self.h, self.s, self.t, self.d, self.p
        q, qpe, key, value, kpe = self.random(
            device, (b, h, s, d), (b, h, s, p), (b, t, h, d), (b, t, h, d), (b, t, p)
        )
        return *self._spread(q, qpe), key, value, self._shifted(qpe, kpe)

    @by_sequence()
    def reference_fn(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        import torch

        q, qpe, key, value, kpe = (x.float() for x in inputs)
        scores = torch.einsum("bhsd,bhtd->bhst", q, _heads_first(key))
        scores = scores + torch.einsum("bhsp,btp->bhst", qpe, kpe)
        weights, lse = attention_reference(scores * self.scale, causal=self.causal)
        return {"o": torch.einsum("bhst,bhtd->bhsd", weights, _heads_first(value)), "lse": lse}

    def empty_outputs(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Uninitialized o and lse."""
        rows = (self.b, self.h, self.s)
        return self.empty(*rows, self.d, device=device), self.empty(*rows, device=device, fp32=True)

    def _algorithmic_flops_bytes(self, tiling: Any = None) -> Cost:
        return flash_attention_cost(
            self.b, self.h, self.s, self.t, self.d, self.p, self.element_bytes, self.pairs()
        )


@dataclass(frozen=True, kw_only=True)
class MixedProblem(MlaProblem):
    """MLA-var6+: old tokens in the latent space, the n newest decompressed, then one combine.

    Inputs: q ``[b,h,s,d]``, q_latent ``[b,h,s,k]``, qpe ``[b,h,s,p]``, z ``[b,o,k]``,
    kpe ``[b,t,p]``, key ``[b,n,h,d]``, value ``[b,n,h,d]``, wv ``[h,k,d]``, with o = t - n.
    Outputs: o ``[b,h,s,d]``, lse ``[b,h,s]`` in fp32. When n = 0 (or n = t) the tensors of the
    missing part have one token that no query sees, since an array cannot be empty.
    """

    covers: ClassVar[str] = (
        "the product with Wv as well, given the newest keys and values decompressed"
    )

    s: int = option(
        16, "query tokens per sequence (1 decode, up to 127 speculative)", tries=QUERIES, minimum=1
    )
    d: int = option(128, "head dimension without the position part", tries=HEADS, minimum=16)
    k: int = option(512, "latent (compressed) dimension", tries=LATENTS, minimum=16)
    n: int | None = option(
        None,
        "newest tokens kept decompressed, 0 to t; by default the cost model's best",
        tries=OLD,
        minimum=0,
    )

    @property
    def head_dim(self) -> int:
        return self.d

    def _tries(self, field: dataclasses.Field[Any]) -> Sequence[Any]:
        # The plans of its parts work out the scale themselves.
        return () if field.name == "sharpness" else super()._tries(field)

    def _cut(self) -> dict[str, Any]:
        return {"n": 100}

    def _fitted(self, values: dict[str, Any]) -> dict[str, Any]:
        n, t = (values.get(name, getattr(self, name)) for name in ("n", "t"))
        return values if n is None else values | {"n": min(n, t)}

    @property
    def new_tokens(self) -> int:
        """n; PlanError when it is still open."""
        if self.n is None:
            raise PlanError("n is open: resolve the problem for a device, or pass --n")
        return self.n

    @property
    def old_tokens(self) -> int:
        """The latent tokens, o = t - n."""
        return self.t - self.new_tokens

    def validate(self) -> None:
        super().validate()
        if self.n is not None and self.n > self.t:
            raise PlanError(f"n={self.n} exceeds t={self.t}")

    def resolve(self, machine: Machine) -> Self:
        resolved = super().resolve(machine)
        if self.n is not None:
            return resolved
        n = best_new_tokens(
            self.b, self.h, self.s, self.t, self.d, self.k, self.p, self.element_bytes,
            machine.rates,
        )  # fmt: skip
        return dataclasses.replace(resolved, n=n)

    def prepare_inputs(self, device: str | torch.device = "cpu") -> tuple[torch.Tensor, ...]:
        b, h, s, t, d, k, p = self.b, self.h, self.s, self.t, self.d, self.k, self.p
        old, new = max(self.old_tokens, 1), max(self.new_tokens, 1)
        q, q_latent, qpe, z, kpe, key, value, wv = self.random(
            device, (b, h, s, d), (b, h, s, k), (b, h, s, p), (b, old, k), (b, t, p),
            (b, new, h, d), (b, new, h, d), (h, k, d),
        )  # fmt: skip
        q_latent = self.scaled(q_latent, (self.d_qk / (k + p)) ** 0.5)
        queries = self._spread(q, q_latent, qpe)
        return *queries, z, self._shifted(qpe, kpe), key, value, self.scaled(wv, k**-0.5)

    @by_sequence(shared=1)
    def reference_fn(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        import torch

        q, q_latent, qpe, z, kpe, key, value, wv = (x.float() for x in inputs)
        old, new = self.old_tokens, self.new_tokens
        z, key, value = z[:, :old], key[:, :new], value[:, :new]
        scores = torch.cat(
            [
                torch.einsum("bhsk,btk->bhst", q_latent, z),
                torch.einsum("bhsd,bhtd->bhst", q, _heads_first(key)),
            ],
            dim=-1,
        ) + torch.einsum("bhsp,btp->bhst", qpe, kpe)
        weights, lse = attention_reference(scores * self.scale, causal=self.causal)
        latent = torch.einsum("bhst,btk->bhsk", weights[..., :old], z)
        o = torch.einsum("bhsk,hkd->bhsd", latent, wv)
        o = o + torch.einsum("bhst,bhtd->bhsd", weights[..., old:], _heads_first(value))
        return {"o": o, "lse": lse}

    def shrunk(self) -> Self:
        small = dataclasses.replace(self, n=None) if self.n is not None else self
        small = super(MixedProblem, small).shrunk()
        return dataclasses.replace(small, n=round(small.t * self.new_tokens / self.t))

    def check_plans(self) -> list[Self]:
        fractions = (0.5, 0.0, 1.0, 0.3, 0.7, 0.1, 0.6, 0.1, 0.5)
        return [
            dataclasses.replace(plan, n=round(plan.t * fraction))
            for plan, fraction in zip(super().check_plans(), fractions, strict=True)
        ]

    def least_costs(self) -> list[Cost]:
        """Work at every n, by tiles of keys: n is how a kernel works, not what it computes."""
        mixes = (dataclasses.replace(self, n=n) for n in (*range(0, self.t, MIX), self.t))
        return [mix._algorithmic_flops_bytes() for mix in mixes]

    def _algorithmic_flops_bytes(self, tiling: Any = None) -> Cost:
        """Work of both paths and of the product with Wv; partial outputs are not counted."""
        paths = self.paths_cost()
        b, h, s, d, k = self.b, self.h, self.s, self.d, self.k
        partials = b * h * s * (d + k)
        decompress = 2 * b * h * s * k * d if self.old_tokens else 0
        weights = h * k * d if self.old_tokens else 0
        moved = self.element_bytes * (weights + b * h * s * d - partials)
        return Cost(paths.flops + decompress, paths.bytes + moved)

    def paths_cost(self) -> Cost:
        """The two paths up to their partial outputs, which the choice of n weighs."""
        return mixed_cost(
            self.b, self.h, self.s, self.t, self.new_tokens, self.d, self.k, self.p,
            self.element_bytes, (self.pairs(last=self.old_tokens), self.pairs(self.old_tokens)),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SharedPrefixProblem(MlaProblem):
    """Sequences that begin alike: a decompressed prefix for a whole group, the rest latent.

    Neighboring sequences form ``groups`` groups of equal size g = b / groups. The first
    ``prefix`` of the ``shared`` tokens are decompressed, once per group; a sequence keeps its other
    o = t - prefix tokens latent.

    Inputs: q ``[b,h,s,d]``, q_latent ``[b,h,s,k]``, qpe ``[b,h,s,p]``, z ``[b,o,k]``,
    kpe ``[b,o,p]``, key and value ``[groups,prefix,h,d]``, prefix_pe ``[groups,prefix,p]``,
    wv ``[h,k,d]``. Outputs: o ``[b,h,s,d]``, lse ``[b,h,s]`` in fp32. Where one part has no token,
    its tensors have one that no query sees, since an array cannot be empty.
    """

    covers: ClassVar[str] = (
        "the product with Wv as well, given keys and values of the shared prefix decompressed"
    )

    shared: int | None = option(
        None, "first tokens common to a group; by default three quarters of t", tries=OLD, minimum=0
    )
    groups: int = option(
        1,
        "groups of neighboring sequences, each with its own prefix",
        tries=(1, 2, 3, 7),
        minimum=1,
    )
    d: int = option(128, "head dimension without the position part", tries=HEADS, minimum=16)
    k: int = option(512, "latent (compressed) dimension", tries=LATENTS, minimum=16)
    prefix: int | None = option(
        None,
        "shared tokens kept decompressed; by default the cost model's best",
        tries=OLD,
        minimum=0,
    )

    @property
    def head_dim(self) -> int:
        return self.d

    def _cut(self) -> dict[str, Any]:
        return {"groups": 1, "shared": 100, "prefix": 70}

    def _fitted(self, values: dict[str, Any]) -> dict[str, Any]:
        names = ("s", "t", "causal", "shared", "prefix")
        s, t, causal, shared, prefix = (values.get(x, getattr(self, x)) for x in names)
        if "groups" in values:  # Groups are of equal size.
            b, groups = values.get("b", self.b), values["groups"]
            values = values | {"b": -(-b // groups) * groups}
        if shared is None or prefix is None:
            return values
        shared = max(min(shared, t - (s if causal else 0)), 0)
        return values | {"shared": shared, "prefix": min(prefix, shared)}

    @property
    def shared_tokens(self) -> int:
        """``shared``, or what it is by default; a query never lies in the prefix it sees."""
        if self.shared is not None:
            return self.shared
        return max(min(self.t * 3 // 4, self.t - self.s if self.causal else self.t), 0)

    @property
    def prefix_tokens(self) -> int:
        """The decompressed tokens; PlanError while they are open."""
        if self.prefix is None:
            raise PlanError("prefix is open: resolve the problem for a device, or pass --prefix")
        return self.prefix

    @property
    def own_tokens(self) -> int:
        """The latent tokens of each sequence, o = t - prefix."""
        return self.t - self.prefix_tokens

    @property
    def group_size(self) -> int:
        """Sequences of a group."""
        return self.b // self.groups

    def validate(self) -> None:
        super().validate()
        if self.shared_tokens > self.t:
            raise PlanError(f"shared={self.shared} exceeds t={self.t}")
        if self.prefix is not None and self.prefix > self.shared_tokens:
            raise PlanError(f"prefix={self.prefix} exceeds shared={self.shared_tokens}")
        if self.b % self.groups:
            raise PlanError(f"b={self.b} is not a multiple of groups={self.groups}")
        if self.causal and self.s > self.t - self.shared_tokens:
            raise PlanError(
                f"causal: s={self.s} query tokens exceed the t-shared = {self.t}-"
                f"{self.shared_tokens} = {self.t - self.shared_tokens} own tokens"
            )

    def resolve(self, machine: Machine) -> Self:
        resolved = dataclasses.replace(super().resolve(machine), shared=self.shared_tokens)
        if self.prefix is not None:
            return resolved
        prefix = best_prefix_tokens(
            self.b, self.h, self.s, self.t, self.shared_tokens, self.d, self.k, self.p,
            self.element_bytes, machine.rates, self.groups,
        )  # fmt: skip
        return dataclasses.replace(resolved, prefix=prefix)

    def prepare_inputs(self, device: str | torch.device = "cpu") -> tuple[torch.Tensor, ...]:
        b, h, s, d, k, p = self.b, self.h, self.s, self.d, self.k, self.p
        own, prefix = max(self.own_tokens, 1), max(self.prefix_tokens, 1)
        q, q_latent, qpe, z, kpe, key, value, prefix_pe, wv = self.random(
            device, (b, h, s, d), (b, h, s, k), (b, h, s, p), (b, own, k), (b, own, p),
            (self.groups, prefix, h, d), (self.groups, prefix, h, d), (self.groups, prefix, p),
            (h, k, d),
        )  # fmt: skip
        q_latent = self.scaled(q_latent, (self.d_qk / (k + p)) ** 0.5)
        queries = self._spread(q, q_latent, qpe)
        if self.shift and not kpe.is_meta:
            prefix_pe[..., 0] = 1.0
        kpe = self._shifted(qpe, kpe)
        return *queries, z, kpe, key, value, prefix_pe, self.scaled(wv, k**-0.5)

    def reference_fn(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        import torch

        *own, key, value, prefix_pe, wv = inputs
        by_group = [x.split(self.group_size) for x in own]
        parts = [
            self._group_reference(*(x[i] for x in by_group), key[i], value[i], prefix_pe[i], wv)
            for i in range(self.groups)
        ]
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    @by_sequence(shared=4)
    def _group_reference(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        import torch

        q, q_latent, qpe, z, kpe, key, value, prefix_pe, wv = (x.float() for x in inputs)
        first, own = self.prefix_tokens, self.own_tokens
        z, kpe, key, value = z[:, :own], kpe[:, :own], key[:first], value[:first]
        plain = torch.einsum("bhsd,nhd->bhsn", q, key)
        plain = plain + torch.einsum("bhsp,np->bhsn", qpe, prefix_pe[:first])
        latent = torch.einsum("bhsk,btk->bhst", q_latent, z)
        latent = latent + torch.einsum("bhsp,btp->bhst", qpe, kpe)
        scores = torch.cat([plain, latent], dim=-1) * self.scale
        weights, lse = attention_reference(scores, causal=self.causal)
        mixed = torch.einsum("bhst,btk->bhsk", weights[..., first:], z)
        o = torch.einsum("bhsk,hkd->bhsd", mixed, wv)
        return {"o": o + torch.einsum("bhsn,nhd->bhsd", weights[..., :first], value), "lse": lse}

    def shrunk(self) -> Self:
        small = dataclasses.replace(self, groups=1, shared=None, prefix=None)
        small = super(SharedPrefixProblem, small).shrunk()
        # Two sequences at least, since one shares nothing.
        groups, share = min(self.groups, 2), small.t / self.t
        shared = round(self.shared_tokens * share)
        if self.causal:
            shared = min(shared, max(small.t - small.s, 0))
        prefix = min(round(self.prefix_tokens * share), shared)
        return dataclasses.replace(small, b=2 * groups, groups=groups, shared=shared, prefix=prefix)

    def check_plans(self) -> list[Self]:
        """Every kind of prefix: none, all, ragged, partly latent, one group or several."""
        rows: list[tuple[Any, ...]] = [
            # b, groups, h, s, t, shared, prefix, causal, dtype, spread
            (3, 1, 16, 1, 200, 130, 130, False, "bf16", 1.0),
            (4, 2, 16, 1, 77, 50, 50, True, "fp16", 1.0),
            (2, 1, 16, 2, 130, 67, 67, True, "bf16", 48.0),  # exp overflows without the maximum
            (2, 2, 16, 5, 256, 256, 256, False, "fp16", 1.0),  # no own token
            (2, 1, 16, 5, 67, 40, 0, True, "bf16", 1.0),  # all latent
            (6, 2, 4, 3, 300, 200, 129, False, "bf16", 1.0),  # a tile of sequences that ends early
            (1, 1, 2, 130, 300, 170, 170, True, "bf16", 1.0),  # more queries than a tile holds
        ]
        return [
            dataclasses.replace(
                self, b=b, groups=groups, h=h, s=s, t=t, shared=shared, prefix=prefix,
                causal=causal, dtype=dtype, spread=spread,
            )
            for b, groups, h, s, t, shared, prefix, causal, dtype, spread in rows
        ]  # fmt: skip

    def least_costs(self) -> list[Cost]:
        """Work at every prefix, by tiles of keys: what is decompressed is how a kernel works."""
        shared = self.shared_tokens
        mixes = (dataclasses.replace(self, prefix=n) for n in (*range(0, shared, MIX), shared))
        return [mix._algorithmic_flops_bytes() for mix in mixes]

    def own_pairs(self) -> int:
        """Query-key pairs of one head over the latent tokens."""
        return self.pairs(self.prefix_tokens)

    def _algorithmic_flops_bytes(self, tiling: Any = None) -> Cost:
        """Work of both parts and of the product with Wv; partial outputs are not counted."""
        b, h, s, d, k = self.b, self.h, self.s, self.d, self.k
        paths = self.prefix_part() + self.own_part()
        rows, own = b * h * s, bool(self.own_tokens)
        partials = rows * (d * bool(self.prefix_tokens) + k * own)
        moved = self.element_bytes * (h * k * d * own + rows * d - partials)
        return Cost(paths.flops + 2 * rows * k * d * own, paths.bytes + moved)

    def prefix_part(self) -> Cost:
        """The decompressed part up to its partial output."""
        if not self.prefix_tokens:
            return Cost(0, 0)
        return prefix_cost(
            self.b, self.h, self.s, self.prefix_tokens, self.d, self.p, self.element_bytes,
            self.groups,
        )  # fmt: skip

    def own_part(self) -> Cost:
        """The latent part up to its partial output; rotary queries count here."""
        b, h, s, k, p, w = self.b, self.h, self.s, self.k, self.p, self.element_bytes
        if not self.own_tokens:
            return Cost(0, w * b * h * s * p)
        return flash_mla_cost(b, h, s, self.own_tokens, k, p, w, self.own_pairs())
