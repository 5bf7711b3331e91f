"""The memory that a bound plan's inputs and outputs lie in: its contents, and other contents."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from mla_var3.runtime.kernel import RuntimeObject

if TYPE_CHECKING:
    import torch

#: Bytes of an input, up to which it gets other values in between.
MOST_KEPT = 1 << 28
#: Bytes between rows that are spread: such as TMA and copies of 128 bytes ask for.
BETWEEN_ROWS = 128


def poison_outputs(obj: RuntimeObject) -> None:
    """Fill all outputs of all stages with NaN, so that whatever is not written shows."""
    for _, kernel in obj.stages():
        for tensor in kernel.output_tensors.values():
            tensor.fill_(math.nan if tensor.is_floating_point() else 0x5A)


def contents(inputs: Sequence[torch.Tensor]) -> list[int]:
    """A sum of the bits of each input, which takes no memory of its size."""
    import torch

    words = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

    def whole(x: torch.Tensor) -> torch.Tensor:
        if x.is_contiguous() and not x.nbytes % 8 and not x.data_ptr() % 8:
            return x.flatten().view(torch.int64)  # Much faster than by smaller words.
        return x.view(words[x.element_size()])

    return [int(whole(x).sum(dtype=torch.int64)) for x in inputs]


def _stored(inputs: Sequence[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Each memory that inputs lie in as bytes, and the first of these inputs.

    A cache far behind its beginning is left out: it is most of it empty, and takes no memory.
    """
    import torch

    found = {x.untyped_storage().data_ptr(): x for x in reversed(inputs)}
    return [
        (torch.empty(0, dtype=torch.uint8, device=x.device).set_(x.untyped_storage()), x)
        for x in found.values()
        if x.untyped_storage().nbytes() <= MOST_KEPT
    ]


@contextlib.contextmanager
def other_bytes(inputs: Sequence[torch.Tensor]) -> Iterator[None]:
    """Inputs with no number that makes sense, and then as they were again."""
    kept = [(whole, whole.clone()) for whole, _ in _stored(inputs)]
    for whole, _ in kept:
        whole.fill_(0xFF)
    try:
        yield
    finally:
        for whole, was in kept:
            whole.copy_(was)


@contextlib.contextmanager
def other_values(inputs: Sequence[torch.Tensor]) -> Iterator[None]:
    """Inputs with all signs turned, and then as they were again; whole numbers stay.

    Bytes are numbers of other types, which stay numbers.
    """
    import torch

    signs = [
        whole[x.element_size() - 1 :: x.element_size()]
        for whole, x in _stored(inputs)
        if x.is_floating_point() or x.dtype == torch.uint8
    ]
    for sign in signs:
        sign ^= 0x80
    try:
        yield
    finally:
        for sign in signs:
            sign ^= 0x80


def copies(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Inputs in memory of their own, which views share as before."""
    copies = {whole.data_ptr(): whole.clone() for whole, _ in _stored(inputs)}
    return [
        x.new_empty(0).set_(
            copies[x.untyped_storage().data_ptr()].untyped_storage(),
            x.storage_offset(), x.shape, x.stride(),
        )
        if x.untyped_storage().data_ptr() in copies
        else x
        for x in inputs
    ]  # fmt: skip


def spread(
    inputs: Sequence[torch.Tensor], *, grouped: bool = False, turned: bool = False
) -> list[torch.Tensor] | None:
    """Inputs in memory of their own whose rows lie apart, with no number that makes sense between.

    So are tensors that a caller cut out of larger ones. Views of one memory stay so. None where no
    input has rows.

    Args:
        inputs: The inputs.
        grouped: Whether instead those of one place along the first axis lie apart from those of the
            next, as in a slice along the second axis; None where no input has rows along two axes.
        turned: Whether rows lie in the order of their last axis first, as those of a transposed
            tensor do; None where no input has rows along two axes.
    """
    wide: dict[int, torch.Tensor] = {}
    for whole, _ in _stored(inputs):
        its = [x for x in inputs if x.untyped_storage().data_ptr() == whole.data_ptr()]
        if (extents := _extents_of(its, whole.numel())) and len(extents) > (grouped or turned):
            wide[whole.data_ptr()] = _apart(whole, extents, grouped, turned)
    return [_in_wide(x, wide) for x in inputs] if wide else None


def _extents_of(views: Sequence[torch.Tensor], size: int) -> tuple[int, ...]:
    """Extents of the rows that views share of so many bytes; none where these are not all there is.

    All axes of a view but the last count rows, which lie one after the other.
    """
    import torch

    (extents, *others) = {tuple(x.shape[:-1]) for x in views}
    if others or not all(x.is_floating_point() or x.dtype == torch.uint8 for x in views):
        return ()
    if not math.prod(extents) or size % math.prod(extents):
        return ()
    row = size // math.prod(extents)
    meant = [math.prod(extents[i + 1 :]) * row for i in range(len(extents))]
    for x in views:
        steps = zip(x.stride()[:-1], meant, extents, strict=True)
        if x.stride(-1) != 1 or any(a * x.element_size() != b for a, b, n in steps if n > 1):
            return ()
    return extents


def _apart(
    whole: torch.Tensor, extents: tuple[int, ...], grouped: bool, turned: bool
) -> torch.Tensor:
    """Rows of these extents of a memory in a wider one, as bytes [*extents, row and between]."""
    rows = whole.view(*extents, -1)
    axes = [*range(len(extents))][:: -1 if turned else 1]
    between = 0 if grouped else BETWEEN_ROWS
    lengths = (*(extents[i] + (grouped and i == 1) for i in axes), rows.shape[-1] + between)
    found = whole.new_full(lengths, 0xFF).permute(*axes, len(axes))
    found[tuple(slice(n) for n in rows.shape)] = rows
    return found


def _in_wide(x: torch.Tensor, wide: Mapping[int, torch.Tensor]) -> torch.Tensor:
    found = wide.get(x.untyped_storage().data_ptr())
    if found is None:
        return x.clone()
    strides = [*(step // x.element_size() for step in found.stride()[:-1]), 1]
    return x.new_empty(0).set_(found.untyped_storage(), x.storage_offset(), x.shape, strides)
