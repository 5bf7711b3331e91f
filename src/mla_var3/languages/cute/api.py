"""Lists the public names of the installed CuTe DSL, for the reference of its API."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import warnings
from typing import Any

from mla_var3.errors import ToolchainError
from mla_var3.languages.public_names import PublicName, find, read

#: Modules whose names are public, by what stands for them; a thing of several counts for the first.
MODULES = {
    "cute.arch": "cutlass.cute.arch",
    "cute.math": "cutlass.cute.math",
    "cute.nvgpu.warpgroup": "cutlass.cute.nvgpu.warpgroup",
    "cute.nvgpu.warp": "cutlass.cute.nvgpu.warp",
    "cute.nvgpu.cpasync": "cutlass.cute.nvgpu.cpasync",
    "cute.nvgpu.tcgen05": "cutlass.cute.nvgpu.tcgen05",
    "cute.nvgpu": "cutlass.cute.nvgpu",
    "cutlass": "cutlass",
    "cute": "cutlass.cute",
    "cute.runtime": "cutlass.cute.runtime",
    "cute.testing": "cutlass.cute.testing",
    "pipeline": "cutlass.pipeline",
    "utils.hopper_helpers": "cutlass.utils.hopper_helpers",
    "utils.sm100": "cutlass.utils.sm100",
    "utils.blackwell_helpers": "cutlass.utils.blackwell_helpers",
    "utils.blockscaled_layout": "cutlass.utils.blockscaled_layout",
    "utils.mixed_input_helpers": "cutlass.utils.mixed_input_helpers",
    "utils.distributed": "cutlass.utils.distributed",
    "utils.gemm.sm100": "cutlass.utils.gemm.sm100",
    "utils": "cutlass.utils",
    "cutlass.torch": "cutlass.torch",
    "cutlass.cuda": "cutlass.cuda",
    "cutlass.vector": "cutlass.vector",
    "cute.experimental": "cutlass.cute.experimental",
    "cute.experimental.iket": "cutlass.cute.experimental.iket",
    "cutlass.experimental.cuda": "cutlass.experimental.cuda",
    "cutlass.experimental.primitives": "cutlass.experimental.primitives",
    "cutlass.experimental.task_scheduling": "cutlass.experimental.task_scheduling",
    **{
        f"cutlass.experimental.task_scheduling.{name}":
            f"cutlass.experimental.task_scheduling.{name}"
        for name in ("enums", "memory", "resources", "schedule_builder", "task", "task_manager")
    },
    "cutlass.testing": "cutlass.testing",
}  # fmt: skip


def names() -> dict[str, PublicName]:
    """Every public name once, by the first module that has it."""
    return {key: read(value) for key, value in _found().items()}


def observed() -> dict[str, dict[str, Any]]:
    """Nothing: what the DSL makes of a name depends on its arguments."""
    return {}


def key_of(dotted: str) -> str | None:
    """The name by which a reference has what a source spells, cut where a class or value begins.

    Args:
        dotted: Such as ``cutlass.cute.core.make_layout``.

    Returns:
        Such as ``cute.make_layout``; None for a module.

    Raises:
        ToolchainError: The package has no such name.
    """
    parts = dotted.split(".")
    for end in range(2, len(parts) + 1):
        value = find(".".join(parts[:end]), {})
        if "._mlir" in getattr(value, "__name__", ""):  # NVIDIA's bindings of MLIR.
            return None
        if not inspect.ismodule(value):
            first = _firsts().get(id(value)) if _is_itself(value) else None
            return first or _outermost(parts[:end], value)
    return None


def _outermost(parts: list[str], value: Any) -> str:
    """The shortest path to a value that a module hands on from those below it."""
    outer = [*parts[:-2], parts[-1]]
    if len(outer) > 1:
        with contextlib.suppress(ToolchainError):
            same = find(".".join(outer), {})
            if same is value or (type(same) is type(value) and repr(same) == repr(value)):
                return _outermost(outer, value)
    return _spelled(".".join(parts))


def _spelled(path: str) -> str:
    """A path with the alias of its module."""
    for alias, module in sorted(MODULES.items(), key=lambda item: -len(item[1])):
        if path.startswith(f"{module}."):
            return alias + path.removeprefix(module)
    return path


@functools.cache
def _found() -> dict[str, Any]:
    values: dict[str, Any] = {}
    seen: set[int] = set()
    for alias, path in MODULES.items():
        for name, value in _public(_module(path)):
            if not (_is_itself(value) and id(value) in seen):
                seen.add(id(value))
                values[f"{alias}.{name}"] = value
    return values


@functools.cache
def _firsts() -> dict[int, str]:
    return {id(value): key for key, value in reversed(_found().items())}


def _is_itself(value: Any) -> bool:
    """Whether one object is one thing; two numbers that are equal may be two things."""
    return isinstance(value, type) or inspect.isroutine(value)


def _module(path: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(path)
        except ImportError:  # A class or a namespace object under its module.
            parent, _, name = path.rpartition(".")
            return getattr(importlib.import_module(parent), name)


def _public(home: Any) -> list[tuple[str, Any]]:
    """What a module or namespace offers: its ``__all__``, else what its package defines."""
    told = getattr(home, "__all__", None)
    names = sorted({*(told if told is not None else dir(home))})
    found = [
        (name, getattr(home, name))
        for name in names
        if hasattr(home, name) and (not name.startswith("_") or name == "__version__")
    ]
    return [
        (name, value)
        for name, value in found
        if not inspect.ismodule(value) and (told is not None or _of(value, home))
    ]


def _of(value: Any, home: Any) -> bool:
    """Whether a value is of a module or below it, and not something that it imports for itself."""
    module = getattr(value, "__module__", None) or ""
    return (
        module == home.__name__
        or module.startswith(f"{home.__name__}.")
        or (not module and isinstance(value, int | str))
    )
