"""Programs and suites written for a GPU, run unchanged on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import cuda.tile as ct
import pytest
import torch
from cuda.tile.compilation import CallingConvention, KernelSignature

from mla_var3.errors import InterpreterError, UnknownNameError, UsageError
from mla_var3.interpreter.commands import main
from mla_var3.interpreter.launch_report import summary
from mla_var3.interpreter.redirect import redirected, run_script

SCRIPT = """
import sys
import cuda.tile as ct
import torch

@ct.kernel
def double(x, y, TILE: ct.Constant[int]):
    ct.store(y, (ct.bid(0),), 2 * ct.load(x, (ct.bid(0),), (TILE,)))

x = torch.arange(8.0, device="cuda")
y = torch.empty_like(x)
assert x.is_cuda and torch.cuda.is_available()
ct.launch(torch.cuda.current_stream(), (2,), double, (x, y, 4))
torch.cuda.synchronize()
assert y.cpu().tolist() == [2.0 * i for i in range(8)]
print("arguments:", sys.argv[1:])
if "--leave" in sys.argv:
    sys.exit(3)
if "--outside" in sys.argv:
    ct.launch(torch.cuda.current_stream(), (3,), double, (x, y, 4))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def test_a_script_runs_unchanged(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (ct.launch, torch.cuda.is_available(), sys.argv[:], sys.path[:])
    reports, ended = run_script(script, ["--one", "two"])
    assert (ct.launch, torch.cuda.is_available(), sys.argv, sys.path) == before
    assert (ended.code, ended.error) == (0, None)
    assert [r.kernel for r in reports] == ["double"]
    assert "arguments: ['--one', 'two']" in capsys.readouterr().out
    assert summary(reports).endswith("interpreted 1 launch: 0 findings, 0 of them errors")


def test_the_command(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--order=reverse", str(script), "--flag"]) == 0
    out = capsys.readouterr().out
    assert "double: grid (2, 1, 1)" in out
    assert "['--flag']" in out
    assert main(["run", str(script), "--leave"]) == 3
    assert main(["run", str(script), "--outside"]) == 1
    assert "tile-outside" in capsys.readouterr().out
    assert main(["run", "--padding=hardware", str(script), "--outside"]) == 0


def test_bad_command_lines() -> None:
    with pytest.raises(UsageError, match="run needs a script"):
        main(["run"])
    with pytest.raises(UnknownNameError, match="unknown command 'walk'"):
        main(["walk"])
    with pytest.raises(UsageError, match="there is no script"):
        main(["run", "nowhere.py"])
    with pytest.raises(InterpreterError, match="must be one of forward, reverse, random"):
        main(["run", "--order=sideways", "nowhere.py"])
    assert main(["--help"]) == 0


@ct.kernel
def refuses(x):
    ct.store(x, (0,), ct.zeros((3,), ct.float32))


def test_errors_of_cutile_are_its_own() -> None:
    with redirected() as reports, pytest.raises(ct.TileError, match=r"power of (two|2)"):
        ct.launch(torch.cuda.current_stream(), (1,), refuses, (torch.zeros(4, device="cuda"),))
    assert reports == []


@ct.kernel
def counts_blocks(n):
    ct.atomic_add(n, 0, 1)


@pytest.mark.parametrize(
    ("grid", "blocks"), [((), 1), ([], 1), ((1,), 1), ((3,), 3), ((2, 3), 6), ([2, 1, 2], 4)]
)
def test_a_grid_without_axes_is_one_block(grid: tuple[int, ...] | list[int], blocks: int) -> None:
    n = torch.zeros(1, dtype=torch.int32, device="cpu")
    with redirected():
        ct.launch(torch.cuda.current_stream(), grid, counts_blocks, (n,))
        torch.cuda.synchronize()
    assert n.tolist() == [blocks]


def test_a_signature_of_arguments_has_the_symbol_that_is_asked_for() -> None:
    convention = CallingConvention.cutile_python_v1()
    args = torch.zeros(8), torch.zeros(8), 4
    with redirected():
        named = KernelSignature.from_kernel_args(tuned, args, convention, symbol="mine")
        free = KernelSignature.from_kernel_args(tuned, args, convention)
    assert named.symbol == "mine"
    assert free.symbol is not None
    assert "tuned" in free.symbol
    assert named.parameters == free.parameters


@ct.kernel
def tuned(x, y, TILE: ct.Constant[int]):
    ct.store(y, (ct.bid(0),), ct.load(x, (ct.bid(0),), (TILE,)))


def test_a_search_takes_its_first_configuration() -> None:
    with redirected():
        from cuda.tile.tune import exhaustive_search

        x, y = torch.ones(8, device="cuda"), torch.zeros(8, device="cuda")
        found = exhaustive_search(
            [2, 4, 8],
            torch.cuda.current_stream(),
            lambda tile: (8 // tile,),
            tuned,
            lambda tile: (x, y, tile),
            quiet=True,
        )
        assert found.best.config == 2


SUITE = """
import cuda.tile as ct
import pytest
import torch

@ct.kernel
def copy(x, y, TILE: ct.Constant[int]):
    ct.store(y, (ct.bid(0),), ct.load(x, (ct.bid(0),), (TILE,)))

@pytest.mark.parametrize("blocks", [2, 3])
def test_copy(blocks):
    x, y = torch.ones(8, device="cuda"), torch.zeros(8, device="cuda")
    ct.launch(torch.cuda.current_stream(), (blocks,), copy, (x, y, 4))
    torch.testing.assert_close(x, y)

def test_wrong():
    assert not torch.cuda.is_available()

@pytest.mark.skip(reason="not today")
def test_skipped():
    pass
"""


def run_suite(folder: Path, *flags: str) -> tuple[str, list[dict[str, object]]]:
    (folder / "test_suite.py").write_text(SUITE)
    results = folder / "results.jsonl"
    command = [sys.executable, "-m", "pytest", "-p", "mla_var3.interpreter.pytest_plugin"]
    command += ["-p", "no:cacheprovider", "--interpreter-results", str(results), *flags, "."]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout, [json.loads(line) for line in results.read_text().splitlines()]


@pytest.mark.slow
def test_the_pytest_plugin(tmp_path: Path) -> None:
    out, lines = run_suite(tmp_path, "--interpreter-lenient")
    outcomes = {str(line["test"]).split("::")[1]: line["outcome"] for line in lines}
    assert outcomes == {
        "test_copy[2]": "passed",
        "test_copy[3]": "passed",
        "test_wrong": "failed",
        "test_skipped": "skipped",
    }
    assert [line["launches"] for line in lines] == [1, 1, 0, 0]
    assert lines[1]["errors"] == ["tile-outside at test_suite.py:8"]
    assert lines[3]["reason"] == "not today"
    assert "2 launches, 2 findings" in out
    out, lines = run_suite(tmp_path)
    assert [line["outcome"] for line in lines].count("failed") == 2
