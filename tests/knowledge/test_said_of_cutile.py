"""What pages say of cuTile and of plans and no record can hold: messages, counts, shares."""

from __future__ import annotations

import dataclasses

import cuda.tile as ct
import pytest
import torch

from mla_var3 import devices
from mla_var3.languages.cutile.compile import compile_kernel
from mla_var3.runtime import registry


@ct.kernel(num_worker_warps=16)
def sixteen_warps(x, out):
    ct.store(out, (0,), ct.load(x, (0,), (16,)))


def test_sixteen_worker_warps_need_a_newer_compiler() -> None:
    x, out = (torch.empty(16, device="meta") for _ in range(2))
    facts = compile_kernel(sixteen_warps, (x, out), "sm_90")
    assert "num_worker_warps=16 requires tileiras 13.5 or later" in (facts.error or "")


def test_a_kernel_with_other_hints_has_a_cache_of_its_own() -> None:
    said = " ".join((ct.kernel.replace_hints.__doc__ or "").split())
    assert "the returned object will have its own JIT cache" in said


#: Version of flash_attention to the bytes that it loads and its matrix FLOPs.
LOOPS = {"v0": (5636096, 335544320), "v1": (3342336, 188743680)}


@pytest.mark.parametrize("version", LOOPS)
def test_the_split_loop_loads_and_multiplies_less(version: str) -> None:
    problem = {"b": 1, "h": 2, "s": 512, "t": 512, "causal": True}
    plan = registry.find("flash_attention", version).plan_class()(**problem)
    [(_, kernel)] = plan.plan(*plan.prepare_inputs("cpu")).stages()
    kernel.tiling = dataclasses.replace(kernel.tiling, tile_m=64, tile_n=64)
    done = kernel.execute()
    assert (done.bytes_loaded, done.mma_flops) == LOOPS[version]


#: Blocks of 132 on the latent path of mla_var6_plus v1, by query tokens and n.
SHARES = {(2, 128): 131, (4, 320): 129, (8, 640): 125, (16, 1216): 117, (32, 1984): 103}
SHARES |= {(64, 3008): 72, (128, 3904): 19}


def test_blocks_on_the_latent_path() -> None:
    found = {}
    for s, n in SHARES:
        version = registry.find("mla_var6_plus", "v1")
        plan = version.plan_class()(b=32, h=128, t=4096, s=s, n=n)
        plan = plan.resolve(devices.load("nvidia-h200-sxm").machine(plan.dtype))
        attention = dict(plan.plan(*plan.prepare_inputs("meta")).stages())["attention"]
        named = dict(zip(attention.kernel_fn._annotated_function.pysig.parameters,
                         attention.args(), strict=True))  # fmt: skip
        found[s, n] = named["latent_blocks"]
    assert found == SHARES
