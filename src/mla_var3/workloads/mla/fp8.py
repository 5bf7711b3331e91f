"""Latent decode over a cache in fp8: rows of bytes, each with its scales."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from mla_var3.errors import PlanError
from mla_var3.workloads.base import Cost
from mla_var3.workloads.mla.costs import FP8_GROUP, fp8_latent_cost, fp8_row_bytes
from mla_var3.workloads.mla.latent import LatentProblem

if TYPE_CHECKING:
    import torch


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
