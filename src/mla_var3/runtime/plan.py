"""The two declarations a kernel version makes: its problem (KernelPlan) and its tiles (Tiling)."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_type_hints

import torch

from mla_var3.errors import PlanError, TilingError

if TYPE_CHECKING:
    from mla_var3.runtime.kernel import RuntimeObject

DTypeName = Literal["bf16", "fp16"]

TORCH_DTYPES: Mapping[str, torch.dtype] = MappingProxyType(
    {"bf16": torch.bfloat16, "fp16": torch.float16}
)


def option(default: Any, help: str, **metadata: Any) -> Any:
    """Declare a plan or tiling field once; its flag, default and help text derive from this.

    Args:
        default: The default value.
        help: One line for ``--help`` and the CLI reference.
        metadata: Further metadata; ``minimum`` is checked by ``validate``.
    """
    return dataclasses.field(default=default, metadata={"help": help, **metadata})


@dataclass(frozen=True)
class Cost:
    """Work of one stage: ``flops`` (multiply-add = 2) and ``bytes`` moved through DRAM."""

    flops: int
    bytes: int

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.flops + other.flops, self.bytes + other.bytes)


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """Launch and tile parameters of one stage; hints left at None are the compiler's choice."""

    occupancy: int | None = option(None, "CTAs an SM that the compiler should aim for", minimum=1)
    num_ctas: int | None = option(None, "CTAs in a cluster (power of two, 1 to 16)", minimum=1)
    num_worker_warps: int | None = option(
        None, "warps in the CUDA-core warp groups (4 or 8; sm_90 and newer)", minimum=4
    )

    def hints(self) -> dict[str, int]:
        """Compiler hints that are set, as ``kernel.replace_hints`` takes them."""
        names = ("occupancy", "num_ctas", "num_worker_warps")
        return {n: v for n in names if (v := getattr(self, n)) is not None}

    def validate(self, plan: KernelPlan) -> None:
        """Raise TilingError, with the arithmetic that failed, unless the tiling fits ``plan``."""
        check_minima(self, TilingError)
        for name in ("num_ctas", "num_worker_warps"):
            value = getattr(self, name)
            if value is not None and value & (value - 1):
                raise TilingError(f"{name}={value} is not a power of two")
        if self.num_worker_warps not in (None, 4, 8):
            raise TilingError(f"num_worker_warps={self.num_worker_warps} is not 4 or 8")
        if self.num_ctas is not None and self.num_ctas > 16:
            raise TilingError(f"num_ctas={self.num_ctas} exceeds 16")
        if self.occupancy is not None and self.occupancy > 32:
            raise TilingError(f"occupancy={self.occupancy} exceeds 32")


def check_minima(obj: Any, error: type[Exception], prefix: str = "") -> None:
    """Raise ``error`` for the first field of the dataclass ``obj`` below its declared minimum.

    Args:
        obj: The dataclass.
        error: What to raise.
        prefix: What stands before the field's name in the message.
    """
    for field in dataclasses.fields(obj):
        value, minimum = getattr(obj, field.name), field.metadata.get("minimum")
        if minimum is not None and value is not None and value < minimum:
            raise error(f"{prefix}{field.name}={value} is below {minimum}")


def require_power_of_two(**tiles: int) -> None:
    """Raise TilingError unless each named tile extent is a power of two, as cuTile demands."""
    for name, value in tiles.items():
        if value < 1 or value & (value - 1):
            raise TilingError(f"{name}={value} is not a power of two")


@dataclass(frozen=True, kw_only=True)
class KernelPlan(ABC):
    """Problem sizes and element type of one kernel version; its fields are the CLI.

    A version's module holds exactly one concrete subclass. ``tilings`` holds what the user fixed
    by hand, stage by stage; everything else comes from ``default_tiling``.
    """

    #: Tiling class of each stage, in launch order; keys are the stage names.
    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = MappingProxyType({})

    dtype: DTypeName = option("bf16", "element type of inputs and outputs")
    tilings: Mapping[str, Tiling] = dataclasses.field(
        default_factory=dict, metadata={"hidden": True}
    )

    # -- to be written by a design or version ------------------------------------------------
    @abstractmethod
    def prepare_inputs(self, device: str | torch.device = "cpu") -> tuple[torch.Tensor, ...]:
        """Random inputs on ``device``; on ``"meta"`` shapes and strides only."""

    @abstractmethod
    def reference_fn(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Outputs by name, computed by plain torch in fp32 or better from the same inputs."""

    @abstractmethod
    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        """Tilings worth timing, by stage; each passes ``validate``."""

    @abstractmethod
    def _algorithmic_flops_bytes(self, tiling: Tiling | None = None) -> Cost:
        """Least work of the whole design at these sizes (the cost model of the design)."""

    @abstractmethod
    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        """Bind ``inputs`` and fresh outputs to kernels: the object that can be called."""

    @abstractmethod
    def default_tiling(self, stage: str) -> Tiling:
        """The tiling that ``stage`` gets when nobody asks for another."""

    @abstractmethod
    def check_plans(self) -> list[Self]:
        """Small variants of this plan that together exercise every path; run by ``check``."""

    @abstractmethod
    def shrunk(self) -> Self:
        """The same kind of problem, small enough to interpret within a second or so."""

    def validate(self) -> None:
        """Raise PlanError unless the sizes make sense; subclasses add their own arithmetic."""
        check_minima(self, PlanError)
        if self.dtype not in TORCH_DTYPES:
            raise PlanError(f"dtype={self.dtype!r} is not one of {', '.join(TORCH_DTYPES)}")

    def resolve(self, peak_tflops: float, peak_gbps: float) -> Self:
        """Fill in sizes left open (None) from a device's two ceilings; by default nothing is.

        Args:
            peak_tflops: Tensor-core ceiling in TFLOP/s.
            peak_gbps: DRAM ceiling in GB/s.
        """
        return self

    # -- shared by all -----------------------------------------------------------------------
    @property
    def torch_dtype(self) -> torch.dtype:
        """The torch dtype of inputs and outputs."""
        return TORCH_DTYPES[self.dtype]

    @property
    def element_bytes(self) -> int:
        """Bytes an element (w in the cost models)."""
        return self.torch_dtype.itemsize

    def tiling(self, stage: str) -> Tiling:
        """The validated tiling of ``stage``: the user's, else the default."""
        tiling = self.tilings.get(stage) or self.default_tiling(stage)
        try:
            tiling.validate(self)
        except TilingError as error:
            if len(self.tiling_types) == 1:
                raise
            raise TilingError(f"stage {stage}: {error}") from error
        return tiling

    def plan_empty(self, peak_tflops: float, peak_gbps: float) -> RuntimeObject:
        """The structure ``plan`` gives, without memory behind it (tensors on device ``meta``).

        Args:
            peak_tflops: Tensor-core ceiling in TFLOP/s that open sizes are resolved for.
            peak_gbps: DRAM ceiling in GB/s, likewise.
        """
        resolved = self.resolve(peak_tflops, peak_gbps)
        resolved.validate()
        return resolved.plan(*resolved.prepare_inputs("meta"))

    def problem(self) -> dict[str, int | str | bool | None]:
        """The fields that define the problem, in declaration order."""
        return {f.name: getattr(self, f.name) for f in self.option_fields()}

    @classmethod
    def option_fields(cls) -> list[dataclasses.Field[Any]]:
        """The fields that become flags (all but the hidden ones)."""
        return [f for f in dataclasses.fields(cls) if not f.metadata.get("hidden")]

    @classmethod
    def benchmark_kernel_argparse(cls) -> dict[str, Any]:
        """Types of all flags by field name, the single source of the CLI (see runtime.cli)."""
        hints = get_type_hints(cls)
        return {f.name: hints[f.name] for f in cls.option_fields()}

    def slug(self) -> str:
        """File-name form of the problem, for example ``b64-h128-s1-t4096-k512-p64-bf16``."""
        values = {k: v for k, v in self.problem().items() if v is not None and v is not False}
        sizes = [f"{k}{v}" for k, v in values.items() if type(v) is int]
        words = [v for v in values.values() if isinstance(v, str)]
        flags = [k for k, v in values.items() if v is True]
        return "-".join(sizes + words + flags)
