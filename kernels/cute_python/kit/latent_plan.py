"""Latent problems whose rows are nine slabs, and their launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mla_var3.errors import PlanError
from mla_var3.kernel.cute_python.kit.slabs import LATENT, ROPE, ROWS
from mla_var3.kernel.cute_python.kit.softmax import LN_2
from mla_var3.runtime import KernelPlan, RuntimeObject
from mla_var3.runtime.cute_kernel import CuteKernel, Dynamic
from mla_var3.workloads import Cost
from mla_var3.workloads.mla import LatentProblem

if TYPE_CHECKING:
    import torch


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
