"""Makes a package's ``__getattr__`` (PEP 562), which imports its public names on first use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def names_of(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """What a package calls ``__getattr__`` (PEP 562).

    Args:
        package: Its ``__name__``.
        homes: The module of each name, below the package; none has the name of a module.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return get
