"""Computes the fingerprint of a cuTile kernel: its tile IR, grid, and launch arguments.

tileiras does not make the same machine code of the same bytecode each time: combine of
mla_var6_plus, compiled three times over, came out twice with 223,528 bytes of shared memory and
once with 213,304. So the code that counts is what tileiras is given, hints included, and block
and shared memory, which it chooses, are no part of a fingerprint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mla_var3.errors import PlanError
from mla_var3.evidence import Fingerprint
from mla_var3.evidence.fingerprint import digest
from mla_var3.languages.base import CompileJob
from mla_var3.languages.cutile.compile import TileJob, intermediate
from mla_var3.languages.cutile.kernel import CtKernel
from mla_var3.runtime.kernel import Kernel
from mla_var3.strides import strides_of


def fingerprints(jobs: Sequence[CompileJob], cache_dir: Path | None) -> list[Fingerprint | str]:
    """See :meth:`mla_var3.languages.base.Language.fingerprints`."""
    return [_fingerprint(job, cache_dir) for job in jobs]


def _fingerprint(job: CompileJob, cache_dir: Path | None) -> Fingerprint | str:
    kernel = job.kernel
    assert isinstance(kernel, CtKernel)
    try:
        text = intermediate(TileJob(kernel.kernel, kernel.args(), job.arch), cache_dir)
    except PlanError as error:
        return str(error)
    values = list(_flat(kernel.args()))
    tensors = [value for value in values if hasattr(value, "stride")]
    return Fingerprint(
        code=digest([job.arch, text]),
        grid=kernel.grid(),
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
