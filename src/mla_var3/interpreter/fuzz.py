"""Fuzzer of the interpreter: makes a random kernel per seed and compares it with exact numpy.

A program is a chain of operations on tiles of integers or floats. Each operation is written twice:
as a line of cuTile, and as exact arithmetic in numpy. Integers and bools must agree in every bit.
Floats too: the operations that take part are those that IEEE 754 rounds correctly.
"""

from __future__ import annotations

import gc
import linecache
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

import cuda.tile as ct
import numpy as np
import torch

from mla_var3.forked import end_with_parent
from mla_var3.interpreter.launcher import launch
from mla_var3.interpreter.options import Options

#: The orders of blocks that a seed chooses from.
ORDERS = ("forward", "reverse", "random")
_PART = 100
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_FLOATS = ("float16", "float32", "float64")
_Array = Any

#: Operators on two tiles of one dtype, written alike in cuTile and numpy.
_BOTH: dict[str, Callable[..., _Array]] = {
    "{a} + {b}": np.add,
    "{a} - {b}": np.subtract,
    "ct.minimum({a}, {b})": np.fmin,  # cuTile skips NaN
    "ct.maximum({a}, {b})": np.fmax,
}
_INTEGER_ONLY: dict[str, Callable[..., _Array]] = {
    # Of floats, the front end fuses a product and a sum, which then round once.
    "{a} * {b}": np.multiply,
    "{a} & {b}": np.bitwise_and,
    "{a} | {b}": np.bitwise_or,
    "{a} ^ {b}": np.bitwise_xor,
    "~{a}": lambda a, b: np.bitwise_not(a),
    "{a} // ({b} | 1)": lambda a, b: _floor(a, b | b.dtype.type(1)),
}
_FLOAT_ONLY: dict[str, Callable[..., _Array]] = {
    "{a} / {b}": np.divide,
    "-{a}": lambda a, b: np.negative(a),
    "ct.floor({a})": lambda a, b: np.floor(a),
    "ct.sqrt({a} * {a})": lambda a, b: np.sqrt(a * a),
}
#: Movements of a tile of shape (M, N) to one of the same shape.
_MOVES: dict[str, Callable[[_Array], _Array]] = {
    "ct.transpose({a}).reshape((M, N))": lambda a: a.T.reshape(a.shape),
    "{a}.reshape((N, M)).reshape((M, N))": lambda a: a,
    "ct.broadcast_to(ct.extract({a}, (0, 0), (1, N)), (M, N))": lambda a: np.broadcast_to(
        a[:1], a.shape
    ),
    "ct.broadcast_to(ct.max({a}, axis=0, keepdims=True), (M, N))": lambda a: np.broadcast_to(
        np.fmax.reduce(a, axis=0, keepdims=True), a.shape
    ),
    "ct.broadcast_to(ct.min({a}, axis=1, keepdims=True), (M, N))": lambda a: np.broadcast_to(
        np.fmin.reduce(a, axis=1, keepdims=True), a.shape
    ),
}
#: Reductions whose result does not depend on their order.
_SUMS: dict[str, Callable[[_Array], _Array]] = {
    "ct.broadcast_to(ct.sum({a}, axis=1, keepdims=True), (M, N))": lambda a: np.broadcast_to(
        a.sum(axis=1, keepdims=True, dtype=a.dtype), a.shape
    ),
    "ct.cumsum({a}, axis=0)": lambda a: a.cumsum(axis=0, dtype=a.dtype),
}


def _floor(a: _Array, b: _Array) -> _Array:
    """Floor division; the smallest integer by -1 wraps to itself, as negation does."""
    if a.dtype.kind == "u":
        return a // b
    minus = b == -1
    return np.where(minus, -a, a // np.where(minus, 1, b)).astype(a.dtype)


@dataclass
class Program:
    """A kernel and what it must give.

    Attributes:
        seed: What made it.
        shape: Shape of a tile, and of the blocks that the grid has of them.
        lines: Lines of the kernel's body.
        inputs: The two arrays that it reads, by dtype.
        expected: What it must write.
    """

    seed: int
    shape: tuple[int, int]
    blocks: int
    size: tuple[int, int]
    inputs: list[_Array]
    lines: list[str] = field(default_factory=list)
    expected: _Array = None

    @property
    def source(self) -> str:
        """The kernel's source."""
        return "\n".join(
            [
                "@ct.kernel",
                "def program(x, y, out, M: ct.Constant[int], N: ct.Constant[int]):",
                "    i = ct.bid(0)",
                "    a = ct.load(x, (i, 0), (M, N), padding_mode=ct.PaddingMode.ZERO)",
                "    b = ct.load(y, (i, 0), (M, N), padding_mode=ct.PaddingMode.ZERO)",
                *(f"    {line}" for line in self.lines),
                "    ct.store(out, (i, 0), a)",
                "",
            ]
        )


def make(seed: int) -> Program:
    """Makes the program of a seed."""
    rng = random.Random(seed)
    m, n, blocks = 2 ** rng.randint(0, 3), 2 ** rng.randint(0, 4), rng.randint(1, 3)
    # The last tile reaches outside, often.
    size = (max(1, m * blocks - rng.randrange(m)), max(1, n - rng.randrange(n)))
    dtype = rng.choice(_INTEGERS + _FLOATS)
    inputs = [_random(rng, size, dtype) for _ in range(2)]
    program = Program(seed, (m, n), blocks, size, inputs)
    tiles = [_padded(x, (m * blocks, n)).reshape(blocks, m, n) for x in inputs]
    with np.errstate(all="ignore"):
        for _ in range(rng.randint(1, 8)):
            tiles = _extend(program, rng, tiles)
    program.expected = tiles[0].reshape(blocks * m, n)[: size[0], : size[1]]
    return program


def _random(rng: random.Random, size: tuple[int, int], dtype: str) -> _Array:
    generator = np.random.default_rng(rng.randrange(2**32))
    if dtype in _FLOATS:
        return (generator.standard_normal(size) * 2.0 ** rng.randint(-3, 6)).astype(dtype)
    info = np.iinfo(dtype)
    values = generator.integers(info.min, info.max, size, dtype=dtype, endpoint=True)
    small = generator.integers(0, 8, size).astype(dtype)
    return np.where(generator.random(size) < 0.5, small, values).astype(dtype)


def _padded(x: _Array, shape: tuple[int, int]) -> _Array:
    out = np.zeros(shape, x.dtype)
    out[: x.shape[0], : x.shape[1]] = x
    return out


def _extend(program: Program, rng: random.Random, tiles: list[_Array]) -> list[_Array]:
    """Adds one line to a program, and applies it to the tiles ``a`` and ``b``."""
    a, b = tiles
    kind = rng.random()
    if kind < 0.15:
        return _convert(program, rng, tiles)
    if kind < 0.3:
        return _select(program, rng, tiles)
    name = rng.choice("ab")
    if kind < 0.5:
        moves: dict[str, Callable[[_Array], _Array]] = {
            **_MOVES,
            **(_SUMS if a.dtype.kind in "iu" else {}),
        }
        text, move = rng.choice(list(moves.items()))
        source = a if name == "a" else b
        program.lines.append(f"{name} = {text.format(a=name)}")
        moved = np.stack([move(block) for block in source])
        return [moved, b] if name == "a" else [a, moved]
    own = _FLOAT_ONLY if a.dtype.kind == "f" else _INTEGER_ONLY
    text, function = rng.choice(list({**_BOTH, **own}.items()))
    program.lines.append(f"{name} = {text.format(a='a', b='b')}")
    result = function(a, b).astype(a.dtype)
    return [result, b] if name == "a" else [a, result]


def _convert(program: Program, rng: random.Random, tiles: list[_Array]) -> list[_Array]:
    """Converts both tiles between integers, or between floats."""
    kinds = _INTEGERS if tiles[0].dtype.kind in "iu" else _FLOATS
    target = rng.choice(kinds)
    program.lines += [f"a = a.astype(ct.{target})", f"b = b.astype(ct.{target})"]
    return [tile.astype(target) for tile in tiles]


def _select(program: Program, rng: random.Random, tiles: list[_Array]) -> list[_Array]:
    """Selects between both tiles by a comparison of them."""
    a, b = tiles
    symbol = rng.choice(["<", "<=", ">", ">=", "==", "!="])
    compare = {
        "<": np.less,
        "<=": np.less_equal,
        ">": np.greater,
        ">=": np.greater_equal,
        "==": np.equal,
        "!=": np.not_equal,
    }[symbol]
    program.lines.append(f"a = ct.where(a {symbol} b, a, b)")
    return [np.where(compare(a, b), a, b), b]


def compiled(program: Program) -> Any:
    """Returns the kernel of a program; the front end reads its source from linecache."""
    file = f"<program {program.seed}>"
    text = program.source
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"ct": ct}
    exec(compile(text, file, "exec"), namespace)
    return namespace["program"]


def difference(seed: int, order: str = "forward") -> str | None:
    """Runs the program of a seed; returns what differs from numpy, or None.

    Args:
        seed: What makes the program.
        order: The order in which its blocks start.
    """
    program = make(seed)
    expected = program.expected
    out = torch.from_numpy(np.zeros(expected.shape, expected.dtype))
    x, y = (torch.from_numpy(np.ascontiguousarray(i)) for i in program.inputs)
    options = Options(order=order)  # type: ignore[arg-type]
    try:
        report = launch(
            (program.blocks,), compiled(program), (x, y, out, *program.shape), options=options
        )
    finally:
        linecache.cache.pop(f"<program {seed}>", None)
    if report.diagnostics:
        return f"{program.source}\n{report.diagnostics[0]}"
    got = out.numpy()
    same = (got == expected) | ((got != got) & (expected != expected))
    if bool(same.all()):
        return None
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    return f"{program.source}\nelement {at}: {got[at]!r}, expected {expected[at]!r}"


def explore(programs: int, first: int, jobs: int = 1) -> int:
    """Compares many programs, and prints each that differs; returns 1 if one does.

    Args:
        programs: How many.
        first: Seed of the first one.
        jobs: Processes that share them; one runs in this process.
    """
    parts = [
        range(at, min(at + _PART, first + programs)) for at in range(first, first + programs, _PART)
    ]
    done = wrong = 0
    with (
        ProcessPoolExecutor(jobs, get_context("spawn"), end_with_parent)
        if jobs > 1
        else nullcontext() as pool
    ):
        for part, found in zip(parts, (pool.map if pool else map)(differing, parts), strict=True):
            for seed, what in found.items():
                print(f"seed {seed}:\n{what}\n", flush=True)
            done, wrong = done + len(part), wrong + len(found)
            print(f"{done} programs, {wrong} differ", file=sys.stderr, flush=True)
    print(f"{programs} programs from seed {first}: {wrong} differ")
    return int(wrong > 0)


def differing(seeds: Sequence[int]) -> dict[int, str]:
    """Returns what differs, by the seed of its program; the order of blocks goes by the seed."""
    torch.set_num_threads(1)
    with _no_collector():
        found = {seed: difference(seed, ORDERS[seed % len(ORDERS)]) for seed in seeds}
    return {seed: what for seed, what in found.items() if what is not None}


@contextmanager
def _no_collector() -> Iterator[None]:
    """Leaves cycles for the end: the front end makes so many that a sixth of a run is theirs."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
