"""Replaces the CuTe DSL's export and load of compiled functions by files that the emulator reads.

A package that caches compiled functions on disk keeps host code and PTX here, not machine code.
The emulator's temporary folder is its own, so that it and a GPU never load each other's files.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import platformdirs

from mla_var3.emulator import ffi
from mla_var3.errors import EmulatorError

#: What makes an engine of host code, with the PTX of its kernels.
Make = Callable[[str, str], Any]
_FORM = "emulated CuTe DSL function, version 1"


def replacements(make: Make, own: Callable[[Any], None]) -> Iterator[tuple[Any, str, Any]]:
    """What of the DSL is replaced: owner, name, value."""
    import cutlass.cute.runtime
    import cutlass.runtime
    from cutlass.cutlass_dsl import tvm_ffi_provider as provider

    yield provider.TVMFFIJitCompiledFunctionBase, "export_to_c", _export
    for module in (cutlass.runtime, cutlass.cute.runtime):
        yield module, "load_module", _loader(make, own)


def temporary_folder() -> Any:
    """A context in which files that are kept among temporary ones are the emulator's own."""
    folder = Path(platformdirs.user_cache_dir("hypermla")) / "emulated"
    folder.mkdir(parents=True, exist_ok=True)
    return mock.patch.object(tempfile, "tempdir", str(folder))


def _export(self: Any, object_file_path: str, function_name: str | None = None, **_: Any) -> None:
    """In place of writing machine code."""
    content = {
        "form": _FORM,
        "name": function_name,
        "symbol": self.function_name,
        "host": str(self.ir_module),
        "ptx": self.engine.emulator_runtime.text,
    }
    Path(object_file_path).write_text(json.dumps(content), encoding="utf-8")


def _loader(make: Make, own: Callable[[Any], None]) -> Callable[..., Any]:
    def load(file_path: str, *, enable_tvm_ffi: bool = False) -> _Module:
        try:
            content = json.loads(Path(file_path).read_text(encoding="utf-8"))
            known = isinstance(content, dict) and content.get("form") == _FORM
        except ValueError:
            known = False
        if not known:
            raise EmulatorError(
                f"{file_path} was compiled for a GPU: let the package keep its files elsewhere"
            )
        engine = make(content["host"], content["ptx"])
        return _Module(content["name"], ffi.function(engine, content["symbol"]), own)

    return load


class _Module:
    """What a file holds: one function, by its name."""

    def __init__(self, name: str, function: Any, own: Callable[[Any], None]) -> None:
        self._name, self._function, self._own = name, function, own

    def __getitem__(self, name: str) -> Callable[..., Any]:
        if name != self._name:
            raise AttributeError(f"the file holds {self._name}, and not {name}")
        return self._call

    __getattr__ = __getitem__

    def _call(self, *args: Any) -> Any:
        return self._function(*(ffi.shown(a, self._own) for a in args))
