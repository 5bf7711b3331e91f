import pytest
import torch

from mla_var3.errors import ToolchainError
from mla_var3.languages.base import CompileJob
from mla_var3.languages.cute.facts import CuteFacts
from mla_var3.languages.cutile.facts import CutileFacts
from mla_var3.languages.stage_facts import analyse, compile_jobs, summary
from mla_var3.runtime.composite import KernelPipeline
from mla_var3.runtime.ct_kernel import CtKernel, CutileTiling
from mla_var3.runtime.library_kernel import LibraryKernel
from mla_var3.workloads import Cost
from tests.languages.cutile import kernels_for_tests as kernels


def stage(kernel_fn, args, name):
    return CtKernel(
        kernel_fn,
        grid_fn=lambda _tiling: (1,),
        args_fn=lambda _tiling: args,
        input_tensors={},
        output_tensors={"out": args[-1] if kernel_fn is kernels.refused else args[1]},
        tiling=CutileTiling(),
        autotune_configs=[],
        algorithmic_flops_bytes_fn=lambda _tiling: Cost(0, 1),
        _name=name,
    )


@pytest.fixture
def pipeline():
    return KernelPipeline(
        _name="both",
        stages=[
            stage(kernels.copy, kernels.copy_args(), "first"),
            stage(kernels.matmul, kernels.matmul_args(), "second"),
        ],
    )


def test_every_stage_and_arch_in_the_order_asked(pipeline, cache_dir):
    told = []
    found = analyse(pipeline, ["sm_120", "sm_90"], cache_dir=cache_dir, progress=told.append)
    assert [(arch, list(facts)) for arch, facts in found.items()] == [
        ("sm_120", ["first", "second"]),
        ("sm_90", ["first", "second"]),
    ]
    assert found["sm_90"]["second"].mma_path == "HGMMA"
    assert found["sm_120"]["second"].mma_path == "HMMA"
    assert len(told) == 4
    assert any("copy sm_90: " in text and "block(s) per SM" in text for text in told)


def test_artefacts_of_one_arch_and_of_several(pipeline, cache_dir, tmp_path):
    analyse(pipeline, ["sm_90"], cache_dir=cache_dir, artefacts=tmp_path / "one")
    assert {p.parent.name for p in (tmp_path / "one").glob("*/kernel.cubin")} == {
        "first", "second",
    }  # fmt: skip
    analyse(pipeline, ["sm_90", "sm_120"], cache_dir=cache_dir, artefacts=tmp_path / "two")
    assert len(list((tmp_path / "two").glob("sm_*/*/kernel.cubin"))) == 4


def test_a_refused_stage_is_named(cache_dir):
    bad = stage(kernels.refused, (kernels.meta(64),), "broken")
    with pytest.raises(ToolchainError, match=r"broken does not compile for sm_90: .*power of two"):
        analyse(bad, ["sm_90"], cache_dir=cache_dir)
    found = analyse(bad, ["sm_90"], cache_dir=cache_dir, refused_ok=True)
    assert not found["sm_90"]["broken"].ok


def test_kernels_that_bring_their_code_compiled_cannot_be_compiled():
    x = torch.empty(1)
    peer = LibraryKernel(
        lambda: None, "f", input_tensors={}, output_tensors={"x": x}, cost=Cost(0, 0), on_cpu=True
    )
    with pytest.raises(ToolchainError, match="f: a library brings its kernels compiled"):
        compile_jobs([CompileJob(peer, "sm_90")])
    assert compile_jobs([]) == []


def test_summary_of_a_failure_and_without_occupancy():
    failed = CutileFacts(kernel="k", arch="sm_90", error="no")
    assert summary(failed) == "k sm_90: no"
    bare = CutileFacts(kernel="k", arch="sm_87", registers=3, threads_per_block=32)
    assert summary(bare).startswith("k sm_87: 3 registers, ")
    assert "per SM" not in summary(bare)
    waiting = CuteFacts(kernel="k", arch="sm_87", mma_path="HGMMA", wgmma_serialized=True)
    assert "MMA HGMMA, serialized wgmma" in summary(waiting)
    assert "serialized" not in summary(bare)
