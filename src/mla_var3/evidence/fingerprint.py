"""Fingerprint of a kernel launch: digests its machine code and launch, and names differences.

A source file says what was written; a fingerprint says what ran. Names, comments and line numbers
are not part of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

#: Hex digits of a SHA-256 that a fingerprint keeps: 64 bits, among a few thousand of ours.
DIGITS = 16
Digest = Annotated[str, Field(pattern=rf"^[0-9a-f]{{{DIGITS}}}$")]


class Fingerprint(BaseModel):
    """One stage as it was launched.

    Attributes:
        code: Digest of machine code and constants; of the intermediate code, where a compiler makes
            other machine code of it each time; of the call, where a library brings the code.
        grid: Blocks per axis; empty where a library chooses them.
        block: Threads per axis; empty where the compiler chooses them.
        cluster: Blocks of a cluster per axis, likewise.
        shared_bytes: Shared memory per block that the launch asks for, likewise 0.
        scalars: Numbers that it passes, in order.
        tensors: Digest of the element types, shapes and strides of what it passes.
        descriptors: Digest of its TMA descriptors (boxes, strides, swizzles); empty without any.
        also: Other codes that the assembler made of the very same, from run to run.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    code: Digest
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    cluster: tuple[int, ...] = ()
    shared_bytes: int = 0
    scalars: tuple[str, ...] = ()
    tensors: Digest | None = None
    descriptors: Digest | None = None
    also: tuple[Digest, ...] = ()

    @property
    def codes(self) -> set[Digest]:
        """All codes that it came out as."""
        return {self.code, *self.also}


def digest(parts: Iterable[bytes | str]) -> str:
    """Digest of parts in order; where one ends and the next begins counts too."""
    made = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        made.update(b"%d:" % len(content) + content)
    return made.hexdigest()[:DIGITS]


#: The only stage of a version that calls a library.
CALL = "call"
#: What a difference is called, where both values are not worth showing.
_UNSHOWN = {
    "code": "code",
    "tensors": "shapes or strides",
    "descriptors": "TMA descriptors",
}


def differences(
    before: Sequence[Fingerprint], after: Sequence[Fingerprint], stages: Sequence[str]
) -> list[str]:
    """What differs between two builds of a version, such as ``grid of merge 132 -> 128``.

    Args:
        before: A fingerprint per stage, in launch order.
        after: Likewise.
        stages: Their names.
    """
    if len(before) != len(after):
        return [f"{len(before)} -> {len(after)} stages"]
    rows = zip(before, after, stages, strict=True)
    return [said for one, other, stage in rows for said in _changes(one, other, stage)]


def _changes(one: Fingerprint, other: Fingerprint, stage: str) -> Iterator[str]:
    for name in Fingerprint.model_fields:
        old, new = getattr(one, name), getattr(other, name)
        if old == new or name == "also" or (name == "code" and one.codes & other.codes):
            continue
        if name == "scalars" and len(old) == len(new):
            pairs = enumerate(zip(old, new, strict=True))
            yield from (f"scalar {i} of {stage} {a} -> {b}" for i, (a, b) in pairs if a != b)
        elif name in _UNSHOWN:
            yield "the call of the library" if stage == CALL else f"{_UNSHOWN[name]} of {stage}"
        else:
            yield f"{name.replace('_', ' ')} of {stage} {_shown(old)} -> {_shown(new)}"


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        # A launch along one axis reads better without the others.
        while len(value) > 1 and value[-1] == 1:
            value = value[:-1]
        return " x ".join(map(str, value))
    return str(value)
