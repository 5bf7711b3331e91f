"""The fingerprint of a cuTile kernel: its cubin, its grid, and the arguments of its launch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mla_var3.evidence import Fingerprint, StaticFacts
from mla_var3.evidence.fingerprint import digest
from mla_var3.languages.base import CompileJob
from mla_var3.languages.cutile import toolchain
from mla_var3.languages.cutile.compile import CUBIN, TileJob, compile_jobs, intermediate
from mla_var3.languages.cutile.kernel import CtKernel
from mla_var3.runtime.kernel import Kernel
from mla_var3.static.cache import Cache, key_of
from mla_var3.static.elf import code_digest
from mla_var3.strides import strides_of

#: Name of a cache entry's file.
CODE = "code.json"


def fingerprints(
    jobs: Sequence[CompileJob],
    *,
    workers: int | None,
    cache_dir: Path | None,
    progress: Callable[[CompileJob, StaticFacts], None],
) -> list[Fingerprint | str]:
    """See :meth:`mla_var3.languages.base.Language.fingerprints`.

    What tileiras is given twice, places in the source aside, is compiled once.
    """
    cache = Cache(cache_dir)
    keys = [_key(job, cache_dir) for job in jobs]
    known = {key: cache.get(key) for key in keys}
    open_ = {key: job for key, job in zip(keys, jobs, strict=True) if known[key] is None}
    made = compile_jobs(
        list(open_.values()), workers=workers, cache_dir=cache_dir, progress=progress
    )
    failed = {}
    for key, one in zip(open_, made, strict=True):
        if one.facts.error is not None:
            failed[key] = one.facts.error
            continue
        known[key] = {CODE: json.dumps(_code(one.facts, one.files)).encode()}
        cache.put(key, known[key] or {})
    return [
        failed.get(key) or fingerprint(job.kernel, json.loads((known[key] or {})[CODE]))
        for key, job in zip(keys, jobs, strict=True)
    ]


def _key(job: CompileJob, cache_dir: Path | None) -> str:
    """What two jobs share only if tileiras makes the same code of them."""
    assert isinstance(job.kernel, CtKernel)
    given = TileJob(job.kernel.kernel, job.kernel.args(), job.arch)
    text = intermediate(given, cache_dir)
    # A kernel that the front end refuses is its own: the refusal comes from the compile.
    said = text if text is not None else f"{id(job)} is refused"
    return key_of({"code of": said, "arch": job.arch, "toolchain": toolchain.versions()})


def _code(facts: StaticFacts, files: Mapping[str, bytes]) -> dict[str, Any]:
    """What the compiler decides of a fingerprint."""
    return {
        "code": digest([code_digest(files[CUBIN])]),
        "block": [facts.threads_per_block],
        "cluster": [facts.blocks_per_cluster],
        "shared_bytes": facts.shared_bytes,
    }


def fingerprint(kernel: Kernel, code: Mapping[str, Any]) -> Fingerprint:
    """What tells a launch of a compiled kernel from others.

    Args:
        kernel: Bound to tensors of the full size; meta tensors do.
        code: What the compiler decided of it.
    """
    assert isinstance(kernel, CtKernel)
    values = list(_flat(kernel.args()))
    tensors = [value for value in values if hasattr(value, "stride")]
    return Fingerprint(
        **code,
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
