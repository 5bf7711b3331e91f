"""Describes all that shapes a traced Python function's code, for a cache key: sources, values.

A tracing compiler runs the function, so whatever the function can reach may shape the result. What
came with a wheel has a version. All else is walked, as far as names lead: functions with their
defaults and closures, classes, settings of objects, globals. A value that cannot be told raises
``UntoldError``, and the caller compiles anew.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import inspect
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

from mla_var3.blobs import once_per_content

#: Where the standard library lies.
_STANDARD = tuple(
    str(Path(folder).resolve())
    for folder in {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
)
#: Packages of ours whose modules hold device code; the rest of ours only calls it.
DEVICE_PACKAGES = ("mla_var3.kernel", "mla_var3.languages.cute")
#: Names by which a function reads what is neither a source nor a value that it can reach.
_READS_ELSEWHERE = frozenset(
    (
        "environ", "getenv", "open", "read_text", "read_bytes", "random", "randint",
        "getrandbits", "perf_counter", "time", "exec", "eval", "globals",
    )
)  # fmt: skip
_PLAIN = (type(None), type(...), type(NotImplemented), bool, int, float, complex, str, bytes)


class UntoldError(Exception):
    """Something reached may shape the trace in a way that cannot be told."""


def ours(module: ModuleType) -> bool:
    """Whether a module's source may change while its version stays."""
    file = getattr(module, "__file__", None)
    if file is None or not file.endswith(".py") or installed(file):
        return False
    name = module.__name__
    return not name.startswith("mla_var3") or name.startswith(DEVICE_PACKAGES)


@functools.cache
def installed(file: str) -> bool:
    """Whether a file came with Python or a wheel: then it has a version."""
    path = Path(file).resolve()
    return str(path).startswith(_STANDARD) or any(map(_holds_wheels, path.parents))


@functools.cache
def _holds_wheels(folder: Path) -> bool:
    """Whether wheels were installed into a folder, which need not be this Python's own."""
    return next(folder.glob("*.dist-info"), None) is not None


@once_per_content
def digest(file: Path) -> str:
    """Of a file's content."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


@functools.cache
def versions() -> list[str]:
    """Of every installed distribution, as their folders are named, and of Python."""
    folders = {Path(entry) for entry in sys.path if entry}
    found = {held.name for folder in folders for held in folder.glob("*.dist-info")}
    return [sys.version, *sorted(found)]


class Identity:
    """The walk from a function and its arguments.

    Attributes:
        files: Sources reached, and those of what their modules import.
        holders: Objects with settings of their own, in the order in which they were met.
    """

    def __init__(self) -> None:
        self.files: set[Path] = set()
        self.holders: list[Any] = []
        self._met: dict[int, int] = {}
        self._kept: list[Any] = []
        self._containers: list[tuple[Any, list[Any]]] = []
        self._spaces: set[int] = set()

    def of(self, value: Any) -> Any:
        """A value as JSON has it; the same only for values that are traced alike.

        Raises:
            UntoldError: It cannot be told.
        """
        if isinstance(value, Enum):
            return ["enum", self.of(type(value)), value.name]
        if type(value) in _PLAIN:
            return [type(value).__name__, repr(value)]
        if id(value) in self._met:
            return ["met", self._met[id(value)]]
        self._met[id(value)] = len(self._met)
        self._kept.append(value)  # Its address is its name here.
        return self._described(value)

    def changed_meanwhile(self) -> bool:
        """Whether a list, dict or set that was walked holds something else by now."""
        for held, before in self._containers:
            now = _items(held)
            if len(now) != len(before) or any(a is not b for a, b in zip(now, before, strict=True)):
                return True
        return False

    def _described(self, value: Any) -> Any:
        match value:
            case tuple() | list() | set() | frozenset() | dict():
                return self._container(value)
            case MappingProxyType():
                return ["view", self.of(dict(value))]
            case functools.partial():
                held = (value.func, value.args, value.keywords)
                return ["partial", *map(self.of, held)]
            case MethodType():
                return ["method", self.of(value.__func__), self.of(value.__self__)]
            case staticmethod() | classmethod():
                return [type(value).__name__, self.of(value.__func__)]
            case property():
                return ["property", *(f and self.of(f) for f in (value.fget, value.fset))]
            case FunctionType():
                return self._function(value)
            case BuiltinFunctionType() | WrapperDescriptorType() | MethodDescriptorType():
                return ["builtin", getattr(value, "__module__", None), value.__qualname__]
            case CodeType():
                names = repr(value.co_names)
                return ["code", value.co_code.hex(), names, self.of(value.co_consts)]
            case ModuleType():
                return self._module(value, ())
            case type():
                return self._class(value)
        return self._object(value)

    def _container(self, value: Any) -> Any:
        if isinstance(value, list | dict | set):
            self._containers.append((value, _items(value)))
        name = type(value).__qualname__
        if isinstance(value, dict):
            return [name, [[self.of(k), self.of(v)] for k, v in value.items()]]
        items = [self.of(v) for v in value]
        return [name, sorted(items, key=repr) if isinstance(value, set | frozenset) else items]

    def _function(self, value: FunctionType) -> Any:
        code = value.__code__
        told: list[Any] = ["function", value.__module__, value.__qualname__]
        told += [self.of(value.__defaults__), self.of(value.__kwdefaults__)]
        told.append([self._cell(cell) for cell in value.__closure__ or ()])
        told.append(self.of(getattr(value, "_cute_dsl_name_options", None)))
        if installed(code.co_filename):
            return told
        if code.co_filename.startswith("<"):  # As dataclasses make them, of what is told already.
            told.append([code.co_code.hex(), repr(code.co_names)])
        else:
            self._source(code.co_filename)
            told.append(code.co_firstlineno)
        self._imported(value.__globals__)
        return [*told, self._reads(code, value.__globals__)]

    def _cell(self, cell: Any) -> Any:
        try:
            return self.of(cell.cell_contents)
        except ValueError:  # It is empty.
            return None

    def _reads(self, code: CodeType, space: dict[str, Any]) -> Any:
        """What a function's names stand for."""
        names = sorted(set(_names(code)))
        told = {}
        for name in names:
            if name in _READS_ELSEWHERE:
                raise UntoldError(f"{code.co_qualname} reads by {name}")
            value = space.get(name, sys.modules.get(name))
            if isinstance(value, ModuleType):
                told[name] = self._module(value, names)
            elif value is not None:
                told[name] = self.of(value)
        return told

    def _module(self, module: ModuleType, names: Iterable[str]) -> Any:
        """A module by its name, and what of it the names say."""
        if not ours(module):
            return ["module", module.__name__]
        self._source(str(module.__file__))
        self._imported(vars(module))
        held = vars(module)
        return ["module", module.__name__, {n: self.of(held[n]) for n in names if n in held}]

    def _class(self, kind: type) -> Any:
        """A class by its name where it is found by it, else by what it holds."""
        home = sys.modules.get(kind.__module__)
        name = ["class", kind.__module__, kind.__qualname__]
        if home is not None and not ours(home) and resolved(*name[1:]) is kind:
            return name  # Several that are made in one place share a name.
        file = getattr(home, "__file__", None)
        if file is not None and not installed(file):
            self._source(file)
        bases = [self.of(base) for base in kind.__bases__]
        held = {k: self._attribute(v) for k, v in vars(kind).items() if _matters(k, v)}
        return [*name, bases, held]

    def _attribute(self, value: Any) -> Any:
        # A named tuple's fields are told by their names, as slots are.
        plain = inspect.ismemberdescriptor(value) or type(value).__module__ == "_collections"
        return ["slot"] if plain else self.of(value)

    def _object(self, value: Any) -> Any:
        kind = type(value)
        if kind.__module__.startswith(("cuda.bindings", "_cython")):
            return ["driver", kind.__qualname__]
        if kind.__module__ == "torch" and kind.__name__ in ("dtype", "device"):
            return [kind.__name__, repr(value)]
        if kind.__name__ != "_FakeTensor" and hasattr(kind, "__cache_key__"):
            return ["key", self.of(kind), self.of(value.__cache_key__)]
        if "_mlir" in kind.__module__ or (not hasattr(value, "__dict__") and not _slots(kind)):
            raise UntoldError(f"a {kind.__module__}.{kind.__qualname__} shows no settings")
        self.holders.append(value)
        held = sorted(settings(value).items())
        return ["object", self.of(kind), {k: self.of(v) for k, v in held}]

    def _source(self, file: str) -> None:
        path = Path(file)
        if not path.is_file():
            raise UntoldError(f"{file} is no file")
        self.files.add(path.resolve())

    def _imported(self, space: dict[str, Any]) -> None:
        """Add the sources of what a namespace imports, and of what that imports."""
        if id(space) in self._spaces:
            return
        self._spaces.add(id(space))
        for value in list(space.values()):
            name = value.__name__ if isinstance(value, ModuleType) else _home(value)
            other = sys.modules.get(name) if name else None
            if other is not None and other.__name__ != "__main__" and ours(other):
                self._source(str(other.__file__))
                self._imported(vars(other))


def _items(held: Any) -> list[Any]:
    """What a container holds, and under which keys."""
    return [*held, *(held.values() if isinstance(held, dict) else ())]


def _names(code: CodeType) -> Iterator[str]:
    """Names that a function reads, and those of functions inside of it."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            raise UntoldError(f"{code.co_qualname} changes a global")
    yield from code.co_names
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _names(one)


def _home(value: Any) -> str | None:
    home = getattr(value, "__module__", None)
    return home if isinstance(home, str) else None


def resolved(module: str, name: str) -> Any:
    """What a name stands for in a module; None where there is no such thing."""
    value: Any = sys.modules.get(module)
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


def settings(value: Any) -> dict[str, Any]:
    """What an object holds, in its dict and in its slots."""
    held = dict(getattr(value, "__dict__", {}))
    return held | {n: getattr(value, n) for n in _slots(type(value)) if hasattr(value, n)}


def _matters(name: str, value: Any) -> bool:
    """Whether an attribute of a class can shape anything."""
    if name in ("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__"):
        return False
    return not inspect.isgetsetdescriptor(value) and not name.startswith("_abc_")


def _slots(kind: type) -> list[str]:
    """Names of slots of a class and its bases."""
    found: list[str] = []
    for one in kind.__mro__:
        own = vars(one).get("__slots__", ())
        found += [own] if isinstance(own, str) else own
    return [name for name in found if name not in ("__dict__", "__weakref__")]
