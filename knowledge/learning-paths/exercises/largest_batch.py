"""The largest batch whose row tiles flash_mla v3 still gives two blocks each: its plan, asked."""

import itertools

from mla_var3.kernel.cute_python.mla.flash_mla.flash_mla_v3 import flash_mla_v3 as version


def is_split(batch):
    plan = version.Plan(b=batch, h=128, s=1, t=4096)
    return plan.default_tiling("attention").splits == 2


print(max(itertools.takewhile(is_split, itertools.count(1))))
