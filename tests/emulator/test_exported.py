"""Packages that keep compiled functions on disk: the second run loads what the first wrote."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mla_var3.emulator import exported

pytest.importorskip("tvm_ffi", reason="TVM-FFI is not installed")
pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")

#: What packages do: a folder among temporary files, an object file, and whether it is there.
PACKAGE = """\
import tempfile
from pathlib import Path

import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack, load_module
from cutlass.utils import HardwareInfo

assert HardwareInfo().get_max_active_clusters(cluster_size=2) == 2


@cute.kernel
def double(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    y[thread] = x[thread] + x[thread]


@cute.jit
def host(x: cute.Tensor, y: cute.Tensor):
    double(x, y).launch(grid=(1, 1, 1), block=(64, 1, 1))


x, y = torch.arange(64.0, device="cuda"), torch.zeros(64, device="cuda")
kept = Path(tempfile.gettempdir()) / "NAME.o"
if kept.exists():
    print("loaded")
    function = load_module(str(kept), enable_tvm_ffi=True)["func"]
else:
    fake = [from_dlpack(t, enable_tvm_ffi=True) for t in (x, y)]
    function = cute.compile(host, *fake, options="--enable-tvm-ffi")
    function.export_to_c(object_file_path=str(kept), function_name="func")
function(x, y)
assert torch.equal(y, 2 * x)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    function(x, y)
x.add_(1)
assert not torch.equal(y, 2 * x)
graph.replay()
assert torch.equal(y, 2 * x)
"""


@pytest.mark.slow
def test_the_second_run_loads_what_the_first_wrote(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    script = tmp_path / "package.py"
    script.write_text(PACKAGE.replace("NAME", "double"))
    command = [sys.executable, "-m", "mla_var3.emulator", "run", "--jobs=1", str(script)]
    said = []
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("0 findings") == 2, done.stdout
        said.append("loaded" in done.stdout)
    assert said == [False, True]
    (tmp_path / "hypermla" / "emulated" / "double.o").write_bytes(b"\x7fELF\x02\x01")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "double.o was compiled for a GPU" in done.stderr


def test_temporary_files_are_kept_in_a_folder_that_is_made(tmp_path: Path, monkeypatch) -> None:
    """In a home without a cache there is none yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none" / "yet"))
    before = tempfile.gettempdir()
    for _ in range(2):
        with exported.temporary_folder():
            assert tempfile.gettempdir() == str(tmp_path / "none/yet/hypermla/emulated")
            with tempfile.NamedTemporaryFile() as file:
                assert Path(file.name).parent == tmp_path / "none/yet/hypermla/emulated"
        assert tempfile.gettempdir() == before
