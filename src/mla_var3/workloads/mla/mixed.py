"""Attention over decompressed keys and values, alone or beside a latent part."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mla_var3.devices import Machine
from mla_var3.errors import PlanError
from mla_var3.workloads.base import USUAL_TILE, Cost, option
from mla_var3.workloads.mla import ladder
from mla_var3.workloads.mla.costs import MIX, best_new_tokens, flash_attention_cost, mixed_cost
from mla_var3.workloads.mla.problems import (
    HEADS,
    LATENTS,
    MANY,
    OLD,
    QUERIES,
    MlaProblem,
    attention_reference,
    by_sequence,
)

if TYPE_CHECKING:
    import torch


def _heads_first(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2)  # [b, t, h, d] -> [b, h, t, d]


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
        queries = self._spread(q, qpe)
        return *queries, key, self._leveled(value), self._shifted(qpe, kpe)

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
        16,
        "query tokens per sequence (1 decode, up to 127 speculative)",
        tries=QUERIES,
        near=1,
        minimum=1,
    )
    d: int = option(128, "head dimension without the position part", tries=HEADS, minimum=16)
    k: int = option(512, "latent (compressed) dimension", tries=LATENTS, minimum=16)
    n: int | None = option(
        None,
        "newest tokens kept decompressed, 0 to t; by default the cost model's best",
        tries=OLD,
        near=1,
        minimum=0,
    )

    @property
    def head_dim(self) -> int:
        return self.d

    def _tries(self, field: dataclasses.Field[Any]) -> Sequence[Any]:
        # The plans of its parts work out the scale themselves.
        return () if field.name == "sharpness" else super()._tries(field)

    def _cut(self, tile: int = 1) -> dict[str, Any]:
        return {"n": 100 if tile == 1 else 2 * tile}  # 0: none is decompressed

    def edges(self) -> list[Self]:
        """Of many tokens a single one is old, or new: what work each part has shares blocks.

        Scores of the others jump, over several tiles of one part. And all are new, in many pieces,
        or one far above all others.
        """
        jumping: dict[str, Any] = {"b": 1, "h": 3, "s": 1, "t": 5 * USUAL_TILE, "jumps": 1}
        jumping |= {"dtype": "fp16"}
        few = (dataclasses.replace(self, **jumping, n=n) for n in (jumping["t"] - 1, 1))
        cut = self._pieces(n=MANY * USUAL_TILE)
        usual = super().edges()
        highest = (one for one in usual if one.jumps == ladder.HIGHEST)
        new = (dataclasses.replace(one, n=one.t) for one in highest)
        return [*usual, *few, *new, *([dataclasses.replace(self, **cut)] if cut else ())]

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
        z, value = self._leveled(z, q_latent), self._leveled(value)
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
