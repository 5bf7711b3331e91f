"""The fingerprint of a cuTile kernel: its cubin, its grid, and the arguments of its launch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mla_var3.evidence import Fingerprint, StaticFacts
from mla_var3.evidence.fingerprint import digest
from mla_var3.languages.cutile.compile import CUBIN
from mla_var3.languages.cutile.kernel import CtKernel
from mla_var3.runtime.kernel import Kernel
from mla_var3.static.elf import code_digest
from mla_var3.strides import strides_of


def fingerprint(kernel: Kernel, facts: StaticFacts, files: Mapping[str, bytes]) -> Fingerprint:
    """What tells a launch of a compiled kernel from others.

    Args:
        kernel: Bound to tensors of the full size; meta tensors do.
        facts: What the compiler made of it.
        files: Its files.
    """
    assert isinstance(kernel, CtKernel)
    values = list(_flat(kernel.args()))
    tensors = [value for value in values if hasattr(value, "stride")]
    return Fingerprint(
        code=digest([code_digest(files[CUBIN])]),
        grid=kernel.grid(),
        block=(facts.threads_per_block,),
        cluster=(facts.blocks_per_cluster,),
        shared_bytes=facts.shared_bytes,
        scalars=tuple(repr(value) for value in values if not hasattr(value, "stride")),
        tensors=digest(f"{x.dtype} {tuple(x.shape)} {strides_of(x)}" for x in tensors),
    )


def _flat(values: tuple[Any, ...]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, tuple | list):
            yield from _flat(tuple(value))
        else:
            yield value


def switches(kernel: Kernel) -> dict[str, object]:
    """Numbers and element types among the arguments, by place, and the compiler's hints."""
    assert isinstance(kernel, CtKernel)
    found: dict[str, object] = dict(kernel.tiling.hints())
    for place, value in enumerate(_flat(kernel.args())):
        found[str(place)] = str(value.dtype) if hasattr(value, "stride") else value
    return found
