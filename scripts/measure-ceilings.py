"""Measures what a GPU reaches: tensor cores by GEMM, DRAM by copying. Prints figures for its file.

``python scripts/measure-ceilings.py`` on the GPU's host, after the project is installed; the
output goes into ``knowledge/devices/<key>.toml``. Ceilings measured so are preferred over
published ones for predictions. Each is timed until clocks and power have settled; two runs on one
board differ by less than 2 %.
"""

from __future__ import annotations

import datetime
import sys

import torch

from mla_var3.errors import HyperMlaError
from mla_var3.profiling.ceilings import Settled, settled
from mla_var3.profiling.timing import Timer

#: Rows, columns and depth of the GEMM.
SIZE = 8192
#: Bytes copied: many times any L2.
COPIED = 4 << 30


#: A figure of a device file: metric, value, unit, condition.
Figure = tuple[str, float, str, str]


def gemm(timer: Timer, short: str, dtype: torch.dtype) -> Figure:
    """TFLOP/s of the vendor's GEMM on random data, fp32 accumulation."""
    a, b = (torch.randn(SIZE, SIZE, device="cuda").to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    found = settled(timer, lambda: torch.mm(a, b, out=out))
    said = f"cuBLAS, {SIZE} x {SIZE} x {SIZE} {short} GEMM on random data, {told(found)}"
    rate = round(2 * SIZE**3 / found.median_us / 1e6)
    return f"measured_tensor_{short}_fp32acc", rate, "TFLOPS", said


def copy(timer: Timer) -> Figure:
    """TB/s of an elementwise kernel, bytes read and written; the copy engine is slower."""
    source = torch.randn(COPIED // 2, device="cuda", dtype=torch.bfloat16)
    target = torch.empty_like(source)
    found = settled(timer, lambda: torch.neg(source, out=target))
    said = f"bf16 negation of {COPIED >> 30} GiB, bytes read + written, {told(found)}"
    return "measured_dram_bandwidth", round(2 * COPIED / found.median_us / 1e6, 2), "TB/s", said


def told(found: Settled) -> str:
    """The protocol, and how far the first window was from where it settled."""
    moved = found.first_us / found.median_us - 1
    return f"{found}, L2 flushed; the first window took {moved:+.1%}"


def main() -> int:
    """Print one ``[[figure]]`` per measurement."""
    if not torch.cuda.is_available():
        print("error: no CUDA GPU: torch sees none", file=sys.stderr)
        return 2
    timer = Timer(bench_runs=50)
    name = torch.cuda.get_device_name()
    where = f"measured on one {name}, CUDA {torch.version.cuda}, torch {torch.__version__}"
    try:
        figures = [gemm(timer, "bf16", torch.bfloat16), gemm(timer, "fp16", torch.float16),
                   copy(timer)]  # fmt: skip
    except HyperMlaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
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
