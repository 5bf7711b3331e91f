"""D of custom_epilogue_dense_gemm for one element: its own epilogue, called with numbers."""

import ast
from types import SimpleNamespace

from mla_var3.examples import pin
from mla_var3.paths import repo_root

FILE = "cute/blackwell/efc/custom_epilogue_dense_gemm.py"
text = pin.tree(repo_root()).file(FILE).read_text()
(function,) = [
    node
    for node in ast.walk(ast.parse(text))
    if isinstance(node, ast.FunctionDef) and node.name == "epilogue"
]
names = {}
exec(compile(ast.Module([function], []), FILE, "exec"), names)

stored = {}


def tensor(name, value=None):
    return SimpleNamespace(load=lambda: value, store=lambda what: stored.update({name: what}))


config = SimpleNamespace(accum=lambda: -1, relu=lambda x: max(x, 0))
names["epilogue"](config, tensor("C", 1), tensor("D"), 2, 1, tensor("X", 1), 3, tensor("Y"))
print(stored)
print(stored["D"])
