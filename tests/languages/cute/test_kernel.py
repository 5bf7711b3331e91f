import dataclasses
import json
import subprocess
import sys
from dataclasses import dataclass

import pytest
import torch

from mla_var3.errors import NotExecutableError, PlanError, TilingError, UnknownNameError
from mla_var3.languages import CompileJob, find
from mla_var3.languages.cute.kernel import CuteKernel
from mla_var3.languages.cute.tiling import (
    CuteTiling,
    require_multiple,
    require_one_of,
    require_shared_memory,
)
from mla_var3.workloads import Cost
from tests.languages.cute.conftest import needs_dsl


@dataclass(frozen=True, kw_only=True)
class GemmTiling(CuteTiling):
    tile_n: int = 64
    stages: int = 4


def gemm(*, tiling=GemmTiling(), output=None):
    from tests.languages.cute import kernels_for_tests as kernels

    a, b, c = kernels.gemm_arguments()
    return CuteKernel(
        kernels.Gemm.kernel,
        lambda tiling: (kernels.Gemm(tiling.tile_n, tiling.stages), (a, b, c)),
        {"a": a.tensor, "b": b.tensor},
        {"c": c.tensor if output is None else output},
        tiling,
        [GemmTiling(stages=2), GemmTiling(stages=4)],
        lambda _tiling: Cost(2 * 256 * 128 * 512, 2 * 512 * (256 + 128) + 4 * 256 * 128),
        grid_fn=lambda tiling: (256 // 64, 128 // tiling.tile_n),
        _name="gemm",
    )


def test_the_language_is_light_to_import():
    code = (
        "import json, sys\n"
        "from mla_var3.languages import find\n"
        "language = find('cute-dsl')\n"
        "language.known_archs()\n"
        "print(json.dumps([n for n in ('torch', 'cutlass', 'cuda') if n in sys.modules]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_the_language_says_what_it_cannot():
    language = find("cute-dsl")
    with pytest.raises(UnknownNameError):
        language.cannot_compile("sm_42")


@needs_dsl
class TestCuteKernel:
    def test_names_grid_and_profiler_pattern(self):
        kernel = gemm()
        assert (kernel.name, kernel.function_name, kernel.grid()) == ("gemm", "kernel", (4, 2))
        launches = find("cute-dsl").launches(kernel)
        assert launches.match("kernel_cutlass_kernel_testsGemm_object_at__0")
        assert not launches.match("kernel_cutlass_other_testsGemm_object_at__0")

    def test_it_compiles_by_the_protocol(self, cute_cache, compiled_gemm):
        told = []
        (compiled,) = find("cute-dsl").compile_many(
            [CompileJob(gemm(), "sm_90")],
            cache_dir=cute_cache,
            progress=lambda job, facts: told.append((job.arch, facts.registers)),
        )
        assert compiled.facts.registers == compiled_gemm.facts[0].registers
        assert told == [("sm_90", compiled.facts.registers)]
        assert compiled.grid == (4, 2, 1)  # As its host code launches it, not by ``grid_fn``.
        assert {"kernel.ptx", "kernel.cubin", "kernel.sass", "facts.json"} <= set(compiled.files)

    def test_metrics_read_its_facts_and_no_others(self, compiled_gemm):
        metrics = {metric.name: metric for metric in find("cute-dsl").metrics}
        facts = compiled_gemm.facts[0]
        assert metrics["pipeline_stages"].read({}, facts) == 4
        assert metrics["waits_per_wgmma"].read({}, facts) == 0.25
        failed = facts.model_copy(update={"error": "no"})
        assert metrics["pipeline_stages"].read({}, failed) is None
        assert metrics["pipeline_stages"].read({}, None) is None

    def test_sources_that_do_not_fit_an_arch_are_refused_before_they_are_compiled(self):
        refuses = find("cute-dsl").refuses
        assert refuses(gemm(), "sm_90") is None
        assert "uses wgmma" in refuses(gemm(), "sm_100")

    def test_several_launches_are_no_single_kernel(self, cute_cache):
        from tests.languages.cute import kernels_for_tests as kernels

        kernel = gemm()
        kernel.launch_fn = lambda _tiling: (kernels.Twice(32), kernels.scale_arguments())
        with pytest.raises(PlanError, match="gemm: its host function launches 2 device kernels"):
            find("cute-dsl").compile_many([CompileJob(kernel, "sm_90")], cache_dir=cute_cache)

    def test_a_kernel_of_another_language_is_refused(self):
        other = gemm()
        other.__class__ = type("Other", (CuteKernel.__bases__[0],), {"language": "other"})
        from mla_var3.languages.cute.jobs import require_cute

        with pytest.raises(PlanError, match="gemm is not a CuTe kernel but other"):
            require_cute(other)

    def test_on_a_cpu_it_runs_from_its_ptx_and_says_what_it_did(self):
        from mla_var3.runtime.execution import recording

        kernel = gemm()
        a, b, c = (
            dataclasses.replace(x, tensor=torch.randn(x.tensor.shape).to(x.tensor.dtype))
            for x in kernel.launch_fn(kernel.tiling)[1]
        )
        host = kernel.launch_fn(kernel.tiling)[0]
        kernel.launch_fn = lambda _tiling: (host, (a, b, c))
        kernel._output_tensors = {"c": c.tensor.fill_(float("nan"))}
        with recording() as executions:
            out = kernel()["c"].float()
        expected = a.tensor.float() @ b.tensor.float().T
        assert (out - expected).norm() < 1e-2 * expected.norm()
        (done,) = executions
        assert done.mma_flops == 2 * out.numel() * a.tensor.shape[1]
        assert done.bank_conflicts is not None
        assert done.sectors > 0
        assert done.least_sectors > 0
        assert done.diagnostics == ()
        with recording(conflicts=False) as executions:
            kernel()
        (again,) = executions
        assert (again.bank_conflicts, again.sectors, again.least_sectors) == (None, None, None)
        assert (again.facts, again.mma_flops) == (done.facts, done.mma_flops)

    def test_a_serialized_kernel_passes_no_check(self):
        from mla_var3.runtime.execution import recording
        from tests.languages.cute import kernels_for_tests as kernels

        kernel, (a, b, c) = gemm(), kernels.gemm_arguments()
        host = kernels.Serialized(64, 4)
        a, b, c = (
            dataclasses.replace(x, tensor=torch.ones(x.tensor.shape).to(x.tensor.dtype))
            for x in (a, b, c)
        )
        kernel.launch_fn = lambda _tiling: (host, (a, b, c))
        kernel._output_tensors = {"c": c.tensor}
        with recording() as executions:
            kernel()
        (done,) = executions
        assert "serialized wgmma" in [d.kind for d in done.diagnostics if d.severity == "error"]

    def test_without_the_pinned_dsl_it_is_compiled_and_not_executed(self, monkeypatch):
        from mla_var3.languages.cute import emulation

        monkeypatch.setattr(emulation, "cannot_execute", lambda: "the CuTe DSL is not installed")
        with pytest.raises(NotExecutableError, match="gemm: the CuTe DSL is not installed"):
            gemm(output=torch.empty(256, 128))()

    def test_a_library_in_use_decides_which_tilings_there_are(self):
        class Bound:
            tiling = {"tile_n": 64, "stages": 2}  # noqa: RUF012
            runs = 0

            def bind(self, *values):
                assert [tuple(value.shape) for value in values] == [
                    (256, 512), (128, 512), (256, 128),
                ]  # fmt: skip

                def run():
                    self.runs += 1

                return run

        class Library:
            name = "gemm.so"
            kernels = (Bound(),)
            failures = (({"tile_n": 64, "stages": 9}, "too deep"),)

        kernel = gemm(tiling=GemmTiling(stages=2))
        kernel.use(Library())
        kernel.launch()
        kernel.launch()
        assert Library.kernels[0].runs == 2
        kernel.tiling = GemmTiling(stages=9)
        with pytest.raises(TilingError, match="was not exported: too deep"):
            kernel.launch()
        kernel.tiling = GemmTiling(stages=3)
        with pytest.raises(TilingError, match=r"gemm.so holds no such tiling: .*'stages': 3"):
            kernel.launch()

    @pytest.mark.gpu
    def test_it_runs_on_a_gpu(self):
        from tests.languages.cute import kernels_for_tests as kernels

        if torch.cuda.get_device_capability() != (9, 0):
            pytest.skip("wgmma needs sm_90, and this GPU is another")
        a, b = (torch.randn(n, 512, device="cuda").bfloat16() for n in (256, 128))
        c = torch.full((256, 128), float("nan"), device="cuda")
        kernel = gemm(output=c)
        kernel.launch_fn = lambda t: (kernels.Gemm(t.tile_n, t.stages), (a, b, c))
        torch.testing.assert_close(kernel()["c"], a.float() @ b.float().T, rtol=1e-3, atol=1e-2)


def test_tilings_are_checked_with_the_arithmetic_that_failed():
    require_multiple(64, tile_m=128)
    require_one_of((1, 2), cluster=2)
    require_shared_memory(100, ring=60, output=40)
    with pytest.raises(TilingError, match="tile_m=100 is not a positive multiple of 64"):
        require_multiple(64, tile_m=100)
    with pytest.raises(TilingError, match="cluster=3 is not one of 1, 2"):
        require_one_of((1, 2), cluster=3)
    with pytest.raises(TilingError, match=r"ring 80 \+ output 40 = 120 bytes .* exceed 100"):
        require_shared_memory(100, ring=80, output=40)
