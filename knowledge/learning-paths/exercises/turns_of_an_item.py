"""Barriers of turns that a warpgroup of hopper_attention v2 meets in an item of 4096 keys."""

from mla_var3.kernel.cute_python.attention.hopper_attention.hopper_attention_v2 import (
    hopper_attention_v2 as version,
)

plan = version.Plan(b=4, h=16, s=4096, t=4096, d=128)
steps = -(-plan.t // plan.default_tiling("attention").keys)
print(f"{steps} steps, of which the first is ahead of the loop")
print(2 * (steps - 1) + 1)
