"""Caches on disk what the CuTe DSL compiles under the emulator, and returns it in later runs.

Tracing and compiling a kernel takes a second to ten, and mostly the same as the time before. An
entry is found by all that shapes it (:mod:`~mla_var3.emulator.identity`), before anything is
traced. What cannot be told so is compiled every time.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mla_var3.cache import Cache, key_of
from mla_var3.emulator.identity import (
    Identity,
    UntoldError,
    digest,
    ours,
    resolved,
    settings,
    versions,
)
from mla_var3.errors import ToolchainError

if TYPE_CHECKING:
    from mla_var3.emulator.children import Children
    from mla_var3.emulator.emulation import Emulation

#: Part of every key: raise it when an entry changes its meaning.
_FORM = 1
HOST, PTX, ABOUT = "host.mlir", "kernel.ptx", "about.json"
_BINARY = re.compile(r'(@kernels_binary)\("(?:[^"\\]|\\.)*"\)')
_VARIABLES = ("CUTE_", "CUTLASS_")


def without_binary(ir: str) -> str:
    """A compiled module's text without the device code that it holds as a constant."""
    return _BINARY.sub(r'\1("")', ir)


@dataclass
class _Trace:
    """What one call of the compiler did beside its result.

    Attributes:
        function: What was compiled.
        kernels: How many kernels it has.
        result: What the host function returned while it was traced.
        printed: What it printed.
    """

    function: Any = None
    kernels: int = 0
    result: Any = None
    printed: str = ""


def replacements(
    emulation: Emulation, cache: Cache, children: Children
) -> Iterator[tuple[Any, str, Any]]:
    """What of the DSL is replaced, so that it asks the cache first: owner, name, value.

    Args:
        emulation: Where it runs.
        cache: What is kept.
        children: Where the DSL leaves the PTX of what it compiles.
    """
    from cutlass.base_dsl.dsl import BaseDSL

    keeper = _Keeper(emulation, cache, children)
    yield BaseDSL, "generate_mlir", keeper.generate(BaseDSL.generate_mlir)
    yield BaseDSL, "generate_original_ir", keeper.traced(BaseDSL.generate_original_ir)
    yield BaseDSL, "_build_jit_function", keeper.built(BaseDSL._build_jit_function)


class _Keeper:
    def __init__(self, emulation: Emulation, cache: Cache, children: Children) -> None:
        self.emulation, self.cache, self.children = emulation, cache, children
        self.trace = _Trace()

    def generate(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """In place of tracing and compiling."""
        signature = inspect.signature(original)

        @functools.wraps(original)
        def generate_mlir(*args: Any, **named: Any) -> Any:
            request = signature.bind(*args, **named).arguments
            found = self._key(request)
            if found is None:
                return original(*args, **named)
            key, walk = found
            if (entry := self._entry(key)) is not None:
                return self._again(request, entry, walk)
            before, loaded = _settings(walk), _sources()
            self.trace = _Trace()
            with self._watched() as counted:
                result = original(*args, **named)
            changes = _changes(before, _settings(walk))
            if changes is not None and self._repeatable(walk):
                later = sorted([str(f), digest(f)] for f in _sources() - loaded)
                about = {"counted": counted[0], "settings": changes, "sources": later}
                self._keep(key, about)
            return result

        return generate_mlir

    def traced(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Around tracing: what the host function printed, and what it returned."""

        @functools.wraps(original)
        def generate_original_ir(*args: Any, **named: Any) -> Any:
            told = _Tee(sys.stdout)
            with contextlib.redirect_stdout(told):
                done = original(*args, **named)
            self.trace.result, self.trace.printed = done[2], told.copy.getvalue()
            return done

        return generate_original_ir

    def built(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Around making the compiled function."""

        @functools.wraps(original)
        def build(dsl: Any, *args: Any, **named: Any) -> Any:
            self.trace.kernels = dsl.num_kernels
            self.trace.function = original(dsl, *args, **named)
            return self.trace.function

        return build

    def _key(self, request: dict[str, Any]) -> tuple[str, Identity] | None:
        """Under what the function is kept, and how that was found; None where it cannot be."""
        dsl, walk = request["self"], Identity()
        options = dsl.compile_options
        if options.enable_tvm_ffi or dsl.envar.dryrun:
            return None
        said = {type(o).__name__: repr(o.value) for o in options.options.values()}
        unlike, folder = ("self", "sig", "location"), str(self.children.folder)
        try:
            content = {
                "form": _FORM,
                "versions": versions(),
                "dsl": [type(dsl).__name__, dsl.envar.arch],
                "options": {k: v for k, v in said.items() if folder not in v},
                "variables": {k: v for k, v in os.environ.items() if k.startswith(_VARIABLES)
                              and v != folder},
                "processors": self.emulation.options.multiprocessors,
                "request": walk.of({k: v for k, v in request.items() if k not in unlike}),
            }  # fmt: skip
            content["sources"] = sorted([str(f), digest(f)] for f in walk.files)
        except (UntoldError, OSError):
            return None
        return key_of(content), walk

    @contextlib.contextmanager
    def _watched(self) -> Iterator[list[bool]]:
        """Tells, at the end, whether the device's multiprocessors were asked for meanwhile."""
        before, self.emulation.counted = self.emulation.counted, False
        told = [False]
        try:
            yield told
        finally:
            told[0] = self.emulation.counted
            self.emulation.counted |= before

    def _entry(self, key: str) -> dict[str, Any] | None:
        """What is kept under a key, where the sources that tracing loaded are as they were."""
        files = self.cache.get(key)
        if files is None:
            return None
        try:
            about: dict[str, Any] = json.loads(files[ABOUT])
            if all(digest(Path(file)) == before for file, before in about["sources"]):
                return about | {"host": files[HOST].decode(), "ptx": files[PTX].decode()}
        except (OSError, ValueError, KeyError, TypeError):
            pass
        self.cache.discard(key)
        return None

    def _repeatable(self, walk: Identity) -> bool:
        """Whether what tracing did can be done again without tracing."""
        done = self.trace
        return not (
            getattr(done.function, "engine", None) is None
            or done.result is not None
            or done.function.kernel_extra_args
            or walk.changed_meanwhile()
        )

    def _keep(self, key: str, about: dict[str, Any]) -> None:
        done = self.trace
        about |= {"name": done.function.function_name, "kernels": done.kernels,
                  "printed": done.printed}  # fmt: skip
        with contextlib.suppress(ToolchainError):  # A folder that cannot be written.
            self.cache.put(key, {
                HOST: without_binary(str(done.function.ir_module)).encode(),
                PTX: done.function.engine.emulator_runtime.text.encode(),
                ABOUT: json.dumps(about).encode(),
            })  # fmt: skip

    def _again(self, request: dict[str, Any], entry: dict[str, Any], walk: Identity) -> Any:
        """A compiled function made of what is kept, and run where that was asked for."""
        from cutlass._mlir import execution_engine, ir
        from cutlass.cutlass_dsl.cuda_jit_executor import CudaDialectJitCompiledFunction

        dialects: Any = ir  # It has no types.
        dsl, body, only = request["self"], request["funcBody"], request["compile_only"]
        given = (request["args"], request["kwonlyargs"], request["sig"])
        try:
            with dialects.Context() as context, dialects.Location.unknown():
                context.enable_multithreading(False)
                executed, _, _ = dsl.generate_mlir_function_types(
                    body, request["function_name"], *given, only
                )
                path = dsl.compile_options.full_ptx_path or str(self.children.folder / "again.ptx")
                Path(path).write_text(entry["ptx"], encoding="utf-8")
                module = dialects.Module.parse(entry["host"])
                engine = execution_engine.ExecutionEngine(module)
                dsl.num_kernels = entry["kernels"]
                function = dsl._build_jit_function(
                    CudaDialectJitCompiledFunction, module, engine,
                    engine.lookup(entry["name"]), request["sig"], entry["name"],
                    *dsl.extract_dynamic_args(body, *given),
                )  # fmt: skip
        finally:
            dsl.post_compilation_cleanup()
        for holder, changes in zip(walk.holders, entry["settings"], strict=True):
            for name, coded in changes.items():
                object.__setattr__(holder, name, _value(coded))
        self.emulation.counted |= entry["counted"]
        print(entry["printed"], end="")
        return function if only else function.run_compiled_program(executed) and None


class _Tee(io.TextIOBase):
    """A stream that keeps a copy of what passes."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.copy = stream, io.StringIO()

    def write(self, text: str, /) -> int:
        self.copy.write(text)
        return int(self.stream.write(text))

    def flush(self) -> None:
        self.stream.flush()


def _sources() -> set[Path]:
    """Files of the modules that are loaded, but for installed ones."""
    return {Path(str(m.__file__)).resolve() for m in list(sys.modules.values()) if _is_ours(m)}


def _is_ours(module: Any) -> bool:
    return isinstance(module, ModuleType) and ours(module)


def _settings(walk: Identity) -> list[dict[str, Any]]:
    """The settings of each object that was met, as they are now."""
    return [settings(holder) for holder in walk.holders]


def _changes(
    before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]
) -> list[dict[str, Any]] | None:
    """What tracing set on each object; None where it set what cannot be set again.

    What the DSL made while it traced means nothing later, and is left out.
    """
    told: list[dict[str, Any]] = []
    for old, new in zip(before, after, strict=True):
        told.append({})
        if old.keys() - new.keys():
            return None
        for name, value in new.items():
            if name in old and (old[name] is value or _coded_alike(old[name], value)):
                continue
            try:
                told[-1][name] = _coded(value)
            except UntoldError:
                if name in old or not type(value).__module__.startswith("cutlass"):
                    return None
    return told


def _coded_alike(one: Any, other: Any) -> bool:
    try:
        return bool(_coded(one) == _coded(other))
    except UntoldError:
        return False


def _coded(value: Any) -> Any:
    """A plain value, or a class, as JSON has it."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) in (tuple, list):
        return {type(value).__name__: [_coded(v) for v in value]}
    if isinstance(value, Enum):
        return {"enum": [*_place(type(value)), value.name]}
    if isinstance(value, type):
        return {"class": _place(value)}
    raise UntoldError(f"a {type(value).__name__} cannot be written down")


def _place(kind: type) -> list[str]:
    if resolved(kind.__module__, kind.__qualname__) is not kind:
        raise UntoldError(f"{kind!r} is not found by its name")
    return [kind.__module__, kind.__qualname__]


def _value(coded: Any) -> Any:
    """What was written down."""
    if not isinstance(coded, dict):
        return coded
    ((form, told),) = coded.items()
    if form in ("tuple", "list"):
        return (tuple if form == "tuple" else list)(map(_value, told))
    kind = resolved(*told[:2])
    return kind if form == "class" else kind[told[2]]
