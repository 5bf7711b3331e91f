"""TMA stores of flash_mla v2's machine code, by the record of its compile."""

from mla_var3 import evidence
from mla_var3.paths import results_dir

FOLDER = results_dir() / "static/sm_90/cute_python/mla/flash_mla"
record, *_ = evidence.newest(evidence.find(FOLDER, version="v2", mode="static"))
(stage,) = record.outcome.stages
print(stage.static.tma_stores)
