"""check, profile, compare and match take a file as they take our versions."""

from __future__ import annotations

import pytest

from mla_var3 import front
from mla_var3.app import adopting, cli, commands
from mla_var3.campaign import adopted
from mla_var3.errors import RecordError, ToolchainError, UsageError
from mla_var3.knowledge import __main__ as knowledge
from tests.campaign.files import ADD, CONTRACT, TORCH


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
