"""Read NVIDIA's docstring examples from the installed cuda-tile package and make them runnable.

The docstrings hold Sphinx ``testcode`` blocks, each followed by a ``testoutput`` block with what
a GPU printed. Nothing is copied: the text is read when the tests run. Two templates are in use,
``kernel_wrapper.py`` (the block is the body of a kernel without parameters) and ``setup_only.py``
(the block is a whole host program); the wrappers here are our own.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib
import inspect
import io
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import cuda.tile as ct
import torch

#: What Sphinx compares with when a block names no options of its own.
DEFAULT_OPTIONS = (
    doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL | doctest.DONT_ACCEPT_TRUE_FOR_1
)

_DIRECTIVE = re.compile(r"^(?P<indent> *)\.\. (?P<kind>testcode|testoutput)::\s*$")
_OPTION = re.compile(r"^:(?P<key>\w+):(?P<value>.*)$")
_TRACEBACK = "Traceback (most recent call last):"


@dataclass(frozen=True)
class Example:
    """One ``testcode`` block and the output printed beneath it.

    Attributes:
        module: Module that holds it, relative to ``cuda.tile``.
        name: Object and running number, for example ``"Array.slice-1"``.
        template: Name of the template that the block asks for.
        code: The block, dedented.
        expected: The printed output, or None where the docstring shows none.
        options: doctest flags to compare with.
    """

    module: str
    name: str
    template: str
    code: str
    expected: str | None
    options: int

    @property
    def id(self) -> str:
        """Name of the test case."""
        return f"{self.module}:{self.name}"

    @property
    def expected_exception(self) -> tuple[str, str] | None:
        """Type and message that the block must raise, or None where it must print."""
        if self.expected is None or not self.expected.startswith(_TRACEBACK):
            return None
        kind, _, message = self.expected.strip().splitlines()[-1].partition(": ")
        return kind, message

    def source(self) -> str:
        """The program to run: the block in its wrapper, on CPU tensors."""
        code = self.code.replace("cuda:0", "cpu")
        if self.template == "setup_only.py":
            return code
        if self.template == "kernel_wrapper.py":
            body = textwrap.indent(code, "    ")
            return f"@ct.kernel\ndef kernel():\n{body}\nct.launch(stream, (1,), kernel, ())\n"
        raise ValueError(f"{self.id}: there is no wrapper for the template {self.template!r}")


def examples() -> list[Example]:
    """Every example of the installed package, in the order of modules and docstrings."""
    root = Path(ct.__file__).parent
    found = []
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "testcode::" not in text:
            continue
        relative = ".".join(path.relative_to(root).with_suffix("").parts)
        for name, docstring in _docstrings(f"{ct.__name__}.{relative}", text):
            found += list(_blocks(relative, name, docstring))
    return found


def _docstrings(module_name: str, text: str) -> Iterator[tuple[str, str]]:
    """Names and docstrings of a module; from its text where a missing library bars the import.

    The live objects come first because some docstrings are composed when the module is imported.
    """
    try:
        module = importlib.import_module(module_name)
    except ImportError:
        yield from _docstrings_of_text(text)
        return
    for name, value in vars(module).items():
        if getattr(value, "__module__", None) != module_name:
            continue
        yield name, value.__doc__ or ""
        if not inspect.isclass(value):
            continue
        for member_name, member in vars(value).items():
            member = getattr(member, "__func__", member)  # static and class methods
            if isinstance(member, property) or inspect.isroutine(member):
                yield f"{name}.{member_name}", member.__doc__ or ""


def _docstrings_of_text(text: str) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, ast.get_docstring(node) or ""


def _blocks(module: str, name: str, docstring: str) -> Iterator[Example]:
    """Pair each ``testcode`` of a docstring with the ``testoutput`` that follows it."""
    lines = inspect.cleandoc(docstring).splitlines()
    starts = [(i, match) for i, line in enumerate(lines) if (match := _DIRECTIVE.match(line))]
    parsed = [(match["kind"], *_body(lines, i, len(match["indent"]))) for i, match in starts]
    number = 0
    for position, (kind, options, body) in enumerate(parsed):
        if kind != "testcode":
            continue
        expected, flags = None, DEFAULT_OPTIONS
        if position + 1 < len(parsed) and parsed[position + 1][0] == "testoutput":
            _, output_options, expected = parsed[position + 1]
            flags |= _flags(output_options.get("options", ""))
        yield Example(
            module, f"{name}-{number}", options.get("template", ""), body, expected, flags
        )
        number += 1


def _body(lines: list[str], start: int, indent: int) -> tuple[dict[str, str], str]:
    """Options and dedented content of the directive at line ``start``."""
    content = []
    for line in lines[start + 1 :]:
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            break
        content.append(line)
    content = textwrap.dedent("\n".join(content)).splitlines()
    options = {}
    while content and (match := _OPTION.match(content[0])):
        options[match["key"]] = match["value"].strip()
        content.pop(0)
    return options, "\n".join(content).strip("\n") + "\n"


def _flags(names: str) -> int:
    flags = 0
    for name in filter(None, (part.strip() for part in names.split(","))):
        flags |= doctest.OPTIONFLAGS_BY_NAME[name.removeprefix("+")]
    return flags


def run(example: Example, directory: Path, launch: Callable[..., Any]) -> str:
    """Run an example and return what it printed.

    Args:
        example: The example.
        directory: Where its source is written: the cuTile front end reads kernels from files.
        launch: Called in place of ``cuda.tile.launch`` with the same arguments.

    Returns:
        Everything written to standard output, by the host code and by the kernels.
    """
    path = directory / f"{re.sub(r'[^A-Za-z0-9]+', '_', example.id)}.py"
    path.write_text(example.source(), encoding="utf-8")
    module = ModuleType(path.stem)
    module.__dict__.update(ct=ct, torch=torch, stream=None, __file__=str(path))
    output = io.StringIO()
    with _replaced(launch), contextlib.redirect_stdout(output):
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)
    return output.getvalue()


@contextlib.contextmanager
def _replaced(launch: Callable[..., Any]) -> Iterator[None]:
    """Put ``launch`` in place of the GPU launch and make the CUDA calls of host code harmless."""
    saved = ct.launch, torch.cuda.synchronize, torch.cuda.current_stream
    ct.launch = launch
    torch.cuda.synchronize = lambda *args: None
    torch.cuda.current_stream = lambda *args: None
    try:
        yield
    finally:
        ct.launch, torch.cuda.synchronize, torch.cuda.current_stream = saved


def difference(example: Example, printed: str) -> str | None:
    """How ``printed`` differs from NVIDIA's text, or None where it agrees."""
    checker = doctest.OutputChecker()
    wanted = example.expected or ""
    if checker.check_output(wanted, printed, example.options):
        return None
    case = doctest.Example(example.source(), wanted)
    return checker.output_difference(case, printed, example.options | doctest.REPORT_NDIFF)
