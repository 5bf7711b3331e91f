"""Computes the fingerprint of a CuTe kernel: its machine code, and its launch as the host makes it.

The compiled host function is run, with addresses that stand for its tensors, up to the launch. So
grid, shared memory, numbers and TMA descriptors are those that the GPU would get.
"""

from __future__ import annotations

import dataclasses
import enum
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mla_var3 import loader
from mla_var3.emulator.dispatch import Dispatch, dispatches
from mla_var3.errors import PlanError
from mla_var3.evidence import Fingerprint, StaticFacts
from mla_var3.evidence.fingerprint import digest
from mla_var3.languages.base import CompileJob
from mla_var3.languages.cute import export, parameters, signature
from mla_var3.languages.cute.compile import (
    CUBIN,
    HEADER,
    HOST,
    PTX,
    HostJob,
    compile_hosts,
    identity,
)
from mla_var3.languages.cute.jobs import require_cute
from mla_var3.runtime.kernel import Kernel
from mla_var3.static.elf import code_digest

#: Addresses that stand for tensors: each has 16 GiB of its own, and a tag that no number has.
_TAG, _ROOM = 0x5A, 1 << 34
_FIRST = _TAG << 40
_WORD = struct.Struct("<Q")


def fingerprints(
    jobs: Sequence[CompileJob],
    *,
    workers: int | None,
    cache_dir: Path | None,
    progress: Callable[[CompileJob, StaticFacts], None],
) -> list[Fingerprint | str]:
    """See :meth:`mla_var3.languages.base.Language.fingerprints`."""
    asked = [HostJob(*require_cute(job.kernel).host(), job.arch) for job in jobs]
    names = [identity(one) or f"{place} cannot be told" for place, one in enumerate(asked)]
    # Problems that differ in what is given at the launch share a compile.
    unique = dict(zip(names, asked, strict=True))
    made = dict(
        zip(
            unique,
            compile_hosts(
                list(unique.values()),
                workers=workers,
                cache_dir=cache_dir,
                progress=lambda _, result: progress(jobs[0], result.facts[0]),
                facts=False,
            ),
            strict=True,
        )
    )
    return [
        made[name].error or fingerprint(job.kernel, made[name].files)
        for name, job in zip(names, jobs, strict=True)
    ]


def fingerprint(kernel: Kernel, files: Mapping[str, bytes]) -> Fingerprint:
    """What tells a launch of a compiled kernel from others.

    Args:
        kernel: Bound to tensors of the full size; meta tensors do.
        files: What the compiler made of it.

    Raises:
        PlanError: Its host function launches several kernels.
        EmulatorError: The host function fails.
    """
    made = launch_of(kernel, files)
    held = parameters.written(files[HOST].decode())
    values = [
        bytes(byte if kept else 0 for byte, kept in zip(value, mask, strict=True))
        for value, mask in zip(made.parameters, held, strict=True)
    ]
    launch = dataclasses.replace(made, parameters=tuple(values))
    return of_dispatch(launch, code_digest(files[CUBIN]))


def launch_of(kernel: Kernel, files: Mapping[str, bytes]) -> Dispatch:
    """The launch that the compiled host function of a kernel makes.

    Args:
        kernel: Bound to tensors of the full size; meta tensors do.
        files: What the compiler made of it.

    Raises:
        PlanError: Its host function launches several kernels.
        EmulatorError: The host function fails.
    """
    host, arguments = require_cute(kernel).host()
    about = export.arguments(files[HEADER].decode(), signature.specs(host, arguments))
    given = zip(about, signature.runtime_values(arguments), strict=True)
    packed = [
        _packed(one.model_dump(), value, _FIRST + place * _ROOM)
        for place, (one, value) in enumerate(given)
    ]
    made = dispatches(files[HOST].decode(), files[PTX].decode(), packed)
    if len(made) != 1:
        raise PlanError(f"{kernel.name}: its host function launches {len(made)} kernels")
    return made[0]


def _packed(about: Mapping[str, Any], value: Any, address: int) -> Any:
    packed = loader.pack(dict(about), value)
    if about["kind"] == "tensor":
        packed.data = address
    return packed


def of_dispatch(launch: Dispatch, code: str) -> Fingerprint:
    """The fingerprint of a launch whose addresses stand for tensors."""
    descriptors, tensors, numbers = [], [], []
    names: dict[int, int] = {}
    for value in launch.parameters:
        named, pointed = _renamed(value, names)
        if len(value) == parameters.DESCRIPTOR:
            descriptors.append(named)
        elif pointed or len(value) > _WORD.size:
            tensors.append(named)
        else:
            numbers.append(value[::-1].hex())
    return Fingerprint(
        code=digest([code]),
        grid=launch.grid,
        block=launch.block,
        cluster=launch.cluster,
        shared_bytes=launch.shared_bytes,
        scalars=tuple(numbers),
        tensors=digest(tensors),
        descriptors=digest(descriptors) if descriptors else None,
    )


def _renamed(value: bytes, names: dict[int, int]) -> tuple[bytes, bool]:
    """A parameter with its tensors numbered as they come, not as the host function takes them.

    Args:
        value: The parameter.
        names: Number by tensor, of those that came; extended.
    """
    renamed, pointed = bytearray(value), False
    for at in range(0, len(value) - _WORD.size + 1, _WORD.size):
        word = _WORD.unpack_from(value, at)[0]
        if word >> 40 == _TAG:
            tensor, offset = divmod(word - _FIRST, _ROOM)
            number = names.setdefault(tensor, len(names))
            _WORD.pack_into(renamed, at, _FIRST + number * _ROOM + offset)
            pointed = True
    return bytes(renamed), pointed


def switches(kernel: Kernel) -> dict[str, object]:
    """Settings of the host object and of the parts that it is made of; element types; constants."""
    host, arguments = require_cute(kernel).host()
    found = dict(_settings(host, ""))
    for spec in signature.specs(host, arguments):
        if isinstance(spec, signature.ConstantSpec):
            found[spec.name] = spec.text
        elif isinstance(spec, signature.TensorSpec):
            found[f"dtype of {spec.name}"] = spec.dtype
    return found


def _settings(owner: object, prefix: str) -> Iterator[tuple[str, object]]:
    for name, value in getattr(owner, "__dict__", {}).items():
        if isinstance(value, bool | int | float | str | enum.Enum | None):
            yield prefix + name, value
        elif type(value).__module__.startswith("mla_var3."):
            yield from _settings(value, f"{prefix}{name}.")
