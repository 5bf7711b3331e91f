from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3 import devices
from mla_var3.errors import DeviceFigureError, TilingError
from mla_var3.languages import ranking
from mla_var3.languages.cutile.facts import CutileFacts
from mla_var3.languages.ranking import Launch, density, fill, rank, reason_to_prune, spread
from mla_var3.runtime.ct_kernel import CtKernel, CutileTiling
from mla_var3.static.occupancy import Occupancy
from mla_var3.workloads import Cost
from tests.languages.cutile import kernels_for_tests as kernels


@dataclass(frozen=True, kw_only=True)
class Tiles(CutileTiling):
    tm: int = 64
    tn: int = 64


def matmul(configs, size=256, dtype=None):
    a, b, c, *_ = kernels.matmul_args(size=size, **({"dtype": dtype} if dtype else {}))
    return CtKernel(
        kernels.matmul,
        grid_fn=lambda x: (-(-size // x.tm), size // x.tn),
        args_fn=lambda x: (a, b, c, x.tm, x.tn, 64),
        input_tensors={"a": a, "b": b},
        output_tensors={"c": c},
        tiling=Tiles(tm=32),
        autotune_configs=configs,
        algorithmic_flops_bytes_fn=lambda _: Cost(2 * size**3, 6 * size**2),
    )


CONFIGS = [Tiles(tm=64), Tiles(tm=16), Tiles(tm=64, tn=512), Tiles(tm=64, tn=3)]


@pytest.mark.slow
def test_thin_tiles_and_impossible_ones_are_pruned_with_their_reason(cache_dir):
    kernel = matmul(CONFIGS)
    told = []
    found = rank(kernel, "sm_90", cache_dir=cache_dir, progress=told.append)
    reasons = dict(found.pruned)
    assert [kept.tiling for kept in found.kept] == [CONFIGS[0]]
    assert "fall back to HMMA, where sm_90 has HGMMA" in reasons[CONFIGS[1]]
    assert "grid (4, 0)" in reasons[CONFIGS[2]]
    assert "does not compile for sm_90: " in reasons[CONFIGS[3]]
    assert [t for t, _ in found.pruned] == CONFIGS[1:]
    assert found.best == CONFIGS[0]
    assert found.least_bad is None
    assert kernel.tiling == Tiles(tm=32)
    assert len(told) == 3


@pytest.mark.slow
def test_on_another_arch_the_same_tile_is_kept(cache_dir):
    found = rank(matmul(CONFIGS[:2]), "sm_120", cache_dir=cache_dir)
    assert {kept.tiling for kept in found.kept} == set(CONFIGS[:2])
    scores = [kept.score for kept in found.kept]
    assert scores == sorted(scores, reverse=True)
    assert 0 < scores[-1] <= scores[0] <= 1


def test_fuller_devices_rank_first(cache_dir):
    """At one block a tile, small tiles keep more of the SMs busy."""
    configs = [Tiles(tm=64, tn=64), Tiles(tm=64, tn=32)]
    found = rank(matmul(configs, size=256), "sm_120", cache_dir=cache_dir)
    fills = {kept.tiling: kept.fill for kept in found.kept}
    assert fills == {configs[0]: round(16 / 170, 6), configs[1]: round(32 / 170, 6)}
    for kept in found.kept:
        top = max(k.density for k in found.kept)
        assert kept.score == pytest.approx(kept.fill * kept.density / top, abs=1e-5)


@pytest.mark.slow
def test_spilling_tilings_are_pruned_and_the_least_bad_is_named(cache_dir):
    args = kernels.latent_args()
    kernel = CtKernel(
        kernels.latent,
        grid_fn=lambda _: (4, 2),
        args_fn=lambda _: args,
        input_tensors={},
        output_tensors={"o": args[4]},
        tiling=CutileTiling(),
        autotune_configs=[],
        algorithmic_flops_bytes_fn=lambda _: Cost(1, 1),
    )
    eight = CutileTiling(num_worker_warps=8)
    found = rank(kernel, "sm_90", configs=[CutileTiling(), eight], cache_dir=cache_dir)
    assert [kept.tiling for kept in found.kept] == [eight]
    ((tiling, reason),) = found.pruned
    assert tiling == CutileTiling()
    assert reason.startswith("spills: 255 registers, ")
    assert "LDL + " in reason
    only = rank(kernel, "sm_90", configs=[CutileTiling()], cache_dir=cache_dir)
    assert only.kept == ()
    assert only.best == only.least_bad == CutileTiling()


def test_nothing_compiles(cache_dir):
    found = rank(matmul([Tiles(tn=3)]), "sm_90", cache_dir=cache_dir)
    assert found.best is None


@given(st.lists(st.integers(), unique=True, max_size=40), st.integers(1, 50))
def test_spread_keeps_order_and_the_first(configs, limit):
    taken = spread(configs, limit)
    assert len(taken) == min(limit, len(configs))
    assert taken == [c for c in configs if c in set(taken)]
    assert taken[:1] == configs[:1]
    assert spread(configs, None) == configs


def test_a_limit_below_one_is_refused():
    with pytest.raises(TilingError, match="limit=0"):
        spread([1, 2], 0)


@given(st.integers(1, 10_000))
def test_fill_is_the_busy_share(blocks):
    device = devices.load("nvidia-h200-sxm")
    load = [blocks // 132 + (i < blocks % 132) for i in range(132)]
    assert fill(blocks, device) == pytest.approx(sum(load) / (132 * max(load)))
    assert fill(blocks, None) == 1.0


def test_fill_without_a_known_sm_count():
    class Unknown:
        @property
        def sm_count(self):
            raise DeviceFigureError("sm_count is UNKNOWN")

    assert fill(7, Unknown()) == 1.0


def facts(**values):
    return CutileFacts(kernel="k", arch="sm_90", warps_per_block=4, instructions=10, **values)


def held(**values):
    given = {"blocks_per_sm": 1, "warps": 32, "fraction": 0.5, "limiter": "registers"}
    return Occupancy(**(given | values), device="d")


H200 = devices.load("nvidia-h200-sxm")
ONE = Launch(132, 132 << 20)


def test_density():
    busy = facts(mma_ops=1, mma_tile_flops=1000, mma_instructions={"HGMMA": 5})
    assert density(busy, held(), ONE, H200) == 1000 / (4 * 5)
    assert density(facts(), held(), ONE, H200) == 0.5
    assert density(facts(), None, ONE, None) == 1.0


def test_what_only_moves_bytes_is_as_dense_as_what_it_has_under_way():
    """Blocks with deep rings, not many warps that wait for one tile each."""
    room = H200.sm_limits().shared_memory_per_sm
    deep = facts(tma_loads=4, shared_bytes=39_320), held(blocks_per_sm=4, fraction=0.5)
    flat = facts(tma_loads=4, shared_bytes=6_424), held(blocks_per_sm=8, fraction=1.0)
    launch = Launch(512, 512 << 20)
    assert density(*deep, launch, H200) == pytest.approx(39_320 / room)
    assert density(*flat, launch, H200) == pytest.approx(6_424 / room)
    short = Launch(4096, 4096 << 12)  # A block moves 4 KB in all, so the ring stays empty.
    assert density(*deep, short, H200) == pytest.approx(4096 / room)
    assert density(*flat, short, H200) == pytest.approx(4096 / room)


def test_reasons():
    too_large = held(blocks_per_sm=0, warps=0, fraction=0, limiter="block too large")
    assert reason_to_prune(facts(), held()) is None
    assert reason_to_prune(facts(), None) is None
    assert reason_to_prune(facts(), too_large).startswith("does not fit an SM of d: ")
    both = reason_to_prune(facts(spill_loads=1, mma_path="HMMA"), held())
    assert both.startswith("spills: ")
    assert both.endswith("; matrix multiplications fall back to HMMA, where sm_90 has HGMMA "
                         "(warpgroup)")  # fmt: skip


def test_an_arch_without_a_device():
    assert ranking._default_device("sm_87") is None
