from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from mla_var3.errors import TilingError
from mla_var3.languages.cutile import kernel as module
from mla_var3.runtime.ct_kernel import CtKernel
from mla_var3.workloads import Cost
from tests.runtime.toys import ToyTiling, kernel, scaled


def test_runs_in_place_and_returns_its_outputs():
    x = torch.arange(40.0)
    stage = kernel("double", x)
    assert stage()["y"] is stage.output_tensors["y"]
    assert torch.equal(stage.output_tensors["y"], 2 * x)


def test_grid_and_arguments_follow_the_tiling():
    stage = kernel("double", torch.arange(40.0))
    assert stage.grid() == (3,)
    stage.tiling = ToyTiling(tile=8)
    assert stage.grid() == (5,)
    assert stage.args()[-1] == 8
    assert stage.cost == Cost(40, 320)
    assert (stage.flops, stage.bytes) == (40, 320)


def test_hints_make_one_kernel_a_tiling():
    stage = kernel("double", torch.arange(4.0))
    assert stage.kernel is scaled
    stage.tiling = ToyTiling(num_worker_warps=8, occupancy=2)
    hinted = stage.kernel
    assert hinted is not scaled
    stage.tiling = ToyTiling(occupancy=2, num_worker_warps=8, tile=32)
    assert stage.kernel is hinted


def test_the_name_is_the_functions_unless_given():
    stage = kernel("double", torch.arange(4.0))
    assert (stage.name, stage.function_name) == ("double", "scaled")
    bare = CtKernel(
        scaled, lambda _: (1,), lambda _: (), {}, {"y": torch.empty(1)}, ToyTiling(), [],
        lambda _: Cost(0, 0),
    )  # fmt: skip
    assert bare.name == "scaled"
    assert bare.stages() == [("scaled", bare)]


@pytest.mark.parametrize(
    ("grid", "axis", "extent", "limit"),
    [((0,), 0, 0, 2**31 - 1), ((1, 65536), 1, 65536, 65535), ((1, 1, -2), 2, -2, 65535)],
)
def test_a_grid_that_cuda_refuses_is_a_tiling_error(grid, axis, extent, limit):
    stage = kernel("double", torch.arange(4.0))
    stage.grid_fn = lambda _: grid
    with pytest.raises(
        TilingError, match=f"{extent} blocks on axis {axis}, allowed are 1 to {limit}"
    ):
        stage.grid()


def test_tensors_without_memory_cannot_run():
    stage = kernel("double", torch.empty(4, device="meta"))
    with pytest.raises(TilingError, match="double: its tensors are on meta, which cannot run"):
        stage()


def test_cuda_tensors_are_launched_on_the_current_stream(monkeypatch):
    launched = []
    monkeypatch.setattr(module.ct, "launch", lambda *args: launched.append(args))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: "stream")
    y = SimpleNamespace(device=torch.device("cuda"))
    stage = kernel("double", torch.arange(40.0), y)  # type: ignore[arg-type]
    assert stage() == {"y": y}
    assert launched == [("stream", (3,), scaled, stage.args())]


@pytest.mark.gpu
def test_on_a_gpu():
    x = torch.arange(40.0, device="cuda")
    assert torch.equal(kernel("double", x)()["y"], 2 * x)
