"""Makes pages of the API cheaper: a hook of mkdocs for what mkdocstrings reads and formats.

It reads the whole package for its pages, and starts ruff for each signature that is longer than a
line. Here the kernels, whose pages are none of the API's, are left out, and a signature whose
parameters stand on lines of their own is laid out without ruff, as ruff would.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from griffe import Module, ModuleFinder
from mkdocstrings_handlers.python._internal import rendering

from generators.pages.reference import NOT_API, PACKAGE

_SIGNATURE = re.compile(r"(?P<head>def \w+\()(?P<parameters>.*)(?P<tail>\).*?:) pass")
#: Brackets and commas, and strings, in which both mean nothing.
_MARKS = re.compile(r"\"(?:\\.|[^\"\\])*\"|[\[({]|[\])}]|,")
_SINGLE_QUOTED = re.compile(r"'([^'\"\\]*)'")
_INDENT = "    "

_submodules = ModuleFinder.submodules
_get_formatter = rendering._get_formatter


def on_startup(command: str, dirty: bool) -> None:
    """Take the place of both."""
    ModuleFinder.submodules = _of_api  # type: ignore[method-assign,assignment]
    rendering._get_formatter = lambda: formatted  # type: ignore[assignment]


def _of_api(finder: ModuleFinder, module: Module) -> list[Any]:
    """The submodules of a module; of the package those with pages of the API."""
    found = _submodules(finder, module)
    return [(parts, path) for parts, path in found if (module.name, parts[0]) not in _LEFT_OUT]


_LEFT_OUT = {(PACKAGE, name) for name in NOT_API}


def formatted(code: str, width: int) -> str:
    """A function as ruff formats it.

    Args:
        code: ``def name(parameters) -> type: pass`` on one line that is longer than ``width``.
        width: Characters of a line.
    """
    return laid_out(code, width) or _get_formatter()(code, width)


def laid_out(code: str, width: int) -> str | None:
    """The same without ruff; None where more than the parameters needs lines of its own."""
    code = _SINGLE_QUOTED.sub(r'"\1"', code)
    found = _SIGNATURE.fullmatch(code)
    # A comma of a lambda parts no parameters.
    if found is None or any(mark in code for mark in ("'", "\n", "lambda")):
        return None
    head, joined, tail = found["head"], found["parameters"], found["tail"]
    if _depth(joined):  # The bracket that was found is one of the type.
        return None
    lines = [f"{parameter}," for parameter in _split(joined)]
    if len(lines) > 1 and len(_INDENT + joined) <= width:
        lines = [joined]
    lines = [head, *(_INDENT + line for line in lines), tail]
    fits = bool(joined) and all(len(line) <= width for line in lines)
    return "\n".join([*lines, f"{_INDENT}pass\n"]) if fits else None


def _depth(text: str) -> int:
    """Brackets that are open at the end; -1 where one closes that was not opened."""
    depth = 0
    for mark in _MARKS.findall(text):
        depth += (mark in "([{") - (mark in ")]}")
        if depth < 0:
            break
    return depth


def _split(parameters: str) -> Iterator[str]:
    depth = start = 0
    for mark in _MARKS.finditer(parameters):
        depth += (mark[0] in "([{") - (mark[0] in ")]}")
        if mark[0] == "," and not depth:
            yield parameters[start : mark.start()].strip()
            start = mark.end()
    yield parameters[start:].strip()
