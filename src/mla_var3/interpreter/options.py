"""``Options`` of an interpreted launch, and a context that sets them for all launches inside it."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch

from mla_var3.errors import InterpreterError

_ORDERS = ("forward", "reverse", "random")
_PADDINGS = ("poison", "hardware")


@dataclass(frozen=True)
class Options:
    """How a launch is interpreted.

    Attributes:
        poison: Stands for undetermined floats: NaN shows wherever it goes; 0.0 hides it, to see
            whether a kernel depends on it.
        int_poison: Stands for undetermined integers, wrapped to their width.
        padding: ``"poison"`` fills padding that nothing determines, and tiles wholly outside
            their array, with poison and reports them. ``"hardware"`` gives what a GPU gives
            (zeros, or the value of the padding mode), so that kernels that rely on it run; what
            they rely on is then a note, not an error.
        track: Whether shadow memory is kept: hazards, unwritten elements, distinct bytes.
        max_steps: Operations after which a launch counts as endless.
        order: The order in which blocks start: ``"forward"`` (x fastest, as most GPUs start
            them), ``"reverse"``, ``"random"`` (shuffled by ``seed``), or an int that is itself
            the seed. A kernel that is right gives the same result in each.
        seed: Seeds ``order="random"``.
        uninitialised: Tensors (or views of the arguments) whose contents nothing has written
            yet. They are filled with poison, and reads before a write are reported.
        watch: Lines, as ``"kernel.py:12"``, whose values the report keeps and shows.
        numerics: Whether the first NaN, the first infinity (beyond float16's range, say) and
            integer tiles that wrap into an address are looked for, with the line and the operands
            that they come from. Costs time.
        print_limit: Elements above which a printed tile is shown in figures and a window.
        print_blocks: The blocks that print; all by default.

    Raises:
        InterpreterError: If ``order`` or ``padding`` is none of these.
    """

    poison: float = math.nan
    int_poison: int = 0x5DEECE66D5A5A5A5
    padding: Literal["poison", "hardware"] = "poison"
    track: bool = True
    max_steps: int = 50_000_000
    order: Literal["forward", "reverse", "random"] | int = "forward"
    seed: int = 0
    uninitialised: tuple[torch.Tensor, ...] = ()
    watch: tuple[str, ...] = ()
    numerics: bool = False
    print_limit: int = 1024
    print_blocks: tuple[tuple[int, int, int], ...] | None = None

    def __post_init__(self) -> None:
        if self.order not in _ORDERS and not isinstance(self.order, int):
            raise InterpreterError(
                f"Options.order is {self.order!r}; it must be one of {', '.join(_ORDERS)}, or an "
                "int that seeds a shuffle"
            )
        for line in self.watch:
            if not line.rpartition(":")[2].isdecimal():
                raise InterpreterError(
                    f"Options.watch has {line!r}; it must be like 'kernel.py:12'"
                )
        if self.padding not in _PADDINGS:
            raise InterpreterError(
                f"Options.padding is {self.padding!r}; it must be one of {', '.join(_PADDINGS)}"
            )


_current: contextvars.ContextVar[Options | None] = contextvars.ContextVar(
    "mla_var3_interpreter_options", default=None
)


def current() -> Options:
    """Returns the options of a launch that names none."""
    return _current.get() or Options()


@contextlib.contextmanager
def using(**changes: Any) -> Iterator[Options]:
    """Changes the options of every launch inside the ``with`` block that names none itself.

    Args:
        changes: Fields of ``Options``; those left out stay as they are around the block.

    Yields:
        The options in force.
    """
    options = dataclasses.replace(current(), **changes)
    token = _current.set(options)
    try:
        yield options
    finally:
        _current.reset(token)
