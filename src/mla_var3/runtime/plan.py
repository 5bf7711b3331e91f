"""``KernelPlan``: base class of each version's plan, with problem sizes, inputs and launches.

Its fields are the version's command-line flags; ``plan`` binds tensors and returns the kernels.
"""

from __future__ import annotations

import dataclasses
import functools
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from mla_var3.devices import Machine, default_for_arch
from mla_var3.errors import TilingError
from mla_var3.runtime.tiling import Tiling
from mla_var3.workloads import Problem

if TYPE_CHECKING:
    import torch

    from mla_var3.runtime.kernel import RuntimeObject

#: Arch whose default device grids are sized for while no device is chosen.
REFERENCE_ARCH = "sm_90"


@functools.cache  # Plans ask for it at each of their properties.
def _reference(dtype: str) -> Machine:
    return default_for_arch(REFERENCE_ARCH).machine(dtype)


class Metadata(NamedTuple):
    """A launch that makes, once per decoding step, what the launches of all layers read."""

    kernel: RuntimeObject
    expected: Mapping[str, torch.Tensor]  # by name of the output; of its first columns


@dataclass(frozen=True, kw_only=True)
class KernelPlan(Problem):
    """Problem sizes and element type of one kernel version; its fields are the command line.

    A version's module holds exactly one concrete subclass. ``tilings`` holds what the user fixed
    by hand, stage by stage; everything else comes from ``default_tiling``.
    """

    #: Tiling class of each stage, in launch order; keys are the stage names.
    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = MappingProxyType({})
    #: Whether binding a plan copies inputs into layouts that the kernel wants, as libraries' do.
    keeps_layouts: ClassVar[bool] = False

    tilings: Mapping[str, Tiling] = dataclasses.field(
        default_factory=dict, metadata={"hidden": True}
    )

    # -- to be written by a version -----------------------------------------------------------
    @abstractmethod
    def _autotune_configs(self) -> Mapping[str, Sequence[Tiling]]:
        """Tilings worth timing, by stage; each passes ``validate``."""

    @abstractmethod
    def default_tiling(self, stage: str) -> Tiling:
        """The tiling that ``stage`` gets when nobody asks for another."""

    @abstractmethod
    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        """Bind ``inputs`` and fresh outputs to kernels: the object that can be called."""

    # -- shared by all -----------------------------------------------------------------------
    def metadata(self, device: torch.device) -> Sequence[Metadata]:
        """Launches before the first of a decoding step, with what they have to make.

        The plan's own launches read the same from the host, so that neither hides the other's
        faults.
        """
        return ()

    def unsound(self) -> str:
        """What is wrong with what the host decides beside this problem's; empty if nothing is.

        Of many problems of which no kernel is run, such as where work is cut.
        """
        return ""

    def tiling(self, stage: str) -> Any:
        """The validated tiling of ``stage``: the user's, else the default."""
        tiling = self.tilings.get(stage) or self.default_tiling(stage)
        try:
            tiling.validate(self)
        except TilingError as error:
            if len(self.tiling_types) == 1:
                raise
            raise TilingError(f"stage {stage}: {error}") from error
        return tiling

    def libraries(self) -> dict[str, str]:
        """Versions of the libraries that its launches call, for the record's toolchain."""
        return {}

    @property
    def target(self) -> Machine:
        """The device that grids are sized for: the resolved one, else the reference device."""
        return self.machine or _reference(self.dtype)

    def plan_empty(self, peak_tflops: float, peak_gbps: float) -> RuntimeObject:
        """The structure ``plan`` gives, without memory behind it (tensors on device ``meta``).

        Args:
            peak_tflops: Tensor-core ceiling in TFLOP/s that open sizes are resolved for.
            peak_gbps: DRAM ceiling in GB/s, likewise.
        """
        machine = dataclasses.replace(self.target, tflops=peak_tflops, gbps=peak_gbps, power=None)
        resolved = self.resolve(machine)
        resolved.validate()
        return resolved.plan(*resolved.prepare_inputs("meta"))

    def benchmark_kernel(
        self, device: str = "cuda", prof_type: str = "event", *, out_dir: Path | str | None = None
    ) -> Any:
        """Check and time this plan on a GPU, and write its record.

        Args:
            device: ``cuda``, or one GPU such as ``cuda:1``.
            prof_type: ``event``, ``annotation``, ``ncu`` or ``nsys``.
            out_dir: Folder for bulk artefacts.

        Returns:
            The result, with ``get_total_time_us()``.
        """
        from mla_var3.runtime.profiling import profile_plan

        return profile_plan(self, prof_type, device=device, out_dir=out_dir)
