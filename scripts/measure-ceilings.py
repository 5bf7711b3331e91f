"""Measures what a GPU reaches: tensor cores by GEMM, DRAM by copying. Prints figures for its file.

``python scripts/measure-ceilings.py`` on the GPU's host, after the project is installed; the
output goes into ``knowledge/devices/<key>.toml``. Ceilings measured so are preferred over
published ones for predictions.
"""

from __future__ import annotations

import datetime
import sys

import torch

from mla_var3.profiling.timing import Timer

#: Rows, columns and depth of the GEMM: long enough to reach full clocks, and power limits.
SIZE = 8192
#: Bytes copied: many times any L2.
COPIED = 4 << 30


def gemm_tflops(timer: Timer, dtype: torch.dtype) -> float:
    """TFLOP/s of the vendor's GEMM on random data, fp32 accumulation."""
    a, b = (torch.randn(SIZE, SIZE, device="cuda").to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    return 2 * SIZE**3 / timer.time(lambda: torch.mm(a, b, out=out)).median_us / 1e6


def copy_tbps(timer: Timer) -> float:
    """TB/s of an elementwise kernel, bytes read and written; the copy engine is slower."""
    source = torch.randn(COPIED // 2, device="cuda", dtype=torch.bfloat16)
    target = torch.empty_like(source)
    return 2 * COPIED / timer.time(lambda: torch.neg(source, out=target)).median_us / 1e6


def main() -> int:
    """Print one ``[[figure]]`` per measurement."""
    if not torch.cuda.is_available():
        print("error: no CUDA GPU: torch sees none", file=sys.stderr)
        return 2
    timer = Timer(bench_runs=50)
    name = torch.cuda.get_device_name()
    where = f"measured on one {name}, CUDA {torch.version.cuda}, torch {torch.__version__}"
    shape = f"{SIZE} x {SIZE} x {SIZE}"
    runs = f"median of {timer.bench_runs} replays, L2 flushed"
    figures = [
        (f"measured_tensor_{short}_fp32acc", round(gemm_tflops(timer, dtype)), "TFLOPS",
         f"cuBLAS, {shape} {short} GEMM on random data, {runs}")
        for short, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16))
    ]  # fmt: skip
    figures.append(
        ("measured_dram_bandwidth", round(copy_tbps(timer), 2), "TB/s",
         f"bf16 negation of {COPIED >> 30} GiB, bytes read + written, {runs}")
    )  # fmt: skip
    today = datetime.datetime.now(datetime.UTC).date()
    for metric, value, unit, condition in figures:
        print(
            f'[[figure]]\nmetric = "{metric}"\nvalue = {value}\nunit = "{unit}"\n'
            f'condition = "{condition}"\nsource = "{where}, {today}"\n'
            f'quoted = "{metric} {value} {unit}"\nkind = "measured"\nevidence = "direct"\n'
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
