"""Tools: answers name their run, code is listed by line, and two versions are told apart."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import types

import pytest

from mla_var3 import devices
from mla_var3.app import tools
from mla_var3.campaign import measuring
from mla_var3.errors import ToolchainError, UnknownNameError, UsageError
from mla_var3.languages import Compiled
from mla_var3.runtime import registry
from mla_var3.static.sass import Instruction
from tests.campaign.files import ADD, CONTRACT, TORCH


def said(capsys, *argv: str) -> str:
    assert tools.main(argv) == 0
    return capsys.readouterr().out


def test_a_time_is_of_the_nearest_problem_and_names_its_run(capsys):
    told = said(capsys, "time", "flash_mla@cute-dsl", "v12", "--problem=b=32,s=1")
    assert re.match(r"flash_mla v12 at b32-h128-s1-\S+ on nvidia-h200-sxm, run \w+", told)
    assert re.search(r"^whole: [\d.,]+ us \([\d.,]+ to [\d.,]+, \d+ samples\)$", told, re.MULTILINE)


def test_without_a_problem_it_is_the_versions_own(capsys):
    plan = registry.find("flash_mla@cute-dsl", "v12").plan_class()()
    record = tools.timed("flash_mla@cute-dsl", "v12", "", "")
    assert record.problem["s"] == plan.s


def test_rates_are_by_the_cost_model_and_as_counted(capsys):
    told = said(capsys, "utilization", "mla_var6_plus", "v4", "--problem=b=32,s=16,n=1216")
    shares = [float(share) for share in re.findall(r", ([\d.]+)% of [\d.,]+ TFLOP/s", told)]
    assert shares
    assert all(0 < share <= 100 for share in shares)
    assert "attention.latent: " in told
    assert "% as Nsight Compute counts it" in told
    told = said(capsys, "bandwidth", "mla_var6_plus", "v4", "--problem=b=32,s=16")
    assert re.search(r"whole: [\d.,]+ GB/s, [\d.]+% of 4,800 GB/s", told)


def test_ceilings_are_of_each_element_type(capsys):
    told = said(capsys, "ceilings", "nvidia-h200-sxm")
    assert "bfloat16, bound: 989.5 TFLOP/s, 4,800 GB/s" in told
    assert "bfloat16, attained: " in told
    told = said(capsys, "ceilings", "amd-mi300x")
    assert told.count("\n") == 6, "the script that measures is CUDA's"
    assert told.count("attained: nobody measured it") == 3


def test_trials_of_the_autotuner_are_listed_by_run(capsys, monkeypatch):
    rows = [{"run": run, "time": run, "stage": "gemm", "tiling": {"tile_m": m}, "time_us": us,
             "error": None if us else "no room"}
            for run, m, us in (("a", 64, 9.0), ("a", 32, 7.0), ("b", 64, None))]  # fmt: skip
    monkeypatch.setattr("mla_var3.runtime.autotune.history", lambda *_: rows)
    told = said(capsys, "trials", "gemm", "v0").splitlines()
    assert told[0].startswith("gemm v0 gemm at ")
    assert [line.strip() for line in told if line.startswith("  ")] == [
        "tile_m=32: 7.00 us", "tile_m=64: 9.00 us", "tile_m=64: no room"]  # fmt: skip


def test_code_is_listed_by_source_line(capsys):
    told = said(capsys, "asm", "gemm", "v0", "--problem=m=256,n=256,k=256")
    assert re.match(r"gemm v0 gemm sm_90: \d+ instructions", told)
    assert "kernels/cutile/gemm/gemm/gemm/gemm.py:" in told
    full = said(capsys, "asm", "gemm", "v0", "--problem=m=256,n=256,k=256", "--full")
    assert "HGMMA" in full
    assert len(full.splitlines()) == 1 + int(re.search(r"(\d+) instructions", full)[1])


def listing(*opcodes: str) -> list[Instruction]:
    return [Instruction(opcode, "x.py", 3) for opcode in opcodes]


def test_two_versions_are_told_apart_by_opcodes(capsys):
    pair = listing("LDG.E", "HMMA.16816", "HMMA.16816"), listing("HMMA.16816", "STG", "STG")
    tools._differs("t", *pair, full=False)
    told = capsys.readouterr().out.splitlines()
    assert told == ["t: 3 to 3 instructions", "      +2  STG: 0 to 2", "      -1  HMMA: 2 to 1",
                    "      -1  LDG: 1 to 0"]  # fmt: skip
    tools._differs("t", *pair, full=True)
    assert "  -LDG.E" in capsys.readouterr().out
    tools._differs("t", pair[0], pair[0], full=False)
    assert "the same opcodes as often" in capsys.readouterr().out


def test_code_of_two_versions(capsys, monkeypatch):
    made = {"v0": {"gemm": "a", "one": "a"}, "v1": {"gemm": "b"}}
    facts = types.SimpleNamespace(arch="sm_90")
    codes = {version: {stage: types.SimpleNamespace(facts=facts, code=code)
                       for stage, code in stages.items()}
             for version, stages in made.items()}  # fmt: skip
    monkeypatch.setattr(tools, "_code", lambda version, *rest: codes[version.version])
    monkeypatch.setattr(tools, "_instructions",
                        lambda one, form: listing("LDG" if one.code == "a" else "STG"))  # fmt: skip
    told = said(capsys, "asm", "gemm", "v0", "v1")
    assert "gemm sm_90: gemm v0 to gemm v1: 1 to 1 instructions" in told
    assert "one: only gemm v0 has this stage" in told


PTX = """.version 8.8
.target sm_90a
.address_size 64
.visible .entry add(.param .u64 add_0)
{
\t.reg .b32 %r<3>;
\t.loc 1 7 0
\tmov.u32 %r1, 1;
\tmov.u32 %r2, %r1;
\t.loc 1 8 0
\tret;
}
.file 1 "/somewhere/add.py"
"""


def test_ptx_is_listed_by_source_line_too(capsys, monkeypatch):
    facts = types.SimpleNamespace(arch="sm_90a", error=None)
    made = Compiled(facts, {"kernel.ptx": PTX.encode()})
    monkeypatch.setattr(tools, "_code", lambda *given: {"add": made})
    told = said(capsys, "asm", "gemm", "v0", "--form=ptx").splitlines()
    assert told[0] == "gemm v0 add sm_90a: 3 instructions"
    assert told[1].split()[:2] == ["2", "add.py:7"]
    assert told[2].strip() == "2 mov"
    assert PTX in said(capsys, "asm", "gemm", "v0", "--form=ptx", "--full")
    assert "the same opcodes as often" in said(capsys, "asm", "gemm", "v0", "v1", "--form=ptx")


@pytest.mark.slow
def test_code_of_adopted_files(tmp_path, capsys):
    mine, other = tmp_path / "mine.py", tmp_path / "other.py"
    mine.write_text(ADD + CONTRACT)
    other.write_text(mine.read_text().replace("+ ct.load(y", "* ct.load(y"))
    told = said(capsys, "asm", str(mine), "--problem=n=64")
    assert "mine.py add_kernel sm_90: " in told
    assert re.search(r"mine\.py:1\d  ", told)
    told = said(capsys, "asm", str(mine), str(other), "--problem=n=64", "--arch=sm_100")
    assert f"add_kernel sm_100: {mine} to {other}: " in told
    assert "FADD" in told
    with pytest.raises(UnknownNameError, match="stage 'none'"):
        tools.main(["asm", str(mine), "--stage=none"])
    with pytest.raises(UsageError, match="is compared with one other file"):
        tools.main(["asm", str(mine), "v1"])
    with pytest.raises(ToolchainError, match="leaves no PTX"):
        tools.main(["asm", str(mine), "--form=ptx"])


UNKNOWN = ("--accept=shared_memory_per_sm,shared_memory_per_block_max,static_power,energy_per_flop,"
           "energy_per_byte")  # fmt: skip


def test_the_plan_for_an_amd_device_has_the_commands_of_its_profiler(tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text(TORCH)
    told = said(capsys, "plan", str(path), "--device=amd-mi300x", "--problem=m=64", UNKNOWN)
    commands = re.findall(r"^   \$ (.+)$", told, re.MULTILINE)
    assert len(commands) == told.count("\n1. ") + told.count("\n2. ") + 4
    for command in commands:
        words = shlex.split(command)
        assert words[0] == "rocprofv3"
        program = words[words.index("--") + 1 :]
        assert program[:2] == ["env", f"PYTHONPATH={tmp_path}"]
        assert program[2:4] == ["python", "-c"]
        compile(program[4], "command", "exec")
        assert "inputs('cuda', m=64)" in program[4]
    assert "--kernel-trace --stats" in commands[0]
    assert "SQ_INSTS_VALU_MFMA_MOPS_F32" in commands[1]
    assert "DRAM ceiling on amd-mi300x: " in told
    assert told.endswith("not run: no AMD Instinct MI300X is here, and this project times by CUDA "
                         "alone\n")  # fmt: skip


def test_the_program_that_rocprofv3_runs_is_one(tmp_path, monkeypatch):
    path = tmp_path / "mine.py"
    path.write_text(TORCH)
    (first, *_) = measuring.of_amd(path, {"m": 4}, "float32", devices.load("amd-mi300x"))
    code = shlex.split(first.command)[-1].replace("'cuda'", "'cpu'")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False)
    assert done.returncode == 0


def test_the_plan_for_an_nvidia_device_has_our_modes(capsys):
    told = said(capsys, "plan", "gemm", "v0", "--problem=m=256")
    assert told.startswith(
        "gemm v0: Work at bf16 m=256 n=8192 k=8192 (bf16): 34,359,738,368 FLOP, "
    )
    assert "$ nox -s profile -- gemm v0 --m=256 --prof_type=ncu" in told
    assert "not run" not in told


@pytest.mark.parametrize("text", [ADD + CONTRACT, "import cutlass\n" + TORCH])
def test_languages_of_one_vendor_have_no_plan_for_the_other(tmp_path, text):
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(UsageError, match="compiles for NVIDIA alone"):
        tools.main(["plan", str(path), "--device=amd-mi300x", UNKNOWN])
    with pytest.raises(UsageError, match="compiles for NVIDIA alone"):
        tools.main(["plan", "gemm", "v0", "--device=amd-mi300x"])


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["time", "gemms", "v0"], UnknownNameError),
        (["time", "gemm", "v99"], UnknownNameError),
        (["time", "gemm", "v0", "--problem=z=1"], UnknownNameError),
        (["time", "gemm", "v0", "--device=nvidia-b200"], ToolchainError),
        (["trials", "gemm", "v0", "--device=nvidia-b200"], ToolchainError),
        (["ceilings", "h2000"], UnknownNameError),
        (["asm", "gemm", "v0", "--form=text"], UnknownNameError),
        (["asm", "gemm", "v0", "--arch=sm_1"], UnknownNameError),
        (["asm", "gemm", "v0", "--stage=none"], UnknownNameError),
        (["weigh", "gemm"], UnknownNameError),
    ],
)
def test_bad_input_is_one_sentence(argv, error):
    with pytest.raises(error) as raised:
        tools.main(argv)
    assert "\n" not in str(raised.value)
