"""Finds the Python source files that shape a CuTe kernel, and a key of its host object.

Both are parts of the key in the compile cache.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

from mla_var3.emulator.identity import ours
from mla_var3.errors import PlanError

_ADDRESS = re.compile(r"\bat 0x[0-9a-f]+")


def module_of(host: Any) -> ModuleType:
    """The module that defines a host function or the class of a host object.

    Raises:
        PlanError: It has none, so the DSL cannot read its source.
    """
    function = inspect.unwrap(host) if callable(host) and hasattr(host, "__qualname__") else host
    name = getattr(function, "__module__", None) or type(function).__module__
    module = sys.modules.get(name)
    if module is None or getattr(module, "__file__", None) is None:
        raise PlanError(f"{host!r} is not defined in a file, and the CuTe DSL reads its source")
    return module


def functions(host: Any) -> tuple[str, ...]:
    """Names of functions that a host function may launch: methods beside it, or in its module."""
    return tuple(name for name in (*dir(type(host)), *vars(module_of(host))) if name[:2] != "__")


def project_files(host: Any) -> tuple[Path, ...]:
    """Files of the host's module and of every module that it uses and that is not installed."""
    return _files((module_of(host), *map(module_of, _given(host))))


@functools.lru_cache(maxsize=256)  # Every launch of a problem asks.
def _files(modules: tuple[ModuleType, ...]) -> tuple[Path, ...]:
    found: dict[Path, None] = {}
    waiting = [*modules]
    while waiting:
        module = waiting.pop()
        path = Path(str(module.__file__)).resolve()
        if path not in found:
            found[path] = None
            waiting += used_modules(module)
    return tuple(sorted(found))


def _given(host: Any) -> list[FunctionType]:
    """Functions among the attributes of a host object, which it compiles too."""
    return [f for f in getattr(host, "__dict__", {}).values() if isinstance(f, FunctionType)]


def used_modules(module: ModuleType) -> Iterator[ModuleType]:
    """Modules of the project that a module's names come from."""
    for value in list(vars(module).values()):
        name = value.__name__ if isinstance(value, ModuleType) else _home(value)
        other = sys.modules.get(name) if name else None
        if other is not None and ours(other):
            yield other


def _home(value: Any) -> str | None:
    home = getattr(value, "__module__", None)
    return home if isinstance(home, str) else None


def identity(host: Any) -> str | None:
    """Text that two hosts share only if they compile alike, given the same sources.

    Args:
        host: A host function, or an object whose attributes are its settings.

    Returns:
        The text; None where it cannot be told, as for a closure or an attribute that shows no
        more than its address.
    """
    if isinstance(host, FunctionType | MethodType):
        if inspect.unwrap(host).__closure__:
            return None
        return f"{host.__module__}.{host.__qualname__}"
    text = _settings(host, ())
    return None if _ADDRESS.search(text) else text


def _settings(value: Any, within: tuple[Any, ...]) -> str:
    """An object by its class and its attributes; ``within`` are those that it is a part of."""
    around = (*within, value)
    shown = (f"{key}={_shown(one, around)}" for key, one in sorted(vars(value).items()))
    return f"{type(value).__module__}.{type(value).__qualname__}({', '.join(shown)})"


def _shown(value: Any, within: tuple[Any, ...]) -> str:
    """An attribute as text; a function by its name and by the values that it has kept.

    An object that shows its address alone is told by its own attributes, as a kernel within one.
    """
    if isinstance(value, FunctionType):
        kept = inspect.getclosurevars(inspect.unwrap(value)).nonlocals
        return f"{value.__module__}.{value.__qualname__}{kept}"
    plain = type(value).__repr__ is object.__repr__ and hasattr(value, "__dict__")
    if plain and not any(value is one for one in within):
        return _settings(value, within)
    return repr(value)
