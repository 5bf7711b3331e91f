"""The deepest ring that hopper_gemm v1 accepts: its own check of tilings, asked for each depth."""

import itertools

from mla_var3.errors import TilingError
from mla_var3.kernel.cute_python.gemm.hopper_gemm.hopper_gemm_v1 import hopper_gemm_v1 as version

plan = version.Plan(m=8192, n=8192, k=8192)


def fits(stages):
    try:
        version.Tiling(stages=stages).validate(plan)
    except TilingError as error:
        print(error)
        return False
    return True


print(max(itertools.takewhile(fits, itertools.count(2))))
