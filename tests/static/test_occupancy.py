import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3 import devices
from mla_var3.static.occupancy import SmLimits, occupancy, round_up

H200 = SmLimits(65536, 228 * 1024, 227 * 1024, 1024, 2048, 64, 32, 256, 32, 255)

limits = st.sampled_from(
    [
        H200,
        SmLimits(65536, 164 * 1024, 163 * 1024, 1024, 2048, 64, 32, 256, 32, 255),
        SmLimits(65536, 100 * 1024, 99 * 1024, 1024, 1536, 48, 24, 256, 32, 255),
    ]
)
threads = st.integers(1, 1024)
registers = st.integers(0, 255)
shared = st.integers(0, 260 * 1024)


def fits(sm, blocks, threads, registers, shared):
    """Independent restatement: place warp after warp on the emptiest processing block."""
    warps = -(-threads // sm.warp_size)
    quarter = [sm.registers_per_sm // 4] * 4
    a_warp = round_up(registers * sm.warp_size, sm.register_allocation_unit)
    for _ in range(blocks * warps):
        roomiest = max(range(4), key=lambda i: quarter[i])
        quarter[roomiest] -= a_warp
    used = blocks * round_up(shared + sm.reserved_shared_per_block, 128)
    return (
        min(quarter) >= 0
        and used <= sm.shared_memory_per_sm
        and shared <= sm.shared_memory_per_block_max
        and blocks * warps <= sm.warps_per_sm
        and blocks * warps * sm.warp_size <= sm.threads_per_sm
        and blocks <= sm.blocks_per_sm
    )


@given(limits, threads, registers, shared)
def test_resident_blocks_fit_and_one_more_does_not(sm, threads, registers, shared):
    found = occupancy(sm, threads=threads, registers=registers, shared_bytes=shared)
    assert fits(sm, found.blocks_per_sm, threads, registers, 0 if not found.warps else shared)
    assert not fits(sm, found.blocks_per_sm + 1, threads, registers, shared)
    assert found.warps == found.blocks_per_sm * -(-threads // 32)
    assert found.fraction == pytest.approx(found.warps / sm.warps_per_sm, abs=1e-6)
    assert (found.limiter == "block too large") == (found.blocks_per_sm == 0)


@given(limits, threads, registers, shared, st.sampled_from(["threads", "registers", "shared"]))
def test_a_hungrier_kernel_never_holds_more_blocks(sm, threads, registers, shared, grown):
    small = {"threads": threads, "registers": registers, "shared_bytes": shared}
    key = "shared_bytes" if grown == "shared" else grown
    large = small | {key: small[key] + 1}
    assert occupancy(sm, **large).blocks_per_sm <= occupancy(sm, **small).blocks_per_sm


@given(limits, threads, registers, shared)
def test_the_limiter_alone_gives_the_same_figure(sm, threads, registers, shared):
    found = occupancy(sm, threads=threads, registers=registers, shared_bytes=shared)
    if found.blocks_per_sm:
        alone = occupancy(
            sm,
            threads=threads,
            registers=registers if found.limiter == "registers" else 0,
            shared_bytes=shared if found.limiter == "shared memory" else 0,
        )
        assert (alone.blocks_per_sm, alone.limiter) == (found.blocks_per_sm, found.limiter)


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks", "limiter"),
    [
        # The latent kernel with 8 worker warps: Nsight Compute on an H200 states 18.75 %.
        (384, 168, 156208, 1, "registers"),
        (256, 16, 0, 8, "threads"),
        (32, 16, 0, 32, "blocks"),
        (128, 32, 100 * 1024, 2, "shared memory"),
        (1024, 65, 0, 0, "block too large"),
        # The driver says the same of the matmul compiled for two blocks an SM.
        (256, 128, 114848, 2, "registers"),
        (128, 32, 228 * 1024, 0, "block too large"),
    ],
)
def test_known_launches(threads, registers, shared, blocks, limiter):
    found = occupancy(H200, threads=threads, registers=registers, shared_bytes=shared, device="d")
    assert (found.blocks_per_sm, found.limiter, found.device) == (blocks, limiter, "d")


@pytest.mark.parametrize(("columns", "blocks"), [(0, 8), (32, 8), (128, 4), (256, 2), (512, 1)])
def test_tensor_memory_is_shared_by_the_resident_blocks(columns, blocks):
    found = occupancy(
        H200, threads=256, registers=32, shared_bytes=0, tensor_memory_columns=columns
    )
    assert found.blocks_per_sm == blocks
    assert (found.limiter == "tensor memory") == (columns >= 128)


def test_the_latent_kernel_holds_the_share_that_was_measured():
    assert occupancy(H200, threads=384, registers=168, shared_bytes=156208).fraction == 0.1875


def test_blocks_as_the_cuda_driver_counts_them():
    """A sample of cuOccupancyMaxActiveBlocksPerMultiprocessor on one H200, 2026-11-21."""
    with (Path(__file__).parent / "occupancy_h200.csv").open() as file:
        rows = [{k: int(v) for k, v in row.items()} for row in csv.DictReader(file)]
    assert len(rows) == 425
    for row in rows:
        stated = row.pop("blocks_per_sm")
        assert occupancy(H200, **row).blocks_per_sm == stated, row


def test_device_files_give_the_limits_used_here():
    assert devices.load("nvidia-h200-sxm").sm_limits() == H200


@pytest.mark.parametrize(
    "bad",
    [
        {"threads": 0, "registers": 1, "shared_bytes": 0},
        {"threads": 1, "registers": -1, "shared_bytes": 0},
        {"threads": 1, "registers": 1, "shared_bytes": -1},
        {"threads": 1, "registers": 1, "shared_bytes": 0, "tensor_memory_columns": -1},
    ],
)
def test_figures_out_of_range_are_refused(bad):
    with pytest.raises(ValueError, match=r"threads=.* must be >= 1"):
        occupancy(H200, **bad)
