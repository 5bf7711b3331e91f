"""The most steps that hopper_attention holds beside its queries, by its own check."""

import itertools

from mla_var3.errors import TilingError
from mla_var3.kernel.cute_python.attention.hopper_attention.hopper_attention import (
    hopper_attention as version,
)

plan = version.Plan(b=4, h=16, s=4096, t=4096, d=128)


def fits(stages):
    try:
        version.Plan.tiling_types["attention"](keys=128, stages=stages).validate(plan)
    except TilingError as error:
        print(error)
        return False
    return True


print(max(itertools.takewhile(fits, itertools.count(1))))
