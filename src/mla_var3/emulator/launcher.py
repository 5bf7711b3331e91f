"""Kernel launch in the emulator: runs a grid of PTX, returns diagnostics, counts and prints.

``launch`` takes a PTX text and numpy arrays; ``run`` takes a lowered program and packed parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mla_var3.collecting import unsearched
from mla_var3.emulator.clusters import Launch, run_once
from mla_var3.emulator.excusing import excused
from mla_var3.emulator.machine import Dim3
from mla_var3.emulator.options import Options
from mla_var3.emulator.program import Program
from mla_var3.emulator.regions import Region
from mla_var3.emulator.unused import RacingReads
from mla_var3.errors import EmulatorError
from mla_var3.gpuless.ptx import parse

MOST_THREADS = 1024
MOST_GRID = (2**31 - 1, 65535, 65535)
MOST_CLUSTER = 16
#: What a CTA may have of shared memory: opt-in maximum of sm_90 and its system kilobyte.
MOST_SHARED = 232448


def dim3(size: int | Sequence[int]) -> Dim3:
    """One to three extents as three."""
    values = [size] if isinstance(size, int) else list(size)
    x, y, z = (*values, 1, 1, 1)[:3]
    return (int(x), int(y), int(z))


def pack(program: Program, arguments: Sequence[Any]) -> bytes:
    """Arguments as a block of parameters.

    Args:
        program: The kernel.
        arguments: Per parameter an array (its address is passed), bytes, an int or a float.

    Raises:
        EmulatorError: There are too many or too few, or one has the wrong size.
    """
    expected = program.kernel.parameters
    if len(arguments) != len(expected):
        raise EmulatorError(
            f"kernel {program.kernel.name} takes {len(expected)} arguments, and "
            f"{len(arguments)} are given"
        )
    block = bytearray(program.kernel.parameter_bytes)
    for p, value in zip(expected, arguments, strict=True):
        raw = _raw(value, p.size)
        if len(raw) != p.size:
            raise EmulatorError(
                f"argument {p.name} has {len(raw)} bytes, and {p.size} are expected"
            )
        block[p.offset : p.offset + p.size] = raw
    return bytes(block)


def _raw(value: Any, size: int) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, np.ndarray):
        value = value.ctypes.data
    if isinstance(value, float):
        return np.float32(value).tobytes() if size == 4 else np.float64(value).tobytes()
    if isinstance(value, np.generic):
        return value.tobytes()
    return (int(value) & (1 << 8 * size) - 1).to_bytes(size, "little")


def region_of(array: NDArray[Any], label: str = "", unwritten: bool = False) -> Region:
    """The memory of a numpy array."""
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    name = label or f"{tuple(array.shape)} {array.dtype}"
    region = Region(int(base.ctypes.data), max(int(base.nbytes), 1), name, unwritten)
    region.owner = array
    return region


def launch(
    ptx: str | Program,
    arguments: Sequence[Any],
    grid: int | Sequence[int] = 1,
    block: int | Sequence[int] = 32,
    *,
    kernel: str | None = None,
    cluster: int | Sequence[int] = 1,
    shared: int = 0,
    regions: Sequence[Region] = (),
    unwritten: Sequence[NDArray[Any]] = (),
    options: Options | None = None,
    after: Launch | None = None,
) -> Launch:
    """Run a kernel of a PTX text on numpy arrays.

    Args:
        ptx: PTX text, or a program made of one.
        arguments: Per parameter an array, bytes (a tensor map), an int or a float.
        grid: CTAs per axis.
        block: Threads per axis.
        kernel: Name of the kernel where the text has several.
        cluster: CTAs of a cluster per axis.
        shared: Bytes of dynamic shared memory.
        regions: Memory that the kernel may touch beyond the arrays among ``arguments``.
        unwritten: Arrays that hold nothing yet: reading them before a write is reported.
        options: How to run.
        after: A launch that may still run when this one begins (programmatic stream serialization):
            what it touched is there past ``griddepcontrol.wait``.

    Raises:
        EmulatorError: The launch is not possible, or the kernel meets what is not emulated.
    """
    program = ptx if isinstance(ptx, Program) else Program(parse(ptx), kernel)
    fresh = {id(a) for a in unwritten}
    arrays = {id(a): a for a in [*arguments, *unwritten] if isinstance(a, np.ndarray) and a.nbytes}
    mine = [region_of(a, unwritten=i in fresh) for i, a in arrays.items()]
    block_ = pack(program, arguments)
    return run(
        program,
        block_,
        dim3(grid),
        dim3(block),
        dim3(cluster),
        shared,
        [*regions, *mine],
        options or Options(),
        after,
    )


def run(
    program: Program,
    parameters: bytes,
    grid: Dim3,
    block: Dim3,
    cluster: Dim3,
    shared: int,
    regions: Sequence[Region],
    options: Options,
    after: Launch | None = None,
) -> Launch:
    """Run a program with its parameters packed; see ``launch``."""
    _refuse_impossible(program, grid, block, cluster, shared)
    every = {r.base: r for r in [*_variables(program), *regions]}

    overlapped = after.grid_before if after is not None else None
    shape = (grid, block, cluster, shared)

    def once(how: Options, reads: RacingReads | None = None) -> Launch:
        with unsearched():
            return run_once(program, parameters, shape, every, how, overlapped, reads)

    return excused(once, every, options)


def _variables(program: Program) -> list[Region]:
    return [
        Region(int(a.ctypes.data), a.nbytes, f"variable {n}") for n, a in program.storage.items()
    ]


def _refuse_impossible(
    program: Program, grid: Dim3, block: Dim3, cluster: Dim3, shared: int
) -> None:
    """Refuse a launch that no GPU would take."""
    threads, ctas = int(np.prod(block)), int(np.prod(cluster))
    if not 1 <= threads <= MOST_THREADS:
        raise EmulatorError(
            f"a block of {block} has {threads} threads; 1 to {MOST_THREADS} are allowed"
        )
    if any(not 1 <= g <= most for g, most in zip(grid, MOST_GRID, strict=True)):
        raise EmulatorError(f"a grid of {grid} is outside of 1 to {MOST_GRID}")
    if not 1 <= ctas <= MOST_CLUSTER:
        raise EmulatorError(
            f"a cluster of {cluster} has {ctas} CTAs; 1 to {MOST_CLUSTER} are allowed"
        )
    if any(g % c for g, c in zip(grid, cluster, strict=True)):
        raise EmulatorError(f"a grid of {grid} does not divide into clusters of {cluster}")
    static = program.static_shared - 0x400
    if not 0 <= shared <= MOST_SHARED - static:
        raise EmulatorError(
            f"{static} + {shared} bytes of shared memory are asked for; {MOST_SHARED} are allowed"
        )
    if program.kernel.threads and int(np.prod(program.kernel.threads)) != threads:
        raise EmulatorError(
            f"kernel {program.kernel.name} requires {program.kernel.threads} threads, and "
            f"{block} are launched"
        )
