"""Step 0: every figure leads to the line that states it; typed and changed ones are refused."""

from __future__ import annotations

import json

import pytest

from mla_var3.app import campaign
from mla_var3.campaign import stepzero
from mla_var3.campaign.stepzero import Work, faults, step_zero
from mla_var3.devices import all_devices, find
from mla_var3.errors import DeviceFigureError, HyperMlaError, InputError, UnknownNameError
from mla_var3.paths import repo_root
from mla_var3.workloads import Cost
from tests.campaign.files import TORCH

WORK = Work("x", {"n": 3}, "bf16", Cost(10**12, 10**9), "its cost model")
H200 = "nvidia-h200-sxm"


def test_each_figure_leads_to_its_table():
    found = step_zero(WORK, find(H200))
    assert len(found.figures) == 12
    for figure in found.figures:
        lines = (repo_root() / figure.file).read_text().splitlines()
        table = "\n".join(lines[figure.line - 1 : figure.line + 4])
        assert table.startswith("[[figure]]")
        assert figure.metric in table
        assert f"value = {figure.figure.value}" in table
    assert faults(found.text(), "x") == []


def test_power_is_a_ceiling_and_the_target_is_of_the_tightest():
    found = step_zero(WORK, find(H200))
    times = dict(found.ceilings())
    assert set(times) == {"tensor", "DRAM", "power"}
    assert found.ceilings()[0] == ("power", max(times.values()))
    assert found.target_us == pytest.approx(max(times.values()) / 0.9)
    assert "The tightest ceiling is power, " in found.text()
    assert "The target is 90% of its rate" in found.text()
    assert "us at the least, back to back" in found.text()
    assert found.data()["least_ceiling"] == "power"


def test_an_unknown_figure_stops_with_a_question_until_it_is_accepted():
    with pytest.raises(DeviceFigureError, match="do you know a source") as raised:
        step_zero(WORK, find("nvidia-b200"))
    names = str(raised.value).rpartition("--accept=")[2].split(",")
    found = step_zero(WORK, find("nvidia-b200"), names)
    assert "energy_per_flop: UNKNOWN <- knowledge/devices/nvidia-b200.toml:1" in found.text()
    assert [name for name, _ in found.ceilings()] == ["tensor", "DRAM"]
    with pytest.raises(UnknownNameError, match="figure to accept"):
        step_zero(WORK, find("nvidia-b200"), ["speed"])


@pytest.mark.parametrize("device", [d.key for d in all_devices()])
def test_every_device_has_a_step_zero(device):
    found = step_zero(WORK, find(device), [*stepzero.STATED, *stepzero.ENERGY])
    assert faults(found.text(), device) == []
    assert found.target_us > 0


LINE = f"tdp: 700 W <- knowledge/devices/{H200}.toml:"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("the board draws 700 W", "'700 W' names no source"),
        ("peak is 989.5 TFLOPS dense", "names no source"),
        ("DRAM: 4.8 TB/s", "names no source"),
        ("runs at 1980 MHz", "names no source"),
        ("moves 4,800 GB per second", "names no source"),
        ("moves 4.8e12 B/s", "names no source"),
        ("989.5 teraflops", "names no source"),
        ("700 watts, or 0.7 kW", "'700 watts' names no source"),
        (f"{LINE}410".replace("devices/", "devices/../devices/"), "is not a file of"),
        (f"- `{LINE}1`", "where no figure begins"),
        (f"{LINE}410".replace("700", "600"), "is '600 W' here and '700 W' at"),
        (f"{LINE}410".replace("tdp", "l2_size"), "which states tdp"),
        (f"{LINE}410".replace(H200, "nvidia-h999"), "does not exist"),
        ("tdp: 700 W <- docs/x.toml:3", "is not a file of knowledge/devices"),
    ],
)
def test_figures_without_their_source_are_refused(text, said, tmp_path):
    (fault,) = faults(f"# A campaign\n{text}\n", "README.md")
    assert fault.startswith("README.md:2: ")
    assert said in fault
    path = tmp_path / "README.md"
    path.write_text(text)
    with pytest.raises(InputError, match=r"README\.md:1"):
        stepzero.require_sourced(path)


@pytest.mark.parametrize("text", ["69.1 us", "2 warps", "tile of 64x64", f"{LINE}410", "b=32"])
def test_other_numbers_need_none(text):
    assert faults(text, "x") == []


def test_work_in_fp32_takes_the_larger_of_its_two_rates():
    """Where nobody states TF32's, it asks; vector units alone would be no ceiling."""
    work = Work("w", {}, "float32", Cost(2 * 4096**3, 3 * 4 * 4096**2), "hand")
    found = step_zero(work, find("nvidia-h200-sxm"), stepzero.ENERGY)
    assert [f.metric for f in found.figures[:2]] == ["fp32_vector", "tensor_tf32"]
    assert dict(found.ceilings())["tensor"] == pytest.approx(2 * 4096**3 / 494.7e6)
    with pytest.raises(DeviceFigureError, match="--accept=tensor_tf32"):
        step_zero(work, find("nvidia-rtx-5090"), stepzero.ENERGY)


def test_the_command_takes_versions_and_files(tmp_path, capsys):
    path = tmp_path / "product.py"
    path.write_text(TORCH)
    accept = "--accept=static_power,energy_per_flop,energy_per_byte"
    assert campaign.main(["step0", "flash_mla", "v2", "--problem=b=4,s=1"]) == 0
    assert "Step 0: flash_mla v2 on NVIDIA H200 SXM" in capsys.readouterr().out
    out = tmp_path / "step0.md"
    assert campaign.main(["step0", str(path), "--json", accept]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["flops"] == 2 * 8 * 16 * 8
    assert campaign.main(["step0", str(path), accept, f"--to={out}"]) == 0
    assert faults(out.read_text(), "x") == []


@pytest.mark.parametrize(
    "argv",
    [
        [], ["flash_mla", "v2", "v3"], ["flash_mla", "v99"], ["none.py"], ["x.py", "v1"],
        ["flash_mla", "v2", "--device=h999"], ["flash_mla", "v2", "--problem=b"],
        ["flash_mla", "v2", "--problem=b=1,b=2"], ["flash_mla", "v2", "--problem=q=1"],
        ["flash_mla", "v2", "--problem=b=-1"], ["flash_mla", "v2", "--accept=x"],
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(argv):
    with pytest.raises(HyperMlaError) as raised:
        campaign.main(["step0", *argv])
    assert "\n" not in str(raised.value)
