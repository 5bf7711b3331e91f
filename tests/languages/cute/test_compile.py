import json

import pytest

from mla_var3.errors import UnknownNameError
from mla_var3.languages.cute import compile, emulation
from mla_var3.languages.cute.compile import waits_often
from mla_var3.static import elf
from mla_var3.static.occupancy import of_facts
from tests.languages.cute.conftest import needs_dsl

pytestmark = needs_dsl


@pytest.fixture(scope="module")
def kernels():
    from tests.languages.cute import kernels_for_tests

    return kernels_for_tests


@pytest.fixture
def compile_(cute_cache):
    from mla_var3.languages.cute.compile import compile_host

    def compiled(host, arguments, arch="sm_90", **options):
        return compile_host(host, arguments, arch, cache_dir=cute_cache, **options)

    return compiled


def test_a_gemm_with_a_ring_of_tma_loads(compiled_gemm):
    (facts,) = compiled_gemm.facts
    assert (facts.language, facts.arch, facts.target) == ("cute-dsl", "sm_90", "sm_90a")
    assert facts.kernel == "kernel"
    assert facts.mma_instructions == {"HGMMA.64x64x16.F32.BF16": 4}
    assert (facts.wgmma, facts.wgmma_waits, facts.wgmma_serialized) == (4, 1, False)
    assert emulation.serialized(compiled_gemm.facts) == ()
    assert not waits_often(compiled_gemm.files["kernel.cubin"])
    assert (facts.mbarriers, facts.pipeline_stages) == (4, 4)
    assert [(g.barriers, g.arrivals) for g in facts.barrier_groups] == [(4, 1)]
    assert facts.transaction_bytes == ((64 + 64) * 64 * 2,)
    # A stage is a tile of a and one of b; the barriers and the alignment of the tiles precede them.
    assert facts.shared_bytes == facts.dynamic_shared_bytes == 1024 + 4 * (64 + 64) * 64 * 2
    assert facts.threads_per_block == 128
    assert facts.tma_loads > 0
    assert facts.tma_stores == 0
    assert not facts.spills
    assert (facts.tcgen05_mma, facts.warp_mma) == (0, 0)
    assert of_facts(facts).limiter == "shared memory"


def test_sass_and_ptx_lead_to_the_python_line(compiled_gemm, kernels):
    (facts,) = compiled_gemm.facts
    with open(kernels.__file__) as file:
        source = file.read().splitlines()
    gemm = 1 + next(i for i, text in enumerate(source) if "cute.gemm(mma, sums" in text)
    line = next(row for row in facts.lines if row.mma)
    assert (line.file, line.line) == ("tests/languages/cute/kernels_for_tests.py", gemm)
    lines = json.loads(compiled_gemm.files["lines.json"])[line.file][str(gemm)]
    ptx = compiled_gemm.files["kernel.ptx"].decode().splitlines()
    sass = compiled_gemm.files["kernel.sass"].decode().splitlines()
    assert any("wgmma.mma_async" in ptx[number - 1] for number in lines["ptx"])
    assert sum("HGMMA" in sass[number - 1] for number in lines["sass"]) == line.mma


def test_what_is_counted_in_the_code_is_what_the_disassembler_prints(compile_, kernels):
    for host in (kernels.Serialized(64, 4), kernels.Gemm(64, 4)):
        files = compile_(host, kernels.gemm_arguments()).files
        listing = files["kernel.sass"].decode()
        printed = listing.count("WARPGROUP.DEPBAR"), listing.count("HGMMA")
        assert min(printed) > 0
        assert elf.wgmma_counts(files["kernel.cubin"]) == printed


@pytest.mark.parametrize("counted", [(0, 0), (0, 8), (8, 0)])
def test_code_in_which_nothing_is_counted_is_disassembled(compile_, kernels, monkeypatch, counted):
    cubin = compile_(kernels.Serialized(64, 4), kernels.gemm_arguments()).files["kernel.cubin"]
    monkeypatch.setattr(elf, "wgmma_counts", lambda _: counted)
    assert waits_often.__wrapped__(cubin)


def test_serialized_wgmma_is_told_with_its_line(compile_, kernels, monkeypatch):
    unread = compile_(kernels.Serialized(64, 4), kernels.gemm_arguments(), facts=False)
    assert waits_often(unread.files["kernel.cubin"])
    with monkeypatch.context() as patch:
        patch.setattr(compile, "_attempt", None)  # What is compiled already is only read.
        result = compile_(kernels.Serialized(64, 4), kernels.gemm_arguments())
    (facts,) = result.facts
    assert facts.wgmma_serialized
    assert facts.waits_per_wgmma >= 1
    assert any("kernels_for_tests.py:" in text for text in facts.warnings)
    (found,) = emulation.serialized(result.facts)  # And no check of it is passed.
    assert (found.kind, found.severity) == ("serialized wgmma", "error")
    assert found.file.endswith("kernels_for_tests.py")
    assert "each before the next; ptxas: " in found.message


def test_flags_of_a_command_are_not_taken_for_the_compiler_s(compile_, kernels, monkeypatch):
    monkeypatch.setattr("sys.argv", ["profile", "--h=16"])
    result = compile_(kernels.Twice(64), kernels.scale_arguments())
    assert result.error is None
    assert [facts.kernel for facts in result.facts] == ["kernel", "other"]


def test_a_plain_kernel_compiles_for_every_arch(cute_cache, kernels):
    from mla_var3.languages.cute.compile import HostJob, compile_hosts

    archs = ("sm_80", "sm_120")
    told = []
    found = compile_hosts(
        [HostJob(kernels.Scale(128), kernels.scale_arguments(), arch) for arch in archs],
        cache_dir=cute_cache,
        progress=lambda job, result: told.append(job.arch),
    )
    assert [result.facts[0].target for result in found] == ["sm_80", "sm_120a"]
    assert {result.error for result in found} == {None}
    assert sorted(told) == sorted(archs)


def test_an_arch_that_does_not_fit_is_refused_before_anything_runs(compile_, kernels, monkeypatch):
    from mla_var3 import forked

    def run(work, **_options):
        assert not work
        return iter(())

    monkeypatch.setattr(forked, "run", run)
    result = compile_(kernels.Gemm(64, 4), kernels.gemm_arguments(), "sm_120")
    assert "wgmma" in result.error
    assert "not sm_120" in result.error
    assert result.files == {}


def test_an_unknown_arch_is_no_result(compile_, kernels):
    with pytest.raises(UnknownNameError, match="sm_42"):
        compile_(kernels.Scale(128), kernels.scale_arguments(), "sm_42")


def test_what_the_compiler_refuses_is_one_sentence_with_its_line(compile_, kernels):
    result = compile_(kernels.Refused(128), kernels.scale_arguments())
    assert "\n" not in result.error
    assert "\x1b" not in result.error
    assert result.error.startswith("tests/languages/cute/kernels_for_tests.py:")
    assert "found" in result.error


@pytest.fixture
def started(monkeypatch):
    """How many compiles were started."""
    from mla_var3 import forked

    seen = []
    run = forked.run
    monkeypatch.setattr(forked, "run", lambda work, **how: (seen.extend(work), run(work, **how))[1])
    return seen


def test_what_the_compiler_refuses_is_kept(compile_, kernels, started):
    first = compile_(kernels.Refused(64), kernels.scale_arguments())
    assert compile_(kernels.Refused(64), kernels.scale_arguments()).facts == first.facts
    assert first.error
    assert len(started) == 1


def test_what_a_lack_of_memory_refuses_is_tried_again(compile_, kernels, started):
    first = compile_(kernels.Starves(128), kernels.scale_arguments())
    assert "\n" not in first.error
    assert "MemoryError" in first.error
    assert compile_(kernels.Starves(128), kernels.scale_arguments()).error == first.error
    assert len(started) == 2


def test_a_verdict_is_told_from_a_shortage():
    from cutlass.base_dsl.common import DSLRuntimeError, DSLUserCodeRuntimeError
    from cutlass.base_dsl.compiler import CompilerDiagnosticError

    from mla_var3.languages.cute.toolchain import is_verdict

    assert is_verdict(CompilerDiagnosticError("error: operand has another type"))
    assert not is_verdict(CompilerDiagnosticError("ptxas log: fatal: Memory allocation failed"))
    assert not is_verdict(CompilerDiagnosticError("NVVM_ERROR: out of memory"))
    assert not is_verdict(DSLRuntimeError("failed to build"))
    assert not is_verdict(MemoryError())
    assert not is_verdict(ValueError("no"))
    wrapped = DSLUserCodeRuntimeError("it raised", cause=OSError(28, "No space left on device"))
    assert not is_verdict(wrapped)
    assert is_verdict(DSLUserCodeRuntimeError("it raised", cause=ValueError("of the kernel")))


def test_a_compiler_that_dies_or_hangs_is_one_sentence_and_is_not_kept(compile_, kernels):
    arguments = kernels.scale_arguments()
    died = compile_(kernels.Crashes(128), arguments)
    assert died.error == "the process ended by code 3"
    hung = compile_(kernels.Endless(128), arguments, timeout=1.0)
    assert hung.error == "took longer than 1 s"


def test_the_second_time_nothing_is_compiled(compile_, kernels, monkeypatch, compiled_gemm):
    from mla_var3 import forked

    monkeypatch.setattr(forked, "run", lambda work, **_: iter(()) if not work else 1 / 0)
    again = compile_(kernels.Gemm(64, 4), kernels.gemm_arguments())
    assert again.facts == compiled_gemm.facts
    assert again.files["kernel.cubin"] == compiled_gemm.files["kernel.cubin"]
    with pytest.raises(ZeroDivisionError):
        compile_(kernels.Gemm(64, 3), kernels.gemm_arguments())


def test_every_launch_has_facts_in_order(compile_, kernels):
    result = compile_(kernels.Twice(32), kernels.scale_arguments())
    assert [facts.kernel for facts in result.facts] == ["kernel", "other"]
    assert [facts.threads_per_block for facts in result.facts] == [32, 64]
