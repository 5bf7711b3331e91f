"""Finds which parameter bytes of a launch the host code writes; the others are padding.

Fingerprints leave padding out: on the host's stack it is whatever was there before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from mla_var3.errors import ToolchainError

_LAUNCH = re.compile(r"llvm\.call @_cudaLaunchKernelEx\(%\S+, %\S+, (%\d+)\)")
_ALLOCA = re.compile(r"(%\d+) = llvm\.alloca %\S+ x (.+?)(?: \{[^}]*\})? : \(i32\) -> !llvm\.ptr")
_PLACE = re.compile(r"(%\d+) = llvm\.getelementptr (%\d+)\[%\d+\] : .*-> !llvm\.ptr, !llvm\.ptr")
_KEEP = re.compile(r"llvm\.store (%\d+), (%\d+) : !llvm\.ptr, !llvm\.ptr")
_TOKEN = re.compile(
    r"!llvm\.|struct<\(|array<(\d+) x |vector<(\d+)x|ptr(?:<\d+>)?|[a-z]+(\d+)|\)>|>|, "
)

#: A TMA descriptor has 128 bytes, of which the first 64 say everything.
DESCRIPTOR, DESCRIBED = 128, 64
#: For each byte of a value, whether a field lies there; and the value's alignment.
Layout = tuple[tuple[bool, ...], int]


def written(ir: str) -> list[tuple[bool, ...]]:
    """For each parameter of the only launch, whether the host writes each of its bytes.

    Args:
        ir: The compiled module's text, in MLIR's LLVM dialect.

    Raises:
        ToolchainError: The launch is not written as this release of the DSL writes it.
    """
    bodies = [body for body in ir.split("\n  llvm.func ") if _LAUNCH.search(body)]
    if len(bodies) != 1:
        raise ToolchainError(f"{len(bodies)} functions of the host code launch a kernel, not one")
    launch = _LAUNCH.search(bodies[0])
    assert launch is not None
    types = dict(_ALLOCA.findall(bodies[0]))
    places = [place for place, owner in _PLACE.findall(bodies[0]) if owner == launch[1]]
    kept = {place: value for value, place in _KEEP.findall(bodies[0])}
    try:
        return [layout(types[kept[place]]) for place in places]
    except KeyError as error:
        raise ToolchainError("a launch passes what was not stored; the DSL changed") from error


def layout(type_: str) -> tuple[bool, ...]:
    """Whether a field lies at each byte of a type of MLIR's LLVM dialect."""
    held = _read(iter(_TOKEN.finditer(type_)))[0]
    if len(held) == DESCRIPTOR and "array<16 x i64>" in type_:
        return (True,) * DESCRIBED + (False,) * (DESCRIPTOR - DESCRIBED)
    return held


def _read(tokens: Iterator[re.Match[str]]) -> Layout:
    token = next(tokens)
    if token[0] == "!llvm.":
        return _read(tokens)
    if token[0] == "struct<(":
        return _struct(tokens)
    if token[1]:
        held, align = _read(tokens)
        next(tokens)
        return held * int(token[1]), align
    if token[2]:  # A vector is aligned to its size, rounded up to a power of two.
        held = _read(tokens)[0] * int(token[2])
        next(tokens)
        size = 1 << (len(held) - 1).bit_length()
        return held + (False,) * (size - len(held)), size
    size = 8 if token[0].startswith("ptr") else -(-int(token[3]) // 8)
    return (True,) * size, size


def _struct(tokens: Iterator[re.Match[str]]) -> Layout:
    fields: list[Layout] = []
    for token in tokens:
        if token[0] == ")>":
            break
        if token[0] != ", ":
            fields.append(_from(token, tokens))
    found: list[bool] = []
    for held, align in fields:
        found += [False] * (-len(found) % align) + list(held)
    widest = max((align for _, align in fields), default=1)
    return tuple(found + [False] * (-len(found) % widest)), widest


def _from(first: re.Match[str], tokens: Iterator[re.Match[str]]) -> Layout:
    def again() -> Iterator[re.Match[str]]:
        yield first
        yield from tokens

    return _read(again())
