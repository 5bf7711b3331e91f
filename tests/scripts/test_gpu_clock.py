"""Locking and giving back clocks, against an nvidia-smi that notes what it was asked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mla_var3 import devices
from mla_var3.errors import DeviceFigureError

SCRIPTS = Path(__file__).parents[2] / "scripts"
SMI = """#!/bin/sh
case "$*" in
  *query-gpu*) cat "$(dirname "$0")/gpus" ;;
  *query-compute-apps*) cat "$(dirname "$0")/apps-$2" 2>/dev/null ;;
  *) echo "$*" >> "$(dirname "$0")/asked"; eval "$ALLOWED" ;;
esac
"""
SUDO = """#!/bin/sh
shift
[ -n "$ROOT_WITHOUT_PASSWORD" ] && ALLOWED=true exec "$@"
"""


@pytest.fixture
def host(tmp_path, monkeypatch):
    """Makes a host with these GPUs and runs a script on it; gives what it said and asked for."""
    for name, text in (("nvidia-smi", SMI), ("sudo", SUDO)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")

    def run(
        script: str, *names: str, allowed: str = "true", root: bool = False
    ) -> tuple[list[str], list[str]]:
        listed = "".join(f"{index}, {name}\n" for index, name in enumerate(names))
        (tmp_path / "gpus").write_text(listed)
        (tmp_path / "asked").write_text("")
        environment = {"ALLOWED": allowed, "ROOT_WITHOUT_PASSWORD": "yes" if root else ""}
        done = subprocess.run(
            [SCRIPTS / script], env={**os.environ, **environment}, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines(), (tmp_path / "asked").read_text().splitlines()

    run.folder = tmp_path
    return run


def test_an_rtx_5090_is_locked_as_its_sources_had_it(host):
    said, asked = host("lock-gpu-clock.sh", "NVIDIA GeForce RTX 5090")
    assert asked == ["-i 0 --lock-gpu-clocks=2407,2407", "-i 0 --lock-memory-clocks=14001,14001"]
    assert said == ["GPU 0 (NVIDIA GeForce RTX 5090): SM clock locked at 2407 MHz, "
                    "memory clock at 14001 MHz"]  # fmt: skip


def boost_clock(device: devices.Device) -> str | None:
    try:
        return f"{device.figure('boost_clock').normalised:.0f}"
    except DeviceFigureError:
        return None


@pytest.mark.parametrize(
    ("name", "mhz"),
    [
        pytest.param(name, boost_clock(device), id=device.key)
        for device in devices.all_devices()
        for name in device.torch_names
        if device.vendor == "NVIDIA"
    ],
)
def test_each_known_gpu_is_locked_at_the_clock_of_its_device_file(host, name, mhz):
    said, asked = host("lock-gpu-clock.sh", name)
    if mhz is None:
        assert asked == []
        assert "has no boost clock in knowledge/devices" in said[0]
    else:
        assert asked[0] == f"-i 0 --lock-gpu-clocks={mhz},{mhz}"


def test_every_gpu_has_its_own_profile_and_an_unknown_one_is_left(host):
    said, asked = host("lock-gpu-clock.sh", "NVIDIA H200", "NVIDIA Next", "NVIDIA L40S")
    assert asked == ["-i 0 --lock-gpu-clocks=1980,1980", "-i 2 --lock-gpu-clocks=2520,2520"]
    assert said[1].startswith("GPU 1 (NVIDIA Next) has no boost clock")


@pytest.mark.parametrize("script", ["lock-gpu-clock.sh", "reset-gpu-clock.sh"])
def test_without_permission_one_sentence_says_so(host, script):
    said, _ = host(script, "NVIDIA H200", allowed="false")
    assert len(said) == 1
    assert "does not let this user" in said[0]


def test_root_without_a_password_is_used(host):
    said, asked = host("lock-gpu-clock.sh", "NVIDIA H200", allowed="false", root=True)
    assert asked == ["-i 0 --lock-gpu-clocks=1980,1980"] * 2
    assert said == ["GPU 0 (NVIDIA H200): SM clock locked at 1980 MHz"]


@pytest.mark.parametrize("script", ["lock-gpu-clock.sh", "reset-gpu-clock.sh"])
def test_a_gpu_that_computes_is_left_alone(host, script):
    (host.folder / "apps-0").write_text("4711\n")
    said, asked = host(script, "NVIDIA H200", "NVIDIA H200")
    assert [line.partition(" ")[0] for line in asked] == ["-i"]
    assert asked[0].startswith("-i 1 ")
    assert said[0] == (
        "GPU 0 (NVIDIA H200) is computing, perhaps for others: its clocks stay as they are"
    )


@pytest.mark.parametrize("script", ["lock-gpu-clock.sh", "reset-gpu-clock.sh"])
def test_without_a_gpu_or_nvidia_smi_one_sentence_says_so(host, script):
    assert host(script)[0] == ["nvidia-smi finds no GPU: no clock is changed"]
    (host.folder / "nvidia-smi").unlink()
    assert host(script)[0] == ["nvidia-smi finds no GPU: no clock is changed"]


def test_a_memory_clock_that_stays_is_told(host):
    only_sm = 'case "$*" in *memory*) false ;; esac'
    said, _ = host("lock-gpu-clock.sh", "NVIDIA GeForce RTX 5090", allowed=only_sm)
    assert said[0].endswith("SM clock locked at 2407 MHz; the memory clock cannot be locked")
    said, _ = host("reset-gpu-clock.sh", "NVIDIA GeForce RTX 5090", allowed=only_sm)
    assert said[0].endswith("SM clock reset; the memory clock cannot be reset")


def test_clocks_are_given_back(host):
    said, asked = host("reset-gpu-clock.sh", "NVIDIA GeForce RTX 5090", "NVIDIA H200")
    assert asked == [
        "-i 0 --reset-gpu-clocks", "-i 0 --reset-memory-clocks", "-i 1 --reset-gpu-clocks",
    ]  # fmt: skip
    assert [line.rpartition(": ")[2] for line in said] == ["clocks reset"] * 2


#: Of the dev extra, or the machine's.
SHELLCHECK = shutil.which(
    "shellcheck", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
)


@pytest.mark.skipif(SHELLCHECK is None, reason="needs shellcheck (the dev extra), not installed")
def test_shellcheck_has_nothing_to_say():
    scripts = [*SCRIPTS.glob("*.sh"), SCRIPTS.parent / ".ci/run"]
    done = subprocess.run(
        [SHELLCHECK, *scripts], cwd=SCRIPTS.parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
