"""Persistent CTAs of flash_mla v4 at a batch of 32 with 16 queries: its plan, asked."""

from mla_var3.kernel.cute_python.mla.flash_mla.flash_mla_v4 import flash_mla_v4 as version

plan = version.Plan(b=32, h=128, s=16, t=4096)
print(plan.default_tiling("attention").blocks)
