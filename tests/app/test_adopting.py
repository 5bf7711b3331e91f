"""check, profile, compare and match take a file as they take our versions."""

from __future__ import annotations

import contextlib
import sys

import pytest

from mla_var3 import devices, front
from mla_var3.app import adopting, cli, commands
from mla_var3.campaign import adopted, launching
from mla_var3.errors import RecordError, ToolchainError, UsageError
from mla_var3.gpuless.cuda import cuda_on_cpu
from mla_var3.knowledge import __main__ as knowledge
from mla_var3.profiling import binding, gpu_lock, recording, timing
from mla_var3.runtime import costs
from mla_var3.workloads import Cost
from tests.campaign.files import ADD, CONTRACT, TORCH
from tests.evidence import making


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr("mla_var3.paths.out_dir", lambda: tmp_path / "out")
    monkeypatch.setattr(knowledge, "out_dir", lambda: tmp_path / "out")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(ADD + CONTRACT)
    return path


def test_check_runs_every_size(file, capsys):
    assert commands.main(["check", str(file)]) == 0
    said = capsys.readouterr().out
    assert "mine n7 error 0.0e+00 ok" in said
    assert "2 problems: all right" in said
    file.write_text(file.read_text().replace("+ ct.load(y", "- ct.load(y"))
    assert commands.main(["check", str(file)]) == 1
    assert "2 wrong" in capsys.readouterr().out


@pytest.mark.slow
def test_profile_compiles_and_compare_and_match_read_it(file, tmp_path, capsys):
    assert cli.main([str(file), "--n=40", "--arch=sm_90"]) == 0
    said = capsys.readouterr().out
    assert "mine v0: right" in said
    assert "At n=40" in said
    assert "sm_90" in said
    (record,) = adopted.records_of(file)
    assert record.outcome.stages[0].static.registers > 0
    other = tmp_path / "other.py"
    other.write_text(file.read_text().replace("TILE = 32", "TILE = 64"))
    with pytest.raises(ToolchainError, match="has no record"):
        commands.main(["compare", str(file), str(other)])
    assert cli.main([str(other), "--n=40", "--prof_type=disabled"]) == 0
    with pytest.raises(RecordError, match="share no record"):
        list(adopting.compare(str(file), str(other)))
    assert cli.main([str(other), "--n=40", "--arch=sm_90"]) == 0
    capsys.readouterr()
    assert commands.main(["compare", str(file), str(other)]) == 0
    assert "mine.py to other.py" in capsys.readouterr().out
    assert knowledge.main(["match", str(file)]) == 0
    assert capsys.readouterr().out


def test_a_launch_sees_no_flag_of_profile(file, monkeypatch, capsys):
    """The CuTe DSL parses the process's arguments, and takes --h=3 for its help."""
    file.write_text(
        file.read_text().replace(
            "def launch(x, y):", "def launch(x, y):\n    import sys; assert len(sys.argv) == 1"
        )
    )
    monkeypatch.setattr("sys.argv", ["profile", str(file), "--n=40"])
    assert cli.main([str(file), "--n=40", "--prof_type=disabled"]) == 0
    assert len(sys.argv) == 3
    assert "mine v0: right" in capsys.readouterr().out


@pytest.fixture
def product(tmp_path):
    path = tmp_path / "product.py"
    path.write_text(TORCH)
    return path


def test_plain_torch_has_a_bound_and_no_advice_to_compile_it(product, capsys):
    assert cli.main([str(product), "--m=64", "--n=512"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Compiled: nothing: plain PyTorch chooses its kernels on the GPU" in said
    # 4,194,304 FLOP at 494.7 TFLOP/s take 0.008 us, 278,528 bytes at 4.8 TB/s 0.058 us.
    assert "Bound: 0.058 us on nvidia-h200-sxm by DRAM bandwidth" in said
    assert "4,194,304 FLOP (torch's FlopCounter over the reference) and 278,528 bytes" in said
    assert "At m=64 n=512. record" in said  # No table of one word, and no list that is empty.
    assert knowledge.main(["match", str(product)]) == 0
    said = capsys.readouterr().out
    assert "--prof_type=event" in said
    assert "static" not in said


@pytest.mark.parametrize(
    ("cast", "rate"), [("", "fp32"), (".half()", "bf16"), (".to(torch.float8_e4m3fn)", "fp8")]
)
def test_the_bound_is_at_a_rate_that_no_kernel_of_these_operands_beats(product, cast, rate):
    """Operands of 8 bits multiply at twice the rate of 16; those of 32 at most as TF32."""
    text = product.read_text().replace("device=device)", f"device=device){cast}")
    product.write_text(
        text.replace("a @ b", "a.float() @ b.float()").replace(".double()", ".float()")
    )
    found = adopted.adopt(product)
    checked = found.check({"m": 4, "n": 65536})
    assert checked.rate == rate
    record = adopted.record_of(found, checked, "disabled", "cpu", [])
    tflops = {"fp32": 494.7, "bf16": 989.5, "fp8": 1979.0}[rate]
    with costs.given(adopted.work(checked)):
        least = costs.bound(record, device=devices.find("nvidia-h200-sxm"))
    assert least.rates.tflops == tflops


def test_what_was_edited_matches_nothing(product):
    assert cli.main([str(product)]) == 0
    product.write_text(TORCH.replace("m=8", "m=9"))
    with pytest.raises(UsageError, match=r"product.py changed since it was profiled; run nox -s p"):
        knowledge.main(["match", str(product)])


def test_a_time_has_the_work_of_its_problem(product, monkeypatch):
    """A GPU's record says how far from the bound it is, as that of a compile does."""
    device = making.timed_record().device
    monkeypatch.setattr(binding, "require_gpu", lambda mode: None)
    monkeypatch.setattr(gpu_lock, "held", lambda note: contextlib.nullcontext())
    monkeypatch.setattr(recording, "gpu", lambda: (devices.find(device.key), device))
    monkeypatch.setattr(timing.Timer, "time", lambda self, call: making.duration(9.6))
    with cuda_on_cpu():
        record, checked = launching.timed(adopted.adopt(product), {"m": 64, "n": 512}, 3)
    assert checked.cost == Cost(4_194_304, 278_528)
    with costs.given(adopted.work(checked)):
        assert costs.fraction(record) == pytest.approx(0.058 / 9.6, rel=0.01)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--n=x"], "--n=x is not understood"),
        (["--q=3"], "unknown flag --q"),
        (["--bench_runs=0"], "bench_runs=0"),
        (["--arch="], "empty"),
        (["--device=nvidia-b200"], "takes no --device: --arch=sm_100 compiles for NVIDIA B200"),
        (["--device=amd-mi300x"], "written in cuTile, which compiles for NVIDIA alone"),
        (["--device=nvidia-b20"], "did you mean 'nvidia-b200'"),
    ],
)
def test_bad_flags_are_one_sentence(file, argv, said):
    with pytest.raises(Exception, match=said):
        cli.main([str(file), *argv])


def test_for_an_amd_device_there_are_step_zero_and_the_plan_alone(tmp_path, capfd):
    path = tmp_path / "plain.py"
    path.write_text("def inputs(device):\n    return {}\n")
    with pytest.raises(SystemExit) as ended:
        front.run("mla_var3.app.cli:main", argv=[str(path), "--device=amd-mi300x"])
    assert ended.value.code == 2
    [said] = capfd.readouterr().err.splitlines()
    assert said.startswith("error: nothing is run on AMD Instinct MI300X, since times here are by ")
    for command in ("campaign -- step0", "tools -- plan"):
        assert f"nox -s {command} {path} --device=amd-mi300x" in said


def test_files_are_compared_with_files(file):
    for arguments in (["compare", str(file), "v1"], ["compare", str(file), str(file)],
                      ["compare", str(file), "a.py", "b.py"], ["check", str(file), "v1"],
                      ["compare", "flash_mla", "v1"]):  # fmt: skip
        with pytest.raises(UsageError):
            commands.main(arguments)


def test_a_size_may_not_be_a_flag(tmp_path):
    path = tmp_path / "taken.py"
    path.write_text(TORCH.replace("m=8", "verbose=8").replace("(m,", "(verbose,"))
    with pytest.raises(UsageError, match="may not be called verbose"):
        cli.main([str(path)])


def test_timing_asks_for_a_gpu(file):
    with pytest.raises(ToolchainError, match="needs a CUDA GPU"):
        cli.main([str(file), "--prof_type=event"])
