"""Each fault a device file can have is found, and named by file and key."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from mla_var3.devices import DEVICE_DIR, load
from mla_var3.devices.__main__ import main
from mla_var3.devices.lint import lint, peaks, write_peaks
from mla_var3.devices.model import load_dir
from mla_var3.errors import DeviceFigureError, UnknownNameError

KEYS = [path.stem for path in sorted(DEVICE_DIR.glob("*.toml"))]
FIGURE = """
[[figure]]
metric = "{metric}"
value = {value}
unit = "{unit}"
condition = "{condition}"
source = "a data sheet"
address = "{address}"
quoted = "as printed"
kind = "vendor-datasheet"
evidence = "direct"
"""


def fig(
    value: object = 1,
    metric: str = "dram_bandwidth",
    unit: str = "GB/s",
    condition: str = "",
    address: str = "https://example.org",
) -> str:
    return FIGURE.format(
        metric=metric, value=value, unit=unit, condition=condition, address=address
    )


def head(key: str = "x", **extra: str) -> str:
    fields = {"key": key, "name": key, "vendor": "NVIDIA", "arch": "A", "sm": "sm_90", **extra}
    return "[device]\n" + "\n".join(f'{name} = "{value}"' for name, value in fields.items()) + "\n"


def used(value: object = 1, condition: str = "", metric: str = "dram_bandwidth") -> str:
    return (
        f'\n[[used]]\nmetric = "{metric}"\nvalue = {value}\nunit = "GB/s"\n'
        f'condition = "{condition}"\nreason = "because it is newer"\n'
    )


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (head("y") + fig(), "x.toml: device.key: 'y' is not the name of the file"),
        (head(default_for="sm_80") + fig(), "x.toml: device.default_for: sm_80 is not"),
        (head() + fig(metric="colour", unit=""), "x.toml: figures[0] colour: colour lacks unit"),
        (head() + fig(address="ftp://x"), "dram_bandwidth: address 'ftp://x' is not one http(s)"),
        (head() + fig(address="https://x (y.md@1a)"), "address 'https://x (y.md@1a)' is not one"),
        (head() + fig(address="https://x(y.md)"), "address 'https://x(y.md)' is not one"),
        (head() + fig() + fig(), "x.toml: dram_bandwidth: the same figure is stated 2 times"),
        (head() + fig(1) + fig(2), "x.toml: dram_bandwidth: 1 GB/s, 2 GB/s disagree"),
        (head() + used() + used() + fig(1) + fig(2), "used dram_bandwidth: 2 entries choose"),
        (head() + used(3) + fig(1) + fig(2), "used dram_bandwidth of 3 GB/s"),
        (
            head() + used(1, "with sparsity") + fig(1, condition="with sparsity") + fig(2),
            "x.toml: used dram_bandwidth: the figure assumes sparsity",
        ),
        (head() + used('"UNKNOWN"') + fig(), "x.toml: used[0] dram_bandwidth.value"),
        (
            head() + fig() + '\n[[figure]]\nmetric = "dram_bandwidth"\nvalue = "UNKNOWN"\n',
            "x.toml: dram_bandwidth: is both UNKNOWN and stated",
        ),
        ("nonsense", "x.toml: cannot be read"),
    ],
)
def test_faults(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "x.toml").write_text(text)
    assert any(fault in line for line in lint(tmp_path)), lint(tmp_path)


def test_unknown_metric_without_a_value(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(
        head() + '\n[[figure]]\nmetric = "colour"\nvalue = "UNKNOWN"\n'
    )
    assert any("unknown device metric 'colour'" in line for line in lint(tmp_path))


def test_duplicates_across_files(tmp_path: Path) -> None:
    both = 'default_for = "sm_90"\ntorch_names = ["T"]\n'
    (tmp_path / "x.toml").write_text(head("x") + both + fig())
    (tmp_path / "y.toml").write_text(head("x") + both + fig())
    faults = "\n".join(lint(tmp_path))
    for what in ("key 'x'", "name 'x'", "torch name 't'", "default_for 'sm_90'"):
        assert f"device {what} occurs in 2 places" in faults


def test_no_files(tmp_path: Path) -> None:
    assert "no device files" in lint(tmp_path)[0]


def test_the_project_is_sound() -> None:
    assert lint(DEVICE_DIR) == []


def test_sparse_and_dense_are_no_conflict(tmp_path: Path) -> None:
    sparse = fig(2, "tensor_fp8", "TFLOPS", "with sparsity")
    (tmp_path / "x.toml").write_text(head() + sparse + fig(1, "tensor_fp8", "TFLOPS", "dense"))
    assert lint(tmp_path) == []


def test_peaks_are_published_figures_by_torch_name() -> None:
    table = peaks(load_dir(DEVICE_DIR))
    assert table["NVIDIA H200"] == {
        "device": "nvidia-h200-sxm",
        "peak_float16_float32_tflops": 989.5,
        "peak_bfloat16_float32_tflops": 989.5,
        "peak_dram_bw_GBps": 4800.0,
    }
    assert table["AMD Instinct MI308X"]["peak_float16_float32_tflops"] is None


def test_peaks_are_written(tmp_path: Path) -> None:
    path = tmp_path / "devices.json"
    h200 = [load("nvidia-h200-sxm")]
    assert write_peaks(h200, path) == path
    assert list(tmp_path.iterdir()) == [path]
    assert json.loads(path.read_text()) == peaks(h200)
    assert set(peaks(h200)) == {"NVIDIA H200"}


def test_peaks_that_cannot_be_written_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DeviceFigureError, match="cannot be written: No space left on device"):
        write_peaks([], tmp_path / "devices.json")
    assert list(tmp_path.iterdir()) == []


class TestCommandLine:
    def test_check(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check"]) == 0
        shown = capsys.readouterr().out
        assert f"{len(KEYS)} device files are sound" in shown
        conflicts = sum(len(device.used) for device in load_dir(DEVICE_DIR))
        assert f"{conflicts} conflicts between sources" in shown

    def test_list(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["list"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines] == KEYS
        assert any("694 TFLOP/s" in line and "measured" in line for line in lines)

    @pytest.mark.parametrize("key", KEYS)
    def test_show(self, key: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["show", key]) == 0
        assert key in capsys.readouterr().out

    def test_unknown_device(self) -> None:
        with pytest.raises(UnknownNameError, match="did you mean 'nvidia-b200'"):
            main(["show", "nvidia-b20"])

    def test_unknown_command(self) -> None:
        with pytest.raises(UnknownNameError, match="unknown command 'bogus'"):
            main(["bogus"])

    def test_faults_are_told(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "x.toml").write_text(head("y") + fig())
        monkeypatch.setattr("mla_var3.devices.__main__.DEVICE_DIR", tmp_path)
        for command in (["check"], ["write", str(tmp_path / "peaks.json")]):
            with pytest.raises(DeviceFigureError, match=r"x\.toml: device\.key"):
                main(command)
        assert not (tmp_path / "peaks.json").exists()

    def test_write(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        target = tmp_path / "devices.json"
        assert main(["write", str(target)]) == 0
        assert json.loads(target.read_text()) == peaks(load_dir(DEVICE_DIR))
        assert str(target) in capsys.readouterr().out

    def test_device_without_ceilings_is_listed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        shutil.copy(DEVICE_DIR / "nvidia-h200-sxm.toml", tmp_path / "x.toml")
        (tmp_path / "y.toml").write_text(head("y") + fig())
        monkeypatch.setattr("mla_var3.devices.__main__.all_devices", lambda: load_dir(tmp_path))
        assert main(["list"]) == 0
        assert "states no tensor_bf16_fp32acc" in capsys.readouterr().out
