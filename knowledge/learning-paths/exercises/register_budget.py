"""The largest setmaxnreg of hopper_gemm v2's consumers beside its producers' 24 registers."""

from mla_var3.kernel.cute_python.gemm.hopper_gemm.hopper_gemm_v2 import hopper_gemm_v2 as version

#: Registers of an SM of sm_90, and what setmaxnreg counts in.
REGISTERS, STEP = 65536, 8
producers = (version.THREADS - version.CONSUMERS) * version.PRODUCER_REGISTERS
budget = (REGISTERS - producers) // version.CONSUMERS // STEP * STEP
assert budget >= version.CONSUMER_REGISTERS
print(budget)
