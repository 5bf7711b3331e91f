"""Registers of a thread that scores, weights and output of hopper_attention v1 take."""

from mla_var3.kernel.cute_python.attention.hopper_attention.hopper_attention_v1 import (
    hopper_attention_v1 as version,
)
from mla_var3.kernel.cute_python.kit import head_kernel, head_plan, head_tiles

REGISTER_BYTES, THREADS = 4, 128
plan = version.Plan(b=4, h=16, s=4096, t=4096, d=128)
keys = plan.default_tiling("attention").keys
of_a_row = 4 * keys, head_plan.ELEMENT_BYTES * keys, 4 * plan.d
parts = [head_tiles.ROWS * row // (REGISTER_BYTES * THREADS) for row in of_a_row]
print(f"scores, weights and output: {parts}, of {head_kernel.CONSUMER_REGISTERS}")
print(sum(parts))
