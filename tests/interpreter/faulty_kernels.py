"""Small kernels as people write them, each with one mistake; its line ends with ``# fault``.

They were written from what goes wrong on GPUs, not from what the interpreter looks for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cuda.tile as ct
import torch

ZERO = ct.PaddingMode.ZERO
RELAXED, BLOCK = ct.MemoryOrder.RELAXED, ct.MemoryScope.BLOCK
TILE = 16


@dataclass(frozen=True)
class Faulty:
    """A kernel, how it is launched, and the kinds of report that are right."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: Callable[[], tuple[Any, ...]]
    kinds: frozenset[str]
    unwritten: tuple[int, ...]


CASES: dict[str, Faulty] = {}


def faulty(
    *kinds: str,
    grid: tuple[int, ...] = (1,),
    args: Callable[[], tuple[Any, ...]],
    unwritten: tuple[int, ...] = (),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a kernel with the kinds that its report may have; ``unwritten`` are arguments."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        kernel = ct.kernel(function)
        CASES[function.__name__] = Faulty(kernel, grid, args, frozenset(kinds), unwritten)
        return function

    return register


def floats(*shape: int) -> torch.Tensor:
    return torch.linspace(0, 1, torch.Size(shape).numel()).reshape(shape)


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


# -- padding that nothing determines -------------------------------------------------------------
@faulty("undetermined-padding", grid=(4,), args=lambda: (floats(4, 13), torch.zeros(4, 13)))
def softmax_of_a_ragged_row(x, out):
    row = ct.bid(0)
    score = ct.load(x, (row, 0), (1, TILE))  # fault
    weight = ct.exp(score - ct.max(score, axis=1, keepdims=True))
    ct.store(out, (row, 0), weight / ct.sum(weight, axis=1, keepdims=True))


@faulty("undetermined-padding", args=lambda: (floats(16, 40), floats(48, 16), torch.zeros(16, 16)))
def product_over_a_ragged_k(a, b, out):
    acc = ct.zeros((TILE, TILE), ct.float32)
    for k in range(3):
        left = ct.load(a, (0, k), (TILE, TILE))  # fault
        right = ct.load(b, (k, 0), (TILE, TILE))
        acc = ct.mma(left, right, acc)
    ct.store(out, (0, 0), acc)


@faulty("undetermined-padding", args=lambda: (floats(4, 16), floats(3, 16), torch.zeros(4, 16)))
def softmax_weights_over_unknown_values(s, v, out):
    weight = ct.load(s, (0, 0), (4, 4))
    column = ct.arange(4, dtype=ct.int32)[None, :]
    weight = ct.where(column < 3, weight, 0.0)
    value = ct.load(v, (0, 0), (4, TILE))  # fault
    ct.store(out, (0, 0), ct.mma(weight, value, ct.zeros((4, TILE), ct.float32)))


@faulty("undetermined-padding", args=lambda: (floats(20), torch.zeros(1, dtype=torch.int32)))
def argmax_past_the_end(x, out):
    best = ct.argmax(ct.load(x, 0, (32,)), axis=0)  # fault
    ct.store(out, 0, best.reshape((1,)).astype(ct.int32))


@faulty("undetermined-padding", args=lambda: (floats(10, 16), torch.zeros(16, 16)))
def transposed_tile_stored_whole(x, out):
    tile = ct.load(x, (0, 0), (TILE, TILE))  # fault
    ct.store(out, (0, 0), tile.transpose())


# -- outside of an array -------------------------------------------------------------------------
@faulty("tile-outside", grid=(2, 3), args=lambda: (floats(32, 48), torch.zeros(48, 32)))
def transpose_that_forgets_to_swap(x, out):
    i, j = ct.bid(0), ct.bid(1)
    tile = ct.load(x, (i, j), (TILE, TILE))
    ct.store(out, (i, j), tile.transpose())  # fault


@faulty("tile-outside", args=lambda: (floats(48), torch.zeros(1)))
def one_step_too_many(x, out):
    total = ct.zeros((TILE,), ct.float32)
    for i in range(ct.num_tiles(x, axis=0, shape=(TILE,)) + 1):
        total = total + ct.load(x, i, (TILE,), padding_mode=ZERO)  # fault
    ct.store(out, 0, ct.sum(total).reshape((1,)))


@faulty(
    "tile-outside",
    args=lambda: (ints(2, -1, 0), floats(3, 4, 8), torch.zeros(3, 4, 8)),
    grid=(3,),
)
def page_that_is_not_there(table, cache, out):
    page = ct.load(table, ct.bid(0), (1,)).item()
    tile = ct.load(cache, (page, 0, 0), (1, 4, 8))  # fault
    ct.store(out, (ct.bid(0), 0, 0), tile)


@faulty(
    "tile-outside",
    args=lambda: (ints(16, 40), floats(2, 32), torch.zeros(2)),
    grid=(2,),
)
def length_beyond_the_cache(lengths, x, out):
    row = ct.bid(0)
    total = 0.0
    for j in range(ct.cdiv(ct.load(lengths, row, (1,)).item(), TILE)):
        total = total + ct.sum(ct.load(x, (row, j), (1, TILE), padding_mode=ZERO))  # fault
    ct.store(out, row, ct.full((1,), total, ct.float32))


@faulty("out-of-bounds", args=lambda: (floats(20), torch.zeros(32)))
def mask_that_lets_one_through(x, out):
    at = ct.arange(32, dtype=ct.int32)
    tile = ct.gather(x, at, mask=at <= 20, check_bounds=False)  # fault
    ct.store(out, 0, tile)


@faulty("out-of-bounds", args=lambda: (ints(0, 3, 9, 1), torch.zeros(8)))
def histogram_without_a_last_bin(values, bins):
    at = ct.load(values, 0, (4,))
    ct.atomic_add(bins, at, 1.0, check_bounds=False)  # fault


@faulty("out-of-bounds", args=lambda: (floats(4, 8)[:, :5], torch.zeros(4, 8)))
def columns_between_rows(x, out):
    row = ct.arange(4, dtype=ct.int32)[:, None]
    column = ct.arange(8, dtype=ct.int32)[None, :]
    tile = ct.gather(x, (row, column), check_bounds=False)  # fault
    ct.store(out, (0, 0), tile)


@faulty("out-of-bounds", args=lambda: (floats(16), torch.zeros(4, 8)[:, :4]))
def write_between_rows(x, out):
    row = ct.arange(4, dtype=ct.int32)[:, None]
    column = ct.arange(4, dtype=ct.int32)[None, :] + 1
    tile = ct.load(x, 0, (16,)).reshape((4, 4))
    ct.scatter(out, (row, column), tile, check_bounds=False)  # fault


# -- races between blocks ------------------------------------------------------------------------
@faulty("write-conflict", grid=(4,), args=lambda: (floats(64), torch.zeros(1)))
def split_sum_stored_plainly(x, out):
    part = ct.sum(ct.load(x, ct.bid(0), (TILE,)))
    ct.store(out, 0, part.reshape((1,)))  # fault


@faulty("write-conflict", "read-write-hazard", grid=(2,), args=lambda: (floats(32), torch.zeros(1)))
def read_add_write_without_an_atomic(x, out):
    part = ct.sum(ct.load(x, ct.bid(0), (TILE,)))
    old = ct.load(out, 0, (1,))  # fault
    ct.store(out, 0, old + part)  # fault


@faulty("write-conflict", args=lambda: (ints(1, 3, 1, 0), torch.zeros(4)))
def histogram_by_scatter(values, bins):
    at = ct.load(values, 0, (4,))
    ct.scatter(bins, at, ct.gather(bins, at) + 1.0)  # fault


@faulty("write-conflict", grid=(3,), args=lambda: (floats(64), torch.zeros(40)))
def tiles_that_step_by_less_than_their_width(x, out):
    at = ct.bid(0) * 12 + ct.arange(TILE, dtype=ct.int32)
    ct.scatter(out, at, ct.gather(x, at))  # fault


@faulty("read-write-hazard", grid=(2,), args=lambda: (floats(32),))
def reversal_in_place(x):
    i = ct.bid(0)
    tile = ct.load(x, 1 - i, (TILE,))  # fault
    ct.store(x, i, tile)  # fault


@faulty("read-write-hazard", grid=(3,), args=lambda: (floats(48),))
def stencil_in_place(x):
    at = ct.bid(0) * TILE + ct.arange(TILE, dtype=ct.int32)
    left = ct.gather(x, at - 1)  # fault
    ct.scatter(x, at, ct.gather(x, at) + left)  # fault


@faulty("write-conflict", args=lambda: (floats(16), torch.zeros(1).expand(16)))
def output_that_is_one_element(x, out):
    at = ct.arange(TILE, dtype=ct.int32)
    ct.scatter(out, at, ct.gather(x, at))  # fault


@faulty("write-conflict", grid=(4,), args=lambda: (torch.zeros(1, dtype=torch.int32),))
def ticket_counted_per_block(counter):
    ct.atomic_add(counter, 0, 1, memory_scope=BLOCK)  # fault


# -- signals between blocks ----------------------------------------------------------------------
def partials() -> tuple[torch.Tensor, ...]:
    return floats(48), torch.zeros(3), torch.zeros(1, dtype=torch.int32), torch.zeros(1)


@faulty("read-write-hazard", grid=(3,), args=partials)
def last_block_by_a_relaxed_ticket(x, parts, ticket, out):
    i = ct.bid(0)
    ct.store(parts, i, ct.sum(ct.load(x, i, (TILE,))).reshape((1,)))
    if ct.atomic_add(ticket, 0, 1, memory_order=RELAXED) == 2:
        whole = ct.load(parts, 0, (4,), padding_mode=ZERO)  # fault
        ct.store(out, 0, ct.sum(whole).reshape((1,)))


@faulty("read-write-hazard", grid=(3,), args=lambda: (*partials()[:2], ints(1), torch.zeros(1)))
def ticket_left_over_from_the_last_launch(x, parts, ticket, out):
    i = ct.bid(0)
    part = ct.sum(ct.load(x, i, (TILE,))).reshape((1,))
    ct.store(parts, i, part)  # fault
    if ct.atomic_add(ticket, 0, 1) == 2:
        whole = ct.load(parts, 0, (4,), padding_mode=ZERO)  # fault
        ct.store(out, 0, ct.sum(whole).reshape((1,)))


@faulty("read-write-hazard", grid=(3,), args=partials)
def ticket_taken_before_the_store(x, parts, ticket, out):
    i = ct.bid(0)
    part = ct.sum(ct.load(x, i, (TILE,))).reshape((1,))
    mine = ct.atomic_add(ticket, 0, 1)
    ct.store(parts, i, part)  # fault
    if mine == 2:
        whole = ct.load(parts, 0, (4,), padding_mode=ZERO)  # fault
        ct.store(out, 0, ct.sum(whole).reshape((1,)))


@faulty("read-write-hazard", "write-conflict", grid=(3,), args=partials)
def ticket_of_one_block_alone(x, parts, ticket, out):
    i = ct.bid(0)
    ct.store(parts, i, ct.sum(ct.load(x, i, (TILE,))).reshape((1,)))
    if ct.atomic_add(ticket, 0, 1, memory_scope=BLOCK) == 2:  # fault
        whole = ct.load(parts, 0, (4,), padding_mode=ZERO)  # fault
        ct.store(out, 0, ct.sum(whole).reshape((1,)))


@faulty("read-write-hazard", grid=(2,), args=partials)
def consumer_that_does_not_wait(x, parts, ticket, out):
    if ct.bid(0) == 0:
        ct.store(parts, 0, ct.sum(ct.load(x, 0, (TILE,))).reshape((1,)))  # fault
    else:
        ct.store(out, 0, ct.load(parts, 0, (1,)))  # fault


# -- memory that nothing wrote -------------------------------------------------------------------
@faulty("uninitialised-read", args=lambda: (floats(16), torch.zeros(16)), unwritten=(1,))
def accumulate_into_an_empty_output(x, out):
    old = ct.load(out, 0, (TILE,))  # fault
    ct.store(out, 0, old + ct.load(x, 0, (TILE,)))


@faulty(
    "uninitialised-read", args=lambda: (floats(16), torch.zeros(32), torch.zeros(1)), unwritten=(1,)
)
def workspace_half_filled(x, workspace, out):
    ct.store(workspace, 0, ct.load(x, 0, (TILE,)))
    ct.store(out, 0, ct.sum(ct.load(workspace, 0, (32,))).reshape((1,)))  # fault


@faulty("uninitialised-read", args=lambda: (ints(*range(16)), ints(0, 0, 0, 0)), unwritten=(1,))
def atomic_maximum_without_a_start(x, out):
    ct.atomic_max(out, ct.arange(16, dtype=ct.int32) % 4, ct.load(x, 0, (16,)))  # fault


# -- numbers -------------------------------------------------------------------------------------
@faulty("nan", args=lambda: (torch.full((4, 16), -torch.inf), torch.zeros(4, 16)))
def softmax_of_a_row_with_no_keys(s, out):
    score = ct.load(s, (0, 0), (4, 16))
    shifted = score - ct.max(score, axis=1, keepdims=True)  # fault
    ct.store(out, (0, 0), ct.exp(shifted))


@faulty("nan", args=lambda: (floats(16), torch.zeros(16)))
def root_of_a_negative_variance(x, out):
    tile = ct.load(x, 0, (TILE,))
    ct.store(out, 0, ct.sqrt(ct.sum(tile * tile) / 16 - tile))  # fault


@faulty("nan", args=lambda: (torch.zeros(16), torch.zeros(16)))
def mean_of_nothing(x, out):
    count = ct.sum(ct.load(x, 0, (TILE,)))
    mean = count / count  # fault
    ct.store(out, 0, ct.full((TILE,), mean, ct.float32))


@faulty("infinity", args=lambda: (floats(16) * 200, torch.zeros(16)))
def exponential_without_the_maximum(x, out):
    weight = ct.exp(ct.load(x, 0, (TILE,)))  # fault
    ct.store(out, 0, 1.0 / weight)


@faulty("infinity", args=lambda: (torch.zeros(16), torch.zeros(16)))
def logarithm_of_an_empty_sum(x, out):
    ct.store(out, 0, ct.log(ct.load(x, 0, (TILE,))))  # fault


@faulty("float16-overflow", args=lambda: (floats(16) * 1e6, torch.zeros(16).half()))
def scores_rounded_to_half(x, out):
    score = ct.load(x, 0, (TILE,))
    half = score.astype(ct.float16)  # fault
    ct.store(out, 0, half)


@faulty("index-overflow", args=lambda: (floats(64), ints(1 << 28, 3), torch.zeros(16)))
def offset_in_32_bits(x, sizes, out):
    stride = ct.load(sizes, 0, (1,)).item()
    at = ct.arange(TILE, dtype=ct.int32) * stride  # fault
    ct.store(out, 0, ct.gather(x, at))


@faulty("division-by-zero", args=lambda: (ints(8, 0), torch.zeros(2, dtype=torch.int32)))
def tiles_per_split_of_none(sizes, out):
    splits = ct.load(sizes, 0, (2,))
    ct.store(out, 0, 64 // splits)  # fault


@faulty("division-by-zero", args=lambda: (ints(4, 0), torch.zeros(2, dtype=torch.int32)))
def ring_without_stages(sizes, out):
    stage = ct.bid(0) % ct.load(sizes, 1, (1,)).item()  # fault
    ct.store(out, 0, ct.full((2,), stage, ct.int32))


@faulty("shift-range", args=lambda: (ints(3, 32), torch.zeros(2, dtype=torch.int32)))
def bit_of_a_whole_word(bits, out):
    ct.store(out, 0, 1 << ct.load(bits, 0, (2,)))  # fault


@faulty("assumption", args=lambda: (floats(40), ints(20), torch.zeros(16)))
def length_promised_to_be_tiles(x, sizes, out):
    first = ct.load(sizes, 0, (1,)).item()
    aligned = ct.assume_divisible_by(first, 16)  # fault
    ct.store(out, 0, ct.gather(x, aligned + ct.arange(TILE, dtype=ct.int32)))
