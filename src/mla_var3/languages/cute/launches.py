"""Parses a compiled host function's MLIR for each launch's grid, block, cluster, shared memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from mla_var3.errors import ToolchainError

#: cudaLaunchAttributeClusterDimension of the CUDA runtime (driver_types.h).
_CLUSTER_DIMENSION = 4

_CONSTANT = re.compile(r"(%\S+) = llvm\.mlir\.constant\((-?\d+) : i\d+\)")
_ELEMENT = re.compile(
    r"(?P<to>%\S+) = llvm\.getelementptr %\S+\[(?P<at>[\d, ]+)\] : .*, !llvm\.(?P<type>struct<.*>)$"
)
_STORE = re.compile(r"llvm\.store (?P<value>%\S+), (?P<to>%\S+) : i(?:32|64), !llvm\.ptr")
_KERNEL = re.compile(r"llvm\.mlir\.addressof @kernels_(\S+) : !llvm\.ptr")

#: cudaLaunchConfig_t, a cudaLaunchAttribute, and a dim3.
_CONFIG = "struct<(array<3 x i32>, array<3 x i32>, i64, ptr, ptr, i32)>"
_ATTRIBUTE = "struct<(i32, array<4 x i8>, array<64 x i8>)>"
_DIM3 = "struct<(i32, i32, i32)>"


@dataclass(frozen=True)
class Launch:
    """One launch; None stands for what is worked out when it happens.

    Attributes:
        kernel: Name of the device kernel, as in the PTX.
        grid: Blocks along each axis.
        block: Threads along each axis.
        cluster: Blocks of a cluster along each axis.
        shared_bytes: Dynamic shared memory per block.
    """

    kernel: str
    grid: tuple[int | None, ...]
    block: tuple[int | None, ...]
    cluster: tuple[int | None, ...]
    shared_bytes: int | None


@dataclass
class _Config:
    """What was stored into a launch configuration so far, by (what, axis)."""

    values: dict[tuple[str, int], int | None] = field(default_factory=dict)
    attribute: int | None = None
    kernel: str | None = None

    def axes(self, what: str, default: int | None) -> tuple[int | None, ...]:
        return tuple(self.values.get((what, axis), default) for axis in range(3))

    def launch(self) -> Launch:
        if self.kernel is None or ("shared", 0) not in self.values:
            raise ToolchainError("a launch states no kernel or no shared memory; the DSL changed")
        return Launch(
            kernel=self.kernel,
            grid=self.axes("grid", None),
            block=self.axes("block", None),
            cluster=self.axes("cluster", 1),
            shared_bytes=self.values["shared", 0],
        )


def parse(ir: str) -> tuple[Launch, ...]:
    """Launches in the order of the host code.

    Args:
        ir: The compiled module's text, in MLIR's LLVM dialect.

    Raises:
        ToolchainError: A launch is not written as this release of the DSL writes it.
    """
    found: list[Launch] = []
    for function in re.split(r"^  llvm\.func ", ir, flags=re.MULTILINE)[1:]:
        found += _launches(function)
    return tuple(found)


def _launches(function: str) -> Iterator[Launch]:
    constants: dict[str, int] = {}
    places: dict[str, tuple[str, int]] = {}
    config = _Config()
    for line in map(str.strip, function.splitlines()):
        if match := _CONSTANT.match(line):
            constants[match[1]] = int(match[2])
        elif match := _ELEMENT.match(line):
            if place := _place(match["at"], match["type"]):
                places[match["to"]] = place
        elif (match := _STORE.match(line)) and match["to"] in places:
            _keep(config, places[match["to"]], constants.get(match["value"]))
        elif match := _KERNEL.search(line):
            config.kernel = match[1]
        elif "llvm.call @_cudaLaunchKernelEx(" in line:
            yield config.launch()
            config = _Config()


def _place(at: str, type_: str) -> tuple[str, int] | None:
    first, *axes = (int(index) for index in at.split(",")[1:])
    if type_ == _CONFIG and axes and first < 2:
        return ("grid", "block")[first], axes[0]
    named = {(_CONFIG, 2): "shared", (_ATTRIBUTE, 0): "attribute"}
    if what := named.get((type_, first)):
        return what, 0
    return ("dim3", first) if type_ == _DIM3 else None


def _keep(config: _Config, place: tuple[str, int], value: int | None) -> None:
    what, axis = place
    if what == "attribute":
        config.attribute = value
    elif what != "dim3":
        config.values[what, axis] = value
    elif config.attribute == _CLUSTER_DIMENSION:
        config.values["cluster", axis] = value
