"""``Deriver``: makes mutants of a cuTile source.

A tile index becomes 0 or wraps after 2 or 3, a loop ends early or begins late, a product is left
out, a term or a divisor is dropped, a comparison takes one element more or fewer.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mla_var3.languages import deriving


class Deriver(deriving.Deriver):
    """Derives the mutants of one source."""

    def is_device(self, function: ast.FunctionDef) -> bool:
        return any(
            "kernel" in ast.dump(d) or "function" in ast.dump(d) for d in function.decorator_list
        )

    def of_call(self, node: ast.Call) -> Iterator[deriving.Edit]:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if name in ("load", "store") and len(node.args) > 1 and isinstance(node.args[1], ast.Tuple):
            for index in node.args[1].elts:
                if not isinstance(index, ast.Constant):
                    yield index, "0", "index 0"
                    for size in (2, 3):
                        yield index, f"({self.text(index)}) % {size}", f"index modulo {size}"
        if name == "mma" and len(node.args) == 3:
            yield node, self.text(node.args[2]), "dropped product"
        if isinstance(node.func, ast.Name) and node.func.id == "range" and len(node.args) > 1:
            first, last = map(self.text, node.args[:2])
            yield node.args[0], f"({first}) + 1", "late loop"
            for most in (1, 3):
                yield node.args[1], f"ct.minimum({last}, ({first}) + {most})", f"loop of {most}"
