"""Blocks of hopper_gemm v0 that fit an SM, by the record of its compile."""

from mla_var3 import evidence
from mla_var3.paths import results_dir
from mla_var3.static.occupancy import of_facts

FOLDER = results_dir() / "static/sm_90/cute_python/gemm/hopper_gemm"
record, *_ = evidence.newest(evidence.find(FOLDER, version="v0", mode="static"))
(stage,) = record.outcome.stages
held = of_facts(stage.static)
print(f"{stage.static.shared_bytes} bytes per block, limited by {held.limiter}")
print(held.blocks_per_sm)
