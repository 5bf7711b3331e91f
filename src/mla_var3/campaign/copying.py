"""Copies an adopted file into a campaign, with the files of its user that a version may change.

Those are the files that it names by ``definitions`` or ``script`` and the modules beside them. One
file stays a file; several go to a folder per version, under their own names but for the adopted
one, which is called after the version. Packages stay where they are, and so does what a file finds
by its own place (``__file__``).
"""

from __future__ import annotations

import ast
import itertools
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from mla_var3 import inputs
from mla_var3.campaign import contract, reaching
from mla_var3.errors import InputError
from mla_var3.paths import write_atomic


def bring(source: Path, folder: Path, name: str) -> None:
    """Copy an adopted file and what it takes along as a version.

    Args:
        source: The file.
        folder: Folder of the versions.
        name: What the version's own file is called, without its ending.

    Raises:
        InputError: Two of the files have one name.
    """
    source = source.resolve()
    names = _names(source, f"{name}.py")
    files = {names[file]: _moved(file, names) for file in names}
    rooms = {str(file.parent) for file in names if _leaves(file, names)}
    files[f"{name}.py"] = _finding(files[f"{name}.py"], sorted(rooms))
    if len(files) == 1:
        write_atomic(folder / f"{name}.py", files[f"{name}.py"])
    else:
        _write(folder / name, files)


def again(folder: Path, parent: str, name: str) -> None:
    """Copy a version as another one.

    Args:
        folder: Folder of the versions.
        parent: What the version's own file is called, without its ending.
        name: What that of the copy is.
    """
    one = folder / parent
    if not one.is_dir():
        write_atomic(folder / f"{name}.py", inputs.read_text(folder / f"{parent}.py"))
        return
    files = {file.name: inputs.read_text(file) for file in sorted(one.glob("*.py"))}
    files[f"{name}.py"] = files.pop(f"{parent}.py")
    _write(folder / name, files)


def kernel_file(main: Path) -> Path:
    """Which file of a version to edit: the first that takes the kernel's language.

    Of plain torch it is the file that the adopted one names or imports, where there is one.
    """
    if not main.is_file():
        return main
    own = [file for file in reaching.reached(main) if file.parent == main.resolve().parent]
    kind = contract.kind_of(main)
    if kind == "torch":
        return main.with_name(own[min(1, len(own) - 1)].name)
    return main.with_name(next((f for f in own if contract.kind_by(f) == kind), own[0]).name)


def _names(source: Path, own: str) -> dict[Path, str]:
    """The files to copy, each with its name in the copy."""
    found, open_ = {source: own}, [source]
    while open_:
        one = open_.pop(0)
        others = [other for _, other in reaching.naming(one)]
        if not _places(one):
            others += [p.resolve() for p in reaching.neighbors(one) if p.parent == one.parent]
        for other in others:
            if other in found:
                continue
            if other.name in found.values():
                raise InputError(str(other), f"has the name of another file that {source} takes")
            found[other] = other.name
            open_.append(other)
    return found


def _leaves(file: Path, names: Mapping[Path, str]) -> bool:
    """Whether a file imports from its folder what is not copied."""
    return any(other.resolve() not in names for other in reaching.neighbors(file))


def _places(file: Path) -> list[ast.Name]:
    """Where a file asks for its own place, by which it finds what stays there."""
    nodes = ast.walk(inputs.read_python(file))
    return [node for node in nodes if isinstance(node, ast.Name) and node.id == "__file__"]


def _moved(file: Path, names: Mapping[Path, str]) -> str:
    """A file's text, files called as in the copy, and its own place where it was."""
    put: list[tuple[ast.expr, str]] = [(said, names[p]) for said, p in reaching.naming(file)]
    put += [(node, str(file)) for node in _places(file)]
    text = inputs.read_text(file).encode()  # Positions are in bytes.
    starts = [0, *itertools.accumulate(map(len, text.splitlines(keepends=True)))]
    for node, said in sorted(put, key=lambda each: _place(each[0]), reverse=True):
        first = starts[node.lineno - 1] + node.col_offset
        last = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        text = text[:first] + repr(said).encode() + text[last:]
    return text.decode()


def _place(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _finding(text: str, folders: Iterable[str]) -> str:
    """A file's text, which finds packages in folders that it was not copied from."""
    rows = [f"sys.path.append({folder!r})\n" for folder in folders]
    if not rows:
        return text
    lines = text.splitlines(keepends=True)
    fixed = [node for node in ast.parse(text).body if _comes_first(node)]
    at = fixed[-1].end_lineno or 0 if fixed else 0
    return "".join([*lines[:at], "import sys\n", *rows, *lines[at:]])


def _comes_first(node: ast.stmt) -> bool:
    """Whether it is a docstring or an import from the future."""
    match node:
        case ast.Expr(value=ast.Constant(value=str())) | ast.ImportFrom(module="__future__"):
            return True
    return False


def _write(folder: Path, files: Mapping[str, str]) -> None:
    """Write a folder whole or not at all."""
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    for name, text in files.items():
        write_atomic(part / name, text)
    shutil.rmtree(folder, ignore_errors=True)
    part.replace(folder)
