"""Sequences that begin alike: a decompressed prefix for each group, the rest latent."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mla_var3.devices import Machine
from mla_var3.errors import PlanError
from mla_var3.workloads.base import USUAL_TILE, Cost, option
from mla_var3.workloads.mla import ladder, unseen
from mla_var3.workloads.mla.costs import MIX, best_prefix_tokens, flash_mla_cost, prefix_cost
from mla_var3.workloads.mla.problems import (
    HEADS,
    LATENTS,
    MANY,
    OLD,
    MlaProblem,
    attention_reference,
    by_sequence,
)

if TYPE_CHECKING:
    import torch


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
        None,
        "first tokens common to a group; by default three quarters of t",
        tries=OLD,
        near=1,
        minimum=0,
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
        near=1,
        minimum=0,
    )

    @property
    def head_dim(self) -> int:
        return self.d

    def _cut(self, tile: int = 1) -> dict[str, Any]:
        shared, prefix = (100, 70) if tile == 1 else (tile, tile)
        return {"groups": 1, "shared": shared, "prefix": prefix}

    def edges(self) -> list[Self]:
        """Many pieces of a prefix too, of which all tokens are shared; scores jump within another.

        Of large values the prefix counts for more than the own tokens, by as much as a jump has.
        """
        t, few = MANY * USUAL_TILE, 5 * USUAL_TILE
        cut = self._pieces(groups=1, shared=t, prefix=t)
        found = [
            dataclasses.replace(one, h=4, jumps=1) if one.level > 1.0 and one.t < t else one
            for one in super().edges()
        ]
        jumping: dict[str, Any] = {"b": 1, "h": 3, "s": 1, "groups": 1, "causal": False}
        jumping |= {"t": few, "shared": few, "prefix": few, "jumps": 1, "dtype": "fp16"}
        made = [dataclasses.replace(self, **one) for one in (cut, jumping) if one]
        return [*found, *made]

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
            prefix_pe[..., 0] = self._key_of_shift()
        kpe = self._shifted(qpe, kpe)
        if self.unseen and self.causal and not kpe.is_meta:
            unseen.behind(prefix_pe, self.s, causal=False)  # The mask hides no key of the prefix.
        if self.jumps and not kpe.is_meta:
            # Of every other head that jumps, scores jump from its own tokens to the prefix.
            rows, over = qpe[:, self._jumping(), -1][:, ::2], ladder.FIRST + ladder.TERMS
            rows.zero_()
            ladder.climb(rows, self.scale, over, skip=2)
            for keys, here in ((kpe, False), (prefix_pe, True)):
                ladder.steps(keys, here, over)
            within = not self.own_tokens and ladder.second_half(prefix, self.jumps)
            ladder.steps(prefix_pe, within)
        z, value = self._leveled(z, q_latent), self._leveled(value)
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
