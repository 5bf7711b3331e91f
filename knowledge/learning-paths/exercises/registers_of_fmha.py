"""Registers that the warps of Blackwell's fmha hold after setmaxnreg, of those an SM has."""

import ast

from mla_var3.examples import pin
from mla_var3.paths import repo_root

FILE = "cute/blackwell/kernel/attention/fmha/fmha.py"
WARP = 32
tree = ast.parse(pin.tree(repo_root()).file(FILE).read_text())
found = {
    node.targets[0].attr: ast.unparse(node.value)
    for node in ast.walk(tree)
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute)
}


def warps(*roles):
    ids = [ast.literal_eval(found[role]) for role in roles]
    return sum(len(one) if isinstance(one, tuple) else 1 for one in ids)


parts = {
    "num_regs_softmax": warps("softmax0_warp_ids", "softmax1_warp_ids"),
    "num_regs_correction": warps("correction_warp_ids"),
    "num_regs_other": warps("mma_warp_id", "load_warp_id", "epilogue_warp_id", "empty_warp_id"),
}
print(sum(WARP * count * int(found[name]) for name, count in parts.items()))
