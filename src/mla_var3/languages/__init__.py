"""Kernel languages (cuTile, CuTe DSL, library): finds each by its key, behind one protocol.

A language is a package of this folder that defines ``LANGUAGE`` (see ``languages.base.Language``);
importing it loads neither torch nor a compiler.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil

from mla_var3.errors import UnknownNameError
from mla_var3.languages.base import Compiled, CompileJob, Language, StageMetric, Tile

__all__ = ["CompileJob", "Compiled", "Language", "StageMetric", "Tile", "find", "languages"]


@functools.cache
def languages() -> dict[str, Language]:
    """Every language by its key, in order."""
    packages = (found.name for found in pkgutil.iter_modules(__path__) if found.ispkg)
    found = (importlib.import_module(f"{__name__}.{name}").LANGUAGE for name in packages)
    return {language.key: language for language in sorted(found, key=lambda item: item.key)}


def find(key: str) -> Language:
    """The language with a key.

    Raises:
        UnknownNameError: There is none.
    """
    if key not in languages():
        raise UnknownNameError("language", key, list(languages()))
    return languages()[key]
