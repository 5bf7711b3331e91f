"""Counts against what the kernels are known to do."""

import numpy as np

from mla_var3.emulator.count import bank_conflicts, sectors
from mla_var3.emulator.options import Options
from tests.emulator.kernels import GEMM, MIRROR, PRODUCT, RING


def test_bytes_and_flops_of_a_product() -> None:
    _, done = PRODUCT.run()
    c = done.counts
    assert c.tensor_flops == 2 * 32 * 8 * 64
    assert c.total_bytes("global read") == 2 * (32 * 64 + 8 * 64)
    assert c.total_bytes("global write") == 4 * 32 * 8


def test_bytes_and_flops_of_wgmma() -> None:
    _, done = GEMM.run()
    c = done.counts
    assert c.tensor_flops == 2 * 64 * 64 * 256
    assert c.total_bytes("global read") == 2 * 2 * 64 * 256
    assert c.total_bytes("global write") == 2 * 64 * 64


def test_lines_carry_what_happened_there() -> None:
    _, done = GEMM.run()
    lines = done.counts.lines()
    load = lines[("kernel.py", GEMM.line("load_a"))]
    assert load.tma_boxes == 4
    assert load.bytes["global read"] == 2 * 64 * 256
    assert lines[("kernel.py", GEMM.line("wgmma"))].instructions["wgmma"] == 4 * 4
    assert lines[("kernel.py", GEMM.line("wait_full"))].waits > 0


def test_instructions_are_per_warp() -> None:
    _, done = MIRROR.run()
    line = done.counts.lines()[("kernel.py", MIRROR.line("fetch"))]
    assert line.instructions == {"ld": 3 * 4}
    assert line.bytes == {"global read": 3 * 512}


def test_guards_keep_threads_from_counting() -> None:
    _, done = RING.run()
    arrive = done.counts.lines()[("kernel.py", RING.line("release"))]
    assert arrive.instructions["mbarrier"] == 6 * 4


def test_bank_conflicts() -> None:
    lane = np.arange(32)
    assert bank_conflicts(4 * lane, 4) == 0
    assert bank_conflicts(8 * lane, 4) == 1
    assert bank_conflicts(128 * lane, 4) == 31
    assert bank_conflicts(0 * lane, 4) == 0
    assert bank_conflicts(16 * lane, 16) == 0
    assert bank_conflicts(128 * lane, 16) == 28


def test_sectors() -> None:
    lane = np.arange(32).astype(np.uint64)
    assert sectors(lane * np.uint64(4), 4) == (4, 4)
    assert sectors(lane * np.uint64(128), 4) == (32, 4)


def test_full_counts_name_the_conflicting_line() -> None:
    _, done = MIRROR.run(options=Options(counting="full"))
    assert done.counts.as_json()["bank_conflicts"] == 0
    # An array off a sector's start takes one more per warp.
    assert 2 * 3 * 16 <= done.counts.as_json()["sectors"] <= 2 * 3 * 20
