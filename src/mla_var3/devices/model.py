"""Reads device files into ``Device`` objects: a GPU's figures, each with its source.

The files under ``knowledge/devices`` hold every figure that was found, also those that disagree.
Where they do, a ``[[used]]`` entry names the one to use and why. A figure that nobody states is
``UNKNOWN``; using it is an error that says what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictFloat,
    StrictInt,
    ValidationError,
    model_validator,
)

from mla_var3 import inputs
from mla_var3.archs import base_arch
from mla_var3.devices import units
from mla_var3.devices.ceilings import Ceilings, Power, SourceKind
from mla_var3.devices.limits import SmLimits
from mla_var3.devices.machine import Machine
from mla_var3.errors import DeviceFigureError, HyperMlaError, InputError, UnknownNameError

if TYPE_CHECKING:
    import torch

# A tracked symlink to knowledge/devices, so that an installed package carries the files too.
DEVICE_DIR = Path(__file__).parents[1] / "conf" / "devices"

UNKNOWN = "UNKNOWN"
NOT_SUPPORTED = "NOT_SUPPORTED"

# A note beside it belongs into the condition or the source; the site links the address as it is.
_ADDRESS = re.compile(r"""https?://[^\s()<>|"']+""")

#: By whether the arithmetic and the DRAM ceiling were measured.
_SOURCE_KINDS: dict[tuple[bool, bool], SourceKind] = {
    (True, True): "measured",
    (False, False): "published",
    (False, True): "published compute, measured bandwidth",
    (True, False): "measured compute, published bandwidth",
}
_DTYPE_METRICS = {
    "bfloat16": "tensor_bf16_fp32acc",
    "float16": "tensor_fp16_fp32acc",
    "float8": "tensor_fp8",
    "tfloat32": "tensor_tf32",
    "float32": "fp32_vector",
    "int8": "tensor_int8",
}
#: A faster unit that multiplies operands of the type within the error that is accepted: TF32 keeps
#: 11 bits, and Triton's and cuTile's products of fp32 take it.
_ALSO = {"fp32_vector": "tensor_tf32"}
#: Throughput whose joules per FLOP are those of ``energy_per_flop``.
_SIXTEEN_BITS = ("tensor_bf16_fp32acc", "tensor_fp16_fp32acc")
_DTYPE_ALIASES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp8": "float8",
    "float8_e4m3fn": "float8",
    "float8_e5m2": "float8",
    "tf32": "tfloat32",
    "fp32": "float32",
    "float": "float32",
}

Kind = Literal[
    "vendor-datasheet",
    "architecture-whitepaper",
    "vendor-guide",
    "third-party-reference",
    "measured-third-party",
    "measured",
]
Evidence = Literal["direct", "archived-copy", "quoted-by-third-party"]


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Figure(_Row):
    """One statement about a device, as its source makes it.

    Attributes:
        metric: What is stated, a key of ``units.METRICS``; ``measured_<metric>`` for what
            was measured for this project.
        value: The number as printed, ``UNKNOWN`` or ``NOT_SUPPORTED``.
        unit: The unit as printed.
        condition: Under which the figure holds (dense or sparse, per GPU, which clock).
        source: Who states it; for a measurement, on what and when.
        address: Where it can be read, one URL; ``UNKNOWN`` where the publisher could not be
            named.
        quoted: The words of the source.
        kind: What kind of source it is.
        evidence: Read at the source, in a copy of it, or quoted by somebody else.
        read_at: The public copy that was read, where it was not the address.
        derived: Whether the value was computed from what is quoted.
    """

    metric: str
    value: StrictInt | StrictFloat | Literal["UNKNOWN", "NOT_SUPPORTED"]
    unit: str = ""
    condition: str = ""
    source: str = ""
    address: str = ""
    quoted: str = ""
    kind: Kind | None = None
    evidence: Evidence | None = None
    read_at: str = ""
    derived: bool = False

    @model_validator(mode="after")
    def _complete(self) -> Figure:
        if self.value == UNKNOWN:
            if self.source or self.quoted or self.unit:
                raise ValueError("an UNKNOWN figure has no unit, source or quotation")
            return self
        missing = [name for name in ("source", "kind", "evidence") if not getattr(self, name)]
        if self.kind != "measured" and not self.address:
            missing.append("address")
        if self.value == NOT_SUPPORTED:
            if not self.condition:
                missing.append("condition")
        else:
            missing += [name for name in ("unit", "quoted") if not getattr(self, name)]
        if missing:
            raise ValueError(f"{self.metric} lacks {', '.join(missing)}")
        if self.address not in ("", UNKNOWN) and not _ADDRESS.fullmatch(self.address):
            raise ValueError(
                f"{self.metric}: address {self.address!r} is not one http(s) URL without blanks, "
                "brackets or quotes; a note belongs into condition or source"
            )
        if isinstance(self.value, (int, float)):
            if not 0 < self.value < float("inf"):
                raise ValueError(f"{self.metric} must be a positive number, got {self.value}")
            try:
                units.normalise(self.metric, self.value, self.unit)
            except HyperMlaError as error:
                raise ValueError(str(error)) from error
        if (self.kind == "measured") != self.metric.startswith(units.MEASURED_PREFIX):
            raise ValueError(
                f"{self.metric}: figures of kind 'measured', and only they, "
                f"have a metric that starts with {units.MEASURED_PREFIX!r}"
            )
        return self

    @property
    def is_number(self) -> bool:
        """Whether a value is stated."""
        return not isinstance(self.value, str)

    @property
    def is_sparse(self) -> bool:
        """Whether the figure assumes structured sparsity, which no kernel here uses."""
        return self.condition.startswith("with sparsity")

    @cached_property
    def normalised(self) -> float:
        """The value in ``normalised_unit``.

        Raises:
            DeviceFigureError: There is no value.
        """
        if isinstance(self.value, str):
            raise DeviceFigureError(f"{self.metric} is {self.value}: it has no value to convert")
        return units.normalise(self.metric, self.value, self.unit)

    @property
    def normalised_unit(self) -> str:
        """The unit of ``normalised``: TFLOP/s, GB/s, bytes, MHz, W or a count."""
        return units.quantity(self.metric).unit

    def sentence(self) -> str:
        """The figure and its source in one line."""
        condition = f" ({self.condition})" if self.condition else ""
        return f"{self.metric} {self.value:g} {self.unit}{condition}: {self.source}"


class Used(_Row):
    """Which of the figures of a metric is used, and why.

    ``value``, ``unit`` and ``condition`` are those of the chosen figure.
    """

    metric: str
    value: StrictInt | StrictFloat
    unit: str
    condition: str = ""
    reason: str = Field(min_length=12)


class Device(_Row):
    """A GPU and every figure found for it.

    Attributes:
        key: Kebab-case name, the stem of its file.
        name: Name in prose.
        vendor: NVIDIA or AMD.
        arch: Name of the architecture.
        sm: Compile arch (``sm_90``) or, for AMD, the LLVM target.
        torch_names: What ``torch.cuda.get_device_name`` returns for it.
        default_for: The arch whose default device this is.
        note: What a reader of the figures should know.
        used: Choices among figures that disagree.
        figures: All figures.
    """

    key: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    name: str
    vendor: Literal["NVIDIA", "AMD"]
    arch: str
    sm: str = Field(pattern=r"^(sm_[0-9]+|gfx[0-9a-f]+)$")
    torch_names: tuple[str, ...] = ()
    default_for: str | None = Field(default=None, pattern=r"^sm_[0-9]+$")
    note: str = ""
    used: tuple[Used, ...] = ()
    figures: tuple[Figure, ...] = ()

    @property
    def conflicts(self) -> dict[str, tuple[Figure, ...]]:
        """Dense figures of each metric for which sources state different values."""
        stated: dict[str, list[Figure]] = {}
        for figure in self.figures:
            if figure.is_number and not figure.is_sparse:
                stated.setdefault(figure.metric, []).append(figure)
        return {
            metric: tuple(figures)
            for metric, figures in stated.items()
            if len({figure.normalised for figure in figures}) > 1
        }

    def figure(self, metric: str, condition: str | None = None) -> Figure:
        """The figure to use for a metric.

        Args:
            metric: A key of ``units.METRICS``, or ``measured_<metric>``.
            condition: Text that the figure's condition must contain; without it the file's own
                choice is taken, and sparse throughput never is.

        Raises:
            UnknownNameError: There is no such metric.
            DeviceFigureError: Nothing usable is stated, with what is missing.
        """
        units.quantity(metric)
        where = f"knowledge/devices/{self.key}.toml"
        rows = [figure for figure in self.figures if figure.metric == metric]
        if not rows:
            raise DeviceFigureError(f"{where} states no {metric} for {self.name}")
        if condition is not None:
            rows = [row for row in rows if condition.casefold() in row.condition.casefold()]
            if not rows:
                raise DeviceFigureError(
                    f"{where} states no {metric} with {condition!r} in its condition"
                )
        else:
            for used in self.used:
                if used.metric == metric:
                    return self.resolve(used)
        numbers = [row for row in rows if row.is_number]
        if not numbers:
            if rows[0].value == NOT_SUPPORTED:
                raise DeviceFigureError(
                    f"{self.name} does not support {metric}: {rows[0].condition}"
                )
            raise DeviceFigureError(
                f"{metric} of {self.name} is UNKNOWN: no source for it was found, "
                f"and {where} needs one before it can be used"
            )
        dense = [row for row in numbers if not row.is_sparse]
        if condition is None and not dense:
            raise DeviceFigureError(
                f"{metric} of {self.name} is stated with sparsity only; the dense figure is "
                f"UNKNOWN, and {where} needs one before it can be used"
            )
        chosen = dense if condition is None else numbers
        if len({row.normalised for row in chosen}) > 1:
            values = ", ".join(f"{row.value:g} {row.unit}" for row in chosen)
            raise DeviceFigureError(
                f"{where} states {metric} as {values} and has no [[used]] entry that chooses"
            )
        return chosen[0]

    def resolve(self, used: Used) -> Figure:
        """The figure a ``[[used]]`` entry points at.

        Raises:
            DeviceFigureError: It points at none.
        """
        for figure in self.figures:
            if (
                figure.metric == used.metric
                and figure.value == used.value
                and figure.unit == used.unit
                and figure.condition == used.condition
            ):
                return figure
        raise DeviceFigureError(
            f"knowledge/devices/{self.key}.toml: used {used.metric} of {used.value:g} {used.unit} "
            f"({used.condition or 'no condition'}) matches no figure"
        )

    def _whole(self, metric: str) -> int:
        return int(self.figure(metric).normalised)

    @property
    def sm_count(self) -> int:
        """Streaming multiprocessors (AMD: compute units)."""
        return self._whole("sm_count")

    @property
    def l2_bytes(self) -> int:
        """Size of the L2 cache in bytes."""
        return self._whole("l2_size")

    @property
    def is_compile_target(self) -> bool:
        """Whether kernels can be compiled for the device."""
        return self.vendor == "NVIDIA"

    @property
    def compile_arch(self) -> str:
        """The arch to compile for.

        Raises:
            DeviceFigureError: The kernels' languages cannot compile for this vendor.
        """
        if not self.is_compile_target:
            raise DeviceFigureError(
                f"{self.name} ({self.sm}) is listed for comparison only: "
                "cuTile and CuTe DSL compile for NVIDIA GPUs"
            )
        return self.sm

    def sm_limits(self) -> SmLimits:
        """What one streaming multiprocessor can hold.

        Raises:
            DeviceFigureError: A limit is UNKNOWN.
        """
        return SmLimits(
            registers_per_sm=self._whole("registers_per_sm"),
            shared_memory_per_sm=self._whole("shared_memory_per_sm"),
            shared_memory_per_block_max=self._whole("shared_memory_per_block_max"),
            reserved_shared_per_block=self._whole("reserved_shared_per_block"),
            threads_per_sm=self._whole("max_threads_per_sm"),
            warps_per_sm=self._whole("max_warps_per_sm"),
            blocks_per_sm=self._whole("max_blocks_per_sm"),
            register_allocation_unit=self._whole("register_allocation_unit"),
            warp_size=self._whole("warp_size"),
            registers_per_thread=self._whole("max_registers_per_thread"),
        )

    def ceilings(
        self, dtype: str | torch.dtype = "bfloat16", *, published: bool = False
    ) -> Ceilings:
        """The roofline of the device for an element type.

        Args:
            dtype: Element type of the operands; the accumulator is fp32.
            published: Take peaks as published even where a measurement exists.

        Raises:
            UnknownNameError: The element type has no throughput metric.
            DeviceFigureError: A ceiling is UNKNOWN.
        """
        compute = self._ceiling(dtype_metric(dtype), published)
        memory = self._ceiling("dram_bandwidth", published)
        return Ceilings(
            tflops=compute.normalised,
            gbps=memory.normalised,
            source_kind=_SOURCE_KINDS[compute.kind == "measured", memory.kind == "measured"],
            sources=(compute.sentence(), memory.sentence()),
            power=None if published else self._attained_power(dtype_metric(dtype)),
        )

    def bound(self, dtype: str | torch.dtype = "bfloat16") -> Ceilings:
        """What no kernel can beat: the largest rates that anybody states or ever measured.

        One basis for all element types: of the published peak and the best that was attained the
        larger one, so that a bound stays one whatever a later kernel reaches. Of power likewise:
        the most that the board was ever seen to draw, for the least joules per FLOP and byte that
        are stated, and none for the time that passes. Of fp32 the rate of TF32 counts where it is
        stated, since products of fp32 operands may run there.

        Raises:
            UnknownNameError: The element type has no throughput metric.
            DeviceFigureError: A rate is UNKNOWN.
        """
        own, *others = bound_metrics(dtype)
        stated = {f.metric for f in self.figures if f.is_number and not f.is_sparse}
        rates = [self._largest(own), *(self._largest(name) for name in others if name in stated)]
        compute = max(rates, key=lambda figure: figure.normalised)
        memory = self._largest("dram_bandwidth")
        return Ceilings(
            tflops=compute.normalised,
            gbps=memory.normalised,
            source_kind=_SOURCE_KINDS[compute.kind == "measured", memory.kind == "measured"],
            sources=(compute.sentence(), memory.sentence()),
            power=self._least_power(dtype_metric(dtype)),
        )

    def _measured(self, metric: str) -> list[Figure]:
        own = units.MEASURED_PREFIX + metric
        return [figure for figure in self.figures if figure.metric == own and figure.is_number]

    def _largest(self, metric: str) -> Figure:
        found = [self.figure(metric), *self._measured(metric)]
        return max(found, key=lambda figure: figure.normalised)

    def _attained_power(self, metric: str) -> Power | None:
        """Joules as measured, under the stated board power; None where one is missing."""
        rates = self._measured(metric)
        if metric not in _SIXTEEN_BITS or not rates or not self._measured("static_power"):
            return None
        names = ("static_power", "energy_per_flop", "energy_per_byte")
        static, flop, byte = (self.figure(units.MEASURED_PREFIX + name) for name in names)
        limit = self.figure("tdp")
        return Power(
            watts=limit.normalised,
            joules_per_flop=flop.normalised * 1e-12,
            joules_per_byte=byte.normalised * 1e-12,
            static=static.normalised,
            tflops=max(figure.normalised for figure in rates),
            source=_joules_sentence(limit, flop, byte),
        )

    def _least_power(self, metric: str) -> Power | None:
        """The least joules that are stated, under the most power; None where one is missing."""
        flops, bytes = self._measured("energy_per_flop"), self._measured("energy_per_byte")
        if metric not in _SIXTEEN_BITS or not flops or not bytes:
            return None
        flop, byte = (min(f, key=lambda figure: figure.normalised) for f in (flops, bytes))
        limit = self._largest("tdp")
        return Power(
            watts=limit.normalised,
            joules_per_flop=flop.normalised * 1e-12,
            joules_per_byte=byte.normalised * 1e-12,
            source=_joules_sentence(limit, flop, byte),
        )

    def machine(self, dtype: str | torch.dtype = "bfloat16") -> Machine:
        """What a plan may ask of the device.

        Raises:
            UnknownNameError: The element type has no throughput metric.
            DeviceFigureError: A figure is UNKNOWN.
        """
        rates = self.ceilings(dtype)
        return Machine(self.key, rates.tflops, rates.gbps, self.sm_count, rates.power)

    def _ceiling(self, metric: str, published: bool) -> Figure:
        own = units.MEASURED_PREFIX + metric
        if not published and any(figure.metric == own for figure in self.figures):
            return self.figure(own)
        return self.figure(metric)


def _joules_sentence(limit: Figure, flop: Figure, byte: Figure) -> str:
    """A power and what work costs of it, in one line like that of a figure."""
    costs = " and ".join(f"{figure.value:g} {figure.unit}" for figure in (flop, byte))
    return (
        f"{units.MEASURED_PREFIX}power {limit.value:g} {limit.unit} at {costs} ({flop.condition}): "
        f"{flop.source}"
    )


def dtype_metric(dtype: str | torch.dtype) -> str:
    """The throughput metric of an element type.

    Raises:
        UnknownNameError: There is none.
    """
    name = str(dtype).removeprefix("torch.")
    name = _DTYPE_ALIASES.get(name, name)
    if name not in _DTYPE_METRICS:
        raise UnknownNameError("element type", name, sorted(_DTYPE_METRICS))
    return _DTYPE_METRICS[name]


def bound_metrics(dtype: str | torch.dtype) -> tuple[str, ...]:
    """The throughput metrics of which the largest bounds an element type, its own first.

    Raises:
        UnknownNameError: There is none.
    """
    own = dtype_metric(dtype)
    return (own, _ALSO[own]) if own in _ALSO else (own,)


def read(path: Path) -> Device:
    """Read one device file.

    Raises:
        DeviceFigureError: The file is not sound; the message has one line a fault.
    """
    device, faults = parse(path)
    if device is None:
        raise DeviceFigureError("\n".join(faults))
    return device


def parse(path: Path) -> tuple[Device | None, list[str]]:
    """Parse a device file into a device, or into one sentence for each fault."""
    try:
        document = inputs.read_toml(path)
    except InputError as error:
        return None, [
            f"{path.name}: cannot be read: {error.reason.removeprefix('cannot be read: ')}"
        ]
    head = document.pop("device", None)
    used, figures = document.pop("used", []), document.pop("figure", [])
    faults = [
        f"{path.name}: {name}: unknown table (allowed: device, used, figure)" for name in document
    ]
    if not isinstance(head, dict):
        return None, [*faults, f"{path.name}: device: the [device] table is missing"]
    try:
        device = Device.model_validate({**head, "used": used, "figures": figures})
    except ValidationError as error:
        for item in error.errors():
            place = _place(item["loc"], {"used": used, "figures": figures})
            faults.append(f"{path.name}: {place}: {item['msg'].removeprefix('Value error, ')}")
        return None, faults
    return (None if faults else device), faults


def _place(loc: Sequence[int | str], tables: dict[str, list[dict[str, object]]]) -> str:
    """``figures[4] tensor_fp8 .unit``: which entry of which table is at fault."""
    words: list[str] = []
    for part in loc:
        if isinstance(part, int) and words and words[-1] in tables:
            row = tables[words[-1]][part]
            metric = row.get("metric", "?") if isinstance(row, dict) else "?"
            words[-1] = f"{words[-1]}[{part}] {metric}"
        elif isinstance(part, str) and part not in ("int", "float"):
            words.append(part)
    return ".".join(words) or "device"


def load_dir(directory: Path) -> tuple[Device, ...]:
    """All devices of a directory, by key.

    Raises:
        DeviceFigureError: A file is not sound.
    """
    return tuple(read(path) for path in sorted(directory.glob("*.toml")))


@cache
def all_devices() -> tuple[Device, ...]:
    """Every device of the project, by key."""
    return load_dir(DEVICE_DIR)


def load(key: str) -> Device:
    """The device with a key.

    Raises:
        UnknownNameError: No device has it.
    """
    by_key = {device.key: device for device in all_devices()}
    if key not in by_key:
        raise UnknownNameError("device", key, list(by_key))
    return by_key[key]


def find(name: str) -> Device:
    """The device with a key, a name or a torch device name, whatever the case.

    Raises:
        UnknownNameError: None has it.
    """
    wanted = name.strip().casefold()
    for device in all_devices():
        if wanted in (known.casefold() for known in (device.key, device.name, *device.torch_names)):
            return device
    raise UnknownNameError("device", name, [device.key for device in all_devices()])


def runs_code_of(key: str, other: str) -> bool:
    """Whether a device runs the machine code that another one runs."""
    return find(key).sm == find(other).sm


def default_for_arch(arch: str) -> Device:
    """The device that stands for an arch when none was named.

    Args:
        arch: For example ``sm_90``; a feature suffix (``sm_90a``) is ignored.

    Raises:
        UnknownNameError: No device stands for it.
    """
    plain = base_arch(arch)
    defaults = {device.default_for: device for device in all_devices() if device.default_for}
    if plain not in defaults:
        raise UnknownNameError("arch", arch, sorted(key for key in defaults if key))
    return defaults[plain]
