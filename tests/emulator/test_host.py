"""The CuTe DSL's own host functions on CPU tensors; needs the DSL, no GPU."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mla_var3.emulator import emulate
from mla_var3.emulator.commands import _divided
from mla_var3.emulator.host import _hardware
from mla_var3.emulator.options import Options
from mla_var3.emulator.script import _untimed
from mla_var3.errors import EmulatorError
from mla_var3.paths import repo_root

dsl = pytest.mark.skipif(
    importlib.util.find_spec("cutlass") is None,
    reason="the CuTe DSL is not installed (extra cute)",
)
SCRIPT = """\
import sys

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def double(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    y[thread] = x[thread] + x[thread]


@cute.jit
def host(x: cute.Tensor, y: cute.Tensor):
    double(x, y).launch(grid=(1, 1, 1), block=(int(sys.argv[1]), 1, 1))


a = torch.arange(64, dtype=torch.float32, device="cuda")
b = torch.zeros(64, device="cuda")
host(from_dlpack(a), from_dlpack(b))
assert torch.equal(b, 2 * a)
"""


def emulated(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(str(script), *arguments)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mla_var3.emulator", "run", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


OWN_FOLDER = SCRIPT.replace(
    "host(from_dlpack(a), from_dlpack(b))",
    """import tempfile
x, y = from_dlpack(a), from_dlpack(b)
with tempfile.TemporaryDirectory() as folder:
    compiled = cute.compile(host, x, y, options=f"--keep-ptx --dump-dir={folder}")
compiled(x, y)""",
)


@dsl
def test_what_is_dumped_may_go_elsewhere(tmp_path: Path) -> None:
    script = tmp_path / "elsewhere.py"
    script.write_text(OWN_FOLDER)
    done = emulated(script, "64")
    assert done.returncode == 0, done.stderr
    assert "256 bytes read, 256 written, 0 findings" in done.stdout


@dsl
def test_a_script_runs_unmodified(tmp_path: Path) -> None:
    script = tmp_path / "double.py"
    script.write_text(SCRIPT)
    done = emulated(script, "64")
    assert done.returncode == 0, done.stderr
    assert "256 bytes read, 256 written, 0 findings" in done.stdout


@pytest.mark.slow
@dsl
def test_a_picture_runs_the_schedules_that_are_asked_for(tmp_path: Path) -> None:
    script, picture = tmp_path / "double.py", tmp_path / "double.svg"
    script.write_text(
        SCRIPT.replace("    y[thread]", "    cute.arch.sync_threads()\n    y[thread]")
    )
    alone = run("--timeline", str(picture), str(script), "64")
    assert (alone.returncode, alone.stdout.count("0 findings")) == (0, 1), alone.stderr
    several = run("--timeline", str(picture), "--schedules=3", str(script), "64")
    assert (several.returncode, several.stdout.count("0 findings")) == (0, 3), several.stderr


@dsl
def test_its_mistake_is_reported_with_the_line(tmp_path: Path) -> None:
    script = tmp_path / "double.py"
    script.write_text(SCRIPT)
    done = emulated(script, "96")
    assert done.returncode == 1, done.stderr
    assert "out-of-bounds" in done.stdout
    assert "double.py:12" in done.stdout
    told = re.sub(r"0x[0-9a-f]+", "0x", done.stdout.replace(f"{tmp_path}/", ""))
    page = (repo_root() / "docs/messages/illegal-memory-access.md").read_text()
    sample = page.partition("```text\n")[2].partition("```")[0]
    assert re.sub(r"0x[0-9a-f]+", "0x", sample) in told


@dsl
def test_the_mask_of_the_page_mends_it(tmp_path: Path) -> None:
    page = (repo_root() / "docs/messages/illegal-memory-access.md").read_text()
    before, mask, after = page.partition("```diff\n")[2].splitlines()[:3]
    assert (before[0], mask[0], after[0]) == ("-", "+", "+")
    line, mask = before[1:], mask[1:]
    assert line == after[1:].strip()
    assert f"    {line}\n" in SCRIPT
    script = tmp_path / "masked.py"
    script.write_text(SCRIPT.replace(f"    {line}\n", f"    {mask}\n        {line}\n"))
    assert emulated(script, "96").returncode == 0


def test_a_missing_script_is_one_sentence(tmp_path: Path) -> None:
    done = emulated(tmp_path / "none.py")
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1


def test_flags_before_the_script_are_ours() -> None:
    ours, theirs = _divided(["--schedules", "3", "fmha.py", "--schedules", "9"])
    assert ours == ["--schedules", "3"]
    assert theirs == ["fmha.py", "--schedules", "9"]


IN_PLACE = SCRIPT.replace("y[thread] = x[thread] + x[thread]", "x[thread] = x[thread] + 1.0")


@dsl
def test_other_schedules_run_on_the_same_memory_and_a_failed_assertion_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mla_var3.emulator.options import STRICT
    from mla_var3.emulator.script import run_script

    script = tmp_path / "add.py"
    # 96 threads on 64 elements: the findings of both ways must survive the assertion.
    script.write_text(IN_PLACE.replace("torch.equal(b, 2 * a)", "a[63] == 64, float(a[63])"))
    others = [Options(seed=1), Options(model=STRICT)]
    done = run_script(script, ["64"], Options(), "sm_90a", others)
    assert done.ended.error is None, "each way must start from the same memory"
    assert [launch.diagnostics for launch in done.launches] == [[], [], []]

    script.write_text(IN_PLACE.replace("torch.equal(b, 2 * a)", "False"))
    done = run_script(script, ["96"], Options(), "sm_90a", others)
    assert isinstance(done.ended.error, AssertionError)
    assert {d.kind for d in done.diagnostics} == {"out-of-bounds"}
    assert {d.schedule for d in done.diagnostics} == {"lowest pc first", "seed 1"}
    assert {d.model for d in done.diagnostics} == {"default", "strict"}


@pytest.mark.parametrize("generated", [False, True])
@pytest.mark.parametrize(("launched", "runs"), [([], [1]), ([object()], [])])
def test_a_benchmark_runs_once_what_nothing_has_launched(launched, runs, generated):
    ran = []
    arguments = SimpleNamespace(args=(1,), kwargs={})
    given = {"kernel_arguments": arguments}
    if generated:  # The arguments are made by a function that it is handed.
        given = {"workspace_generator": lambda: arguments, "workspace_count": 3}
    emulation = SimpleNamespace(launches=launched)
    assert _untimed(emulation, ran.append, **given, iterations=9) == 1.0
    assert ran == runs


@pytest.mark.parametrize(
    ("asked", "size", "clusters"), [(4, 1, 4), (4, 2, 2), (4, 3, 1), (1, 2, 1)]
)
def test_the_device_has_what_the_dsl_asks_for(asked: int, size: int, clusters: int) -> None:
    """So many multiprocessors, at least one cluster, and the 50 MiB of L2 cache of an H100."""
    told = _hardware(SimpleNamespace(count_asked=lambda: asked))
    assert told["get_device_multiprocessor_count"](None) == asked
    assert told["get_max_active_clusters"](None, size) == clusters
    assert told["get_l2_cache_size_in_bytes"](None) == 50 * 1024**2
    assert told["__init__"](None) is None


TOGETHER = SCRIPT.replace("grid=(1, 1, 1), block=(int(sys.argv[1]), 1, 1)",
    "grid=(int(sys.argv[1]), 1, 1), block=(1024, 1, 1), cooperative=sys.argv[2] == 'yes'"
).replace("thread, _, _ = cute.arch.thread_idx()", "thread = cute.arch.block_idx()[0]").replace(
    "arange(64", "arange(265").replace("zeros(64", "zeros(int(sys.argv[1])").replace(
    "2 * a)", "2 * a[: int(sys.argv[1])])")  # fmt: skip


@dsl
@pytest.mark.parametrize(
    ("blocks", "together", "said"),
    [
        ("264", "yes", None),
        ("265", "no", None),
        ("265", "yes", "launched cooperatively with 265 blocks, and the GPU holds 264 at the same"),
    ],
)
def test_blocks_that_have_to_run_at_once_have_to_fit(
    tmp_path: Path, blocks: str, together: str, said: str | None
) -> None:
    """Two blocks of 1,024 threads on each of 132 multiprocessors."""
    from mla_var3.emulator.script import run_script

    script = tmp_path / "together.py"
    script.write_text(TOGETHER)
    if said is not None:
        with pytest.raises(EmulatorError, match=said):
            run_script(script, [blocks, together], Options(checks=False), "sm_90a")
        return
    assert run_script(script, [blocks, together], Options(), "sm_90a").ended.error is None


@dsl
@pytest.mark.parametrize("arch", [None, "sm_100a"])
def test_variables_of_the_dsl_are_set_inside_of_the_block_alone(
    arch: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTE_DSL_ARCH", "sm_90a")
    monkeypatch.delenv("CUTE_DSL_KEEP", raising=False)
    with emulate(arch=arch) if arch else emulate():
        told = {name: os.environ[f"CUTE_DSL_{name}"] for name in ("ARCH", "KEEP", "LINEINFO")}
        assert told == {"ARCH": arch or "sm_90a", "KEEP": "ptx", "LINEINFO": "1"}
        assert Path(os.environ["CUTE_DSL_DUMP_DIR"]).is_dir()
    assert os.environ["CUTE_DSL_ARCH"] == "sm_90a"
    assert "CUTE_DSL_KEEP" not in os.environ
