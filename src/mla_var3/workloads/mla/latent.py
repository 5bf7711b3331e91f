"""Latent decode: attention of absorbed queries over a latent cache, whole or in pages."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mla_var3.errors import PlanError
from mla_var3.workloads.base import SEED, USUAL_TILE, Cost, option
from mla_var3.workloads.mla import ladder, unseen
from mla_var3.workloads.mla.costs import flash_mla_cost, paged_cost, seen_pairs
from mla_var3.workloads.mla.problems import (
    BOTTOM,
    LATENTS,
    LEVEL,
    TINY,
    MlaProblem,
    attention_reference,
    by_sequence,
)
from mla_var3.workloads.mla.serving import LENGTHS, drawn_lengths

if TYPE_CHECKING:
    import torch

#: By which the length of a sequence is divided that turns out shorter.
SHORTENED = 9


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
        return self.rounded(*queries, self._leveled(z, queries[0]), self._shifted(qpe, kpe))

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

    Without ``page`` a sequence is one page. Heads of a query token follow those of the one before,
    at the same step.
    """

    in_order: ClassVar[bool] = True

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
    #: Whether the first sequence turns out to be much shorter than plans know, 0 or 1: what is
    #: decided once for all lengths has to be right for others too.
    shortened: int = dataclasses.field(default=0, metadata={"hidden": True})
    #: Whether the table names, past a sequence's pages, one that holds no token.
    spare: bool = dataclasses.field(
        default=False, metadata={"hidden": True, "tries": (False, True)}
    )

    def validate(self) -> None:
        super().validate()
        if self.lengths is not None and self.lengths not in LENGTHS:
            raise PlanError(f"lengths={self.lengths!r} is not one of {', '.join(LENGTHS)}")

    def edges(self) -> list[Self]:
        """Pages of three tiles too, so that steps of two tiles end within pages.

        Lengths of the others are as told: drawn ones would end elsewhere.
        """
        page, t = 3 * USUAL_TILE, 7 * USUAL_TILE + 2
        cut = dataclasses.replace(self, b=2, h=3, s=1, t=t, page=page, causal=False)
        told = [dataclasses.replace(x, lengths=None, absent=False) for x in super().edges()]
        return told + [one for one in (cut,) if one.is_valid()]

    def in_turn(self, rows: int) -> Self | None:
        """Of equal lengths: drawn ones could all be even."""
        found = super().in_turn(rows)
        return found and dataclasses.replace(found, lengths=None, absent=False)

    def shared_by(self, sms: int, items: int = 1) -> Self | None:
        """Of two sequences the last has large negative latents, and weights that are near.

        The first is shorter than it was planned to be. A single one has tiny latents.
        """
        found = super().shared_by(sms, items)
        if found is None or items == 1:
            return found and dataclasses.replace(found, level=TINY)
        return dataclasses.replace(found, level=LEVEL, spread=1.0, shortened=1)

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
        planned = counts[0]
        if self.shortened:
            keys[0] = -(-keys[0] // SHORTENED)
            counts[0] = -(-keys[0] // page)
        lengths = torch.tensor(keys, dtype=torch.int32)
        if not q.is_meta:
            self._at_extremes(q, cache)
            if self.level:
                # Of the longest sequence (the last such) alone: what is kept in 16 bits has to be
                # scaled by magnitudes then.
                long = max(range(self.b), key=lambda i: (keys[i], i))
                own = table[long, : counts[long]].long()
                z = cache[own, :, : self.k]
                cache[own, :, : self.k] = self._leveled(z, q[long, ..., : self.k])
            for i in range(self.b if self.jumps else 0):
                own = table[i, : counts[i]].long()
                above = ladder.second_half(keys[i], self.jumps)
                above = torch.nn.functional.pad(above, (0, counts[i] * page - keys[i]))
                rotary = cache[own, :, self.k :]
                ladder.steps(rotary, above.view(counts[i], page).to(cache.device))
                cache[own] = torch.cat([cache[own, :, : self.k], rotary], -1)
            self._unwritten(cache, table, keys)
            if self.unseen:
                self._hide_high(q, cache, table, keys)
            cache[table[0, counts[0] : planned].long()] = math.nan
            cache[pages - self.spare :] = math.nan
        return *q.split(split, -1), *cache.split(split, -1), table.to(device), lengths.to(device)

    @staticmethod
    def _unwritten(cache: torch.Tensor, table: torch.Tensor, keys: list[int]) -> None:
        """No token was ever written to what is left of a sequence's last page."""
        page = cache.shape[1]
        for row, count in zip(table, keys, strict=True):
            if count % page:
                cache[int(row[count // page]), count % page :] = math.nan

    def _hide_high(
        self, q: torch.Tensor, cache: torch.Tensor, table: torch.Tensor, keys: list[int]
    ) -> None:
        """High scores where the mask hides a key, and of the first token past a sequence's end.

        That one holds numbers, and all behind it none.
        """
        page, part = cache.shape[1], slice(self.k, self.k + self.p)
        unseen.ask(q.transpose(1, 2)[..., part], self.scale)
        cache[..., part][..., unseen.FIRST : unseen.END] = 0.0
        for row, count in zip(table, keys, strict=True):
            own = row[: -(-count // page)].long()
            rotary = cache[own][..., part]
            unseen.behind(rotary.flatten(0, 1)[:count], self.s, causal=self.causal)
            if count % page:
                past = rotary.flatten(0, 1)[count]
                past[...] = 0.0
                past[unseen.OTHER] = unseen.KEY
                cache[own[-1], count % page] = 1.0
            cache[..., part].index_put_((own,), rotary)

    def _at_extremes(self, q: torch.Tensor, cache: torch.Tensor) -> None:
        """Scale queries, and spread and shift the scores of the last one."""
        q[..., : self.k] *= (self.d_qk / (self.k + self.p)) ** 0.5
        q[:, -1] *= 0.0 if self.shift == BOTTOM else self.spread
        jumping = q.transpose(1, 2)[:, *self._jumpers()]
        jumping.zero_()
        if self.shift:
            cache[..., self.k] = self._key_of_shift()
            q[:, -1, :, self.k] = self._shift_of_heads() / self.scale / self._key_of_shift()
        if self.rise:  # within each page, whose order is any
            cache[..., self.k + 1] = ladder.ramp(cache.shape[-2])
            q[:, -1, -1, self.k + 1] = self.rise / self.scale
        if self.jumps:
            ladder.climb(jumping[..., self.k :], self.scale, jumps=self.jumps)

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
