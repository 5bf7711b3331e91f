"""Schema of an exported library's manifest, which ``loader`` reads on a GPU host."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TensorArgument(_Model):
    """A tensor; extents and strides that are None are given at each launch.

    Attributes:
        name: Parameter of the host function.
        dtype: Of torch, such as ``bfloat16``.
        shape: Extents in elements.
        strides: In elements.
        multiple_of: What extents given at launch are multiples of.
        stride_multiples: What each stride is a multiple of.
        alignment: Bytes that the address is a multiple of.
        shape_bits: Width of an extent in the argument's C struct.
        stride_bits: Width of a stride in it.
    """

    kind: Literal["tensor"] = "tensor"
    name: str
    dtype: str
    shape: tuple[int | None, ...]
    strides: tuple[int | None, ...]
    multiple_of: int
    stride_multiples: tuple[int, ...]
    alignment: int
    shape_bits: Literal[32, 64] = 32
    stride_bits: Literal[32, 64] = 64


class ScalarArgument(_Model):
    """A number given at each launch."""

    kind: Literal["scalar"] = "scalar"
    name: str
    dtype: Literal["Int32", "Float32"]


Argument = Annotated[TensorArgument | ScalarArgument, Field(discriminator="kind")]


class ExportedKernel(_Model):
    """One tiling of one host function.

    Attributes:
        prefix: What the names of its symbols start with.
        symbol: Its launch function.
        tiling: The tiling's fields.
        arguments: What it is called with, in order, without the stream.
        registers: Registers per thread of its device kernels, in the order of launches.
        shared_bytes: Shared memory per block, likewise.
        threads_per_block: Threads per block, likewise.
    """

    prefix: str
    symbol: str
    tiling: dict[str, int | float | str | bool | None]
    arguments: tuple[Argument, ...]
    registers: tuple[int, ...]
    shared_bytes: tuple[int, ...]
    threads_per_block: tuple[int, ...]


class FailedTiling(_Model):
    """A tiling that was not exported, and why."""

    tiling: dict[str, int | float | str | bool | None]
    reason: str


class Manifest(_Model):
    """One exported library.

    Attributes:
        schema_version: Raised when a field changes its meaning; the loader refuses another one.
        name: What the library is of.
        arch: Such as ``sm_90``.
        target: What it was compiled for, such as ``sm_90a``; it runs on nothing else.
        library: File name beside the manifest; None when every tiling failed.
        sha256: Digest of the library.
        toolchain: Versions that made it.
        kernels: The tilings in the order asked.
        failures: Those that failed.
    """

    schema_version: Literal[1] = 1
    name: str
    arch: str
    target: str
    library: str | None
    sha256: str | None
    toolchain: dict[str, str]
    kernels: tuple[ExportedKernel, ...]
    failures: tuple[FailedTiling, ...] = ()
