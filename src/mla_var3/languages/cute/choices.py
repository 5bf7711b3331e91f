"""One compile for many wrong kernels: an edit of a run-time value is chosen as a kernel is run.

A source is written with ``deriving.CHOICE`` for each edit. While the DSL traces it, a choice
between two run-time values becomes a selection: the edited one is taken where the register
``%envreg0`` holds the edit's number. So one PTX holds them all, and who runs it names one; as long
as the two values of a selection are the same, its edit changes nothing, and need not be run.
What the DSL knows while it traces can only be edited by a compile of its own, but for an index by
which a register is read: there both registers are read, and one of their values is selected.
"""

from __future__ import annotations

import builtins
import functools
import math
import os
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mla_var3.gpuless.ptx import parse
from mla_var3.languages.cute import selections
from mla_var3.languages.cute.mutants import Deriver
from mla_var3.languages.cute.selections import FIRST
from mla_var3.languages.deriving import CHOICE

#: What a choice was between: two run-time values, the same constant twice, or anything else.
RUN, SAME, OTHER = "run", "same", "other"


@dataclass
class _Playing:
    """What this process chooses.

    Attributes:
        number: The edit that is chosen; None where none is.
        seen: Numbers of edits that were in what ran.
        differ: Those of them that gave another value, or may have.
    """

    number: int | None = None
    seen: set[int] = field(default_factory=set)
    differ: set[int] = field(default_factory=set)


#: None in processes whose sources make no choices.
_playing: _Playing | None = None


class CuteChoices:
    """``languages.base.Choices`` of the CuTe DSL."""

    def written(self, source: str, numbers: Mapping[str, int]) -> str:
        return Deriver(source).choosing(numbers)

    def play(self, log: Path) -> None:
        from mla_var3.languages.cute import comparing

        global _playing
        _playing = _Playing()
        setattr(builtins, CHOICE, _Chooser(log))
        comparing.begin(is_open, differs)

    def take(self, number: int | None) -> None:
        global _playing
        _playing = _Playing(number)

    def taken(self) -> frozenset[int]:
        return frozenset(_playing.seen) if _playing else frozenset()

    def differing(self) -> frozenset[int]:
        return frozenset(_playing.differ) if _playing else frozenset()

    def kinds(self, log: Path) -> Mapping[int, frozenset[str]]:
        found: dict[int, set[str]] = defaultdict(set)
        for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else ():
            number, kind = line.split()
            found[int(number)].add(kind)
        return {number: frozenset(those) for number, those in found.items()}


def note(text: str) -> None:
    """Note which edits a PTX text that runs can choose; nothing in processes that choose none."""
    if _playing is not None:
        every, others = _numbers(text)
        _playing.seen |= every
        _playing.differ |= others


@functools.lru_cache(maxsize=64)  # Every launch of a kernel asks.
def _numbers(text: str) -> tuple[frozenset[int], frozenset[int]]:
    """The numbers of the edits that a PTX text can choose, and those that do more than select."""
    found = [selections.find(kernel) for kernel in parse(text).kernels.values()]
    every = frozenset[int]().union(*(one.numbers for one in found))
    return every, frozenset[int]().union(*(one.others for one in found))


def is_open(number: int) -> bool:
    """Whether this process, which chooses nothing, asks if an edit's values differ.

    It sees the launches of this process: ``emulation.JOBS`` has them all run here.
    """
    return _playing is not None and _playing.number is None and number not in _playing.differ


def differs(number: int) -> None:
    """Note that an edit has two values."""
    if _playing is not None:
        _playing.differ.add(number)


def environment() -> int:
    """What ``%envreg0`` is to hold here: 0 where no edit is chosen."""
    return 0 if _playing is None or _playing.number is None else FIRST + _playing.number


class _Chooser:
    """Makes choices while a source is traced.

    Args:
        log: Where it says what its choices were between.
    """

    def __init__(self, log: Path) -> None:
        self.log = log
        self.again: set[int] = set()

    def __call__(
        self,
        number: int,
        original: Any,
        edit: Callable[[], Any],
        *,
        again: bool = False,
        of: Callable[[], Any] | None = None,
    ) -> Any:
        """The choice between two values, as a run-time value where both can be; else the first.

        Args:
            number: Of the edit.
            original: The value as it is.
            edit: Gives the edited one.
            again: Whether the values are of an index, and what is read by it is chosen next, where
                they are constants.
            of: Gives what is read of; only where it is chosen again.
        """
        if of is not None:
            if number not in self.again:
                return original
            self.again.discard(number)
        kind, result = OTHER, original
        try:
            if of is None or _is_kept_by_threads(of()):
                edited = edit() if of is None else _opaque(edit())
                if _is_constant(original, edited):
                    kind = SAME
                elif made := _selection(original, edited):
                    kind, result = RUN, made(_flag(number))
        except Exception:  # noqa: BLE001  # Whoever refuses the edit does so in a compile of its own.
            pass
        if again and kind == OTHER:
            self.again.add(number)
        else:
            self._note(number, kind)
        return result

    def _note(self, number: int, kind: str) -> None:
        file = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(file, f"{number} {kind}\n".encode())
        finally:
            os.close(file)


def _is_constant(original: Any, edited: Any) -> bool:
    """Whether both are the same plain constant."""
    plain = (int, float, bool, str, type(None))
    return isinstance(original, plain) and type(original) is type(edited) and original == edited


#: By type of a value what holds it in inline PTX.
_REGISTERS = {"f32": "f", "f64": "d", "i16": "h", "i32": "r", "i64": "l"}


def _opaque(value: Any) -> Any:
    """A number of which the compiler knows nothing, not even that nobody has written it.

    It would select the other one then, and the edit would change nothing.

    Raises:
        TypeError: It is no number of a type that is passed on.
    """
    from cutlass._mlir.dialects import arith, llvm
    from cutlass.base_dsl.typing import Numeric

    if not isinstance(value, Numeric) or not _of_run_time(value):
        raise TypeError(f"{type(value).__name__} cannot be read twice")
    kind, given = type(value), value.ir_value()
    plain = arith.bitcast(_ir().IntegerType.get_signless(16), given) if kind.width == 16 else given
    held = _REGISTERS[str(plain.type)]
    asm = f"mov.b{kind.width} $0, $1;"
    said = llvm.inline_asm(plain.type, [plain], asm, f"={held},{held}", has_side_effects=False)
    return kind(arith.bitcast(given.type, said) if plain is not given else said)


def _is_kept_by_threads(value: Any) -> bool:
    """Whether each of its elements may be read at any time: registers, and lists of values."""
    from cutlass.cute import AddressSpace
    from cutlass.cute.tensor import TensorSSA
    from cutlass.cute.typing import Tensor

    if isinstance(value, Tensor):
        return value.memspace == AddressSpace.rmem
    return isinstance(value, tuple | list | TensorSSA)


def _ir() -> Any:
    """MLIR's module, which has no types."""
    from cutlass._mlir import ir

    return ir


def _of_run_time(value: Any) -> bool:
    from cutlass.base_dsl.typing import Numeric
    from cutlass.cute.typing import Pointer

    if isinstance(value, Numeric):
        return isinstance(value.value, _ir().Value)
    return isinstance(value, _ir().Value | Pointer)


def _selection(original: Any, edited: Any) -> Callable[[Any], Any] | None:
    """What makes the run-time value of two, given the flag; None where there is none."""
    from cutlass.base_dsl.typing import Numeric
    from cutlass.cute import AddressSpace
    from cutlass.cute.tensor import TensorSSA
    from cutlass.cute.typing import Pointer

    if not _of_run_time(original) or not _in_kernel():
        return None
    if isinstance(original, Pointer):
        # Registers have no addresses, and those of Tensor Memory do not count bytes.
        is_alike = isinstance(edited, Pointer) and original.dtype is edited.dtype
        if not is_alike or original.memspace not in (AddressSpace.gmem, AddressSpace.smem):
            return None
        return lambda flag: _pointer(flag, original, edited)
    if isinstance(original, TensorSSA):
        if not isinstance(edited, TensorSSA) or edited.type != original.type:
            return None
        shape, dtype = original.shape, original.dtype
        return lambda flag: TensorSSA(_either(flag, original, edited), shape, dtype)
    if isinstance(original, Numeric):
        kind = type(original)
        other = edited if type(edited) is kind else kind(edited)
        return lambda flag: kind(_either(flag, original.ir_value(), other.ir_value()))
    if isinstance(edited, _ir().Value) and edited.type == original.type:
        return lambda flag: type(original)(_either(flag, original, edited))
    return None


def _either(flag: Any, original: Any, edited: Any) -> Any:
    from cutlass._mlir.dialects import arith

    return arith.select(flag, edited, original)


def _pointer(flag: Any, original: Any, edited: Any) -> Any:
    """A place so far beyond the edited one as the original is, or not; aligned as both are."""
    from cutlass import cute

    size = original.dtype.width // 8
    apart = (original.toint() - edited.toint()) // size
    kind = type(apart)
    moved = kind(_either(flag, apart.ir_value(), kind(0).ir_value()))
    step = math.gcd(original.alignment, edited.alignment) // size
    return edited + (cute.assume(moved, divby=step) if step > 1 else moved)


def _flag(number: int) -> Any:
    """Whether an edit is chosen, which no compiler can know."""
    from cutlass import Int32
    from cutlass._mlir.dialects import llvm

    asm = (
        "{ .reg .pred chosen; mov.b32 $0, %envreg0; "
        f"setp.eq.u32 chosen, $0, {FIRST + number}; selp.b32 $0, 1, 0, chosen; }}"
    )
    said = llvm.inline_asm(Int32.mlir_type, [], asm, "=r", has_side_effects=False)
    return (Int32(said) != Int32(0)).ir_value()


def _in_kernel() -> bool:
    """Whether device code is traced, and not what launches it."""
    owner: Any = _ir().InsertionPoint.current.block.owner
    while owner is not None:
        if owner.operation.name in ("cuda.kernel", "gpu.func"):
            return True
        owner = owner.operation.parent
    return False
