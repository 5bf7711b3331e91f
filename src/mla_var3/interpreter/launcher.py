"""Kernel launch in the interpreter: runs a cuTile kernel on CPU tensors in place and reports."""

from __future__ import annotations

import contextlib
import math
import operator
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import torch

from mla_var3.errors import InterpreterError
from mla_var3.gpuless.cuda import on_the_cpu
from mla_var3.interpreter.arrays import ArrayArg, Pointer
from mla_var3.interpreter.frontend import program as program_of
from mla_var3.interpreter.launch_report import DiagnosticLog, LaunchReport, record
from mla_var3.interpreter.memory import Memory
from mla_var3.interpreter.options import Options, current
from mla_var3.interpreter.probes import Probes
from mla_var3.interpreter.program import Program, Runtime
from mla_var3.interpreter.schedule import run_blocks
from mla_var3.interpreter.signature import (
    annotated_function,
    launch_signature,
    signature_key,
    tuple_nodes,
)
from mla_var3.interpreter.ways import of_arguments

# Products with more multiply-adds than this run on every thread; smaller ones lose by it.
_THREADED_WORK = 1 << 24

#: Kernels and arguments by what cuTile would compile once.
Launched = dict[tuple[Any, ...], tuple[Any, tuple[Any, ...]]]
_open: ContextVar[tuple[Launched, ...]] = ContextVar("launched", default=())


@contextlib.contextmanager
def launched() -> Iterator[Launched]:
    """Collects each kernel that is launched inside the ``with`` block, with its arguments.

    Yields:
        A kernel and the arguments of its first launch, for each specialization; it grows.
    """
    found: Launched = {}
    token = _open.set((*_open.get(), found))
    try:
        yield found
    finally:
        _open.reset(token)


def launch(
    grid: Sequence[int],
    kernel: Any,
    args: Sequence[Any],
    *,
    options: Options | None = None,
) -> LaunchReport:
    """Executes a kernel on the CPU, in place, as ``ct.launch`` would on a GPU.

    The values are those of cuTile's typed IR: integers wrap, floats round to nearest even,
    products of a matrix product are exact and their sums float32. Approximate modes
    (``RoundingMode.APPROX``) and the order of sums in a tensor core are not modeled.

    Args:
        grid: Blocks along x, y and z; one to three positive numbers.
        kernel: A function decorated with ``@ct.kernel``.
        args: The kernel's arguments; tensors must be on the CPU and are written in place.
        options: How to interpret; by default what ``using`` says, else ``Options()``, which
            finds the most.

    Returns:
        Work, traffic and findings. It is also handed to every open ``recording()``.

    Raises:
        InterpreterError: If the arguments do not fit the kernel, cuTile refuses the kernel, an
            assertion in it fails, or it never ends.
    """
    with on_the_cpu():  # A script under ``run`` believes that its tensors are elsewhere.
        return _launch(grid, kernel, args, options or current())


def _launch(
    grid: Sequence[int], kernel: Any, args: Sequence[Any], options: Options
) -> LaunchReport:
    blocks = _grid(grid)
    signature = launch_signature(kernel, args)
    for found in _open.get():
        found.setdefault((id(kernel), *signature_key(signature)), (kernel, tuple(args)))
    probes = Probes(options.watch, options.numerics)
    program = program_of(kernel, signature, probes)
    log = DiagnosticLog()
    memory = Memory(log, options.track)
    values = _bind(kernel, args, memory)
    _prepare(memory, program, values, options)
    rt = Runtime(
        memory,
        log,
        blocks,
        options.poison,
        options.int_poison,
        options.max_steps,
        [0] * len(program.segments),
        hardware_padding=options.padding == "hardware",
        print_limit=options.print_limit,
        print_blocks=options.print_blocks,
    )
    env: list[Any] = [None] * program.slots
    for slot, value in zip(program.params, values, strict=True):
        env[slot] = value
    started = time.perf_counter()
    with _threads(program), torch.inference_mode():
        flops, steps = _run(program, env, rt, options)
        if options.track:
            memory.finish()
    report = LaunchReport(
        program.name,
        blocks,
        flops,
        memory.lines,
        memory.array_traffic() if options.track else {},
        log.diagnostics(),
        steps,
        time.perf_counter() - started,
        rt.watched,
        rt.facts | of_arguments(annotated_function(kernel).pysig.parameters, args),
    )
    record(report)
    return report


def _run(
    program: Program, env: list[Any], rt: Runtime, options: Options
) -> tuple[dict[str, int], int]:
    program.prologue.complete(env, rt)
    rt.invariant_taints = dict(rt.taints)
    count = math.prod(rt.grid)
    # Each block executes the prologue on a GPU, so its work counts for each.
    rt.counts = [n * count for n in rt.counts]
    run_blocks(program, env, rt, options)
    flops: Counter[str] = Counter()
    steps = 0
    for segment, times in zip(program.segments, rt.counts, strict=True):
        steps += segment.size * times
        for kind, n in segment.flops.items():
            flops[kind] += n * times
    return {kind: n for kind, n in sorted(flops.items()) if n}, steps


def _grid(grid: Sequence[int]) -> tuple[int, int, int]:
    try:
        sizes = tuple(operator.index(n) for n in grid)  # numpy's integers are welcome too
    except TypeError:
        sizes = ()
    if not 1 <= len(sizes) <= 3 or min(sizes) < 1:
        raise InterpreterError(f"grid {grid!r} must be one to three positive integers")
    x, y, z = (*sizes, 1, 1)[:3]
    if x >= 2**31 or y >= 2**16 or z >= 2**16:
        raise InterpreterError(f"grid {sizes} exceeds the limits (2147483647, 65535, 65535)")
    return x, y, z


@contextlib.contextmanager
def _threads(program: Program) -> Iterator[None]:
    """Runs small tiles on one thread, which is faster, and restores the setting."""
    before = torch.get_num_threads()
    if program.widest > _THREADED_WORK or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# -------------------------------------------------------------------------------- arguments


def _bind(kernel: Any, args: Sequence[Any], memory: Memory) -> list[Any]:
    """Returns the values of the flattened parameters."""
    annotated = annotated_function(kernel)
    leaves: list[tuple[str, Any]] = []
    for arg, node, name in zip(
        args, annotated.parameter_annotations, annotated.pysig.parameters, strict=True
    ):
        _flatten(arg, node, name, leaves)
    arrays = iter(memory.add_arrays(list(_tensors(leaves))))
    values: list[Any] = []
    for _, leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            values += _array_values(next(arrays))
        elif isinstance(leaf, list):
            values += [[_array_values(next(arrays)) for _ in leaf], len(leaf)]
        elif isinstance(leaf, float):
            values.append(torch.tensor(leaf, dtype=torch.float32))
        else:
            values.append(leaf)
    return values


def _flatten(arg: Any, node: Any, path: str, leaves: list[tuple[str, Any]]) -> None:
    """Lists tensors, lists and scalars in order; constants are part of the signature instead."""
    if isinstance(arg, tuple):
        for i, (item, item_node) in enumerate(zip(arg, tuple_nodes(arg, node, path), strict=True)):
            _flatten(item, item_node, f"{path}[{i}]", leaves)
    elif not node.constant:
        leaves.append((path, arg))


def _tensors(leaves: list[tuple[str, Any]]) -> Iterator[tuple[str, torch.Tensor]]:
    for name, leaf in leaves:
        named = enumerate(leaf) if isinstance(leaf, list) else None
        for path, tensor in (
            [(f"{name}[{i}]", t) for i, t in named] if named is not None else [(name, leaf)]
        ):
            if not isinstance(tensor, torch.Tensor):
                continue
            if tensor.device.type != "cpu":
                raise InterpreterError(
                    f"argument {path!r} is on device {tensor.device}; the interpreter runs on CPU "
                    "tensors"
                )
            yield path, tensor


def _array_values(array: ArrayArg) -> list[Any]:
    return [Pointer(array, array.start, array.itemsize), *array.shape, *array.strides]


def _prepare(memory: Memory, program: Program, values: list[Any], options: Options) -> None:
    """Marks memory that the kernel may write, and memory that nothing has written."""
    for i, value in enumerate(values):
        if program.stored is not None and i not in program.stored:
            continue
        if isinstance(value, Pointer):
            value.array.region.written = True
            if program.stored is not None:
                memory.expect_store(value.array, program.stored[i])
        elif isinstance(value, list):
            for item in value:
                item[0].array.region.written = True
    for tensor in options.uninitialised:
        memory.mark_undefined(tensor, options.poison, options.int_poison)
