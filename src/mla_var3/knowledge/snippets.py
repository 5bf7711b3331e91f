"""Says which names a snippet of a page takes from around it, and what they mean."""

from __future__ import annotations

import ast
import builtins
import io
import re
import textwrap
import tokenize
from collections.abc import Mapping
from pathlib import Path

from mla_var3 import inputs
from mla_var3.blobs import once_per_content

#: Where the meanings stand: for all languages, for one, and for a page.
NAMES = "knowledge/names.toml"
#: Modules of the languages and of torch, which readers of a page import.
_MODULES = frozenset(
    {"arch", "cpasync", "ct", "cute", "cutlass", "dataclass", "functools", "math", "np", "os"}
    | {"pipeline", "self", "tcgen05", "torch", "utils", "warpgroup", "const_expr", "Float32"}
    | {"range_constexpr", "Int32", "BFloat16", "Boolean"}
)
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

Meanings = Mapping[str, str]


def meanings(root: Path) -> Mapping[str, Meanings]:
    """Meanings of names, by language and by page.

    Raises:
        InputError: The file is not TOML.
    """
    path = root / NAMES
    return _read(path) if path.is_file() else {}


@once_per_content  # Each page of a pattern asks.
def _read(path: Path) -> Mapping[str, Meanings]:
    return inputs.read_toml(path)


def blocks(text: str) -> list[str]:
    """The Python snippets of a page."""
    return _BLOCK.findall(text)


def taken(snippet: str) -> list[str]:
    """Names that a snippet uses and neither makes nor names in a comment, in order of use."""
    tree = _parsed(snippet)
    made: set[str] = set()
    used: dict[str, None] = {}
    for node in sorted(ast.walk(tree), key=lambda node: getattr(node, "lineno", 0)):
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                made.add(node.id)
            else:
                used[node.id] = None
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            made.add(node.name)
        elif isinstance(node, ast.arg):
            made.add(node.arg)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            made |= {(name.asname or name.name).partition(".")[0] for name in node.names}
    known = made | _said(snippet) | _MODULES | set(dir(builtins))
    return [name for name in used if name not in known]


def _parsed(snippet: str) -> ast.Module:
    # Three dots among parameters stand for what is left out.
    code = re.sub(r"(def \w+)\(\.\.\.(, \w+)?\)", r"\1(*left_out\2)", snippet)
    return ast.parse(textwrap.dedent(code))


def _said(snippet: str) -> set[str]:
    """Words of a snippet's comments."""
    tokens = tokenize.generate_tokens(io.StringIO(snippet).readline)
    comments = (token.string for token in tokens if token.type == tokenize.COMMENT)
    return {word for comment in comments for word in re.findall(r"\w+", comment)}


def explained(text: str, known: Mapping[str, Meanings], scope: str, page: str) -> str:
    """A page with the names below each snippet that it takes from around it.

    Args:
        text: The page as Markdown.
        known: All meanings.
        scope: The page's language, or ``shared``.
        page: Its id.
    """
    of_page = _of_page(known, scope, page)

    def add(block: re.Match[str]) -> str:
        told = [f"`{name}`, {of_page[name]}" for name in taken(block[1]) if of_page.get(name)]
        return f"{block[0]}\n\nNames from around it: {'; '.join(told)}." if told else block[0]

    return _BLOCK.sub(add, text)


def unexplained(text: str, known: Mapping[str, Meanings], scope: str, page: str) -> list[str]:
    """Names of a page's snippets whose meaning nothing says: neither snippet nor table."""
    of_page = _of_page(known, scope, page)
    return [name for block in blocks(text) for name in taken(block) if name not in of_page]


def _of_page(known: Mapping[str, Meanings], scope: str, page: str) -> Meanings:
    """What names mean on a page: as it says itself, as its language does, or as all do."""
    return {**known.get("shared", {}), **known.get(scope, {}), **known.get(page, {})}
