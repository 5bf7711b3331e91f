"""Exports compiled CuTe kernels as a shared library with a manifest, run without a compiler.

``mla_var3.loader`` loads the result.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mla_var3.errors import ToolchainError
from mla_var3.languages.cute import arch as archs
from mla_var3.languages.cute import signature, toolchain
from mla_var3.languages.cute.compile import (
    HEADER,
    OBJECT,
    TIMEOUT_S,
    HostCompiled,
    HostJob,
    compile_hosts,
)
from mla_var3.languages.cute.configuration import Configuration
from mla_var3.languages.cute.manifest import (
    Argument,
    ExportedKernel,
    FailedTiling,
    Manifest,
    ScalarArgument,
    TensorArgument,
)
from mla_var3.paths import write_atomic

MANIFEST = "manifest.json"

_STRUCT = re.compile(r"typedef struct \{\s*void \*data;([^}]*)\} (\w+);")
_FIELD = re.compile(r"int(32|64)_t dynamic_(shapes|strides)\[(\d+)\];")
_ENTRY = re.compile(r"^void (_mlir_\w+__mlir_ciface_\w+)\(void \*\*args", re.MULTILINE)
_WRAPPER = re.compile(r"cute_dsl_\w+_wrapper\(\w+ \*module(?P<parameters>[^)]*)\)")
_C_TYPES = {"Int32": "int32_t", "Float32": "float"}


def export(
    name: str,
    configurations: Sequence[Configuration],
    arch: str,
    folder: Path,
    *,
    workers: int | None = None,
    cache_dir: Path | None = None,
    timeout: float = TIMEOUT_S,
    progress: Callable[[str], None] = lambda _text: None,
) -> Manifest:
    """Compile configurations and write ``<name>.so`` and ``manifest.json`` into a folder.

    Args:
        name: File name of the library without its ending.
        configurations: What to export; those that do not compile are kept with their reason.
        arch: Such as ``sm_90``.
        folder: Where to write; the manifest is written last, and each file whole.
        workers: Compilers at a time.
        cache_dir: As for :func:`mla_var3.languages.cute.compile.compile_hosts`.
        timeout: Seconds each compile may take.
        progress: Told of each configuration as it ends.

    Raises:
        ToolchainError: A tool is missing, or the objects cannot be linked.
    """
    jobs = [HostJob(one.host, one.arguments, arch) for one in configurations]
    results = compile_hosts(
        jobs,
        workers=workers,
        cache_dir=cache_dir,
        timeout=timeout,
        progress=lambda job, result: progress(f"{name}: {result.error or 'compiled'}"),
    )
    pairs = list(zip(configurations, results, strict=True))
    compiled = {result.prefix: result for _, result in pairs if not result.error}
    library = link([result.files[OBJECT] for result in compiled.values()]) if compiled else None
    manifest = Manifest(
        name=name,
        arch=archs.key(arch),
        target=archs.target(arch),
        library=f"{name}.so" if library else None,
        sha256=hashlib.sha256(library).hexdigest() if library else None,
        toolchain=toolchain.versions(),
        kernels=tuple(_exported(one, result) for one, result in pairs if not result.error),
        failures=tuple(
            FailedTiling(tiling=dict(one.tiling), reason=result.error)
            for one, result in pairs
            if result.error
        ),
    )
    if library is not None:
        write_atomic(folder / f"{name}.so", library)
    write_atomic(folder / MANIFEST, manifest.model_dump_json(indent=1) + "\n")
    return manifest


def _exported(one: Configuration, result: HostCompiled) -> ExportedKernel:
    header = result.files[HEADER].decode()
    specs = signature.specs(one.host, one.arguments)
    return ExportedKernel(
        prefix=result.prefix,
        symbol=launch_symbol(header),
        tiling=dict(one.tiling),
        arguments=arguments(header, specs),
        registers=tuple(facts.registers for facts in result.facts),
        shared_bytes=tuple(facts.shared_bytes for facts in result.facts),
        threads_per_block=tuple(facts.threads_per_block for facts in result.facts),
    )


def launch_symbol(header: str) -> str:
    """Name of the launch function in an exported header.

    Raises:
        ToolchainError: The header declares none.
    """
    match = _ENTRY.search(header)
    if match is None:
        raise ToolchainError("the exported header declares no launch function; the DSL changed")
    return match[1]


def arguments(header: str, specs: Sequence[signature.Spec]) -> tuple[Argument, ...]:
    """The arguments of an exported function, checked against its header.

    Args:
        header: What the DSL wrote.
        specs: What the function was compiled for.

    Raises:
        ToolchainError: The header says something else than the specs.
    """
    passed = [spec for spec in specs if not isinstance(spec, signature.ConstantSpec)]
    structs = {name: _FIELD.findall(fields) for fields, name in _STRUCT.findall(header)}
    wrapper = _WRAPPER.search(header)
    declared = wrapper["parameters"].split(",")[1:-1] if wrapper else []
    if len(declared) != len(passed):
        raise ToolchainError(
            f"the exported function takes {len(declared)} arguments and a stream, and was compiled "
            f"for {len(passed)}"
        )
    return tuple(
        _argument(spec, text.split(), structs) for spec, text in zip(passed, declared, strict=True)
    )


def _argument(
    spec: signature.Spec, declared: Sequence[str], structs: Mapping[str, list[tuple[str, str, str]]]
) -> Argument:
    if isinstance(spec, signature.ScalarSpec):
        if declared[0] != _C_TYPES[spec.dtype]:
            raise ToolchainError(f"{spec.name} is {declared[0]} in C and {spec.dtype} in the DSL")
        return ScalarArgument(name=spec.name, dtype=spec.dtype)
    assert isinstance(spec, signature.TensorSpec)
    fields = {kind: (int(bits), int(count)) for bits, kind, count in structs[declared[0]]}
    for kind, values in (("shapes", spec.shape), ("strides", spec.strides)):
        wanted, found = values.count(None), fields.get(kind, (0, 0))[1]
        if wanted != found:
            raise ToolchainError(
                f"{spec.name} has {found} {kind} in C that are given at launch, and {wanted} in "
                "the DSL"
            )
    return TensorArgument.model_validate(
        {
            **dataclasses.asdict(spec),
            "shape_bits": fields.get("shapes", (32, 0))[0],
            "stride_bits": fields.get("strides", (64, 0))[0],
        }
    )


def link(objects: Sequence[bytes]) -> bytes:
    """One stripped shared library of objects and the runtime that they call.

    Raises:
        ToolchainError: There is no C compiler to link with, or it refuses.
    """
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if compiler is None:
        raise ToolchainError("linking an exported kernel needs a C compiler (cc, gcc or clang)")
    archives = [
        toolchain.library_folder() / "libcuda_dialect_runtime_static.a",
        toolchain.packaged("nvidia-cuda-runtime", "libcudart_static.a"),
    ]
    with tempfile.TemporaryDirectory() as temporary:
        files = []
        for number, content in enumerate(objects):
            files.append(Path(temporary) / f"{number}.o")
            files[-1].write_bytes(content)
        library = Path(temporary) / "library.so"
        # The runtime's own symbols stay inside, or torch's copy of it could take their place.
        command = [
            compiler, "-shared", "-o", library, *files, *archives, "-Wl,--exclude-libs,ALL",
            "-Wl,--gc-sections", "-s", "-ldl", "-lrt", "-lpthread",
        ]  # fmt: skip
        done = subprocess.run(
            list(map(str, command)),
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        if done.returncode != 0:
            said = " ".join(done.stderr.split())[:300]
            raise ToolchainError(f"{compiler} cannot link the exported kernels: {said}")
        return library.read_bytes()
