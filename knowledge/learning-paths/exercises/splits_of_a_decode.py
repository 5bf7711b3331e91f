"""Splits of the keys that mla_decode_fp16 chooses: its own heuristic, called here."""

import sys

from mla_var3.examples import pin
from mla_var3.paths import repo_root

FILE = "cute/blackwell/kernel/attention/mla/mla_decode_fp16.py"
tree = pin.tree(repo_root())
sys.path[:0] = [str(tree.file(FILE).parent), str(tree.examples)]
from mla_decode_fp16 import BlackwellMultiHeadLatentAttentionForwardFP16 as Decode  # noqa: E402

print(Decode.get_split_kv(8, 1, 4096, (128, 128), 148))
