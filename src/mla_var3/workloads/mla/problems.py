"""What all MLA problems share: sizes, softmax scale, mask, the problems that ``check`` tries.

Symbols as in ``mla_var3.workloads.mla.costs``. The softmax scale is ``1/sqrt(d+p)``; LSE is the
natural logarithm of the sum of exponentials, in fp32. Causal is bottom-right aligned: query i of s
sees keys ``0 .. t-s+i``. A row that sees no key has O = 0 and LSE = -inf.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mla_var3.errors import PlanError
from mla_var3.workloads.base import ROW_FACTOR, USUAL_TILE, Problem, Tolerance, option
from mla_var3.workloads.mla import ladder, unseen
from mla_var3.workloads.mla.costs import seen_pairs

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
#: A score below what a kernel may take for that of no key at all; every other head's is as far
#: above what it may take for the highest. fp32 tells no scores apart there that differ by little: a
#: query that has it has no other part, and keys have this in its place.
BOTTOM, BOTTOM_KEY = -80_000.0, 32.0
#: By how much an LSE of scores may be off, of each of their units, and outputs of parts that are
#: weighted by such LSEs: fp32 holds either to so many bits.
LSE_OF_SCORES, WEIGHT_OF_SCORES = 2.0**-21, 2.0**-23
#: Of latents and values that are large and negative, and of tiny ones, as far as ``HELD``.
LEVEL, TINY = 2.0**40, 2.0**-60
#: By element type the least and the greatest such factor. What bf16 holds is beyond fp16's range by
#: far at either end; fp16 holds each large value, and not the sum of a tile of them, and of tiny
#: ones the mean as exactly as any.
HELD = {"bf16": (TINY, LEVEL), "fp16": (2.0**-10, 8000.0), "fp8": (2.0**-4, 64.0)}


def held(level: float, dtype: str) -> float:
    """A factor on values, as far as a type holds what it gives."""
    least, most = HELD[dtype]
    return min(max(level, least), most)


def far(shift: float) -> str:
    """Scores that a shift moves, in words."""
    return f"scores near {shift:g}" + f" and {-shift:g}" * (shift == BOTTOM)


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
    return scores.softmax(-1).masked_fill(torch.isneginf(lse)[..., None], 0.0), lse


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


#: Pieces of keys that are more than a merge may count on; 1 / MANY is below what it should be in
#: fp32, so that a product with it gets the end of the last wrong.
MANY = 209
#: As many tiles and sequences, of which 1 / INEXACT is below what it should be in fp32 and in fp16.
INEXACT = 41
#: Keys of 2048 tiles.
FAR_KEYS = 2**17
#: Sequences that multiprocessors share, and their tokens, also of a list.
SHARED, LONG = (1, 2, 3, 5, 7, 11, 17, 33, 67), 2048
#: Of how many places of a list one names no token, where some do.
STRAY = 7
#: Values for problems made for ``check``: dimensions, and tokens that are kept in another form.
LATENTS, HEADS, OLD = (512, 128, 256), (128, 64, 32), (0, 1, 16, 65, 200, 1100, 5000)
QUERIES = (1, 2, 3, 4, 5, 7, 12, 16, 17, 30, 65, 100, 130, 300, 700)


@dataclass(frozen=True, kw_only=True)
class MlaProblem(Problem):
    """Sizes that all designs share."""

    #: Tiles of keys that weigh little, and much together.
    long_tail: ClassVar[int] = 250

    b: int = option(64, "batch: sequences", tries=(1, 2, 3, 5, 9, 33, 130), near=1, minimum=1)
    h: int = option(
        128,
        "query heads (128, or 8 to 64 after tensor parallelism)",
        tries=(1, 2, 3, 16, 17, 33, 128, 200),
        near=1,
        minimum=1,
    )
    s: int = option(
        1,
        "query tokens per sequence (1 decode, up to 127 speculative)",
        tries=QUERIES,
        near=1,
        minimum=1,
    )
    t: int = option(
        4096,
        "context length: keys per sequence",
        tries=(1, 3, 17, 65, 130, 257, 600, 2500, 9000),
        near=1,
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
        default=0.0, metadata={"hidden": True, "tries": (0.0, 0.0, 0.0, 0.0, FAR, BOTTOM)}
    )
    #: By how much scores of the last query of the last head rise from the first key to the last, so
    #: that each tile has a new maximum; ``check`` sets it where tiles are many.
    rise: float = dataclasses.field(default=0.0, metadata={"hidden": True, "deep": (FAR,)})
    #: Whether and how scores of the last query of every other head jump in the middle of the keys,
    #: 0 to 3; see ``ladder``.
    jumps: int = dataclasses.field(default=0, metadata={"hidden": True, "deep": (2, 1)})
    #: Factor on latents and values, which then are all negative, as far as their type holds it; 0
    #: for usual ones. Where it is large, queries ask for rotary parts alone: scores as large would
    #: be rounded too much.
    level: float = dataclasses.field(default=0.0, metadata={"hidden": True})
    #: Whether keys that a query does not see would have far higher scores, 0 or 1; see ``unseen``.
    unseen: int = dataclasses.field(default=0, metadata={"hidden": True, "checked": 1})
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

        That key is the first of a tile of any usual length, and 1 / s is below what it should be in
        fp32, so that a product with it gets heads wrong. Or a last tile lacks a single key, once
        with scores so low that a key of zeros in its place would weigh more than all others; or
        whole tiles end in the middle of one twice as long, or such of half the usual length, or
        tiles of queries end with tiles of keys, over wide heads where there are such, or one query
        behind them. Or whole tiles of rows see no key at all, of which none is kept in another
        form; or keys fill whole tiles, of which more queries than keys see parts. Some have scores
        that jump, large values in fp16, or values far outside its range; some are cut into many
        pieces, whose sum is outside fp16. Or one key is far above very many others, whole and in
        pieces, that weigh much together. Or sequences, or tiles of rows and pairs of them, are so
        many that a product with 1 / their number gets some wrong. Or the highest key is in a tile
        of an odd place, and far above all others; or tiles of keys are so many that a product of
        their number with a factor of 20 bits overflows.
        """
        thin, half = {"b": 1, "s": 1, "causal": False}, {"dtype": "fp16"}
        short = thin | {"h": 21, "t": 2 * USUAL_TILE - 1, "jumps": 1, **self._cut()}
        tiles = thin | {"h": 3, "t": 3 * USUAL_TILE, **self._cut(USUAL_TILE)}
        low = thin | {"h": 5, "t": 2 * USUAL_TILE - 1, "shift": -FAR, **self._cut()}
        halves = thin | {"h": 3, "t": 3 * USUAL_TILE // 2, **self._cut(USUAL_TILE // 2)}
        whole = tiles | {"level": LEVEL}
        tiny = tiles | {"h": 4, "dtype": "bf16", "level": TINY}
        square = {"b": 1, "h": 2, "s": 130, "t": 4 * USUAL_TILE, **self._cut(USUAL_TILE)}
        square |= {"causal": True}
        rows = 2 * INEXACT * USUAL_TILE - 1
        pieces = self._pieces(**self._cut(0))
        more = {"h": 2 * len(ladder.FALLS), "jumps": ladder.FALLING, "level": 1.0}
        falling = thin | more | {"t": self.long_tail * USUAL_TILE, **self._cut(0)}
        peak = thin | {"h": 8, "t": 4 * USUAL_TILE, "jumps": ladder.HIGHEST, **self._cut(0)}
        far = thin | {"h": 1, "t": FAR_KEYS + 1, **self._cut(0)}
        ways: list[list[dict[str, Any]]] = [
            [{"b": 1, "h": 5, "s": 141, "t": 270, **self._cut(), "causal": True, "level": TINY}],
            [short | half, short],
            [whole | half, whole],
            [tiny],
            [square | {"p": 128}, square],
            [square | {"s": 2 * USUAL_TILE + 1, **self._cut(0)}],
            [square | {"s": 2 * USUAL_TILE, **self._cut(0)}],
            [{"b": 1, "h": 1, "s": 300, "t": 5, "causal": True, **self._cut(0)}],
            [{"b": 1, "h": 1, "s": 140, "t": 2 * USUAL_TILE, "causal": True, **self._cut(0)}],
            [pieces and pieces | {"level": LEVEL} | half, pieces],
            [halves],
            [falling | half, falling],
            [peak],
            [far],
            [pieces and pieces | more | half, pieces and pieces | more],
            [low],
            [{"b": INEXACT, "h": 2, "s": 1, "t": USUAL_TILE + 1, "causal": False, **self._cut(0)}],
            [{"b": 1, "h": 2, "s": rows, "t": 17, "causal": False, **self._cut(0)}],
        ]
        made = [[dataclasses.replace(self, **one) for one in those if one] for those in ways]
        made += [[self.crowded()]]
        return [one for those in made for one in [x for x in those if x.is_valid()][:1]]

    def _pieces(self, **cut: Any) -> dict[str, Any]:
        """One row over as many pieces of keys as no device has multiprocessors, each of a tile.

        Nothing where a problem does not say into how many pieces keys are cut.
        """
        counts = {name: MANY for name in self.problem() if name.endswith("splits")}
        sizes = {"b": 1, "h": 1, "s": 1, "t": MANY * USUAL_TILE, "causal": False}
        return sizes | cut | counts if counts else {}

    def _cut(self, tile: int = 1) -> dict[str, Any]:
        """Where the tokens of an edge are cut, by field; nowhere, unless a problem has parts.

        Args:
            tile: Of how many tokens each part is a multiple; 0 where all are kept in one form.
        """
        return {}

    def vast(self) -> list[Self]:
        """A prefill of more rows than the second axis of a grid has blocks, whole and in pieces."""
        sizes: dict[str, Any] = {"b": 1, "h": 128, "s": 1024, "t": 1024, **self._cut(USUAL_TILE)}
        pieces: dict[str, Any] = {n: 2 for n in self.problem() if n.endswith(("splits", "parts"))}
        return [dataclasses.replace(self, **sizes, **own) for own in ({}, pieces)]

    def shared_out(self) -> list[Self]:
        """Long sequences of one query token, with few heads and with many."""
        long: dict[str, Any] = {"s": 1, "t": LONG, **self._cut(USUAL_TILE)}
        long |= {n: LONG for n in self.problem() if n == "topk"}
        return [dataclasses.replace(self, b=b, h=h, **long) for b in SHARED for h in (16, 128)]

    def shared_by(self, sms: int, items: int = 1) -> Self | None:
        """Sequences of few rows, each with a tile of keys per multiprocessor.

        Scores of several are so low that weights against a maximum of 0 would all vanish.
        """
        h, shift = min(self.h, USUAL_TILE // 4), -FAR if items > 1 else self.shift
        return dataclasses.replace(self, b=items, h=h, s=1, t=sms * USUAL_TILE, shift=shift)

    def crowded(self) -> Self:
        """So many rows that a product with 1 / h in 17 bits does not tell their query."""
        few = {"b": 1, "h": 128, "s": 17, "t": 20, "causal": True, **self._cut(0)}
        return dataclasses.replace(self, **few)

    def in_turn(self, rows: int) -> Self | None:
        """Three sequences of five tiles of keys, of which the last raises maxima."""
        return dataclasses.replace(self, b=3, h=rows, s=1, t=5 * USUAL_TILE, jumps=ladder.HIGHEST)

    def tolerance(self, output: str) -> Tolerance:
        beyond = max(abs(self.shift) - FAR, 0.0)
        if output == "lse":
            most = LSE_TOLERANCE + LSE_OF_SCORES * beyond
            return Tolerance(most, most, "absolute")
        found, more = super().tolerance(output), WEIGHT_OF_SCORES * beyond
        return Tolerance(found.whole + more, found.row + ROW_FACTOR * more)

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
            return far(self.shift)
        if self.rise:
            return f"scores that rise by {self.rise:g}"
        if self.level:
            return f"values of {held(self.level, self.dtype):g}"
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
        """Queries [b,h,s,*], the last spread; those whose scores are exact have no part yet."""
        if not queries[0].is_meta:
            for x in queries:
                x[:, :, -1] *= 0.0 if self.shift == BOTTOM else self.spread
                x[:, *self._jumpers()] = 0.0
        return queries

    def _jumping(self) -> slice:
        """Heads whose scores jump: every other one, but never the last, whose scores rise."""
        return slice(0, self.h - bool(self.rise) if self.jumps else 0, 2)

    def _jumpers(self) -> tuple[slice, int | slice]:
        """Heads and queries whose scores jump; queries before the last where that one's rise."""
        if self.jumps and self.rise and self.h == 1:
            return slice(0, 1), slice(max(self.s - 1 - len(ladder.RUNGS), 0), self.s - 1)
        return self._jumping(), -1

    def _key_of_shift(self) -> float:
        """What keys have where the last query has the shift."""
        return BOTTOM_KEY if self.shift == BOTTOM else 1.0

    def _shift_of_heads(self) -> torch.Tensor:
        """``shift`` [h]; at the bottom every other head is at the top."""
        import torch

        found = torch.full((self.h,), self.shift)
        found[1::2] *= -1.0 if self.shift == BOTTOM else 1.0
        return found

    def _shifted(self, qpe: torch.Tensor, kpe: torch.Tensor) -> torch.Tensor:
        """``kpe`` [b,t,p], which with the last query of ``qpe`` [b,h,s,p] adds what is extreme."""
        if qpe.is_meta:
            return kpe
        if self.shift:
            kpe[..., 0] = self._key_of_shift()
            qpe[:, :, -1, 0] = self._shift_of_heads() / self.scale / self._key_of_shift()
        if self.rise:
            kpe[..., 1] = ladder.ramp(kpe.shape[-2])
            qpe[:, -1, -1, 1] = self.rise / self.scale
        if self.jumps:
            ladder.climb(qpe[:, *self._jumpers()], self.scale, jumps=self.jumps)
            ladder.steps(kpe, ladder.second_half(kpe.shape[-2], self.jumps))
        if self.unseen and self.causal:
            unseen.ask(qpe, self.scale)
            unseen.behind(kpe, self.s)
        return kpe

    def _leveled(self, values: torch.Tensor, *queries: torch.Tensor) -> torch.Tensor:
        """Latents or values as ``level`` says; queries of large ones become 0."""
        if not self.level or values.is_meta:
            return values
        for x in queries if self.level > 1.0 else ():
            x.zero_()
        return -held(self.level, self.dtype) * values.abs()
