"""Tools: answers name their run, code is listed by line, and two versions are told apart."""

from __future__ import annotations

import re

import pytest

from mla_var3.app import tools
from mla_var3.errors import HyperMlaError, ToolchainError, UnknownNameError
from mla_var3.runtime import registry
from mla_var3.static.sass import Instruction


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
    told = said(capsys, "utilization", "mla_var6_plus", "v4", "--problem=b=32,s=16")
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
    assert said(capsys, "ceilings", "amd-mi300x").count("\n") == 7


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
    monkeypatch.setattr(tools, "_code", lambda version, *rest: made[version.version])
    monkeypatch.setattr(tools, "_instructions", lambda one: listing("LDG" if one == "a" else "STG"))
    told = said(capsys, "asm", "gemm", "v0", "v1")
    assert "gemm sm_90: v0 to v1: 1 to 1 instructions" in told
    assert "one: only gemm v0 has this stage" in told


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
        (["asm", "gemm", "v0", "v1", "--form=ptx"], HyperMlaError),
        (["weigh", "gemm"], UnknownNameError),
    ],
)
def test_bad_input_is_one_sentence(argv, error, monkeypatch):
    if "v1" in argv:
        monkeypatch.setattr(tools, "_code", lambda *given: {})
    with pytest.raises(error) as raised:
        tools.main(argv)
    assert "\n" not in str(raised.value)
