#!/usr/bin/env bash
# Makes all static records that are committed; without a change of sources or compilers it changes
# none. Run it in an environment that has the project installed.
set -euo pipefail
cd "$(dirname "$0")/.."
bench() { python -m mla_var3.app.commands bench "$@"; }

bench --designs flash_attention,flash_mla,flash_mla_split_kv   # what `profile` makes by default
bench --designs mla_var6_plus --s 16
bench --workload mla --b 32 --s 1                              # what was timed on the H200
bench --workload mla --b 32 --s 16
bench --designs flash_mla_split_kv --b 4 --arch sm_90          # what pages cite besides
bench --designs flash_attention --b 1 --s 4096 --causal --arch sm_90
bench --workload gemm
