"""Makes the three functions of adoption from a script that compares its kernel by itself.

``definitions`` loads a file's functions without running the rest; ``script`` keeps what the script
gives to ``assert_close`` or ``allclose`` as output and reference.
"""

from __future__ import annotations

import ast
import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any
from unittest import mock

from mla_var3.errors import InputError
from mla_var3.inputs import read_python

if TYPE_CHECKING:
    import torch


def definitions(file: str) -> ModuleType:
    """Imports, functions and classes of a file, and the constants that they use; nothing else runs.

    Args:
        file: The file, by its path from the file that calls this.

    Raises:
        InputError: It cannot be read, or is not Python.
    """
    path = _beside_caller(file)
    module = ModuleType(f"definitions_{path.stem.replace('-', '_')}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    sys.path.insert(0, str(path.parent))
    try:
        # Without what this file imports from __future__.
        exec(compile(defining(path), str(path), "exec", dont_inherit=True), vars(module))
    finally:
        sys.path.remove(str(path.parent))
    return module


def _beside_caller(file: str) -> Path:
    frame = sys._getframe(2)
    folder = Path(frame.f_globals.get("__file__", ".")).resolve().parent
    path = (folder / file).resolve()
    if not path.is_file():
        raise InputError(str(path), "is not a file")
    return path


def defining(path: Path) -> ast.Module:
    """The statements of a file that define what its functions use."""
    module = read_python(path)
    kept: list[ast.stmt] = [n for n in module.body if isinstance(n, _DEFINING)]
    others = [n for n in module.body if not isinstance(n, _DEFINING)]
    used = set().union(*map(_used, kept)) if kept else set()
    while new := [n for n in others if _assigned(n) & used and n not in kept]:
        kept += new
        used |= set().union(*map(_used, new))
    chosen = {id(node) for node in kept}
    module.body = [node for node in module.body if id(node) in chosen]
    return module


_DEFINING = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)


def _used(node: ast.stmt) -> set[str]:
    """Names of the module that a statement uses, its functions' own variables left out."""
    open_, found = [compile(ast.Module([node], []), "used", "exec", dont_inherit=True)], set[str]()
    while open_:
        code = open_.pop()
        found |= {*code.co_names, *code.co_freevars}
        open_ += [each for each in code.co_consts if isinstance(each, CodeType)]
    return found


def _assigned(node: ast.stmt) -> set[str]:
    """Names that a statement of the module binds; none of one that only runs something."""
    if isinstance(node, ast.Expr):
        return set()
    if isinstance(node, ast.If) and "__name__" in ast.dump(node.test):
        return set()
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)
            and isinstance(n.ctx, ast.Store)}  # fmt: skip


# -- scripts that compare by themselves ----------------------------------------------------------


@dataclass
class Compared:
    """What a script compared.

    Attributes:
        pairs: What came out and what it was held to, in order.
        tolerance: Largest tolerance that it allowed.
    """

    pairs: list[tuple[Any, Any]] = field(default_factory=list)
    tolerance: float = 0.0


@contextlib.contextmanager
def comparing() -> Iterator[Compared]:
    """Keeps what torch's and numpy's comparisons are given inside the block."""
    import numpy as np
    import torch

    found = Compared()

    def kept(original: Callable[..., Any]) -> Callable[..., Any]:
        def compare(actual: Any, expected: Any, *args: Any, **kwargs: Any) -> Any:
            if all(isinstance(one, torch.Tensor | np.ndarray) for one in (actual, expected)):
                found.pairs.append((_tensor(actual), _tensor(expected)))
                allowed = (kwargs.get(name) for name in ("rtol", "atol"))
                found.tolerance = max(found.tolerance, *(float(x or 0) for x in allowed))
            return original(actual, expected, *args, **kwargs)

        return compare

    with contextlib.ExitStack() as stack:
        for owner, name in (
            (torch.testing, "assert_close"), (torch, "allclose"),
            (np.testing, "assert_allclose"), (np, "allclose"),
        ):  # fmt: skip
            value = kept(getattr(owner, name))
            stack.enter_context(mock.patch.object(owner, name, value))
        yield found


def _tensor(value: Any) -> torch.Tensor:
    import torch

    made = torch.from_numpy(value) if not isinstance(value, torch.Tensor) else value
    return made.detach().clone()


Functions = tuple[
    Callable[..., dict[str, Any]], Callable[..., dict[str, Any]], Callable[..., dict[str, Any]]
]


def script(file: str, arguments: str = "") -> Functions:
    """The three functions of a script that compares its kernel's output by itself.

    Args:
        file: The script, by its path from the file that calls this.
        arguments: Its command line.
    """
    path = _beside_caller(file)
    ran: list[Compared] = []

    def once() -> Compared:
        if not ran:
            ran.append(run(path, shlex.split(arguments)))
        return ran[0]

    def inputs(device: str) -> dict[str, Any]:
        once()  # Here, since a reference may launch no kernel.
        return {}

    def reference() -> dict[str, Any]:
        return {f"compared{i}": pair[1] for i, pair in enumerate(once().pairs)}

    def launch() -> dict[str, Any]:
        return {f"compared{i}": pair[0] for i, pair in enumerate(once().pairs)}

    return inputs, reference, launch


def run(path: Path, arguments: list[str]) -> Compared:
    """Run a script to its end; what it compared.

    Raises:
        Exception: What ended it.
        InputError: It compares nothing.
    """
    from mla_var3.gpuless import scripts

    with comparing() as found, contextlib.redirect_stdout(sys.stderr):
        ended = scripts.run(path, arguments)
    if ended.error is not None:
        raise ended.error
    if ended.code:
        raise InputError(str(path), f"ends with {ended.code}")
    if not found.pairs:
        raise InputError(str(path), "compares no tensors with a reference")
    return found
