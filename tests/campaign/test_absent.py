"""A file whose kernel language is not installed: what is missing, and Step 0 all the same."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from mla_var3.app import adopt, campaign, commands, tools
from mla_var3.campaign import absent, works
from mla_var3.errors import ToolchainError

FLY = """
import torch
import flydsl.compiler as flyc
import flydsl.expr as fx


@flyc.kernel
def gemm_kernel(a: fx.Tensor, b: fx.Tensor, c: fx.Tensor):
    raise AssertionError


@flyc.jit
def gemm(a, b, c):
    gemm_kernel(a, b, c).launch(grid=(1, 1, 1), block=(256, 1, 1))


def inputs(device, m=128, n=64, k=32):
    kinds = {"device": device, "dtype": torch.bfloat16}
    return {"a": torch.randn(m, k, **kinds), "b": torch.randn(k, n, **kinds)}


def reference(a, b):
    return a.float() @ b.float()


def launch(a, b):
    c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    gemm(a, b, c)
    return c
"""
ACCEPT = ("--accept=shared_memory_per_sm,shared_memory_per_block_max,static_power,energy_per_flop,"
          "energy_per_byte")  # fmt: skip

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("flydsl") is not None, reason="FlyDSL is installed"
)


@pytest.fixture
def fly(tmp_path):
    path = tmp_path / "fly.py"
    path.write_text(FLY)
    return path


@pytest.mark.parametrize("command", [adopt.main, lambda argv: commands.main(["check", *argv])])
def test_what_is_missing_and_what_works_without_it_is_one_sentence(fly, command):
    with pytest.raises(ToolchainError, match="imports flydsl, which is not installed") as raised:
        command([str(fly)])
    assert "\n" not in str(raised.value)
    assert f"campaign -- step0 {fly} --device=amd-mi300x" in str(raised.value)


def test_its_work_is_that_of_inputs_and_reference(fly):
    work = works.of_file(fly, {"m": 256})
    assert work.problem == {"m": 256, "n": 64, "k": 32}
    assert work.dtype == "bfloat16"
    assert work.cost.flops == 2 * 256 * 64 * 32
    assert work.cost.bytes == 2 * (256 * 32 + 32 * 64 + 256 * 64)
    assert "flydsl is not installed and nothing was launched" in work.source
    assert "flydsl" not in sys.modules


def test_step_0_and_the_plan_state_its_ceilings(fly, capsys):
    argv = [str(fly), "--device=amd-mi300x", ACCEPT]
    assert campaign.main(["step0", *argv]) == 0
    assert "The tightest ceiling is DRAM" in capsys.readouterr().out
    assert tools.main(["plan", *argv]) == 0
    told = capsys.readouterr().out
    assert "DRAM ceiling on amd-mi300x: " in told
    assert "SQ_INSTS_VALU_MFMA_MOPS_BF16" in told


def test_a_file_of_another_language_is_none(tmp_path):
    path = tmp_path / "other.py"
    path.write_text("import torch\n")
    assert absent.language_of(path) == ""
    absent.require_installed(path)
