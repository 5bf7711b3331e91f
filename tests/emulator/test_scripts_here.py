"""The examples of synchronization in this very process, and what stays of them for a second one."""

import contextlib
import ctypes
import io
import json
from pathlib import Path

import pytest

pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")

import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import HardwareInfo

from mla_var3.emulator import STRICT, Options, emulate, host_engines
from mla_var3.emulator.dispatch import dispatches
from mla_var3.emulator.emulation import emulating
from mla_var3.emulator.script import run_script
from mla_var3.errors import EmulatorError
from mla_var3.paths import repo_root

EXAMPLES = repo_root() / "examples/cute_sync"
#: FLOPs, and bytes read and written in global memory, by the sizes of an example.
MOVED = {"ring": (6 * 128, 6 * 512, 512), "reverse": (0, 3 * 512, 3 * 512)}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch) -> None:
    """One folder for all: the second way of running finds what the first has left."""
    folder = tmp_path_factory.getbasetemp() / "compiled"
    monkeypatch.setenv("HYPERMLA_CACHE_DIR", str(folder))


@pytest.mark.parametrize("name", sorted(p.stem for p in EXAMPLES.glob("*.py")))
@pytest.mark.parametrize(
    "options", [Options(counting="full"), Options(model=STRICT, seed=1), Options(checks=False)],
    ids=["default", "strict", "unchecked"],
)  # fmt: skip
def test_an_example_is_right_and_clean(name: str, options: Options) -> None:
    run = run_script(EXAMPLES / f"{name}.py", [], options, "sm_90a")
    assert run.ended.error is None
    assert run.diagnostics == []
    assert len(run.launches) >= 1
    if name in MOVED and options.checks:
        assert (run.flops, run.bytes("global read"), run.bytes("global write")) == MOVED[name]


def test_other_ways_come_first_and_leave_the_same() -> None:
    others = [Options(seed=1), Options(model=STRICT)]
    run = run_script(EXAMPLES / "reverse.py", [], Options(), "sm_90a", others)
    assert run.ended.error is None
    assert [launch.diagnostics for launch in run.launches] == [[]] * 3


@cute.kernel
def spread(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    rank = cute.arch.block_idx_in_cluster()
    if thread == 0:
        cute.printf("block %d", block)
    y[block * 32 + thread] = x[thread] + rank


@cute.jit
def host(x: cute.Tensor, y: cute.Tensor):
    spread(x, y).launch(grid=(4, 1, 1), block=(32, 1, 1), cluster=(2, 1, 1))


def expected(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, x + 1, x, x + 1])


def test_a_cluster_prints_and_knows_its_rank(capsys) -> None:
    x, y = torch.arange(32.0), torch.zeros(128)
    with emulate(Options(multiprocessors=6)) as run:
        assert HardwareInfo().get_max_active_clusters(2) == 3
        assert HardwareInfo().get_max_active_clusters(16) == 1
        assert HardwareInfo().get_device_multiprocessor_count() == 6
        assert run.counted
        run.own(y, unwritten=True)
        host(from_dlpack(x), from_dlpack(y))
        host(from_dlpack(y), from_dlpack(y))  # What one launch wrote, the next may read.
    assert torch.equal(y[:32], x)
    assert [launch.cluster for launch in run.launches] == [(2, 1, 1)] * 2
    assert [d.kind for d in run.launches[0].diagnostics] == []
    assert "uninitialized-read" not in {d.kind for d in run.diagnostics}
    assert sorted(capsys.readouterr().out.splitlines()[:4]) == [f"block {i}" for i in range(4)]
    assert run.flops == run.launches[0].counts.total_flops + run.launches[1].counts.total_flops


def test_host_code_that_was_compiled_before_is_called() -> None:
    x, y = torch.arange(32.0), torch.zeros(128)
    with emulate() as run:
        compiled = cute.compile(host, from_dlpack(x), from_dlpack(y))
    assert run.launches == []
    module, text = str(compiled.ir_module), compiled.engine.emulator_runtime.text
    cells = [ctypes.c_void_p(t.data_ptr()) for t in (x, y)]
    made = host_engines._hosted.cache_info().misses
    for more in (0, 100):  # Its engine is made once, and knows the emulation that is active.
        x += more
        with emulating() as again:
            for tensor in (x, y):
                again.own(tensor)
            with contextlib.redirect_stdout(io.StringIO()):
                host_engines.call(again, module, text, cells)
        assert torch.equal(y, expected(x))
        assert len(again.launches) == 1
    assert host_engines._hosted.cache_info().misses == made + 1
    (one,) = dispatches(module, text, cells)
    assert one.kernel == again.launches[0].kernel
    assert (one.grid, one.block, one.cluster) == ((4, 1, 1), (32, 1, 1), (2, 1, 1))
    with emulating() as wrong, pytest.raises(EmulatorError, match="has no host function"):
        host_engines.call(wrong, "module {}", text, cells)


def test_one_emulation_at_a_time() -> None:
    with emulate(), pytest.raises(EmulatorError, match="active already"), emulate():
        pass


def test_an_exported_function_is_loaded(tmp_path: Path) -> None:
    pytest.importorskip("tvm_ffi", reason="TVM-FFI is not installed")
    file = str(tmp_path / "kept.o")
    x, y = torch.arange(32.0), torch.zeros(128)
    with emulate() as run, contextlib.redirect_stdout(io.StringIO()):
        fake = [from_dlpack(t, enable_tvm_ffi=True) for t in (x, y)]
        compiled = cute.compile(host, *fake, options="--enable-tvm-ffi")
        compiled.export_to_c(object_file_path=file, function_name="func")
        from cutlass.cute.runtime import load_module  # The emulator's own, in here alone.

        module = load_module(file, enable_tvm_ffi=True)
        for function in (module["func"], module.func):
            y.zero_()
            function(x, y)
            assert torch.equal(y, expected(x))
        with pytest.raises(AttributeError, match="the file holds func, and not other"):
            module["other"]
        for damage in (b"\x7fELF", b"[]", json.dumps({"form": "another"}).encode()):
            Path(file).write_bytes(damage)
            with pytest.raises(EmulatorError, match=r"kept.o was compiled for a GPU"):
                load_module(file, enable_tvm_ffi=True)
    assert len(run.launches) == 2
    assert run.diagnostics == []
