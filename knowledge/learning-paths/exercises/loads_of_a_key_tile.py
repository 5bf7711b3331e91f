"""Steps of the score product per key tile in mla_decode_fp8: its own sizes, asked here."""

import sys

import cutlass

from mla_var3.examples import pin
from mla_var3.paths import repo_root

FILE = "cute/blackwell/kernel/attention/mla/mla_decode_fp8.py"
tree = pin.tree(repo_root())
sys.path[:0] = [str(tree.file(FILE).parent), str(tree.examples)]
from mla_decode_fp8 import BlackwellMultiHeadLatentAttentionForwardFP8 as Decode  # noqa: E402

FULL = cutlass.Float32
decode = Decode(FULL, FULL, (128, 128), (128, 256), 74, 1, 0.0, True, False, False)
print(decode.iterations_qk)
