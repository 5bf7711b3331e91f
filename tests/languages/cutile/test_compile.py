import dataclasses
import inspect
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from mla_var3 import devices
from mla_var3.errors import HyperMlaError, InterpreterError, ToolchainError, UnknownNameError
from mla_var3.languages.cutile import compile as compiling
from mla_var3.languages.cutile import toolchain
from mla_var3.languages.cutile.compile import TileJob, compile_kernel, compile_many, mma_work
from mla_var3.languages.cutile.facts import CutileFacts
from mla_var3.languages.stage_facts import write_artefacts
from mla_var3.static import tools
from mla_var3.static.occupancy import of_facts
from mla_var3.static.sass import mma_note
from tests.languages.cutile import kernels_for_tests as kernels

SOURCE = "tests/languages/cutile/kernels_for_tests.py"


def line_of(text):
    lines = inspect.getsource(kernels).splitlines()
    return next(i for i, line in enumerate(lines, 1) if text in line)


@pytest.fixture
def compiled(cache_dir):
    """Compile in the session's cache."""

    def run(kernel, args, arch, **options):
        return compile_kernel(kernel, args, arch, cache_dir=cache_dir, **options)

    return run


@pytest.mark.parametrize(
    ("arch", "warps", "registers", "spills", "path"),
    [
        ("sm_90", 8, 168, False, "HGMMA"),
        ("sm_100", 8, 168, False, "UTCHMMA"),
        pytest.param("sm_90", None, 255, True, "HGMMA", marks=pytest.mark.exhaustive),
        pytest.param("sm_120", 8, 168, True, "HMMA", marks=pytest.mark.exhaustive),
    ],
)
def test_latent_attention_as_measured_before(compiled, arch, warps, registers, spills, path):
    """Registers, spills and MMA path of a 64 x 512 fp32 accumulator, with and without the hint."""
    kernel = kernels.latent.replace_hints(num_worker_warps=warps) if warps else kernels.latent
    facts = compiled(kernel, kernels.latent_args(), arch)
    assert facts.registers == registers
    assert facts.spills == spills == (facts.stack_bytes > 0)
    assert facts.mma_path == path
    assert mma_note(facts.mma_path, arch) is None
    assert facts.mma_ops == 3
    assert facts.mma_tile_flops == 2 * 64 * 64 * (512 + 64 + 512)
    assert facts.hints == {"opt_level": 3} | ({"num_worker_warps": warps} if warps else {})
    assert facts.tensor_memory_columns == (512 if arch == "sm_100" else 0)
    if warps:
        assert facts.warps_per_block == warps + 4
    assert (facts.waits_per_wgmma is not None) == (arch == "sm_90")
    if arch == "sm_90":  # What spills is waited for product by product.
        assert (facts.waits_per_wgmma >= 1) == spills
    assert sum(line.spill_loads for line in facts.lines) == facts.spill_loads
    assert sum(facts.instruction_mix.values()) == facts.instructions


@pytest.mark.parametrize(
    ("arch", "path", "tma"),
    [
        pytest.param("sm_80", "HMMA", False, marks=pytest.mark.exhaustive),
        ("sm_90", "HGMMA", True),
        ("sm_100", "UTCHMMA", True),
        ("sm_120", "HMMA", True),
    ],
)
def test_matmul_takes_the_fast_path_and_names_its_lines(compiled, arch, path, tma):
    facts = compiled(kernels.matmul, kernels.matmul_args(), arch)
    assert facts.mma_path == path
    assert mma_note(facts.mma_path, arch) is None
    assert not facts.spills
    assert (facts.tma_loads > 0) == (facts.tma_stores > 0) == tma
    assert (facts.async_copies > 0) == (not tma)
    multiplied = [r for r in facts.remarks if r.category == "tensor-core"]
    assert [(r.file, r.line, r.kind, r.count) for r in multiplied] == [
        (SOURCE, line_of("# multiplied"), "passed", 1)
    ]
    assert sum(x.mma for x in facts.lines) == sum(facts.mma_instructions.values()) > 0
    assert {x.file for x in facts.lines} <= {SOURCE, "cuda/tile/_stub.py"}
    held = of_facts(facts)
    assert held.device == devices.default_for_arch(arch).key
    assert held.blocks_per_sm >= 1


def test_fp32_multiplication_falls_back_to_fma_and_says_so(compiled):
    args = kernels.matmul_args(32, 32, 32, torch.float32)
    facts = compiled(kernels.matmul, args, "sm_90")
    assert facts.mma_path == "FMA"
    assert mma_note(facts.mma_path, "sm_90") == (
        "matrix multiplications fall back to FMA, where sm_90 has HGMMA (warpgroup)"
    )
    assert [r.kind for r in facts.remarks if r.category == "tensor-core"] == ["failed"]


def test_thin_tiles_leave_the_warpgroup_path(compiled):
    facts = compiled(kernels.matmul, kernels.matmul_args(16), "sm_90")
    assert facts.mma_path == "HMMA"
    assert "fall back to HMMA" in mma_note(facts.mma_path, "sm_90")


def test_a_kernel_without_multiplication(compiled):
    facts = compiled(kernels.copy, kernels.copy_args(), "sm_90")
    assert (facts.mma_path, facts.mma_ops) == ("none", 0)
    assert mma_note(facts.mma_path, "sm_90") is None
    assert {r.line for r in facts.remarks} == {line_of("# copied")}


def test_shared_memory_and_occupancy_as_the_driver_states_them(compiled):
    """cuFuncGetAttribute and the driver's occupancy on one H200, 2026-11-21."""
    kernel = kernels.matmul.replace_hints(occupancy=2)
    facts = compiled(kernel, kernels.matmul_args(), "sm_90")
    assert (facts.registers, facts.threads_per_block, facts.shared_bytes) == (128, 256, 114848)
    assert of_facts(facts).blocks_per_sm == 2


def test_clusters_are_read_from_the_cubin(compiled):
    kernel = kernels.matmul.replace_hints(num_ctas=2)
    facts = compiled(kernel, kernels.matmul_args(128, 128, 64), "sm_100")
    assert facts.blocks_per_cluster == 2
    assert facts.hints["num_ctas"] == 2


def test_facts_hold_no_absolute_path_and_no_time(compiled):
    text = compiled(kernels.matmul, kernels.matmul_args(), "sm_90").model_dump_json()
    assert str(Path(kernels.__file__).parent) not in text
    assert "/tmp" not in text
    assert CutileFacts.model_validate_json(text).model_dump_json() == text


def test_an_arch_without_a_device_has_no_occupancy(compiled):
    unknown = set(toolchain.known_archs()) - {d.default_for for d in devices.all_devices()}
    facts = compiled(kernels.copy, kernels.copy_args(), sorted(unknown)[0])
    assert facts.ok
    assert of_facts(facts) is None


def test_occupancy_for_a_named_device(compiled):
    facts = compiled(kernels.copy, kernels.copy_args(), "sm_90")
    named = of_facts(facts, devices.load("nvidia-h100-pcie"))
    assert named.device == "nvidia-h100-pcie"
    assert of_facts(CutileFacts(kernel="k", arch="sm_90", error="no")) is None


def test_front_end_errors_name_file_and_line(compiled):
    facts = compiled(kernels.refused, (kernels.meta(64),), "sm_90")
    assert facts.error.startswith(f"{SOURCE}:{line_of('# 3 is no power of two')}: ")
    assert "power of two" in facts.error
    assert "\n" not in facts.error


def test_tileiras_errors_are_one_sentence_and_cached(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        said = f'loc("{kernels.__file__}":7:4): error: failed\n to legalize'
        replace_tileiras(patch, f"import sys; sys.exit({said!r})")
        facts = compile_kernel(kernels.copy, kernels.copy_args(), "sm_90", cache_dir=tmp_path)
    assert facts.error == f"tileiras refuses the kernel: {SOURCE}:7: error: failed to legalize"
    assert facts.model_dump(mode="json").keys() == {
        "language", "kernel", "arch", "hints", "toolchain", "error",
    }  # fmt: skip
    (key,) = (place.name for place in (tmp_path / "static").glob("*/*"))
    cached = compiling.Cache(tmp_path).get(key)
    assert json.loads(cached[compiling.FACTS]) == facts.model_dump(mode="json")


def test_hints_that_the_front_end_refuses(compiled):
    facts = compiled(kernels.copy.replace_hints(num_worker_warps=16), kernels.copy_args(), "sm_90")
    assert facts.error.startswith("num_worker_warps=16 requires tileiras 13.5 or later")


def forbid_compiling(monkeypatch):
    real = tools.Runner.run

    def run(self, tool, args, **options):
        assert tool.name != "tileiras"
        return real(self, tool, args, **options)

    monkeypatch.setattr(tools.Runner, "run", run)


def test_the_second_compile_comes_from_the_cache(compiled, monkeypatch):
    first = compiled(kernels.copy, kernels.copy_args(), "sm_90")
    forbid_compiling(monkeypatch)
    assert compiled(kernels.copy, kernels.copy_args(), "sm_90") == first


@pytest.mark.slow
def test_another_hint_arch_or_constant_is_another_compile(cache_dir, compiled):
    base = compiled(kernels.copy, kernels.copy_args(), "sm_90")
    before = len(list((cache_dir / "static").glob("*/*")))
    low = compiled(kernels.copy.replace_hints(opt_level=1), kernels.copy_args(), "sm_90")
    wide = compiled(kernels.copy, (*kernels.copy_args()[:2], 1024), "sm_90")
    assert len(list((cache_dir / "static").glob("*/*"))) == before + 2
    assert low.hints == {"opt_level": 1}
    assert {base.model_dump_json(), low.model_dump_json(), wide.model_dump_json()}


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"{}", b"not JSON", b'{"kernel": 3}'])
def test_cached_facts_that_do_not_fit_are_compiled_again(tmp_path, content):
    """The entry is sound by its digests, but its facts are another version's."""
    args = (kernels.copy, kernels.copy_args(), "sm_90")
    first = compile_kernel(*args, cache_dir=tmp_path)
    cache = compiling.Cache(tmp_path)
    (key,) = (place.name for place in (tmp_path / "static").glob("*/*"))
    files = cache.get(key)
    cache.discard(key)
    cache.put(key, files | {compiling.FACTS: content})
    assert compile_kernel(*args, cache_dir=tmp_path) == first
    assert cache.get(key) == files


def test_jobs_side_by_side_keep_their_order_and_equal_ones_compile_once(cache_dir):
    jobs = [
        TileJob(kernels.copy, kernels.copy_args(), "sm_120"),
        TileJob(kernels.matmul, kernels.matmul_args(), "sm_90"),
        TileJob(kernels.copy, kernels.copy_args(), "sm_120"),
        TileJob(kernels.refused, (kernels.meta(64),), "sm_90"),
    ]
    told = []
    found = compile_many(
        jobs, workers=2, cache_dir=cache_dir, progress=lambda job, facts: told.append((job, facts))
    )
    assert [f.facts.kernel for f in found] == ["copy", "matmul", "copy", "refused"]
    assert [f.facts.ok for f in found] == [True, True, True, False]
    assert found[0].files == found[2].files
    assert len(told) == len(jobs)
    assert {id(job) for job, _ in told} == {id(job) for job in jobs}
    assert compile_many([]) == []


def test_artefacts(cache_dir, tmp_path):
    (found,) = compile_many(
        [TileJob(kernels.copy, kernels.copy_args(), "sm_90")], cache_dir=cache_dir
    )
    paths = write_artefacts(found.files, tmp_path / "compiled")
    assert {p.name for p in paths} == {
        "kernel.tileirbc", "kernel.tileir", "kernel.cubin", "kernel.sass", "remarks.yaml",
        "facts.json",
    }  # fmt: skip
    assert sorted(paths) == sorted((tmp_path / "compiled").iterdir())
    assert (tmp_path / "compiled/kernel.cubin").read_bytes()[:4] == b"\x7fELF"
    assert "entry @copy" in (tmp_path / "compiled/kernel.tileir").read_text()
    facts = json.loads((tmp_path / "compiled/facts.json").read_text())
    assert facts["registers"] == found.facts.registers
    (tmp_path / "file").write_text("")
    with pytest.raises(HyperMlaError, match="cannot be written"):
        write_artefacts(found.files, tmp_path / "file")


def test_bad_input_is_refused_before_anything_is_compiled(cache_dir, compiled):
    with pytest.raises(UnknownNameError, match="unknown arch 'sm_42'"):
        compiled(kernels.copy, kernels.copy_args(), "sm_42")
    with pytest.raises(InterpreterError, match="takes 3 arguments"):
        compiled(kernels.copy, (), "sm_90")
    with pytest.raises(InterpreterError, match="not a cuTile kernel"):
        compiled(print, (), "sm_90")


def replace_tileiras(monkeypatch, script="import time; time.sleep(60)"):
    """Let another script stand for the compiler; returns the processes as they are started."""
    # What the real tool says of itself must be known before it is replaced.
    for ask in (toolchain.versions, toolchain.known_archs, toolchain.bytecode_version):
        ask()
    real = toolchain.find
    sleeper = tools.Tool("tileiras", Path(sys.executable), "1")
    monkeypatch.setattr(toolchain, "find", lambda n: sleeper if n == "tileiras" else real(n))
    popen, started = tools.subprocess.Popen, []

    def slow(command, **options):
        if command[0] != sys.executable:
            return popen(command, **options)
        started.append(popen([sys.executable, "-c", script], **options))
        return started[-1]

    monkeypatch.setattr(tools.subprocess, "Popen", slow)
    return started


def test_a_slow_compile_ends_and_is_not_cached(tmp_path, monkeypatch):
    replace_tileiras(monkeypatch)
    facts = compile_kernel(
        kernels.copy, kernels.copy_args(), "sm_90", cache_dir=tmp_path, timeout=0.2
    )
    assert facts.error == "tileiras took longer than 0.2 s; smaller tiles compile faster"
    assert list((tmp_path / "static").iterdir()) == []


def test_a_compiler_ended_by_a_signal_is_not_cached(tmp_path, monkeypatch):
    replace_tileiras(monkeypatch, "import os; os.kill(os.getpid(), 9)")
    facts = compile_kernel(kernels.copy, kernels.copy_args(), "sm_90", cache_dir=tmp_path)
    assert facts.error.startswith("tileiras was ended by signal 9 ")
    assert list((tmp_path / "static").iterdir()) == []


def test_a_full_disk_says_nothing_of_the_kernel_and_is_not_cached(tmp_path, monkeypatch):
    said = "LLVM ERROR: IO failure on output stream: No space left on device"
    replace_tileiras(monkeypatch, f"import sys; sys.exit({said!r})")
    with pytest.raises(ToolchainError, match=r"tileiras could not write \(No space left on device"):
        compile_kernel(kernels.copy, kernels.copy_args(), "sm_90", cache_dir=tmp_path)
    assert list((tmp_path / "static").iterdir()) == []


def test_a_progress_that_cannot_be_told_ends_the_compile(cache_dir):
    def progress(*_):
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        compile_many(
            [TileJob(kernels.copy, kernels.copy_args(), "sm_90")],
            cache_dir=cache_dir,
            progress=progress,
        )


def test_an_interrupt_ends_the_compilers_and_leaves_nothing(tmp_path, monkeypatch):
    started = replace_tileiras(monkeypatch)
    jobs = [
        TileJob(kernels.copy, (*kernels.copy_args()[:2], tile), "sm_90")
        for tile in (64, 128, 256, 512)
    ]

    def interrupt_once_both_run():
        while len(started) < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt_once_both_run).start()
    with pytest.raises(KeyboardInterrupt):
        compile_many(jobs, workers=2, cache_dir=tmp_path)
    assert [process.returncode for process in started] == [-signal.SIGKILL] * 2
    assert list((tmp_path / "static").iterdir()) == []


def failing_tool(monkeypatch, tool):
    real = tools.Runner.run

    def run(self, asked, args, **options):
        if asked.name == tool:
            return tools.Completed(1, "", "broken\npipe")
        return real(self, asked, args, **options)

    monkeypatch.setattr(tools.Runner, "run", run)


def test_a_disassembler_that_fails_is_a_toolchain_error(tmp_path, monkeypatch):
    toolchain.versions()
    failing_tool(monkeypatch, "nvdisasm")
    with pytest.raises(ToolchainError, match="nvdisasm failed: broken pipe"):
        compile_kernel(kernels.copy, kernels.copy_args(), "sm_90", cache_dir=tmp_path)
    assert list((tmp_path / "static").iterdir()) == []


@pytest.mark.parametrize(
    ("stderr", "sentence"),
    [
        ("error: no room\n", "tileiras refuses the kernel: error: no room"),
        ("", "tileiras refuses the kernel: exit status 1"),
        (
            f'loc("{kernels.__file__}":12:4): error: bad',
            f"tileiras refuses the kernel: {SOURCE}:12: error: bad",
        ),
        (
            f'loc(fused<di>["{kernels.__file__}":12:4]): error: bad',
            f"tileiras refuses the kernel: {SOURCE}:12: error: bad",
        ),
        ("/x/.work-ab12/kernel.cubin: full", "tileiras refuses the kernel: kernel.cubin: full"),
    ],
)
def test_refusals_name_project_paths(stderr, sentence):
    assert compiling._refusal(tools.Completed(1, "", stderr)) == sentence


def test_mma_work_reads_shapes():
    text = (
        "  %6 = mmaf %a, %b, %c : tile<64x512xbf16>, tile<512x32xbf16>, tile<64x32xf32>\n"
        "  %7 = mmai %a, %b, %c : tile<2x8x16xi8>, tile<2x16x4xi8>, tile<2x8x4xi32>\n"
        "  %8 = addf %a, %b : tile<64x32xf32>\n"
    )
    assert mma_work(text) == (2, 2 * 64 * 512 * 32 + 2 * 2 * 8 * 16 * 4)
    with pytest.raises(ToolchainError, match="printed a multiplication as"):
        mma_work("%6 = mmaf %a, %b, %c : tile<f32>")


def test_jobs_are_values():
    job = TileJob(kernels.copy, (1,), "sm_90")
    assert dataclasses.replace(job, arch="sm_100").arch == "sm_100"
