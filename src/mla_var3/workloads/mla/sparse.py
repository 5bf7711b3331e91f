"""Sparse decode: each query token attends to its own list of tokens of a cache in fp8."""

from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mla_var3.errors import PlanError
from mla_var3.workloads.base import SEED, USUAL_TILE, Cost, option
from mla_var3.workloads.mla import ladder, unseen
from mla_var3.workloads.mla.costs import FP8_GROUP, fp8_row_bytes, sparse_cost
from mla_var3.workloads.mla.fp8 import fp8_rows
from mla_var3.workloads.mla.problems import BOTTOM, LEVEL, STRAY, TINY, MlaProblem, held

if TYPE_CHECKING:
    import torch
#: Tokens of a page that is not of the usual size, nor of a power of two.
OTHER_PAGE = 24
#: Places from a hole of a tile to that of the next: each is in another warp's share of 16.
HOLES_APART = 17
#: Bytes before a cache that is far behind its beginning: no offset into it fits 31 bits.
FAR_BYTES = 1 << 31
#: What kernels may keep latents in, which holds values of e4m3 times scales near one exactly.
STORED = "fp16"
#: Of which fp8, fp32 and bf16 make NaNs.
NAN_BYTE = 0xFF


def behind(cache: torch.Tensor) -> tuple[torch.Tensor, int]:
    """A cache ``[pages,page,...]`` behind pages that nobody writes, and how many tokens they hold.

    None of its own tokens is in the first 2 GiB. Those pages take no memory on a CPU.
    """
    pages = -(-FAR_BYTES // (cache[0].numel() * cache.element_size()))
    found = cache.new_empty((pages + len(cache), *cache.shape[1:]))
    if not found.is_meta:
        found[pages:] = cache
    return found, pages * cache.shape[1]


@dataclass(frozen=True, kw_only=True)
class SparseLatentProblem(MlaProblem):
    """Absorbed attention of each query token over its own list of tokens of a cache in fp8.

    Inputs: q ``[b*s,1,h,k]``, qpe ``[b*s,1,h,p]``, cache ``[pages,page,row]`` in bytes
    (``fp8_rows``), the tokens of each list ``[b*s,topk]``, -1 where there is none, and how many of
    the list count ``[b*s]``, both in int32. Outputs: o ``[b*s,1,h,k]`` in the plan's dtype, lse
    ``[b*s,h,1]`` in fp32. As with ``Fp8LatentProblem`` the cache stands for value times scale.
    """

    covers: ClassVar[str] = (
        "attention up to the latent output over chosen tokens of a cache in fp8; the caller "
        "multiplies with Wv"
    )
    smaller: ClassVar[bool] = True
    #: Elements of a cache that are NaNs.
    nothing: ClassVar[float] = NAN_BYTE

    k: int = option(512, "latent (compressed) dimension", minimum=16)
    topk: int = option(
        2048,
        "tokens that a query token attends to",
        tries=(1, 3, 64, 128, 200, 500),
        near=1,
        minimum=1,
    )
    #: Tokens of a page of the cache, which kernels are given.
    page: int = dataclasses.field(default=64, metadata={"hidden": True})
    #: Whether lists name tokens twice, which then count twice.
    repeated: bool = dataclasses.field(
        default=False, metadata={"hidden": True, "tries": (False, True)}
    )
    #: Whether lists end early, each elsewhere, with other tokens behind their ends.
    ending: bool = dataclasses.field(
        default=False, metadata={"hidden": True, "tries": (False, True)}
    )
    #: Places of each tile of a list that have no token, in each tile elsewhere; 0 or 1.
    holes: int = dataclasses.field(default=0, metadata={"hidden": True})
    #: Whether some places name a token past the end of the cache, and so none, and the cache holds
    #: no numbers where no list names a token.
    stray: bool = dataclasses.field(default=False, metadata={"hidden": True, "deep": (True,)})

    #: Whether all tokens that lists name lie far behind the cache's beginning, where it is empty; 0
    #: or 1.
    distant: int = dataclasses.field(default=0, metadata={"hidden": True})

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

    def edges(self) -> list[Self]:
        """Of values that fp16 holds; and a whole sequence in a list, whose second half jumps."""
        whole: dict[str, Any] = {"t": 4 * USUAL_TILE, "topk": 4 * USUAL_TILE, "jumps": 1}
        whole |= {"repeated": False, "ending": False, "holes": 0, "stray": False}
        found = [*super().edges(), dataclasses.replace(self, b=1, h=21, s=1, causal=False, **whole)]
        return [dataclasses.replace(x, level=x.level and held(x.level, STORED)) for x in found]

    def shared_by(self, sms: int, items: int = 1) -> Self | None:
        """Lists as long as their sequences, of one far behind the cache's beginning, and tiny.

        Of two the second has large negative latents.
        """
        found = super().shared_by(sms, items)
        if found is None or items == 1:
            return found and dataclasses.replace(
                found, topk=found.t, distant=1, level=held(TINY, STORED)
            )
        return dataclasses.replace(found, topk=found.t, level=held(LEVEL, STORED), spread=1.0)

    def in_turn(self, rows: int) -> Self | None:
        """Lists as long as their sequences but for few holes, over pages of another size."""
        found = super().in_turn(rows)
        return found and dataclasses.replace(
            found, topk=found.t, ending=False, page=OTHER_PAGE, holes=1, stray=False
        )

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

        n, width, page = self.b * self.s, self.k + self.p, self.page
        pages = -(-self.b * self.t // page)
        q, tokens = self.random(device, (n, 1, self.h, width), (pages, page, width))
        draw = torch.Generator().manual_seed(SEED)
        chosen = torch.full((n, self.topk), -1, dtype=torch.int32)
        for i, row in enumerate(chosen):
            own = torch.randperm(self.t, generator=draw)[: self.topk] + i // self.s * self.t
            if self.repeated:
                own[1::2] = own[: len(own) // 2]
            places = torch.randperm(self.topk, generator=draw)[: len(own)]
            row[places] = own.to(torch.int32)
        lengths = torch.full((n,), self.topk, dtype=torch.int32)
        if self.ending:
            lengths = torch.randint(self.topk + 1, (n,), generator=draw, dtype=torch.int32)
        if self.holes:
            for tile, i in itertools.product(range(-(-self.topk // USUAL_TILE)), range(n)):
                place = tile * USUAL_TILE + (3 + HOLES_APART * (tile + i)) % USUAL_TILE
                chosen[i, min(place, self.topk - 1)] = -1
        if q.is_meta:
            cache = self._stored(tokens)
        else:
            q[..., : self.k] *= (self.d_qk / width) ** 0.5
            q[-1] *= 0.0 if self.shift == BOTTOM else self.spread
            q[-1, :, self._jumping()] = 0.0
            if self.shift:
                q[-1, ..., self.k] = self._shift_of_heads() / self.scale / self._key_of_shift()
                tokens[..., self.k] = self._key_of_shift()
            if self.rise:  # within each page
                q[-1, ..., self.k + 1] = self.rise / self.scale
                tokens[..., self.k + 1] = ladder.ramp(page)
            if self.jumps:
                rotary = q[-1, :, self._jumping(), self.k :]
                ladder.climb(rotary, self.scale, jumps=self.jumps)
                ladder.steps(tokens[..., self.k :], self._late(pages, chosen[-1]))
            if self.level:
                own = tokens.view(-1, width)[(self.b - 1) * self.t : self.b * self.t, : self.k]
                own.copy_(self._leveled(own, q[-self.s :, ..., : self.k]))
            if self.unseen:
                # Of the first list, all tokens that it does not name before its end.
                named = chosen[0, : int(lengths[0])].long()
                rotary = tokens.view(-1, width)[:, self.k :]
                unseen.behind(rotary, self.s, causal=False)
                rotary[:, unseen.OTHER] = unseen.KEY
                rotary[named[named >= 0], unseen.OTHER] = 0.0
                unseen.ask(q[..., self.k :].transpose(0, 2), self.scale, causal=False)
            cache = self._stored(tokens)
        if self.stray:
            chosen[:, ::STRAY] = pages * page
            chosen[chosen == 0] = -1  # whose place is what is read where there is no token
            if not q.is_meta:
                self._forget_unnamed(cache, chosen)
        if self.distant:
            cache, before = behind(cache)
            chosen[chosen >= 0] += before
        return *q.split((self.k, self.p), -1), cache, chosen.to(device), lengths.to(device)

    def _stored(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens [pages,page,k+p] as the cache holds them."""
        import torch

        if tokens.is_meta:
            shape = *tokens.shape[:2], fp8_row_bytes(self.k, self.p, 2)
            return torch.empty(shape, dtype=torch.uint8, device="meta")
        # Kernels may round scales to 16 bits, which scores show the more the larger they are.
        powers = self.spread != 1.0
        return fp8_rows(*tokens.split((self.k, self.p), -1), powers=powers)

    def _late(self, pages: int, listed: torch.Tensor) -> torch.Tensor:
        """Which tokens [pages,page] a list names in its second half."""
        import torch

        late = torch.zeros(pages * self.page, dtype=torch.bool)
        places = listed[ladder.second_half(len(listed), self.jumps)].long()
        late[places[places >= 0]] = True
        return late.view(pages, self.page)

    @classmethod
    def _forget_unnamed(cls, cache: torch.Tensor, chosen: torch.Tensor) -> None:
        """All of ``cache`` [pages,page,row] that no place names becomes NaNs."""
        rows = cache.flatten(0, 1)
        named = chosen[(chosen >= 0) & (chosen < len(rows))].long().unique().to(rows.device)
        kept = rows[named]
        rows.fill_(cls.nothing)
        rows[named] = kept

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
