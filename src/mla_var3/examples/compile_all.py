"""Compiles CUTLASS examples without a GPU, in parallel, and caches their compile facts.

``examples.harness`` compiles a single one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from mla_var3 import forked
from mla_var3.cache import Cache, key_of
from mla_var3.examples import harness
from mla_var3.examples.catalog import Entry
from mla_var3.examples.model import Compiled, CompiledKernel
from mla_var3.examples.pin import EXAMPLES, FOLDER
from mla_var3.languages.cute import arch as archs
from mla_var3.languages.cute import reading, toolchain
from mla_var3.languages.cute.facts import CuteFacts
from mla_var3.static import tools
from mla_var3.static.occupancy import of_facts

#: Part of the cache key: raise it when the harness or the facts change.
VERSION = 2
#: Seconds that one example may take.
TIMEOUT_S = 240.0

_RESULT = "compiled.json"
_HELPER = "a helper that other examples import; running it launches nothing"


def compile_entries(
    entries: Sequence[Entry],
    *,
    workers: int | None = None,
    cache_dir: Path | None = None,
    timeout: float = TIMEOUT_S,
    progress: Callable[[Entry, Compiled], None] = lambda _entry, _result: None,
) -> dict[str, Compiled]:
    """Compile examples, each for its arch, with the arguments that it defaults to.

    Args:
        entries: What to compile.
        workers: Examples at a time; the number of cores by default.
        cache_dir: Cache folder; ``$HYPERMLA_CACHE_DIR`` or the user's cache folder by default.
        timeout: Seconds each may take.
        progress: Told of each as it ends.

    Returns:
        Results by id; one that does not compile has its reason.

    Raises:
        ToolchainError: The DSL or a tool is missing.
    """
    toolchain.require()
    cache, done = Cache(cache_dir), {}
    for entry in entries:
        if (known := _known(entry, cache)) is not None:
            done[entry.name] = known
            progress(entry, known)
    left = {entry.name: entry for entry in entries if entry.name not in done}
    if left:
        _load()
    with cache.scratch() as folder:
        for name, ended in forked.run(
            {name: partial(_run, entry, folder / name) for name, entry in left.items()},
            folder=folder,
            workers=workers or os.cpu_count() or 1,
            timeout=timeout,
            explain=toolchain.sentence,
        ):
            entry = left[name]
            done[name] = _facts(entry, ended, folder)
            if done[name].kernels:  # What failed is tried again: often it lacked a package.
                content = done[name].model_dump_json(indent=1).encode()
                cache.put(_key(entry), {_RESULT: content})
            progress(entry, done[name])
    return done


def _load() -> None:
    """Import what every example imports, so that their processes start with it."""
    import cutlass.cute
    import cutlass.cute.testing
    import cutlass.pipeline
    import cutlass.torch
    import cutlass.utils  # noqa: F401
    import torch

    torch.set_num_threads(1)


def _key(entry: Entry) -> str:
    return key_of(
        {
            "examples": VERSION,
            "commit": entry.tree.pin.commit,
            "blob": entry.blob,
            "arch": entry.arch,
            "toolchain": toolchain.versions(),
        }
    )


def _known(entry: Entry, cache: Cache) -> Compiled | None:
    if not entry.is_script:
        return Compiled(toolchain=_dsl(), reason=_HELPER)
    files = cache.get(_key(entry))
    if files is None:
        return None
    try:
        return Compiled.model_validate_json(files[_RESULT])
    except (KeyError, ValidationError):
        cache.discard(_key(entry))
        return None


def _dsl() -> str:
    return f"nvidia-cutlass-dsl {toolchain.versions()['nvidia-cutlass-dsl']}"


def _run(entry: Entry, folder: Path) -> list[harness.Module]:
    target = archs.target(entry.arch)
    root = entry.tree.examples.resolve()
    return harness.compile_example(entry.file.resolve(), root, entry.arch, target, folder)


def _facts(entry: Entry, ended: forked.Ended[list[harness.Module]], folder: Path) -> Compiled:
    if not ended.result:
        reason = ended.failure or "it ends without compiling anything"
        return Compiled(toolchain=_dsl(), reason=_plain(reason, entry))
    found: dict[CompiledKernel, None] = {}
    for number, module in enumerate(ended.result):
        for facts in read_module(module, entry.arch, folder / f"{entry.name}-{number}.cubin"):
            found[_short(facts)] = None
    return Compiled(toolchain=_dsl(), kernels=tuple(found))


def _plain(reason: str, entry: Entry) -> str:
    """The reason as one line, without paths of this machine."""
    for top in (entry.tree.examples.resolve().as_posix(), f"{FOLDER}/{EXAMPLES}"):
        reason = reason.replace(f"{top}/", "")
    return tools.one_line(reason.replace(str(Path.home()), "~"), 240)


def read_module(module: harness.Module, arch: str, cubin: Path) -> tuple[CuteFacts, ...]:
    """Facts of one module's device kernels.

    Args:
        module: What was compiled.
        arch: For which arch.
        cubin: Where its cubin may be written for the disassemblers.
    """
    cubin.write_bytes(module.cubin)
    printed = reading.Printed(
        ptx=module.ptx,
        listing=toolchain.read("nvdisasm", ["--print-line-info", "--print-code", cubin]),
        usage=toolchain.read("cuobjdump", ["--dump-resource-usage", cubin]),
        elf=toolchain.read("cuobjdump", ["--dump-elf", cubin]),
        ir=module.ir,
        ptxas="",
    )
    base = CuteFacts(kernel="", arch=archs.key(arch), target=archs.target(arch))
    return reading.read_facts(base, printed, ("kernel",))


def _short(facts: CuteFacts) -> CompiledKernel:
    held = of_facts(facts) if facts.dynamic_shared_known else None
    values = {
        name: getattr(facts, name)
        for name in CompiledKernel.model_fields
        if name not in ("register_budgets", "occupancy")
    }
    return CompiledKernel(
        **values,
        register_budgets=tuple(f"{b.direction} {b.registers}" for b in facts.register_budgets),
        occupancy=held and f"{held.blocks_per_sm} per SM, limited by {held.limiter}",
    )
